/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/hold.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

static const struct db_stmt UPSERT = {
	"INSERT INTO holds (id, owner, tbl, key, ref, reason, until, placed_at) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, $8) "
	"ON CONFLICT (owner, tbl, key) DO UPDATE SET reason = excluded.reason, "
	"until = excluded.until RETURNING id, placed_at"
};
static const struct db_stmt RELEASE = {
	"DELETE FROM holds WHERE owner = $1 AND tbl = $2 AND key = $3 AND until > $4"
};
#define COLUMNS "id, owner, tbl, key, reason, until, placed_at"
static const struct db_stmt GET = {
	"SELECT " COLUMNS " FROM holds WHERE owner = $1 AND tbl = $2 AND key = $3 AND until > $4"
};
static const struct db_stmt LIST = { "SELECT " COLUMNS
				     " FROM holds WHERE owner = $1 AND id < $2 AND until > $3 "
				     "ORDER BY id DESC LIMIT $4" };

static int announce(struct tx *tx, enum event_kind kind, const char *owner, const char *table,
		    const char *key, const char *reason)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_text(&data, "table", table);
	json_put_text(&data, "key", key);
	json_put_text(&data, "reason", reason);
	json_end(&data, '}');
	return event_add(tx, owner, kind, &data);
}

/* Whether the row is there, and its id. */
static int find_row(struct tx *tx, const struct hold *h, int64_t *ret_ref, struct problem *p)
{
	int i = matrix_find(tx->engine, h->table);

	if (i < 0)
		return problem_set(p, LAPSE_ENOTFOUND, "table",
				   "there is no table '%.60s' (see /v1/matrix)", h->table);
	const struct bound *b = tx->engine->bounds[i];
	if (!b->holdable)
		return problem_set(p, LAPSE_EINVAL, "table", "rows of %s cannot be held", b->table);
	if (!b->keyed_by_name && !(b->parse_key ? b->parse_key : id_parse)(h->key, ret_ref))
		return problem_set(p, LAPSE_ENOTFOUND, "key", "%s has no row '%.60s'", b->table,
				   h->key);
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &b->find);
	db_bind_text(&q, 1, h->owner);
	if (b->keyed_by_name)
		db_bind_text(&q, 2, h->key);
	else
		db_bind_int(&q, 2, *ret_ref);
	int r = db_step(&q);
	if (r > 0 && b->keyed_by_name)
		*ret_ref = db_int(&q, 0);
	if (r == 0)
		return problem_set(p, LAPSE_ENOTFOUND, "key", "%s has no row '%.60s'", b->table,
				   h->key);
	return r < 0 ? r : LAPSE_OK;
}

/* Writes the row; *ret_fresh = it was not there before. */
static int upsert(struct tx *tx, struct hold *h, int64_t ref, bool *ret_fresh)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &UPSERT);
	int64_t id = id_next(&tx->engine->ids, tx->now);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, h->owner);
	db_bind_text(&q, 3, h->table);
	db_bind_text(&q, 4, h->key);
	db_bind_int(&q, 5, ref);
	db_bind_text(&q, 6, h->reason);
	db_bind_int(&q, 7, h->until);
	db_bind_int(&q, 8, tx->now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	h->id = db_int(&q, 0);
	h->placed_at = db_int(&q, 1);
	*ret_fresh = h->id == id;
	return db_run(&q);
}

static const struct db_stmt COUNT = { "SELECT count(*) FROM holds" };

/* Counted in the transaction: others of the same turn may have placed some. */
static int check_limit(struct tx *tx, struct problem *p)
{
	int64_t max = tx->engine->settings->holds_max;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT);
	int r = db_step(&q);

	if (r < 0)
		return r;
	if (db_int(&q, 0) > max)
		return problem_set(p, LAPSE_ELIMIT, NULL,
				   "there are %lld holds already (holds_max): release one first",
				   (long long)max);
	return LAPSE_OK;
}

/* A hold that has ended and was not swept yet is none. */
static int drop_ended(struct tx *tx, const struct hold *h)
{
	static const struct db_stmt drop = {
		"DELETE FROM holds WHERE owner = $1 AND tbl = $2 AND key = $3 AND until <= $4"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &drop);

	db_bind_text(&q, 1, h->owner);
	db_bind_text(&q, 2, h->table);
	db_bind_text(&q, 3, h->key);
	db_bind_int(&q, 4, tx->now);
	int r = db_run(&q);
	if (r == LAPSE_OK)
		tx_count(tx, "holds", -db_changed(&q));
	return r;
}

int hold_place(struct tx *tx, struct hold *h, struct problem *p)
{
	int64_t ref = 0;
	bool fresh = false;
	int r = find_row(tx, h, &ref, p);

	if (r == LAPSE_OK)
		r = drop_ended(tx, h);
	if (r == LAPSE_OK)
		r = upsert(tx, h, ref, &fresh);
	if (r == LAPSE_OK && fresh)
		r = check_limit(tx, p);
	if (r < 0)
		return r;
	if (fresh)
		tx_count(tx, "holds", 1);
	return announce(tx, EVENT_HOLD_PLACED, h->owner, h->table, h->key, h->reason);
}

int hold_release(struct tx *tx, const char *owner, const char *table, const char *key)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &RELEASE);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table);
	db_bind_text(&q, 3, key);
	db_bind_int(&q, 4, tx->now);
	int r = db_run(&q);
	if (r == LAPSE_OK && db_changed(&q) == 0)
		return LAPSE_ENOTFOUND;
	if (r < 0)
		return r;
	tx_count(tx, "holds", -1);
	return announce(tx, EVENT_HOLD_RELEASED, owner, table, key, "released");
}

static struct hold read_row(const struct db_query *q)
{
	return (struct hold){ .id = db_int(q, 0),
			      .owner = db_text(q, 1),
			      .table = db_text(q, 2),
			      .key = db_text(q, 3),
			      .reason = db_text(q, 4),
			      .until = db_int(q, 5),
			      .placed_at = db_int(q, 6) };
}

int hold_get(struct tx *tx, struct arena *arena, const char *owner, const char *table,
	     const char *key, struct hold *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table);
	db_bind_text(&q, 3, key);
	db_bind_int(&q, 4, tx->now);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	*ret = read_row(&q);
	ret->owner = owner;
	ret->table = table;
	ret->key = key;
	ret->reason = arena_strdup(arena, ret->reason);
	return LAPSE_OK;
}

int hold_list(struct tx *tx, const char *owner, int64_t before, int64_t limit, hold_fn *fn,
	      void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);
	int r;

	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, before);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, limit);
	while ((r = db_step(&q)) > 0) {
		struct hold h = read_row(&q);
		fn(arg, &h);
	}
	return r;
}

const struct bound HOLD_BOUND = {
	.table = "holds",
	.scheduler = "housekeeping",
	.bounded_by = "until",
	.due_when = "until < now",
	.safety_rule = "A hold without an end is never removed.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.window = WINDOW_NONE,
	.event = EVENT_HOLD_RELEASED,
	.reason = "its end has passed",
	.newest = { "SELECT coalesce(max(id), 0) FROM holds" },
	.due = { "SELECT count(*), min(at) FROM "
		 "(SELECT until AS at FROM holds WHERE until < $1 ORDER BY until LIMIT $2)" },
	.prune = { "DELETE FROM holds WHERE until < $1 AND id IN (SELECT id FROM holds "
		   "WHERE until < $1 AND (until, id) > ($2, $3) ORDER BY until, id LIMIT $4) "
		   "RETURNING until, id, owner, key, 0" },
};
