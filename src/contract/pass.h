/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over the due rows of a rule, slice by slice.
 *
 *	pass_new → { pass_slice … while there is more } → pass_free
 *
 * A slice reads one page of rows without a lock, chooses those that are due and that nothing
 * protects, and removes them in one short transaction that checks the whole rule again. While
 * others write to the database, a slice is several such transactions with rests between them
 * (contract/yield.h). It removes at most pass_limit() rows, which adapts to how long the last
 * slices took. The pass remembers where it is, so rows that stay (held, locked, referenced) are
 *passed by once and not found again.
 *
 * A slice whose lock was not granted leaves the pass where it was: the same page comes next. After
 * LOCKS_MAX of them in a row the pass fails.
 *
 * Blocks; for a worker or the command. Knows nothing of lapse's own store: holds and fences come as
 * functions.
 */
#ifndef LAPSE_CONTRACT_PASS_H
#define LAPSE_CONTRACT_PASS_H

#include "base/err.h"
#include "contract/statement.h"

#define PASS_ROWS_FIRST 100 /* of the first slice, when nothing is known about the database */
#define PASS_WALK_STOP 1000 /* rows in a row that are not due end a walk by key */
#define PASS_LOCKS_MAX 10   /* slices in a row that got no lock */

/* Whether a row is held, by the text of its key; NULL: whether any row is. Called on the thread of
 * the slice. */
typedef bool pass_held_fn(void *arg, const char *key);

/* Whether the caller may still delete, asked inside the deleting transaction. LAPSE_EPRECONDITION:
 * another replica has taken over. */
typedef int pass_fence_fn(void *arg, struct foreign *f);

/* Whether it is too late to commit: then the slice is undone, and fails with LAPSE_EPRECONDITION.
 */
typedef bool pass_late_fn(void *arg);

struct pass_config {
	struct foreign *f; /* borrowed */
	const struct rule *rule;
	lapse_ms now;
	bool dry;           /* only counts what would go */
	pass_held_fn *held; /* NULL = no row is */
	pass_fence_fn *fence;
	pass_late_fn *late; /* NULL = it never is */
	void *arg;
};

/* What a pass has done so far. */
struct pass_tally {
	int64_t removed;
	int64_t together;   /* rows of other tables */
	int64_t held;       /* due, but held */
	int64_t protected_; /* due, but `only`, a reference or keep_newest keeps them */
	int64_t unreadable; /* in the range of due texts, but no time */
	int64_t skipped;    /* due, but locked by another session, or changed meanwhile */
	int64_t locks;      /* slices that got no lock */
	int64_t slices;
	lapse_ms oldest, newest; /* times of removed rows; LAPSE_NEVER and INT64_MIN = none */
};

struct pass;

struct pass *pass_new(const struct pass_config *config);
void pass_free(struct pass *p); /* takes NULL */
void pass_freep(struct pass **p);

/* How many rows the next slice removes at most. */
int64_t pass_limit(const struct pass *p);

/* One slice. *ret_removed = rows of the bound that are gone, also on failure: those of its earlier
 * transactions, and with LAPSE_EUNKNOWN those that may be gone. *ret_more = the pass is not over.
 * While the pass gives way, commits are not synced until it is over. */
int pass_slice(struct pass *p, int64_t *ret_removed, bool *ret_more);

const struct pass_tally *pass_tally(const struct pass *p);

/* Texts of the keys that the last slice of a dry pass chose, at most `max`; appended to `out`, each
 * ended by a line break. */
void pass_sample(const struct pass *p, size_t max, struct buf *out);

/* The text of a key as holds name it: the value, or a JSON array of texts for several columns.
 * `out` must be empty. */
void pass_key_text(const struct rule *r, const struct datum *key, struct buf *out);

/* The form of a key that a client gave, which pass_key_text() would give: LAPSE_EINVAL when it has
 * another number of columns. */
int pass_key_parse(const struct rule *r, const char *text, struct buf *out, struct problem *p);

#endif
