/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletions outside the store (a file, a mail account): first a durable intent, then the call, then
 * the settled state. A cleanup ends done, and its row goes, or as a dead letter that a person can
 * see, retry or drop (engine/deadletter.h). It is never forgotten, and repeating it is harmless.
 *
 * Hand-over: cleaner_tick() takes what is due by pushing its next attempt out in a transaction. It
 * starts what it took once that transaction, and with it the intent, is durable (engine/durable.h).
 * The outcome comes back with
 * cleanup_settle() on the loop. The next tick writes it, together with all others that came
 * meanwhile. Failure: what a process had taken when it ended is taken anew by the next start.
 * Shutdown: an outcome comes or it does not; the intent is still there.
 *
 * engine/cleanup.c takes and starts; engine/cleanup_outcome.c writes outcomes and tells followers.
 * To add a kind: a `struct cleanup_kind` in its room, and its name in rooms.c.
 */
#ifndef LAPSE_ENGINE_CLEANUP_H
#define LAPSE_ENGINE_CLEANUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "engine/events.h"
#include "engine/offload.h"

#define CLEANUP_KINDS_MAX 8
#define CLEANUP_RUNNING_MAX 64 /* the most a kind may have under way */

struct engine;
struct tx;

/* What the row says. */
enum cleanup_state {
	CLEANUP_DEAD = -1,   /* gave up: a dead letter */
	CLEANUP_DONE = 0,    /* deleted, or gone already */
	CLEANUP_PENDING = 1, /* not tried yet, or to be tried again */
	CLEANUP_DROPPED = 2, /* a dead letter that a person let go */
};

/* Where an attempt is; always in this order. */
enum cleanup_stage { CLEANUP_TAKEN, CLEANUP_RUNNING, CLEANUP_SETTLED };

#define CLEANUP_MAGIC 0x4c434c4eu

/* One attempt. Owned by the cleaner; lent to the kind while it is running. */
struct cleanup {
	uint32_t magic;
	enum cleanup_stage stage;
	struct list link; /* in the list of its stage */
	const struct cleanup_kind *kind;
	int64_t id;
	int64_t attempts; /* made before this one */
	char *owner, *target;
	struct offload job; /* of a kind that has `remove` */

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
	enum event_kind failed, dead; /* the event of an attempt that failed, and of the last one */

	/* True: a failed attempt is repeated when a sweep asks for it, by cleanup_retry(). False:
	 * it is repeated after a pause that grows. */
	bool retried_by_sweep;

	bool asks_outside; /* it needs another process, not only this machine's files */
	bool needs_files;  /* it needs the files of attachments */

	/* One of the two. `remove` blocks and runs off the loop (engine/offload.h): data_dir and
	 * the target are all it may touch; on failure it fills `why`. `start` returns at once, and
	 * cleanup_settle() follows exactly once, later. */
	int (*remove)(const char *data_dir, const char *target, char *why, size_t size);
	void (*start)(struct engine *e, struct cleanup *c);

	/* Keeps the room's rows in step, in the transaction that writes the outcome. May be NULL.
	 */
	int (*settled)(struct tx *tx, const struct cleanup_outcome *o);
};

struct cleaner_kind {
	const struct cleanup_kind *kind;
	struct list taken;   /* struct cleanup, to be started once their taking is durable */
	int64_t taken_at;    /* the store's mark when the last of them was taken */
	struct list running; /* struct cleanup, started and not settled */
	int running_count;   /* of both lists */
	lapse_us look_again; /* monotonic: when pending ones are looked for next */
};

struct cleaner {
	/* Set by the owner of the engine when no other process can be asked. Kinds that ask outside
	 * are then neither started nor retried; their intents wait for an owner that can ask. */
	bool stays_here;

	struct cleaner_kind kinds[CLEANUP_KINDS_MAX];
	size_t kinds_count;
	struct list settled;   /* struct cleanup whose outcome is not written yet */
	lapse_us write_after;  /* monotonic: not before, while requests want the store */
	int64_t dead;          /* dead letters */
	struct list followers; /* struct cleanup_follower */
};

/* Files below the data directory. */
extern const struct cleanup_kind CLEANUP_FILE;

void cleaner_init(struct cleaner *c, const struct cleanup_kind *const *kinds); /* ends with NULL */
void cleaner_done(struct cleaner *c);
int cleaner_load(struct engine *e);
void cleaner_tick(struct engine *e);
int cleaner_free_taken(struct tx *tx, int64_t replica); /* what a replica had taken that is gone */
void cleaner_stop(struct engine *e); /* writes the outcomes that are known; starts nothing more */
lapse_us cleaner_next_us(const struct engine *e);

/* Notes the intent in the transaction. The same target twice is one cleanup; a dead letter becomes
 * pending again. */
int cleanup_add(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		const char *target);

/* The same, not to be tried before `at`. */
int cleanup_add_at(struct tx *tx, const char *owner, const struct cleanup_kind *kind,
		   const char *target, lapse_ms at);

/* Makes up to `max` failed cleanups of a kind that sweeps retry due now, oldest first, where the
 * kind can run at all. Calls fn(arg, target) for each; fn may be NULL. */
int cleanup_retry(struct tx *tx, const struct cleanup_kind *kind, int64_t max,
		  void (*fn)(void *arg, const char *target), void *arg, int64_t *ret_n);

/* The outcome of what was started: LAPSE_OK, or an error with a reason. Takes `c`. */
void cleanup_settle(struct engine *e, struct cleanup *c, int err, const char *why);

/*
 * A follower waits until the cleanups of some targets have settled: for a request that asked for a
 * sweep and wants to know what the sweep started. The result of one attempt counts; a later attempt
 * is not waited for.
 *
 * Legal order: follower_init, then follow_target in transactions, then follower_done. The follower
 * must not move in between.
 */
#define FOLLOWER_MAGIC 0x4c464f4cu

struct cleanup_follower {
	uint32_t magic;
	struct list link;   /* among the cleaner's */
	struct map targets; /* whose cleanups have not settled */
	int64_t cleaned, failed, dead;
	void (*settled)(struct cleanup_follower *f); /* after each; more may be under way */
};

void follower_init(struct engine *e, struct cleanup_follower *f); /* `settled` is set */
void follower_done(struct cleanup_follower *f);

/* Follows the cleanup of this target once the transaction has committed. `f` may be NULL. */
void follow_target(struct tx *tx, struct cleanup_follower *f, const char *target);

/* For engine/deadletter.c: changes the number of dead letters when the transaction commits. */
void cleaner_count_dead(struct tx *tx, int64_t delta);
void cleaner_look_now(struct tx *tx);
const struct cleanup_kind *cleaner_kind_named(const struct engine *e, const char *name);

/* Between the two files of the cleaner. */
void cleanup_free_list(struct list *l);
void cleaner_write_settled(struct engine *e);
lapse_us cleaner_next_write_us(const struct engine *e); /* 0 = now; INT64_MAX = nothing to write */

#endif
