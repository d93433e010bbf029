/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/api.h"

#include <assert.h>

#include "attachment/depot.h"

/* Where the file lies, for callers on this host that may know: an admin, or any where files are
 * staged by path. It stays there, readable, as long as the row lives. */
static void write_path(const struct call *c, struct buf *out, const struct attachment *a)
{
	const struct depot *d = depot_of(c->engine);
	char path[BLOB_PATH_MAX];

	if (!c->is_local || !d->root ||
	    (!c->admin && !c->engine->settings->attachment_stage_roots[0]))
		return;
	blob_path(a->checksum, a->id, path);
	struct buf CLEANUP(buf_done) whole = { 0 };
	buf_printf(&whole, "%s/%s", d->root, path);
	json_put_text(out, "path", buf_text(&whole));
}

static void write_attachment(const struct call *c, struct buf *out, const struct attachment *a)
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
	write_path(c, out, a);
	json_end(out, '}');
}

static void attachment_answer(void *arg, const struct attachment *a)
{
	struct call *c = arg;

	write_attachment(c, &c->reply, a);
	c->location = call_path(c, "/v1/attachments/%", a->checksum, NULL);
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

#define NAME_FIELD                                                                                 \
	{                                                                                          \
		"name", FIELD_LABEL, false, offsetof(struct stage_request, name), 1,               \
			ATTACHMENT_NAME_MAX, "what it is called in a download"                     \
	}
#define TERMS_FIELDS                                                                               \
	{ "persist",                                                                               \
	  FIELD_BOOL,                                                                              \
	  false,                                                                                   \
	  offsetof(struct stage_request, terms.persist),                                           \
	  0,                                                                                       \
	  0,                                                                                       \
	  "it is never removed by time (default false)" },                                         \
	{                                                                                          \
		"ttl_ms", FIELD_TTL, false, offsetof(struct stage_request, terms.ttl_ms), 0,       \
			ATTACHMENT_TTL_MAX_MS, "lifetime, or infinity (default attachment_ttl_ms)" \
	}

const struct json_field ATTACHMENT_UPLOAD_QUERY[] = { NAME_FIELD, TERMS_FIELDS, { 0 } };
const struct json_field ATTACHMENT_RESTAGE_BODY[] = { TERMS_FIELDS, { 0 } };
const struct json_field ATTACHMENT_STAGE_BODY[] = {
	{ "path", FIELD_LABEL, true, offsetof(struct stage_request, path), 1, 4095,
	  "an absolute path below one of attachment_stage_roots" },
	NAME_FIELD,
	TERMS_FIELDS,
	{ 0 },
};

static int decode_query(struct call *c, struct stage_request *s)
{
	*s = (struct stage_request){ .name = ATTACHMENT_NAME_DEFAULT,
				     .terms.ttl_ms = c->engine->settings->attachment_ttl_ms };
	return call_query(c, ATTACHMENT_UPLOAD_QUERY, s);
}

/* Bytes on their way count like stored ones: files that are never finished would fill the disk. An
 * owner that has at least as many bytes may be staging them again, which needs no room in the end;
 * all that are on their way together never exceed the limit. */
static bool has_room(const struct call *c, int64_t max, int64_t flying, int64_t stored, int64_t own)
{
	int64_t coming = (c->length > 0 ? c->length : 0) + flying;
	int64_t coming_own = (c->length > 0 ? c->length : 0) + c->flying_own;

	return coming <= max - stored || (coming <= max && coming_own <= own);
}

static int check_upload_room(struct call *c)
{
	const struct settings *set = c->engine->settings;
	struct attachment_metrics all, own;

	if (attachment_metrics(c->engine->db, "", &all) < 0 ||
	    attachment_metrics(c->engine->db, c->owner, &own) < 0)
		return LAPSE_OK; /* the transaction that makes the row will say what is wrong */
	if (!has_room(c, quota_of(c->engine, c->owner, QUOTA_ATTACHMENT_BYTES), c->flying_own,
		      own.total_bytes, own.total_bytes))
		return quota_refuse(c->engine, c->owner, QUOTA_ATTACHMENT_BYTES, &c->problem);
	if (!has_room(c, set->attachment_total_bytes, c->flying, all.total_bytes, own.total_bytes))
		return problem_set(&c->problem, LAPSE_ELIMIT, NULL,
				   "there is no room for more bytes: all attachments together may "
				   "have %lld (attachment_total_bytes)",
				   (long long)set->attachment_total_bytes);
	return LAPSE_OK;
}

static int admit(struct call *c)
{
	struct stage_request s;
	int r = decode_query(c, &s);

	return r < 0 ? r : check_upload_room(c);
}

const struct quick ATTACHMENT_UPLOAD_QUICK = { NULL, NULL, admit };

struct store_state {
	const struct stage_request *request;
	const char *checksum;
	int64_t id; /* of the row that is there; 0 = none */
	int64_t size;
	bool looked, broken;
};

static void look_at_file(struct call *c) /* on a worker */
{
	struct store_state *s = c->state;
	int64_t size = 0;
	int r = blob_stat(c->engine->settings->data_dir, s->checksum, s->id, &size);

	s->broken = r == LAPSE_ENOTFOUND || (r == LAPSE_OK && size != s->size);
}

static int store_upload(struct call *c)
{
	struct store_state *s = c->state;
	struct attachment_draft d = { .name = s->request->name, .terms = s->request->terms };

	if (s->broken)
		d.broken = s->id;
	c->status = 201;
	return attachment_stage(c->tx, c->owner, c->upload, &d, attachment_answer, c, &c->problem);
}

int attachment_api_store(struct call *c, const struct stage_request *request)
{
	struct store_state *s = arena_alloc(&c->arena, sizeof(*s));
	struct stage_request *copy = arena_alloc(&c->arena, sizeof(*copy));

	*copy = *request;
	s->request = copy;
	s->checksum = c->upload->checksum;
	c->state = s;
	int r = attachment_peek(c->tx, c->owner, c->upload->checksum, &s->id, &s->size);
	if (r < 0)
		return r;
	return s->id ? call_work(c, look_at_file, store_upload) : store_upload(c);
}

int attachment_api_upload(struct call *c)
{
	struct stage_request s;
	int r = decode_query(c, &s);

	return r < 0 ? r : attachment_api_store(c, &s);
}

/* POST /v1/attachments/{checksum}/stage: bytes that are here already need not be sent again. */

static int restage(struct call *c)
{
	const struct store_state *s = c->state;
	struct attachment_draft d = { .terms = s->request->terms, .broken = s->broken ? s->id : 0 };

	c->status = 201;
	int r = attachment_restage(c->tx, c->owner, s->checksum, &d, attachment_answer, c);
	return attachment_api_explain(c, r);
}

int attachment_api_restage(struct call *c)
{
	struct store_state *s = arena_alloc(&c->arena, sizeof(*s));
	struct stage_request *request = arena_alloc(&c->arena, sizeof(*request));

	request->terms.ttl_ms = c->engine->settings->attachment_ttl_ms;
	s->request = request;
	c->state = s;
	int r = attachment_api_checksum(c, &s->checksum);
	if (r == LAPSE_OK)
		r = call_body(c, ATTACHMENT_RESTAGE_BODY, request);
	if (r == LAPSE_OK)
		r = attachment_peek(c->tx, c->owner, s->checksum, &s->id, &s->size);
	if (r == LAPSE_OK && s->id == 0)
		r = LAPSE_ENOTFOUND;
	return r < 0 ? attachment_api_explain(c, r) : call_work(c, look_at_file, restage);
}

/* Reading */

struct attachment_page {
	const struct call *call;
	struct page_writer *writer;
};

static void add_attachment(void *arg, const struct attachment *a)
{
	const struct attachment_page *p = arg;

	if (page_item(p->writer, a->id))
		write_attachment(p->call, p->writer->out, a);
}

static int list_attachments(struct call *c, int64_t before, int64_t limit, struct page_writer *w)
{
	struct attachment_page p = { c, w };

	return attachment_list(c->tx, c->owner, before, limit, add_attachment, &p);
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
		r = attachment_get(c->tx, c->owner, checksum, attachment_answer, c);
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

/* POST /v1/attachments/cleanup: for an admin a sweep by hand, for a fleet what is its own. The
 * answer waits until the rows are gone, and then for their files, until each was tried or this time
 * is over. */
#define FILES_WAIT_MAX_MS 30000
#define OWN_A_TURN 50

struct forced_state {
	struct sweep_request request;
	struct call *call;
	const char *owner; /* "" = all owners */
	int err;
	bool done;
	int64_t count, bytes;
	int64_t mark; /* the last intent that can be ours */
};

static void swept(struct sweep_request *r, int err, const struct sweep *result)
{
	struct forced_state *s = CONTAINER_OF(r, struct forced_state, request);

	s->err = err;
	s->done = true;
	s->count = result->total;
	s->bytes = result->bytes;
	call_wake(s->call);
}

static int wait_for_files(struct call *c)
{
	const struct forced_state *s = c->state;
	lapse_ms left = call_wait_left(c, FILES_WAIT_MAX_MS);
	int64_t remaining = 0;
	bool untried = false;
	int r = attachment_files_untried(c->tx->db, s->owner, s->mark, &untried);

	if (r == LAPSE_OK && untried && left > 0) {
		c->next = wait_for_files;
		return call_park(c, DEPOT_FILES_KEY, left);
	}
	if (r == LAPSE_OK)
		r = attachment_files_left(c->tx->db, s->owner, s->mark, &remaining);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "count", s->count);
	json_put_int(&c->reply, "bytes", s->bytes);
	json_put_int(&c->reply, "remaining", remaining);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

static int cleanup_swept(struct call *c)
{
	struct forced_state *s = c->state;

	if (s->err == LAPSE_ELIMIT)
		return problem_set(&c->problem, s->err, NULL,
				   "too many sweeps of attachments are waiting; try again later");
	if (!s->done || s->err < 0)
		return s->done ? s->err : LAPSE_EUNAVAILABLE;
	s->mark = c->engine->ids.last;
	return wait_for_files(c);
}

/* An effect: a run that is undone must leave no request at the scheduler. */
static void request_cleanup(struct engine *e, void *arg)
{
	struct forced_state *s = arg;
	int r = schedule_request(e, schedule_find(e, "attachments"), &s->request);

	assert(s->call->magic == CALL_MAGIC && !s->done);
	if (r < 0) {
		s->err = r;
		s->done = true;
		call_wake(s->call);
	}
}

static int cleanup_all(struct call *c, struct forced_state *s)
{
	s->request.done = swept;
	list_init(&s->request.link);
	tx_effect(c->tx, request_cleanup, s);
	return call_await(c, cleanup_swept);
}

static int cleanup_own(struct call *c)
{
	/* A fresh one each time: a turn that has to be run again begins from the last one's. */
	struct forced_state *s = arena_alloc(&c->arena, sizeof(*s));
	struct attachment_metrics gone = { 0 };
	int r = attachment_clean_owner(c->tx, c->owner, OWN_A_TURN, &gone);

	if (r < 0)
		return r;
	*s = *(const struct forced_state *)c->state;
	s->count += gone.total_count;
	s->bytes += gone.total_bytes;
	s->mark = c->engine->ids.last;
	c->state = s;
	/* The files are waited for in a transaction after the one that notes their deletion. */
	c->next = gone.total_count == OWN_A_TURN ? cleanup_own : wait_for_files;
	return CALL_AGAIN;
}

int attachment_api_cleanup(struct call *c)
{
	struct forced_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->call = c;
	s->owner = c->admin ? "" : c->owner;
	return c->admin ? cleanup_all(c, s) : cleanup_own(c);
}
