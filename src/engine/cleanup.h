/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletions outside the store (a file, a mail account): first a durable intent, then the call, then
 * the settled state. A cleanup ends done, and its row goes, or as a dead letter that a person can
 * see, retry or drop (engine/deadletter.h); it is never forgotten, and repeating it is harmless.
 *
 * Hand-over: cleaner_tick() takes what is due by pushing its next attempt out in a transaction, and
 * starts it as its kind says once that transaction, and with it the intent, is durable: with the
 * sync of somebody's turn, or with one of its own, off the loop, when nobody syncs. The outcome
 * comes back with cleanup_settle() on the loop and is written, with all others that came meanwhile,
 * at the next tick. A crash in between costs one pause, not the deletion. Shutdown: an outcome
 * comes or it does not; the intent is still there.
 *
 * To add a kind: a `struct cleanup_kind` in its room, and its name in rooms.c.
 */
#ifndef LAPSE_ENGINE_CLEANUP_H
#define LAPSE_ENGINE_CLEANUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "engine/events.h"
#include "engine/offload.h"

#define CLEANUP_KINDS_MAX 8
#define CLEANUP_RUNNING_MAX 64 /* the most a kind may have under way */

struct engine;
struct tx;

enum cleanup_state {
	CLEANUP_DEAD = -1,   /* gave up: a dead letter */
	CLEANUP_DONE = 0,    /* deleted, or gone already */
	CLEANUP_PENDING = 1, /* not tried yet, or to be tried again */
	CLEANUP_DROPPED = 2, /* a dead letter that a person let go */
};

struct cleanup {
	struct list link; /* among those under way, or those settled and not written */
	const struct cleanup_kind *kind;
	int64_t id;
	int64_t attempts; /* made before this one */
	char *owner, *target;

	/* The outcome, once it is settled. */
	int err;
	char why[128];
};

/* What became of a cleanup, for its room. */
struct cleanup_outcome {
	enum cleanup_state state;
	const char *owner, *target;
	int64_t attempts;
	const char *why; /* "" unless an attempt failed */
};

struct cleanup_kind {
	const char *name;
	int running_max;              /* under way at once, up to CLEANUP_RUNNING_MAX */
	size_t attempts_max;          /* offset of its setting in struct settings */
	enum event_kind failed, dead; /* what an attempt that failed is called, and the last one */

	/* Failed ones are tried again only when cleanup_retry() says so, by a sweep; otherwise
	 * after a pause that grows. */
	bool retried_by_sweep;

	bool asks_outside; /* another process, and not only this machine's files */

	/* One of the two. `remove` blocks, and is run off the loop by whoever owns it: data_dir and
	 * the target are all it may touch; on failure it fills `why`. `start` begins and comes back
	 * at once; cleanup_settle() follows exactly once, later. */
	int (*remove)(const char *data_dir, const char *target, char *why, size_t size);
	void (*start)(struct engine *e, struct cleanup *c);

	/* Keeps the room's rows in step, in the transaction that writes the outcome. May be NULL.
	 */
	int (*settled)(struct tx *tx, const struct cleanup_outcome *o);
};

/* Runs c->kind->remove off the loop, then cleanup_settle() on it; or both at once, where there is
 * no loop. */
typedef void cleanup_runner(void *ctx, struct cleanup *c);

struct cleaner_kind {
	const struct cleanup_kind *kind;
	struct list taken;   /* struct cleanup, to be started once their taking is durable */
	int64_t taken_at;    /* the engine's commit that took the last of them */
	struct list running; /* struct cleanup, started and not settled */
	int running_count;   /* of both lists */
	lapse_us look_again; /* monotonic: when pending ones are looked for next */
};

struct cleaner {
	cleanup_runner *runner; /* NULL: kinds that need it are not started, their intents wait */
	void *runner_ctx;

	/* Said by whoever owns the engine: no other process can be asked. Kinds that would are
	 * neither started nor tried again; their intents wait for an opener who can. */
	bool stays_here;

	struct cleaner_kind kinds[CLEANUP_KINDS_MAX];
	size_t kinds_count;
	struct offload sync; /* one of our own, under way while `syncing` */
	bool syncing;
	int64_t sync_to;       /* the engine's commits that it makes durable */
	struct list settled;   /* struct cleanup whose outcome is not written yet */
	lapse_us write_after;  /* monotonic: not before, while others want the store */
	int64_t dead;          /* dead letters */
	struct list followers; /* struct cleanup_follower (engine/follow.h) */
};

/* Files below the data directory. */
extern const struct cleanup_kind CLEANUP_FILE;

void cleaner_init(struct cleaner *c, const struct cleanup_kind *const *kinds); /* ends with NULL */
void cleaner_done(struct cleaner *c);
int cleaner_load(struct engine *e);
void cleaner_tick(struct engine *e);
void cleaner_stop(struct engine *e); /* writes the outcomes that are known; starts nothing more */
lapse_us cleaner_next_us(const struct engine *e);

/* Notes the intent in the transaction. The same target twice is one cleanup; a dead letter is
 * pending again. */
int cleanup_add(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		const char *target);

/* The same, not before `at`. */
int cleanup_add_at(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		   const char *target, lapse_ms at);

/* Failed ones of a kind that sweeps retry, oldest first, `max` at most, are tried again now, where
 * that is possible at all. For each: fn(arg, target), which may be NULL. */
int cleanup_retry(struct tx *tx, const struct cleanup_kind *kind, int64_t max,
		  void (*fn)(void *arg, const char *target), void *arg, int64_t *ret_n);

/* The outcome of what was started: LAPSE_OK, or an error with a reason. Takes `c`. */
void cleanup_settle(struct engine *e, struct cleanup *c, int err, const char *why);

/* For engine/deadletter.c: changes the number of dead letters when the transaction commits. */
void cleaner_count_dead(struct tx *tx, int64_t delta);
void cleaner_look_now(struct tx *tx);
const struct cleanup_kind *cleaner_kind_named(const struct engine *e, const char *name);

#endif
