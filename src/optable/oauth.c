/* SPDX-License-Identifier: Apache-2.0 */
/* Sign-ins under way (oauth_pending), and the one row of models_dev_cache. */
#include "base/mem.h"
#include "engine/usage.h"
#include "optable/optable.h"

#include <assert.h>
#include <string.h>

static int oauth_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	return optable_settle_as(tx, &OAUTH_PENDING_BOUND, rows, n);
}

const struct bound_spec OAUTH_PENDING_BOUND = {
	.name = "oauth_pending",
	.scheduler = "statestore",
	.bounded_by = "expires_at; consumption; table_max_per_owner; stored_bytes_per_owner",
	.due_when = "expires_at <= now",
	.safety_rule = "A live sign-in survives until the expiry it was told.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "expires_at",
	.op = DUE_AT,
	.held_as = "oauth_pending",
	.holdable = true,
	.named_by = BOUND_COLUMNS("state"),
	.owner = "owner",
	.bytes = "bytes",
	.counted_by_owner = true,
	.settle = oauth_settle,
};

static const struct db_stmt OAUTH_FIND = {
	"SELECT id, data, created_at, expires_at, bytes FROM oauth_pending "
	"WHERE owner = $1 AND state = $2"
};

/* 1 = there is a row, whatever its time; 0 = none. */
static int oauth_find(struct tx *tx, struct arena *arena, const char *owner, const char *state,
		      struct oauth_state *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OAUTH_FIND);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, state);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	*ret = (struct oauth_state){ .id = db_int(&q, 0),
				     .state = state,
				     .data = arena_strdup(arena, db_text(&q, 1)),
				     .created_at = db_int(&q, 2),
				     .expires_at = db_int(&q, 3),
				     .bytes = db_int(&q, 4) };
	return 1;
}

static const struct db_stmt OAUTH_INSERT = {
	"INSERT INTO oauth_pending (id, owner, state, data, created_at, expires_at, bytes) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (owner, state) DO NOTHING"
};
static const struct db_stmt OAUTH_REPLACE = {
	"UPDATE oauth_pending SET data = $2, created_at = $3, expires_at = $4, bytes = $5 "
	"WHERE id = $1"
};

static int oauth_insert(struct tx *tx, const char *owner, struct oauth_state *s, struct problem *p)
{
	int r = optable_count_in(tx, &OAUTH_PENDING_BOUND, owner,
				 tx->engine->settings->table_max_per_owner, p);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OAUTH_INSERT);
	s->id = id_next(&tx->engine->ids, tx->now);
	db_bind_int(&q, 1, s->id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, s->state);
	db_bind_text(&q, 4, s->data);
	db_bind_int(&q, 5, s->created_at);
	db_bind_int(&q, 6, s->expires_at);
	db_bind_int(&q, 7, s->bytes);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

static int oauth_replace(struct tx *tx, const struct oauth_state *s)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OAUTH_REPLACE);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, s->id);
	db_bind_text(&q, 2, s->data);
	db_bind_int(&q, 3, s->created_at);
	db_bind_int(&q, 4, s->expires_at);
	db_bind_int(&q, 5, s->bytes);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

int oauth_put(struct tx *tx, const char *owner, const char *state, const char *data,
	      lapse_ms ttl_ms, struct oauth_state *ret, bool *ret_fresh, struct problem *p)
{
	struct oauth_state old, s = { .state = state,
				      .data = data,
				      .created_at = tx->now,
				      .expires_at = time_add(tx->now, ttl_ms),
				      .bytes = (int64_t)(strlen(state) + strlen(data)) };
	int r = oauth_find(tx, &tx->arena, owner, state, &old);

	if (r < 0)
		return r;
	bool exists = r > 0;
	bool live = exists && !optable_is_over(old.expires_at, tx->now);
	s.id = exists ? old.id : 0;
	r = optable_change_bytes(tx, owner, exists ? old.bytes : 0, s.bytes, p);
	if (r < 0)
		return r;
	r = exists ? oauth_replace(tx, &s) : oauth_insert(tx, owner, &s, p);
	if (r < 0)
		return r;
	*ret = s;
	*ret_fresh = !live;
	return LAPSE_OK;
}

static const struct db_stmt OAUTH_CONSUME = {
	"DELETE FROM oauth_pending WHERE id = $1 AND expires_at > $2"
};
/* A held row stays, but its time is over. */
static const struct db_stmt OAUTH_END = {
	"UPDATE oauth_pending SET expires_at = $2 WHERE id = $1 AND expires_at > $2"
};

static int oauth_end(struct tx *tx, const char *owner, int64_t id, int64_t bytes)
{
	bool held = false;
	int r = optable_is_held(tx, &OAUTH_PENDING_BOUND, id, &held);

	assert(tx_can_write(tx) && id > 0);
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, held ? &OAUTH_END : &OAUTH_CONSUME);
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, tx->now);
	r = db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
	if (r < 0 || held)
		return r;
	usage_take_off(tx, owner, QUOTA_STORED_BYTES, bytes);
	return optable_count_out(tx, &OAUTH_PENDING_BOUND, owner, 1);
}

int oauth_consume(struct tx *tx, struct arena *arena, const char *owner, const char *state,
		  struct oauth_state *ret)
{
	struct oauth_state s = { 0 };
	int r = oauth_find(tx, arena, owner, state, &s);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	if (optable_is_over(s.expires_at, tx->now))
		return LAPSE_EEXPIRED;
	r = oauth_end(tx, owner, s.id, s.bytes);
	if (r == LAPSE_OK)
		*ret = s;
	return r;
}

/* The cache: bounded by its primary key, so that no sweep visits it. */

static const struct db_stmt MODELS_CACHE_PUT = {
	"INSERT INTO models_dev_cache (id, data, updated_at) VALUES (1, $1, $2) "
	"ON CONFLICT (id) DO UPDATE SET data = excluded.data, updated_at = excluded.updated_at"
};
static const struct db_stmt MODELS_CACHE_GET = {
	"SELECT data, updated_at FROM models_dev_cache WHERE id = 1"
};

int models_cache_put(struct tx *tx, const char *data)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &MODELS_CACHE_PUT);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, data);
	db_bind_int(&q, 2, tx->now);
	return db_post(&q, DB_ONE);
}

int models_cache_get(struct tx *tx, struct arena *arena, const char **ret_data,
		     lapse_ms *ret_updated_at)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &MODELS_CACHE_GET);
	int r = db_step(&q);

	assert(tx_is_open(tx));
	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	*ret_data = arena_strdup(arena, db_text(&q, 0));
	*ret_updated_at = db_int(&q, 1);
	return LAPSE_OK;
}
