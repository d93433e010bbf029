/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work queues: channel_inbox and channel_outbox.
 *
 * queued → processing (claim) → completed, or failed, or queued again. A lease that ends gives the
 * item back with the next claim, until its attempts are used up. A report must
 * name the worker and its attempt; a worker that was overtaken gets a conflict. A completed
 * channel_outbox item goes at once, in the transaction that completes it; a held one stays, and the
 * sweep takes it after its window once the hold is gone.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/wait.h"
#include "base/mem.h"
#include "engine/usage.h"
#include "optable/optable.h"
#include "store/sql.h"

#define REQUEUED_AT_ONCE 100 /* items whose lease has ended that a claim takes back */

const struct bound_spec INBOX_BOUND = {
	.name = "channel_inbox",
	.scheduler = "statestore",
	.bounded_by =
		"channel_keep_ms after finished_at; queue_max_per_owner; stored_bytes_per_owner",
	.due_when = "completed or failed, and now - finished_at > channel_keep_ms",
	.safety_rule = "Completed rows wait for their channel_outbox rows; failed ones age out.",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.table = "queue_items",
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "finished_at",
	.window = "channel_keep_ms",
	.only = BOUND_ONLY(IS_TEXT("tbl", "channel_inbox")),
	.unless_referenced =
		(const struct bound_reference[]){
			{ NULL, "queue_items",
			  (const struct bound_pair[]){ { "inbox_id", "completed_id" },
						       { NULL, NULL } } },
			{ 0 } },
	.held_as = "channel_inbox",
	.holdable = true,
	.hold_only = BOUND_ONLY(IS_TEXT("tbl", "channel_inbox")),
	.owner = "owner",
	.known_by = "t.tbl = 'channel_inbox' AND t.dedupe_key = $2",
	.shown = BOUND_COLUMNS("status", "worker"),
	.group = "tbl",
	.bytes = "bytes",
	.counted_by_owner = true,
	.settle = optable_settle,
};

const struct bound_spec CHANNEL_OUTBOX_BOUND = {
	.name = "channel_outbox",
	.scheduler = "statestore",
	.bounded_by = "deletion when completed; channel_keep_ms after finished_at; "
		      "queue_max_per_owner; stored_bytes_per_owner",
	.due_when = "failed or held when completed, and now - finished_at > channel_keep_ms",
	.safety_rule =
		"A completed row went with its completion, unless it was held; held rows stay.",
	.action = "delete row",
	.paths = PATH_SWEEP,
	.table = "queue_items",
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "finished_at",
	.window = "channel_keep_ms",
	.only = BOUND_ONLY(IS_TEXT("tbl", "channel_outbox")),
	.held_as = "channel_outbox",
	.holdable = true,
	.hold_only = BOUND_ONLY(IS_TEXT("tbl", "channel_outbox")),
	.owner = "owner",
	.known_by = "t.tbl = 'channel_outbox' AND t.dedupe_key = $2",
	.shown = BOUND_COLUMNS("status", "worker"),
	.group = "tbl",
	.bytes = "bytes",
	.counted_by_owner = true,
	.settle = optable_settle,
};

const struct bound_spec *queue_table(const char *name)
{
	if (strcmp(name, INBOX_BOUND.name) == 0)
		return &INBOX_BOUND;
	return strcmp(name, CHANNEL_OUTBOX_BOUND.name) == 0 ? &CHANNEL_OUTBOX_BOUND : NULL;
}

/* Waking those who wait for work */

const char *queue_wait_key(struct arena *arena, const struct bound_spec *table, const char *owner)
{
	return arena_printf(arena, "queue/%s/%s", table->name, owner);
}

static void queue_wake_later(struct tx *tx, const struct bound_spec *table, const char *owner)
{
	if (waiters_may_exist(tx->engine))
		waiters_wake_later(tx, queue_wait_key(&tx->arena, table, owner));
}

/* Rows */

#define QUEUE_COLUMNS                                                                              \
	"id, key, payload, inbox_id, status, attempt, worker, error, available_at, created_at, "   \
	"finished_at, bytes"

static struct queue_item queue_read_row(const struct db_query *q)
{
	struct queue_item item = { .id = db_int(q, 0),
				   .key = db_text(q, 1),
				   .payload = db_text(q, 2),
				   .inbox_id = db_int(q, 3),
				   .attempt = db_int(q, 5),
				   .worker = db_text(q, 6),
				   .error = db_text(q, 7),
				   .lease_expires_at = LAPSE_NEVER,
				   .created_at = db_int(q, 9),
				   .finished_at = LAPSE_NEVER,
				   .bytes = db_int(q, 11) };
	bool known = queue_status_parse(db_text(q, 4), &item.status);

	assert(known);
	if (item.status == QUEUE_PROCESSING)
		item.lease_expires_at = db_int(q, 8);
	if (!db_is_null(q, 10))
		item.finished_at = db_int(q, 10);
	return item;
}

static struct queue_item queue_keep(struct arena *arena, const struct queue_item *item)
{
	struct queue_item kept = *item;

	kept.key = item->key ? arena_strdup(arena, item->key) : NULL;
	kept.payload = arena_strdup(arena, item->payload);
	kept.worker = arena_strdup(arena, item->worker);
	kept.error = arena_strdup(arena, item->error);
	return kept;
}

static const struct db_stmt QUEUE_GET = {
	"SELECT " QUEUE_COLUMNS " FROM queue_items WHERE id = $1 AND owner = $2 AND tbl = $3"
};

int queue_get(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      int64_t id, struct queue_item *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_GET);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, table->name);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	struct queue_item item = queue_read_row(&q);
	*ret = queue_keep(arena, &item);
	return LAPSE_OK;
}

static const struct db_stmt QUEUE_LIST = {
	"SELECT " QUEUE_COLUMNS " FROM queue_items WHERE owner = $1 AND tbl = $2 AND status = $3 "
	"AND id < $4 ORDER BY id DESC LIMIT $5"
};
static const struct db_stmt QUEUE_LIST_ALL = {
	"SELECT " QUEUE_COLUMNS " FROM queue_items WHERE owner = $1 AND tbl = $2 AND id < $3 "
	"ORDER BY id DESC LIMIT $4"
};

int queue_list(struct tx *tx, const struct bound_spec *table, const char *owner, const char *status,
	       int64_t before, int64_t limit, queue_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q =
		db_query(tx->db, status ? &QUEUE_LIST : &QUEUE_LIST_ALL);
	int param = 3, r;

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	if (status)
		db_bind_text(&q, param++, status);
	db_bind_int(&q, param++, before);
	db_bind_int(&q, param, limit);
	while ((r = db_step(&q)) > 0) {
		struct queue_item item = queue_read_row(&q);
		fn(arg, &item);
	}
	return r;
}

/* Adding */

static const struct db_stmt QUEUE_SAME = {
	"SELECT id, status, created_at FROM queue_items WHERE owner = $1 AND tbl = $2 "
	"AND dedupe_key = $3"
};

/* 1 = the queue has an item with this dedupe_key. */
static int queue_find_same(struct tx *tx, const struct bound_spec *table, const char *owner,
			   struct queue_item *item)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_SAME);

	assert(tx_is_open(tx));
	if (!item->dedupe_key)
		return 0;
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	db_bind_text(&q, 3, item->dedupe_key);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	item->id = db_int(&q, 0);
	queue_status_parse(db_text(&q, 1), &item->status);
	item->created_at = db_int(&q, 2);
	return 1;
}

static int queue_check_inbox(struct tx *tx, const struct bound_spec *table, const char *owner,
			     const struct queue_item *item, struct problem *p)
{
	struct queue_item inbox;

	if (item->inbox_id == 0)
		return LAPSE_OK;
	if (table != &CHANNEL_OUTBOX_BOUND)
		return problem_set(p, LAPSE_EINVAL, "inbox_id",
				   "only items of channel_outbox have an inbox_id");
	int r = queue_get(tx, &tx->arena, &INBOX_BOUND, owner, item->inbox_id, &inbox);
	if (r == LAPSE_ENOTFOUND)
		return problem_set(p, LAPSE_EINVAL, "inbox_id", "channel_inbox has no such item");
	return r;
}

static const struct db_stmt QUEUE_ADD = {
	"INSERT INTO queue_items (id, owner, tbl, key, payload, dedupe_key, inbox_id, status, "
	"attempt, worker, available_at, error, created_at, bytes) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, 'queued', 0, '', $8, '', $8, $9)"
};

static int64_t queue_bytes(const struct queue_item *item)
{
	return (int64_t)(strlen(item->payload) + (item->key ? strlen(item->key) : 0) +
			 (item->dedupe_key ? strlen(item->dedupe_key) : 0));
}

static int queue_insert(struct tx *tx, const struct bound_spec *table, const char *owner,
			struct queue_item *item)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_ADD);

	assert(tx_can_write(tx));
	item->id = id_next(&tx->engine->ids, tx->now);
	item->status = QUEUE_QUEUED;
	item->created_at = tx->now;
	db_bind_int(&q, 1, item->id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, table->name);
	db_bind_text(&q, 4, item->key);
	db_bind_text(&q, 5, item->payload);
	db_bind_text(&q, 6, item->dedupe_key);
	if (item->inbox_id)
		db_bind_int(&q, 7, item->inbox_id);
	else
		db_bind_text(&q, 7, NULL);
	db_bind_int(&q, 8, tx->now);
	db_bind_int(&q, 9, queue_bytes(item));
	return db_post(&q, DB_ONE);
}

int queue_add(struct tx *tx, const struct bound_spec *table, const char *owner,
	      struct queue_item *item, bool *ret_fresh, struct problem *p)
{
	int r = queue_find_same(tx, table, owner, item);

	*ret_fresh = r == 0;
	if (r != 0)
		return r < 0 ? r : LAPSE_OK;
	r = queue_check_inbox(tx, table, owner, item, p);
	if (r == LAPSE_OK)
		r = optable_change_bytes(tx, owner, 0, queue_bytes(item), p);
	if (r == LAPSE_OK)
		r = optable_count_in(tx, table, owner, tx->engine->settings->queue_max_per_owner,
				     p);
	if (r == LAPSE_OK)
		r = queue_insert(tx, table, owner, item);
	if (r == LAPSE_OK)
		queue_wake_later(tx, table, owner);
	return r;
}

/* Claiming */

/* Leases that have ended: back into the queue, at their old place, or failed for good. */
static const struct db_stmt QUEUE_REQUEUE = {
	"UPDATE queue_items SET "
	"status = CASE WHEN attempt < $4 THEN 'queued' ELSE 'failed' END, "
	"available_at = CASE WHEN attempt < $4 THEN created_at ELSE NULL END, "
	"finished_at = CASE WHEN attempt < $4 THEN NULL ELSE $3 END, "
	"error = CASE WHEN attempt < $4 THEN error ELSE 'no worker finished it in time' END "
	"WHERE status = 'processing' AND available_at <= $3 AND id " SQL_CHOOSE
	"SELECT id FROM queue_items WHERE owner = $1 AND tbl = $2 AND status = 'processing' "
	"AND available_at <= $3 ORDER BY available_at LIMIT $5" SQL_SKIP_LOCKED
};

static int queue_requeue(struct tx *tx, const struct bound_spec *table, const char *owner)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_REQUEUE);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, tx->engine->settings->queue_attempts_max);
	db_bind_int(&q, 5, REQUEUED_AT_ONCE);
	return db_post(&q, DB_ANY);
}

static const struct db_stmt QUEUE_OFFERS = {
	"SELECT bytes FROM queue_items WHERE owner = $1 AND tbl = $2 AND status = 'queued' "
	"AND available_at IS NOT NULL ORDER BY available_at, id LIMIT $3"
};

/* How many items make a reply of OPTABLE_REPLY_BYTES, plus the one that fills it; at most *limit.
 */
static int queue_fit(struct tx *tx, const struct bound_spec *table, const char *owner,
		     int64_t *limit)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_OFFERS);
	int64_t n = 0, bytes = 0;
	int r = 0;

	assert(tx_is_open(tx) && *limit > 0);
	if (*limit == 1)
		return LAPSE_OK;
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	db_bind_int(&q, 3, *limit);
	for (; bytes < OPTABLE_REPLY_BYTES && (r = db_step(&q)) > 0; n++)
		bytes += db_int(&q, 0);
	*limit = n > 0 ? n : 1;
	return r < 0 ? r : LAPSE_OK;
}

static const struct db_stmt QUEUE_CLAIM = {
	"UPDATE queue_items SET status = 'processing', attempt = attempt + 1, worker = $3, "
	"available_at = $4 WHERE status = 'queued' AND id " SQL_CHOOSE
	"SELECT id FROM queue_items WHERE owner = $1 AND tbl = $2 AND status = 'queued' "
	"AND available_at IS NOT NULL ORDER BY available_at, id LIMIT $5" SQL_SKIP_LOCKED " "
	"RETURNING " QUEUE_COLUMNS
};

static int queue_by_age(const void *x, const void *y)
{
	const struct queue_item *a = x, *b = y;

	return (a->id > b->id) - (a->id < b->id);
}

int queue_claim(struct tx *tx, const struct bound_spec *table, const char *owner,
		const char *worker, int64_t limit, lapse_ms lease_ms, queue_fn *fn, void *arg,
		int64_t *ret_count)
{
	int r = queue_requeue(tx, table, owner);

	assert(tx_is_open(tx));
	if (r == LAPSE_OK)
		r = queue_fit(tx, table, owner, &limit);
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_CLAIM);
	struct queue_item *taken = tx_alloc(tx, (size_t)limit * sizeof(*taken));
	int64_t n = 0;
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	db_bind_text(&q, 3, worker);
	db_bind_int(&q, 4, time_add(tx->now, lease_ms));
	db_bind_int(&q, 5, limit);
	while ((r = db_step(&q)) > 0) {
		struct queue_item item = queue_read_row(&q);
		assert(n < limit && item.status == QUEUE_PROCESSING);
		taken[n++] = queue_keep(&tx->arena, &item);
	}
	if (r < 0)
		return r;
	qsort(taken, (size_t)n, sizeof(*taken), queue_by_age);
	for (int64_t i = 0; i < n; i++)
		fn(arg, &taken[i]);
	*ret_count = n;
	return LAPSE_OK;
}

static const struct db_stmt QUEUE_NEXT_OFFER = {
	"SELECT min(available_at) FROM queue_items WHERE owner = $1 AND tbl = $2 "
	"AND status = 'processing' AND available_at IS NOT NULL"
};

int queue_next_offer(struct tx *tx, const struct bound_spec *table, const char *owner,
		     lapse_ms *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_NEXT_OFFER);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = r > 0 && !db_is_null(&q, 0) ? db_int(&q, 0) : LAPSE_NEVER;
	return LAPSE_OK;
}

/* Reports of workers */

static int queue_check_report(struct tx *tx, const struct bound_spec *table, const char *owner,
			      const struct queue_report *r, struct queue_item *ret,
			      struct problem *p)
{
	int err = queue_get(tx, &tx->arena, table, owner, r->id, ret);

	if (err < 0)
		return err;
	if (!queue_is_current(ret->status, strcmp(ret->worker, r->worker) == 0, ret->attempt,
			      r->attempt))
		return problem_set(p, LAPSE_ECONFLICT, "attempt",
				   "the item is %s, and not with this worker and attempt",
				   queue_status_name(ret->status));
	return LAPSE_OK;
}

/* Each checks again that it is still the worker's attempt. */
#define QUEUE_CURRENT " WHERE id = $1 AND status = 'processing' AND attempt = $2"
static const struct db_stmt QUEUE_COMPLETE = {
	"UPDATE queue_items SET status = 'completed', available_at = NULL, finished_at = $3, "
	"completed_id = id" QUEUE_CURRENT
};
static const struct db_stmt QUEUE_DELIVERED = { "DELETE FROM queue_items" QUEUE_CURRENT };
static const struct db_stmt QUEUE_FAIL = {
	"UPDATE queue_items SET status = 'failed', available_at = NULL, finished_at = $3, "
	"error = $4" QUEUE_CURRENT
};
static const struct db_stmt QUEUE_RETRY = {
	"UPDATE queue_items SET status = 'queued', available_at = created_at, "
	"error = $3" QUEUE_CURRENT
};
static const struct db_stmt QUEUE_EXTEND = {
	"UPDATE queue_items SET available_at = $3" QUEUE_CURRENT " AND available_at > $4"
};

int queue_complete(struct tx *tx, const struct bound_spec *table, const char *owner,
		   const struct queue_report *report, struct problem *p)
{
	struct queue_item item;
	bool held = false;
	int r = queue_check_report(tx, table, owner, report, &item, p);

	assert(tx_can_write(tx));
	if (r == LAPSE_OK && table == &CHANNEL_OUTBOX_BOUND)
		r = optable_is_held(tx, table, report->id, &held);
	if (r < 0)
		return r;
	bool goes = table == &CHANNEL_OUTBOX_BOUND && !held;
	struct db_query CLEANUP(db_finish) q =
		db_query(tx->db, goes ? &QUEUE_DELIVERED : &QUEUE_COMPLETE);
	db_bind_int(&q, 1, report->id);
	db_bind_int(&q, 2, report->attempt);
	if (!goes)
		db_bind_int(&q, 3, tx->now);
	r = db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
	if (r < 0 || !goes)
		return r;
	usage_take_off(tx, owner, QUOTA_STORED_BYTES, item.bytes);
	return optable_count_out(tx, table, owner, 1);
}

int queue_fail(struct tx *tx, const struct bound_spec *table, const char *owner,
	       const struct queue_report *report, const char *error, bool retry,
	       enum queue_status *ret_status, struct problem *p)
{
	struct queue_item item;
	int r = queue_check_report(tx, table, owner, report, &item, p);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	enum queue_status next =
		queue_after_failure(item.attempt, tx->engine->settings->queue_attempts_max, retry);
	bool final = next == QUEUE_FAILED;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, final ? &QUEUE_FAIL : &QUEUE_RETRY);
	db_bind_int(&q, 1, report->id);
	db_bind_int(&q, 2, report->attempt);
	if (final)
		db_bind_int(&q, 3, tx->now);
	db_bind_text(&q, final ? 4 : 3, error);
	r = db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
	if (r == LAPSE_OK && !final)
		queue_wake_later(tx, table, owner);
	if (r == LAPSE_OK)
		*ret_status = next;
	return r;
}

int queue_extend(struct tx *tx, const struct bound_spec *table, const char *owner,
		 const struct queue_report *report, lapse_ms lease_ms, lapse_ms *ret_expires_at,
		 struct problem *p)
{
	lapse_ms until = time_add(tx->now, lease_ms);
	struct queue_item item;
	int r = queue_check_report(tx, table, owner, report, &item, p);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	if (optable_is_over(item.lease_expires_at, tx->now))
		return problem_set(p, LAPSE_ECONFLICT, "attempt", "the lease has ended");
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_EXTEND);
	db_bind_int(&q, 1, report->id);
	db_bind_int(&q, 2, report->attempt);
	db_bind_int(&q, 3, until);
	db_bind_int(&q, 4, tx->now);
	r = db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
	if (r == LAPSE_OK)
		*ret_expires_at = until;
	return r;
}

/* A person's second chance. The attempt goes on counting, so that no report of an earlier attempt
 * can be taken for one of the next. */
static const struct db_stmt QUEUE_AGAIN = {
	"UPDATE queue_items SET status = 'queued', available_at = created_at, finished_at = NULL "
	"WHERE id = $1 AND owner = $2 AND tbl = $3 AND status = 'failed'"
};

int queue_retry(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t id,
		struct problem *p)
{
	struct queue_item item;
	int r = queue_get(tx, &tx->arena, table, owner, id, &item);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	if (item.status != QUEUE_FAILED)
		return problem_set(p, LAPSE_ECONFLICT, NULL, "the item is %s, not failed",
				   queue_status_name(item.status));
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_AGAIN);
	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, table->name);
	r = db_post(&q, DB_ONE_OR(LAPSE_ECONFLICT));
	if (r == LAPSE_OK)
		queue_wake_later(tx, table, owner);
	return r;
}

static const struct db_stmt QUEUE_DEPTH = {
	"SELECT status, count(*), min(id) FROM queue_items WHERE owner = $1 AND tbl = $2 "
	"GROUP BY status"
};

int queue_depth(struct tx *tx, const struct bound_spec *table, const char *owner,
		struct queue_depth *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &QUEUE_DEPTH);
	struct queue_depth depth = { 0 };
	enum queue_status status;
	int r;

	assert(tx_is_open(tx));
	for (int i = 0; i < QUEUE_STATES; i++)
		depth.oldest[i] = LAPSE_NEVER;
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	while ((r = db_step(&q)) > 0) {
		bool known = queue_status_parse(db_text(&q, 0), &status);
		assert(known && status < QUEUE_STATES);
		depth.items[status] = db_int(&q, 1);
		depth.oldest[status] = id_time(db_int(&q, 2));
	}
	if (r == LAPSE_OK)
		*ret = depth;
	return r;
}
