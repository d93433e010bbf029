/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep: how what is due is removed. One walk over the bounds of a scheduler, in slices that each
 * are one transaction with a budget in milliseconds.
 *
 * A dry run takes the same path and undoes each slice instead of committing it; that is why a slice
 * goes on after the row where the last one ended. How many rows of each bound a sweep removed
 * stands in the bound (`swept`) until the scheduler's next sweep begins.
 */
#ifndef LAPSE_ENGINE_SWEEP_H
#define LAPSE_ENGINE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/matrix.h"

/* The row that a walk goes on after. */
struct sweep_mark {
	lapse_ms at;
	int64_t number[BOUND_KEYS_MAX]; /* the key's columns that are numbers, */
	char *text[BOUND_KEYS_MAX];     /* and the others; owned */
};

struct sweep {
	struct engine *engine;
	struct scheduler *scheduler;
	bool dry_run;
	bool by_deadline;    /* only the bounds that have deadlines */
	lapse_ms started_at; /* wall clock: what is due is judged by it, so a sweep ends */
	lapse_us started;    /* monotonic */
	lapse_us ended;      /* monotonic, once it has */

	struct bound *bound; /* being swept; NULL = all are done */
	struct sweep_mark after;

	int64_t total;
	int64_t limit; /* rows of each bound; INT64_MAX = all of them */
	bool capped;   /* there was more of a bound than that */

	/* Of a scheduler whose rows have something outside. */
	struct sweep_outside {
		int64_t expired; /* rows whose time was up */
		int64_t retried; /* deletions that had failed, tried again */
		int64_t cleaned; /* of the expired, with nothing outside: done at once */
	} outside;
	struct cleanup_follower
		*follower; /* of a caller that waits for the deletions; may be NULL */

	int64_t bytes; /* of the files that go with the rows */
	int step_err;  /* of a step that failed and was left for the next sweep; others went on */
};

void sweep_init(struct sweep *w, struct engine *engine, struct scheduler *scheduler, bool dry_run);
void sweep_done(struct sweep *w); /* takes one that ended, was left, or never began */

/* Removes rows until the budget is used up or nothing is due. After an error the slice has removed
 * nothing and the sweep is over. */
int sweep_slice(struct sweep *w, bool *ret_more);

/* For an operation that cleans on its way: removes up to `limit` due rows of a bound in the
 * caller's transaction, as a sweep would, and tells of them. `limit` is at most SWEEP_INLINE_MAX.
 */
#define SWEEP_INLINE_MAX 50
int sweep_inline(struct tx *tx, const struct bound_spec *spec, int64_t limit, int64_t *ret_n);

/* The same for rows that the operation has removed and counted itself. */
int sweep_announce_inline(struct tx *tx, const struct bound_spec *spec, int64_t n,
			  const char *reason);

/* The bound is leaving the matrix: the walk goes on with the next one. */
void sweep_forget(struct sweep *w, const struct bound *b);

/* What a sweep removed of each bound of its scheduler, in the order of the matrix. */
struct sweep_count {
	const char *table;
	int64_t pruned;
};
size_t sweep_counts(const struct sweep *w, struct arena *arena, struct sweep_count **ret);

#endif
