/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log and its consumers: outbox and outbox_consumers.
 *
 * A position is the id of a row; ids grow in the order of commits. What is older than the window is
 * not served, swept or not, and a reader that was further behind is told of the gap.
 */
#include <assert.h>
#include <string.h>

#include "api/wait.h"
#include "base/mem.h"
#include "optable/optable.h"

#define LAG_MAX 10000 /* rows that are counted for a consumer's lag */

static const struct db_stmt OUTBOX_NOTE_PRUNED = {
	"INSERT INTO outbox_pruned (owner, last) VALUES ($1, $2) ON CONFLICT (owner) "
	"DO UPDATE SET last = excluded.last WHERE outbox_pruned.last < excluded.last"
};

static int outbox_note_pruned(struct tx *tx, const char *owner, int64_t last)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OUTBOX_NOTE_PRUNED);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, last);
	return db_post(&q, DB_ANY);
}

static int outbox_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	int r = optable_settle_as(tx, &OUTBOX_BOUND, rows, n);

	for (size_t i = 0; r == LAPSE_OK && i < n;) {
		size_t start = i;
		int64_t last = 0;
		for (; i < n && strcmp(rows[i].owner, rows[start].owner) == 0; i++)
			last = rows[i].id > last ? rows[i].id : last;
		r = outbox_note_pruned(tx, rows[start].owner, last);
	}
	return r;
}

static int outbox_consumer_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	return optable_settle_as(tx, &OUTBOX_CONSUMER_BOUND, rows, n);
}

const struct bound_spec OUTBOX_BOUND = {
	.name = "outbox",
	.scheduler = "outbox",
	.bounded_by =
		"outbox_keep_ms after created_at; table_max_per_owner; stored_bytes_per_owner",
	.due_when = "now - created_at > outbox_keep_ms",
	.safety_rule = "Replay history is bounded; durable state remains authoritative.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.walk = WALK_KEY,
	.time = "created_at",
	.window = "outbox_keep_ms",
	.held_as = "outbox",
	.holdable = true,
	.owner = "owner",
	.shown = BOUND_COLUMNS("topic"),
	.bytes = "bytes",
	.counted_by_owner = true,
	.settle = outbox_settle,
};

const struct bound_spec OUTBOX_CONSUMER_BOUND = {
	.name = "outbox_consumers",
	.scheduler = "outbox",
	.bounded_by = "outbox_keep_ms after updated_at; table_max_per_owner",
	.due_when = "now - updated_at > outbox_keep_ms",
	.safety_rule = "Only cursors that have stopped advancing are removed.",
	.action = "delete row",
	.paths = PATH_LAZY | PATH_SWEEP,
	.key = BOUND_KEY({ "id", BOUND_INT }),
	.key_is_id = true,
	.time = "updated_at",
	.window = "outbox_keep_ms",
	.held_as = "outbox_consumers",
	.holdable = true,
	.named_by = BOUND_COLUMNS("name"),
	.owner = "owner",
	.counted_by_owner = true,
	.settle = outbox_consumer_settle,
};

/* Appending */

const char *outbox_wait_key(struct arena *arena, const char *owner)
{
	return arena_printf(arena, "outbox/%s", owner);
}

static const struct db_stmt OUTBOX_ADD = {
	"INSERT INTO outbox (id, owner, topic, payload, created_at, bytes) "
	"VALUES ($1, $2, $3, $4, $5, $6)"
};

int outbox_add(struct tx *tx, const char *owner, const char *topic, const char *payload,
	       int64_t *ret_id, struct problem *p)
{
	const int64_t bytes = (int64_t)(strlen(topic) + strlen(payload));
	int r = optable_change_bytes(tx, owner, 0, bytes, p);

	assert(tx_can_write(tx));
	if (r == LAPSE_OK)
		r = optable_count_in(tx, &OUTBOX_BOUND, owner,
				     tx->engine->settings->table_max_per_owner, p);
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OUTBOX_ADD);
	*ret_id = id_next(&tx->engine->ids, tx->now);
	db_bind_int(&q, 1, *ret_id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, topic);
	db_bind_text(&q, 4, payload);
	db_bind_int(&q, 5, tx->now);
	db_bind_int(&q, 6, bytes);
	if (waiters_may_exist(tx->engine))
		waiters_wake_later(tx, outbox_wait_key(&tx->arena, owner));
	return db_post(&q, DB_ONE);
}

/* Reading */

static lapse_ms outbox_cutoff(const struct tx *tx)
{
	return time_sub(tx->now, tx->engine->settings->outbox_keep_ms);
}

static const struct db_stmt OUTBOX_GAP = {
	"SELECT 1 FROM outbox_pruned WHERE owner = $1 AND last > $2 UNION ALL "
	"SELECT 1 FROM outbox WHERE owner = $1 AND id > $2 AND created_at < $3 LIMIT 1"
};

int outbox_has_gap(struct tx *tx, const char *owner, int64_t after, bool *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OUTBOX_GAP);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, after);
	db_bind_int(&q, 3, outbox_cutoff(tx));
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = r > 0 || undone_has(tx->engine, after);
	return LAPSE_OK;
}

static const struct db_stmt OUTBOX_READ = {
	"SELECT id, topic, payload, created_at FROM outbox WHERE owner = $1 AND id > $2 "
	"AND id < coalesce((SELECT min(first) FROM outbox_moving WHERE owner = $1), $6) "
	"AND created_at >= $3 AND ($4 = '' OR topic = $4) ORDER BY id LIMIT $5"
};

int outbox_read(struct tx *tx, const char *owner, int64_t after, const char *topic, int64_t limit,
		outbox_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OUTBOX_READ);
	int r;

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, after);
	db_bind_int(&q, 3, outbox_cutoff(tx));
	db_bind_text(&q, 4, topic ? topic : "");
	db_bind_int(&q, 5, limit);
	db_bind_int(&q, 6, INT64_MAX);
	while ((r = db_step(&q)) > 0) {
		struct outbox_row row = { db_int(&q, 0), db_text(&q, 1), db_text(&q, 2),
					  db_int(&q, 3) };
		if (!fn(arg, &row))
			return LAPSE_OK;
	}
	return r;
}

/* Consumers */

static const struct db_stmt CONSUMER_FIND = {
	"SELECT id, position, updated_at FROM outbox_consumers WHERE owner = $1 AND name = $2"
};

/* 1 = there is a row, whatever its time; 0 = none. */
static int consumer_find(struct tx *tx, const char *owner, const char *name,
			 struct outbox_consumer *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CONSUMER_FIND);

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, name);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	*ret = (struct outbox_consumer){ .id = db_int(&q, 0),
					 .name = name,
					 .position = db_int(&q, 1),
					 .updated_at = db_int(&q, 2) };
	return 1;
}

int outbox_consumer_get(struct tx *tx, const char *owner, const char *name,
			struct outbox_consumer *ret)
{
	int r = consumer_find(tx, owner, name, ret);

	if (r < 0)
		return r;
	return r == 0 || ret->updated_at < outbox_cutoff(tx) ? LAPSE_ENOTFOUND : LAPSE_OK;
}

static const struct db_stmt CONSUMER_ADD = {
	"INSERT INTO outbox_consumers (id, owner, name, position, updated_at) "
	"VALUES ($1, $2, $3, $4, $5) ON CONFLICT (owner, name) DO NOTHING"
};
static const struct db_stmt CONSUMER_MOVE = {
	"UPDATE outbox_consumers SET position = $2, updated_at = $3 WHERE id = $1 "
	"AND position = $4"
};

static int consumer_add(struct tx *tx, const char *owner, struct outbox_consumer *c,
			struct problem *p)
{
	int r = optable_count_in(tx, &OUTBOX_CONSUMER_BOUND, owner,
				 tx->engine->settings->table_max_per_owner, p);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CONSUMER_ADD);
	c->id = id_next(&tx->engine->ids, tx->now);
	db_bind_int(&q, 1, c->id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, c->name);
	db_bind_int(&q, 4, c->position);
	db_bind_int(&q, 5, c->updated_at);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

static int consumer_move(struct tx *tx, const struct outbox_consumer *c, int64_t seen)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CONSUMER_MOVE);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, c->id);
	db_bind_int(&q, 2, c->position);
	db_bind_int(&q, 3, c->updated_at);
	db_bind_int(&q, 4, seen);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

int outbox_consumer_put(struct tx *tx, const char *owner, const char *name, int64_t position,
			bool force, struct outbox_consumer *ret, struct problem *p)
{
	struct outbox_consumer old,
		c = { .name = name, .position = position, .updated_at = tx->now };
	int r = consumer_find(tx, owner, name, &old);

	if (r < 0)
		return r;
	bool exists = r > 0, live = exists && old.updated_at >= outbox_cutoff(tx);
	if (live && position < old.position && !force)
		return problem_set(p, LAPSE_ECONFLICT, "cursor",
				   "the consumer is further already: 'force' takes it back");
	c.id = exists ? old.id : 0;
	r = exists ? consumer_move(tx, &c, old.position) : consumer_add(tx, owner, &c, p);
	if (r == LAPSE_OK)
		*ret = c;
	return r;
}

static const struct db_stmt CONSUMER_LIST = {
	"SELECT c.id, c.name, c.position, c.updated_at, (SELECT count(*) FROM (SELECT 1 FROM "
	"outbox AS o WHERE o.owner = c.owner AND o.id > c.position AND o.created_at >= $3 LIMIT $5"
	") AS later) FROM outbox_consumers AS c WHERE c.owner = $1 AND c.name > $2 "
	"AND c.updated_at >= $3 ORDER BY c.name LIMIT $4"
};

int outbox_consumer_list(struct tx *tx, const char *owner, const char *after, int64_t limit,
			 outbox_consumer_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CONSUMER_LIST);
	int r;

	assert(tx_is_open(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, after);
	db_bind_int(&q, 3, outbox_cutoff(tx));
	db_bind_int(&q, 4, limit);
	db_bind_int(&q, 5, LAG_MAX);
	while ((r = db_step(&q)) > 0) {
		struct outbox_consumer c = { db_int(&q, 0), db_text(&q, 1), db_int(&q, 2),
					     db_int(&q, 3), db_int(&q, 4) };
		if (!fn(arg, &c))
			return LAPSE_OK;
	}
	return r;
}
