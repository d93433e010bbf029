/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving way: how long a removal may take and how long to rest after it, so that the sessions which
 * use the table meanwhile hardly notice.
 *
 * Rows go in cuts. While no other session writes, a cut takes as long as the contract's slice_ms
 * says, and the next one follows at once. As soon as another session has written, cuts are short
 * and a rest follows each, until none has written for YIELD_FOR_US. Decisions only: contract/pass.c
 * has the clock and sleeps.
 */
#ifndef LAPSE_CONTRACT_YIELD_H
#define LAPSE_CONTRACT_YIELD_H

#include "base/clock.h"
#include "contract/contract.h"

/* Long enough that a writer that comes once a second is never forgotten. */
#define YIELD_FOR_US 2000000

#define YIELD_ROWS_LEAST 10  /* below this a cut is all overhead, however slow the database */
#define YIELD_ROWS_MAX 10000 /* of any cut */
#define YIELD_CUTS 16        /* of one slice, while giving way */

struct yield {
	enum foreign_engine engine;
	lapse_us slice_us; /* of the contract */
	lapse_us met_at;   /* when another writer was last met; INT64_MIN = never */
};

/* Notes whether the cut that ended now has met another writer. */
void yield_note(struct yield *y, bool met_writer, lapse_us now);
bool yield_is_giving_way(const struct yield *y, lapse_us now);

/* How long the next cut should take. */
lapse_us yield_cut_us(const struct yield *y, lapse_us now);

/* How many rows the next cut should have, after one of `rows` that took so long: up to twice as
 * many, or down to half of them. One that was not `full` says nothing about how long more rows
 * take. */
int64_t yield_rows(int64_t rows, bool full, lapse_us took, lapse_us wanted);

/* How long to rest after a cut that took so long. */
lapse_us yield_rest_us(const struct yield *y, lapse_us took, lapse_us now);

#endif
