/* SPDX-License-Identifier: Apache-2.0 */
#include "webhook/api.h"

#include <assert.h>

#include "base/secret.h"
#include "webhook/post.h"
#include "webhook/rules.h"

/* Writing */

static void webhook_put_time(struct buf *out, const char *key, lapse_ms at)
{
	json_put_time(out, key, at ? at : LAPSE_NEVER);
}

static void webhook_write(struct buf *out, const struct webhook *w, int64_t dead,
			  const char *secret)
{
	const struct webhook_progress *s = &w->progress;
	char id[WEBHOOK_ID_LEN + 1];

	webhook_id_format(w->id, id);
	json_begin(out, '{');
	json_put_text(out, "id", id);
	json_put_text(out, "url", w->url);
	json_put_raw(out, "types", w->types);
	json_put_text(out, "state", w->enabled ? "active" : "disabled");
	json_put_time(out, "created_at", w->created_at);
	webhook_put_time(out, "disabled_at", w->disabled_at);
	json_put_id(out, "cursor", s->after);
	json_put_int(out, "attempts", s->attempts);
	webhook_put_time(out, "next_attempt_at", s->next_at);
	webhook_put_time(out, "failing_since", s->failing_since);
	webhook_put_time(out, "last_attempt_at", s->last_at);
	json_put_int(out, "last_status", s->last_status);
	json_put_text(out, "last_error", s->last_error);
	json_put_int(out, "dead_letters", dead);
	if (secret)
		json_put_text(out, "secret", secret);
	json_end(out, '}');
}

static int webhook_answer(struct call *c, const struct webhook *w)
{
	int64_t dead = 0;
	int r = webhook_count_dead(c->tx, w->id, &dead);

	if (r == LAPSE_OK)
		webhook_write(&c->reply, w, dead, NULL);
	return r;
}

static int webhook_take(struct call *c, struct webhook *ret)
{
	return webhook_find(c->tx, c->owner, c->params[0], &c->arena, ret, &c->problem);
}

/* Making and changing */

struct webhook_body {
	const char *url, *secret;
	json_t *types;
	bool enabled;
};

#define URL_FIELD(required)                                                                        \
	{                                                                                          \
		"url", FIELD_TEXT, required, offsetof(struct webhook_body, url), 1,                \
			WEBHOOK_URL_MAX, "where events are posted: http:// or https://"            \
	}
#define TYPES_FIELD                                                                                \
	{                                                                                          \
		"types", FIELD_TEXTS, false, offsetof(struct webhook_body, types), 1,              \
			WEBHOOK_TYPES_MAX,                                                         \
			"events it gets: names, beginnings (mailbox.*), or * (default)"            \
	}

const struct json_field WEBHOOK_CREATE_BODY[] = {
	URL_FIELD(true),
	TYPES_FIELD,
	{ "secret", FIELD_TEXT, false, offsetof(struct webhook_body, secret), 1,
	  WEBHOOK_SECRET_TEXT_MAX, "whsec_ and 24 to 64 bytes in Base64 (default: a new one)" },
	{ 0 },
};

const struct json_field WEBHOOK_CHANGE_BODY[] = {
	URL_FIELD(false),
	TYPES_FIELD,
	{ "enabled", FIELD_BOOL, false, offsetof(struct webhook_body, enabled), 0, 0,
	  "false pauses it; true lets it go on where it stopped" },
	{ 0 },
};

/* The types as the row has them. */
static int webhook_take_types(struct call *c, const json_t *types, const char **ret)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	size_t n = json_is_string(types) ? 1 : json_array_size(types);

	json_begin(&out, '[');
	for (size_t i = 0; i < n; i++) {
		const char *type =
			json_string_value(json_is_string(types) ? types : json_array_get(types, i));
		int r = webhook_check_type(type, &c->problem);
		if (r < 0)
			return r;
		json_text(&out, type);
	}
	json_end(&out, ']');
	*ret = types ? arena_strdup(&c->arena, buf_text(&out)) : "[\"*\"]";
	return LAPSE_OK;
}

/* The secret is in the answer this once; an Idempotency-Key keeps the answer without it. */
int webhook_api_create(struct call *c)
{
	struct webhook_body body = { 0 };
	struct buf CLEANUP(secret_wipe) secret = { 0 };
	struct webhook w = { .owner = c->owner, .progress.last_error = "" };
	int r = call_body(c, WEBHOOK_CREATE_BODY, &body);

	if (r == LAPSE_OK)
		r = webhook_check_url(body.url, &c->problem);
	if (r == LAPSE_OK)
		r = webhook_take_types(c, body.types, &w.types);
	if (r == LAPSE_OK && body.secret)
		r = webhook_check_secret(body.secret, &c->problem);
	if (r < 0)
		return r;
	if (body.secret)
		buf_puts(&secret, body.secret);
	else
		webhook_make_secret(&secret);
	w.url = body.url;
	w.id = id_next(&c->engine->ids, c->tx->now);
	r = webhooks_seal(c->engine, w.id, buf_text(&secret), &c->arena, &w.secret, &c->problem);
	if (r == LAPSE_OK)
		r = webhook_create(c->tx, &w, &c->problem);
	if (r < 0)
		return r;
	c->status = 201;
	char *id = arena_alloc(&c->arena, WEBHOOK_ID_LEN + 1);
	webhook_id_format(w.id, id);
	c->location = call_path(c, "/v1/webhooks/%", id, NULL);
	webhook_write(&c->reply, &w, 0, buf_text(&secret));
	webhook_write(&c->kept, &w, 0, NULL);
	return LAPSE_OK;
}

int webhook_api_get(struct call *c)
{
	struct webhook w;
	int r = webhook_take(c, &w);

	return r < 0 ? r : webhook_answer(c, &w);
}

int webhook_api_change(struct call *c)
{
	struct webhook w;
	int r = webhook_take(c, &w);
	struct webhook_body body = { .enabled = r == LAPSE_OK && w.enabled };

	if (r == LAPSE_OK)
		r = call_body(c, WEBHOOK_CHANGE_BODY, &body);
	if (r == LAPSE_OK && body.url)
		r = webhook_check_url(body.url, &c->problem);
	if (r == LAPSE_OK && body.types)
		r = webhook_take_types(c, body.types, &w.types);
	if (r < 0)
		return r;
	w.url = body.url ? body.url : w.url;
	w.disabled_at = body.enabled ? 0 : w.enabled ? c->tx->now : w.disabled_at;
	w.enabled = body.enabled;
	w.progress.attempts = 0;
	w.progress.next_at = w.progress.failing_since = 0;
	r = webhook_change(c->tx, &w);
	return r < 0 ? r : webhook_answer(c, &w);
}

int webhook_api_delete(struct call *c)
{
	struct webhook w;
	int r = webhook_take(c, &w);

	if (r == LAPSE_OK)
		r = webhook_delete(c->tx, &w);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "id", c->params[0]);
	json_put_bool(&c->reply, "deleted", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Listing */

struct webhook_lister {
	struct call *call;
	struct page_writer *writer;
	int err;
};

static void webhook_add_row(void *arg, const struct webhook *w)
{
	struct webhook_lister *l = arg;
	int64_t dead = 0;

	if (!page_item(l->writer, w->id))
		return;
	int r = webhook_count_dead(l->call->tx, w->id, &dead);
	l->err = l->err < 0 ? l->err : r;
	webhook_write(l->writer->out, w, dead, NULL);
}

static int webhook_list_page(struct call *c, int64_t before, int64_t limit, struct page_writer *w)
{
	struct webhook_lister l = { c, w, LAPSE_OK };
	int r = webhook_list(c->tx, c->owner, before, limit, webhook_add_row, &l);

	return r < 0 ? r : l.err;
}

int webhook_api_list(struct call *c)
{
	return call_page(c, webhook_list_page);
}

/* Replay */

struct webhook_replay_body {
	const char *after;
};

const struct json_field WEBHOOK_REPLAY_BODY[] = {
	{ "after", FIELD_LABEL, false, offsetof(struct webhook_replay_body, after), ID_TEXT_LEN,
	  ID_TEXT_LEN,
	  "id of an event: everything after it comes again (default: all that is kept)" },
	{ 0 },
};

int webhook_api_replay(struct call *c)
{
	struct webhook_replay_body body = { 0 };
	struct webhook w;
	int64_t after = 0;
	int r = webhook_take(c, &w);

	if (r == LAPSE_OK)
		r = call_body(c, WEBHOOK_REPLAY_BODY, &body);
	if (r < 0)
		return r;
	if (body.after && (!id_parse(body.after, &after) || after > c->engine->ids.last))
		return problem_set(&c->problem, LAPSE_EINVAL, "after",
				   "after must be the id of an event: 16 hex digits");
	w.progress.after = after;
	w.progress.attempts = 0;
	w.progress.next_at = w.progress.failing_since = 0;
	r = webhook_change(c->tx, &w);
	return r < 0 ? r : webhook_answer(c, &w);
}

/* A test delivery */

#define WEBHOOK_TEST_MAGIC 0x4c575453u

struct webhook_test {
	uint32_t magic;
	struct webhook_trial trial;
	struct call *call;
	struct webhook hook;
	int err;
	struct problem problem;
};

static void webhook_test_done(struct webhook_trial *t)
{
	struct webhook_test *x = CONTAINER_OF(t, struct webhook_test, trial);

	assert(x->magic == WEBHOOK_TEST_MAGIC);
	call_wake(x->call);
}

/* A head that cannot be signed is told as an answer would be, a moment later. */
static void webhook_test_start(struct engine *e, void *arg)
{
	struct webhook_test *x = arg;

	assert(x->magic == WEBHOOK_TEST_MAGIC && x->call);
	x->err = webhook_trial_start(e, &x->hook, &x->trial, &x->problem);
	if (x->err < 0)
		webhook_test_done(&x->trial);
}

static int webhook_test_finish(struct call *c)
{
	const struct webhook_test *x = c->state;
	const struct fetch *f = &x->trial.fetch;

	assert(x->magic == WEBHOOK_TEST_MAGIC);
	if (x->err < 0) {
		c->problem = x->problem;
		return x->err;
	}
	if (f->err == LAPSE_EUNAVAILABLE)
		return problem_set(&c->problem, f->err, NULL, "the daemon stops");
	const bool answered = f->err == LAPSE_OK;
	json_begin(&c->reply, '{');
	json_put_bool(&c->reply, "delivered", answered && f->status >= 200 && f->status < 300);
	json_put_int(&c->reply, "status", answered ? f->status : 0);
	json_put_text(&c->reply, "error", answered ? "" : f->why[0] ? f->why : "no answer in time");
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

int webhook_api_test(struct call *c)
{
	struct webhook_test *x = arena_alloc(&c->arena, sizeof(*x));
	int r = webhook_take(c, &x->hook);

	if (r < 0)
		return r;
	x->magic = WEBHOOK_TEST_MAGIC;
	x->call = c;
	x->trial.done = webhook_test_done;
	c->state = x;
	tx_effect(c->tx, webhook_test_start, x);
	return call_await(c, webhook_test_finish);
}
