/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transaction as operations see it: the database, the time, and what is to happen once it has
 * committed.
 *
 * Legal order: tx_begin, then any number of steps (tx_step_begin … tx_step_end or tx_step_undo),
 * then tx_commit or tx_rollback. An operation touches only its transaction; everything else it
 * wants (waking a reader, starting a call, counting) is an effect that runs after COMMIT and is
 * dropped on rollback, or a change with an undo. So an operation can be run again.
 *
 *	OVER → tx_begin → OPEN ⇄ STEP
 *	                   OPEN → tx_commit_start → COMMITTED → tx_commit_finish → OVER
 *	       tx_begin, tx_commit_start failed → FAILED → tx_rollback → OVER
 *	                   OPEN, STEP → tx_rollback → OVER
 */
#ifndef LAPSE_ENGINE_TX_H
#define LAPSE_ENGINE_TX_H

#include "base/mem.h"
#include "engine/matrix.h"
#include "store/store.h"

struct engine;
struct usage_delta;

/* What an operation returns beside LAPSE_OK and errors. Both ask its caller for something and for
 * running the operation again; neither is an error. */
enum tx_wish {
	TX_NEEDS_WRITE = 64, /* it was in a read transaction and has something to write: nothing
			      * was done, give it a write transaction */
	TX_AGAIN,            /* commit what was done so far, then run it in a new transaction */
};

typedef void effect_fn(struct engine *engine, void *arg);

struct effect {
	struct effect *next;
	effect_fn *run;
	void *arg;  /* from tx_alloc: lives until the effects have run */
	bool early; /* runs at the commit, before it is durable */
};

/* Rows of one bound that came (or, negative, went). */
struct tx_delta {
	struct tx_delta *next;
	const struct bound_spec *bound;
	const char *owner; /* whose; NULL = of all owners, what is written down */
	int64_t n;
	int64_t step_n; /* what tx_step_undo() goes back to */
};

#define TX_MAGIC 0x4c505458u

enum tx_state { TX_OVER, TX_OPEN, TX_STEP, TX_COMMITTED, TX_FAILED };

struct tx {
	uint32_t magic;
	enum tx_state state;
	struct engine *engine;
	struct db *db; /* the lane it runs on */
	lapse_ms now;
	bool write;
	int64_t changes; /* of the connection, when it began */
	lapse_us commit_started;
	struct arena arena;
	struct effect *effects, **effects_tail;
	struct effect *undos;      /* the last one first */
	bool has_early;            /* one of them is, or was before a step was undone */
	struct tx_delta *deltas;   /* rows added and removed, by bound */
	struct usage_delta *usage; /* what owners use more or less: engine/usage.h */
	int64_t freed_bytes;       /* of files that a sweep's rows stood for */

	struct effect **step_tail; /* what tx_step_undo() goes back to */
	struct effect *step_undos;
};

/* Whether operations may run in it, and whether they may write: for their asserts. */
static inline bool tx_is_open(const struct tx *tx)
{
	return tx->magic == TX_MAGIC && (tx->state == TX_OPEN || tx->state == TX_STEP);
}

static inline bool tx_can_write(const struct tx *tx)
{
	return tx_is_open(tx) && tx->write;
}

/* On the store's first lane. After a failure, tx_rollback() is allowed and does nothing. */
int tx_begin(struct tx *tx, struct engine *engine);
int tx_begin_read(struct tx *tx, struct engine *engine);

/* On a lane of the caller's choice. */
int tx_begin_on(struct tx *tx, struct engine *engine, struct db *lane, enum store_mode mode);

/* Commits, makes it durable, then runs the effects. On failure everything is undone, no effect has
 * run, and the transaction is over. tx_commit_lazy() leaves out the sync: for removals, which are
 * found again after a power loss. */
int tx_commit(struct tx *tx);
int tx_commit_lazy(struct tx *tx);
void tx_rollback(struct tx *tx);

/* tx_commit() in two halves, for a loop that does something else while the store syncs: start
 * commits, the caller makes it durable, finish runs the effects. */
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

/* For memory that changes with the transaction, at once, so that what follows in it sees the
 * change: `run` takes it back when the step or the transaction is undone, the last change first.
 * Only on a store with one lane, where no other transaction looks at the memory meanwhile. */
void tx_undo(struct tx *tx, effect_fn *run, void *arg);

/* Notes that `n` rows of a bound came (or, negative, went). */
void tx_count(struct tx *tx, const struct bound_spec *bound, int64_t n);

/* The same for one owner beside it, for who keeps such numbers in memory: what this transaction
 * adds to them. Nothing is written. */
void tx_count_owned(struct tx *tx, const struct bound_spec *bound, const char *owner, int64_t n);
int64_t tx_owned(const struct tx *tx, const struct bound_spec *bound, const char *owner);

/* Live rows of a bound as this transaction sees them. */
int64_t tx_live(const struct tx *tx, const struct bound_spec *bound);

#endif
