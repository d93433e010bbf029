/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/keep_store.h"

#include <assert.h>

#include "engine/engine.h"
#include "store/migrate.h"

static const struct db_stmt BOUND_GET = {
	"SELECT hash, intent_rows, untold FROM contract_bounds WHERE name = $1"
};
static const struct db_stmt BOUND_INTEND = {
	"INSERT INTO contract_bounds AS b (name, hash, intent_rows, intent_at, untold) "
	"VALUES ($1, 0, $2, $3, $4) ON CONFLICT (name) DO UPDATE SET "
	"intent_rows = excluded.intent_rows, intent_at = excluded.intent_at, "
	"untold = b.untold + excluded.untold"
};
static const struct db_stmt BOUND_TOLD = {
	"UPDATE contract_bounds SET untold = 0, intent_rows = 0 WHERE name = $1"
};
static const struct db_stmt BOUND_SWEPT = {
	"INSERT INTO contract_bounds (name, hash, intent_rows, intent_at, untold) "
	"VALUES ($1, $2, 0, $3, 0) ON CONFLICT (name) DO UPDATE SET hash = excluded.hash"
};
static const struct db_stmt APPROVAL_WANT = {
	"INSERT INTO approvals (bound, due_rows, table_rows, wanted_at, given_at) "
	"VALUES ($1, $2, $3, $4, 0) ON CONFLICT (bound) DO UPDATE SET "
	"due_rows = excluded.due_rows, table_rows = excluded.table_rows"
};
static const struct db_stmt APPROVAL_GET = {
	"SELECT bound, due_rows, table_rows, wanted_at, given_at FROM approvals WHERE bound = $1"
};
static const struct db_stmt APPROVAL_LIST = {
	"SELECT bound, due_rows, table_rows, wanted_at, given_at FROM approvals ORDER BY bound"
};
static const struct db_stmt APPROVAL_GIVE = {
	"UPDATE approvals SET given_at = $2 WHERE bound = $1"
};
static const struct db_stmt APPROVAL_DONE = { "DELETE FROM approvals WHERE bound = $1" };
static const struct db_stmt HELD = { "SELECT key FROM holds WHERE tbl = $1 AND until > $2" };

int kept_bound_get(struct tx *tx, const char *name, struct kept_bound *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &BOUND_GET);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, name);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = (struct kept_bound){ 0 };
	if (r > 0) {
		ret->hash = db_int(&q, 0);
		ret->known = ret->hash != 0;
		ret->intent_rows = db_int(&q, 1);
		ret->untold = db_int(&q, 2);
	}
	return LAPSE_OK;
}

int kept_bound_intend(struct tx *tx, const char *name, int64_t rows, int64_t removed)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &BOUND_INTEND);

	assert(tx_can_write(tx));
	assert(rows >= 0 && removed >= 0);
	db_bind_text(&q, 1, name);
	db_bind_int(&q, 2, rows);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, removed);
	return db_post(&q, DB_ANY);
}

/* One row of `meta` for each bound and replica: the slice's id, which tells when it began. */
static const struct db_stmt SLICES = {
	"SELECT m.value FROM replicas AS r JOIN meta AS m ON m.key = $1 || CAST(r.number AS TEXT) "
	"WHERE m.value >= $2"
};

static const char *slice_key(struct tx *tx, const char *bound)
{
	return arena_printf(&tx->arena, "slice %s ", bound);
}

static int slice_write(struct tx *tx, const char *bound, int64_t id)
{
	const char *key = arena_printf(&tx->arena, "%s%d", slice_key(tx, bound),
				       (int)tx->engine->ids.replica);

	assert(tx_can_write(tx) && tx->engine->cluster.on);
	return meta_set(tx->db, key, id);
}

int slice_note_begun(struct tx *tx, const char *bound)
{
	return slice_write(tx, bound, id_next(&tx->engine->ids, tx->now));
}

int slice_note_ended(struct tx *tx, const char *bound)
{
	return slice_write(tx, bound, 0);
}

int slices_under_way(struct tx *tx, const char *bound, struct bound_slices *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SLICES);
	int r;

	ret->count = 0;
	db_bind_text(&q, 1, slice_key(tx, bound));
	db_bind_int(&q, 2, id_floor(time_sub(tx->now, SLICE_OVER_MS)));
	while ((r = db_step(&q)) > 0) {
		assert(ret->count < BOUND_SLICES_MAX);
		ret->ids[ret->count++] = db_int(&q, 0);
	}
	return r;
}

int kept_bound_told(struct tx *tx, const char *name)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &BOUND_TOLD);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, name);
	return db_post(&q, DB_ANY);
}

int kept_bound_swept(struct tx *tx, const char *name, int64_t hash)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &BOUND_SWEPT);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, name);
	db_bind_int(&q, 2, hash);
	db_bind_int(&q, 3, tx->now);
	return db_post(&q, DB_ANY);
}

int approval_want(struct tx *tx, const char *bound, int64_t due_rows, int64_t table_rows)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &APPROVAL_WANT);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, bound);
	db_bind_int(&q, 2, due_rows);
	db_bind_int(&q, 3, table_rows);
	db_bind_int(&q, 4, tx->now);
	return db_post(&q, DB_ANY);
}

static struct approval read_approval(const struct db_query *q)
{
	return (struct approval){ .bound = db_text(q, 0),
				  .due_rows = db_int(q, 1),
				  .table_rows = db_int(q, 2),
				  .wanted_at = db_int(q, 3),
				  .given_at = db_int(q, 4) };
}

int approval_get(struct tx *tx, struct arena *arena, const char *bound, struct approval *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &APPROVAL_GET);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, bound);
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	*ret = read_approval(&q);
	ret->bound = arena_strdup(arena, ret->bound);
	return LAPSE_OK;
}

static int approval_write_given(struct tx *tx, const char *bound)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &APPROVAL_GIVE);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, bound);
	db_bind_int(&q, 2, tx->now);
	return db_post(&q, DB_ONE_OR(LAPSE_ENOTFOUND));
}

static int approval_tell(struct tx *tx, const struct approval *a)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	assert(a->given_at > 0);
	json_begin(&data, '{');
	json_put_text(&data, "bound", a->bound);
	json_put_int(&data, "due_rows", a->due_rows);
	json_end(&data, '}');
	return event_add(tx, "", EVENT_APPROVAL_GIVEN, &data);
}

int approval_give(struct tx *tx, struct arena *arena, const char *bound, struct approval *ret)
{
	struct approval a = { 0 };
	int r = approval_write_given(tx, bound);

	if (r == LAPSE_OK)
		r = approval_get(tx, arena, bound, &a);
	if (r == LAPSE_OK)
		r = approval_tell(tx, &a);
	if (r == LAPSE_OK)
		*ret = a;
	return r;
}

int approval_done(struct tx *tx, const char *bound)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &APPROVAL_DONE);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, bound);
	return db_post(&q, DB_ANY);
}

int approval_list(struct tx *tx, approval_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &APPROVAL_LIST);
	int r;

	assert(tx_is_open(tx));
	while ((r = db_step(&q)) > 0) {
		struct approval a = read_approval(&q);
		fn(arg, &a);
	}
	return r;
}

void held_keys_done(struct held_keys *h)
{
	if (!h->loaded)
		return;
	map_done(&h->map);
	arena_done(&h->arena);
	h->loaded = false;
}

bool held_keys_any(const struct held_keys *h)
{
	return h->loaded && h->map.count > 0;
}

bool held_keys_have(const struct held_keys *h, const char *key)
{
	return h->loaded && map_find(&h->map, key) != NULL;
}

/* Two owners may hold the same row. */
static void add_held(struct held_keys *h, const char *key)
{
	struct map_node *node = arena_alloc(&h->arena, sizeof(*node));

	if (!map_find(&h->map, key))
		map_insert(&h->map, node, arena_strdup(&h->arena, key));
}

int held_keys_load(struct tx *tx, const char *bound, struct held_keys *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HELD);
	int r;

	assert(tx_is_open(tx));
	held_keys_done(ret);
	map_init(&ret->map);
	arena_init(&ret->arena);
	ret->loaded = true;
	db_bind_text(&q, 1, bound);
	db_bind_int(&q, 2, tx->now);
	while ((r = db_step(&q)) > 0)
		add_held(ret, db_text(&q, 0));
	return r;
}
