/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/hold.h"

#include <assert.h>
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

static int hold_announce(struct tx *tx, enum event_kind kind, const char *owner, const char *table,
			 const char *key, const char *reason)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	assert(kind == EVENT_HOLD_PLACED || kind == EVENT_HOLD_RELEASED);
	json_begin(&data, '{');
	json_put_text(&data, "table", table);
	json_put_text(&data, "key", key);
	json_put_text(&data, "reason", reason);
	json_end(&data, '}');
	return event_add(tx, owner, kind, &data);
}

static int columns_of(const char *const *names)
{
	int n = 0;

	assert(names && names[0]);
	while (names[n])
		n++;
	return n;
}

/* A name of one column is the key itself; of several, a JSON array of texts. */
static bool bind_name(struct tx *tx, struct db_query *q, const struct bound_spec *b,
		      const char *key)
{
	int n = columns_of(b->named_by);
	json_t *CLEANUP(json_freep) parts = NULL;

	assert(b->named_by);
	if (n == 1) {
		db_bind_text(q, 2, key);
		return true;
	}
	parts = json_loads(key, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_array(parts) || json_array_size(parts) != (size_t)n)
		return false;
	for (int i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(parts, (size_t)i));
		if (!text)
			return false;
		db_bind_text(q, i + 2, arena_strdup(&tx->arena, text));
	}
	return true;
}

/* Whether the row is there, and its id. */
static int find_held_row(struct tx *tx, const struct hold *h, int64_t *ret_ref, struct problem *p)
{
	const struct bound *bound = matrix_find(tx->engine, h->table);

	if (!bound)
		return problem_set(p, LAPSE_ENOTFOUND, "table", "the matrix has no table '%.60s'",
				   h->table);
	const struct bound_spec *b = bound->spec;
	int64_t id = 0;
	if (!b->holdable)
		return problem_set(p, LAPSE_EINVAL, "table", "rows of %s cannot be held", b->name);
	if (b->elsewhere)
		return LAPSE_OK; /* its row may come later; the hold waits for it */
	if (!b->named_by && !(b->parse_key ? b->parse_key : id_parse)(h->key, &id))
		return problem_set(p, LAPSE_ENOTFOUND, "key", "%s has no row '%.60s'", b->name,
				   h->key);
	assert(bound->sql.find.sql);
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &bound->sql.find);
	db_bind_text(&q, 1, h->owner);
	if (!b->named_by)
		db_bind_int(&q, 2, id);
	else if (!bind_name(tx, &q, b, h->key))
		return problem_set(p, LAPSE_EINVAL, "key",
				   "the key of a row of %s is a JSON array of its %d parts",
				   b->name, columns_of(b->named_by));
	int r = db_step(&q);
	if (r > 0)
		*ret_ref = db_int(&q, 0);
	if (r == 0)
		return problem_set(p, LAPSE_ENOTFOUND, "key", "%s has no row '%.60s'", b->name,
				   h->key);
	return r < 0 ? r : LAPSE_OK;
}

/* Writes the row; *ret_fresh = it was not there before. */
static int upsert(struct tx *tx, struct hold *h, int64_t ref, bool *ret_fresh)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &UPSERT);
	int64_t id = id_next(&tx->engine->ids, tx->now);

	assert(tx_can_write(tx));
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
static int check_hold_limit(struct tx *tx, struct problem *p)
{
	int64_t max = tx->engine->settings->holds_max;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT);
	int r = db_step(&q);

	assert(tx_can_write(tx));
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

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, h->owner);
	db_bind_text(&q, 2, h->table);
	db_bind_text(&q, 3, h->key);
	db_bind_int(&q, 4, tx->now);
	int r = db_run(&q);
	if (r == LAPSE_OK)
		tx_count(tx, &HOLD_BOUND, -db_changed(&q));
	return r;
}

int hold_key(const struct engine *e, struct arena *arena, const char *table, const char *key,
	     const char **ret, struct problem *p)
{
	const struct bound *b = matrix_find(e, table);
	struct buf CLEANUP(buf_done) own = { 0 };

	*ret = key;
	if (!b || !b->spec->elsewhere)
		return LAPSE_OK;
	int r = b->spec->elsewhere->name_key(b->spec, key, &own, p);
	if (r == LAPSE_OK)
		*ret = arena_strdup(arena, buf_text(&own));
	return r;
}

static int tell_room_of_hold(struct tx *tx, const char *owner, const char *table, const char *key,
			     lapse_ms until)
{
	const struct bound *b = matrix_find(tx->engine, table);
	const struct bound_memory *m = b ? b->spec->memory : NULL;

	return m && m->hold_changed ? m->hold_changed(tx, owner, key, until) : LAPSE_OK;
}

int hold_place(struct tx *tx, struct hold *h, struct problem *p)
{
	int64_t ref = 0;
	bool fresh = false;
	int r = find_held_row(tx, h, &ref, p);

	assert(h->owner && h->table && h->key && h->reason);
	if (r == LAPSE_OK)
		r = drop_ended(tx, h);
	if (r == LAPSE_OK)
		r = upsert(tx, h, ref, &fresh);
	if (r == LAPSE_OK && fresh)
		r = check_hold_limit(tx, p);
	if (r < 0)
		return r;
	if (fresh)
		tx_count(tx, &HOLD_BOUND, 1);
	r = tell_room_of_hold(tx, h->owner, h->table, h->key, h->until);
	if (r < 0)
		return r;
	return hold_announce(tx, EVENT_HOLD_PLACED, h->owner, h->table, h->key, h->reason);
}

int hold_release(struct tx *tx, const char *owner, const char *table, const char *key)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &RELEASE);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table);
	db_bind_text(&q, 3, key);
	db_bind_int(&q, 4, tx->now);
	int r = db_post(&q, DB_ONE_OR(LAPSE_ENOTFOUND));
	if (r < 0)
		return r;
	tx_count(tx, &HOLD_BOUND, -1);
	r = tell_room_of_hold(tx, owner, table, key, 0);
	if (r < 0)
		return r;
	return hold_announce(tx, EVENT_HOLD_RELEASED, owner, table, key, "released");
}

static struct hold read_hold_row(const struct db_query *q)
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

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table);
	db_bind_text(&q, 3, key);
	db_bind_int(&q, 4, tx->now);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	*ret = read_hold_row(&q);
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

	assert(fn && limit > 0);
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, before);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, limit);
	while ((r = db_step(&q)) > 0) {
		struct hold h = read_hold_row(&q);
		fn(arg, &h);
	}
	return r;
}

const struct bound_spec HOLD_BOUND = {
	.name = "holds",
	.scheduler = "housekeeping",
	.bounded_by = "until",
	.due_when = "until < now",
	.safety_rule = "A hold without an end is never removed.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "until",
	.event = "hold.released",
	.reason = "its end has passed",
	.owner = "owner",
	.group = "key",
};
