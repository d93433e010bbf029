/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep: how what is due is removed. One walk over the bounds of a scheduler, in slices that each
 * are one transaction with a budget in milliseconds.
 *
 * A dry run takes the same path and undoes each slice instead of committing it; that is why a slice
 * goes on after the (at, id) where the last one ended.
 */
#ifndef LAPSE_ENGINE_SWEEP_H
#define LAPSE_ENGINE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/matrix.h"

struct sweep {
	struct engine *engine;
	const char *scheduler;
	bool dry_run;
	bool by_deadline;    /* only the bounds that have deadlines */
	lapse_ms started_at; /* wall clock: what is due is judged by it, so a sweep ends */
	lapse_us started;    /* monotonic */
	lapse_us ended;      /* monotonic, once it has */

	size_t bound;      /* index of the bound being swept */
	lapse_ms after_at; /* where the last batch ended */
	int64_t after_id;

	int64_t pruned[BOUNDS_MAX];
	int64_t total;
	/* Of a scheduler whose rows have something outside. */
	struct sweep_outside {
		int64_t expired; /* rows whose time was up */
		int64_t retried; /* deletions that had failed, tried again */
		int64_t cleaned; /* of the expired, with nothing outside: done at once */
	} outside;
	struct cleanup_follower *follower; /* of whoever waits for the deletions; may be NULL */

	int64_t bytes; /* of the files that go with the rows */
	int step_err;  /* of a step that failed and was left for the next sweep; others went on */
};

void sweep_init(struct sweep *w, struct engine *engine, const char *scheduler, bool dry_run);

/* Removes rows until the budget is used up or nothing is due. After an error the slice has removed
 * nothing and the sweep is over. */
int sweep_slice(struct sweep *w, bool *ret_more);

#endif
