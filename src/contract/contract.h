/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A contract: the database of a user and the bounds of its tables, as one YAML file says them.
 *
 * contract_read() gives a contract that is complete and consistent in itself: every field known,
 * every duration in range, every scheduler declared. Whether its tables and columns exist is for
 * contract/check.c to say, which looks at the database. docs/contracts.md describes the file.
 *
 * To add a field: 1. a member here; 2. a row in a table of contract/read_bound.c; 3.
 * docs/contracts.md.
 */
#ifndef LAPSE_CONTRACT_CONTRACT_H
#define LAPSE_CONTRACT_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "contract/document.h"

#define CONTRACT_NAME_MAX 32
#define CONTRACT_BOUNDS_MAX 256
#define CONTRACT_SCHEDULERS_MAX 16
#define CONTRACT_COLUMNS_MAX 8    /* of a key, a group, a join */
#define CONTRACT_FILTERS_MAX 8    /* columns of `only` */
#define CONTRACT_VALUES_MAX 64    /* of one column of `only` */
#define CONTRACT_REFERENCES_MAX 8 /* of unless_referenced, and of together_with */
#define CONTRACT_IDENTIFIER_MAX 128
#define CONTRACT_DURATION_MAX (INT64_C(36500) * 86400000) /* a hundred years */

enum contract_time {
	TIME_BY_TYPE, /* the column's declared type says */
	TIME_MS,
	TIME_S,
	TIME_ISO8601,
	TIME_SQLITE_DATETIME,
	TIME_TIMESTAMPTZ,
	TIME_MIXED_TEXT, /* `text` */
};

/* What the file calls it; NULL for TIME_BY_TYPE. */
const char *contract_time_name(enum contract_time t);

enum given_kind { GIVEN_NULL, GIVEN_WORD, GIVEN_TEXT };

/* A value of `only`. A word was written without quotes: it may mean a number or a truth value,
 * which the column's type decides. */
struct contract_value {
	enum given_kind kind;
	const char *text; /* NULL for GIVEN_NULL */
};

struct contract_filter {
	const char *column;
	bool negated;
	struct contract_value values[CONTRACT_VALUES_MAX];
	size_t count;
	const struct node *at;
};

struct contract_columns {
	const char *names[CONTRACT_COLUMNS_MAX];
	size_t count;
	const struct node *at;
};

/* Another table whose rows belong to ours: theirs.names[i] = ours.names[i]. */
struct contract_reference {
	const char *schema, *table;
	struct contract_columns theirs, ours;
	const struct node *at;
};

/* "The newest `count` of each group"; count 0 = the bound has no such rule. */
struct contract_quota {
	int64_t count;
	struct contract_columns per;
	const struct node *at;
};

/* How carefully a bound is kept; `defaults:` sets it for the file. */
struct contract_pace {
	int64_t slice_ms;
	int64_t rows_per_second;   /* 0 = unlimited */
	int64_t ask_above_percent; /* 100 = never asks */
	int64_t ask_min_rows;
	int64_t replica_lag_max_ms;
};

struct contract_bound {
	char *name; /* "shop:connections" */
	const char *schema, *table;
	const char *scheduler; /* as in the file, without the contract's name */
	struct contract_columns key;
	const char *time_column;
	const struct node *time_at;
	lapse_ms keep; /* 0 for `expires` */
	bool is_age;
	bool inclusive; /* a row whose time is exactly the cutoff is due */
	enum contract_time unit;
	struct contract_filter only[CONTRACT_FILTERS_MAX];
	size_t only_count;
	struct contract_reference unless[CONTRACT_REFERENCES_MAX];
	size_t unless_count;
	struct contract_reference together[CONTRACT_REFERENCES_MAX];
	size_t together_count;
	bool grows_with_key;
	struct contract_quota keep_newest, at_most;
	struct contract_pace pace;
	const struct node *at;
};

struct contract_scheduler {
	const char *name; /* as in the file */
	char *full_name;  /* "shop:statestore" */
	lapse_ms every;
	const struct node *at;
};

enum foreign_engine { FOREIGN_SQLITE, FOREIGN_POSTGRES };

struct contract {
	struct document document; /* holds every text below */
	const char *name;
	enum foreign_engine engine;
	const char *database; /* a path (SQLite) or a URI (PostgreSQL); may hold a password */
	const struct node *database_at;
	struct contract_scheduler schedulers[CONTRACT_SCHEDULERS_MAX];
	size_t schedulers_count;
	struct contract_bound *bounds;
	size_t bounds_count;
};

/* Looks up ${NAME} of `database`; NULL = not set. getenv() in the programs. */
typedef const char *contract_env_fn(const char *name);

/* On failure `error` holds one line, "FILE:LINE:COLUMN: …". */
int contract_read(const char *file, contract_env_fn *env, struct contract **ret, struct buf *error);
int contract_parse(const char *file, const char *text, size_t size, contract_env_fn *env,
		   struct contract **ret, struct buf *error);
void contract_free(struct contract *c); /* takes NULL */
void contract_freep(struct contract **c);

/* The engine and the path or URI in `text`; LAPSE_EINVAL for anything else. */
int contract_database(const char *text, enum foreign_engine *ret_engine, const char **ret_target);

const struct contract_bound *contract_find(const struct contract *c, const char *name);

/* A hash of everything that decides which rows of a bound go: a bound whose hash changed is a new
 * bound to `ask_above`. */
uint64_t contract_bound_hash(const struct contract *c, const struct contract_bound *b);

/* "90s", "5m", "24h", "7d", "250ms", or milliseconds. False unless 0 < it <= CONTRACT_DURATION_MAX.
 */
bool contract_duration(const char *text, lapse_ms *ret);

#endif
