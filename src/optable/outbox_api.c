/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "optable/api.h"

#define OUTBOX_WAIT_MAX_MS 60000
#define CURSOR_LEN (ID_TEXT_LEN + 2)

/* Cursors are opaque to clients: a mark of the format, and where it stands. */
static const char *cursor_text(struct arena *arena, int64_t position)
{
	char id[ID_TEXT_LEN + 1];

	id_format(position, id);
	return arena_printf(arena, "1.%s", id);
}

static int cursor_parse(struct call *c, const char *text, int64_t *ret)
{
	if (strlen(text) != CURSOR_LEN || strncmp(text, "1.", 2) != 0 || !id_parse(text + 2, ret))
		return problem_set(&c->problem, LAPSE_EINVAL, "cursor",
				   "this is no cursor of the outbox");
	return LAPSE_OK;
}

struct outbox_body {
	const char *topic;
	json_t *payload;
};

const struct json_field OUTBOX_BODY[] = {
	{ "topic", FIELD_LABEL, true, offsetof(struct outbox_body, topic), 1, OUTBOX_TOPIC_MAX,
	  "what it is about" },
	{ "payload", FIELD_OBJECT, true, offsetof(struct outbox_body, payload), 0, 0,
	  "what happened" },
	{ 0 },
};

int outbox_api_add(struct call *c)
{
	struct outbox_body body = { 0 };
	int64_t id = 0;
	int r = call_body(c, OUTBOX_BODY, &body);

	if (r == LAPSE_OK)
		r = outbox_add(c->tx, c->owner, body.topic, optable_object_text(c, body.payload),
			       &id, &c->problem);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_id(&c->reply, "id", id);
	json_end(&c->reply, '}');
	c->status = 201;
	return LAPSE_OK;
}

struct outbox_query {
	const char *after, *consumer, *topic;
	int64_t limit, wait_ms;
};

const struct json_field OUTBOX_QUERY[] = {
	{ "after", FIELD_TEXT, false, offsetof(struct outbox_query, after), 1, 2 * ID_MAX_BYTES,
	  "the cursor to go on after" },
	{ "consumer", FIELD_ID, false, offsetof(struct outbox_query, consumer), 1, ID_MAX_BYTES,
	  "go on where this consumer stands" },
	{ "topic", FIELD_LABEL, false, offsetof(struct outbox_query, topic), 1, OUTBOX_TOPIC_MAX,
	  "only rows of this topic" },
	{ "limit", FIELD_INT, false, offsetof(struct outbox_query, limit), 1, LIMIT_MAX,
	  "rows at most (default 20)" },
	{ "wait_ms", FIELD_INT, false, offsetof(struct outbox_query, wait_ms), 0,
	  OUTBOX_WAIT_MAX_MS, "wait so long for a row when there is none" },
	{ 0 },
};

/* Where to begin; *ret_told = the caller said where, so that rows in between can be missing. */
static int outbox_start(struct call *c, const struct outbox_query *query, int64_t *ret_after,
			bool *ret_told)
{
	struct outbox_consumer consumer = { 0 };

	if (query->after && query->consumer)
		return problem_set(&c->problem, LAPSE_EINVAL, "consumer",
				   "give 'after' or 'consumer', not both");
	*ret_after = 0;
	*ret_told = query->after != NULL;
	if (query->after)
		return cursor_parse(c, query->after, ret_after);
	if (!query->consumer)
		return LAPSE_OK;
	int r = outbox_consumer_get(c->tx, c->owner, query->consumer, &consumer);
	if (r == LAPSE_OK) {
		*ret_after = consumer.position;
		*ret_told = true;
	}
	return r == LAPSE_ENOTFOUND ? LAPSE_OK : r; /* a new one begins at the oldest row */
}

struct outbox_page {
	struct call *call;
	struct buf rows;
	int64_t last, count;
};

static bool outbox_show(void *arg, const struct outbox_row *row)
{
	struct outbox_page *p = arg;
	struct buf *out = &p->rows;

	json_begin(out, '{');
	json_put_id(out, "id", row->id);
	json_put_text(out, "cursor", cursor_text(&p->call->arena, row->id));
	json_put_text(out, "topic", row->topic);
	json_put_raw(out, "payload", row->payload);
	json_put_time(out, "created_at", row->created_at);
	json_end(out, '}');
	p->last = row->id;
	p->count++;
	return (int64_t)out->len < OPTABLE_REPLY_BYTES; /* the cursor leads on */
}

static void outbox_answer(struct call *c, const struct outbox_page *p, bool gap)
{
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	buf_puts(&c->reply, buf_text(&p->rows));
	json_end(&c->reply, ']');
	json_put_text(&c->reply, "next_cursor", cursor_text(&c->arena, p->last));
	json_put_bool(&c->reply, "gap", gap);
	json_end(&c->reply, '}');
}

int outbox_api_read(struct call *c)
{
	struct outbox_query query = { .limit = LIMIT_DEFAULT };
	struct outbox_page p = { .call = c };
	bool told = false, gap = false;
	int64_t after = 0;
	int r = call_query(c, OUTBOX_QUERY, &query);

	if (r == LAPSE_OK)
		r = outbox_start(c, &query, &after, &told);
	if (r == LAPSE_OK && told)
		r = outbox_has_gap(c->tx, c->owner, after, &gap);
	p.last = after;
	if (r == LAPSE_OK)
		r = outbox_read(c->tx, c->owner, after, query.topic, query.limit, outbox_show, &p);
	lapse_ms left = call_wait_left(c, query.wait_ms);
	if (r == LAPSE_OK && p.count == 0 && left > 0)
		r = call_park(c, outbox_wait_key(&c->arena, c->owner), left);
	else if (r == LAPSE_OK)
		outbox_answer(c, &p, gap);
	buf_done(&p.rows);
	return r;
}

/* Consumers */

struct consumer_body {
	const char *cursor;
	bool force;
};

const struct json_field OUTBOX_CONSUMER_BODY[] = {
	{ "cursor", FIELD_TEXT, true, offsetof(struct consumer_body, cursor), 1, 2 * ID_MAX_BYTES,
	  "how far it has read" },
	{ "force", FIELD_BOOL, false, offsetof(struct consumer_body, force), 0, 0,
	  "let it go back, too" },
	{ 0 },
};

int outbox_api_consumer_put(struct call *c)
{
	struct consumer_body body = { 0 };
	struct outbox_consumer consumer = { 0 };
	const char *name = NULL;
	int64_t position = 0;
	int r = call_id_param(c, 0, "name", &name);

	if (r == LAPSE_OK)
		r = call_body(c, OUTBOX_CONSUMER_BODY, &body);
	if (r == LAPSE_OK)
		r = cursor_parse(c, body.cursor, &position);
	if (r == LAPSE_OK)
		r = outbox_consumer_put(c->tx, c->owner, name, position, body.force, &consumer,
					&c->problem);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "name", name);
	json_put_text(&c->reply, "cursor", cursor_text(&c->arena, consumer.position));
	json_put_time(&c->reply, "updated_at", consumer.updated_at);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

static bool consumer_show(void *arg, const struct outbox_consumer *consumer)
{
	struct text_page *p = arg;

	if (!text_page_item(p, consumer->name))
		return false;
	json_begin(p->out, '{');
	json_put_text(p->out, "name", consumer->name);
	json_put_text(p->out, "cursor", cursor_text(p->arena, consumer->position));
	json_put_time(p->out, "updated_at", consumer->updated_at);
	json_put_int(p->out, "lag", consumer->lag);
	json_end(p->out, '}');
	return true;
}

int outbox_api_consumers(struct call *c)
{
	struct text_page page;
	int r = text_page_begin(&page, c);

	if (r == LAPSE_OK)
		r = outbox_consumer_list(c->tx, c->owner, page.after, page.page.limit + 1,
					 consumer_show, &page);
	if (r == LAPSE_OK)
		text_page_end(&page);
	return r;
}
