/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's clock as the engine sees it. What a caller's function says is kept in a range where
 * sums cannot overflow, and its monotonic hand is kept from going back: trusted time relies on it.
 */
#include "lib/store.h"

#define WALL_MAX INT64_C(253402300799999)   /* the end of the year 9999 */
#define MONO_MAX (WALL_MAX * INT64_C(1000)) /* microseconds */

static int64_t clamp(int64_t value, int64_t max)
{
	if (value < 0)
		return 0;
	return value > max ? max : value;
}

static lapse_ms callers_wall(void *ctx)
{
	const struct lapse_store *s = ctx;

	return clamp(s->options.wall(s->options.clock_arg), WALL_MAX);
}

static lapse_us callers_mono(void *ctx)
{
	struct lapse_store *s = ctx;
	lapse_us now = s->options.mono ? clamp(s->options.mono(s->options.clock_arg), MONO_MAX)
				       : callers_wall(ctx) * 1000;

	if (now > s->mono)
		s->mono = now;
	return s->mono;
}

int store_clock_init(struct lapse_store *s, struct problem *p)
{
	if (s->options.mono && !s->options.wall)
		return problem_set(p, LAPSE_EINVAL, "wall", "a clock with mono needs wall, too");
	s->clock = CLOCK_SYSTEM;
	if (s->options.wall)
		s->clock = (struct clock){ callers_wall, callers_mono, s };
	return LAPSE_OK;
}
