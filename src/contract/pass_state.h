/* SPDX-License-Identifier: Apache-2.0 */
/* What the files pass*.c share: where a pass is, and the page at hand. */
#ifndef LAPSE_CONTRACT_PASS_STATE_H
#define LAPSE_CONTRACT_PASS_STATE_H

#include "contract/pass.h"

struct pass {
	uint32_t magic;
	struct pass_config config;
	lapse_ms cutoff;
	enum scan_mode mode; /* SCAN_DUE first, then SCAN_EXCESS where there is an `at_most` */
	size_t leaf;

	/* Where it is: the group, and the last row seen of it. Each pair of arenas takes turns,
	 * because the new position is read with the help of the old. */
	bool has_group, group_done, has_after;
	bool only_time; /* the position is a time without a key */
	struct datum group[CONTRACT_COLUMNS_MAX];
	struct datum after[CONTRACT_COLUMNS_MAX + 1];
	struct arena group_memory[2], after_memory[2];
	int group_turn, after_turn;

	int64_t limit;      /* of the slice: it removes no more, however many pages it reads */
	int64_t next_limit; /* of the next one */
	int64_t page_limit; /* that of the page at hand */
	int64_t idle;       /* rows in a row that are not due, of a walk by key */
	int locks;          /* slices in a row without a lock */
	int wary;           /* pages left that lock before they delete: see pass_remove.c */
	bool finishing;     /* what is left of the group goes page by page */
	int wary_next;      /* how many the next lock that is not granted makes them */
	bool over;

	struct statement st;
	struct rows page, locked;
	struct pass_tally tally;
	struct buf sample; /* keys of the last page, of a dry pass */
};

/* The rows of a page that go. */
struct chosen {
	size_t *rows; /* numbers of rows of the page */
	size_t count;
	lapse_ms oldest, newest;
};

/* The scan that a pass is at. */
struct scan pass_scan(const struct pass *p);

bool pass_row_is_held(const struct pass *p, const struct rows *rows, size_t row);

/* pass_remove.c */

void pass_count_removed(struct pass *p, const struct chosen *c, int64_t removed, int64_t together);

/* The short transaction of a slice: removes the chosen rows of the page. */
int pass_remove_chosen(struct pass *p, const struct chosen *c, int64_t *ret_removed);

/* Whether the next rows can be chosen and removed by one statement, and that. On success *ret_last
 * is the newest time removed, in the memory of p->page. LAPSE_ERETRY: a row was locked, and nothing
 * happened; the next pages lock before they delete. *ret_removed as of pass_slice(). */
bool pass_sweeps_at_once(const struct pass *p);
int pass_sweep_at_once(struct pass *p, int64_t *ret_removed, const struct datum **ret_last);

#endif
