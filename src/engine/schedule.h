/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedulers: when a sweep runs.
 *
 * Start: the first sweep of a scheduler is due one interval after engine_open(). Hand-over: a tick
 * runs one slice of every scheduler that has something to do; a sweep that has more to do goes on
 * at the next tick, so foreground work comes in between; while the engine is crowded it rests in
 * between, longer than it worked, unless it is short. The interval counts from the end of the
 * last sweep, whether it succeeded, failed or was slow: the next one is armed in one place,
 * sweep_ended(). Failure: the slice that failed is rolled back, the sweep ends, it is logged and
 * counted, and its event is written when the store is back. Shutdown: schedule_stop() ends
 * everything between two slices.
 *
 * Sweeps asked for by hand queue up at their scheduler and run before the periodic one.
 *
 * Deadlines: between two periodic sweeps a scheduler whose bounds know their earliest deadline also
 * runs at that moment, only for those bounds and without a line in the history. The periodic sweep
 * stays as the safety net, and after a failure it is the next try.
 */
#ifndef LAPSE_ENGINE_SCHEDULE_H
#define LAPSE_ENGINE_SCHEDULE_H

#include "base/list.h"
#include "base/metrics.h"
#include "engine/events.h"
#include "engine/sweep.h"

#define SCHEDULERS_MAX 64
#define SWEEP_REQUESTS_MAX 16 /* waiting at a scheduler; more are LAPSE_ELIMIT */

struct engine;
struct scheduler;

struct scheduler_def {
	const char *name;
	const char *interval; /* the name of its setting; NULL = interval_ms */
	int64_t interval_ms;
	const char *failed; /* the event of a failed sweep */
	bool outside;       /* its sweeps delete outside, too, and tell of it */

	/* The event and the log line of a sweep that removed something, once per sweep, with the
	 * count of each table; NULL = its bounds announce what they remove. */
	const char *pruned;

	/* The names of two settings: their product is what a sweep removes of one bound at most;
	 * the next sweep follows a second later then. NULL = there is no limit. */
	const char *batch, *batches;
};

/* Starts the sweep in s->sweep elsewhere, beside the loop. It ends with schedule_ended(), on the
 * loop. */
typedef void schedule_begin_fn(struct engine *e, struct scheduler *s);

struct scheduler {
	const struct scheduler_def *def;
	schedule_begin_fn *begin;   /* NULL = its sweeps run in the loop */
	const int64_t *interval_ms; /* of a setting, or the definition's own */
	lapse_us next_at;           /* monotonic: when the next periodic sweep is due */
	bool has_deadlines;         /* one of its bounds has */
	bool deadlines_off;         /* the last sweep failed: the next try is the periodic one */
	struct sweep sweep;         /* the one under way */
	bool running;
	bool retired;          /* it is none any more; its place may be used again */
	lapse_us rest_until;   /* monotonic: no slice before */
	lapse_us owed;         /* work that no rest has paid for yet, */
	lapse_us worked_until; /* as of then, monotonic */
	struct list requests;  /* struct sweep_request, oldest first */
	size_t requests_count;
	struct sweep_request *serving; /* whose sweep is under way; NULL = periodic */

	int64_t errors;         /* failed sweeps since the start */
	int64_t unreported;     /* of them without an event yet */
	lapse_ms last_ended_at; /* LAPSE_NEVER = not yet */
	lapse_us last_ended;    /* monotonic; the start of the engine until the first sweep */
	lapse_us last_took;     /* how long the last one worked and waited */
	struct histogram seconds;
};

/* A sweep that was asked for. Owned by the caller until done() was called. */
struct sweep_request {
	struct list link;
	bool dry_run;
	struct cleanup_follower *follower; /* of the deletions it starts; may be NULL */
	void (*done)(struct sweep_request *r, int err, const struct sweep *result);
};

void schedule_init(struct engine *e, const struct scheduler_def *defs);
/* Another replica of a cluster has swept. */
void schedule_heard(struct engine *e, const char *name, lapse_ms at);

int schedule_load(struct engine *e, struct scheduler *s);
void schedule_stop(struct engine *e);
void schedule_tick(struct engine *e);
void schedule_tick_one(struct engine *e, struct scheduler *s);
lapse_us schedule_next_us(const struct engine *e);

/* Adds one while the engine runs, or gives the one of that name another definition, which must
 * outlive it. LAPSE_ELIMIT: there are too many. */
int schedule_add(struct engine *e, const struct scheduler_def *def, schedule_begin_fn *begin,
		 struct scheduler **ret);

/* Takes one out that has no bounds and does not run. */
void schedule_remove(struct engine *e, struct scheduler *s);

/* The end of a sweep that s->begin() started. After schedule_stop() it does nothing. */
void schedule_ended(struct engine *e, struct scheduler *s, int err);

/* The matrix has other rows now; a row is about to leave it. */
void schedule_bounds_changed(struct engine *e);
void schedule_forget(struct engine *e, const struct bound *b);

/* The wall clock's time of the next periodic sweep; `now` while one is under way or waits. */
lapse_ms schedule_next_at(const struct engine *e, const struct scheduler *s, lapse_ms now);

/* NULL where there is none of that name. */
struct scheduler *schedule_find(const struct engine *e, const char *name);
int schedule_request(struct engine *e, struct scheduler *s, struct sweep_request *r);

/* Whether the scheduler has not finished a sweep for so long that something is wrong. */
bool schedule_is_stalled(const struct engine *e, const struct scheduler *s);

#endif
