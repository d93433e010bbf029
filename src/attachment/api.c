/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/api.h"

#include "attachment/depot.h"

static void write_attachment(struct buf *out, const struct attachment *a)
{
	json_begin(out, '{');
	json_put_text(out, "checksum", a->checksum);
	json_put_text(out, "name", a->name);
	json_put_int(out, "size", a->size);
	json_put_bool(out, "persist", a->terms.persist);
	json_put_ttl(out, "ttl_ms", a->terms.ttl_ms);
	json_put_time(out, "inserted_at", a->inserted_at);
	json_put_time(out, "expires_at", a->due_at);
	json_put_bool(out, "cached", a->cached);
	json_end(out, '}');
}

static void answer(void *arg, const struct attachment *a)
{
	struct call *c = arg;

	write_attachment(&c->reply, a);
	if (a->due_at != LAPSE_NEVER)
		c->sunset = a->due_at;
}

int attachment_api_checksum(struct call *c, const char **ret)
{
	if (!blob_is_checksum(c->params[0]))
		return LAPSE_ENOTFOUND;
	*ret = c->params[0];
	return LAPSE_OK;
}

int attachment_api_explain(struct call *c, int err)
{
	if (err == LAPSE_ENOTFOUND)
		return problem_set(&c->problem, err, NULL, "there is no such attachment");
	if (err == LAPSE_EEXPIRED)
		return problem_set(&c->problem, err, NULL, "Attachment has expired");
	if (err == LAPSE_ECONFLICT)
		return problem_set(&c->problem, err, NULL,
				   "the attachment is held: release the hold first");
	return err;
}

/* Staging */

#define TERMS_FIELDS                                                                               \
	{ "name",                                                                                  \
	  FIELD_LABEL,                                                                             \
	  false,                                                                                   \
	  offsetof(struct stage_request, name),                                                    \
	  1,                                                                                       \
	  ATTACHMENT_NAME_MAX,                                                                     \
	  "what it is called in a download" },                                                     \
		{ "persist",                                                                       \
		  FIELD_BOOL,                                                                      \
		  false,                                                                           \
		  offsetof(struct stage_request, terms.persist),                                   \
		  0,                                                                               \
		  0,                                                                               \
		  "it is never removed by time (default false)" },                                 \
	{                                                                                          \
		"ttl_ms", FIELD_TTL, false, offsetof(struct stage_request, terms.ttl_ms), 0,       \
			ATTACHMENT_TTL_MAX_MS, "lifetime, or infinity (default attachment_ttl_ms)" \
	}

const struct json_field ATTACHMENT_UPLOAD_QUERY[] = { TERMS_FIELDS, { 0 } };
const struct json_field ATTACHMENT_STAGE_BODY[] = {
	{ "path", FIELD_LABEL, true, offsetof(struct stage_request, path), 1, 4095,
	  "an absolute path below one of attachment_stage_roots" },
	TERMS_FIELDS,
	{ 0 },
};

static int decode_query(struct call *c, struct stage_request *s)
{
	*s = (struct stage_request){ .name = ATTACHMENT_NAME_DEFAULT,
				     .terms.ttl_ms = c->engine->settings->attachment_ttl_ms };
	return call_query(c, ATTACHMENT_UPLOAD_QUERY, s);
}

/* An owner that has at least so many bytes may be staging them again, which needs no room. */
static int check_room(struct call *c)
{
	int64_t max = c->engine->settings->attachment_total_bytes;
	struct attachment_metrics all, own;

	if (c->length <= 0 || attachment_metrics(c->engine->db, "", &all) < 0 ||
	    c->length <= max - all.total_bytes ||
	    attachment_metrics(c->engine->db, c->owner, &own) < 0 || c->length <= own.total_bytes)
		return LAPSE_OK;
	return problem_set(&c->problem, LAPSE_ELIMIT, NULL,
			   "there is no room for %lld more bytes: all attachments together may "
			   "have %lld (attachment_total_bytes)",
			   (long long)c->length, (long long)max);
}

static int admit(struct call *c)
{
	struct stage_request s;
	int r = decode_query(c, &s);

	return r < 0 ? r : check_room(c);
}

const struct quick ATTACHMENT_UPLOAD_QUICK = { NULL, NULL, admit };

struct store_state {
	const struct stage_request *request;
	int64_t id; /* of the row that is there; 0 = none */
	int64_t size;
	bool looked, broken;
};

static void look_at_file(struct call *c) /* on a worker */
{
	struct store_state *s = c->state;
	int64_t size = 0;
	int r = blob_stat(c->engine->settings->data_dir, c->upload->checksum, s->id, &size);

	s->broken = r == LAPSE_ENOTFOUND || (r == LAPSE_OK && size != s->size);
}

static int store(struct call *c)
{
	struct store_state *s = c->state;
	struct attachment_draft d = { .name = s->request->name, .terms = s->request->terms };

	if (s->broken)
		d.broken = s->id;
	c->status = 201;
	return attachment_stage(c->tx, c->owner, c->upload, &d, answer, c, &c->problem);
}

int attachment_api_store(struct call *c, const struct stage_request *request)
{
	struct store_state *s = arena_alloc(&c->arena, sizeof(*s));
	struct stage_request *copy = arena_alloc(&c->arena, sizeof(*copy));

	*copy = *request;
	s->request = copy;
	c->state = s;
	int r = attachment_peek(c->tx, c->owner, c->upload->checksum, &s->id, &s->size);
	if (r < 0)
		return r;
	return s->id ? call_work(c, look_at_file, store) : store(c);
}

int attachment_api_upload(struct call *c)
{
	struct stage_request s;
	int r = decode_query(c, &s);

	return r < 0 ? r : attachment_api_store(c, &s);
}

/* Reading */

static void add_attachment(void *arg, const struct attachment *a)
{
	struct page_writer *w = arg;

	if (page_item(w, a->id))
		write_attachment(w->out, a);
}

static int list_attachments(struct call *c, int64_t before, int64_t limit, struct page_writer *w)
{
	return attachment_list(c->tx, c->owner, before, limit, add_attachment, w);
}

int attachment_api_list(struct call *c)
{
	return call_page(c, list_attachments);
}

int attachment_api_get(struct call *c)
{
	const char *checksum = NULL;
	int r = attachment_api_checksum(c, &checksum);

	if (r == LAPSE_OK)
		r = attachment_get(c->tx, c->owner, checksum, answer, c);
	return attachment_api_explain(c, r);
}

int attachment_api_metrics(struct call *c)
{
	struct attachment_metrics m;
	int r = attachment_metrics(c->tx->db, c->owner, &m);

	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "total_count", m.total_count);
	json_put_int(&c->reply, "total_bytes", m.total_bytes);
	json_put_int(&c->reply, "persistent_count", m.persistent_count);
	json_put_int(&c->reply, "persistent_bytes", m.persistent_bytes);
	json_put_int(&c->reply, "expirable_count", m.total_count - m.persistent_count);
	json_put_int(&c->reply, "expirable_bytes", m.total_bytes - m.persistent_bytes);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Removing */

int attachment_api_delete(struct call *c)
{
	const char *checksum = NULL;
	int r = attachment_api_checksum(c, &checksum);

	if (r == LAPSE_OK)
		r = attachment_delete(c->tx, c->owner, checksum);
	if (r < 0)
		return attachment_api_explain(c, r);
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "checksum", checksum);
	json_put_bool(&c->reply, "deleted", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* POST /v1/attachments/cleanup: a sweep by hand; the answer waits until it has ended. */

struct forced_state {
	struct sweep_request request;
	struct call *call;
	int err;
	bool done;
	int64_t count, bytes;
};

static void swept(struct sweep_request *r, int err, const struct sweep *result)
{
	struct forced_state *s = CONTAINER_OF(r, struct forced_state, request);

	s->err = err;
	s->done = true;
	s->count = result->total;
	s->bytes = result->bytes;
	s->call->wake(s->call);
}

static int cleanup_finish(struct call *c)
{
	const struct forced_state *s = c->state;

	if (!s->done || s->err < 0)
		return s->done ? s->err : LAPSE_EUNAVAILABLE;
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "count", s->count);
	json_put_int(&c->reply, "bytes", s->bytes);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

int attachment_api_cleanup(struct call *c)
{
	struct forced_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->call = c;
	s->request.done = swept;
	list_init(&s->request.link);
	int r = schedule_request(c->engine, schedule_find(c->engine, "attachments"), &s->request);
	if (r < 0)
		return problem_set(&c->problem, r, NULL,
				   "too many sweeps of attachments are waiting");
	return call_await(c, cleanup_finish);
}
