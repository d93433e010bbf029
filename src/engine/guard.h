/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: whether it is safe to remove anything now. Its heart is trusted time, the one clock
 * that everything but the log goes by.
 *
 * Trusted time follows the wall clock and never goes back. While the wall clock is ahead of what
 * the monotonic clock says by more than `jump_max`, it has leapt: trusted time keeps its own pace,
 * so nothing expires because of the leap, on any path. A leap ends when the clock comes back, when
 * an operator accepts it, or, for leaps of up to an hour, when it has stayed steady for
 * `accept_after`. A wall clock that is behind never matters: trusted time goes on from where it
 * was.
 *
 * Across restarts the largest trusted time is kept in the store; time that passed while the daemon
 * was down is no leap. guard_now() and guard_accept() are pure but for the clock they are given;
 * guard_load() and guard_tick() connect the guard to the store. One thread.
 */
#ifndef LAPSE_ENGINE_GUARD_H
#define LAPSE_ENGINE_GUARD_H

#include <stdbool.h>

#include "base/clock.h"

struct engine;
struct settings;

#define LEAP_AUTO_ACCEPT_MS INT64_C(3600000) /* larger leaps need a person */

#define GUARD_MAGIC 0x4c475244u

struct guard {
	uint32_t magic;
	const struct clock *source;
	lapse_ms jump_max_ms, accept_after_ms;

	lapse_ms trusted; /* the last time that was given out */
	lapse_us at;      /* the monotonic time it belongs to */
	bool jumped;
	lapse_ms leap_ms;      /* how far the wall clock is ahead; meaningless unless jumped */
	lapse_us steady_since; /* monotonic: since when the leap has had this size */

	int64_t jumps, accepts; /* how often that happened */

	/* What is written down: a log line and an event for each leap and each acceptance, and the
	 * high-water mark of trusted time once a minute. */
	int64_t jumps_written, accepts_written;
	lapse_us store_at; /* monotonic: when the high-water mark is stored next */
	int64_t stored;    /* the store's mark of the last writing */

	struct clock clock; /* trusted time, as a clock */
};

/* `g` must not move after it; the wall clock is trusted as it is. */
void guard_init(struct guard *g, const struct clock *source, const struct settings *s);

/* Trusted time is not before `high_water`, the largest one of earlier runs. */
void guard_raise(struct guard *g, lapse_ms high_water);

lapse_ms guard_now(struct guard *g);

/* Takes the wall clock as it is. False when there is no leap to accept. */
bool guard_accept(struct guard *g);

/* After a restore every bound gets one grace period: its own window, or a day where rows hold
 * their own deadline. `restored_at` 0 = never restored. */
lapse_ms guard_grace_end(lapse_ms restored_at, lapse_ms window); /* 0 = there is none */
bool guard_in_grace(lapse_ms restored_at, lapse_ms window, lapse_ms now);

/* For the engine: raises trusted time to the stored mark; writes down what is new, off the loop
 * where it blocks; microseconds until there is something to write. */
int guard_load(struct engine *e);
void guard_tick(struct engine *e);
lapse_us guard_next_us(const struct engine *e);

#endif
