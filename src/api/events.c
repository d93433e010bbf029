/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events as a list: what happened after a cursor, for callers that cannot hold a stream open. The
 * table has no index by owner, so a worker walks it (engine/replay.h), a bounded stretch of it.
 */
#include "api/events.h"

#include <assert.h>
#include <string.h>

#include "engine/replay.h"

#define STRETCHES_MAX 5 /* of REPLAY_ROWS rows; then the caller goes on from the cursor */

struct events_state {
	struct replay replay;
	struct engine *engine;
};

struct events_query {
	const char *after;
};

const struct json_field EVENTS_LIST_QUERY[] = {
	{ "after", FIELD_LABEL, false, offsetof(struct events_query, after), ID_TEXT_LEN,
	  ID_TEXT_LEN,
	  "next_cursor of the answer before, or the id of an event (default: the oldest)" },
	{ 0 },
};

static void events_walk(struct call *c) /* on a worker */
{
	struct events_state *s = c->state;
	struct replay *r = &s->replay;

	for (int i = 0; i < STRETCHES_MAX && r->err == LAPSE_OK; i++) {
		r->readers[0].full = false;
		r->from = r->readers[0].cursor;
		replay_run(s->engine, r);
		if (r->readers[0].text.len > 0 || r->readers[0].cursor >= r->upto)
			break;
	}
}

/* One event of the text of a stream: id, event and data lines. */
static const char *events_put(struct buf *out, const char *text)
{
	const char *id = text + strlen("id: "), *kind = strstr(id, "\nevent: ");
	const char *data = kind ? strstr(kind, "\ndata: ") : NULL;
	const char *end = data ? strstr(data, "\n\n") : NULL;

	if (!end)
		return text + strlen(text);
	json_begin(out, '{');
	buf_printf(out, "\"id\":\"%.*s\",\"type\":\"%.*s\",", ID_TEXT_LEN, id,
		   (int)(data - kind - (ptrdiff_t)strlen("\nevent: ")), kind + strlen("\nevent: "));
	data += strlen("\ndata: ") + 1; /* its members, without the brace */
	buf_add(out, data, (size_t)(end - data));
	return end + 2;
}

static int events_answer(struct call *c)
{
	struct events_state *s = c->state;
	struct replay_reader *reader = &s->replay.readers[0];
	const int err = s->replay.err;
	char cursor[ID_TEXT_LEN + 1];

	id_format(reader->cursor, cursor);
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	for (const char *text = buf_text(&reader->text); *text;)
		text = events_put(&c->reply, text);
	json_end(&c->reply, ']');
	json_put_text(&c->reply, "next_cursor", cursor);
	json_put_bool(&c->reply, "has_more", reader->cursor < s->replay.upto);
	json_end(&c->reply, '}');
	replay_done(&s->replay);
	return err;
}

int events_api_list(struct call *c)
{
	struct events_query query = { 0 };
	struct events_state *s = arena_alloc(&c->arena, sizeof(*s));
	const struct engine *e = c->engine;
	int64_t after = 0;
	int r = call_query(c, EVENTS_LIST_QUERY, &query);

	if (r < 0)
		return r;
	if (query.after && !id_parse(query.after, &after))
		return problem_set(&c->problem, LAPSE_EINVAL, "after",
				   "after must be the id of an event: 16 hex digits");
	if (cluster_catch_up(c->engine) < 0)
		return LAPSE_EUNAVAILABLE;
	s->engine = c->engine;
	s->replay.count = 1;
	s->replay.upto = e->ring.newest;
	s->replay.due = id_floor(time_sub(clock_wall(e->clock), e->settings->event_keep_ms)) - 1;
	s->replay.readers[0] =
		(struct replay_reader){ .owner = mem_strdup(c->owner), .cursor = after };
	c->state = s;
	return call_work(c, events_walk, events_answer);
}
