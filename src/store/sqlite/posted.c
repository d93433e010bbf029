/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/posted.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"
#include "store/sql.h"
#include "store/sqlite/db.h"

#define POSTED_MAGIC 0x4c504741u
#define ROWS_MAX 256                /* beyond this a row gets no cheaper */
#define BYTES_MAX ((size_t)1 << 18) /* of the texts that wait */
#define ROW_BYTES_MAX 16384         /* a longer row costs so much that gathering gains nothing */

/* A number, or where a text lies in `texts` of its statement. */
struct posted_value {
	enum db_kind kind;
	int64_t number;
	size_t at, len;
};

struct posted_stmt {
	struct list link; /* of the connection; linked while there are rows */
	sqlite3_stmt *many;
	size_t params;
	struct posted_value *values; /* row after row */
	size_t rows, room;
	struct buf texts;
	int64_t expected; /* rows that must change; negative = any number */
};

struct posted {
	uint32_t magic;
	sqlite3 *handle;
	struct list waiting;         /* in the order of their first rows */
	struct posted_stmt *reading; /* what the virtual table shows */
	int64_t rows;
};

/* The virtual table: a row for each row that waits, a column for each parameter. */

struct posted_table {
	sqlite3_vtab base;
	const struct posted *posted;
};

struct posted_cursor {
	sqlite3_vtab_cursor base;
	const struct posted_stmt *rows;
	size_t at;
};

static int table_connect(sqlite3 *handle, void *arg, int argc, const char *const *argv,
			 sqlite3_vtab **ret, char **ret_error)
{
	char sql[16 + 8 * POSTED_PARAMS_MAX] = "CREATE TABLE x (p1";
	size_t n = strlen(sql);

	(void)argc;
	(void)argv;
	(void)ret_error;
	for (int i = 2; i <= POSTED_PARAMS_MAX; i++)
		n += (size_t)snprintf(sql + n, sizeof(sql) - n, ", p%d", i);
	snprintf(sql + n, sizeof(sql) - n, ")");
	int rc = sqlite3_declare_vtab(handle, sql);
	if (rc != SQLITE_OK)
		return rc;
	struct posted_table *t = mem_zalloc(1, sizeof(*t));
	t->posted = arg;
	assert(t->posted->magic == POSTED_MAGIC);
	*ret = &t->base;
	return SQLITE_OK;
}

static int table_disconnect(sqlite3_vtab *table)
{
	free(CONTAINER_OF(table, struct posted_table, base));
	return SQLITE_OK;
}

static int table_plan(sqlite3_vtab *table, sqlite3_index_info *plan)
{
	(void)table;
	plan->estimatedCost = ROWS_MAX;
	plan->estimatedRows = ROWS_MAX;
	return SQLITE_OK;
}

static int table_open(sqlite3_vtab *table, sqlite3_vtab_cursor **ret)
{
	struct posted_cursor *c = mem_zalloc(1, sizeof(*c));

	(void)table;
	*ret = &c->base;
	return SQLITE_OK;
}

static struct posted_cursor *cursor_of(sqlite3_vtab_cursor *cursor)
{
	return CONTAINER_OF(cursor, struct posted_cursor, base);
}

static int table_close(sqlite3_vtab_cursor *cursor)
{
	free(cursor_of(cursor));
	return SQLITE_OK;
}

static int table_first(sqlite3_vtab_cursor *cursor, int plan, const char *plan_text, int argc,
		       sqlite3_value **argv)
{
	struct posted_cursor *c = cursor_of(cursor);

	(void)plan;
	(void)plan_text;
	(void)argc;
	(void)argv;
	c->rows = CONTAINER_OF(cursor->pVtab, struct posted_table, base)->posted->reading;
	c->at = 0;
	return c->rows ? SQLITE_OK : SQLITE_MISUSE;
}

static int table_next(sqlite3_vtab_cursor *cursor)
{
	cursor_of(cursor)->at++;
	return SQLITE_OK;
}

static int table_is_over(sqlite3_vtab_cursor *cursor)
{
	const struct posted_cursor *c = cursor_of(cursor);

	return c->at >= c->rows->rows;
}

static int table_value(sqlite3_vtab_cursor *cursor, sqlite3_context *out, int column)
{
	const struct posted_cursor *c = cursor_of(cursor);
	const struct posted_value *v = &c->rows->values[c->at * c->rows->params + (size_t)column];

	assert((size_t)column < c->rows->params);
	if (v->kind == DB_INT)
		sqlite3_result_int64(out, v->number);
	else if (v->kind == DB_TEXT)
		sqlite3_result_text(out, c->rows->texts.data + v->at, (int)v->len, SQLITE_STATIC);
	else
		sqlite3_result_null(out);
	return SQLITE_OK;
}

static int table_number(sqlite3_vtab_cursor *cursor, sqlite3_int64 *ret)
{
	*ret = (sqlite3_int64)cursor_of(cursor)->at;
	return SQLITE_OK;
}

static const sqlite3_module TABLE = {
	.xConnect = table_connect,
	.xBestIndex = table_plan,
	.xDisconnect = table_disconnect,
	.xOpen = table_open,
	.xClose = table_close,
	.xFilter = table_first,
	.xNext = table_next,
	.xEof = table_is_over,
	.xColumn = table_value,
	.xRowid = table_number,
};

/* Rows */

struct posted *posted_new(sqlite3 *handle)
{
	struct posted *all = mem_zalloc(1, sizeof(*all));

	all->magic = POSTED_MAGIC;
	all->handle = handle;
	list_init(&all->waiting);
	if (sqlite3_create_module(handle, SQL_GATHERED, &TABLE, all) != SQLITE_OK) {
		free(all);
		return NULL;
	}
	return all;
}

void posted_free(struct posted *all)
{
	assert(!all || list_empty(&all->waiting));
	free(all);
}

bool posted_takes(const struct db_prepared *p)
{
	size_t bytes = 0;

	for (int i = 0; i < p->params; i++)
		if (p->values[i].kind == DB_TEXT)
			bytes += strlen(p->values[i].text);
	return p->params > 0 && p->params <= POSTED_PARAMS_MAX && bytes <= ROW_BYTES_MAX;
}

int posted_stmt_new(struct posted *all, const char *sql, int params, struct posted_stmt **ret)
{
	struct buf CLEANUP(buf_done) many = { 0 };
	sqlite3_stmt *stmt = NULL;

	assert(all->magic == POSTED_MAGIC && params > 0);
	sql_over_rows(&many, DIALECT_SQLITE, sql, params, NULL);
	int rc = sqlite3_prepare_v3(all->handle, buf_text(&many), -1, SQLITE_PREPARE_PERSISTENT,
				    &stmt, NULL);
	if (rc != SQLITE_OK)
		return sqlite_translate(rc);
	struct posted_stmt *x = mem_zalloc(1, sizeof(*x));
	x->many = stmt;
	x->params = (size_t)params;
	list_init(&x->link);
	*ret = x;
	return LAPSE_OK;
}

void posted_stmt_free(struct posted_stmt *x)
{
	if (!x)
		return;
	assert(!list_is_linked(&x->link));
	sqlite3_finalize(x->many);
	buf_done(&x->texts);
	free(x->values);
	free(x);
}

static void keep_value(struct posted_stmt *x, struct posted_value *to, const struct db_value *v)
{
	*to = (struct posted_value){ .kind = v->kind, .number = v->number };
	if (v->kind != DB_TEXT)
		return;
	to->at = x->texts.len;
	to->len = strlen(v->text);
	buf_add(&x->texts, v->text, to->len);
}

void posted_add(struct posted *all, struct posted_stmt *x, const struct db_value *values,
		int64_t rows, bool *ret_full)
{
	assert(all->magic == POSTED_MAGIC && x->rows < ROWS_MAX);
	assert(rows < 0 || rows == 1);
	if (x->rows == x->room) {
		x->room = x->room ? 2 * x->room : 8;
		x->values = mem_realloc(x->values, x->room * x->params * sizeof(*x->values));
	}
	for (size_t i = 0; i < x->params; i++)
		keep_value(x, &x->values[x->rows * x->params + i], &values[i]);
	if (x->rows++ == 0)
		list_append(&all->waiting, &x->link);
	all->rows++;
	x->expected = rows < 0 ? rows : (int64_t)x->rows;
	*ret_full = x->rows == ROWS_MAX || x->texts.len >= BYTES_MAX;
}

int64_t posted_rows(const struct posted *all)
{
	return all ? all->rows : 0;
}

static void posted_stmt_clear(struct posted *all, struct posted_stmt *x)
{
	all->rows -= (int64_t)x->rows;
	x->rows = 0;
	buf_clear(&x->texts);
	list_remove(&x->link);
}

static struct posted_stmt *first_waiting(const struct posted *all)
{
	return list_empty(&all->waiting)
		       ? NULL
		       : CONTAINER_OF(all->waiting.next, struct posted_stmt, link);
}

static int posted_stmt_run(struct posted *all, struct posted_stmt *x)
{
	assert(!all->reading && x->rows > 0);
	all->reading = x;
	int rc = sqlite3_step(x->many);
	int64_t changed = sqlite3_changes64(all->handle);
	sqlite3_reset(x->many);
	all->reading = NULL;
	if (rc != SQLITE_DONE)
		return sqlite_translate(rc);
	return x->expected < 0 || changed == x->expected ? LAPSE_OK : LAPSE_ERETRY;
}

int posted_run(struct posted *all)
{
	int r = LAPSE_OK;

	for (struct posted_stmt *x; r == LAPSE_OK && (x = first_waiting(all));) {
		r = posted_stmt_run(all, x);
		posted_stmt_clear(all, x);
	}
	assert(r < 0 || all->rows == 0);
	return r;
}

void posted_drop(struct posted *all)
{
	for (struct posted_stmt *x; all && (x = first_waiting(all));)
		posted_stmt_clear(all, x);
}
