/* SPDX-License-Identifier: Apache-2.0 */
/* Statements that lock and delete. */
#include <assert.h>

#include "contract/statement_parts.h"

/* The whole rule: time, group, and what protects a row. */
static void put_scan_rule(struct statement *st, const struct scan *s)
{
	put_group(st, "t", s);
	if (s->mode == SCAN_EXCESS)
		put_excess(st, s);
	else
		put_rule_due(st, s->rule, s->cutoff);
	put_sql(st, " AND ");
	put_allowed(st, s->rule);
}

/* The array comes from a subquery: of one that the planner knows it would judge every element,
 * which takes several times as long as removing the rows. */
static void put_places(struct statement *st, const char *places)
{
	assert(is_postgres(st) && places[0] == '{');
	put_sql(st, "t.ctid = ANY((SELECT ");
	put_param(st, datum_text(places), "tid[]");
	put_sql(st, ")::tid[])");
}

void statement_lock(struct statement *st, const struct scan *s, const char *places)
{
	put_columns(st, s->rule, false);
	put_from(st, s);
	put_places(st, places);
	put_sql(st, " AND ");
	put_scan_rule(st, s);
	put_sql(st, " FOR UPDATE OF t SKIP LOCKED");
}

void statement_remove_places(struct statement *st, const struct scan *s, const char *places,
			     const char *times)
{
	assert((s->rule->time == RULE_TIME_JUDGED && s->mode == SCAN_DUE) == (times != NULL));
	put_sql(st, "DELETE");
	put_from(st, s);
	put_places(st, places);
	if (times) {
		put_sql(st, " AND ");
		put_column(st, "t", s->rule->bound->time_column);
		put_sql(st, "::text IN (SELECT unnest(");
		put_param(st, datum_text(times), "text[]");
		put_sql(st, "))");
	}
	put_sql(st, " AND ");
	put_scan_rule(st, s);
}

void statement_remove_plain(struct statement *st, const struct scan *s, const char *places)
{
	assert(rule_is_plain(s->rule) && s->mode == SCAN_DUE);
	put_sql(st, "DELETE");
	put_from(st, s);
	put_sql(st, "t.ctid = ANY(ARRAY(SELECT t.ctid");
	put_from(st, s);
	put_places(st, places);
	put_sql(st, " AND ");
	put_scan_rule(st, s);
	put_sql(st, " FOR UPDATE OF t SKIP LOCKED)) AND ");
	put_scan_rule(st, s);
}

void statement_together_places(struct statement *st, const struct scan *s,
			       const struct contract_reference *ref, const char *places)
{
	put_sql(st, "DELETE FROM ");
	sql_table(&st->sql, ref->schema, ref->table);
	put_sql(st, " AS o USING ONLY ");
	sql_table(&st->sql, s->leaf->schema, s->leaf->table);
	put_sql(st, " AS t WHERE ");
	put_places(st, places);
	for (size_t i = 0; i < ref->theirs.count; i++) {
		put_sql(st, " AND ");
		put_column(st, "o", ref->theirs.names[i]);
		put_sql(st, " = ");
		put_column(st, "t", ref->ours.names[i]);
	}
}

/* `timed`: the text of its time must be the one that was judged, too. */
static void put_page_row(struct statement *st, const struct rule *r, const struct rows *page,
			 size_t row, bool timed)
{
	for (size_t i = 0; i < r->bound->key.count; i++) {
		put_sql(st, i ? ", " : "");
		put_param(st, *rows_at(page, row, SCAN_KEY + i), NULL);
	}
	if (timed) {
		put_sql(st, ", ");
		put_param(st, *rows_at(page, row, SCAN_TIME), NULL);
	}
}

/* One column is compared with a list of values, several with a list of rows. */
static void put_page_rows(struct statement *st, const struct rule *r, const struct page_rows *p,
			  bool timed)
{
	bool several = r->bound->key.count + timed > 1;

	assert(!is_postgres(st) && p->count > 0 && p->count <= page_rows_max(r));
	put_sql(st, several ? "(" : "");
	for (size_t i = 0; i < r->bound->key.count; i++) {
		put_sql(st, i ? ", " : "");
		put_column(st, "t", r->bound->key.names[i]);
	}
	if (timed) {
		put_sql(st, ", ");
		put_column(st, "t", r->bound->time_column);
	}
	put_sql(st, several ? ") IN (VALUES " : " IN ");
	for (size_t i = 0; i < p->count; i++) {
		put_sql(st, i ? ", " : several ? "" : "(");
		put_sql(st, several ? "(" : "");
		put_page_row(st, r, p->page, p->rows[i], timed);
		put_sql(st, several ? ")" : "");
	}
	put_sql(st, ")");
}

size_t page_rows_max(const struct rule *r)
{
	return PAGE_VALUES_MAX / (r->bound->key.count + 1);
}

void statement_remove_rows(struct statement *st, const struct scan *s, const struct page_rows *p)
{
	put_sql(st, "DELETE");
	put_from(st, s);
	put_page_rows(st, s->rule, p, s->rule->time == RULE_TIME_JUDGED && s->mode == SCAN_DUE);
	put_sql(st, " AND ");
	put_scan_rule(st, s);
}

void statement_together_rows(struct statement *st, const struct scan *s,
			     const struct contract_reference *ref, const struct page_rows *p)
{
	put_sql(st, "DELETE FROM ");
	sql_table(&st->sql, ref->schema, ref->table);
	put_sql(st, " AS o WHERE (");
	for (size_t i = 0; i < ref->theirs.count; i++) {
		put_sql(st, i ? ", " : "");
		put_column(st, "o", ref->theirs.names[i]);
	}
	put_sql(st, ") IN (SELECT ");
	for (size_t i = 0; i < ref->ours.count; i++) {
		put_sql(st, i ? ", " : "");
		put_column(st, "t", ref->ours.names[i]);
	}
	put_from(st, s);
	put_page_rows(st, s->rule, p, false);
	put_sql(st, ")");
}

/* The oldest or newest time that is gone: milliseconds, or the number that the column holds. */
static void put_swept_time(struct statement *st, const struct rule *r, const char *time)
{
	if (r->time == RULE_TIME_STAMP)
		buf_printf(&st->sql, "floor(extract(epoch FROM %s) * 1000)::bigint", time);
	else
		buf_printf(&st->sql, "%s::bigint", time);
}

/* On PostgreSQL a table with rules takes no DELETE inside WITH. */
bool statement_can_sweep(const struct scan *s)
{
	const struct rule *r = s->rule;

	return !r->relation->rewritten && s->mode == SCAN_DUE && rule_is_plain(r) &&
	       r->walk != RULE_BY_KEY && r->fixed_count == r->bound->only_count &&
	       (r->time == RULE_TIME_INT || r->time == RULE_TIME_STAMP);
}

/* Rows before the edge are due, because the row at the edge is. That is not said again: SQLite
 * would take the cutoff for the end of the range, and read every due row. */
static void put_below_edge(struct statement *st, const struct scan *s, const struct datum *edge)
{
	put_group(st, "t", s);
	put_fixed(st, s);
	put_column(st, "t", s->rule->bound->time_column);
	put_sql(st, " < ");
	if (edge)
		put_param(st, *edge, NULL);
	else
		put_sql(st, "edge.at");
	put_from_time(st, s);
}

static void put_time_of_row(struct statement *st, const struct scan *s)
{
	put_sql(st, "(SELECT ");
	put_column(st, "t", s->rule->bound->time_column);
	put_sql(st, " AS at");
	put_from(st, s);
}

static void put_time_order(struct statement *st, const struct scan *s, const char *way)
{
	put_sql(st, " ORDER BY ");
	put_column(st, "t", s->rule->bound->time_column);
	put_sql(st, way);
}

void statement_edge(struct statement *st, const struct scan *s)
{
	assert(!is_postgres(st) && statement_can_sweep(s) && s->limit > 0);
	put_sql(st, "SELECT edge.at, ");
	put_time_of_row(st, s);
	put_below_edge(st, s, NULL);
	put_time_order(st, s, " LIMIT 1), ");
	put_time_of_row(st, s);
	put_below_edge(st, s, NULL);
	put_time_order(st, s, " DESC LIMIT 1) FROM ");
	put_time_of_row(st, s);
	put_reach(st, s);
	put_from_time(st, s);
	put_time_order(st, s, " LIMIT 1 OFFSET ");
	put_param(st, datum_int(s->limit), NULL);
	put_sql(st, ") AS edge");
}

void statement_sweep_below(struct statement *st, const struct scan *s, const struct datum *edge)
{
	assert(!is_postgres(st) && statement_can_sweep(s));
	put_sql(st, "DELETE");
	put_from(st, s);
	put_below_edge(st, s, edge);
	put_sql(st, " AND ");
	put_allowed(st, s->rule);
}

void statement_sweep(struct statement *st, const struct scan *s)
{
	const char *time = s->rule->bound->time_column;

	assert(is_postgres(st) && statement_can_sweep(s) && s->limit > 0);
	put_sql(st, "WITH gone AS (DELETE");
	put_from(st, s);
	put_sql(st, "t.ctid = ANY(ARRAY(SELECT t.ctid");
	put_from(st, s);
	put_reach(st, s);
	put_from_time(st, s);
	put_sql(st, " ORDER BY ");
	put_column(st, "t", time);
	put_sql(st, " LIMIT ");
	put_param(st, datum_int(s->limit), "bigint");
	/* For a row that changed meanwhile: servers differ in whether the place is compared again.
	 */
	put_sql(st, ")) AND ");
	put_scan_rule(st, s);
	put_sql(st, " RETURNING ");
	put_column(st, "t", time);
	put_sql(st, " AS at) SELECT count(*), ");
	put_swept_time(st, s->rule, "min(at)");
	put_sql(st, ", ");
	put_swept_time(st, s->rule, "max(at)");
	put_sql(st, ", max(at)::text FROM gone");
}
