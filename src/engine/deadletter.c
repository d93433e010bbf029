/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/deadletter.h"

#include <assert.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

#define COLUMNS "id, owner, kind, target, error, state, attempts, created_at"

static const struct db_stmt LIST = { "SELECT " COLUMNS
				     " FROM cleanups WHERE state = -1 AND id < $1 "
				     "ORDER BY id DESC LIMIT $2" };
static const struct db_stmt RETRY = {
	"UPDATE cleanups SET state = 1, attempts = 0, next_at = $2 WHERE id = $1 AND state = -1 "
	"RETURNING " COLUMNS
};
static const struct db_stmt DROP = { "DELETE FROM cleanups WHERE id = $1 AND state = -1 "
				     "RETURNING " COLUMNS };

static void dead_letter_read_row(const struct db_query *q, struct dead_letter *ret)
{
	*ret = (struct dead_letter){ .id = db_int(q, 0),
				     .owner = db_text(q, 1),
				     .kind = db_text(q, 2),
				     .target = db_text(q, 3),
				     .error = db_text(q, 4),
				     .state = (enum cleanup_state)db_int(q, 5),
				     .attempts = db_int(q, 6),
				     .created_at = db_int(q, 7) };
}

int dead_letter_list(struct tx *tx, int64_t before, int64_t limit,
		     void (*fn)(void *arg, const struct dead_letter *d), void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);
	struct dead_letter d;
	int r;

	assert(limit > 0);
	db_bind_int(&q, 1, before);
	db_bind_int(&q, 2, limit);
	while ((r = db_step(&q)) > 0) {
		dead_letter_read_row(&q, &d);
		fn(arg, &d);
	}
	return r;
}

/* Runs a statement that gives the one row it changed, copied into the arena. */
static int take_one(struct db_query *q, struct arena *arena, struct dead_letter *ret)
{
	int r = db_step(q);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	dead_letter_read_row(q, ret);
	ret->owner = arena_strdup(arena, ret->owner);
	ret->kind = arena_strdup(arena, ret->kind);
	ret->target = arena_strdup(arena, ret->target);
	ret->error = arena_strdup(arena, ret->error);
	return LAPSE_OK;
}

static int tell_room_of_letter(struct tx *tx, const struct dead_letter *d, enum cleanup_state state)
{
	const struct cleanup_kind *kind = cleaner_kind_named(tx->engine, d->kind);

	assert(state == CLEANUP_PENDING || state == CLEANUP_DROPPED);
	struct cleanup_outcome o = {
		.state = state, .owner = d->owner, .target = d->target, .why = ""
	};

	return kind && kind->settled ? kind->settled(tx, &o) : LAPSE_OK;
}

int dead_letter_retry(struct tx *tx, int64_t id, struct arena *arena, struct dead_letter *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &RETRY);
	struct dead_letter d;

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	db_bind_int(&q, 2, tx->now);
	int r = take_one(&q, arena, &d);
	if (r == LAPSE_OK)
		r = tell_room_of_letter(tx, &d, CLEANUP_PENDING);
	if (r < 0)
		return r;
	cleaner_count_dead(tx, -1);
	cleaner_look_now(tx);
	*ret = d;
	return LAPSE_OK;
}

static const struct db_stmt CHOOSE = {
	"SELECT id FROM cleanups WHERE state = -1 AND id > $1 AND ($2 = '' OR kind = $2) "
	"AND created_at < $3 ORDER BY id LIMIT $4"
};

static int choose_dead_letters(struct tx *tx, const struct dead_letter_filter *filter,
			       int64_t limit, int64_t after, int64_t *ids, int64_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &CHOOSE);
	int64_t n = 0;
	int r;

	db_bind_int(&q, 1, after);
	db_bind_text(&q, 2, filter->kind ? filter->kind : "");
	db_bind_int(&q, 3, filter->before);
	db_bind_int(&q, 4, limit);
	while ((r = db_step(&q)) > 0) {
		assert(n < limit);
		ids[n++] = db_int(&q, 0);
	}
	*ret_n = n;
	return r;
}

int dead_letter_retry_many(struct tx *tx, const struct dead_letter_filter *filter, int64_t limit,
			   int64_t *after, int64_t *ret_n)
{
	int64_t *ids = tx_alloc(tx, (size_t)limit * sizeof(*ids)), n = 0;
	struct dead_letter d;
	int r = choose_dead_letters(tx, filter, limit, *after, ids, &n);

	assert(tx_can_write(tx));
	assert(limit > 0);
	for (int64_t i = 0; r == LAPSE_OK && i < n; i++)
		r = dead_letter_retry(tx, ids[i], &tx->arena, &d);
	if (r < 0)
		return r;
	if (n > 0)
		*after = ids[n - 1];
	*ret_n = n;
	return LAPSE_OK;
}

int dead_letter_drop(struct tx *tx, int64_t id, struct arena *arena)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP);
	struct dead_letter d;

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	int r = take_one(&q, arena, &d);
	if (r == LAPSE_OK)
		r = tell_room_of_letter(tx, &d, CLEANUP_DROPPED);
	if (r == LAPSE_OK)
		cleaner_count_dead(tx, -1);
	return r;
}
