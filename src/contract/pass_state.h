/* SPDX-License-Identifier: Apache-2.0 */
/* What the files pass*.c share: where a pass is, and the page at hand. */
#ifndef LAPSE_CONTRACT_PASS_STATE_H
#define LAPSE_CONTRACT_PASS_STATE_H

#include "contract/pass.h"
#include "contract/yield.h"

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
	int64_t cut;        /* rows of one cut: see contract/yield.h */
	int64_t room;       /* rows that the slice may still remove */
	int64_t page_limit; /* that of the page at hand: a cut, or what is left of the slice */
	int64_t idle;       /* rows in a row that are not due, of a walk by key */
	int locks;          /* slices in a row without a lock */
	int wary;           /* pages left that lock before they delete: see pass_remove.c */
	bool finishing;     /* what is left of the group goes page by page */
	int wary_next;      /* how many the next lock that is not granted makes them */
	bool over;

	struct yield yield;
	lapse_us cut_from; /* monotonic: when the cut at hand began to be in the way of others */
	lapse_us rest_us;  /* after it */
	bool unsynced;     /* some commits were not synced */

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

/* Commits, unless it is too late for that. */
int pass_commit(struct pass *p);

void pass_count_removed(struct pass *p, const struct chosen *c, int64_t removed, int64_t together);

/* The short transaction of a slice: removes the chosen rows of the page. */
int pass_remove_chosen(struct pass *p, const struct chosen *c, int64_t *ret_removed);

/* Nothing has to be looked at between the lock and the deletion. */
bool pass_is_plain(const struct pass *p, const struct scan *s);

/* pass_sweep.c: whether the next rows can be chosen and removed without a page, and that. It moves
 * the position. *ret_swept = false: nothing happened, and the page goes row by row. *ret_removed as
 * of pass_slice(). */
bool pass_sweeps_at_once(const struct pass *p);
int pass_sweep_at_once(struct pass *p, int64_t *ret_removed, bool *ret_swept);

/* pass.c, for it. The next page goes on after the row of this time and key; without a key, from
 * this time on. */
void pass_remember_position(struct pass *p, const struct datum *time, const struct datum *key);
void pass_forget_position(struct pass *p);

/* Whether the commit of the next cut is left unsynced, to give way. Notes that. */
bool pass_is_lazy(struct pass *p);

/* A cut of so many rows has ended now: how large the next one is, and how long to rest. */
void pass_note_cut(struct pass *p, int64_t rows);
void pass_rest(struct pass *p);

#endif
