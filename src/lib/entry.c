/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on refreshed entries, dedupe keys, sign-ins and the cache row, of the room `optable`.
 */
#include <assert.h>

#include "lib/check.h"
#include "lib/store.h"
#include "optable/optable.h"

struct reader {
	uint32_t magic;
	lapse_entry_fn *fn;
	void *arg;
};

static bool lib_entry_show(void *arg, const struct entry *e)
{
	const struct reader *reader = arg;
	struct lapse_entry v = { .key = e->key,
				 .data = e->data,
				 .created_at = e->created_at,
				 .last_seen_at = e->last_seen_at,
				 .expires_at = e->expires_at };

	assert(reader->magic == READER_MAGIC);
	if (reader->fn)
		reader->fn(reader->arg, &v);
	return true;
}

static int entry_check_table(const char *name, const struct bound_spec **ret, struct problem *p)
{
	const struct bound_spec *table = name ? entry_table(name) : NULL;

	if (!table)
		return problem_set(p, LAPSE_ENOTFOUND, "table",
				   "there is no such table of entries");
	*ret = table;
	return LAPSE_OK;
}

/* Starts a call about one entry. */
static int entry_enter(struct lapse_store *s, const char *table, const char *key,
		       const struct bound_spec **ret)
{
	int r = store_enter(s);

	if (r == LAPSE_OK)
		r = entry_check_table(table, ret, &s->problem);
	return r < 0 ? r : field_id(key, "key", &s->problem);
}

int lapse_entry_put(struct lapse_store *store, const char *table, const char *key, const char *data,
		    lapse_ms ttl_ms, lapse_entry_fn *fn, void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	const struct bound_spec *t = NULL;
	struct problem *p = &store->problem;
	const char *kept = NULL;
	struct entry e = { 0 };
	struct arena arena;
	bool fresh = false;
	int r = entry_enter(store, table, key, &t);

	arena_init(&arena);
	if (r == LAPSE_OK && data)
		r = check_object(data, store->settings.body_max_bytes, "data", &arena, &kept, p);
	if (r == LAPSE_OK)
		r = field_range(ttl_ms, 1, OPTABLE_TTL_MAX_MS, "ttl_ms", p);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = entry_put(&store->tx, &arena, t, store->owner, key, kept, ttl_ms, &e, &fresh,
			      p);
	r = store_commit(store, r);
	if (r == LAPSE_OK)
		lib_entry_show(&reader, &e);
	arena_done(&arena);
	return store_end(store, r);
}

int lapse_entry_get(struct lapse_store *store, const char *table, const char *key,
		    lapse_entry_fn *fn, void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	const struct bound_spec *t = NULL;
	struct entry e = { 0 };
	struct arena arena;
	int r = entry_enter(store, table, key, &t);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = entry_get(&store->tx, &arena, t, store->owner, key, &e);
	if (r == LAPSE_OK)
		lib_entry_show(&reader, &e);
	r = store_end(store, check_blame(r, "key", &store->problem));
	arena_done(&arena);
	return r;
}

int lapse_entry_remove(struct lapse_store *store, const char *table, const char *key)
{
	const struct bound_spec *t = NULL;
	struct arena arena;
	int r = entry_enter(store, table, key, &t);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = entry_delete(&store->tx, &arena, t, store->owner, key, &store->problem);
	r = store_end(store, check_blame(r, "key", &store->problem));
	arena_done(&arena);
	return r;
}

int lapse_entry_list(struct lapse_store *store, const char *table, const char *after, int64_t limit,
		     lapse_entry_fn *fn, void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	const struct bound_spec *t = NULL;
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = entry_check_table(table, &t, &store->problem);
	if (r == LAPSE_OK)
		r = entry_list(&store->tx, t, store->owner, after ? after : "", limit,
			       lib_entry_show, &reader);
	return store_end(store, r);
}

/* Dedupe keys */

static int check_dedupe(const struct lapse_dedupe_key *key, struct dedupe_key *ret,
			struct problem *p)
{
	const struct {
		const char *name, *text;
	} parts[] = {
		{ "channel", key->channel },
		{ "account_id", key->account_id },
		{ "container_id", key->container_id },
		{ "message_id", key->message_id },
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		int r = field_label(parts[i].text, 1, DEDUPE_PART_MAX, parts[i].name, p);
		if (r < 0)
			return r;
	}
	*ret = (struct dedupe_key){ key->channel, key->account_id, key->container_id,
				    key->message_id };
	return LAPSE_OK;
}

int lapse_dedupe_claim(struct lapse_store *store, const struct lapse_dedupe_key *key,
		       lapse_ms window_ms, bool *ret_fresh, lapse_ms *ret_expires_at)
{
	struct problem *p = &store->problem;
	struct dedupe_key k = { 0 };
	lapse_ms expires_at = 0;
	bool fresh = false;
	int r = store_enter(store);

	if (window_ms == LAPSE_TTL_DEFAULT)
		window_ms = store->settings.dedupe_window_ms;
	if (r == LAPSE_OK)
		r = check_dedupe(key, &k, p);
	if (r == LAPSE_OK)
		r = field_range(window_ms, 1, OPTABLE_TTL_MAX_MS, "window_ms", p);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = dedupe_claim(&store->tx, store->owner, &k, window_ms, &fresh, &expires_at, p);
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_fresh)
		*ret_fresh = fresh;
	if (r == LAPSE_OK && ret_expires_at)
		*ret_expires_at = expires_at;
	return r;
}

/* Sign-ins */

int lapse_oauth_put(struct lapse_store *store, const char *state, const char *data, lapse_ms ttl_ms,
		    lapse_ms *ret_expires_at)
{
	struct problem *p = &store->problem;
	struct oauth_state kept = { 0 };
	const char *object = NULL;
	struct arena arena;
	bool fresh = false;
	int r = store_enter(store);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = field_id(state, "state", p);
	if (r == LAPSE_OK)
		r = check_object(data, store->settings.body_max_bytes, "data", &arena, &object, p);
	if (r == LAPSE_OK)
		r = field_range(ttl_ms, 1, OPTABLE_TTL_MAX_MS, "ttl_ms", p);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = oauth_put(&store->tx, store->owner, state, object, ttl_ms, &kept, &fresh, p);
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_expires_at)
		*ret_expires_at = kept.expires_at;
	arena_done(&arena);
	return r;
}

int lapse_oauth_consume(struct lapse_store *store, const char *state, lapse_data_fn *fn, void *arg)
{
	struct oauth_state taken = { 0 };
	struct arena arena;
	int r = store_enter(store);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = field_id(state, "state", &store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = oauth_consume(&store->tx, &arena, store->owner, state, &taken);
	r = store_commit(store, check_blame(r, "state", &store->problem));
	if (r == LAPSE_OK && fn)
		fn(arg, taken.data);
	arena_done(&arena);
	return store_end(store, r);
}

/* The cache row */

int lapse_models_cache_put(struct lapse_store *store, const char *data)
{
	const char *object = NULL;
	struct arena arena;
	int r = store_enter(store);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = check_object(data, store->settings.body_max_bytes, "data", &arena, &object,
				 &store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = models_cache_put(&store->tx, object);
	r = store_end(store, r);
	arena_done(&arena);
	return r;
}

int lapse_models_cache_get(struct lapse_store *store, lapse_data_fn *fn, void *arg)
{
	const char *data = NULL;
	lapse_ms updated_at = 0;
	struct arena arena;
	int r = store_enter(store);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = models_cache_get(&store->tx, &arena, &data, &updated_at);
	if (r == LAPSE_OK && fn)
		fn(arg, data);
	r = store_end(store, r);
	arena_done(&arena);
	return r;
}
