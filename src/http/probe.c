/* SPDX-License-Identifier: Apache-2.0 */
#include "http/probe.h"

#include "base/process.h"
#include "contract/keep.h"
#include "http/request.h"
#include "http/server.h"
#include "message/message.h"
#include "store/datadir.h"

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
	struct buf CLEANUP(buf_done) waiting = { 0 };

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
	keep_write_waiting(e, &waiting);
	if (waiting.len) {
		json_key(&c->reply, "warnings");
		json_begin(&c->reply, '[');
		json_text(&c->reply,
			  arena_printf(&c->arena, "sweeps wait for approval: %s (lapse approval)",
				       buf_text(&waiting)));
		json_end(&c->reply, ']');
	}
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

struct metrics_state {
	struct due_counts *due;
	struct process_sample process;
	int64_t database_bytes, unread;
	int err;
};

static int count_unread(struct store *store, int64_t *ret)
{
	struct db *reader = store_take_reader(store);
	int r = message_count_unread(reader, ret);

	store_give_reader(store, reader);
	return r;
}

static void metrics_work(struct call *c)
{
	struct metrics_state *s = c->state;
	const char *data_dir = c->engine->settings->data_dir;

	s->err = engine_count_due(c->engine, s->due);
	if (s->err == LAPSE_OK)
		s->err = count_unread(c->engine->store, &s->unread);
	process_sample(&s->process, data_dir);
	s->database_bytes = store_bytes(c->engine->store);
}

static void write_sizes(const struct metrics_state *s, int64_t unfiled, struct buf *out)
{
	metrics_family(out, METRIC_UNREAD);
	metrics_sample(out, METRIC_UNREAD, "", s->unread + unfiled);
	metrics_family(out, METRIC_DATABASE_BYTES);
	metrics_sample(out, METRIC_DATABASE_BYTES, "", s->database_bytes);
	process_write_metrics(&s->process, out);
}

static int metrics_finish(struct call *c)
{
	const struct metrics_state *s = c->state;

	if (s->err == LAPSE_OK)
		matrix_write_metrics(c->engine, s->due, &c->reply);
	matrix_count_end(c->engine);
	if (s->err < 0)
		return s->err;
	c->content_type = "text/plain; version=0.0.4; charset=utf-8";
	engine_write_metrics(c->engine, &c->reply);
	server_write_metrics(request_of_call(c)->server, &c->reply);
	write_sizes(s, message_count_unfiled(c->engine), &c->reply);
	return LAPSE_OK;
}

int probe_api_metrics(struct call *c)
{
	struct metrics_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->due = matrix_count_begin(c->engine, &c->arena, NULL, clock_wall(c->engine->clock));
	return call_work(c, metrics_work, metrics_finish);
}
