/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of a rule, for both dialects. Names are quoted by store/sql.h, values are always
 * parameters; nothing else of a contract reaches the text.
 *
 * A slice is made of these:
 *
 *	scan      one page of rows in walking order, each with its time and whether the rule allows
 *		  it to go; it locks nothing
 *	lock      PostgreSQL: the chosen rows that still match, FOR UPDATE SKIP LOCKED
 *	together  rows of other tables that go with them
 *	remove    DELETE of the chosen rows, with the whole rule again; of a plain rule it also
 *		  locks
 *	sweep     PostgreSQL: all of it at once, for a plain rule
 *
 * On PostgreSQL a row is found by its place (ctid) in its leaf table, many at once; lock returns
 * the key again, because a place can be reused. SQLite removes rows by key, some at once.
 */
#ifndef LAPSE_CONTRACT_STATEMENT_H
#define LAPSE_CONTRACT_STATEMENT_H

#include "contract/rule.h"

#define PAGE_VALUES_MAX 256 /* values of the keys that one statement of SQLite removes */
/* Those, all values of `only` twice, and a few more. */
#define STATEMENT_PARAMS_MAX (PAGE_VALUES_MAX + 2 * CONTRACT_FILTERS_MAX * CONTRACT_VALUES_MAX + 64)

struct statement {
	enum dialect dialect;
	struct buf sql;
	struct arena arena; /* texts of parameters */
	struct datum params[STATEMENT_PARAMS_MAX];
	size_t count;
};

void statement_init(struct statement *st, enum dialect dialect);
void statement_reset(struct statement *st);
void statement_done(struct statement *st);

/* In the open transaction, or in a read transaction of its own. */
int statement_run(const struct statement *st, struct foreign *f, struct rows *ret);
int statement_read(const struct statement *st, struct foreign *f, struct rows *ret);

enum scan_mode {
	SCAN_DUE,    /* rows whose time has come */
	SCAN_EXCESS, /* rows beyond `at_most`, of one group */
	SCAN_PROBE,  /* any rows: only to let the database read the statement */
};

/* Which rows: of one leaf table, in one group, after the last one seen. */
struct scan {
	const struct rule *rule;
	const struct leaf *leaf;
	enum scan_mode mode;
	lapse_ms cutoff;
	const struct datum *group; /* values of scan_groups(); NULL when there are none */
	const struct datum *after; /* time and key of the last row, or only its key; NULL = none */
	bool only_time;            /* `after` has a time and no key: from that time on */
	int64_t limit;
};

/* The columns whose values `group` has. */
const struct contract_columns *scan_groups(const struct scan *s);

/* Columns of what scan and lock return. */
enum { SCAN_PLACE, SCAN_TIME, SCAN_MS, SCAN_ALLOWED, SCAN_KEY };

void statement_scan(struct statement *st, const struct scan *s);

/* `places` is an array literal of PostgreSQL, `times` the judged texts (NULL for other units). */
void statement_lock(struct statement *st, const struct scan *s, const char *places);
void statement_remove_places(struct statement *st, const struct scan *s, const char *places,
			     const char *times);

/* Locks and deletes in one statement, for a rule that needs nothing but the row itself
 * (rule_is_plain()): no other table has to be looked at again under the lock. */
void statement_remove_plain(struct statement *st, const struct scan *s, const char *places);

/* A plain rule that allows every row it reaches needs no page. */
bool statement_can_sweep(const struct scan *s);

/* SQLite: where a range of up to s->limit rows ends. Back comes one row with the columns EDGE_…, or
 * none when there are not more rows than that: the time of the first row that is too many, and the
 * oldest and newest time before it (NULL = all rows in reach have the same). */
void statement_edge(struct statement *st, const struct scan *s);
enum { EDGE_TIME, EDGE_OLDEST, EDGE_NEWEST };

/* SQLite: deletes the rows in reach that are older than the edge. */
void statement_sweep_below(struct statement *st, const struct scan *s, const struct datum *edge);

/* PostgreSQL: chooses and deletes up to s->limit rows in one statement. It waits for rows that are
 * locked. Back comes one row with the columns SWEPT_…: how many went, the oldest and newest time
 * (milliseconds; of numbers the column's own unit), and the newest as a text. */
void statement_sweep(struct statement *st, const struct scan *s);
enum { SWEPT_REMOVED, SWEPT_OLDEST, SWEPT_NEWEST, SWEPT_LAST };

void statement_together_places(struct statement *st, const struct scan *s,
			       const struct contract_reference *ref, const char *places);

/* SQLite: some rows of a page, by key, at most page_rows_max(). */
struct page_rows {
	const struct rows *page;
	const size_t *rows; /* their numbers */
	size_t count;
};
size_t page_rows_max(const struct rule *r);
void statement_remove_rows(struct statement *st, const struct scan *s, const struct page_rows *p);
void statement_together_rows(struct statement *st, const struct scan *s,
			     const struct contract_reference *ref, const struct page_rows *p);

/* The first group after `after` (NULL = the first of all) of a leaf. */
void statement_next_group(struct statement *st, const struct scan *s);

/* How many rows of another table go with due rows, up to a cap. Texts are not judged: for them it
 * is an upper bound. */
void statement_count_together(struct statement *st, const struct rule *rule, lapse_ms cutoff,
			      const struct contract_reference *ref, int64_t cap);

/* How many rows have no time at all, up to a cap. */
void statement_count_untimed(struct statement *st, const struct rule *rule, int64_t cap);

/* What a row of a scan says about its time: false = unreadable. */
bool scan_time(const struct rule *rule, const struct rows *rows, size_t row, lapse_ms *ret);

/* Appends a text as an element of an array literal of PostgreSQL: {"…","…"}. */
void array_begin(struct buf *out);
void array_add(struct buf *out, const char *text);
void array_end(struct buf *out);

#endif
