/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "store/migrate.h"

#define STORE_EVERY_US INT64_C(60000000)
#define RETRY_US INT64_C(1000000)
#define HIGH_WATER "clock_high_water"

int watch_load(struct engine *e)
{
	int64_t mark = 0;
	int r = meta_get(e->db, HIGH_WATER, 0, &mark);

	if (r < 0)
		return r;
	guard_raise(&e->guard, mark);
	guard_raise(&e->guard, id_time(e->ids.last)); /* newer than the mark after a kill -9 */
	return LAPSE_OK;
}

static void describe(const struct engine *e, struct buf *out)
{
	json_put_int(out, "leap_ms", e->guard.leap_ms);
	json_put_time(out, "trusted", e->guard.trusted);
	json_put_time(out, "wall", clock_wall(e->system));
}

static int announce(struct tx *tx, enum event_kind kind)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	struct buf line;

	log_open(tx->engine->log, &line, LOG_WARN, event_name(kind));
	describe(tx->engine, &line);
	log_close(tx->engine->log, &line);
	json_begin(&data, '{');
	describe(tx->engine, &data);
	json_end(&data, '}');
	return event_add(tx, "", kind, &data);
}

static int write_down(struct tx *tx, const struct guard *g)
{
	const struct watch *w = &tx->engine->watch;
	int r = meta_set(tx->db, HIGH_WATER, tx->now);

	if (r == LAPSE_OK && g->jumps != w->jumps)
		r = announce(tx, EVENT_CLOCK_JUMPED);
	if (r == LAPSE_OK && g->accepts != w->accepts)
		r = announce(tx, EVENT_CLOCK_ACCEPTED);
	return r;
}

void watch_tick(struct engine *e)
{
	struct watch *w = &e->watch;
	struct tx tx;

	guard_now(&e->guard);
	if (watch_next_us(e) > 0)
		return;
	struct guard seen = e->guard;
	w->store_at = clock_mono(e->clock) + STORE_EVERY_US;
	int r = tx_begin(&tx, e);
	if (r == LAPSE_OK)
		r = write_down(&tx, &seen);
	if (r < 0) {
		tx_rollback(&tx);
		return; /* the store is failing, which others report; what is unwritten stays so */
	}
	if (tx_commit(&tx) == LAPSE_OK) {
		w->jumps = seen.jumps;
		w->accepts = seen.accepts;
	}
}

lapse_us watch_next_us(const struct engine *e)
{
	const struct watch *w = &e->watch;
	lapse_us in = w->store_at - clock_mono(e->clock);
	bool news = e->guard.jumps != w->jumps || e->guard.accepts != w->accepts;

	if (news) /* at once, but a failing store not more often than once a second */
		in -= STORE_EVERY_US - RETRY_US;
	return in > 0 ? in : 0;
}
