/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite's write-ahead log as a file that one thread can sync while others write it.
 */
#ifndef LAPSE_STORE_SQLITE_LOG_H
#define LAPSE_STORE_SQLITE_LOG_H

#include <stdbool.h>

#include "base/err.h"

struct sqlite_log;

/* `durable` false makes every sync a no-op. */
int sqlite_log_open(const char *database, bool durable, struct sqlite_log **ret, struct problem *p);

/* LAPSE_ESYNC when the disk failed. */
int sqlite_log_sync(struct sqlite_log *log);
void sqlite_log_close(struct sqlite_log *log); /* takes NULL */

#endif
