/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "optable/api.h"

struct lease_body {
	const char *holder;
	lapse_ms ttl_ms;
};

const struct json_field LEASE_BODY[] = {
	{ "holder", FIELD_ID, true, offsetof(struct lease_body, holder), 0, 0, "who wants it" },
	{ "ttl_ms", FIELD_INT, true, offsetof(struct lease_body, ttl_ms), 1, OPTABLE_TTL_MAX_MS,
	  "how long it lasts unless it is renewed" },
	{ 0 },
};

struct lease_release_query {
	const char *holder;
	int64_t fencing_token;
};

const struct json_field LEASE_RELEASE_QUERY[] = {
	{ "holder", FIELD_ID, true, offsetof(struct lease_release_query, holder), 1, ID_MAX_BYTES,
	  "who has it" },
	{ "fencing_token", FIELD_INT, false, offsetof(struct lease_release_query, fencing_token), 1,
	  FENCING_TOKEN_MAX, "release only the lease with this token" },
	{ 0 },
};

static void lease_write(struct buf *out, const struct bound_spec *table, const struct lease *l)
{
	assert(table);
	json_begin(out, '{');
	json_put_text(out, "table", table->name);
	json_put_text(out, "key", l->key);
	json_put_text(out, "holder", l->holder);
	json_put_int(out, "fencing_token", l->fencing_token);
	json_put_time(out, "acquired_at", l->acquired_at);
	json_put_time(out, "expires_at", l->expires_at);
	json_end(out, '}');
}

static void lease_answer(struct call *c, const struct bound_spec *table, const struct lease *l)
{
	lease_write(&c->reply, table, l);
	c->sunset = l->expires_at;
}

static int lease_table_param(struct call *c, const struct bound_spec **ret)
{
	const struct bound_spec *table = lease_table(c->params[0]);

	if (!table)
		return problem_set(
			&c->problem, LAPSE_ENOTFOUND, "table",
			"there is no table of leases '%.60s': there are "
			"conversation_leases, workspace_leases, oauth_refresh_leases and "
			"models_dev_refresh_leases",
			c->params[0]);
	*ret = table;
	return LAPSE_OK;
}

static int lease_params(struct call *c, const struct bound_spec **ret_table, const char **ret_key)
{
	int r = lease_table_param(c, ret_table);

	return r < 0 ? r : call_id_param(c, 1, "key", ret_key);
}

/* Another holder has it: the answer says which, and until when. */
static void lease_tell(struct call *c, const struct lease *l)
{
	struct buf CLEANUP(buf_done) more = { 0 };

	buf_puts(&more, "\"lease\":");
	json_begin(&more, '{');
	json_put_text(&more, "holder", l->holder);
	json_put_time(&more, "expires_at", l->expires_at);
	json_end(&more, '}');
	c->problem_more = arena_strdup(&c->arena, buf_text(&more));
}

int lease_api_take(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct lease_body body = { 0 };
	const char *key = NULL;
	struct lease l;
	int r = lease_params(c, &table, &key);

	if (r == LAPSE_OK)
		r = call_body(c, LEASE_BODY, &body);
	if (r < 0)
		return r;
	r = lease_ask(c->tx, &c->arena, table, c->owner, key, body.holder, body.ttl_ms, &l,
		      &c->problem);
	if (r == LAPSE_ECONFLICT)
		lease_tell(c, &l);
	if (r == LAPSE_OK)
		lease_answer(c, table, &l);
	return r;
}

int lease_api_get(struct call *c)
{
	const struct bound_spec *table = NULL;
	const char *key = NULL;
	struct lease l;
	int r = lease_params(c, &table, &key);

	if (r == LAPSE_OK)
		r = lease_get(c->tx, &c->arena, table, c->owner, key, &l);
	if (r == LAPSE_OK)
		lease_answer(c, table, &l);
	return r;
}

int lease_api_release(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct lease_release_query query = { 0 };
	const char *key = NULL;
	int r = lease_params(c, &table, &key);

	if (r == LAPSE_OK)
		r = call_query(c, LEASE_RELEASE_QUERY, &query);
	if (r == LAPSE_OK)
		r = lease_give_up(c->tx, &c->arena, table, c->owner, key, query.holder,
				  query.fencing_token, &c->problem);
	if (r < 0)
		return r;
	assert(table);
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "table", table->name);
	json_put_text(&c->reply, "key", key);
	json_put_bool(&c->reply, "released", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

struct lease_listing {
	struct text_page page;
	const struct bound_spec *table;
};

static bool lease_show(void *arg, const struct lease *l)
{
	struct lease_listing *x = arg;

	if (!text_page_item(&x->page, l->key))
		return false;
	lease_write(x->page.out, x->table, l);
	return true;
}

int lease_api_list(struct call *c)
{
	struct lease_listing x = { 0 };
	int r = lease_table_param(c, &x.table);

	if (r == LAPSE_OK)
		r = text_page_begin(&x.page, c);
	if (r == LAPSE_OK)
		r = lease_list(c->tx, x.table, c->owner, x.page.after, x.page.page.limit + 1,
			       lease_show, &x);
	if (r == LAPSE_OK)
		text_page_end(&x.page);
	return r;
}
