/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rule is a bound of a contract resolved against the database it is for: the relation, how its
 * column holds time, in which order due rows are found, and what protects a row.
 *
 * rule_resolve() finds everything that is wrong with a bound; a rule without an error can be
 * swept. contract/statement.h makes its SQL.
 */
#ifndef LAPSE_CONTRACT_RULE_H
#define LAPSE_CONTRACT_RULE_H

#include "contract/catalogue.h"
#include "contract/finding.h"

#define GROUPS_MAX 10000 /* more values than this are not "few": walking them costs too much */

enum rule_walk {
	RULE_BY_TIME,   /* an index leads with the time */
	RULE_BY_GROUPS, /* an index leads with few-valued columns: one walk for each value */
	RULE_BY_KEY,    /* the key grows with the time */
};

/* How values of the time column compare with a cutoff. */
enum rule_time {
	RULE_TIME_INT,     /* an integer, in ms or s */
	RULE_TIME_DECIMAL, /* a number with a fraction, in ms or s */
	RULE_TIME_STAMP,   /* timestamptz, timestamp or date */
	RULE_TIME_JUDGED,  /* a text that C parses */
};

struct rule {
	const struct contract_bound *bound; /* borrowed from the contract */
	enum dialect dialect;
	struct relation *relation;
	enum contract_time unit;
	enum rule_time time;
	enum column_class time_class;
	enum rule_walk walk;

	/* RULE_BY_GROUPS: the columns whose values are walked. Those that `only` gives one value
	 * are not among them. */
	struct contract_columns groups;

	/* The columns before the time in the index that `only` gives one value. */
	const struct contract_filter *fixed[CONTRACT_FILTERS_MAX];
	size_t fixed_count;

	/* Those of the bound, and foreign keys that would block a deletion. */
	struct contract_reference unless[2 * CONTRACT_REFERENCES_MAX];
	size_t unless_count;
	const char *index; /* its name, for people */
};

/* Resolves one bound. LAPSE_OK also when there are findings; then *ret is NULL if one of them is an
 * error. Negative only when the database failed: foreign_error() says how. */
int rule_resolve(struct foreign *f, const struct contract_bound *b, struct findings *out,
		 struct rule **ret);
void rule_free(struct rule *r); /* takes NULL */
void rule_freep(struct rule **r);

/* now − keep; what a row's time is compared with. */
lapse_ms rule_cutoff(const struct rule *r, lapse_ms now);

/* The time in a text column, by the unit's formats; false = unreadable. */
bool rule_parse_time(const struct rule *r, const char *text, lapse_ms *ret);

/* Whether a readable time is due at a cutoff. */
static inline bool rule_is_due(const struct rule *r, lapse_ms at, lapse_ms cutoff)
{
	return r->bound->inclusive ? at <= cutoff : at < cutoff;
}

/* Whether the row itself says all: no text that is judged, no other row, no other table. */
bool rule_is_plain(const struct rule *r);

#endif
