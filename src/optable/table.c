/* SPDX-License-Identifier: Apache-2.0 */
/* What the shapes of operational tables share: rows that an owner names by a key, and their number.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/sweep.h"
#include "engine/usage.h"
#include "optable/optable.h"

/* Rows by key */

const struct bound_spec *optable_find(const struct bound_spec *const *tables, size_t n,
				      const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(tables[i]->name, name) == 0)
			return tables[i];
	return NULL;
}

static void bind_place(struct db_query *q, const struct bound_spec *table, const char *owner,
		       const char *key)
{
	assert(table && table->group && owner && key);
	db_bind_text(q, 1, owner);
	db_bind_text(q, 2, table->name);
	db_bind_text(q, 3, key);
}

int optable_find_key(struct tx *tx, struct db_query *q, const struct bound_spec *table,
		     const char *owner, const char *key)
{
	assert(tx_is_open(tx));
	bind_place(q, table, owner, key);
	return db_step(q);
}

int optable_live(int found, lapse_ms expires_at, lapse_ms now)
{
	if (found < 0)
		return found;
	return found == 0 || optable_is_over(expires_at, now) ? LAPSE_ENOTFOUND : LAPSE_OK;
}

void optable_bind_list(struct tx *tx, struct db_query *q, const struct bound_spec *table,
		       const char *owner, const char *after, int64_t limit)
{
	assert(tx_is_open(tx) && limit > 0);
	bind_place(q, table, owner, after);
	db_bind_int(q, 4, tx->now);
	db_bind_int(q, 5, limit);
}

static const struct db_stmt HELD = {
	"SELECT 1 FROM holds WHERE tbl = $1 AND ref = $2 AND until > $3 LIMIT 1"
};

int optable_is_held(struct tx *tx, const struct bound_spec *table, int64_t id, bool *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HELD);

	assert(tx_is_open(tx) && table->held_as && id > 0);
	db_bind_text(&q, 1, table->held_as);
	db_bind_int(&q, 2, id);
	db_bind_int(&q, 3, tx->now);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = r > 0;
	return LAPSE_OK;
}

/* The number of an owner's rows */

static const struct db_stmt ROWS_IN = {
	"INSERT INTO table_counts (owner, tbl, live) VALUES ($1, $2, 1) "
	"ON CONFLICT (owner, tbl) DO UPDATE SET live = table_counts.live + 1 "
	"WHERE table_counts.live < $3"
};
static const struct db_stmt ROWS_OUT = {
	"UPDATE table_counts SET live = live - $3 WHERE owner = $1 AND tbl = $2"
};
static const struct db_stmt ROWS_NONE = {
	"DELETE FROM table_counts WHERE owner = $1 AND tbl = $2 AND live = 0"
};

int optable_count_in(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t max,
		     struct problem *p)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ROWS_IN);

	assert(tx_can_write(tx));
	assert(max > 0);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	db_bind_int(&q, 3, max);
	int r = db_post(&q, DB_ONE_OR(LAPSE_ELIMIT));
	if (r == LAPSE_ELIMIT)
		return problem_set(p, r, NULL, "there are %" PRId64 " rows in %s already", max,
				   table->name);
	if (r == LAPSE_OK)
		tx_count(tx, table, 1);
	return r;
}

/* The owner has so many rows fewer, and no row of its own when it has none. */
static int count_rows_out(struct tx *tx, const char *table, const char *owner, int64_t n)
{
	struct db_query CLEANUP(db_finish) out = db_query(tx->db, &ROWS_OUT);

	assert(tx_can_write(tx));
	assert(n >= 0);
	db_bind_text(&out, 1, owner);
	db_bind_text(&out, 2, table);
	db_bind_int(&out, 3, n);
	int r = db_post(&out, DB_ONE);
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) none = db_query(tx->db, &ROWS_NONE);
	db_bind_text(&none, 1, owner);
	db_bind_text(&none, 2, table);
	return db_post(&none, DB_ANY);
}

int optable_count_out(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t n)
{
	if (n == 0)
		return LAPSE_OK;
	tx_count(tx, table, -n);
	return count_rows_out(tx, table->name, owner, n);
}

int optable_change_bytes(struct tx *tx, const char *owner, int64_t from, int64_t to,
			 struct problem *p)
{
	int r = to > from ? usage_admit(tx, owner, QUOTA_STORED_BYTES, to - from, p) : LAPSE_OK;

	assert(from >= 0 && to >= 0);
	if (r < 0)
		return r;
	if (to > from)
		usage_add(tx, owner, QUOTA_STORED_BYTES, to - from);
	else
		usage_take_off(tx, owner, QUOTA_STORED_BYTES, from - to);
	return LAPSE_OK;
}

int optable_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0, start = 0; i < n; start = i) {
		while (i < n && strcmp(rows[i].owner, rows[start].owner) == 0 &&
		       strcmp(rows[i].group, rows[start].group) == 0)
			i++;
		assert(rows[start].group[0]);
		int r = count_rows_out(tx, rows[start].group, rows[start].owner,
				       (int64_t)(i - start));
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

int optable_settle_as(struct tx *tx, const struct bound_spec *table, const struct pruned *rows,
		      size_t n)
{
	for (size_t i = 0, start = 0; i < n; start = i) {
		while (i < n && strcmp(rows[i].owner, rows[start].owner) == 0)
			i++;
		int r = count_rows_out(tx, table->name, rows[start].owner, (int64_t)(i - start));
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

int optable_removed(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t n,
		    const char *reason)
{
	int r = optable_count_out(tx, table, owner, n);

	return r < 0 || n == 0 ? r : sweep_announce_inline(tx, table, n, reason);
}
