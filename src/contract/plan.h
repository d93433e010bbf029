/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sweep would remove now, bound by bound. It only reads, takes no lock that a writer waits
 * for, and stops after a time limit; numbers that are not exact say so.
 */
#ifndef LAPSE_CONTRACT_PLAN_H
#define LAPSE_CONTRACT_PLAN_H

#include "contract/check.h"
#include "contract/pass.h"

#define PLAN_LIMIT_MS 10000 /* for each bound */
#define PLAN_SAMPLE 5

struct plan_row {
	const struct contract_bound *bound;
	struct pass_tally tally;
	bool exact;            /* false: the time was over; at least so many */
	int64_t table_rows;    /* estimate; -1 = not known */
	int64_t share_percent; /* of the table's rows; -1 = not known */
	int64_t bytes;         /* estimate; -1 = not known */
	int64_t dependents;    /* rows of other tables that go too; -1 = not known */
	int64_t duration_ms;   /* at the contract's pace; -1 = as fast as the database allows */
	bool asks;             /* a sweep would wait for approval */
	struct buf sample;     /* keys, one on each line */
	char *error;           /* NULL = none; owned */
};

struct plan {
	struct plan_row *rows;
	size_t count;
};

/* Rows of bounds that cannot be kept have an error. Negative when the database is away. */
int contract_plan(struct foreign *f, const struct contract *c, const struct checked *checked,
		  lapse_ms now, struct plan *ret);
void plan_done(struct plan *p);

/* One bound; for the approval too. `held` may be NULL. */
int plan_bound(struct foreign *f, const struct rule *r, lapse_ms now, int64_t limit_ms,
	       struct plan_row *ret);
void plan_row_done(struct plan_row *row);

/* How many rows the table has: exact where that is quick, else the database's own estimate; -1 =
 * not known. */
int plan_table_rows(struct foreign *f, const struct rule *r, int64_t *ret);

/* Whether `due` rows of a table of `table_rows` are more than the contract lets go unasked. */
bool plan_asks(const struct contract_bound *b, int64_t due, int64_t table_rows);

#endif
