/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/why: rows and events are looked at on a worker, and judged on the loop. */
#include <assert.h>

#include "api/engine.h"
#include "engine/why.h"

struct why_query {
	const char *q;
};

const struct json_field WHY_QUERY[] = {
	{ "q", FIELD_LABEL, true, offsetof(struct why_query, q), 1, WHY_QUERY_MAX,
	  "what the thing is known by: an id, an agent, an address, a checksum or a key" },
	{ 0 },
};

static void why_write_hold(const struct why_thing *t, struct buf *out)
{
	if (!t->facts.held_until)
		return;
	json_key(out, "hold");
	json_begin(out, '{');
	json_put_text(out, "reason", t->hold.reason);
	json_put_time(out, "until", t->hold.until);
	json_put_time(out, "placed_at", t->hold.placed_at);
	json_end(out, '}');
}

static void why_write_thing(const struct why *w, const struct why_thing *t, struct buf *out)
{
	const struct bound_spec *s = t->bound->spec;
	struct buf CLEANUP(buf_done) sentence = { 0 };

	assert(t->bound->magic == BOUND_MAGIC);
	why_write_sentence(t, &sentence);
	json_begin(out, '{');
	json_put_text(out, "table", s->name);
	json_put_text(out, "key", t->key);
	json_put_text(out, "state", why_state_name(t->state));
	json_put_time(out, "created_at", id_time(t->id));
	json_put_time(out, "goes_at", t->goes_at);
	json_put_text(out, "why", buf_text(&sentence));
	json_put_text(out, "rule", s->due_when);
	json_put_text(out, "safety_rule", s->safety_rule);
	json_put_text(out, "scheduler", s->scheduler);
	json_put_time(out, "next_sweep_at",
		      schedule_next_at(w->engine, t->bound->scheduler, w->now));
	why_write_hold(t, out);
	json_key(out, "row");
	json_begin(out, '{');
	for (size_t i = 0; s->shown && s->shown[i]; i++)
		json_put_text(out, s->shown[i], t->shown[i]);
	json_end(out, '}');
	json_end(out, '}');
}

static void why_write_event(const struct why_event *e, struct buf *out)
{
	json_begin(out, '{');
	json_put_id(out, "id", e->seq);
	json_put_time(out, "at", e->at);
	json_put_text(out, "type", e->kind);
	json_put_raw(out, "data", e->data);
	json_put_bool(out, "inferred", e->inferred);
	json_end(out, '}');
}

static void why_write(const struct why *w, struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "query", w->query);
	json_key(out, "things");
	json_begin(out, '[');
	for (size_t i = 0; i < w->things_count; i++)
		if (!w->things[i].bound->removed)
			why_write_thing(w, &w->things[i], out);
	json_end(out, ']');
	json_key(out, "timeline");
	json_begin(out, '[');
	for (size_t i = 0; i < w->events_count; i++)
		why_write_event(&w->events[i], out);
	json_end(out, ']');
	json_put_time(out, "events_from", w->events_from);
	json_put_bool(out, "more_events", w->more_events);
	json_end(out, '}');
}

static void why_work(struct call *c)
{
	why_look(c->state);
}

static int why_finish(struct call *c)
{
	struct why *w = c->state;

	if (w->err == LAPSE_OK) {
		why_judge_all(w);
		why_write(w, &c->reply);
	}
	why_end(w);
	return w->err;
}

int why_api_get(struct call *c)
{
	struct why_query query = { 0 };
	int r = call_query(c, WHY_QUERY, &query);

	if (r < 0)
		return r;
	struct why *w = c->state = arena_alloc(&c->arena, sizeof(*w));
	why_begin(w, c->engine, &c->arena, c->owner, query.q, c->admin && !c->acting);
	return call_work(c, why_work, why_finish);
}
