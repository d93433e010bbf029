/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/statement_parts.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

void statement_init(struct statement *st, enum dialect dialect)
{
	st->dialect = dialect;
	st->sql = (struct buf){ 0 };
	st->count = 0;
	arena_init(&st->arena);
}

void statement_reset(struct statement *st)
{
	buf_clear(&st->sql);
	arena_reset(&st->arena);
	st->count = 0;
}

void statement_done(struct statement *st)
{
	buf_done(&st->sql);
	arena_done(&st->arena);
}

int statement_run(const struct statement *st, struct foreign *f, struct rows *ret)
{
	assert(st->dialect == f->dialect);
	return foreign_run(f, buf_text(&st->sql), st->params, st->count, ret);
}

int statement_read(const struct statement *st, struct foreign *f, struct rows *ret)
{
	assert(st->dialect == f->dialect);
	return foreign_read(f, buf_text(&st->sql), st->params, st->count, ret);
}

void put_sql(struct statement *st, const char *sql)
{
	buf_puts(&st->sql, sql);
}

void put_column(struct statement *st, const char *alias, const char *column)
{
	sql_column(&st->sql, alias, column);
}

void put_param(struct statement *st, struct datum value, const char *cast)
{
	assert(st->count < STATEMENT_PARAMS_MAX);
	st->params[st->count++] = value;
	buf_printf(&st->sql, "%c%zu", is_postgres(st) ? '$' : '?', st->count);
	if (cast && is_postgres(st))
		buf_printf(&st->sql, "::%s", cast);
}

/* As a result: PostgreSQL gives texts that it reads back as the same value. */
static void put_result(struct statement *st, const char *column)
{
	put_column(st, "t", column);
	if (is_postgres(st))
		put_sql(st, "::text");
}

void put_key(struct statement *st, const char *alias, const struct rule *r, const char *end)
{
	for (size_t i = 0; i < r->bound->key.count; i++) {
		put_sql(st, ", ");
		put_column(st, alias, r->bound->key.names[i]);
		put_sql(st, end);
	}
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The cutoff as a whole number of the column's unit: rounded so that the comparison is exact. */
static struct datum whole_cutoff(const struct rule *r, lapse_ms cutoff)
{
	if (r->unit == TIME_MS)
		return datum_int(cutoff);
	if (r->bound->inclusive)
		return datum_int(floor_div(cutoff, 1000));
	return datum_int(floor_div(time_add(cutoff, 999), 1000));
}

static struct datum decimal_cutoff(struct statement *st, const struct rule *r, lapse_ms cutoff)
{
	if (r->unit == TIME_MS)
		return datum_int(cutoff);
	if (!is_postgres(st))
		return (struct datum){ .kind = DATUM_REAL, .real = (double)cutoff / 1000 };
	lapse_ms whole = floor_div(cutoff, 1000);
	return datum_text(arena_printf(&st->arena, "%lld.%03d", (long long)whole,
				       (int)(cutoff - whole * 1000)));
}

static struct datum stamp_cutoff(struct statement *st, lapse_ms cutoff)
{
	char text[TIME_TEXT_LEN + 1];

	time_format(cutoff, text);
	return datum_text(arena_strdup(&st->arena, text));
}

#define DAY_MS INT64_C(86400000)

/* Texts below the day after the day after the cutoff: an offset moves a text by less than a day. */
static void put_text_range(struct statement *st, const struct rule *r, lapse_ms cutoff)
{
	char text[TIME_TEXT_LEN + 1];

	time_format(time_add(cutoff, 2 * DAY_MS), text);
	text[10] = '\0';
	put_column(st, "t", r->bound->time_column);
	put_sql(st, " > '' AND ");
	put_column(st, "t", r->bound->time_column);
	put_sql(st, " < ");
	put_param(st, datum_text(arena_strdup(&st->arena, text)), NULL);
}

void put_rule_due(struct statement *st, const struct rule *r, lapse_ms cutoff)
{
	const char *column = r->bound->time_column;

	if (r->time == RULE_TIME_JUDGED) {
		put_text_range(st, r, cutoff);
		return;
	}
	put_column(st, "t", column);
	put_sql(st, r->bound->inclusive ? " <= " : " < ");
	switch (r->time) {
	case RULE_TIME_INT:
		put_param(st, whole_cutoff(r, cutoff), "bigint");
		return;
	case RULE_TIME_DECIMAL:
		put_param(st, decimal_cutoff(st, r, cutoff), "numeric");
		return;
	case RULE_TIME_STAMP:
		put_param(st, stamp_cutoff(st, cutoff),
			  r->time_class == COLUMN_TIMESTAMPTZ ? "timestamptz" : "timestamp");
		put_sql(st, " AND isfinite(");
		put_column(st, "t", column);
		put_sql(st, ")");
		return;
	case RULE_TIME_JUDGED:
		break;
	}
	assert(0 && "judged texts are a range");
}

static bool is_number_text(const char *text, bool *ret_whole)
{
	char *end;

	errno = 0;
	(void)strtoll(text, &end, 10);
	*ret_whole = !errno && end != text && !*end;
	errno = 0;
	(void)strtod(text, &end);
	return !errno && end != text && !*end && strspn(text, "+-.0123456789eE") == strlen(text);
}

/* A value of `only`. PostgreSQL reads texts as the column's type. SQLite compares by the kind of
 * the value, so a word becomes what a column of that type holds. */
static struct datum given_datum(const struct statement *st, const struct contract_value *v,
				const struct table_column *c)
{
	bool whole;

	assert(v->kind != GIVEN_NULL);
	if (is_postgres(st) || v->kind == GIVEN_TEXT || c->class == COLUMN_TEXT)
		return datum_text(v->text);
	if (is_number_text(v->text, &whole))
		return whole ? datum_int(strtoll(v->text, NULL, 10))
			     : (struct datum){ .kind = DATUM_REAL, .real = strtod(v->text, NULL) };
	if (strcmp(v->text, "true") == 0 || strcmp(v->text, "false") == 0)
		return datum_int(v->text[0] == 't');
	return datum_text(v->text);
}

static void put_rule_filter(struct statement *st, const struct rule *r,
			    const struct contract_filter *f)
{
	const struct table_column *c = relation_column(r->relation, f->column);

	assert(c && f->count > 0);
	put_column(st, "t", f->column);
	if (f->values[0].kind == GIVEN_NULL) {
		put_sql(st, f->negated ? " IS NOT NULL" : " IS NULL");
		return;
	}
	if (f->count == 1) {
		put_sql(st, f->negated ? " <> " : " = ");
		put_param(st, given_datum(st, &f->values[0], c), NULL);
		return;
	}
	for (size_t i = 0; i < f->count; i++) {
		put_sql(st, i ? ", " : " IN (");
		put_param(st, given_datum(st, &f->values[i], c), NULL);
	}
	put_sql(st, ")");
}

static void put_unless(struct statement *st, const struct contract_reference *ref)
{
	put_sql(st, "NOT EXISTS (SELECT 1 FROM ");
	sql_table(&st->sql, ref->schema, ref->table);
	put_sql(st, " AS r WHERE ");
	for (size_t i = 0; i < ref->theirs.count; i++) {
		put_sql(st, i ? " AND " : "");
		put_column(st, "r", ref->theirs.names[i]);
		put_sql(st, " = ");
		put_column(st, "t", ref->ours.names[i]);
	}
	put_sql(st, ")");
}

/* (alias.time, alias.key …) */
static void put_position(struct statement *st, const char *alias, const struct rule *r)
{
	put_sql(st, "(");
	put_column(st, alias, r->bound->time_column);
	put_key(st, alias, r, "");
	put_sql(st, ")");
}

static void put_readable(struct statement *st, const char *alias, const struct rule *r)
{
	put_column(st, alias, r->bound->time_column);
	put_sql(st, r->time == RULE_TIME_JUDGED ? " > ''" : " IS NOT NULL");
}

/* At least `count` newer rows are in the row's group. A group of NULL is none: its rows stay. */
static void put_keep_newest(struct statement *st, const struct rule *r)
{
	const struct contract_quota *q = &r->bound->keep_newest;

	put_sql(st, "(SELECT count(*) FROM (SELECT 1 FROM ");
	sql_table(&st->sql, r->relation->schema, r->relation->table);
	put_sql(st, " AS x WHERE ");
	for (size_t i = 0; i < q->per.count; i++) {
		put_column(st, "x", q->per.names[i]);
		put_sql(st, " = ");
		put_column(st, "t", q->per.names[i]);
		put_sql(st, " AND ");
	}
	put_readable(st, "x", r);
	put_sql(st, " AND ");
	put_position(st, "x", r);
	put_sql(st, " > ");
	put_position(st, "t", r);
	put_sql(st, " LIMIT ");
	put_param(st, datum_int(q->count), "bigint");
	put_sql(st, ") AS newer) >= ");
	put_param(st, datum_int(q->count), "bigint");
}

/* Everything that protects a row beside its time. */
void put_allowed(struct statement *st, const struct rule *r)
{
	const struct contract_bound *b = r->bound;

	put_sql(st, "(1 = 1");
	for (size_t i = 0; i < b->only_count; i++) {
		put_sql(st, " AND ");
		put_rule_filter(st, r, &b->only[i]);
	}
	for (size_t i = 0; i < r->unless_count; i++) {
		put_sql(st, " AND ");
		put_unless(st, &r->unless[i]);
	}
	if (b->keep_newest.count) {
		put_sql(st, " AND ");
		put_keep_newest(st, r);
	}
	put_sql(st, ")");
}

const struct contract_columns *scan_groups(const struct scan *s)
{
	return s->mode == SCAN_EXCESS ? &s->rule->bound->at_most.per : &s->rule->groups;
}

void put_group(struct statement *st, const char *alias, const struct scan *s)
{
	const struct contract_columns *groups = scan_groups(s);

	for (size_t i = 0; s->group && i < groups->count; i++) {
		put_column(st, alias, groups->names[i]);
		put_sql(st, " = ");
		put_param(st, s->group[i], NULL);
		put_sql(st, " AND ");
	}
}

/* Columns that stand before the time in the index and have one value by `only`. */
void put_fixed(struct statement *st, const struct scan *s)
{
	const struct rule *r = s->rule;

	for (size_t i = 0; s->mode == SCAN_DUE && i < r->fixed_count; i++) {
		put_rule_filter(st, r, r->fixed[i]);
		put_sql(st, " AND ");
	}
}

/* Older than the oldest of the newest `at_most` rows of its group. */
void put_excess(struct statement *st, const struct scan *s)
{
	const struct rule *r = s->rule;

	put_readable(st, "t", r);
	put_sql(st, " AND ");
	put_position(st, "t", r);
	put_sql(st, " < (SELECT ");
	put_column(st, "x", r->bound->time_column);
	put_key(st, "x", r, "");
	put_sql(st, " FROM ");
	sql_table(&st->sql, r->relation->schema, r->relation->table);
	put_sql(st, " AS x WHERE ");
	put_group(st, "x", s);
	put_readable(st, "x", r);
	put_sql(st, " ORDER BY ");
	put_column(st, "x", r->bound->time_column);
	put_sql(st, " DESC");
	put_key(st, "x", r, " DESC");
	put_sql(st, " LIMIT 1 OFFSET ");
	put_param(st, datum_int(r->bound->at_most.count - 1), "bigint");
	put_sql(st, ")");
}

/* Group and time: what an index finds. */
void put_reach(struct statement *st, const struct scan *s)
{
	put_group(st, "t", s);
	put_fixed(st, s);
	if (s->mode == SCAN_EXCESS)
		put_excess(st, s);
	else if (s->rule->walk == RULE_BY_KEY)
		put_sql(st, "1 = 1");
	else
		put_rule_due(st, s->rule, s->cutoff);
}

void put_from_time(struct statement *st, const struct scan *s)
{
	if (!s->after)
		return;
	put_sql(st, " AND ");
	put_column(st, "t", s->rule->bound->time_column);
	put_sql(st, " >= ");
	put_param(st, s->after[0], NULL);
}

void put_rule_after(struct statement *st, const struct scan *s)
{
	const struct rule *r = s->rule;

	if (!s->after)
		return;
	if (r->walk == RULE_BY_KEY && s->mode != SCAN_EXCESS) {
		put_sql(st, " AND ");
		put_column(st, "t", r->bound->key.names[0]);
		put_sql(st, " > ");
		put_param(st, s->after[0], NULL);
		return;
	}
	put_from_time(st, s);
	if (s->only_time)
		return;
	put_sql(st, " AND ");
	put_position(st, "t", r);
	put_sql(st, " > (");
	for (size_t i = 0; i <= r->bound->key.count; i++) {
		put_sql(st, i ? ", " : "");
		put_param(st, s->after[i], NULL);
	}
	put_sql(st, ")");
}

void put_rule_order(struct statement *st, const struct scan *s)
{
	const struct rule *r = s->rule;

	put_sql(st, " ORDER BY ");
	if (r->walk == RULE_BY_KEY && s->mode != SCAN_EXCESS) {
		put_column(st, "t", r->bound->key.names[0]);
	} else {
		put_column(st, "t", r->bound->time_column);
		put_key(st, "t", r, "");
	}
	put_sql(st, " LIMIT ");
	put_param(st, datum_int(s->limit), "bigint");
}

void put_from(struct statement *st, const struct scan *s)
{
	put_sql(st, is_postgres(st) ? " FROM ONLY " : " FROM ");
	sql_table(&st->sql, s->leaf->schema, s->leaf->table);
	put_sql(st, " AS t WHERE ");
}

static void put_ms(struct statement *st, const struct rule *r)
{
	if (r->time != RULE_TIME_STAMP) {
		put_sql(st, "NULL");
		return;
	}
	put_sql(st, "CASE WHEN isfinite(");
	put_column(st, "t", r->bound->time_column);
	put_sql(st, ") THEN floor(extract(epoch FROM ");
	put_column(st, "t", r->bound->time_column);
	put_sql(st, ") * 1000)::bigint END");
}

void put_columns(struct statement *st, const struct rule *r, bool judge)
{
	put_sql(st, is_postgres(st) ? "SELECT t.ctid::text, " : "SELECT NULL, ");
	put_result(st, r->bound->time_column);
	put_sql(st, ", ");
	put_ms(st, r);
	put_sql(st, ", ");
	if (judge)
		put_allowed(st, r);
	else
		put_sql(st, "1 = 1");
	put_key(st, "t", r, is_postgres(st) ? "::text" : "");
}

void statement_scan(struct statement *st, const struct scan *s)
{
	assert(s->limit > 0 && s->leaf);
	assert(s->mode == SCAN_PROBE || !scan_groups(s)->count || s->group);
	put_columns(st, s->rule, true);
	put_from(st, s);
	put_reach(st, s);
	put_rule_after(st, s);
	put_rule_order(st, s);
}

void statement_next_group(struct statement *st, const struct scan *s)
{
	const struct contract_columns *groups = scan_groups(s);

	assert(groups->count > 0);
	for (size_t i = 0; i < groups->count; i++) {
		put_sql(st, i ? ", " : "SELECT ");
		put_result(st, groups->names[i]);
	}
	put_from(st, s);
	put_fixed(st, s);
	put_sql(st, "1 = 1");
	for (size_t i = 0; s->group && i < groups->count; i++) {
		put_sql(st, i ? ", " : " AND (");
		put_column(st, "t", groups->names[i]);
	}
	for (size_t i = 0; s->group && i < groups->count; i++) {
		put_sql(st, i ? ", " : ") > (");
		put_param(st, s->group[i], NULL);
	}
	put_sql(st, s->group ? ") ORDER BY " : " ORDER BY ");
	for (size_t i = 0; i < groups->count; i++) {
		put_sql(st, i ? ", " : "");
		put_column(st, "t", groups->names[i]);
	}
	put_sql(st, " LIMIT 1");
}

void statement_count_together(struct statement *st, const struct rule *rule, lapse_ms cutoff,
			      const struct contract_reference *ref, int64_t cap)
{
	put_sql(st, "SELECT count(*) FROM (SELECT 1 FROM ");
	sql_table(&st->sql, rule->relation->schema, rule->relation->table);
	put_sql(st, " AS t JOIN ");
	sql_table(&st->sql, ref->schema, ref->table);
	put_sql(st, " AS o ON ");
	for (size_t i = 0; i < ref->theirs.count; i++) {
		put_sql(st, i ? " AND " : "");
		put_column(st, "o", ref->theirs.names[i]);
		put_sql(st, " = ");
		put_column(st, "t", ref->ours.names[i]);
	}
	put_sql(st, " WHERE ");
	put_rule_due(st, rule, cutoff);
	put_sql(st, " AND ");
	put_allowed(st, rule);
	put_sql(st, " LIMIT ");
	put_param(st, datum_int(cap), "bigint");
	put_sql(st, ") AS sampled");
}

void statement_count_untimed(struct statement *st, const struct rule *rule, int64_t cap)
{
	put_sql(st, "SELECT count(*) FROM (SELECT 1 FROM ");
	sql_table(&st->sql, rule->relation->schema, rule->relation->table);
	put_sql(st, " AS t WHERE ");
	put_column(st, "t", rule->bound->time_column);
	put_sql(st, " IS NULL");
	if (rule->time == RULE_TIME_JUDGED) {
		put_sql(st, " OR ");
		put_column(st, "t", rule->bound->time_column);
		put_sql(st, " = ''");
	}
	put_sql(st, " LIMIT ");
	put_param(st, datum_int(cap), "bigint");
	put_sql(st, ") AS sampled");
}
