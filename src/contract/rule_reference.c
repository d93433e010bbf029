/* SPDX-License-Identifier: Apache-2.0 */
/* Other tables: those that the bound names, and those whose foreign keys refer to its own. */
#include <assert.h>
#include <string.h>

#include "contract/rule_resolve.h"

static int resolve_reference(struct resolving *s, const struct contract_reference *ref)
{
	struct relation *CLEANUP(relation_freep) theirs = NULL;
	struct buf CLEANUP(buf_done) fix = { 0 };
	size_t errors = s->out->counts[FINDING_ERROR];
	int err = relation_read(s->f, ref->schema, ref->table, &theirs);

	if (err == LAPSE_ENOTFOUND)
		return complain_of_table(s, ref->schema, ref->table, ref->at);
	if (err < 0)
		return err;
	resolve_columns(s, theirs, &ref->theirs);
	resolve_columns(s, s->r, &ref->ours);
	if (s->out->counts[FINDING_ERROR] > errors)
		return LAPSE_OK;
	for (size_t n = ref->theirs.count; n > 0; n--)
		if (resolve_leads(theirs, ref->theirs.names, n))
			return LAPSE_OK;
	resolve_create_index(s, ref->schema, ref->table, ref->theirs.names, ref->theirs.count,
			     &fix);
	finding_add(s->out, FINDING_ERROR, s->b, ref->at, buf_text(&fix),
		    "looking up rows of '%s' needs an index", ref->table);
	return LAPSE_OK;
}

int resolve_references(struct resolving *s)
{
	const struct contract_bound *b = s->b;
	int err = LAPSE_OK;

	assert(s->rule->unless_count == 0 && b->unless_count <= ARRAY_LEN(s->rule->unless));
	for (size_t i = 0; err == LAPSE_OK && i < b->unless_count; i++) {
		s->rule->unless[s->rule->unless_count++] = b->unless[i];
		err = resolve_reference(s, &b->unless[i]);
	}
	for (size_t i = 0; err == LAPSE_OK && i < b->together_count; i++)
		err = resolve_reference(s, &b->together[i]);
	return err;
}

static bool covers(const struct contract_reference *refs, size_t count, const struct foreign_key *k)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(refs[i].table, k->child) == 0 &&
		    strcmp(refs[i].schema, k->child_schema) == 0)
			return true;
	return false;
}

/* A row that a foreign key protects stays, instead of failing its whole slice. */
static void protect_by_key(struct resolving *s, const struct foreign_key *k)
{
	struct rule *rule = s->rule;
	struct contract_reference *ref = &rule->unless[rule->unless_count];

	if (rule->unless_count == ARRAY_LEN(rule->unless) || k->count > CONTRACT_COLUMNS_MAX) {
		complain(s, NULL, "too many foreign keys refer to '%s'", s->r->table);
		return;
	}
	*ref = (struct contract_reference){ .schema = k->child_schema, .table = k->child };
	for (size_t i = 0; i < k->count; i++) {
		const char *ours = k->parent_columns[i];
		if (!ours && i < s->b->key.count)
			ours = s->b->key.names[i]; /* SQLite: the primary key, by its order */
		if (!ours)
			return;
		ref->theirs.names[ref->theirs.count++] = k->child_columns[i];
		ref->ours.names[ref->ours.count++] = ours;
	}
	rule->unless_count++;
}

#define COUNT_CAP 100000

static int tell_of_key(struct resolving *s, const struct foreign_key *k)
{
	const struct contract_bound *b = s->b;
	int64_t rows = 0;
	int err = catalogue_count(s->f, k->child_schema, k->child, COUNT_CAP, &rows);

	assert(k->child && k->count > 0);
	if (err == LAPSE_EFORBIDDEN) {
		complain(s, NULL, "the connection may not read '%s', whose rows refer to '%s'",
			 k->child, s->r->table);
		return LAPSE_OK;
	}
	if (err < 0)
		return err;
	const char *more = rows == COUNT_CAP ? "at least " : "";
	if (k->action == ACTION_BLOCKS)
		finding_add(
			s->out, FINDING_WARNING, b, NULL, NULL,
			"a foreign key of '%s' (%s%lld rows, ON DELETE %s) keeps rows it refers "
			"to; say so with 'unless_referenced', or remove its rows with "
			"'together_with'",
			k->child, more, (long long)rows, k->action_name);
	else
		finding_add(
			s->out, FINDING_WARNING, b, NULL, NULL,
			"deleting a row also %s rows of '%s' (%s%lld rows, ON DELETE %s); say so "
			"with 'together_with'",
			k->action == ACTION_CASCADES ? "deletes" : "changes", k->child, more,
			(long long)rows, k->action_name);
	return LAPSE_OK;
}

static int resolve_foreign_key(struct resolving *s, const struct foreign_key *k)
{
	struct relation *CLEANUP(relation_freep) child = NULL;
	struct buf CLEANUP(buf_done) fix = { 0 };
	const struct contract_bound *b = s->b;
	bool together = covers(b->together, b->together_count, k);
	bool unless = covers(b->unless, b->unless_count, k);
	int err = LAPSE_OK;

	if (k->action == ACTION_BLOCKS && !together && !unless)
		protect_by_key(s, k);
	if (!together && !unless)
		err = tell_of_key(s, k);
	if (err == LAPSE_OK)
		err = relation_read(s->f, k->child_schema, k->child, &child);
	if (err < 0)
		return err;
	for (size_t n = k->count; n > 0; n--)
		if (resolve_leads(child, k->child_columns, n))
			return LAPSE_OK;
	resolve_create_index(s, k->child_schema, k->child, k->child_columns, k->count, &fix);
	finding_add(s->out, FINDING_WARNING, b, NULL, buf_text(&fix),
		    "each deletion reads the whole of '%s', whose foreign key has no index",
		    k->child);
	return LAPSE_OK;
}

int resolve_foreign_keys(struct resolving *s)
{
	int err = LAPSE_OK;

	for (size_t i = 0; err == LAPSE_OK && i < s->r->referrers_count; i++)
		err = resolve_foreign_key(s, &s->r->referrers[i]);
	for (size_t i = 0; i < s->r->triggers_count; i++)
		finding_add(s->out, FINDING_NOTE, s->b, NULL, NULL,
			    "the trigger '%s' runs on each deletion", s->r->triggers[i]);
	return err;
}
