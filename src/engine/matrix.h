/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maintenance matrix: every bound the engine keeps, and how it is doing.
 *
 * The array can change while the engine runs (matrix_add, matrix_remove, matrix_replace), on the
 * loop's thread and between two slices. A bound is referred to by pointer and does not move. One
 * that was taken out is freed as soon as no worker counts any more, its statements with it.
 *
 * The sweep, `lapse matrix`, GET /v1/matrix, the metrics and the documentation read the same rows.
 */
#ifndef LAPSE_ENGINE_MATRIX_H
#define LAPSE_ENGINE_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/bound.h"
#include "engine/events.h"
#include "store/db.h"

struct arena;
struct engine;
struct scheduler;

#define BOUND_MAGIC UINT32_C(0x626f756e)

/* A bound as the engine keeps it. */
struct bound {
	uint32_t magic;
	const struct bound_spec *spec;
	struct bound_sql sql;
	const int64_t *window; /* in milliseconds; of a setting, or spec->window_ms */
	struct scheduler *scheduler;
	bool removed;       /* it is no row of the matrix any more */
	struct bound *next; /* of the removed ones that wait for their end */

	int64_t live;   /* rows, as the last commit left them */
	int64_t pruned; /* rows removed since the start */
	int64_t swept;  /* of them by the scheduler's last sweep, or the one under way */
	int64_t slice;  /* and by the slice under way, not committed yet */

	int64_t lag_count; /* removals whose lag was measured, and the sum of it */
	lapse_us lag_sum;

	lapse_ms last_success; /* when a sweep of it last ended well; LAPSE_NEVER = not yet */
	int64_t pace_rows;     /* of the last sweep that removed some, and how long that took */
	lapse_us pace_us;
	lapse_us swept_from; /* monotonic: when the sweep under way came to it; 0 = not known */

	/* Of a contract: rows that were due and stayed, as it last looked. */
	int64_t due;
	lapse_ms oldest_due;
};

/* All rows of the matrix; owned by the engine. */
struct matrix {
	struct bound **bounds;
	size_t count, cap;
	int counting;          /* counts that workers have under way */
	struct bound *removed; /* freed when nothing counts */
};

static inline lapse_ms bound_window(const struct bound *b)
{
	return *b->window;
}

static inline bool bound_has_deadline(const struct bound *b)
{
	return b->spec->memory && b->spec->memory->deadline;
}

/* Rows of our own store are counted and swept here; those of a contract by the contract. */
static inline bool bound_is_ours(const struct bound *b)
{
	return b->spec->contract == NULL;
}

/* Adds a row. Its scheduler must be there. A bound of our own store that comes while the engine
 * runs needs matrix_load(), in a transaction. */
int matrix_add(struct engine *e, const struct bound_spec *spec, struct bound **ret,
	       struct problem *p);
void matrix_remove(struct engine *e, struct bound *b);

/* Puts another one in its place; on failure the old one stays. */
int matrix_replace(struct engine *e, struct bound *old, const struct bound_spec *spec,
		   struct bound **ret, struct problem *p);
int matrix_load(struct engine *e, struct bound *b);
void matrix_done(struct engine *e);

/* Frees what was taken out, unless a worker may still look at it. */
void matrix_bury(struct engine *e);

/* By the name that clients use; NULL where there is none. */
struct bound *matrix_find(const struct engine *e, const char *name);

/* By its spec; it must be there. */
struct bound *matrix_of(const struct engine *e, const struct bound_spec *spec);

/* Rows that are due, counted on a connection of a worker, for the matrix and the metrics. */
struct due_count {
	const struct bound *bound;
	int64_t rows;
	lapse_ms oldest; /* its time; meaningless when rows is 0 */
	struct bound_kept kept;
	int64_t own_live; /* live rows of the owner; -1, and so `rows`, = not told */
};

struct due_counts {
	lapse_ms now;
	const char *owner; /* only what is this owner's; NULL = all */
	size_t n;
	struct due_count rows[];
};

/* Legal order: begin on the loop, matrix_count_due() on any thread, write, end on the loop.
 * `owner` lives until the end; NULL = all owners. */
struct due_counts *matrix_count_begin(struct engine *e, struct arena *arena, const char *owner,
				      lapse_ms now);
int matrix_count_due(struct db *db, struct due_counts *c); /* up to a cap for each bound */
void matrix_count_end(struct engine *e);

/* As counted by a worker, or now, where only the loop may look. */
struct due_count matrix_due(const struct engine *e, const struct due_count *counted, lapse_ms now);

/* What an operator asks next. */
struct bound_outlook {
	int64_t undeletable;     /* rows past their time that stay, whatever keeps them */
	lapse_ms last_success;   /* LAPSE_NEVER = not yet */
	int64_t rows_per_second; /* of the last sweep, or the one under way; 0 = not known */
	lapse_ms clears_in;      /* estimate until nothing is due; LAPSE_NEVER = not known */
};
struct bound_outlook matrix_outlook(const struct engine *e, const struct due_count *due);

/* A sweep of the bound has removed b->swept rows in so long and ended well. */
void matrix_note_success(struct bound *b, lapse_us took, lapse_ms now);

void matrix_write_json(const struct engine *e, const struct due_counts *c, struct buf *out);
void matrix_write_metrics(const struct engine *e, const struct due_counts *c, struct buf *out);

#endif
