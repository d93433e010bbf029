/* SPDX-License-Identifier: Apache-2.0 */
#include "mailbox/api.h"

#include <string.h>

#include "api/etag.h"
#include "base/address.h"
#include "mailbox/mailbox.h"
#include "mailbox/outside.h"

#define TTL_MAX_MS (100 * YEAR_MS) /* the settings' own limits come first */

/* The answer that is one mailbox. */
static void mailbox_answer(struct call *c, const struct mailbox *m)
{
	char id[MAILBOX_ID_LEN + 1];

	mailbox_write(&c->reply, m, c->tx->now);
	mailbox_id_format(m->id, id);
	c->location = call_path(c, "/v1/mailboxes/%", id, NULL);
	if (mailbox_is_live(m->status, m->expires_at, c->tx->now))
		c->sunset = m->expires_at;
}

/* Of a number that is no lifetime at all the range is told that the settings allow. */
static int take_mailbox_body(struct call *c, const struct json_field *fields, void *out)
{
	int64_t none = -1;
	int r = call_body(c, fields, out);

	if (r < 0 && strcmp(c->problem.field, "ttl_ms") == 0 &&
	    json_is_integer(json_object_get(c->body, "ttl_ms")))
		r = mailbox_check_ttl(c->engine->settings, &none, &c->problem);
	return r;
}

/* Asking outside */

static void wake_call(struct outside_call *x)
{
	call_wake(x->arg);
}

struct outside_call *mailbox_api_outside(struct call *c, enum provider_verb verb,
					 const struct mailbox *m)
{
	struct outside_call *x = outside_new(c->engine, &c->arena, verb, m);

	x->done = wake_call;
	x->arg = c;
	c->state = x;
	return x;
}

/* Creating */

const struct json_field MAILBOX_CREATE_BODY[] = {
	{ "username", FIELD_TEXT, false, offsetof(struct mailbox_wish, username), 0, ADDRESS_MAX,
	  "the part before the @; without it a random one" },
	{ "domain", FIELD_TEXT, false, offsetof(struct mailbox_wish, domain), 0, HOST_MAX,
	  "the part after the @ (default mailbox_domain)" },
	{ "ttl_ms", FIELD_INT, false, offsetof(struct mailbox_wish, ttl_ms), 1, TTL_MAX_MS,
	  "lifetime, from mailbox_min_ttl_ms to mailbox_max_ttl_ms (default "
	  "mailbox_default_ttl_ms)" },
	{ 0 },
};

static int create_finish(struct call *c)
{
	const struct outside_call *x = c->state;
	struct mailbox m = x->mailbox; /* a copy: this may run again */
	int r = outside_result(x, &c->problem);

	if (r == LAPSE_OK)
		r = mailbox_activate(c->tx, &m);
	if (r < 0)
		return r;
	c->status = 201;
	mailbox_answer(c, &m);
	return LAPSE_OK;
}

static void take_account(struct outside_call *x)
{
	x->mailbox.stalwart_account = arena_strdup(x->arena, x->op.account ? x->op.account : "");
}

static int create_outside(struct call *c, const struct mailbox *m)
{
	struct outside_call *x = mailbox_api_outside(c, PROVIDER_CREATE, m);
	int r = outside_start(x, c->tx, &c->problem);

	x->take = take_account;
	return r < 0 ? r : call_await(c, create_finish);
}

/* What an account outside needs before its row is made. */
static int prepare(struct call *c, struct mailbox_wish *wish)
{
	struct engine *e = c->engine;
	const struct provider *outside = mailboxes_of(e)->provider;

	if (!outside || !outside->needs_secret)
		return LAPSE_OK;
	wish->id = id_next(&e->ids, c->tx->now);
	return outside_make_secret(e, wish->id, &c->arena, &wish->secret, &c->problem);
}

int mailbox_api_create(struct call *c)
{
	struct mailbox_wish wish = { 0 };
	struct mailbox m = { 0 };
	int r = take_mailbox_body(c, MAILBOX_CREATE_BODY, &wish);

	if (r == LAPSE_OK)
		r = prepare(c, &wish);
	if (r == LAPSE_OK)
		r = mailbox_create(c->tx, c->owner, &wish, &c->arena, &m, &c->problem);
	if (r < 0)
		return r;
	if (m.status == MAILBOX_PROVISIONING)
		return create_outside(c, &m);
	c->status = 201;
	mailbox_answer(c, &m);
	return LAPSE_OK;
}

/* Listing */

struct list_query {
	struct page page;
	bool include_expired;
};

const struct json_field MAILBOX_LIST_QUERY[] = {
	{ "limit", FIELD_INT, false, offsetof(struct list_query, page.limit), 1, LIMIT_MAX,
	  "items per page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct list_query, page.after), 1, ID_TEXT_LEN,
	  "next_cursor of the page before" },
	{ "include_expired", FIELD_BOOL, false, offsetof(struct list_query, include_expired), 0, 0,
	  "expired ones, too" },
	{ 0 },
};

struct list_writer {
	struct page_writer page;
	lapse_ms now;
};

static void add_mailbox(void *arg, const struct mailbox *m)
{
	struct list_writer *w = arg;

	if (page_item(&w->page, m->id))
		mailbox_write(w->page.out, m, w->now);
}

int mailbox_api_list(struct call *c)
{
	struct list_query query = { .page.limit = LIMIT_DEFAULT };
	struct list_writer w = { .now = c->tx->now };
	int64_t before = 0;
	int r = call_query(c, MAILBOX_LIST_QUERY, &query);

	if (r == LAPSE_OK)
		r = page_before(&query.page, &before, &c->problem);
	if (r == LAPSE_OK)
		r = mailbox_expire_owned(c->tx, c->owner);
	if (r != LAPSE_OK)
		return r;
	page_begin(&w.page, &c->reply, &query.page);
	r = mailbox_list(c->tx, c->owner, query.include_expired, before, query.page.limit + 1,
			 add_mailbox, &w);
	page_end(&w.page);
	return r;
}

/* One mailbox */

int mailbox_api_get(struct call *c)
{
	struct mailbox m;
	int r = mailbox_look(c->tx, c->owner, c->params[0], MAILBOX_INFO, &c->arena, &m,
			     &c->problem);

	if (r == LAPSE_OK)
		mailbox_answer(c, &m);
	return r;
}

struct renew_body {
	int64_t ttl_ms;
};

const struct json_field MAILBOX_RENEW_BODY[] = {
	{ "ttl_ms", FIELD_INT, false, offsetof(struct renew_body, ttl_ms), 1, TTL_MAX_MS,
	  "lifetime from now (default mailbox_default_ttl_ms)" },
	{ 0 },
};

static int check_if_match(struct call *c, const struct mailbox *m)
{
	struct buf CLEANUP(buf_done) json = { 0 };

	if (!c->if_match)
		return LAPSE_OK;
	mailbox_write(&json, m, c->tx->now);
	return etag_check(c->if_match, &json, &c->problem);
}

int mailbox_api_renew(struct call *c)
{
	struct renew_body body = { 0 };
	struct mailbox m;
	int r = take_mailbox_body(c, MAILBOX_RENEW_BODY, &body);

	if (r == LAPSE_OK)
		r = mailbox_look(c->tx, c->owner, c->params[0], MAILBOX_OPERATE, &c->arena, &m,
				 &c->problem);
	if (r == LAPSE_OK)
		r = mailbox_check_ttl(c->engine->settings, &body.ttl_ms, &c->problem);
	if (r == LAPSE_OK)
		r = check_if_match(c, &m);
	if (r == LAPSE_OK)
		r = mailbox_renew(c->tx, &m, body.ttl_ms);
	if (r == LAPSE_OK)
		mailbox_answer(c, &m);
	return r;
}

int mailbox_api_delete(struct call *c)
{
	int r = mailbox_delete(c->tx, c->owner, c->params[0], &c->problem);

	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "id", c->params[0]);
	json_put_bool(&c->reply, "deleted", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}
