/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/guard.h"

#include <assert.h>

#include "base/mem.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "store/migrate.h"

#define GRACE_WITHOUT_WINDOW_MS INT64_C(86400000)
#define STORE_EVERY_US INT64_C(60000000)
#define RETRY_US INT64_C(1000000)
#define GUARD_HIGH_WATER "clock_high_water"

static lapse_ms guard_clock_wall(void *ctx)
{
	return guard_now(ctx);
}

static lapse_us guard_clock_mono(void *ctx)
{
	const struct guard *g = ctx;

	assert(g->magic == GUARD_MAGIC);
	return clock_mono(g->source);
}

void guard_init(struct guard *g, const struct clock *source, const struct settings *s)
{
	assert(s->clock_jump_max_ms > 0 && s->clock_accept_after_ms >= 0);
	*g = (struct guard){ .magic = GUARD_MAGIC,
			     .source = source,
			     .jump_max_ms = s->clock_jump_max_ms,
			     .accept_after_ms = s->clock_accept_after_ms,
			     .trusted = clock_wall(source),
			     .at = clock_mono(source),
			     .store_at = clock_mono(source) };
	g->clock = (struct clock){ guard_clock_wall, guard_clock_mono, g };
}

void guard_raise(struct guard *g, lapse_ms high_water)
{
	if (high_water > g->trusted)
		g->trusted = high_water;
}

/* A leap of a new size starts its time of proof anew. */
static void guard_note_leap(struct guard *g, lapse_ms leap, lapse_us mono)
{
	lapse_ms change = leap - g->leap_ms;

	assert(leap > g->jump_max_ms);
	if (!g->jumped)
		g->jumps++;
	if (!g->jumped || change > g->jump_max_ms || change < -g->jump_max_ms) {
		g->leap_ms = leap;
		g->steady_since = mono;
	}
	g->jumped = true;
}

static bool guard_leap_is_proven(const struct guard *g, lapse_us mono)
{
	return g->leap_ms <= LEAP_AUTO_ACCEPT_MS &&
	       mono - g->steady_since >= g->accept_after_ms * 1000;
}

static void guard_end_leap(struct guard *g)
{
	assert(g->jumped);
	g->accepts++;
	g->jumped = false;
}

lapse_ms guard_now(struct guard *g)
{
	lapse_ms wall = clock_wall(g->source);
	lapse_us mono = clock_mono(g->source);
	lapse_ms own_pace = time_add(g->trusted, (mono - g->at) / 1000);
	lapse_ms leap = time_sub(wall, own_pace);

	assert(g->magic == GUARD_MAGIC);
	if (leap > g->jump_max_ms) {
		guard_note_leap(g, leap, mono);
		if (guard_leap_is_proven(g, mono))
			guard_end_leap(g);
	} else {
		g->jumped = false;
	}
	/* A wall clock that is behind, or has leapt ahead, does not count: keep our own pace. */
	if (g->jumped || wall < own_pace) {
		g->at += (own_pace - g->trusted) * 1000; /* the rest of a millisecond counts on */
		g->trusted = own_pace;
	} else {
		g->at = mono;
		g->trusted = wall;
	}
	assert(g->trusted >= own_pace); /* it never goes back */
	return g->trusted;
}

bool guard_accept(struct guard *g)
{
	guard_now(g);
	if (!g->jumped)
		return false;
	guard_end_leap(g);
	g->trusted = clock_wall(g->source);
	g->at = clock_mono(g->source);
	assert(!g->jumped);
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

/* Writing it down */

int guard_load(struct engine *e)
{
	int64_t mark = 0;
	int r = meta_get(e->db, GUARD_HIGH_WATER, 0, &mark);

	if (r < 0)
		return r;
	guard_raise(&e->guard, mark);
	guard_raise(&e->guard, id_time(e->ids.last)); /* newer than the mark after a kill -9 */
	return LAPSE_OK;
}

static void guard_describe(const struct engine *e, struct buf *out)
{
	json_put_int(out, "leap_ms", e->guard.leap_ms);
	json_put_time(out, "trusted", e->guard.trusted);
	json_put_time(out, "wall", clock_wall(e->system));
}

static int guard_announce(struct tx *tx, enum event_kind kind)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	assert(kind == EVENT_CLOCK_JUMPED || kind == EVENT_CLOCK_ACCEPTED);
	json_begin(&data, '{');
	guard_describe(tx->engine, &data);
	json_end(&data, '}');
	return event_add(tx, "", kind, &data);
}

static void guard_log(const struct engine *e, enum event_kind kind)
{
	struct buf line;

	log_open(e->log, &line, LOG_WARN, event_name(kind));
	guard_describe(e, &line);
	log_close(e->log, &line);
}

static int guard_write(struct tx *tx, void *seen)
{
	const struct guard *g = seen;
	int r = meta_set(tx->db, GUARD_HIGH_WATER, tx->now);

	assert(g->magic == GUARD_MAGIC);
	assert(tx_can_write(tx));
	if (r == LAPSE_OK && g->jumps != g->jumps_written)
		r = guard_announce(tx, EVENT_CLOCK_JUMPED);
	if (r == LAPSE_OK && g->accepts != g->accepts_written)
		r = guard_announce(tx, EVENT_CLOCK_ACCEPTED);
	if (r == LAPSE_OK && g->accepts != g->accepts_written)
		r = cluster_tell(tx, "clock", "");
	return r;
}

/* What could not be written stays to be written; others report a store that fails. */
static void guard_store(struct engine *e)
{
	struct guard *g = &e->guard;
	struct guard seen = *g;

	g->store_at = clock_mono(e->clock) + STORE_EVERY_US;
	if (job_do(e, JOB_LAZY, guard_write, &seen) < 0)
		return;
	if (seen.jumps != g->jumps_written)
		guard_log(e, EVENT_CLOCK_JUMPED);
	if (seen.accepts != g->accepts_written)
		guard_log(e, EVENT_CLOCK_ACCEPTED);
	g->jumps_written = seen.jumps;
	g->accepts_written = seen.accepts;
	assert(g->jumps_written <= g->jumps && g->accepts_written <= g->accepts);
	g->stored = store_mark(e->store);
}

static lapse_us guard_next_store_us(const struct engine *e)
{
	const struct guard *g = &e->guard;
	lapse_us in = g->store_at - clock_mono(e->clock);
	bool news = g->jumps != g->jumps_written || g->accepts != g->accepts_written;

	assert(g->jumps >= g->jumps_written && g->accepts >= g->accepts_written);
	if (news) /* at once, but while the store fails only once per second */
		in -= STORE_EVERY_US - RETRY_US;
	return in > 0 ? in : 0;
}

void guard_tick(struct engine *e)
{
	guard_now(&e->guard);
	if (guard_next_store_us(e) == 0)
		guard_store(e);
	durable_want(e, e->guard.stored);
}

lapse_us guard_next_us(const struct engine *e)
{
	int64_t mark = e->guard.stored;

	if (!store_is_durable(e->store, mark) && !durable_waits(e, mark))
		return 0;
	return guard_next_store_us(e);
}
