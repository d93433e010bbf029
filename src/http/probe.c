/* SPDX-License-Identifier: Apache-2.0 */
#include "http/probe.h"

#include "http/request.h"
#include "http/server.h"

int probe_api_health(struct call *c)
{
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "status", "ok");
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

static const struct db_stmt PING = { "SELECT count(*) FROM counts" };

static bool store_answers(struct engine *e)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &PING);

	return db_step(&q) > 0;
}

int probe_api_ready(struct call *c)
{
	struct engine *e = c->engine;
	struct buf CLEANUP(buf_done) reasons = { 0 };

	if (!store_answers(e))
		json_text(&reasons, "the store does not answer");
	if (e->store_failing)
		json_text(&reasons, "the store refuses writes");
	for (size_t i = 0; i < e->schedulers_count; i++)
		if (schedule_is_stalled(e, &e->schedulers[i]))
			json_text(&reasons, arena_printf(&c->arena, "sweeps of %s are stalled",
							 e->schedulers[i].def->name));
	guard_now(&e->guard);
	if (e->guard.jumped)
		json_text(
			&reasons,
			"the wall clock has leapt ahead: see GET /v1/clock, 'lapse clock accept'");
	if (c->stopping)
		json_text(&reasons, "the daemon is stopping");
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "status", reasons.len ? "unavailable" : "ready");
	if (reasons.len) {
		c->status = 503;
		json_key(&c->reply, "reasons");
		json_begin(&c->reply, '[');
		buf_puts(&c->reply, buf_text(&reasons));
		json_end(&c->reply, ']');
	}
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

struct metrics_state {
	struct due_count due[BOUNDS_MAX];
	lapse_ms now;
	int err;
};

static void metrics_work(struct call *c)
{
	struct metrics_state *s = c->state;

	s->err = engine_count_due(c->engine, s->now, s->due);
}

static int metrics_finish(struct call *c)
{
	const struct metrics_state *s = c->state;

	if (s->err < 0)
		return s->err;
	c->content_type = "text/plain; version=0.0.4; charset=utf-8";
	matrix_write_metrics(c->engine, s->due, s->now, &c->reply);
	engine_write_metrics(c->engine, &c->reply);
	server_write_metrics(request_of_call(c)->server, &c->reply);
	return LAPSE_OK;
}

int probe_api_metrics(struct call *c)
{
	struct metrics_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->now = clock_wall(c->engine->clock);
	return call_work(c, metrics_work, metrics_finish);
}
