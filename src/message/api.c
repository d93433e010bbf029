/* SPDX-License-Identifier: Apache-2.0 */
#include "message/api.h"

#include "message/message.h"

#define CONTENT_MAX (INT64_C(64) << 20) /* the body's own limit comes first */
#define WAIT_MAX_MS 60000
#define VISIBILITY_DEFAULT_MS 30000
#define CLAIM_DEFAULT 10

/* The part that all messages of a broadcast share. */
static void write_shared(struct buf *out, const struct message *m)
{
	json_put_text(out, "from", m->from);
	json_put_text(out, "content", m->content);
	json_put_text(out, "type", m->type);
	json_put_raw(out, "metadata", m->metadata);
	json_put_time(out, "timestamp", m->timestamp);
	json_put_bool(out, "read", m->read);
	json_put_time(out, "read_at", m->read ? m->read_at : LAPSE_NEVER);
	json_end(out, '}');
}

static void write_own(struct buf *out, const struct message *m)
{
	json_begin(out, '{');
	json_put_id(out, "id", m->id);
	json_put_text(out, "to", m->to);
}

static void write_message(struct buf *out, const struct message *m)
{
	write_own(out, m);
	write_shared(out, m);
}

static void write_row(void *out, const struct message *m)
{
	write_message(out, m);
}

/* The answer that is one message. A read one says when it will go. */
static void answer_message(void *arg, const struct message *m)
{
	struct call *c = arg;

	write_message(&c->reply, m);
	if (m->read)
		c->sunset = time_add(m->timestamp, c->engine->settings->message_ttl_ms);
}

/* The {agent} and {id} of the path. Something that is no id of ours cannot exist. */
static int message_param(struct call *c, const char **ret_agent, int64_t *ret_id)
{
	int r = call_id_param(c, 0, "agent", ret_agent);

	if (r < 0)
		return r;
	if (!id_parse(c->params[1], ret_id))
		return problem_set(&c->problem, LAPSE_ENOTFOUND, NULL, "there is no such message");
	return LAPSE_OK;
}

/* Sending */

struct send_body {
	json_t *to;
	const char *from, *content, *type;
	json_t *metadata;
};

#define SEND_FIELDS                                                                                \
	{ "from", FIELD_ID, true, offsetof(struct send_body, from), 0, 0, "who sends it" },        \
		{ "content", FIELD_TEXT,  true,      offsetof(struct send_body, content),          \
		  0,         CONTENT_MAX, "the text" },                                            \
		{ "type",                                                                          \
		  FIELD_LABEL,                                                                     \
		  false,                                                                           \
		  offsetof(struct send_body, type),                                                \
		  1,                                                                               \
		  MESSAGE_TYPE_MAX,                                                                \
		  "what kind of message it is (default text)" },                                   \
	{                                                                                          \
		"metadata", FIELD_OBJECT, false, offsetof(struct send_body, metadata), 0, 0,       \
			"anything else, as an object"                                              \
	}

const struct json_field MESSAGE_SEND_BODY[] = { SEND_FIELDS, { 0 } };

const struct json_field MESSAGE_BROADCAST_BODY[] = {
	{ "to", FIELD_IDS, true, offsetof(struct send_body, to), 1, MESSAGE_RECIPIENTS_MAX,
	  "the agents that get it" },
	SEND_FIELDS,
	{ 0 },
};

static struct message draft(struct call *c, const struct send_body *b)
{
	struct message m = { .from = b->from,
			     .content = b->content,
			     .type = b->type ? b->type : "text",
			     .metadata = "{}" };

	if (b->metadata && json_object_size(b->metadata) > 0) {
		char *text = json_dumps(b->metadata, JSON_COMPACT);
		m.metadata = arena_strdup(&c->arena, text ? text : "{}");
		free(text);
	}
	return m;
}

int message_api_send(struct call *c)
{
	struct send_body body = { 0 };
	const char *agent = NULL;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_body(c, MESSAGE_SEND_BODY, &body);
	if (r < 0)
		return r;
	struct message m, wish = draft(c, &body);
	r = message_send(c->tx, c->owner, &wish, &agent, 1, &m, &c->problem);
	if (r < 0)
		return r;
	c->status = 201;
	write_message(&c->reply, &m);
	return LAPSE_OK;
}

static void write_broadcast(struct buf *out, const struct message *sent, size_t n)
{
	struct buf CLEANUP(buf_done) shared = { 0 };

	json_begin(out, '{');
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < n; i++) {
		write_own(out, &sent[i]);
		if (i == 0) {
			size_t start = out->len;
			write_shared(out, &sent[i]);
			buf_add(&shared, out->data + start, out->len - start);
		} else {
			buf_add(out, shared.data, shared.len);
		}
	}
	json_end(out, ']');
	json_end(out, '}');
}

int message_api_broadcast(struct call *c)
{
	struct send_body body = { 0 };
	int r = call_body(c, MESSAGE_BROADCAST_BODY, &body);

	if (r < 0)
		return r;
	size_t n = json_array_size(body.to);
	const char **to = arena_alloc(&c->arena, n * sizeof(*to));
	struct message *sent = arena_alloc(&c->arena, n * sizeof(*sent)), wish = draft(c, &body);
	for (size_t i = 0; i < n; i++)
		to[i] = json_string_value(json_array_get(body.to, i));
	r = message_send(c->tx, c->owner, &wish, to, n, sent, &c->problem);
	if (r < 0)
		return r;
	c->status = 201;
	write_broadcast(&c->reply, sent, n);
	return LAPSE_OK;
}

/* Listing, with a long poll */

struct list_query {
	struct page page;
	bool unread;
	int64_t wait_ms;
};

const struct json_field MESSAGE_LIST_QUERY[] = {
	{ "limit", FIELD_INT, false, offsetof(struct list_query, page.limit), 1, LIMIT_MAX,
	  "items a page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct list_query, page.after), 1, ID_TEXT_LEN,
	  "next_cursor of the page before" },
	{ "unread", FIELD_BOOL, false, offsetof(struct list_query, unread), 0, 0,
	  "only unread ones" },
	{ "wait_ms", FIELD_INT, false, offsetof(struct list_query, wait_ms), 0, WAIT_MAX_MS,
	  "wait so long for the first message when there is none" },
	{ 0 },
};

static void add_message(void *arg, const struct message *m)
{
	struct page_writer *w = arg;

	if (page_item(w, m->id))
		write_message(w->out, m);
}

int message_api_list(struct call *c)
{
	struct list_query query = { .page.limit = LIMIT_DEFAULT };
	struct page_writer w;
	const char *agent = NULL;
	int64_t before = 0;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_query(c, MESSAGE_LIST_QUERY, &query);
	if (r == LAPSE_OK)
		r = page_before(&query.page, &before, &c->problem);
	if (r < 0)
		return r;
	page_begin(&w, &c->reply, &query.page);
	r = message_list(c->tx, c->owner, agent, query.unread, before, query.page.limit + 1,
			 add_message, &w);
	if (r < 0)
		return r;
	lapse_ms left = call_wait_left(c, query.wait_ms);
	if (w.written == 0 && left > 0)
		return call_park(c, message_wait_key(&c->arena, c->owner, agent), left);
	page_end(&w);
	return LAPSE_OK;
}

/* One message */

static int explain(struct call *c, int err)
{
	if (err == LAPSE_ENOTFOUND)
		return problem_set(&c->problem, err, NULL, "there is no such message");
	if (err == LAPSE_EEXPIRED)
		return problem_set(&c->problem, err, NULL, "Message has expired");
	if (err == LAPSE_ECONFLICT)
		return problem_set(&c->problem, err, "claim_id",
				   "the message has passed to another claim");
	return err;
}

int message_api_get(struct call *c)
{
	const char *agent = NULL;
	int64_t id = 0;
	int r = message_param(c, &agent, &id);

	if (r == LAPSE_OK)
		r = message_get(c->tx, c->owner, agent, id, answer_message, c);
	return explain(c, r);
}

struct read_body {
	const char *claim_id;
};

const struct json_field MESSAGE_READ_BODY[] = {
	{ "claim_id", FIELD_LABEL, false, offsetof(struct read_body, claim_id), 1, ID_MAX_BYTES,
	  "the claim the message was given out with" },
	{ 0 },
};

int message_api_read(struct call *c)
{
	struct read_body body = { 0 };
	const char *agent = NULL;
	int64_t id = 0, claim = CLAIM_NONE;
	int r = message_param(c, &agent, &id);

	if (r == LAPSE_OK)
		r = call_body(c, MESSAGE_READ_BODY, &body);
	if (r < 0)
		return explain(c, r);
	if (body.claim_id && !id_parse(body.claim_id, &claim))
		return problem_set(&c->problem, LAPSE_EINVAL, "claim_id",
				   "claim_id must be 16 hex digits");
	r = message_mark_read(c->tx, c->owner, agent, id, claim, answer_message, c);
	return explain(c, r);
}

/* Many at once: by ids, or all before a time in turns of a few hundred. */

struct read_many_body {
	json_t *ids;
	lapse_ms before;
};

const struct json_field MESSAGE_READ_MANY_BODY[] = {
	{ "ids", FIELD_HEXES, false, offsetof(struct read_many_body, ids), 1, MESSAGE_IDS_MAX,
	  "the messages" },
	{ "before", FIELD_TIME, false, offsetof(struct read_many_body, before), 0, 0,
	  "all that were sent before this time" },
	{ 0 },
};

static int mark_ids(struct call *c, const char *agent, const json_t *array, int64_t *ret_count)
{
	size_t n = json_array_size(array);
	int64_t *ids = arena_alloc(&c->arena, n * sizeof(*ids));

	for (size_t i = 0; i < n; i++)
		id_parse(json_string_value(json_array_get(array, i)), &ids[i]);
	return message_mark_ids(c->tx, c->owner, agent, ids, n, ret_count);
}

int message_api_read_many(struct call *c)
{
	struct read_many_body body = { .before = LAPSE_NEVER };
	const char *agent = NULL;
	int64_t count = 0;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_body(c, MESSAGE_READ_MANY_BODY, &body);
	if (r < 0)
		return r;
	if ((body.ids != NULL) == (body.before != LAPSE_NEVER))
		return problem_set(&c->problem, LAPSE_EINVAL, "ids",
				   "give either ids or before, not both");
	if (!c->state)
		c->state = arena_alloc(&c->arena, sizeof(int64_t));
	int64_t *total = c->state;
	if (body.ids)
		r = mark_ids(c, agent, body.ids, &count);
	else
		r = message_mark_before(c->tx, c->owner, agent, body.before, MESSAGE_MARK_A_TURN,
					&count);
	if (r < 0)
		return r;
	*total += count;
	if (!body.ids && count == MESSAGE_MARK_A_TURN)
		return CALL_AGAIN;
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "count", *total);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Claiming */

struct claim_body {
	int64_t limit, visibility_ms, wait_ms;
};

const struct json_field MESSAGE_CLAIM_BODY[] = {
	{ "limit", FIELD_INT, false, offsetof(struct claim_body, limit), 1, LIMIT_MAX,
	  "messages at most (default 10)" },
	{ "visibility_ms", FIELD_INT, false, offsetof(struct claim_body, visibility_ms), 1,
	  MESSAGE_VISIBILITY_MAX_MS, "how long they are leased (default 30000)" },
	{ "wait_ms", FIELD_INT, false, offsetof(struct claim_body, wait_ms), 0, WAIT_MAX_MS,
	  "wait so long for a message when there is none" },
	{ 0 },
};

/* Nothing to claim: wait for a message, or for a claim of somebody else to end. */
static int claim_wait(struct call *c, const char *agent, lapse_ms left)
{
	lapse_ms offer;
	int r = message_next_offer(c->tx, c->owner, agent, &offer);

	if (r < 0)
		return r;
	lapse_ms until_offer = time_sub(offer, c->tx->now);
	return call_park(c, message_wait_key(&c->arena, c->owner, agent),
			 until_offer < left ? until_offer : left);
}

int message_api_claim(struct call *c)
{
	struct claim_body body = { .limit = CLAIM_DEFAULT, .visibility_ms = VISIBILITY_DEFAULT_MS };
	struct buf CLEANUP(buf_done) rows = { 0 };
	const char *agent = NULL;
	int64_t claim = id_random(), count = 0;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_body(c, MESSAGE_CLAIM_BODY, &body);
	if (r == LAPSE_OK)
		r = message_claim(c->tx, c->owner, agent, claim,
				  time_add(c->tx->now, body.visibility_ms), body.limit, write_row,
				  &rows, &count);
	if (r < 0)
		return r;
	lapse_ms left = call_wait_left(c, body.wait_ms);
	if (count == 0 && left > 0)
		return claim_wait(c, agent, left);
	json_begin(&c->reply, '{');
	json_key(&c->reply, "claim_id");
	if (count > 0)
		json_id(&c->reply, claim);
	else
		json_text(&c->reply, NULL);
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	buf_puts(&c->reply, buf_text(&rows));
	json_end(&c->reply, ']');
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Statistics */

struct stats_writer {
	struct call *call;
	int64_t left; /* items that still belong to this page */
	const char *last;
	bool more;
};

static void add_inbox(void *arg, const struct inbox *i)
{
	struct stats_writer *w = arg;
	struct buf *out = &w->call->reply;

	if (w->left-- == 0) {
		w->more = true;
		return;
	}
	w->last = arena_strdup(&w->call->arena, i->agent);
	json_begin(out, '{');
	json_put_text(out, "agent_id", i->agent);
	json_put_int(out, "total", i->total);
	json_put_int(out, "unread", i->unread);
	json_key(out, "oldest_unread_age_sec");
	if (i->unread > 0)
		json_int(out, (w->call->tx->now - i->oldest_unread) / 1000);
	else
		json_text(out, NULL);
	json_end(out, '}');
}

int message_api_stats(struct call *c)
{
	struct page page = { .limit = LIMIT_DEFAULT };
	struct stats_writer w = { .call = c };
	const char *after = "";
	int r = call_query(c, PAGE_FIELDS, &page);

	if (r == LAPSE_OK && page.after)
		r = page_after_text(&page, &c->arena, &after, &c->problem);
	if (r < 0)
		return r;
	w.left = page.limit;
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	r = message_stats(c->tx, c->owner, after, page.limit + 1, add_inbox, &w);
	page_close(&c->reply, w.more ? page_text_cursor(&c->arena, w.last) : NULL);
	return r;
}
