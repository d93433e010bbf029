/* SPDX-License-Identifier: Apache-2.0 */
/* What the files statement*.c share: pieces of SQL. The table of a scan is always called t. */
#ifndef LAPSE_CONTRACT_STATEMENT_PARTS_H
#define LAPSE_CONTRACT_STATEMENT_PARTS_H

#include "contract/statement.h"

static inline bool is_postgres(const struct statement *st)
{
	return st->dialect == DIALECT_POSTGRES;
}

void put_sql(struct statement *st, const char *sql);
void put_column(struct statement *st, const char *alias, const char *column);

/* A parameter; `cast` is PostgreSQL's type for it, NULL = that of what it is compared with. */
void put_param(struct statement *st, struct datum value, const char *cast);

/* The columns of the key, a comma before each, `end` behind each. */
void put_key(struct statement *st, const char *alias, const struct rule *r, const char *end);

/* The columns SCAN_…, with `allowed` as an expression where `judge` says so. */
void put_columns(struct statement *st, const struct rule *r, bool judge);
void put_from(struct statement *st, const struct scan *s); /* up to WHERE */

/* Conditions: the time; everything that protects a row beside it; the group, with AND behind each
 * column; beyond `at_most`; what an index finds; after the last row seen. */
void put_rule_due(struct statement *st, const struct rule *r, lapse_ms cutoff);
void put_allowed(struct statement *st, const struct rule *r);
void put_group(struct statement *st, const char *alias, const struct scan *s);
void put_fixed(struct statement *st, const struct scan *s); /* `only` of the index, with AND */
void put_excess(struct statement *st, const struct scan *s);
void put_reach(struct statement *st, const struct scan *s);
void put_rule_after(struct statement *st, const struct scan *s);
void put_from_time(struct statement *st, const struct scan *s);  /* only by the time */
void put_rule_order(struct statement *st, const struct scan *s); /* and LIMIT */

#endif
