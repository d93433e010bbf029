/* SPDX-License-Identifier: Apache-2.0 */
#include "message/api.h"

#include <assert.h>

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

static void message_api_write_row(void *out, const struct message *m)
{
	write_message(out, m);
}

/* The answer that is one message. A read one says when it will go. */
static void answer_message(void *arg, const struct message *m)
{
	struct call *c = arg;

	assert(c->magic == CALL_MAGIC);
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
	lapse_ms timestamp; /* 0 = now */
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
		{ "metadata",                                                                      \
		  FIELD_OBJECT,                                                                    \
		  false,                                                                           \
		  offsetof(struct send_body, metadata),                                            \
		  0,                                                                               \
		  0,                                                                               \
		  "anything else, as an object" },                                                 \
	{                                                                                          \
		"timestamp", FIELD_TIME, false, offsetof(struct send_body, timestamp), 0, 0,       \
			"when it was sent, not in the future (default now); admins only"           \
	}

const struct json_field MESSAGE_SEND_BODY[] = { SEND_FIELDS, { 0 } };

const struct json_field MESSAGE_BROADCAST_BODY[] = {
	{ "to", FIELD_IDS, true, offsetof(struct send_body, to), 1, MESSAGE_RECIPIENTS_MAX,
	  "the agents that get it" },
	SEND_FIELDS,
	{ 0 },
};

static struct message message_api_draft(struct call *c, const struct send_body *b)
{
	struct message m = { .from = b->from,
			     .content = b->content,
			     .type = b->type ? b->type : "text",
			     .timestamp = b->timestamp,
			     .metadata = "{}" };

	if (b->metadata && json_object_size(b->metadata) > 0) {
		char *text = json_dumps(b->metadata, JSON_COMPACT);
		m.metadata = arena_strdup(&c->arena, text ? text : "{}");
		free(text);
	}
	return m;
}

static const char *message_location(struct call *c, const struct message *m)
{
	char id[ID_TEXT_LEN + 1];

	id_format(m->id, id);
	return call_path(c, "/v1/agents/%/messages/%", m->to, id);
}

/* A platform that moves in brings its messages at their age; no other caller dates a message. */
static int check_timestamp(struct call *c, const struct send_body *b)
{
	if (b->timestamp == 0)
		return LAPSE_OK;
	if (!c->admin)
		return problem_set(&c->problem, LAPSE_EFORBIDDEN, "timestamp",
				   "timestamp may only be given by an admin");
	if (b->timestamp < 0 || b->timestamp > c->tx->now)
		return problem_set(&c->problem, LAPSE_EINVAL, "timestamp",
				   "timestamp must be after 1970 and not in the future");
	return LAPSE_OK;
}

int message_api_send(struct call *c)
{
	struct send_body body = { 0 };
	const char *agent = NULL;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_body(c, MESSAGE_SEND_BODY, &body);
	if (r == LAPSE_OK)
		r = check_timestamp(c, &body);
	if (r < 0)
		return r;
	struct message m, wish = message_api_draft(c, &body);
	r = message_send(c->tx, c->owner, &wish, &agent, 1, &m, &c->problem);
	if (r < 0)
		return r;
	c->status = 201;
	c->location = message_location(c, &m);
	write_message(&c->reply, &m);
	return LAPSE_OK;
}

/* Who got it under which id; what was sent the sender knows. */
static void write_broadcast(struct buf *out, const struct message *sent, size_t n)
{
	assert(n > 0);
	json_begin(out, '{');
	json_key(out, "data");
	json_begin(out, '[');
	for (size_t i = 0; i < n; i++) {
		json_begin(out, '{');
		json_put_id(out, "id", sent[i].id);
		json_put_text(out, "to", sent[i].to);
		json_end(out, '}');
	}
	json_end(out, ']');
	json_put_time(out, "timestamp", sent[0].timestamp);
	json_end(out, '}');
}

int message_api_broadcast(struct call *c)
{
	struct send_body body = { 0 };
	int r = call_body(c, MESSAGE_BROADCAST_BODY, &body);

	if (r == LAPSE_OK)
		r = check_timestamp(c, &body);
	if (r < 0)
		return r;
	size_t n = json_array_size(body.to);
	const char **to = arena_alloc(&c->arena, n * sizeof(*to));
	struct message *sent = arena_alloc(&c->arena, n * sizeof(*sent)),
		       wish = message_api_draft(c, &body);
	for (size_t i = 0; i < n; i++) {
		to[i] = json_string_value(json_array_get(body.to, i));
		assert(to[i]); /* the table of fields has checked it */
	}
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
	bool unread, claims;
	int64_t wait_ms;
};

const struct json_field MESSAGE_LIST_QUERY[] = {
	{ "limit", FIELD_INT, false, offsetof(struct list_query, page.limit), 1, LIMIT_MAX,
	  "items per page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct list_query, page.after), 1, ID_TEXT_LEN,
	  "next_cursor of the page before" },
	{ "unread", FIELD_BOOL, false, offsetof(struct list_query, unread), 0, 0,
	  "only unread ones" },
	{ "claims", FIELD_BOOL, false, offsetof(struct list_query, claims), 0, 0,
	  "say until when an unread one is claimed (claimed_until)" },
	{ "wait_ms", FIELD_INT, false, offsetof(struct list_query, wait_ms), 0, WAIT_MAX_MS,
	  "wait so long for the first message when there is none" },
	{ 0 },
};

struct message_pages {
	struct page_writer writer;
	lapse_ms claimed_after; /* a claim that ends later is told; LAPSE_NEVER = none is */
};

static void add_message(void *arg, const struct message *m)
{
	struct message_pages *p = arg;
	bool claimed = !m->read && m->claim_id != CLAIM_NONE && m->claimed_until > p->claimed_after;

	if (!page_item(&p->writer, m->id))
		return;
	write_own(p->writer.out, m);
	if (claimed)
		json_put_time(p->writer.out, "claimed_until", m->claimed_until);
	write_shared(p->writer.out, m);
}

int message_api_list(struct call *c)
{
	struct list_query query = { .page.limit = LIMIT_DEFAULT };
	struct message_pages pages = { .claimed_after = LAPSE_NEVER };
	const char *agent = NULL;
	int64_t before = 0;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_query(c, MESSAGE_LIST_QUERY, &query);
	if (r == LAPSE_OK)
		r = page_before(&query.page, &before, &c->problem);
	if (r < 0)
		return r;
	if (query.claims)
		pages.claimed_after = c->tx->now;
	page_begin(&pages.writer, &c->reply, &query.page);
	struct message_page some = { before, query.page.limit + 1, MESSAGE_PAGE_MAX_BYTES };
	r = message_list(c->tx, c->owner, agent, query.unread, &some, add_message, &pages);
	if (r < 0)
		return r;
	lapse_ms left = call_wait_left(c, query.wait_ms);
	if (pages.writer.written == 0 && left > 0)
		return call_park(c, message_wait_key(&c->arena, c->owner, agent), left);
	page_end(&pages.writer);
	return LAPSE_OK;
}

/* One message */

static int message_api_explain(struct call *c, int err)
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
	return message_api_explain(c, r);
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
		return message_api_explain(c, r);
	if (body.claim_id && !id_parse(body.claim_id, &claim))
		return problem_set(&c->problem, LAPSE_EINVAL, "claim_id",
				   "claim_id must be 16 hex digits");
	r = message_mark_read(c->tx, c->owner, agent, id, claim, answer_message, c);
	return message_api_explain(c, r);
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

/* What earlier turns have done. */
struct marking {
	int64_t count; /* messages marked */
	size_t ids;    /* that were looked at */
};

static int mark_ids(struct call *c, const char *agent, const json_t *array, struct marking *m,
		    bool *ret_more)
{
	size_t n = json_array_size(array) - m->ids, done = 0;
	int64_t *ids = arena_alloc(&c->arena, n * sizeof(*ids)), count = 0;

	for (size_t i = 0; i < n; i++)
		id_parse(json_string_value(json_array_get(array, m->ids + i)), &ids[i]);
	int r = message_mark_ids(c->tx, c->owner, agent, ids, n, &done, &count);
	m->ids += done;
	m->count += count;
	*ret_more = done < n;
	return r;
}

static int mark_before_and_count(struct call *c, const char *agent, lapse_ms before,
				 struct marking *m, bool *ret_more)
{
	int64_t count = 0;
	int r = message_mark_before(c->tx, c->owner, agent, before, MESSAGE_MARK_A_TURN, &count,
				    ret_more);

	m->count += count;
	return r;
}

int message_api_read_many(struct call *c)
{
	struct read_many_body body = { .before = LAPSE_NEVER };
	const char *agent = NULL;
	bool more = false;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_body(c, MESSAGE_READ_MANY_BODY, &body);
	if (r < 0)
		return r;
	if ((body.ids != NULL) == (body.before != LAPSE_NEVER))
		return problem_set(&c->problem, LAPSE_EINVAL, "ids",
				   "give either ids or before, not both");
	/* A fresh one each time: a turn that has to be run again begins from the last one's. */
	struct marking *m = arena_alloc(&c->arena, sizeof(*m));
	*m = c->state ? *(const struct marking *)c->state : (struct marking){ 0 };
	r = body.ids ? mark_ids(c, agent, body.ids, m, &more)
		     : mark_before_and_count(c, agent, body.before, m, &more);
	if (r < 0)
		return r;
	c->state = m;
	if (more)
		return CALL_AGAIN;
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "count", m->count);
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

/* Nothing to claim: wait for a message, or until another claim ends. */
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
				  time_add(c->tx->now, body.visibility_ms), body.limit,
				  MESSAGE_PAGE_MAX_BYTES, message_api_write_row, &rows, &count);
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

struct extend_body {
	const char *claim_id;
	int64_t visibility_ms;
};

const struct json_field MESSAGE_EXTEND_BODY[] = {
	{ "claim_id", FIELD_LABEL, true, offsetof(struct extend_body, claim_id), 1, ID_MAX_BYTES,
	  "the claim the message was given out with" },
	{ "visibility_ms", FIELD_INT, false, offsetof(struct extend_body, visibility_ms), 1,
	  MESSAGE_VISIBILITY_MAX_MS, "how long the claim lasts from now on (default 30000)" },
	{ 0 },
};

int message_api_extend(struct call *c)
{
	struct extend_body body = { .visibility_ms = VISIBILITY_DEFAULT_MS };
	const char *agent = NULL;
	int64_t id = 0, claim = CLAIM_NONE;
	int r = message_param(c, &agent, &id);

	if (r == LAPSE_OK)
		r = call_body(c, MESSAGE_EXTEND_BODY, &body);
	if (r < 0)
		return message_api_explain(c, r);
	if (!id_parse(body.claim_id, &claim) || claim == CLAIM_NONE)
		return problem_set(&c->problem, LAPSE_EINVAL, "claim_id",
				   "claim_id must be 16 hex digits");
	lapse_ms until = time_add(c->tx->now, body.visibility_ms);
	r = message_extend(c->tx, c->owner, agent, id, claim, until);
	if (r == LAPSE_ECONFLICT)
		return problem_set(&c->problem, r, "claim_id",
				   "the claim does not hold the message any more");
	if (r < 0)
		return message_api_explain(c, r);
	json_begin(&c->reply, '{');
	json_put_id(&c->reply, "id", id);
	json_put_id(&c->reply, "claim_id", claim);
	json_put_time(&c->reply, "claimed_until", until);
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
