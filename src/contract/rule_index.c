/* SPDX-License-Identifier: Apache-2.0 */
/* Which index leads to the due rows, and the statement that makes one where none does. */
#include <assert.h>
#include <string.h>

#include "contract/rule_resolve.h"
#include "contract/statement.h"

void resolve_create_index(const struct resolving *s, const char *schema, const char *table,
			  const char *const *names, size_t count, struct buf *out)
{
	bool postgres = s->f->engine == FOREIGN_POSTGRES;
	struct buf CLEANUP(buf_done) name = { 0 };

	assert(count > 0);
	buf_puts(&name, table);
	for (size_t i = 0; i < count; i++)
		buf_printf(&name, "_%s", names[i]);
	if (name.len > 59) /* PostgreSQL cuts names at 63 bytes */
		name.data[name.len = 59] = '\0';
	buf_puts(&name, "_idx");
	buf_printf(out, "CREATE INDEX %s", postgres ? "CONCURRENTLY " : "");
	sql_name(out, buf_text(&name));
	buf_puts(out, " ON ");
	sql_table(out, postgres ? schema : NULL, table);
	buf_puts(out, " (");
	for (size_t i = 0; i < count; i++) {
		buf_puts(out, i ? ", " : "");
		sql_name(out, names[i]);
	}
	buf_puts(out, ");");
}

/* Whether an index begins with these columns, in any order. */
static bool index_leads(const struct index *i, const char *const *names, size_t count)
{
	size_t found = 0;

	if (i->partial || i->count < count)
		return false;
	for (size_t j = 0; j < count; j++)
		for (size_t k = 0; k < count; k++)
			found += i->columns[j] && strcmp(i->columns[j], names[k]) == 0;
	return found == count;
}

bool resolve_leads(const struct relation *r, const char *const *names, size_t count)
{
	for (size_t i = 0; i < r->indexes_count; i++)
		if (index_leads(&r->indexes[i], names, count))
			return true;
	return false;
}

/* The only value that a column may have, by `only`; NULL = several or any. */
static const struct contract_filter *fixed_by_only(const struct contract_bound *b,
						   const char *column)
{
	for (size_t i = 0; i < b->only_count; i++)
		if (strcmp(b->only[i].column, column) == 0 && !b->only[i].negated &&
		    b->only[i].count == 1 && b->only[i].values[0].kind != GIVEN_NULL)
			return &b->only[i];
	return NULL;
}

/* What stands before the time in an index; false = the index does not serve. */
struct lead {
	struct contract_columns groups; /* whose values must be walked */
	const struct contract_filter *fixed[CONTRACT_FILTERS_MAX];
	size_t fixed_count;
};

static bool leading_columns(const struct resolving *s, const struct index *i, struct lead *ret)
{
	*ret = (struct lead){ .groups.at = s->b->time_at };
	if (i->partial)
		return false;
	for (size_t n = 0; n < i->count; n++) {
		const char *name = i->columns[n];
		if (!name)
			return false;
		if (strcmp(name, s->b->time_column) == 0)
			return true;
		const struct contract_filter *fixed = fixed_by_only(s->b, name);
		const struct table_column *c = relation_column(s->r, name);
		if (fixed)
			ret->fixed[ret->fixed_count++] = fixed;
		else if (c && c->not_null && ret->groups.count < CONTRACT_COLUMNS_MAX)
			ret->groups.names[ret->groups.count++] = name;
		else
			return false;
	}
	return false;
}

/* Counts the groups by walking them, so it costs what a sweep would. */
static int count_groups(struct resolving *s, int64_t *ret)
{
	struct statement CLEANUP(statement_done) st;
	struct rows CLEANUP(rows_done) rows;
	struct datum values[CONTRACT_COLUMNS_MAX];
	struct arena CLEANUP(arena_done) arena;
	struct scan scan = { .rule = s->rule, .leaf = &s->r->leaves[0], .limit = 1 };
	int err = LAPSE_OK;

	assert(s->rule->groups.count > 0);
	rows_init(&rows);
	arena_init(&arena);
	statement_init(&st, s->rule->dialect);
	for (*ret = 0; *ret <= GROUPS_MAX; ++*ret) {
		statement_reset(&st);
		statement_next_group(&st, &scan);
		err = statement_read(&st, s->f, &rows);
		if (err < 0 || rows.count == 0)
			break;
		arena_reset(&arena);
		for (size_t i = 0; i < s->rule->groups.count; i++)
			values[i] = datum_copy(&arena, rows_at(&rows, 0, i));
		scan.group = values;
	}
	return err;
}

static void refuse_index(struct resolving *s, const char *why)
{
	struct buf CLEANUP(buf_done) fix = { 0 };
	const char *names[CONTRACT_FILTERS_MAX + 1];
	size_t n = 0;

	for (size_t i = 0; i < s->b->only_count; i++)
		if (fixed_by_only(s->b, s->b->only[i].column))
			names[n++] = s->b->only[i].column;
	names[n++] = s->b->time_column;
	resolve_create_index(s, s->r->schema, s->r->table, names, n, &fix);
	finding_add(s->out, FINDING_ERROR, s->b, s->b->time_at, buf_text(&fix), "%s", why);
}

/* The index with the fewest columns to walk before the time. */
static bool choose_index(struct resolving *s)
{
	struct lead lead;
	bool found = false;

	for (size_t i = 0; i < s->r->indexes_count; i++) {
		if (!leading_columns(s, &s->r->indexes[i], &lead) ||
		    (found && lead.groups.count >= s->rule->groups.count))
			continue;
		found = true;
		s->rule->index = s->r->indexes[i].name;
		s->rule->groups = lead.groups;
		s->rule->fixed_count = lead.fixed_count;
		memcpy(s->rule->fixed, lead.fixed, sizeof(lead.fixed));
	}
	return found;
}

int resolve_walk(struct resolving *s)
{
	int64_t count = 0;

	assert(s->rule && s->r && !s->rule->groups.count);
	if (s->b->grows_with_key) {
		s->rule->walk = RULE_BY_KEY;
		s->rule->index = "the key";
		return LAPSE_OK;
	}
	if (!choose_index(s)) {
		refuse_index(s, "no index leads to the due rows; every sweep would read the whole "
				"table");
		return LAPSE_OK;
	}
	s->rule->walk = s->rule->groups.count ? RULE_BY_GROUPS : RULE_BY_TIME;
	if (s->rule->walk == RULE_BY_TIME)
		return LAPSE_OK;
	int err = count_groups(s, &count);
	if (err == LAPSE_OK && count > GROUPS_MAX)
		refuse_index(
			s, "the only index that has the time has columns of many values before it");
	return err;
}

/* (per …, time), in this order. */
static bool serves_quota(const struct resolving *s, const struct index *i,
			 const struct contract_quota *q)
{
	return !i->partial && i->count > q->per.count && i->columns[q->per.count] &&
	       strcmp(i->columns[q->per.count], s->b->time_column) == 0 &&
	       index_leads(i, q->per.names, q->per.count);
}

static int resolve_quota(struct resolving *s, const struct contract_quota *q)
{
	struct buf CLEANUP(buf_done) fix = { 0 };
	const char *names[CONTRACT_COLUMNS_MAX + 1];
	size_t errors = s->out->counts[FINDING_ERROR];

	if (q->count == 0)
		return LAPSE_OK;
	resolve_columns(s, s->r, &q->per);
	if (s->out->counts[FINDING_ERROR] > errors)
		return LAPSE_OK;
	for (size_t i = 0; i < s->r->indexes_count; i++)
		if (serves_quota(s, &s->r->indexes[i], q))
			return LAPSE_OK;
	memcpy(names, q->per.names, q->per.count * sizeof(*names));
	names[q->per.count] = s->b->time_column;
	resolve_create_index(s, s->r->schema, s->r->table, names, q->per.count + 1, &fix);
	finding_add(s->out, FINDING_ERROR, s->b, q->at, buf_text(&fix),
		    "'%s' needs an index on its groups and the time", q->at->key->text);
	return LAPSE_OK;
}

int resolve_quotas(struct resolving *s)
{
	int err = resolve_quota(s, &s->b->keep_newest);

	return err < 0 ? err : resolve_quota(s, &s->b->at_most);
}
