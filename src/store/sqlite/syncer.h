/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syncer: makes committed transactions durable. SQLite commits without a sync
 * (synchronous=NORMAL). A caller that has promised durability syncs the write-ahead log, which
 * carries everything committed so far, and answers after that. The loop does not sleep through it:
 * while the log is synced on the syncer's thread, the next requests are read and parsed.
 *
 * A sync that fails ends the process. The kernel may have dropped what it could not write, so what
 * SQLite believes to be in its log is not; only a start that reads the log from the disk is safe.
 * No answer was sent yet, so nothing that was promised is lost.
 */
#ifndef LAPSE_STORE_SQLITE_SYNCER_H
#define LAPSE_STORE_SQLITE_SYNCER_H

#include "store/db.h"

struct syncer;

/* `database` is the database's path; `durable` false makes every sync a no-op. */
int syncer_start(const char *database, bool durable, struct syncer **ret, struct problem *p);
void syncer_stop(struct syncer *s); /* takes NULL; waits for a sync under way */

/* Syncs on the syncer's thread, then calls done(arg) there. One at a time. */
void syncer_request(struct syncer *s, void (*done)(void *arg), void *arg);

/* Syncs on the caller's thread, whichever that is; two at a time wait for each other. */
void syncer_sync(struct syncer *s);

/* Says on standard error what could not be synced, and ends the process. */
_Noreturn void syncer_die(const char *what);

#endif
