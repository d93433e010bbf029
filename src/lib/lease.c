/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on leases, of the room `optable`. */
#include <assert.h>

#include "lib/check.h"
#include "lib/store.h"
#include "optable/optable.h"

struct reader {
	uint32_t magic;
	const struct bound_spec *table;
	lapse_lease_fn *fn;
	void *arg;
};

static bool lib_lease_show(void *arg, const struct lease *l)
{
	const struct reader *reader = arg;

	assert(reader->magic == READER_MAGIC && reader->table);
	struct lapse_lease v = { .table = reader->table->name,
				 .key = l->key,
				 .holder = l->holder,
				 .fencing_token = l->fencing_token,
				 .acquired_at = l->acquired_at,
				 .expires_at = l->expires_at };

	assert(v.fencing_token > 0);
	if (reader->fn)
		reader->fn(reader->arg, &v);
	return true;
}

static int lease_check_table(const char *name, const struct bound_spec **ret, struct problem *p)
{
	const struct bound_spec *table = name ? lease_table(name) : NULL;

	if (!table)
		return problem_set(p, LAPSE_ENOTFOUND, "table", "there is no such table of leases");
	*ret = table;
	return LAPSE_OK;
}

/* Starts a call about one lease. */
static int lease_enter(struct lapse_store *s, const char *table, const char *key,
		       const struct bound_spec **ret)
{
	int r = store_enter(s);

	if (r == LAPSE_OK)
		r = lease_check_table(table, ret, &s->problem);
	return r < 0 ? r : field_id(key, "key", &s->problem);
}

int lapse_lease_acquire(struct lapse_store *store, const char *table, const char *key,
			const char *holder, lapse_ms ttl_ms, lapse_lease_fn *fn, void *arg)
{
	struct reader reader = { .magic = READER_MAGIC, .fn = fn, .arg = arg };
	struct problem *p = &store->problem;
	struct lease l = { 0 };
	struct arena arena;
	int r = lease_enter(store, table, key, &reader.table);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = field_id(holder, "holder", p);
	if (r == LAPSE_OK)
		r = field_range(ttl_ms, 1, OPTABLE_TTL_MAX_MS, "ttl_ms", p);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = lease_ask(&store->tx, &arena, reader.table, store->owner, key, holder, ttl_ms,
			      &l, p);
	r = store_commit(store, r);
	if (r == LAPSE_OK)
		lib_lease_show(&reader, &l);
	arena_done(&arena);
	return store_end(store, r);
}

int lapse_lease_get(struct lapse_store *store, const char *table, const char *key,
		    lapse_lease_fn *fn, void *arg)
{
	struct reader reader = { .magic = READER_MAGIC, .fn = fn, .arg = arg };
	struct lease l = { 0 };
	struct arena arena;
	int r = lease_enter(store, table, key, &reader.table);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = lease_get(&store->tx, &arena, reader.table, store->owner, key, &l);
	if (r == LAPSE_OK)
		lib_lease_show(&reader, &l);
	r = store_end(store, check_blame(r, "key", &store->problem));
	arena_done(&arena);
	return r;
}

int lapse_lease_release(struct lapse_store *store, const char *table, const char *key,
			const char *holder, int64_t fencing_token)
{
	const struct bound_spec *t = NULL;
	struct problem *p = &store->problem;
	struct arena arena;
	int r = lease_enter(store, table, key, &t);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = field_id(holder, "holder", p);
	if (r == LAPSE_OK)
		r = field_range(fencing_token, 0, FENCING_TOKEN_MAX, "fencing_token", p);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = lease_give_up(&store->tx, &arena, t, store->owner, key, holder, fencing_token,
				  p);
	r = store_end(store, check_blame(r, "key", p));
	arena_done(&arena);
	return r;
}

int lapse_lease_list(struct lapse_store *store, const char *table, const char *after, int64_t limit,
		     lapse_lease_fn *fn, void *arg)
{
	struct reader reader = { .magic = READER_MAGIC, .fn = fn, .arg = arg };
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = lease_check_table(table, &reader.table, &store->problem);
	if (r == LAPSE_OK)
		r = lease_list(&store->tx, reader.table, store->owner, after ? after : "", limit,
			       lib_lease_show, &reader);
	return store_end(store, r);
}
