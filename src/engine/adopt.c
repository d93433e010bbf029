/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/adopt.h"

#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "engine/usage.h"

/* What one transaction spends on slices; others wait as long for their turn. */
#define SLICES_US 10000

static const struct db_stmt HAS_TOKENS = {
	"SELECT count(*), coalesce(sum(CASE WHEN owner = $1 THEN 1 ELSE 0 END), 0) FROM tokens "
	"WHERE expires_at > $2"
};

/* Whether only admins still act for `from`. */
static int check_tokens(struct tx *tx, const char *from, struct problem *p)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HAS_TOKENS);

	db_bind_text(&q, 1, from);
	db_bind_int(&q, 2, tx->now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	assert(r == 1); /* a count always is */
	if (db_int(&q, 0) == 0)
		return problem_set(p, LAPSE_ECONFLICT, NULL,
				   "there is no token yet: make one first, so that callers without "
				   "one do not act for '%.128s' meanwhile",
				   from);
	if (db_int(&q, 1) > 0)
		return problem_set(p, LAPSE_ECONFLICT, "from",
				   "'%.128s' still has tokens: revoke them first", from);
	return LAPSE_OK;
}

static struct db_query query_between(struct tx *tx, const struct db_stmt *stmt, const char *from,
				     const char *to)
{
	struct db_query q = db_query(tx->db, stmt);

	db_bind_text(&q, 1, from);
	if (db_params(&q) > 1)
		db_bind_text(&q, 2, to);
	return q;
}

static int check_clash(struct tx *tx, const struct owned *o, const char *from, const char *to,
		       struct problem *p)
{
	if (!o->clash)
		return LAPSE_OK;
	struct db_query CLEANUP(db_finish) q = query_between(tx, o->clash, from, to);
	int r = db_step(&q);
	if (r <= 0)
		return r;
	return problem_set(p, LAPSE_ECONFLICT, NULL,
			   "both '%.64s' and '%.64s' have '%.128s' in %s: remove one of them first",
			   from, to, db_text(&q, 0), o->table);
}

/* Clashes */

static int check_clashes(struct tx *tx, const char *from, const char *to, struct problem *p)
{
	const struct owned *const *lists = tx->engine->owned;
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && lists[i]; i++)
		for (const struct owned *o = lists[i]; r == LAPSE_OK && o->table; o++)
			r = check_clash(tx, o, from, to, p);
	return r;
}

/* Counting */

void adoption_count(struct adoption *a, const char *table, int64_t n)
{
	size_t i = 0;

	assert(n >= 0);
	if (n == 0)
		return;
	while (a->moved[i].table && strcmp(a->moved[i].table, table) != 0)
		i++;
	assert(i < ADOPTION_TABLES_MAX - 1); /* the last one stays NULL */
	a->moved[i].table = table;
	a->moved[i].rows += n;
	a->rows += n;
}

/* How many rows the statement changed, or an error. */
static int64_t run_between(struct tx *tx, const struct db_stmt *stmt, const char *from,
			   const char *to)
{
	struct db_query CLEANUP(db_finish) q = query_between(tx, stmt, from, to);
	int r = db_run(&q);

	return r < 0 ? r : db_changed(&q);
}

/* Slices */

static int64_t run_step(struct tx *tx, const struct db_stmt *stmt, const char *from, int64_t rows,
			const char *to)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	db_bind_text(&q, 1, from);
	if (db_params(&q) > 1)
		db_bind_int(&q, 2, rows);
	if (db_params(&q) > 2)
		db_bind_text(&q, 3, to);
	int r = db_run(&q);
	return r < 0 ? r : db_changed(&q);
}

/* Counts what has moved; nothing = the table has no row left. */
static int run_slice(struct tx *tx, const struct owned *o, const char *from, const char *to,
		     struct adoption *a)
{
	assert(!o->move && !o->slice != !o->run);
	if (o->run)
		return o->run(tx, from, to, a);
	assert(o->slice_rows > 0);
	for (const struct owned_step *s = o->slice; s->stmt; s++) {
		int64_t n = run_step(tx, s->stmt, from, o->slice_rows, to);
		if (n < 0)
			return (int)n;
		if (s->counts)
			adoption_count(a, s->counts, n);
	}
	return LAPSE_OK;
}

/* Slices of one table after another, until the time of this transaction is over (TX_AGAIN) or no
 * table has anything left. */
static int run_slices(struct tx *tx, const char *from, const char *to, struct adoption *a)
{
	const struct clock *clock = tx->engine->clock;
	const lapse_us until = clock_mono(clock) + SLICES_US;

	for (const struct owned *const *lists = tx->engine->owned; lists[a->list];) {
		const struct owned *o = &lists[a->list][a->at];
		const int64_t before = a->rows;
		int r = o->table && !o->move ? run_slice(tx, o, from, to, a) : LAPSE_OK;
		if (r < 0)
			return r;
		if (a->rows > before && clock_mono(clock) >= until)
			return TX_AGAIN;
		if (a->rows > before)
			continue;
		a->at = o->table ? a->at + 1 : 0;
		a->list += !o->table;
	}
	return LAPSE_OK;
}

/* The rest, at once */

static int move_table(struct tx *tx, const struct owned *o, const char *from, const char *to,
		      struct adoption *a)
{
	if (!o->move)
		return LAPSE_OK;
	int64_t moved = run_between(tx, o->move, from, to);
	if (moved >= 0 && o->drop)
		moved = run_between(tx, o->drop, from, to);
	if (moved < 0)
		return (int)moved;
	if (!o->drop)
		adoption_count(a, o->table, moved);
	return LAPSE_OK;
}

static int move_rest(struct tx *tx, const char *from, const char *to, struct adoption *a)
{
	const struct owned *const *lists = tx->engine->owned;
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && lists[i]; i++)
		for (const struct owned *o = lists[i]; r == LAPSE_OK && o->table; o++)
			r = move_table(tx, o, from, to, a);
	return r;
}

/* Rooms */

struct move_notice {
	const char *from, *to;
	bool whole;
};

static void tell_rooms(struct engine *e, void *arg)
{
	const struct move_notice *n = arg;

	for (const struct room *const *x = e->rooms; *x; x++)
		if ((*x)->owner_moved)
			(*x)->owner_moved(e, n->from, n->to, n->whole);
	if (n->whole) {
		usage_refresh(e, n->from);
		usage_refresh(e, n->to);
	}
}

/* The next transaction finds rows and memory agree. */
static void tell_rooms_early(struct tx *tx, const char *from, const char *to, bool whole)
{
	struct move_notice *n = tx_alloc(tx, sizeof(*n));

	*n = (struct move_notice){ arena_strdup(&tx->arena, from), arena_strdup(&tx->arena, to),
				   whole };
	tx_effect_early(tx, tell_rooms, n);
}

static int ask_rooms(struct tx *tx, const char *from, const char *to, struct problem *p)
{
	int r = LAPSE_OK;

	for (const struct room *const *x = tx->engine->rooms; r == LAPSE_OK && *x; x++)
		if ((*x)->owner_movable)
			r = (*x)->owner_movable(tx->engine, from, to, p);
	return r;
}

static int prepare_rooms(struct tx *tx, const char *from, const char *to)
{
	int r = LAPSE_OK;

	for (const struct room *const *x = tx->engine->rooms; r == LAPSE_OK && *x; x++)
		if ((*x)->owner_moves)
			r = (*x)->owner_moves(tx, from, to);
	return r;
}

int owner_adopt(struct tx *tx, const char *from, const char *to, struct adoption *a,
		struct problem *p)
{
	assert(tx_can_write(tx) && tx->engine->owned);
	if (strcmp(from, to) == 0)
		return problem_set(p, LAPSE_EINVAL, "from", "must be another owner than '%.128s'",
				   to);
	if (cluster_has_others(&tx->engine->cluster))
		return problem_set(
			p, LAPSE_ECONFLICT, NULL,
			"an owner can be adopted while one replica runs: stop the others "
			"for the moment");
	int r = check_tokens(tx, from, p);
	if (r == LAPSE_OK)
		r = ask_rooms(tx, from, to, p);
	if (r == LAPSE_OK)
		r = prepare_rooms(tx, from, to);
	if (r == LAPSE_OK && !a->checked) /* in the transaction of the first slice */
		r = check_clashes(tx, from, to, p);
	if (r != LAPSE_OK)
		return r;
	a->checked = true;
	r = run_slices(tx, from, to, a);
	if (r == LAPSE_OK)
		r = usage_write(
			tx); /* the rest finds in the rows what this transaction has added */
	if (r == LAPSE_OK)
		r = move_rest(tx, from, to, a);
	if (r == LAPSE_ECONFLICT)
		return problem_set(
			p, r, NULL,
			"'%.128s' got something with the same key meanwhile: adopt again "
			"to see what it is",
			to);
	if (r >= 0)
		tell_rooms_early(tx, from, to, r == LAPSE_OK);
	return r;
}
