/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolving a bound, step by step: rule.c has the table, its key and its time, rule_index.c the
 * index that leads to the due rows, rule_reference.c other tables and foreign keys.
 */
#ifndef LAPSE_CONTRACT_RULE_RESOLVE_H
#define LAPSE_CONTRACT_RULE_RESOLVE_H

#include "contract/rule.h"

struct resolving {
	struct foreign *f;
	const struct contract_bound *b;
	struct findings *out;
	struct rule *rule;
	struct relation *r; /* the rule's */
};

#define complain(s, at, ...) finding_add((s)->out, FINDING_ERROR, (s)->b, at, NULL, __VA_ARGS__)

/* No such table: says which one may be meant. */
int complain_of_table(struct resolving *s, const char *schema, const char *table,
		      const struct node *at);

/* Complains of each column that the relation does not have. */
int resolve_columns(struct resolving *s, const struct relation *r,
		    const struct contract_columns *columns);

/* Whether an index of the relation begins with these columns, in any order. */
bool resolve_leads(const struct relation *r, const char *const *names, size_t count);
void resolve_create_index(const struct resolving *s, const char *schema, const char *table,
			  const char *const *names, size_t count, struct buf *out);

/* Steps. */
int resolve_references(struct resolving *s);
int resolve_walk(struct resolving *s);
int resolve_quotas(struct resolving *s);
int resolve_foreign_keys(struct resolving *s);

#endif
