/* SPDX-License-Identifier: Apache-2.0 */
/* Entries, dedupe keys, sign-ins and the cache: decode, call, encode. */
#include "optable/api.h"

const char *optable_object_text(struct call *c, const json_t *object)
{
	if (!object)
		return NULL;
	char *CLEANUP(mem_freep) text = json_dumps(object, JSON_COMPACT);
	return arena_strdup(&c->arena, text ? text : "{}");
}

/* Entries */

struct entry_body {
	lapse_ms ttl_ms;
	json_t *data;
};

const struct json_field ENTRY_BODY[] = {
	{ "ttl_ms", FIELD_INT, true, offsetof(struct entry_body, ttl_ms), 1, OPTABLE_TTL_MAX_MS,
	  "how long it lives unless it is put again" },
	{ "data", FIELD_OBJECT, false, offsetof(struct entry_body, data), 0, 0,
	  "anything; left out, it stays as it is" },
	{ 0 },
};

static void entry_write(struct buf *out, const struct entry *e)
{
	json_begin(out, '{');
	json_put_text(out, "key", e->key);
	json_put_raw(out, "data", e->data);
	json_put_time(out, "created_at", e->created_at);
	json_put_time(out, "last_seen_at", e->last_seen_at);
	json_put_time(out, "expires_at", e->expires_at);
	json_end(out, '}');
}

static int entry_table_param(struct call *c, const struct bound_spec **ret)
{
	const struct bound_spec *table = entry_table(c->params[0]);

	if (!table)
		return problem_set(&c->problem, LAPSE_ENOTFOUND, "table",
				   "there is no table of entries '%.60s': there are "
				   "presence_entries and connections",
				   c->params[0]);
	*ret = table;
	return LAPSE_OK;
}

static int entry_params(struct call *c, const struct bound_spec **ret_table, const char **ret_key)
{
	int r = entry_table_param(c, ret_table);

	return r < 0 ? r : call_id_param(c, 1, "key", ret_key);
}

int entry_api_put(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct entry_body body = { 0 };
	const char *key = NULL;
	struct entry e = { 0 };
	bool fresh = false;
	int r = entry_params(c, &table, &key);

	if (r == LAPSE_OK)
		r = call_body(c, ENTRY_BODY, &body);
	if (r == LAPSE_OK)
		r = entry_put(c->tx, &c->arena, table, c->owner, key,
			      optable_object_text(c, body.data), body.ttl_ms, &e, &fresh,
			      &c->problem);
	if (r < 0)
		return r;
	entry_write(&c->reply, &e);
	c->sunset = e.expires_at;
	c->status = fresh ? 201 : 200;
	return LAPSE_OK;
}

int entry_api_get(struct call *c)
{
	const struct bound_spec *table = NULL;
	const char *key = NULL;
	struct entry e = { 0 };
	int r = entry_params(c, &table, &key);

	if (r == LAPSE_OK)
		r = entry_get(c->tx, &c->arena, table, c->owner, key, &e);
	if (r < 0)
		return r;
	entry_write(&c->reply, &e);
	c->sunset = e.expires_at;
	return LAPSE_OK;
}

int entry_api_delete(struct call *c)
{
	const struct bound_spec *table = NULL;
	const char *key = NULL;
	int r = entry_params(c, &table, &key);

	if (r == LAPSE_OK)
		r = entry_delete(c->tx, &c->arena, table, c->owner, key, &c->problem);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "key", key);
	json_put_bool(&c->reply, "deleted", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

static bool entry_show(void *arg, const struct entry *e)
{
	struct text_page *p = arg;

	if (!text_page_item(p, e->key))
		return false;
	entry_write(p->out, e);
	return true;
}

int entry_api_list(struct call *c)
{
	const struct bound_spec *table = NULL;
	struct text_page page;
	int r = entry_table_param(c, &table);

	if (r == LAPSE_OK)
		r = text_page_begin(&page, c);
	if (r == LAPSE_OK)
		r = entry_list(c->tx, table, c->owner, page.after, page.page.limit + 1, entry_show,
			       &page);
	if (r == LAPSE_OK)
		text_page_end(&page);
	return r;
}

/* Dedupe keys */

struct dedupe_body {
	struct dedupe_key key;
	lapse_ms window_ms;
};

#define DEDUPE_PART(part, help)                                                                    \
	{                                                                                          \
#part, FIELD_LABEL, true, offsetof(struct dedupe_body, key.part), 1,               \
			DEDUPE_PART_MAX, help                                                      \
	}

const struct json_field DEDUPE_BODY[] = {
	DEDUPE_PART(channel, "where the message came in"),
	DEDUPE_PART(account_id, "whose account there"),
	DEDUPE_PART(container_id, "the conversation, thread or room"),
	DEDUPE_PART(message_id, "the message's own id there"),
	{ "window_ms", FIELD_INT, false, offsetof(struct dedupe_body, window_ms), 1,
	  OPTABLE_TTL_MAX_MS, "how long a second one is recognized (default dedupe_window_ms)" },
	{ 0 },
};

int dedupe_api_claim(struct call *c)
{
	struct dedupe_body body = { .window_ms = c->engine->settings->dedupe_window_ms };
	lapse_ms expires_at = 0;
	bool fresh = false;
	int r = call_body(c, DEDUPE_BODY, &body);

	if (r == LAPSE_OK)
		r = dedupe_claim(c->tx, c->owner, &body.key, body.window_ms, &fresh, &expires_at,
				 &c->problem);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_bool(&c->reply, "fresh", fresh);
	json_put_time(&c->reply, "expires_at", expires_at);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Sign-ins */

struct oauth_body {
	lapse_ms ttl_ms;
	json_t *data;
};

const struct json_field OAUTH_BODY[] = {
	{ "ttl_ms", FIELD_INT, true, offsetof(struct oauth_body, ttl_ms), 1, OPTABLE_TTL_MAX_MS,
	  "how long the sign-in may take" },
	{ "data", FIELD_OBJECT, true, offsetof(struct oauth_body, data), 0, 0,
	  "what the callback will need" },
	{ 0 },
};

int oauth_api_put(struct call *c)
{
	struct oauth_body body = { 0 };
	struct oauth_state s = { 0 };
	const char *state = NULL;
	bool fresh = false;
	int r = call_id_param(c, 0, "state", &state);

	if (r == LAPSE_OK)
		r = call_body(c, OAUTH_BODY, &body);
	if (r == LAPSE_OK)
		r = oauth_put(c->tx, c->owner, state, optable_object_text(c, body.data),
			      body.ttl_ms, &s, &fresh, &c->problem);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "state", s.state);
	json_put_time(&c->reply, "created_at", s.created_at);
	json_put_time(&c->reply, "expires_at", s.expires_at);
	json_end(&c->reply, '}');
	c->sunset = s.expires_at;
	c->status = fresh ? 201 : 200;
	return LAPSE_OK;
}

int oauth_api_consume(struct call *c)
{
	struct oauth_state s = { 0 };
	const char *state = NULL;
	int r = call_id_param(c, 0, "state", &state);

	if (r == LAPSE_OK)
		r = oauth_consume(c->tx, &c->arena, c->owner, state, &s);
	if (r == LAPSE_EEXPIRED)
		return problem_set(&c->problem, r, "state", "the sign-in took too long");
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_raw(&c->reply, "data", s.data);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* The cache */

struct cache_body {
	json_t *data;
};

const struct json_field CACHE_BODY[] = {
	{ "data", FIELD_OBJECT, true, offsetof(struct cache_body, data), 0, 0, "the whole cache" },
	{ 0 },
};

static void cache_write(struct buf *out, const char *data, lapse_ms updated_at)
{
	json_begin(out, '{');
	json_put_raw(out, "data", data);
	json_put_time(out, "updated_at", updated_at);
	json_end(out, '}');
}

int models_cache_api_put(struct call *c)
{
	struct cache_body body = { 0 };
	int r = call_body(c, CACHE_BODY, &body);

	if (r < 0)
		return r;
	const char *data = optable_object_text(c, body.data);
	r = models_cache_put(c->tx, data);
	if (r == LAPSE_OK)
		cache_write(&c->reply, data, c->tx->now);
	return r;
}

int models_cache_api_get(struct call *c)
{
	const char *data = NULL;
	lapse_ms updated_at = 0;
	int r = models_cache_get(c->tx, &c->arena, &data, &updated_at);

	if (r == LAPSE_OK)
		cache_write(&c->reply, data, updated_at);
	return r;
}
