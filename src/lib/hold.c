/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of holds. */
#include "engine/hold.h"

#include <assert.h>

#include "lib/check.h"
#include "lib/store.h"

static int check_hold(const struct hold *h, lapse_ms now, struct problem *p)
{
	int r = field_label(h->table, 1, ID_MAX_BYTES, "table", p);

	if (r == LAPSE_OK)
		r = field_label(h->key, 1, ID_MAX_BYTES, "key", p);
	if (r == LAPSE_OK)
		r = field_label(h->reason, 1, HOLD_REASON_MAX, "reason", p);
	if (r == LAPSE_OK && h->until <= now)
		r = problem_set(p, LAPSE_EINVAL, "until", "until must be in the future");
	return r;
}

int lapse_hold_place(struct lapse_store *store, const char *table, const char *key,
		     const char *reason, lapse_ms until)
{
	struct hold h = {
		.owner = store->owner, .table = table, .key = key, .reason = reason, .until = until
	};
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = check_hold(&h, store->tx.now, &store->problem);
	if (r == LAPSE_OK)
		r = hold_place(&store->tx, &h, &store->problem);
	return store_end(store, r);
}

int lapse_hold_release(struct lapse_store *store, const char *table, const char *key)
{
	struct problem *p = &store->problem;
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = field_label(table, 1, ID_MAX_BYTES, "table", p);
	if (r == LAPSE_OK)
		r = field_label(key, 1, ID_MAX_BYTES, "key", p);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = hold_release(&store->tx, store->owner, table, key);
	if (r == LAPSE_ENOTFOUND)
		problem_set(p, r, "key", "there is no hold on %.60s/%.60s", table, key);
	return store_end(store, r);
}

struct reader {
	uint32_t magic;
	lapse_hold_fn *fn;
	void *arg;
};

static void hold_show(void *arg, const struct hold *h)
{
	const struct reader *reader = arg;
	struct lapse_hold v = { .id = h->id,
				.table = h->table,
				.key = h->key,
				.reason = h->reason,
				.until = h->until,
				.placed_at = h->placed_at };

	assert(reader->magic == READER_MAGIC);
	if (reader->fn)
		reader->fn(reader->arg, &v);
}

int lapse_hold_list(struct lapse_store *store, int64_t before, int64_t limit, lapse_hold_fn *fn,
		    void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = hold_list(&store->tx, store->owner, before > 0 ? before : INT64_MAX, limit,
			      hold_show, &reader);
	return store_end(store, r);
}
