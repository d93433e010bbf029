/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on work queues, of the room `optable`. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/check.h"
#include "lib/key.h"
#include "lib/store.h"
#include "optable/optable.h"

static_assert((int)LAPSE_QUEUE_QUEUED == (int)QUEUE_QUEUED &&
		      (int)LAPSE_QUEUE_PROCESSING == (int)QUEUE_PROCESSING &&
		      (int)LAPSE_QUEUE_COMPLETED == (int)QUEUE_COMPLETED &&
		      (int)LAPSE_QUEUE_FAILED == (int)QUEUE_FAILED &&
		      (int)LAPSE_QUEUE_ANY == (int)QUEUE_STATES,
	      "the public header says which states an item has");

struct reader {
	uint32_t magic;
	lapse_queue_fn *fn;
	void *arg;
};

static struct lapse_queue_item queue_view(const struct queue_item *item)
{
	return (struct lapse_queue_item){ .id = item->id,
					  .payload = item->payload,
					  .key = item->key,
					  .inbox_id = item->inbox_id,
					  .status = (enum lapse_queue_status)item->status,
					  .attempt = item->attempt,
					  .worker = item->worker,
					  .error = item->error,
					  .lease_expires_at = item->lease_expires_at,
					  .created_at = item->created_at,
					  .finished_at = item->finished_at };
}

static void lib_queue_show(void *arg, const struct queue_item *item)
{
	const struct reader *reader = arg;
	struct lapse_queue_item v = queue_view(item);

	assert(reader->magic == READER_MAGIC && v.id > 0);
	if (reader->fn)
		reader->fn(reader->arg, &v);
}

static int queue_check_table(const char *name, const struct bound_spec **ret, struct problem *p)
{
	const struct bound_spec *table = name ? queue_table(name) : NULL;

	if (!table)
		return problem_set(p, LAPSE_ENOTFOUND, "table", "there is no such queue");
	*ret = table;
	return LAPSE_OK;
}

static int queue_enter(struct lapse_store *s, const char *table, const struct bound_spec **ret)
{
	int r = store_enter(s);

	return r < 0 ? r : queue_check_table(table, ret, &s->problem);
}

/* Adding */

static int queue_take_draft(struct lapse_store *s, const struct lapse_queue_draft *d,
			    struct arena *arena, struct queue_item *ret)
{
	struct problem *p = &s->problem;
	struct queue_item item = { .key = d->key,
				   .dedupe_key = d->dedupe_key,
				   .inbox_id = d->inbox_id };
	int r = check_object(d->payload, s->settings.body_max_bytes, "payload", arena,
			     &item.payload, p);

	if (r == LAPSE_OK && d->key)
		r = field_label(d->key, 1, QUEUE_KEY_MAX, "key", p);
	if (r == LAPSE_OK && d->dedupe_key)
		r = field_label(d->dedupe_key, 1, QUEUE_KEY_MAX, "dedupe_key", p);
	if (r == LAPSE_OK)
		r = field_range(d->inbox_id, 0, INT64_MAX, "inbox_id", p);
	if (r == LAPSE_OK)
		*ret = item;
	return r;
}

/* What is kept with a key: the id, and whether the item was added. */
static int queue_read_kept(const char *answer, struct queue_item *item, bool *ret_added,
			   struct problem *p)
{
	char id[ID_TEXT_LEN + 1];

	snprintf(id, sizeof(id), "%s", answer);
	if (strlen(answer) != ID_TEXT_LEN + 1 || !id_parse(id, &item->id))
		return problem_set(p, LAPSE_ECORRUPT, NULL, "the key's first answer is damaged");
	*ret_added = answer[ID_TEXT_LEN] == '+';
	return LAPSE_OK;
}

/* Adds, unless the idempotency key says that this was done. */
static int queue_add_once(struct lapse_store *s, const struct bound_spec *table,
			  struct queue_item *item, struct arena *arena, bool *ret_added)
{
	struct buf CLEANUP(buf_done) said = { 0 };
	const char *answer = "";
	char kept[ID_TEXT_LEN + 2];

	assert(table && item->payload);
	key_say(&said, table->name);
	key_say(&said, item->payload);
	key_say(&said, item->key);
	key_say(&said, item->dedupe_key);
	json_int(&said, item->inbox_id);
	int r = key_begin(s, "lapse_queue_add", &said, arena, &answer);
	if (r > 0)
		return queue_read_kept(answer, item, ret_added, &s->problem);
	if (r == LAPSE_OK)
		r = queue_add(&s->tx, table, s->owner, item, ret_added, &s->problem);
	if (r < 0)
		return r;
	id_format(item->id, kept);
	snprintf(kept + ID_TEXT_LEN, 2, "%s", *ret_added ? "+" : "=");
	return key_end(s, kept);
}

int lapse_queue_add(struct lapse_store *store, const char *table,
		    const struct lapse_queue_draft *draft, int64_t *ret_id, bool *ret_added)
{
	const struct bound_spec *t = NULL;
	struct queue_item item = { 0 };
	struct arena arena;
	bool added = false;
	int r = queue_enter(store, table, &t);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = queue_take_draft(store, draft, &arena, &item);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = queue_add_once(store, t, &item, &arena, &added);
	key_done(store);
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_id)
		*ret_id = item.id;
	if (r == LAPSE_OK && ret_added)
		*ret_added = added;
	arena_done(&arena);
	return r;
}

/* Claiming: the rows are copied, so that the caller sees them once the leases are durable. */

struct queue_claimed {
	struct arena arena;
	struct lapse_queue_item *items;
	size_t count, room;
};

static void lib_queue_keep(void *arg, const struct queue_item *item)
{
	struct queue_claimed *c = arg;
	struct lapse_queue_item v = queue_view(item);

	assert(c->count < c->room && v.status == LAPSE_QUEUE_PROCESSING);
	v.payload = arena_strdup(&c->arena, v.payload);
	v.key = v.key ? arena_strdup(&c->arena, v.key) : NULL;
	v.worker = arena_strdup(&c->arena, v.worker);
	v.error = arena_strdup(&c->arena, v.error);
	c->items[c->count++] = v;
}

int lapse_queue_claim(struct lapse_store *store, const char *table, const char *worker,
		      int64_t limit, lapse_ms lease_ms, lapse_queue_fn *fn, void *arg,
		      int64_t *ret_count)
{
	const struct bound_spec *t = NULL;
	struct queue_claimed c = { .count = 0 };
	struct problem *p = &store->problem;
	int64_t count = 0;
	int r = queue_enter(store, table, &t);

	if (r == LAPSE_OK)
		r = field_id(worker, "worker", p);
	if (r == LAPSE_OK)
		r = check_limit(limit, p);
	if (r == LAPSE_OK)
		r = field_range(lease_ms, 1, QUEUE_LEASE_MAX_MS, "lease_ms", p);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r < 0)
		return store_end(store, r);
	arena_init(&c.arena);
	c.room = (size_t)limit;
	c.items = arena_alloc(&c.arena, c.room * sizeof(*c.items));
	r = queue_claim(&store->tx, t, store->owner, worker, limit, lease_ms, lib_queue_keep, &c,
			&count);
	r = store_commit(store, r);
	for (size_t i = 0; r == LAPSE_OK && fn && i < c.count; i++)
		fn(arg, &c.items[i]);
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_count)
		*ret_count = count;
	arena_done(&c.arena);
	return r;
}

/* Reports of workers */

static int queue_begin_report(struct lapse_store *s, const char *table,
			      const struct queue_report *report, const struct bound_spec **ret)
{
	int r = queue_enter(s, table, ret);

	if (r == LAPSE_OK)
		r = field_id(report->worker, "worker", &s->problem);
	if (r == LAPSE_OK)
		r = field_range(report->attempt, 1, QUEUE_ATTEMPT_MAX, "attempt", &s->problem);
	return r;
}

int lapse_queue_complete(struct lapse_store *store, const char *table, int64_t id,
			 const char *worker, int64_t attempt)
{
	const struct queue_report report = { id, worker, attempt };
	const struct bound_spec *t = NULL;
	int r = queue_begin_report(store, table, &report, &t);

	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = queue_complete(&store->tx, t, store->owner, &report, &store->problem);
	return store_end(store, check_blame(r, "id", &store->problem));
}

int lapse_queue_fail(struct lapse_store *store, const char *table, int64_t id, const char *worker,
		     int64_t attempt, const char *error, bool retry,
		     enum lapse_queue_status *ret_status)
{
	const struct queue_report report = { id, worker, attempt };
	const struct bound_spec *t = NULL;
	enum queue_status status = QUEUE_FAILED;
	int r = queue_begin_report(store, table, &report, &t);

	if (r == LAPSE_OK)
		r = field_length(error ? strlen(error) : 0, 1, QUEUE_ERROR_MAX, "error",
				 &store->problem);
	if (r == LAPSE_OK)
		r = check_text(error, QUEUE_ERROR_MAX, "error", &store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = queue_fail(&store->tx, t, store->owner, &report, error, retry, &status,
			       &store->problem);
	r = store_end(store, check_blame(r, "id", &store->problem));
	if (r == LAPSE_OK && ret_status)
		*ret_status = (enum lapse_queue_status)status;
	return r;
}

int lapse_queue_extend(struct lapse_store *store, const char *table, int64_t id, const char *worker,
		       int64_t attempt, lapse_ms lease_ms, lapse_ms *ret_expires_at)
{
	const struct queue_report report = { id, worker, attempt };
	const struct bound_spec *t = NULL;
	lapse_ms expires_at = 0;
	int r = queue_begin_report(store, table, &report, &t);

	if (r == LAPSE_OK)
		r = field_range(lease_ms, 1, QUEUE_LEASE_MAX_MS, "lease_ms", &store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = queue_extend(&store->tx, t, store->owner, &report, lease_ms, &expires_at,
				 &store->problem);
	r = store_end(store, check_blame(r, "id", &store->problem));
	if (r == LAPSE_OK && ret_expires_at)
		*ret_expires_at = expires_at;
	return r;
}

/* Looking */

int lapse_queue_get(struct lapse_store *store, const char *table, int64_t id, lapse_queue_fn *fn,
		    void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	const struct bound_spec *t = NULL;
	struct queue_item item = { 0 };
	struct arena arena;
	int r = queue_enter(store, table, &t);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = queue_get(&store->tx, &arena, t, store->owner, id, &item);
	if (r == LAPSE_OK)
		lib_queue_show(&reader, &item);
	r = store_end(store, check_blame(r, "id", &store->problem));
	arena_done(&arena);
	return r;
}

int lapse_queue_list(struct lapse_store *store, const char *table, enum lapse_queue_status status,
		     int64_t before, int64_t limit, lapse_queue_fn *fn, void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	const struct bound_spec *t = NULL;
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = queue_check_table(table, &t, &store->problem);
	if (r == LAPSE_OK)
		r = field_range((int64_t)status, LAPSE_QUEUE_QUEUED, LAPSE_QUEUE_ANY, "status",
				&store->problem);
	if (r == LAPSE_OK)
		r = queue_list(&store->tx, t, store->owner,
			       status == LAPSE_QUEUE_ANY
				       ? NULL
				       : queue_status_name((enum queue_status)status),
			       before > 0 ? before : INT64_MAX, limit, lib_queue_show, &reader);
	return store_end(store, r);
}
