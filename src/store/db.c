/* SPDX-License-Identifier: Apache-2.0 */
/* What all drivers share: the order of calls, the parameters, posted writes. */
#include "store/db.h"

#include <assert.h>

#include "store/driver.h"

static const struct db_driver *db_driver_of(const struct db *db)
{
	assert(db->magic == DB_MAGIC);
	return db->driver;
}

void db_close(struct db *db)
{
	if (db)
		db_driver_of(db)->close(db);
}

const char *db_error(const struct db *db)
{
	return db_driver_of(db)->error(db);
}

void db_interrupt(struct db *db)
{
	db_driver_of(db)->interrupt(db);
}

/* Transactions. */

static int db_begin_as(struct db *db, bool write, lapse_ms *ret_now)
{
	assert(!db_in_transaction(db));
	int r = db_driver_of(db)->begin(db, write);

	if (r == LAPSE_OK)
		*ret_now = clock_wall(db->clock);
	return r;
}

int db_begin(struct db *db, lapse_ms *ret_now)
{
	return db_begin_as(db, true, ret_now);
}

int db_begin_read(struct db *db, lapse_ms *ret_now)
{
	return db_begin_as(db, false, ret_now);
}

int db_commit(struct db *db)
{
	return db_driver_of(db)->commit(db);
}

void db_rollback(struct db *db)
{
	db_driver_of(db)->rollback(db);
	assert(!db_in_transaction(db));
}

enum db_lock db_lock_met(const struct db *db)
{
	return db->lock_met;
}

void db_limit_lock_wait(struct db *db, int ms)
{
	assert(ms >= 0 && !db_in_transaction(db));
	db->lock_ms = ms;
}

bool db_in_transaction(const struct db *db)
{
	return db_driver_of(db)->in_transaction(db);
}

int64_t db_changes_total(const struct db *db)
{
	return db_driver_of(db)->changes_total(db);
}

int db_savepoint(struct db *db)
{
	assert(db_in_transaction(db));
	return db_driver_of(db)->savepoint(db);
}

int db_release(struct db *db)
{
	return db_driver_of(db)->release(db);
}

int db_rollback_step(struct db *db)
{
	return db_driver_of(db)->rollback_step(db);
}

int db_script(struct db *db, const char *sql)
{
	return db_driver_of(db)->script(db, sql);
}

/* Queries. */

struct db_query db_query(struct db *db, const struct db_stmt *stmt)
{
	struct db_query q = { .db = db };

	q.err = db_driver_of(db)->prepare(db, stmt, &q.prepared);
	if (q.err < 0)
		return q;
	assert(q.prepared && !q.prepared->open);
	assert(q.prepared->params <= DB_PARAMS_MAX);
	q.prepared->open = true;
	q.prepared->bound = 0;
	return q;
}

bool db_forget(struct db *db, const char *sql)
{
	return db_driver_of(db)->forget(db, sql);
}

void db_finish(struct db_query *q)
{
	if (!q->prepared)
		return;
	assert(q->prepared->open);
	if (q->started)
		db_driver_of(q->db)->reset(q->db, q->prepared);
	q->prepared->open = false;
	q->prepared = NULL;
}

int db_params(const struct db_query *q)
{
	return q->prepared ? q->prepared->params : 0;
}

/* The place of parameter n. */
static struct db_value *value_of(struct db_query *q, int n)
{
	assert(n >= 1 && n <= q->prepared->params);
	assert(!q->started);
	q->prepared->bound |= UINT64_C(1) << (n - 1);
	return &q->prepared->values[n - 1];
}

void db_bind_int(struct db_query *q, int n, int64_t value)
{
	if (q->prepared)
		*value_of(q, n) = (struct db_value){ .kind = DB_INT, .number = value };
}

void db_bind_text(struct db_query *q, int n, const char *text)
{
	if (q->prepared)
		*value_of(q, n) =
			(struct db_value){ .kind = text ? DB_TEXT : DB_NULL, .text = text };
}

static bool has_all_values(const struct db_prepared *p)
{
	return p->params == 0 || p->bound == UINT64_MAX >> (DB_PARAMS_MAX - p->params);
}

static int start_query(struct db_query *q)
{
	assert(q->prepared->open && has_all_values(q->prepared));
	q->started = true;
	return q->prepared->params ? db_driver_of(q->db)->bind(q->db, q->prepared) : LAPSE_OK;
}

int db_step(struct db_query *q)
{
	if (q->err == LAPSE_OK && !q->started)
		q->err = start_query(q);
	if (q->err < 0)
		return q->err;
	assert(!q->ended);
	int r = db_driver_of(q->db)->step(q->db, q->prepared);
	if (r <= 0) {
		q->err = r;
		q->ended = true;
	}
	return r;
}

int db_run(struct db_query *q)
{
	int r;

	while ((r = db_step(q)) > 0)
		;
	return r;
}

int64_t db_changed(const struct db_query *q)
{
	assert(q->ended && q->err == LAPSE_OK);
	return db_driver_of(q->db)->changed(q->db);
}

typedef int post_fn(struct db *db, struct db_prepared *prepared, struct db_expect expect);

static int post_query(struct db_query *q, struct db_expect expect, post_fn *post)
{
	assert(!q->started && !q->ended);
	if (q->err == LAPSE_OK) {
		assert(q->prepared->open && has_all_values(q->prepared));
		q->started = true;
		q->err = post(q->db, q->prepared, expect);
	}
	q->ended = true;
	return q->err;
}

static int post_or_run(struct db_query *q, struct db_expect expect, post_fn *post)
{
	assert(expect.otherwise <= 0 && (expect.rows < 0 || expect.otherwise < 0));
	if (post)
		return post_query(q, expect, post);
	int r = db_run(q);

	if (r < 0 || expect.rows < 0 || db_changed(q) == expect.rows)
		return r;
	return expect.otherwise;
}

int db_post(struct db_query *q, struct db_expect expect)
{
	return post_or_run(q, expect, db_driver_of(q->db)->post);
}

int db_post_row(struct db_query *q, struct db_expect expect)
{
	return post_or_run(q, expect, db_driver_of(q->db)->post_row);
}

int db_flush(struct db *db)
{
	assert(db->magic == DB_MAGIC && db_in_transaction(db));
	return db_driver_of(db)->flush(db);
}

static struct db_prepared *row_of(const struct db_query *q)
{
	assert(q->started && !q->ended);
	return q->prepared;
}

int64_t db_int(const struct db_query *q, int column)
{
	return db_driver_of(q->db)->number(row_of(q), column);
}

const char *db_text(const struct db_query *q, int column)
{
	return db_driver_of(q->db)->text(row_of(q), column);
}

bool db_is_null(const struct db_query *q, int column)
{
	return db_driver_of(q->db)->is_null(row_of(q), column);
}
