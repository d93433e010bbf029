/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: one holder at a time, a token that grows, and an end that needs no goodbye. */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "optable/optable.h"

/* clang-format off */
#define LEASE_BOUND(NAME, RULE)                                                                    \
	{                                                                                          \
		OPTABLE_KEYED(NAME, "leases", "lease_expires_at_ms"),                              \
		.bounded_by = "lease_expires_at_ms; leases_max_per_owner",                         \
		.due_when = "lease_expires_at_ms <= now",                                          \
		.safety_rule = RULE,                                                               \
		.event = "lease.expired",                                                          \
		.reason = "the holder did not renew it",                                           \
		.shown = BOUND_COLUMNS("holder"),                                                  \
	}
/* clang-format on */

const struct bound_spec CONVERSATION_LEASE_BOUND =
	LEASE_BOUND("conversation_leases", "Only expired leases are removed.");
const struct bound_spec WORKSPACE_LEASE_BOUND =
	LEASE_BOUND("workspace_leases", "Active owners must renew before expiry.");
const struct bound_spec OAUTH_LEASE_BOUND =
	LEASE_BOUND("oauth_refresh_leases", "Only expired refresh ownership is removed.");
const struct bound_spec MODELS_LEASE_BOUND = LEASE_BOUND(
	"models_dev_refresh_leases", "Only expired leases are removed, and never the cache row.");

const struct bound_spec *lease_table(const char *name)
{
	static const struct bound_spec *const tables[] = { &CONVERSATION_LEASE_BOUND,
							   &WORKSPACE_LEASE_BOUND,
							   &OAUTH_LEASE_BOUND,
							   &MODELS_LEASE_BOUND };

	return optable_find(tables, ARRAY_LEN(tables), name);
}

/* Reading */

#define LEASE_COLUMNS "id, key, holder, fencing_token, acquired_at, lease_expires_at_ms"

static struct lease lease_read_row(const struct db_query *q)
{
	return (struct lease){ .id = db_int(q, 0),
			       .key = db_text(q, 1),
			       .holder = db_text(q, 2),
			       .fencing_token = db_int(q, 3),
			       .acquired_at = db_int(q, 4),
			       .expires_at = db_int(q, 5) };
}

static const struct db_stmt LEASE_FIND = { "SELECT " LEASE_COLUMNS " FROM leases" OPTABLE_OF_KEY };

/* 1 = there is a row, whatever its time; 0 = none. */
static int lease_find(struct tx *tx, struct arena *arena, const struct bound_spec *table,
		      const char *owner, const char *key, struct lease *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LEASE_FIND);
	int r = optable_find_key(tx, &q, table, owner, key);

	if (r <= 0)
		return r;
	*ret = lease_read_row(&q);
	ret->key = arena_strdup(arena, ret->key);
	ret->holder = arena_strdup(arena, ret->holder);
	return 1;
}

int lease_get(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, struct lease *ret)
{
	struct lease l = { 0 };
	int found = lease_find(tx, arena, table, owner, key, &l);
	int r = optable_live(found, l.expires_at, tx->now);

	if (r == LAPSE_OK)
		*ret = l;
	return r;
}

static const struct db_stmt LEASE_LIST = { "SELECT " LEASE_COLUMNS " FROM leases" OPTABLE_AFTER_KEY(
	"lease_expires_at_ms") };

int lease_list(struct tx *tx, const struct bound_spec *table, const char *owner, const char *after,
	       int64_t limit, lease_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LEASE_LIST);
	int r;

	optable_bind_list(tx, &q, table, owner, after, limit);
	while ((r = db_step(&q)) > 0) {
		struct lease l = lease_read_row(&q);
		if (!fn(arg, &l))
			return LAPSE_OK;
	}
	return r;
}

/* Taking */

static int lease_announce(struct tx *tx, enum event_kind kind, const struct bound_spec *table,
			  const char *owner, const struct lease *l)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_text(&data, "table", table->name);
	json_put_text(&data, "key", l->key);
	json_put_text(&data, "holder", l->holder);
	json_put_int(&data, "fencing_token", l->fencing_token);
	json_put_time(&data, "expires_at", l->expires_at);
	json_end(&data, '}');
	return event_add(tx, owner, kind, &data);
}

/* The same rule as fencing_next(), in the statement that keeps the last one. */
static const struct db_stmt FENCING_NEXT = {
	"UPDATE fencing SET last = CASE WHEN last + 1 > $1 THEN last + 1 ELSE $1 END WHERE id = 1 "
	"RETURNING last"
};

static int next_token(struct tx *tx, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FENCING_NEXT);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, fencing_next(0, tx->now));
	int r = db_step(&q);
	if (r <= 0)
		return r < 0 ? r : LAPSE_EINTERNAL;
	*ret = db_int(&q, 0);
	assert(*ret > 0 && *ret <= FENCING_TOKEN_MAX);
	return LAPSE_OK;
}

static const struct db_stmt LEASE_INSERT = {
	"INSERT INTO leases (id, owner, tbl, key, holder, fencing_token, acquired_at, "
	"lease_expires_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) "
	"ON CONFLICT (owner, tbl, key) DO NOTHING"
};

static int lease_insert(struct tx *tx, const struct bound_spec *table, const char *owner,
			struct lease *l, struct problem *p)
{
	int r = optable_count_in(tx, table, owner, tx->engine->settings->leases_max_per_owner, p);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LEASE_INSERT);
	l->id = id_next(&tx->engine->ids, tx->now);
	db_bind_int(&q, 1, l->id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, table->name);
	db_bind_text(&q, 4, l->key);
	db_bind_text(&q, 5, l->holder);
	db_bind_int(&q, 6, l->fencing_token);
	db_bind_int(&q, 7, l->acquired_at);
	db_bind_int(&q, 8, l->expires_at);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

/* Each checks again what was seen: the token has not changed since. */
static const struct db_stmt LEASE_TAKE = {
	"UPDATE leases SET holder = $2, fencing_token = $3, acquired_at = $4, "
	"lease_expires_at_ms = $5 WHERE id = $1 AND fencing_token = $6 "
	"AND lease_expires_at_ms <= $4"
};
static const struct db_stmt LEASE_RENEWAL = {
	"UPDATE leases SET lease_expires_at_ms = $2 WHERE id = $1 AND fencing_token = $3 "
	"AND lease_expires_at_ms > $4"
};

static int lease_write_taken(struct tx *tx, const struct lease *l, int64_t seen_token)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LEASE_TAKE);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, l->id);
	db_bind_text(&q, 2, l->holder);
	db_bind_int(&q, 3, l->fencing_token);
	db_bind_int(&q, 4, l->acquired_at);
	db_bind_int(&q, 5, l->expires_at);
	db_bind_int(&q, 6, seen_token);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

static int lease_renew(struct tx *tx, struct lease *l, lapse_ms expires_at)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LEASE_RENEWAL);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, l->id);
	db_bind_int(&q, 2, expires_at);
	db_bind_int(&q, 3, l->fencing_token);
	db_bind_int(&q, 4, tx->now);
	l->expires_at = expires_at;
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

/* With a new token: a row of its own, or the one whose time is over. */
static int lease_acquire(struct tx *tx, const struct bound_spec *table, const char *owner,
			 const struct lease *over, struct lease *l, struct problem *p)
{
	int r = over ? lease_announce(tx, EVENT_LEASE_EXPIRED, table, owner, over) : LAPSE_OK;

	if (r == LAPSE_OK)
		r = next_token(tx, &l->fencing_token);
	if (r < 0)
		return r;
	if (over) {
		assert(l->fencing_token > over->fencing_token);
		l->id = over->id;
		r = lease_write_taken(tx, l, over->fencing_token);
	} else {
		r = lease_insert(tx, table, owner, l, p);
	}
	return r < 0 ? r : lease_announce(tx, EVENT_LEASE_ACQUIRED, table, owner, l);
}

int lease_ask(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, const char *holder, lapse_ms ttl_ms, struct lease *ret,
	      struct problem *p)
{
	struct lease old = { 0 }, fresh = { .key = key,
					    .holder = holder,
					    .acquired_at = tx->now,
					    .expires_at = time_add(tx->now, ttl_ms) };
	int r = lease_find(tx, arena, table, owner, key, &old);

	if (r < 0)
		return r;
	enum lease_verdict verdict = lease_judge(r > 0, r > 0 && strcmp(old.holder, holder) == 0,
						 old.expires_at, tx->now);
	switch (verdict) {
	case LEASE_REFUSE:
		*ret = old;
		return problem_set(p, LAPSE_ECONFLICT, "holder", "%.60s holds it", old.holder);
	case LEASE_RENEW:
		r = lease_renew(tx, &old, fresh.expires_at);
		break;
	case LEASE_ACQUIRE:
	case LEASE_TAKE_OVER:
		r = lease_acquire(tx, table, owner, verdict == LEASE_TAKE_OVER ? &old : NULL,
				  &fresh, p);
		break;
	}
	if (r == LAPSE_OK)
		*ret = verdict == LEASE_RENEW ? old : fresh;
	return r;
}

/* Releasing */

static const struct db_stmt LEASE_DELETE = {
	"DELETE FROM leases WHERE id = $1 AND fencing_token = $2"
};
/* A held row stays: its time is over, so that anybody can take the lease. */
static const struct db_stmt LEASE_END = {
	"UPDATE leases SET lease_expires_at_ms = $3 WHERE id = $1 AND fencing_token = $2"
};

static int lease_end(struct tx *tx, const struct bound_spec *table, const char *owner,
		     const struct lease *l)
{
	bool held = false;
	int r = optable_is_held(tx, table, l->id, &held);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, held ? &LEASE_END : &LEASE_DELETE);
	db_bind_int(&q, 1, l->id);
	db_bind_int(&q, 2, l->fencing_token);
	if (held)
		db_bind_int(&q, 3, tx->now);
	r = db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
	return r < 0 || held ? r : optable_count_out(tx, table, owner, 1);
}

int lease_give_up(struct tx *tx, struct arena *arena, const struct bound_spec *table,
		  const char *owner, const char *key, const char *holder, int64_t token,
		  struct problem *p)
{
	struct lease l = { 0 };
	int r = lease_get(tx, arena, table, owner, key, &l);

	if (r < 0)
		return r;
	assert(l.holder && l.fencing_token > 0);
	if (strcmp(l.holder, holder) != 0)
		return problem_set(p, LAPSE_ECONFLICT, "holder", "%.60s holds it", l.holder);
	if (token != 0 && token != l.fencing_token)
		return problem_set(p, LAPSE_ECONFLICT, "fencing_token",
				   "the lease has another fencing_token");
	r = lease_end(tx, table, owner, &l);
	return r < 0 ? r : lease_announce(tx, EVENT_LEASE_RELEASED, table, owner, &l);
}
