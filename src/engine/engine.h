/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: one store, its matrix, its schedulers, and the time.
 *
 * It is driven from outside: the owner of the loop calls engine_tick() when engine_next_us() says
 * so, and runs operations in transactions (engine/tx.h) in between, all on one thread. The engine
 * starts no thread of its own (its store does) and reads no clock but the one it is given.
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
#include "engine/cluster.h"
#include "engine/durable.h"
#include "engine/guard.h"
#include "engine/matrix.h"
#include "engine/offload.h"
#include "engine/outage.h"
#include "engine/quota.h"
#include "engine/ring.h"
#include "engine/room.h"
#include "engine/schedule.h"
#include "engine/token.h"
#include "engine/undone.h"
#include "store/datadir.h"
#include "store/db.h"
#include "store/store.h"

#define ENGINE_MAGIC 0x4c454e47u

struct engine {
	uint32_t magic; /* from engine_open() to engine_close() */
	bool stopped;   /* engine_stop() was called: no tick may follow */
	const struct settings *settings;
	const struct clock *clock;  /* trusted time, the guard's; the loop's thread only */
	const struct clock *system; /* the machine's own clocks, for workers and the log */
	struct guard guard;
	const struct log *log;
	struct datadir dir;
	struct store *store;
	struct db *db; /* the store's first lane; the loop's thread only */

	struct matrix matrix;
	struct scheduler schedulers[SCHEDULERS_MAX];
	size_t schedulers_count;
	struct cleaner cleaner;
	struct durable durable;
	struct ring ring; /* the newest events, once ring_enable() was called */
	struct tokens tokens;
	struct quotas quotas;
	struct idgen ids;
	struct cluster cluster;
	bool files_shared;                /* all replicas see the same files of attachments */
	lapse_ms restored_at;             /* 0 = never restored */
	struct undone undone;             /* what that restore has taken back */
	const struct room *const *rooms;  /* ends with NULL */
	const struct owned *const *owned; /* likewise; NULL where nothing is ever adopted */
	void *slots[ROOMS_COUNT];         /* what each room keeps in memory; see engine_room() */
	struct offloader offloader;
	bool crowded; /* set by the owner of the loop: requests wait for the store */

	bool store_failing; /* the last write transaction could not begin or commit */
	struct outage outage;
	struct histogram commit_seconds;
	struct histogram expiry_lag;
};

struct engine_config {
	const struct settings *settings;
	const struct clock *clock; /* the machine's, or a test's */
	const struct log *log;
	const struct bound_spec *const *bounds;     /* ends with NULL */
	const struct scheduler_def *schedulers;     /* ends with a row without a name */
	const struct cleanup_kind *const *cleanups; /* ends with NULL */
	const struct room *const *rooms;            /* ends with NULL */
	const struct owned *const *owned;           /* ends with NULL; or NULL */
	store_opener *postgres; /* of a store in PostgreSQL; NULL = SQLite only */
};

/* Locks the data directory, opens and migrates the store, loads what is kept in memory. */
int engine_open(struct engine *e, const struct engine_config *config, struct problem *p);
void engine_stop(struct engine *e);
void engine_close(struct engine *e);

/* What a room keeps in memory; NULL before its load(). Rooms wrap it in a function that knows the
 * type and checks the magic. */
static inline void *engine_room(const struct engine *e, enum room_id id)
{
	return e->slots[id];
}

/* For the room itself: fills its slot, which must be empty, or empties it. */
void engine_set_room(struct engine *e, enum room_id id, void *memory);

/* Does what is due, a slice at most. */
void engine_tick(struct engine *e);

/* Microseconds until engine_tick() has something to do; 0 = now. */
lapse_us engine_next_us(const struct engine *e);

/* Metrics of the engine itself. */
void engine_write_metrics(const struct engine *e, struct buf *out);

/* Counts the time from a deadline to its removal; b may be NULL: it belongs to no bound any more.
 */
void engine_note_lag(struct engine *e, struct bound *b, lapse_ms lag);

/* Counts due rows on the reader; blocks, for a worker. */
int engine_count_due(struct engine *e, struct due_counts *c);

#endif
