/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/guard.h"

#include "base/settings.h"

#define GRACE_WITHOUT_WINDOW_MS INT64_C(86400000)

static lapse_ms clock_trusted(void *ctx)
{
	return guard_now(ctx);
}

static lapse_us clock_source_mono(void *ctx)
{
	const struct guard *g = ctx;

	return clock_mono(g->source);
}

void guard_init(struct guard *g, const struct clock *source, const struct settings *s)
{
	*g = (struct guard){ .source = source,
			     .jump_max_ms = s->clock_jump_max_ms,
			     .accept_after_ms = s->clock_accept_after_ms,
			     .trusted = clock_wall(source),
			     .at = clock_mono(source) };
	g->clock = (struct clock){ clock_trusted, clock_source_mono, g };
}

void guard_raise(struct guard *g, lapse_ms high_water)
{
	if (high_water > g->trusted)
		g->trusted = high_water;
}

/* A leap of a new size starts its time of proof anew. */
static void note_leap(struct guard *g, lapse_ms leap, lapse_us mono)
{
	lapse_ms change = leap - g->leap_ms;

	if (!g->jumped)
		g->jumps++;
	if (!g->jumped || change > g->jump_max_ms || change < -g->jump_max_ms) {
		g->leap_ms = leap;
		g->steady_since = mono;
	}
	g->jumped = true;
}

static bool is_proven(const struct guard *g, lapse_us mono)
{
	return g->leap_ms <= LEAP_AUTO_ACCEPT_MS &&
	       mono - g->steady_since >= g->accept_after_ms * 1000;
}

static void accept(struct guard *g)
{
	g->accepts++;
	g->jumped = false;
}

lapse_ms guard_now(struct guard *g)
{
	lapse_ms wall = clock_wall(g->source);
	lapse_us mono = clock_mono(g->source);
	lapse_ms own_pace = time_add(g->trusted, (mono - g->at) / 1000);
	lapse_ms leap = time_sub(wall, own_pace);

	if (leap > g->jump_max_ms) {
		note_leap(g, leap, mono);
		if (is_proven(g, mono))
			accept(g);
	} else {
		g->jumped = false;
	}
	/* Behind, or ahead by a leap: our own pace. Else the wall clock knows better. */
	if (g->jumped || wall < own_pace) {
		g->at += (own_pace - g->trusted) * 1000; /* what is left of a millisecond stays */
		g->trusted = own_pace;
	} else {
		g->at = mono;
		g->trusted = wall;
	}
	return g->trusted;
}

bool guard_accept(struct guard *g)
{
	guard_now(g);
	if (!g->jumped)
		return false;
	accept(g);
	g->trusted = clock_wall(g->source);
	g->at = clock_mono(g->source);
	return true;
}

lapse_ms guard_grace_end(lapse_ms restored_at, lapse_ms window)
{
	lapse_ms grace = window > 0 ? window : GRACE_WITHOUT_WINDOW_MS;

	return restored_at > 0 ? time_add(restored_at, grace) : 0;
}

bool guard_in_grace(lapse_ms restored_at, lapse_ms window, lapse_ms now)
{
	return restored_at > 0 && now < guard_grace_end(restored_at, window);
}
