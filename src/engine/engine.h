/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: one store, its matrix, its schedulers, and the time.
 *
 * It is driven from outside: whoever owns the loop calls engine_tick() when engine_next_us() says
 * so, and runs operations in transactions (engine/tx.h) in between, all on one thread. The engine
 * starts no thread but the checkpointer and reads no clock but the one it is given.
 *
 * Legal order: engine_open, then ticks and transactions, then engine_stop (no further sweeps, all
 * who wait for one are told), then engine_close.
 */
#ifndef LAPSE_ENGINE_ENGINE_H
#define LAPSE_ENGINE_ENGINE_H

#include <pthread.h>

#include "base/id.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "engine/cleanup.h"
#include "engine/guard.h"
#include "engine/matrix.h"
#include "engine/offload.h"
#include "engine/ring.h"
#include "engine/schedule.h"
#include "engine/token.h"
#include "engine/wait.h"
#include "engine/watch.h"
#include "store/checkpoint.h"
#include "store/datadir.h"
#include "store/db.h"
#include "store/syncer.h"

struct fleet;     /* of the room presence: its memory, nothing to the engine */
struct mailboxes; /* of the room mailbox, likewise */
struct depot;     /* of the room attachment, likewise */
struct provider;  /* of the room mailbox: where mailboxes live, nothing to the engine */

struct bound_state {
	int64_t live;   /* rows, as the last commit left them */
	int64_t pruned; /* rows removed since the start */
};

struct engine {
	const struct settings *settings;
	const struct clock *clock;  /* trusted time, the guard's; the loop's thread only */
	const struct clock *system; /* the machine's own clocks, for workers and the log */
	struct guard guard;
	struct watch watch;
	const struct log *log;
	struct datadir dir;
	struct db *db; /* the writer; the loop's thread only */
	struct checkpointer *checkpointer;
	struct syncer *syncer;

	struct db *reader;           /* for long reads on a worker */
	pthread_mutex_t reader_lock; /* held by the worker that uses it */

	const struct bound *const *bounds;
	size_t bounds_count;
	struct bound_state states[BOUNDS_MAX];
	struct scheduler schedulers[SCHEDULERS_MAX];
	size_t schedulers_count;
	struct cleaner cleaner;
	struct waits waits;
	struct ring ring; /* the newest events, once somebody has enabled it */
	struct tokens tokens;
	struct idgen ids;
	lapse_ms restored_at; /* 0 = never restored */
	struct fleet *fleet;
	struct mailboxes *mailboxes;
	struct depot *depot;
	struct provider *provider; /* set by whoever owns the loop; NULL = the store itself */
	struct offloader offloader;
	bool crowded; /* said by whoever owns the loop: somebody waits for the store */

	/* What is committed, and what of it would survive a power loss. */
	int64_t commits; /* write transactions so far */
	int64_t durable; /* the first so many of them are synced */
	bool syncing;    /* a sync is under way on the syncer's thread, for whoever asked for it */

	bool store_failing; /* the last write transaction could not begin or commit */
	struct histogram commit_seconds;
	struct histogram expiry_lag;
};

struct engine_config {
	const struct settings *settings;
	const struct clock *clock; /* the machine's, or a test's */
	const struct log *log;
	const struct bound *const *bounds;          /* ends with NULL */
	const struct scheduler_def *schedulers;     /* ends with a row without a name */
	const struct cleanup_kind *const *cleanups; /* ends with NULL */
};

/* Locks the data directory, opens and migrates the store, loads what is kept in memory. */
int engine_open(struct engine *e, const struct engine_config *config, struct problem *p);
void engine_stop(struct engine *e);
void engine_close(struct engine *e);

/* Does what is due, a slice at most. */
void engine_tick(struct engine *e);

/* Microseconds until engine_tick() has something to do; 0 = now. */
lapse_us engine_next_us(const struct engine *e);

/* Makes everything committed so far durable; blocks. */
void engine_sync(struct engine *e);

/* Metrics of the engine itself. */
void engine_write_metrics(const struct engine *e, struct buf *out);

/* Counts due rows on the reader; blocks, for a worker. */
int engine_count_due(struct engine *e, lapse_ms now, struct due_count ret[BOUNDS_MAX]);

#endif
