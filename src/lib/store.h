/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the library share: the store behind the handle, and the frame of a call.
 *
 * A call is: checks of what it was given (check.h), store_begin…() which opens a transaction,
 * operations of a room, store_end() which commits and remembers the error. Calls without a
 * transaction use store_enter() and store_leave(). Between the two `inside` is set, so that a
 * callback that comes back in is told off instead of deadlocking.
 */
#ifndef LAPSE_LIB_STORE_H
#define LAPSE_LIB_STORE_H

#include "engine/engine.h"
#include "engine/tx.h"
#include "lapse.h"
#include "store/backup.h"

struct lapse_store {
	struct engine engine;
	struct settings settings;
	struct log log;
	char *owner;

	/* The caller's clock, and the engine's view of it. */
	struct lapse_options options; /* its texts and settings are gone once the store is open */
	struct clock clock;
	lapse_us mono; /* the largest one given out */

	bool inside; /* a call is under way */
	int err;     /* of the last call */
	struct problem problem;

	/* What the last call gave back, borrowed by the caller until the next one. */
	struct lapse_sweep_result sweep;
	struct lapse_table_count tables[BOUNDS_MAX];
	struct backup backup;
	struct lapse_backup_file backup_file;
	struct lapse_clock_state clock_state;
};

/* The clock the engine gets: the caller's, kept in range, its monotonic hand kept monotonic; or the
 * machine's. */
int store_clock_init(struct lapse_store *s, struct problem *p);

/* Deletes what cleanups ask for, at once, on the caller's thread. */
void store_run_cleanup(void *store, struct cleanup *c);

int store_enter(struct lapse_store *s);
int store_leave(struct lapse_store *s, int err);

/* The outcome of a check: a failed one ends the call. */
int store_check(struct lapse_store *s, int err);

/* On failure the call is over: return what they return. */
int store_begin(struct lapse_store *s, struct tx *tx);
int store_begin_read(struct lapse_store *s, struct tx *tx);

/* What every list begins with: the call, its limit checked, a read. On failure the call is over. */
int store_begin_list(struct lapse_store *s, int64_t limit, struct tx *tx);

/* Commits, or rolls back when `err` is one; the call is over. */
int store_end(struct lapse_store *s, struct tx *tx, int err);

/* The same, without ending the call: for those that call back after the commit. */
int store_commit(struct lapse_store *s, struct tx *tx, int err);

#endif
