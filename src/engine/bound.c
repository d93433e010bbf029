/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a spec to its statements. A rule is put together by put_row_rule(), put_protection() and
 * put_bound_after(); every statement is made of these, so that no two of them can disagree.
 */
#include "engine/bound.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"

#define T "t" /* the alias of the bound's table */

size_t bound_keys(const struct bound_spec *spec)
{
	size_t n = 0;

	while (spec->key[n].name)
		n++;
	assert(n >= 1 && n <= BOUND_KEYS_MAX);
	return n;
}

static void put_bound_value(struct buf *out, enum dialect dialect, const struct bound_value *v)
{
	assert(v->kind == VALUE_INT || v->kind == VALUE_TEXT);
	if (v->kind == VALUE_INT)
		buf_int(out, v->number);
	else
		sql_text(out, dialect, v->text);
}

/* Values that `=` can compare; the rest is NULL. */
static size_t put_in_list(struct buf *out, enum dialect dialect, const struct bound_value *values)
{
	size_t n = 0;

	for (const struct bound_value *v = values; v->kind != VALUE_END; v++) {
		if (v->kind == VALUE_NULL)
			continue;
		buf_puts(out, n++ ? ", " : " IN (");
		put_bound_value(out, dialect, v);
	}
	if (n)
		buf_putc(out, ')');
	return n;
}

static bool has_null(const struct bound_value *values)
{
	for (; values->kind != VALUE_END; values++)
		if (values->kind == VALUE_NULL)
			return true;
	return false;
}

/* One value is compared with `=`: that is what SQLite recognizes a partial index by. */
static void put_test(struct buf *out, enum dialect dialect, const struct bound_test *test)
{
	const struct bound_value *v = test->values;
	bool single = v[0].kind != VALUE_NULL && v[1].kind == VALUE_END;
	bool values = v[0].kind != VALUE_NULL || v[1].kind != VALUE_END;
	bool null = has_null(v) || test->not_;

	assert(v[0].kind != VALUE_END);
	if (values && null)
		buf_putc(out, '(');
	if (values) {
		sql_column(out, T, test->column);
		if (single) {
			buf_puts(out, test->not_ ? " <> " : " = ");
			put_bound_value(out, dialect, v);
		} else {
			buf_puts(out, test->not_ ? " NOT" : "");
			put_in_list(out, dialect, v);
		}
	}
	if (values && null)
		buf_puts(out, test->not_ ? " AND " : " OR ");
	if (null) {
		sql_column(out, T, test->column);
		buf_puts(out, test->not_ ? " IS NOT NULL" : " IS NULL");
	}
	if (values && null)
		buf_putc(out, ')');
}

void bound_put_tests(struct buf *out, enum dialect dialect, const struct bound_test *tests)
{
	for (; tests && tests->column; tests++) {
		buf_puts(out, " AND ");
		put_test(out, dialect, tests);
	}
}

/* Due, and allowed to go by its own columns: what a DELETE can check on the row itself. */
static void put_row_rule(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	assert(s->time);
	sql_column(out, T, s->time);
	buf_puts(out, s->op == DUE_AT ? " <= $1" : " < $1");
	if (s->walk == WALK_KEY && s->key_is_id) { /* ids made before the cutoff end the walk */
		buf_puts(out, " AND ");
		sql_column(out, T, s->key[0].name);
		buf_printf(out, " < $1 * %" PRId64, id_floor(1));
	}
	bound_put_tests(out, dialect, s->only);
}

void bound_put_references(struct buf *out, const struct bound_reference *references)
{
	for (const struct bound_reference *r = references; r && r->table; r++) {
		buf_puts(out, " AND NOT EXISTS (SELECT 1 FROM ");
		sql_table(out, r->schema, r->table);
		buf_puts(out, " AS r WHERE ");
		for (const struct bound_pair *on = r->on; on->theirs; on++) {
			buf_puts(out, on > r->on ? " AND " : "");
			sql_column(out, "r", on->theirs);
			buf_puts(out, " = ");
			sql_column(out, T, on->ours);
		}
		buf_putc(out, ')');
	}
}

/* What other rows say: references, and holds that have not ended at $now. */
static void put_protection(struct buf *out, enum dialect dialect, const struct bound_spec *s,
			   int now)
{
	assert(now > 1);
	bound_put_references(out, s->unless_referenced);
	if (!bound_is_held(s))
		return;
	buf_puts(out, " AND NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.tbl = ");
	sql_text(out, dialect, s->held_as);
	buf_puts(out, " AND h.ref = ");
	sql_column(out, T, s->held_by ? s->held_by : s->key[0].name);
	buf_printf(out, " AND h.until > $%d)", now);
}

static void put_bound_keys(struct buf *out, const struct bound_spec *s, const char *before)
{
	for (const struct bound_key *k = s->key; k->name; k++) {
		buf_puts(out, k > s->key ? ", " : before);
		sql_column(out, T, k->name);
	}
}

static void put_bound_order(struct buf *out, const struct bound_spec *s)
{
	buf_puts(out, " ORDER BY ");
	if (s->walk == WALK_TIME)
		sql_column(out, T, s->time);
	put_bound_keys(out, s, s->walk == WALK_TIME ? ", " : "");
}

/* Goes on behind a row. The next free parameter is returned. */
static int put_bound_after(struct buf *out, const struct bound_spec *s, int param)
{
	buf_puts(out, " AND (");
	if (s->walk == WALK_TIME)
		sql_column(out, T, s->time);
	put_bound_keys(out, s, s->walk == WALK_TIME ? ", " : "");
	buf_puts(out, ") > (");
	for (size_t i = 0, n = bound_keys(s) + (s->walk == WALK_TIME); i < n; i++)
		buf_printf(out, "%s$%d", i ? ", " : "", param++);
	buf_putc(out, ')');
	return param;
}

/* FROM … LIMIT of the rows to take next. */
static void put_candidates(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	buf_puts(out, " FROM ");
	sql_table(out, s->schema, bound_table(s));
	buf_puts(out, " AS " T " WHERE ");
	put_row_rule(out, dialect, s);
	put_protection(out, dialect, s, put_bound_after(out, s, 3));
	put_bound_order(out, s);
	buf_puts(out, " LIMIT $2");
	if (dialect == DIALECT_POSTGRES)
		buf_puts(out, " FOR UPDATE OF " T " SKIP LOCKED");
}

static void put_name_or(struct buf *out, const char *column, const char *fallback)
{
	buf_puts(out, ", ");
	if (column)
		sql_name(out, column);
	else
		buf_puts(out, fallback);
}

/* Without the alias: SQLite's RETURNING does not know it. */
static void put_returning(struct buf *out, const struct bound_spec *s)
{
	buf_puts(out, " RETURNING ");
	sql_name(out, s->time);
	for (const struct bound_key *k = s->key; k->name; k++)
		put_name_or(out, k->name, NULL);
	put_name_or(out, s->owner, "''");
	put_name_or(out, s->group, "''");
	put_name_or(out, s->since, "0");
	put_name_or(out, s->bytes, "0");
	for (const char *const *c = s->more; c && *c; c++)
		put_name_or(out, *c, NULL);
}

static void put_delete(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	buf_puts(out, "DELETE FROM ");
	sql_table(out, s->schema, bound_table(s));
	buf_puts(out, " AS " T " WHERE ");
	put_row_rule(out, dialect, s);
}

/* SQLite: one statement, which nothing comes between. */
static void put_prune(struct buf *out, const struct bound_spec *s)
{
	bool row = bound_keys(s) > 1;

	put_delete(out, DIALECT_SQLITE, s);
	buf_puts(out, row ? " AND (" : " AND ");
	put_bound_keys(out, s, "");
	buf_puts(out, row ? ") IN (SELECT " : " IN (SELECT ");
	put_bound_keys(out, s, "");
	put_candidates(out, DIALECT_SQLITE, s);
	buf_putc(out, ')');
	put_returning(out, s);
}

/* PostgreSQL: the rows that `lock` found, with the whole rule once more. */
static void put_prune_locked(struct buf *out, const struct bound_spec *s)
{
	static const char *const arrays[] = { "bigint[]", "text[]", "uuid[]" };
	int param = 2;

	put_delete(out, DIALECT_POSTGRES, s);
	buf_puts(out, " AND (");
	put_bound_keys(out, s, "");
	buf_puts(out, ") IN (SELECT * FROM unnest(");
	for (const struct bound_key *k = s->key; k->name; k++) {
		assert(k->type < ARRAY_LEN(arrays));
		buf_printf(out, "%s$%d::%s", k > s->key ? ", " : "", param++, arrays[k->type]);
	}
	buf_puts(out, "))");
	put_protection(out, DIALECT_POSTGRES, s, param);
	put_returning(out, s);
}

static void put_selects(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	assert(s->selects);
	buf_puts(out, "SELECT ");
	buf_puts(out, s->selects);
	put_candidates(out, dialect, s);
}

/* Counts along the walk, so that an index ends it at the first row that is not due. */
static void put_bound_due(struct buf *out, enum dialect dialect, const struct bound_spec *s,
			  bool own)
{
	buf_puts(out, "SELECT count(*), min(due.at) FROM (SELECT ");
	sql_column(out, T, s->time);
	buf_puts(out, " AS at");
	if (own) {
		buf_puts(out, ", ");
		sql_column(out, T, s->owner);
		buf_puts(out, " AS owner");
	}
	buf_puts(out, " FROM ");
	sql_table(out, s->schema, bound_table(s));
	buf_puts(out, " AS " T " WHERE ");
	put_row_rule(out, dialect, s);
	put_protection(out, dialect, s, 3);
	buf_puts(out, " ORDER BY ");
	sql_column(out, T, s->walk == WALK_TIME ? s->time : s->key[0].name);
	buf_puts(out, " LIMIT $2) AS due");
	if (own)
		buf_printf(out, " WHERE due.owner = $%d", bound_is_held(s) ? 4 : 3);
}

static void put_referenced(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	buf_puts(out, "SELECT count(*) FROM (SELECT 1 AS one FROM ");
	sql_table(out, s->schema, bound_table(s));
	buf_puts(out, " AS " T " WHERE ");
	put_row_rule(out, dialect, s);
	buf_puts(out, " AND NOT (1 = 1");
	bound_put_references(out, s->unless_referenced);
	buf_puts(out, ") LIMIT $2) AS kept");
}

static void put_newest(struct buf *out, const struct bound_spec *s)
{
	buf_puts(out, "SELECT coalesce(max(");
	sql_column(out, T, s->key[0].name);
	buf_puts(out, "), 0) FROM ");
	sql_table(out, s->schema, bound_table(s));
	buf_puts(out, " AS " T);
}

static void put_owned_rows(struct buf *out, const struct bound_spec *s)
{
	assert(s->owner);
	buf_puts(out, " FROM ");
	sql_table(out, s->schema, bound_table(s));
	buf_puts(out, " AS " T " WHERE ");
	sql_column(out, T, s->owner);
	buf_puts(out, " = $1");
}

/* The row of an owner by the name that clients know, or by its id. */
static void put_named_row(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	int param = 2;

	put_owned_rows(out, s);
	if (!s->named_by) {
		buf_puts(out, " AND ");
		sql_column(out, T, s->key[0].name);
		buf_puts(out, " = $2");
	}
	for (const char *const *c = s->named_by; c && *c; c++) {
		buf_puts(out, " AND ");
		sql_column(out, T, *c);
		buf_printf(out, " = $%d", param++);
	}
	bound_put_tests(out, dialect, s->hold_only);
}

/* Placing a hold keeps a sweep away from the row until it has committed. */
static void put_find(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	buf_puts(out, "SELECT ");
	sql_column(out, T, s->key[0].name);
	put_named_row(out, dialect, s);
	if (dialect == DIALECT_POSTGRES)
		buf_puts(out, " FOR KEY SHARE");
}

static void put_held_rows(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	buf_puts(out, "SELECT count(*) FROM holds AS h JOIN ");
	sql_table(out, s->schema, bound_table(s));
	buf_puts(out, " AS " T " ON ");
	sql_column(out, T, s->held_by ? s->held_by : s->key[0].name);
	buf_puts(out, " = h.ref WHERE h.tbl = ");
	sql_text(out, dialect, s->held_as);
	buf_puts(out, " AND h.until > $2 AND ");
	put_row_rule(out, dialect, s);
	bound_put_references(out, s->unless_referenced);
}

static void put_row_columns(struct buf *out, const char *const *columns)
{
	for (; columns && *columns; columns++) {
		buf_puts(out, ", ");
		sql_column(out, T, *columns);
	}
}

/* What `look` and `look_by` select. */
static void put_looked_at(struct buf *out, enum dialect dialect, const struct bound_spec *s)
{
	buf_puts(out, "SELECT ");
	sql_column(out, T, s->key[0].name);
	buf_puts(out, ", ");
	sql_column(out, T, s->time);
	buf_puts(out, ", CASE WHEN 1 = 1");
	bound_put_tests(out, dialect, s->only);
	buf_puts(out, " THEN 1 ELSE 0 END, CASE WHEN 1 = 1");
	bound_put_references(out, s->unless_referenced);
	buf_puts(out, " THEN 1 ELSE 0 END, ");
	sql_column(out, T, s->held_by ? s->held_by : s->key[0].name);
	put_row_columns(out, s->named_by);
	put_row_columns(out, s->shown);
}

static void compile_looks(const struct bound_spec *s, enum dialect dialect, struct bound_sql *ret)
{
	struct buf look = { 0 }, look_by = { 0 };

	put_looked_at(&look, dialect, s);
	put_named_row(&look, dialect, s);
	ret->look.sql = buf_take(&look);
	if (!s->known_by)
		return;
	put_looked_at(&look_by, dialect, s);
	put_owned_rows(&look_by, s);
	buf_printf(&look_by, " AND (%s)", s->known_by);
	bound_put_tests(&look_by, dialect, s->hold_only);
	ret->look_by.sql = buf_take(&look_by);
}

static void compile_removal(const struct bound_spec *s, enum dialect dialect, struct bound_sql *ret)
{
	struct buf due = { 0 }, own_due = { 0 }, prune = { 0 }, lock = { 0 };

	put_bound_due(&due, dialect, s, false);
	if (s->owner) {
		put_bound_due(&own_due, dialect, s, true);
		ret->own_due.sql = buf_take(&own_due);
	}
	if (s->selects)
		put_selects(&prune, dialect, s);
	else if (dialect == DIALECT_SQLITE)
		put_prune(&prune, s);
	else {
		buf_puts(&lock, "SELECT ");
		put_bound_keys(&lock, s, "");
		put_candidates(&lock, dialect, s);
		put_prune_locked(&prune, s);
		ret->lock.sql = buf_take(&lock);
	}
	assert(due.len > 0 && prune.len > 0);
	ret->due.sql = buf_take(&due);
	ret->prune.sql = buf_take(&prune);
}

static void compile_referenced(const struct bound_spec *s, enum dialect dialect,
			       struct bound_sql *ret)
{
	struct buf referenced = { 0 };

	if (!s->unless_referenced)
		return;
	put_referenced(&referenced, dialect, s);
	ret->referenced.sql = buf_take(&referenced);
}

static const char *what_is_wrong(const struct bound_spec *s)
{
	bool number = s->key[0].name && !s->key[1].name && s->key[0].type == BOUND_INT;

	if (!s->key[0].name)
		return "it has no key";
	for (size_t i = 0; s->key[i].name; i++)
		if (i >= BOUND_KEYS_MAX)
			return "its key has too many columns";
	if (s->walk != WALK_MEMORY && !s->time)
		return "it has no time column";
	if (s->unit != UNIT_MS)
		return "its time is not in milliseconds";
	if (s->key_is_id && !number)
		return "its key is not one number";
	if (bound_is_held(s) && !s->held_by && !number)
		return "holds refer to a number, and its key is none";
	if (s->holdable && (!number || !s->owner))
		return "rows that can be held need an owner and a number as their key";
	if (s->together_with || s->keep_newest.count || s->at_most.count)
		return "it asks for what only a contract's own sweep does";
	return NULL;
}

int bound_compile(const struct bound_spec *spec, enum dialect dialect, struct bound_sql *ret,
		  struct problem *p)
{
	const char *wrong = what_is_wrong(spec);

	if (wrong)
		return problem_set(p, LAPSE_EINVAL, "bound", "the bound %.60s: %s", spec->name,
				   wrong);
	assert(spec->name);
	*ret = (struct bound_sql){ 0 };
	if (spec->walk != WALK_MEMORY) {
		compile_removal(spec, dialect, ret);
		compile_referenced(spec, dialect, ret);
	}
	if (spec->key_is_id) {
		struct buf newest = { 0 };
		put_newest(&newest, spec);
		ret->newest.sql = buf_take(&newest);
	}
	if (bound_is_held(spec) && spec->walk != WALK_MEMORY) {
		struct buf held = { 0 };
		put_held_rows(&held, dialect, spec);
		ret->held.sql = buf_take(&held);
	}
	if (spec->owner && spec->key_is_id)
		compile_looks(spec, dialect, ret);
	if (spec->holdable) {
		struct buf find = { 0 };
		put_find(&find, dialect, spec);
		ret->find.sql = buf_take(&find);
	}
	return LAPSE_OK;
}

static void free_text(struct db_stmt *stmt)
{
	free((char *)(uintptr_t)stmt->sql);
	stmt->sql = NULL;
}

void bound_sql_done(struct bound_sql *sql)
{
	free_text(&sql->due);
	free_text(&sql->own_due);
	free_text(&sql->prune);
	free_text(&sql->newest);
	free_text(&sql->find);
	free_text(&sql->lock);
	free_text(&sql->held);
	free_text(&sql->look);
	free_text(&sql->look_by);
	free_text(&sql->referenced);
}
