/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bound as a value: which rows of a table have a lifetime, and what protects them.
 *
 * Rooms give their specs as static data, contracts as what they parsed from a file. bound_compile()
 * is pure: it turns a spec into the statements of a dialect, so the rule of a bound (its deadline,
 * its tests, its references, its holds) is written once and is the same in the count, in the
 * removal and in what protects a row. engine/matrix.h keeps the compiled bounds.
 *
 * To add a bound: 1. a `const struct bound_spec` in its room; 2. its name in the list of
 * src/rooms.c;
 * 3. an index that leads with the tested columns and the time (tests/unit/test_bound.c asks
 * SQLite).
 */
#ifndef LAPSE_ENGINE_BOUND_H
#define LAPSE_ENGINE_BOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "store/db.h"
#include "store/sql.h"

#define BOUND_KEYS_MAX 8 /* columns of a key */
#define BOUND_MORE_MAX 3 /* columns of a removed row that only its room knows */

struct bound_spec;
struct buf;
struct due_count;
struct engine;
struct sweep;
struct tx;

enum bound_path {
	PATH_LAZY = 1,     /* reads do not show what is due */
	PATH_DEADLINE = 2, /* removed at its deadline */
	PATH_SWEEP = 4,    /* removed by the scheduler's sweep */
	PATH_FORCED = 8,   /* removed when a client asks */
};

enum bound_type { BOUND_INT, BOUND_TEXT, BOUND_UUID };

struct bound_key {
	const char *name; /* NULL ends a list */
	enum bound_type type;
};

/* How the time column holds a time. bound_compile() knows UNIT_MS; contracts bring the others. */
enum bound_unit {
	UNIT_MS,              /* milliseconds since 1970 */
	UNIT_S,               /* seconds since 1970 */
	UNIT_ISO8601,         /* text, 2027-01-15T08:00:00.000Z */
	UNIT_SQLITE_DATETIME, /* text, 2027-01-15 08:00:00, UTC */
	UNIT_TIMESTAMPTZ,     /* PostgreSQL's own type */
	UNIT_TEXT,            /* both kinds of text mixed in one column */
};

/* Which operator decides at the boundary. */
enum bound_op { DUE_BEFORE, DUE_AT }; /* time < cutoff, time <= cutoff */

/* In which order a sweep walks the due rows. */
enum bound_walk {
	WALK_TIME,   /* by the time column, which an index serves */
	WALK_KEY,    /* by the key, which grows with the time: no index on the time is needed */
	WALK_MEMORY, /* the times live in memory: `memory` counts and removes */
};

enum bound_value_kind { VALUE_END, VALUE_NULL, VALUE_INT, VALUE_TEXT };

struct bound_value {
	enum bound_value_kind kind; /* VALUE_END ends a list */
	int64_t number;
	const char *text;
};

/* The column has one of the values; with `not_` it has none of them, and is not NULL. */
struct bound_test {
	const char *column; /* NULL ends a list */
	bool not_;
	const struct bound_value *values;
};

/* Columns that must be equal. */
struct bound_pair {
	const char *theirs, *ours; /* NULL ends a list */
};

/* Rows of another table: those that keep this one's rows, or go with them. */
struct bound_reference {
	const char *schema, *table; /* a table of NULL ends a list */
	const struct bound_pair *on;
};

/* So many rows of each group, the newest first. */
struct bound_quota {
	int64_t count;          /* 0 = there is none */
	const char *const *per; /* columns; ends with NULL */
};

/* A row that a sweep removed. Its texts live as long as the transaction. */
struct pruned {
	lapse_ms at;                   /* what the window is counted from */
	int64_t id;                    /* its key, where that is one number */
	const struct bound_value *key; /* its key, where that is anything else; else NULL */
	const char *owner;             /* "" for rows of lapse itself */
	const char *group; /* for the room: what the row counted towards; "" = nothing */
	lapse_ms since;    /* when the safety rule last allowed it, 0 = always */
	int64_t bytes;     /* that its owner was counted with */
	const char *more[BOUND_MORE_MAX]; /* the bound's further columns, as texts */
};

/* The longest text that a bound's format_key() writes, and a NUL. */
#define BOUND_KEY_TEXT_MAX 32

/* What the engine asks of a bound whose deadlines its room keeps in memory (engine/room.h). All of
 * it runs on the loop's thread; any of them may be NULL. */
struct bound_memory {
	/* The first moment at which something is due; LAPSE_NEVER = there is nothing. */
	lapse_ms (*deadline)(const struct engine *e);

	/* In the place of the bound's `prune`: removes what is due until `stop` (monotonic), with
	 * all its events, counts and effects; *ret_n = how many. *ret_more = it is not done. */
	int (*prune)(struct sweep *w, struct tx *tx, lapse_us stop, int64_t *ret_n, bool *ret_more);

	/* A hold on the row with this key was placed, changed or released: it protects the row
	 * until `until`, 0 = not any more. A deadline that has passed counts from then on. */
	int (*hold_changed)(struct tx *tx, const char *owner, const char *key, lapse_ms until);

	/* What the window of the row with this name is counted from, in the place of its time
	 * column. False = the memory does not know it. */
	bool (*time_of)(const struct engine *e, const char *owner, const char *key, lapse_ms *ret);

	/* In the place of the bound's `due`; NULL = that one, on a worker. */
	void (*due)(const struct engine *e, lapse_ms now, struct due_count *ret);

	/* Live rows of an owner, in the place of `own_live`. */
	int64_t (*own_live)(const struct engine *e, const char *owner);
};

/* Rows that are past their time and stay, by what keeps them. */
struct bound_kept {
	int64_t held;       /* by a hold */
	int64_t protected_; /* by a reference, `only` or keep_newest */
	int64_t unreadable; /* no time can be read from them */
	int64_t locked;     /* by another session, when the sweep came by */
};

/* Slices that replicas of a cluster have begun and not ended. */
#define BOUND_SLICES_MAX 256 /* one for each replica */
struct bound_slices {
	int64_t ids[BOUND_SLICES_MAX];
	size_t count;
};

/* What the engine asks of a bound whose rows are in another database. On the loop's thread. */
struct bound_elsewhere {
	/* The form of a row's key that the sweep compares holds with; appended to `out`. */
	int (*name_key)(const struct bound_spec *spec, const char *key, struct buf *out,
			struct problem *p);

	/* The number of the slice that may be removing rows at this moment, 0 = none. A hold that
	 * was placed is certain once that slice is over, which wakes `waits_for`. */
	int64_t (*slice)(const struct bound_spec *spec);
	const char *(*waits_for)(const struct bound_spec *spec);

	/* The same of all replicas of a cluster, as the transaction sees them. */
	int (*slices)(struct tx *tx, const struct bound_spec *spec, struct bound_slices *ret);

	/* What the last sweep left, for the matrix: members of an object. */
	void (*write)(const struct bound_spec *spec, struct buf *out);
	void (*kept)(const struct bound_spec *spec, struct bound_kept *ret);

	/* Whether nothing goes until a person has approved it. */
	bool (*waits)(const struct bound_spec *spec);

	/* Rows a second that the contract allows; 0 = as many as possible. */
	int64_t (*allowed)(const struct bound_spec *spec);
};

struct bound_spec {
	const char *name;      /* in the matrix, in metrics and for holds; unique */
	const char *scheduler; /* its name */
	const char *contract;  /* whose it is; NULL = our own store */

	/* For people: the matrix prints them. */
	const char *bounded_by, *due_when, *safety_rule, *action;
	unsigned paths;

	/* The rows. */
	const char *schema;          /* NULL = the connection's own */
	const char *table;           /* NULL = the name */
	const struct bound_key *key; /* up to BOUND_KEYS_MAX columns; BOUND_KEY() */
	bool key_is_id;              /* the key is one number made by base/id.h */
	enum bound_walk walk;

	/* When a row is due: its time, plus the window, has passed. */
	const char *time; /* column; NULL only with WALK_MEMORY */
	enum bound_unit unit;
	enum bound_op op;
	const char *window; /* the name of a setting; NULL = window_ms */
	int64_t window_ms;  /* fixed; 0 with no `window` = the column holds the deadline itself */

	/* What protects a row that is due; each may be NULL or empty. */
	const struct bound_test *only;
	const struct bound_reference *unless_referenced;
	const char *held_as; /* the `tbl` of the holds that protect it */
	const char *held_by; /* the column that such a hold refers to; NULL = the key, a number */
	struct bound_quota keep_newest;
	struct bound_quota at_most;
	const struct bound_reference *together_with; /* rows that go first, in its transaction */

	/* Placing holds. `named_by` are the columns of the name that clients know a row by; NULL =
	 * its id, as parse_key() reads it. `hold_only` = which rows can be held. */
	bool holdable;
	const char *const *named_by;                         /* ends with NULL */
	bool (*parse_key)(const char *key, int64_t *ret_id); /* NULL = 16 hex digits */
	const struct bound_test *hold_only;

	/* For people who ask about one row (engine/why.h). `known_by` is a further name of it, a
	 * condition on `t` with the name as $2; in SQL of our own source, served by an index; NULL
	 * = none. `shown` are columns of text that describe the row. `format_key` writes the id as
	 * clients know it; NULL = 16 hex digits. */
	const char *known_by;
	const char *const *shown; /* ends with NULL; NULL = none */
	void (*format_key)(int64_t id, char *out);

	/* The event of a batch, by its name; NULL for a table whose removal is only counted. */
	const char *event;
	const char *reason;

	/* Columns that describe a removed row: see struct pruned. */
	const char *owner, *group, *since; /* each may be NULL */
	const char *const *more;           /* ends with NULL; NULL = none */

	/* The column of the bytes that its owner was counted with: they are given back when the
	 * row goes (engine/usage.h). NULL = none. */
	const char *bytes;

	/* Not NULL: the room does not delete due rows but changes them itself (memory->prune).
	 * `prune` then selects these columns of the due rows; a list in SQL, of our own source. */
	const char *selects;

	/* Live rows of an owner: in table_counts under the bound's name, or $1 owner → their
	 * number. Neither = they are not told. */
	bool counted_by_owner;
	const struct db_stmt *own_live;

	/* Those of them that only the room's memory counts; NULL = none. On the loop's thread. */
	int64_t (*own_live_more)(const struct engine *e, const char *owner);

	/* Keeps the room's own counters in step; rows are sorted by owner and group. May be NULL.
	 */
	int (*settle)(struct tx *tx, const struct pruned *rows, size_t n);

	/* NULL: the rows are all there is. */
	const struct bound_memory *memory;

	/* Not NULL: the rows are in another database, which a contract describes. */
	const struct bound_elsewhere *elsewhere;

	/* Called once the engine has no use for the spec any more; NULL for static data. */
	void (*release)(const struct bound_spec *spec);
};

/* Lists for static specs. */
#define BOUND_KEY(...) ((const struct bound_key[]){ __VA_ARGS__, { 0 } })
#define BOUND_COLUMNS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define BOUND_ONLY(...) ((const struct bound_test[]){ __VA_ARGS__, { 0 } })
/* clang-format off */
#define IS_INT(column, n)                                                                          \
	{ column, false, (const struct bound_value[]){ { VALUE_INT, n, NULL }, { 0 } } }
#define IS_TEXT(column, text)                                                                      \
	{ column, false, (const struct bound_value[]){ { VALUE_TEXT, 0, text }, { 0 } } }
/* clang-format on */

/*
 * The statements of a bound; those it has no use for have no text. `cutoff` is now − window.
 *
 * due      $1 cutoff, $2 cap [, $3 now] → number of due rows (at most the cap), smallest time
 * own_due  the same, then the owner → of the rows that `due` counts, those of this owner
 * prune    $1 cutoff, $2 how many, then where to go on after: the time (WALK_TIME only) and the
 *          key's columns [, now] → time, key…, owner, group, since, bytes, more… of the rows it
 *          removed;
 *          with `selects` those columns instead, of rows it leaves alone
 * referenced  $1 cutoff, $2 cap → number of rows that are due and referenced
 * newest   → the largest id
 * find     $1 owner, $2… the columns of the name, or the id → the id of the row
 * held     $1 cutoff, $2 now → number of rows past their deadline that only a hold keeps
 * look     $1 owner, $2… the columns of the name, or the id → what engine/why.c wants to know: id,
 *          time, whether the tests let it go, whether nothing refers to it, what holds refer
 *          to, columns of the name…, shown…
 * look_by  the same with $2 as `known_by` wants it
 *
 * [now] is there when holds protect the rows (bound_is_held). On PostgreSQL, where a DELETE that
 * waited for a lock does not look at its subqueries again, removing takes two statements:
 *
 * lock     the parameters of `prune` → key… of the rows, locked
 * prune    $1 cutoff, $2… one array for each column of the key [, now] → as above
 */
struct bound_sql {
	struct db_stmt due, own_due, prune, newest, find, lock, held, look, look_by, referenced;
};

int bound_compile(const struct bound_spec *spec, enum dialect dialect, struct bound_sql *ret,
		  struct problem *p);
void bound_sql_done(struct bound_sql *sql);

/* Pieces for those who put other statements together. `t` is the alias of the bound's table. */
void bound_put_tests(struct buf *out, enum dialect dialect, const struct bound_test *tests);
void bound_put_references(struct buf *out, const struct bound_reference *references);

static inline const char *bound_table(const struct bound_spec *spec)
{
	return spec->table ? spec->table : spec->name;
}

static inline bool bound_is_held(const struct bound_spec *spec)
{
	return spec->held_as != NULL;
}

static inline bool bound_has_window(const struct bound_spec *spec)
{
	return spec->window || spec->window_ms > 0;
}

size_t bound_keys(const struct bound_spec *spec); /* how many columns the key has */

#endif
