/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a bound to a rule, step by step. A step that finds an error leaves the rule unfinished and
 * later steps that depend on it are left out, so one mistake is one finding.
 */
#include "contract/rule_resolve.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "contract/statement.h"

void rule_free(struct rule *r)
{
	if (!r)
		return;
	relation_free(r->relation);
	free(r);
}

void rule_freep(struct rule **r)
{
	rule_free(*r);
}

lapse_ms rule_cutoff(const struct rule *r, lapse_ms now)
{
	return time_sub(now, r->bound->keep);
}

/* "YYYY-MM-DD HH:MM:SS", with an optional fraction, in UTC: what SQLite's datetime() writes. */
static bool parse_datetime(const char *text, lapse_ms *ret)
{
	char iso[48];
	size_t n = strlen(text);

	if (n < 19 || n > 32 || text[10] != ' ')
		return false;
	if (n > 19 && (text[19] != '.' || n == 20 || strspn(text + 20, "0123456789") != n - 20))
		return false;
	snprintf(iso, sizeof(iso), "%.10sT%sZ", text, text + 11);
	return time_parse(iso, ret);
}

bool rule_parse_time(const struct rule *r, const char *text, lapse_ms *ret)
{
	assert(r->time == RULE_TIME_JUDGED);
	switch (r->unit) {
	case TIME_ISO8601:
		return time_parse(text, ret);
	case TIME_SQLITE_DATETIME:
		return parse_datetime(text, ret);
	case TIME_MIXED_TEXT:
		return time_parse(text, ret) || parse_datetime(text, ret);
	case TIME_BY_TYPE:
	case TIME_MS:
	case TIME_S:
	case TIME_TIMESTAMPTZ:
		break;
	}
	assert(0 && "not a text");
	return false;
}

/* Tables whose name is near; the bound may have been written for another schema. */
int complain_of_table(struct resolving *s, const char *schema, const char *table,
		      const struct node *at)
{
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	int err = catalogue_tables(s->f, &rows);
	if (err < 0)
		return err;
	const char **CLEANUP(mem_freep) names = mem_zalloc(rows.count + 1, sizeof(*names));
	for (size_t i = 0; i < rows.count; i++) {
		names[i] = rows_text(&rows, i, 1);
		if (strcmp(names[i], table) == 0) {
			complain(s, at, "there is no table %s.%s, but %s.%s: set 'schema'", schema,
				 table, rows_text(&rows, i, 0), table);
			return LAPSE_OK;
		}
	}
	const char *near = suggest(table, names);
	if (near)
		complain(s, at, "there is no table '%s'; did you mean '%s'?", table, near);
	else
		complain(s, at, "there is no table '%s'", table);
	return LAPSE_OK;
}

int resolve_columns(struct resolving *s, const struct relation *r,
		    const struct contract_columns *columns)
{
	assert(r);
	for (size_t i = 0; i < columns->count; i++) {
		if (relation_column(r, columns->names[i]))
			continue;
		const char *near = relation_suggest(r, columns->names[i]);
		complain(s, columns->at, "'%s' has no column '%s'%s%s%s", r->table,
			 columns->names[i], near ? "; did you mean '" : "", near ? near : "",
			 near ? "'?" : "");
	}
	return LAPSE_OK;
}

static int resolve_relation(struct resolving *s)
{
	const struct contract_bound *b = s->b;
	const struct node *at = node_get(b->at, "table");
	int err = relation_read(s->f, b->schema, b->table, &s->rule->relation);

	if (err == LAPSE_ENOTFOUND)
		return complain_of_table(s, b->schema, b->table, at);
	if (err < 0)
		return err;
	s->r = s->rule->relation;
	if (s->r->kind == RELATION_VIEW)
		complain(s, at, "'%s' is a view; name the table that holds the rows", b->table);
	else if (s->r->kind == RELATION_OTHER || s->r->leaves_count == 0)
		complain(s, at, "'%s' is not a table whose rows can be deleted", b->table);
	else if (!s->r->may_select || !s->r->may_delete)
		complain(s, at, "the connection may not %s rows of '%s'%s",
			 s->r->may_select ? "delete" : "read", b->table,
			 s->f->read_only ? ": the database is read-only" : "");
	return LAPSE_OK;
}

/* SQLite lets a primary key hold NULL; such a row is never found by its key, so it stays. */
static int resolve_key(struct resolving *s)
{
	const struct contract_columns *key = &s->b->key;
	size_t errors = s->out->counts[FINDING_ERROR];

	resolve_columns(s, s->r, key);
	if (s->out->counts[FINDING_ERROR] > errors)
		return LAPSE_OK;
	assert(s->r);
	const struct index *i = relation_unique(s->r, key->names, key->count);
	if (!i) {
		complain(s, key->at,
			 "no primary key or unique index of '%s' has exactly the "
			 "columns of 'key'",
			 s->r->table);
		return LAPSE_OK;
	}
	for (size_t n = 0; n < key->count; n++)
		if (!relation_column(s->r, key->names[n])->not_null &&
		    !(i->primary && s->f->engine == FOREIGN_SQLITE))
			complain(s, key->at, "the key column '%s' may be NULL", key->names[n]);
	return LAPSE_OK;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

#define MS_FROM INT64_C(100000000000) /* as seconds this is the year 5138, as milliseconds 1973 */

/* Milliseconds or seconds: by the column's name, else by the size of a value in it. */
static int guess_integer(struct resolving *s, const struct table_column *c)
{
	struct buf CLEANUP(buf_done) sql = { 0 };
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	if (ends_with(c->name, "_ms") || ends_with(c->name, "Ms")) {
		s->rule->unit = TIME_MS;
		return LAPSE_OK;
	}
	assert(s->r);
	buf_puts(&sql, "SELECT max(v) FROM (SELECT ");
	sql_column(&sql, "t", c->name);
	buf_puts(&sql, " AS v FROM ");
	sql_table(&sql, s->r->schema, s->r->table);
	buf_puts(&sql, " AS t WHERE ");
	sql_column(&sql, "t", c->name);
	buf_puts(&sql, " IS NOT NULL LIMIT 100) AS sampled");
	int err = foreign_read(s->f, buf_text(&sql), NULL, 0, &rows);
	if (err < 0)
		return err;
	if (rows_at(&rows, 0, 0)->kind == DATUM_NULL) {
		complain(s, s->b->time_at,
			 "'%s' is empty, so nothing says whether '%s' holds "
			 "milliseconds or seconds: set 'time: ms' or 'time: s'",
			 s->r->table, c->name);
		return LAPSE_OK;
	}
	s->rule->unit = rows_int(&rows, 0, 0) >= MS_FROM ? TIME_MS : TIME_S;
	finding_add(s->out, FINDING_NOTE, s->b, s->b->time_at, NULL,
		    "'%s' seems to hold %s; set 'time' to be sure", c->name,
		    s->rule->unit == TIME_MS ? "milliseconds" : "seconds");
	return LAPSE_OK;
}

static int guess_unit(struct resolving *s, const struct table_column *c)
{
	switch (c->class) {
	case COLUMN_INT:
	case COLUMN_REAL:
		return guess_integer(s, c);
	case COLUMN_TIMESTAMPTZ:
	case COLUMN_TIMESTAMP:
	case COLUMN_DATE:
		s->rule->unit = TIME_TIMESTAMPTZ;
		return LAPSE_OK;
	case COLUMN_TEXT:
		s->rule->unit = TIME_MIXED_TEXT;
		return LAPSE_OK;
	case COLUMN_UUID:
	case COLUMN_BOOL:
		break;
	case COLUMN_OTHER:
		if (s->f->engine != FOREIGN_SQLITE)
			break;
		s->rule->unit = TIME_MIXED_TEXT; /* DATETIME and the like */
		return LAPSE_OK;
	}
	complain(s, s->b->time_at, "'%s' is of type %s, which holds no time", c->name, c->type);
	return LAPSE_OK;
}

/* How the resolved unit compares; complains where the column's type cannot hold it. */
static void resolve_comparison(struct resolving *s, const struct table_column *c)
{
	struct rule *rule = s->rule;
	bool stamp = c->class == COLUMN_TIMESTAMPTZ || c->class == COLUMN_TIMESTAMP ||
		     c->class == COLUMN_DATE;
	bool number = c->class == COLUMN_INT || c->class == COLUMN_REAL;
	bool any = s->f->engine == FOREIGN_SQLITE && c->class == COLUMN_OTHER;
	bool text = c->class == COLUMN_TEXT || any;
	bool fits = true;

	rule->time_class = c->class;
	switch (rule->unit) {
	case TIME_MS:
	case TIME_S:
		fits = number || any;
		rule->time = c->class == COLUMN_INT ? RULE_TIME_INT : RULE_TIME_DECIMAL;
		break;
	case TIME_TIMESTAMPTZ:
		fits = stamp;
		rule->time = RULE_TIME_STAMP;
		break;
	case TIME_ISO8601:
	case TIME_SQLITE_DATETIME:
	case TIME_MIXED_TEXT:
		fits = text;
		rule->time = RULE_TIME_JUDGED;
		break;
	case TIME_BY_TYPE:
		assert(s->out->counts[FINDING_ERROR] > 0);
		return;
	}
	if (!fits)
		complain(s, s->b->time_at, "'%s' is of type %s, which does not hold time: %s",
			 c->name, c->type[0] ? c->type : "none", contract_time_name(rule->unit));
}

static int resolve_time(struct resolving *s)
{
	const struct contract_bound *b = s->b;
	const struct contract_columns one = { { b->time_column }, 1, b->time_at };
	const struct table_column *c = relation_column(s->r, b->time_column);
	int err = LAPSE_OK;

	if (!c)
		return resolve_columns(s, s->r, &one);
	s->rule->unit = b->unit;
	if (b->unit == TIME_BY_TYPE)
		err = guess_unit(s, c);
	if (err < 0)
		return err;
	resolve_comparison(s, c);
	if ((b->keep_newest.count || b->at_most.count) && s->rule->time == RULE_TIME_JUDGED &&
	    s->rule->unit != TIME_SQLITE_DATETIME)
		complain(s, b->time_at,
			 "'keep_newest' and 'at_most' need times that sort as they "
			 "are: not %s",
			 contract_time_name(s->rule->unit));
	return LAPSE_OK;
}

static int resolve_only(struct resolving *s)
{
	for (size_t i = 0; i < s->b->only_count; i++) {
		const struct contract_filter *f = &s->b->only[i];
		const struct contract_columns one = { { f->column }, 1, f->at };
		resolve_columns(s, s->r, &one);
	}
	return LAPSE_OK;
}

/* Lets the database read the statement of a slice once: values of `only` that its types refuse,
 * functions that are missing, rights on columns. */
static int resolve_probe(struct resolving *s)
{
	struct statement CLEANUP(statement_done) st;
	struct rows CLEANUP(rows_done) rows;
	struct scan scan = { .rule = s->rule, .leaf = &s->r->leaves[0], .cutoff = 0, .limit = 1 };

	rows_init(&rows);
	statement_init(&st, s->rule->dialect);
	if (s->rule->walk == RULE_BY_GROUPS)
		scan.mode = SCAN_PROBE;
	statement_scan(&st, &scan);
	int err = statement_read(&st, s->f, &rows);
	if (err == LAPSE_OK || err == LAPSE_EUNAVAILABLE)
		return err;
	complain(s, NULL, "the database refuses the bound's query: %s", foreign_error(s->f));
	return LAPSE_OK;
}

int rule_resolve(struct foreign *f, const struct contract_bound *b, struct findings *out,
		 struct rule **ret)
{
	static int (*const steps[])(struct resolving *) = {
		resolve_relation, resolve_key,          resolve_time,
		resolve_only,     resolve_references,   resolve_walk,
		resolve_quotas,   resolve_foreign_keys, resolve_probe,
	};
	struct rule *CLEANUP(rule_freep) rule = mem_zalloc(1, sizeof(*rule));
	struct resolving s = { .f = f, .b = b, .out = out, .rule = rule };
	size_t errors = out->counts[FINDING_ERROR];

	*ret = NULL;
	rule->bound = b;
	rule->dialect = f->dialect;
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		int err = steps[i](&s);
		if (err < 0)
			return err;
		/* Key, time, conditions and references are told together; the rest needs them. */
		if (out->counts[FINDING_ERROR] > errors && (i == 0 || i >= 4))
			return LAPSE_OK;
	}
	*ret = rule;
	rule = NULL;
	return LAPSE_OK;
}

bool rule_is_plain(const struct rule *r)
{
	const struct contract_bound *b = r->bound;

	assert(b);
	return r->time != RULE_TIME_JUDGED && r->unless_count == 0 && b->together_count == 0 &&
	       b->keep_newest.count == 0;
}
