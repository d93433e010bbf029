/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transaction as operations see it: the database, the time, and what is to happen once it has
 * committed.
 *
 * Legal order: tx_begin, then any number of steps (tx_step_begin … tx_step_end or tx_step_undo),
 * then tx_commit or tx_rollback. An operation touches only its transaction; everything else it
 * wants (waking a reader, starting a call, counting) is an effect that runs after COMMIT and is
 * dropped on rollback. So an operation can be run again.
 */
#ifndef LAPSE_ENGINE_TX_H
#define LAPSE_ENGINE_TX_H

#include "base/mem.h"
#include "engine/matrix.h"
#include "store/db.h"

struct engine;

typedef void effect_fn(struct engine *engine, void *arg);

struct effect {
	struct effect *next;
	effect_fn *run;
	void *arg;  /* from tx_alloc: lives until the effects have run */
	bool early; /* runs at the commit, before it is durable */
};

struct tx {
	struct engine *engine;
	struct db *db;
	lapse_ms now;
	bool write;
	int64_t changes; /* of the connection, when it began */
	lapse_us commit_started;
	struct arena arena;
	struct effect *effects, **effects_tail;
	bool has_early;                 /* one of them is, or was before a step was undone */
	int64_t live_delta[BOUNDS_MAX]; /* rows added minus removed, by bound */
	int64_t freed_bytes;            /* of files that a sweep's rows stood for */

	/* What tx_step_undo() goes back to. */
	struct effect **step_tail;
	int64_t step_live_delta[BOUNDS_MAX];
};

int tx_begin(struct tx *tx, struct engine *engine);
int tx_begin_read(struct tx *tx, struct engine *engine);

/* Commits, makes it durable, then runs the effects. On failure everything is undone and no effect
 * has run. tx_commit_lazy() leaves out the sync: for removals, which are found again after a power
 * loss. */
int tx_commit(struct tx *tx);
int tx_commit_lazy(struct tx *tx);
void tx_rollback(struct tx *tx);

/* tx_commit() in two halves, for a loop that does something else while the log is synced: start
 * commits; whoever called it syncs; finish runs the effects. */
int tx_commit_start(struct tx *tx);
void tx_commit_finish(struct tx *tx);

int tx_step_begin(struct tx *tx);
int tx_step_end(struct tx *tx);
int tx_step_undo(struct tx *tx);

/* Whether anything was changed so far. */
bool tx_has_changed(const struct tx *tx);

void tx_effect(struct tx *tx, effect_fn *run, void *arg);

/* The same as soon as it has committed, durable or not: for what is allowed to get lost, and must
 * be known to a transaction that comes between the two. */
void tx_effect_early(struct tx *tx, effect_fn *run, void *arg);
void *tx_alloc(struct tx *tx, size_t size);

/* Notes that `n` rows of a table of the matrix came (or, negative, went). */
void tx_count(struct tx *tx, const char *table, int64_t n);

#endif
