/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maintenance matrix: what is bounded, by what, under which safety rule.
 *
 * A bound is a row of static data. Rooms define theirs, engine/housekeeping.c those of lapse's own
 * tables, and the program that puts lapse together lists them all. The sweep, `lapse matrix`, GET
 * /v1/matrix, the metrics and the documentation read the same rows.
 *
 * To add a bound: 1. a `const struct bound` in its room; 2. its name in the list in
 * engine/registry; its table needs an integer `id` that grows with time.
 */
#ifndef LAPSE_ENGINE_MATRIX_H
#define LAPSE_ENGINE_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/events.h"
#include "store/db.h"

#define BOUNDS_MAX 32
#define BOUND_MORE_MAX 3 /* columns of a removed row that only its room knows */

enum bound_path {
	PATH_LAZY = 1,     /* reads do not show what is due */
	PATH_DEADLINE = 2, /* removed at its deadline */
	PATH_SWEEP = 4,    /* removed by the scheduler's sweep */
	PATH_FORCED = 8,   /* removed when somebody asks */
};

/* A row that a sweep removed. */
struct pruned {
	lapse_ms at;       /* what the window is counted from */
	int64_t id;        /* its key */
	const char *owner; /* "" for rows of lapse itself */
	const char *group; /* for the room: what the row counted towards; may be NULL */
	lapse_ms since;    /* when the safety rule last allowed it, 0 = always */
	const char *more[BOUND_MORE_MAX]; /* the bound's further columns, as texts */
};

struct tx;
struct sweep;
struct engine;
struct due_count;
struct buf;

/* What the engine asks of a bound that has something in memory, beside its rows. All of it runs on
 * the loop's thread. Only `load` and `done` must be there. */
struct bound_memory {
	/* In order: once when the engine opens; when next_us() says so; at a clean stop; at the
	 * end, also when load() was never called. */
	int (*load)(struct tx *tx);
	void (*tick)(struct engine *e);
	lapse_us (*next_us)(const struct engine *e);
	void (*stop)(struct engine *e);
	void (*done)(struct engine *e);

	/* The first moment at which something is due; LAPSE_NEVER = there is nothing. */
	lapse_ms (*deadline)(const struct engine *e);

	/* In the place of the bound's `prune`: removes what is due until `stop` (monotonic), with
	 * all its events, counts and effects; *ret_n = how many. *ret_more = it is not done. */
	int (*prune)(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n, bool *ret_more);

	/* In the place of the bound's `due`; NULL = that one, on a worker. */
	void (*due)(const struct engine *e, lapse_ms now, struct due_count *ret);
	void (*write_metrics)(const struct engine *e, struct buf *out);
};

struct bound {
	const char *table;
	const char *scheduler;

	/* For people: the matrix prints them. */
	const char *bounded_by, *due_when, *safety_rule, *action;
	unsigned paths;

	/* Offset of the window in struct settings; WINDOW_NONE where the row holds its own
	 * deadline. A row is due when `at` < now − window. */
	size_t window;

	/* The event of a batch; EVENT_NONE for a table whose removal is only counted. */
	enum event_kind event;
	const char *reason;
	bool holdable;

	/* The largest id in the table. */
	struct db_stmt newest;

	/* $1 = cutoff, $2 = a cap → number of due rows (at most the cap), smallest `at` among them
	 */
	struct db_stmt due;

	/* $1 = cutoff, $2 $3 = the (at, id) to go on after, $4 = how many, $5 = now (holdable ones
	 * only) → the columns of struct pruned, of the rows it removed. It checks the deadline and
	 * the safety rule itself. `more` columns follow, for settle(). */
	struct db_stmt prune;
	int more;

	/* Holdable ones: $1 = owner, $2 = id → a row when it exists. With keyed_by_name $2 is what
	 * clients call it, and the row is its id. */
	struct db_stmt find;
	bool keyed_by_name;
	bool (*parse_key)(const char *key, int64_t *ret_id); /* NULL = 16 hex digits */

	/* Keeps the room's own counters in step; rows are sorted by owner and group. May be NULL.
	 */
	int (*settle)(struct tx *tx, const struct pruned *rows, size_t n);

	/* NULL: the rows are all there is. */
	const struct bound_memory *memory;
};

#define WINDOW_NONE ((size_t)-1)

struct settings;

lapse_ms bound_window(const struct bound *b, const struct settings *s); /* 0 for WINDOW_NONE */

static inline bool bound_has_deadline(const struct bound *b)
{
	return b->memory && b->memory->deadline;
}

/* The index of a table's first row in the matrix, or -1. */
int matrix_find(const struct engine *engine, const char *table);

/* What is counted on a connection of a worker, for the matrix and the metrics. */
struct due_count {
	int64_t rows;
	lapse_ms oldest; /* its `at`; meaningless when rows is 0 */
};

/* Counts due rows of every bound through `db`, up to a cap each. Safe off the loop. */
int matrix_count_due(const struct engine *engine, struct db *db, lapse_ms now,
		     struct due_count ret[BOUNDS_MAX]);

void matrix_write_json(const struct engine *engine, const struct due_count *due, lapse_ms now,
		       struct buf *out);
void matrix_write_metrics(const struct engine *engine, const struct due_count *due, lapse_ms now,
			  struct buf *out);

#endif
