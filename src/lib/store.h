/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the library share: the store behind the handle, and the frame of a call.
 *
 * A call is: store_enter(), checks of what it was given (check.h), store_begin…() which opens the
 * store's transaction where it needs one, operations of a room, each only while all before it went
 * well; and, however it went, store_end(), which commits or rolls back what was begun and
 * remembers the error. A callback that comes back in fails at store_enter() and so does nothing.
 */
#ifndef LAPSE_LIB_STORE_H
#define LAPSE_LIB_STORE_H

#include "engine/engine.h"
#include "engine/tx.h"
#include "lapse.h"
#include "store/backup.h"

#define LAPSE_STORE_MAGIC 0x4c4c5354u
#define READER_MAGIC                                                                               \
	0x4c524452u /* of each file's struct reader: who is shown what a room lists                \
		     */

struct lapse_store {
	uint32_t magic;
	struct engine engine;
	struct settings settings;
	struct log log;
	char *owner;

	/* The caller's clock, and the engine's view of it. */
	struct lapse_options options; /* its texts and settings are gone once the store is open */
	struct clock clock;
	lapse_us mono; /* the largest one given out */

	/* The call under way. */
	int depth; /* calls entered and not ended: more than one = a callback came back in */
	struct tx tx;
	bool in_tx; /* it was begun */
	int err;    /* of the last call */
	struct problem problem;

	/* For the next call that creates something. */
	char key[ID_MAX_BYTES + 1]; /* its idempotency key; "" = none */
	char key_request[65];       /* what the call under way was given, hashed */
	bool replayed;              /* the last call gave the first answer again */

	/* What the last call gave back, borrowed by the caller until the next one. */
	struct lapse_sweep_result sweep;
	struct lapse_table_count *tables; /* of it */
	struct backup backup;
	struct lapse_backup_file backup_file;
	struct lapse_clock_state clock_state;
	char mail_id[ID_TEXT_LEN + 1];
};

/* The clock the engine gets: the caller's, kept in range, its monotonic hand kept monotonic; or the
 * machine's. */
int store_clock_init(struct lapse_store *s, struct problem *p);

int store_enter(struct lapse_store *s);

int store_begin(struct lapse_store *s);
int store_begin_read(struct lapse_store *s);

/* What every list begins with: the call, its limit checked, a read. */
int store_begin_list(struct lapse_store *s, int64_t limit);

/* Commits what was begun, or rolls it back when `err` is one. The call goes on: for functions that
 * call back after the commit. */
int store_commit(struct lapse_store *s, int err);

/* The same, and the call is over: return what it returns. */
int store_end(struct lapse_store *s, int err);

/* What the room wants before its operation can run (once more): a write transaction
 * (TX_NEEDS_WRITE), or a commit of what it did (TX_AGAIN). False: it wants nothing, or cannot
 * have it, and then *r is the error. */
bool store_again(struct lapse_store *s, int *r);

#endif
