/* SPDX-License-Identifier: Apache-2.0 */
#include "optable/api.h"

#define QUEUE_WAIT_MAX_MS 60000
#define QUEUE_LEASE_DEFAULT_MS 30000
#define QUEUE_LIMIT_DEFAULT 1

static int queue_table_param(struct call *c, const struct bound_spec **ret)
{
	const struct bound_spec *table = queue_table(c->params[0]);

	if (!table)
		return problem_set(&c->problem, LAPSE_ENOTFOUND, "table",
				   "there is no queue '%.60s': there are channel_inbox and "
				   "channel_outbox",
				   c->params[0]);
	*ret = table;
	return LAPSE_OK;
}

static int queue_params(struct call *c, const struct bound_spec **ret_table, int64_t *ret_id)
{
	int r = queue_table_param(c, ret_table);

	if (r < 0)
		return r;
	if (!id_parse(c->params[1], ret_id))
		return problem_set(&c->problem, LAPSE_ENOTFOUND, NULL, "there is no such item");
	return LAPSE_OK;
}

static void queue_write(struct buf *out, const struct queue_item *item)
{
	json_begin(out, '{');
	json_put_id(out, "id", item->id);
	json_put_text(out, "key", item->key);
	json_put_raw(out, "payload", item->payload);
	json_key(out, "inbox_id");
	if (item->inbox_id)
		json_id(out, item->inbox_id);
	else
		json_text(out, NULL);
	json_put_text(out, "status", queue_status_name(item->status));
	json_put_int(out, "attempt", item->attempt);
	json_put_text(out, "worker", item->worker[0] ? item->worker : NULL);
	json_put_time(out, "lease_expires_at", item->lease_expires_at);
	json_put_text(out, "error", item->error[0] ? item->error : NULL);
	json_put_time(out, "created_at", item->created_at);
	json_put_time(out, "finished_at", item->finished_at);
	json_end(out, '}');
}

static void queue_write_state(struct buf *out, int64_t id, enum queue_status status)
{
	json_begin(out, '{');
	json_put_id(out, "id", id);
	json_put_text(out, "status", queue_status_name(status));
	json_end(out, '}');
}

/* Adding */

struct queue_body {
	json_t *payload;
	const char *key, *inbox_id, *dedupe_key;
};

const struct json_field QUEUE_BODY[] = {
	{ "payload", FIELD_OBJECT, true, offsetof(struct queue_body, payload), 0, 0, "the work" },
	{ "key", FIELD_LABEL, false, offsetof(struct queue_body, key), 1, QUEUE_KEY_MAX,
	  "your own name for what it is about" },
	{ "inbox_id", FIELD_LABEL, false, offsetof(struct queue_body, inbox_id), 1, ID_MAX_BYTES,
	  "channel_outbox only: the channel_inbox item that it answers" },
	{ "dedupe_key", FIELD_LABEL, false, offsetof(struct queue_body, dedupe_key), 1,
	  QUEUE_KEY_MAX, "while the queue has an item with this key, it is not added again" },
	{ 0 },
};

static int queue_draft(struct call *c, const struct queue_body *body, struct queue_item *ret)
{
	*ret = (struct queue_item){ .key = body->key,
				    .dedupe_key = body->dedupe_key,
				    .payload = optable_object_text(c, body->payload) };
	if (body->inbox_id && !id_parse(body->inbox_id, &ret->inbox_id))
		return problem_set(&c->problem, LAPSE_EINVAL, "inbox_id",
				   "inbox_id must be 16 hex digits");
	if (body->inbox_id && ret->inbox_id == 0) /* which stands for none */
		return problem_set(&c->problem, LAPSE_EINVAL, "inbox_id",
				   "channel_inbox has no such item");
	return LAPSE_OK;
}

int queue_api_add(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct queue_body body = { 0 };
	struct queue_item item = { 0 };
	bool fresh = false;
	int r = queue_table_param(c, &table);

	if (r == LAPSE_OK)
		r = call_body(c, QUEUE_BODY, &body);
	if (r == LAPSE_OK)
		r = queue_draft(c, &body, &item);
	if (r == LAPSE_OK)
		r = queue_add(c->tx, table, c->owner, &item, &fresh, &c->problem);
	if (r < 0)
		return r;
	queue_write_state(&c->reply, item.id, item.status);
	c->status = fresh ? 201 : 200;
	return LAPSE_OK;
}

/* Claiming */

struct queue_claim_body {
	const char *worker;
	int64_t limit, lease_ms, wait_ms;
};

const struct json_field QUEUE_CLAIM_BODY[] = {
	{ "worker", FIELD_ID, true, offsetof(struct queue_claim_body, worker), 0, 0,
	  "who will do the work" },
	{ "limit", FIELD_INT, false, offsetof(struct queue_claim_body, limit), 1, LIMIT_MAX,
	  "how many items at most (default 1)" },
	{ "lease_ms", FIELD_INT, false, offsetof(struct queue_claim_body, lease_ms), 1,
	  QUEUE_LEASE_MAX_MS, "how long they are yours (default 30000)" },
	{ "wait_ms", FIELD_INT, false, offsetof(struct queue_claim_body, wait_ms), 0,
	  QUEUE_WAIT_MAX_MS, "wait so long for an item when there is none" },
	{ 0 },
};

static void queue_show(void *arg, const struct queue_item *item)
{
	queue_write(arg, item);
}

/* Nothing to claim: wait for an item, or for the end of another worker's lease. */
static int queue_wait(struct call *c, const struct bound_spec *table, lapse_ms left)
{
	lapse_ms offer;
	int r = queue_next_offer(c->tx, table, c->owner, &offer);

	if (r < 0)
		return r;
	lapse_ms until_offer = time_sub(offer, c->tx->now);
	return call_park(c, queue_wait_key(&c->arena, table, c->owner),
			 until_offer < left ? until_offer : left);
}

int queue_api_claim(struct call *c)
{
	struct queue_claim_body body = { .limit = QUEUE_LIMIT_DEFAULT,
					 .lease_ms = QUEUE_LEASE_DEFAULT_MS };
	struct buf CLEANUP(buf_done) rows = { 0 };
	const struct bound_spec *table = NULL;
	int64_t count = 0;
	int r = queue_table_param(c, &table);

	if (r == LAPSE_OK)
		r = call_body(c, QUEUE_CLAIM_BODY, &body);
	if (r == LAPSE_OK)
		r = queue_claim(c->tx, table, c->owner, body.worker, body.limit, body.lease_ms,
				queue_show, &rows, &count);
	if (r < 0)
		return r;
	lapse_ms left = call_wait_left(c, body.wait_ms);
	if (count == 0 && left > 0)
		return queue_wait(c, table, left);
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	buf_puts(&c->reply, buf_text(&rows));
	json_end(&c->reply, ']');
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Reports of workers */

struct queue_report_body {
	const char *worker, *error;
	int64_t attempt, lease_ms;
	bool retry;
};

#define REPORT_FIELDS                                                                              \
	{ "worker",                                                                                \
	  FIELD_ID,                                                                                \
	  true,                                                                                    \
	  offsetof(struct queue_report_body, worker),                                              \
	  0,                                                                                       \
	  0,                                                                                       \
	  "who has claimed it" },                                                                  \
	{                                                                                          \
		"attempt", FIELD_INT, true, offsetof(struct queue_report_body, attempt), 1,        \
			QUEUE_ATTEMPT_MAX, "the attempt that the claim said"                       \
	}

const struct json_field QUEUE_COMPLETE_BODY[] = { REPORT_FIELDS, { 0 } };
const struct json_field QUEUE_FAIL_BODY[] = {
	REPORT_FIELDS,
	{ "error", FIELD_TEXT, true, offsetof(struct queue_report_body, error), 1, QUEUE_ERROR_MAX,
	  "what went wrong" },
	{ "retry", FIELD_BOOL, false, offsetof(struct queue_report_body, retry), 0, 0,
	  "put it back into the queue while it has attempts left (default false)" },
	{ 0 },
};
const struct json_field QUEUE_EXTEND_BODY[] = {
	REPORT_FIELDS,
	{ "lease_ms", FIELD_INT, true, offsetof(struct queue_report_body, lease_ms), 1,
	  QUEUE_LEASE_MAX_MS, "how much longer it is yours, from now on" },
	{ 0 },
};

static int queue_report_of(struct call *c, const struct json_field *fields,
			   const struct bound_spec **ret_table, struct queue_report_body *body,
			   struct queue_report *ret)
{
	int r = queue_params(c, ret_table, &ret->id);

	if (r == LAPSE_OK)
		r = call_body(c, fields, body);
	ret->worker = body->worker;
	ret->attempt = body->attempt;
	return r;
}

int queue_api_complete(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct queue_report_body body = { 0 };
	struct queue_report report = { 0 };
	int r = queue_report_of(c, QUEUE_COMPLETE_BODY, &table, &body, &report);

	if (r == LAPSE_OK)
		r = queue_complete(c->tx, table, c->owner, &report, &c->problem);
	if (r == LAPSE_OK)
		queue_write_state(&c->reply, report.id, QUEUE_COMPLETED);
	return r;
}

int queue_api_fail(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct queue_report_body body = { 0 };
	struct queue_report report = { 0 };
	enum queue_status status = QUEUE_FAILED;
	int r = queue_report_of(c, QUEUE_FAIL_BODY, &table, &body, &report);

	if (r == LAPSE_OK)
		r = queue_fail(c->tx, table, c->owner, &report, body.error, body.retry, &status,
			       &c->problem);
	if (r == LAPSE_OK)
		queue_write_state(&c->reply, report.id, status);
	return r;
}

int queue_api_extend(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct queue_report_body body = { 0 };
	struct queue_report report = { 0 };
	lapse_ms expires_at = 0;
	int r = queue_report_of(c, QUEUE_EXTEND_BODY, &table, &body, &report);

	if (r == LAPSE_OK)
		r = queue_extend(c->tx, table, c->owner, &report, body.lease_ms, &expires_at,
				 &c->problem);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_id(&c->reply, "id", report.id);
	json_put_text(&c->reply, "status", queue_status_name(QUEUE_PROCESSING));
	json_put_time(&c->reply, "lease_expires_at", expires_at);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Looking */

int queue_api_get(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct queue_item item = { 0 };
	int64_t id = 0;
	int r = queue_params(c, &table, &id);

	if (r == LAPSE_OK)
		r = queue_get(c->tx, &c->arena, table, c->owner, id, &item);
	if (r == LAPSE_OK)
		queue_write(&c->reply, &item);
	return r;
}

struct queue_list_query {
	const char *status;
	struct page page;
};

const struct json_field QUEUE_LIST_QUERY[] = {
	{ "status", FIELD_LABEL, false, offsetof(struct queue_list_query, status), 1, 16,
	  "queued, processing, completed or failed" },
	{ "limit", FIELD_INT, false, offsetof(struct queue_list_query, page.limit), 1, LIMIT_MAX,
	  "items on a page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct queue_list_query, page.after), 1,
	  2 * ID_MAX_BYTES, "the cursor of the page before" },
	{ 0 },
};

static void queue_list_item(void *arg, const struct queue_item *item)
{
	struct page_writer *w = arg;

	if (page_item(w, item->id))
		queue_write(w->out, item);
}

int queue_api_list(struct call *c)
{
	struct queue_list_query query = { .page.limit = LIMIT_DEFAULT };
	const struct bound_spec *table = NULL;
	struct page_writer w;
	enum queue_status status;
	int64_t before = 0;
	int r = queue_table_param(c, &table);

	if (r == LAPSE_OK)
		r = call_query(c, QUEUE_LIST_QUERY, &query);
	if (r == LAPSE_OK && query.status && !queue_status_parse(query.status, &status))
		return problem_set(&c->problem, LAPSE_EINVAL, "status",
				   "status must be queued, processing, completed or failed");
	if (r == LAPSE_OK)
		r = page_before(&query.page, &before, &c->problem);
	if (r < 0)
		return r;
	page_begin(&w, &c->reply, &query.page);
	r = queue_list(c->tx, table, c->owner, query.status, before, query.page.limit + 1,
		       queue_list_item, &w);
	if (r == LAPSE_OK)
		page_end(&w);
	return r;
}

int queue_api_retry(struct call *c)
{
	const struct bound_spec *table = NULL;
	int64_t id = 0;
	int r = queue_params(c, &table, &id);

	if (r == LAPSE_OK)
		r = queue_retry(c->tx, table, c->owner, id, &c->problem);
	if (r == LAPSE_OK)
		queue_write_state(&c->reply, id, QUEUE_QUEUED);
	return r;
}

static void queue_write_depth(struct buf *out, const struct bound_spec *table,
			      const struct queue_depth *depth)
{
	json_begin(out, '{');
	json_put_text(out, "table", table->name);
	for (int i = 0; i < QUEUE_STATES; i++)
		json_put_int(out, queue_status_name((enum queue_status)i), depth->items[i]);
	json_put_time(out, "oldest_queued_at", depth->oldest[QUEUE_QUEUED]);
	json_put_time(out, "oldest_failed_at", depth->oldest[QUEUE_FAILED]);
	json_end(out, '}');
}

int queue_api_depths(struct call *c)
{
	static const struct bound_spec *const tables[] = { &INBOX_BOUND, &CHANNEL_OUTBOX_BOUND };
	struct queue_depth depth;

	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		int r = queue_depth(c->tx, tables[i], c->owner, &depth);
		if (r < 0)
			return r;
		queue_write_depth(&c->reply, tables[i], &depth);
	}
	json_end(&c->reply, ']');
	json_end(&c->reply, '}');
	return LAPSE_OK;
}
