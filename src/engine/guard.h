/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: whether it is safe to remove anything now. Its heart is trusted time, the one clock
 * that everything but the log goes by.
 *
 * Trusted time follows the wall clock and never goes back. While the wall clock is ahead of what
 * the monotonic clock says by more than `jump_max`, it has leapt: trusted time keeps its own pace,
 * so nothing expires because of the leap, by no path. A leap ends when the clock comes back, when
 * an operator accepts it, or, for leaps of up to an hour, when it has stayed steady for
 * `accept_after`. A wall clock that is behind never matters: trusted time goes on from where it
 * was.
 *
 * Across restarts the largest trusted time is kept in the store; time that passed while the daemon
 * was down is no leap. Pure but for the clock it is given; one thread.
 */
#ifndef LAPSE_ENGINE_GUARD_H
#define LAPSE_ENGINE_GUARD_H

#include <stdbool.h>

#include "base/clock.h"

struct settings;

#define LEAP_AUTO_ACCEPT_MS INT64_C(3600000) /* larger leaps need a person */

struct guard {
	const struct clock *source;
	lapse_ms jump_max_ms, accept_after_ms;

	lapse_ms trusted; /* the last time that was given out */
	lapse_us at;      /* the monotonic time it belongs to */
	bool jumped;
	lapse_ms leap_ms;      /* how far the wall clock is ahead; meaningless unless jumped */
	lapse_us steady_since; /* monotonic: since when the leap has had this size */

	/* How often that happened; the engine reports what it has not reported yet. */
	int64_t jumps, accepts;

	struct clock clock; /* trusted time, as a clock */
};

/* `g` must not move after it. */
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

#endif
