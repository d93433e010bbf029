/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a database behind db.h provides. For drivers (store/sqlite/) and test doubles only.
 *
 * A driver's connection begins with struct db and its prepared statements begin with struct
 * db_prepared, so that db.c keeps the rules all drivers share: the order of calls, the parameters,
 * what a posted write must come to. Values are collected in the prepared statement and reach the
 * driver together at the first step.
 *
 * A test double takes a connection over by exchanging its `driver` for a copy of the table with
 * functions of its own.
 */
#ifndef LAPSE_STORE_DRIVER_H
#define LAPSE_STORE_DRIVER_H

#include "store/db.h"

#define DB_MAGIC 0x4c504442u
#define DB_PARAMS_MAX 64

enum db_kind { DB_NULL, DB_INT, DB_TEXT };

struct db_value {
	enum db_kind kind;
	int64_t number;
	const char *text; /* borrowed until db_finish() */
};

struct db_prepared {
	int params;
	bool open;
	uint64_t bound;          /* bit n - 1: parameter n has its value */
	struct db_value *values; /* params of them */
};

struct db_driver {
	void (*close)(struct db *db);
	const char *(*error)(const struct db *db);
	void (*interrupt)(struct db *db); /* from any thread */

	int (*begin)(struct db *db, bool write);
	int (*commit)(struct db *db);
	void (*rollback)(struct db *db);
	bool (*in_transaction)(const struct db *db);
	int64_t (*changes_total)(const struct db *db);
	int (*savepoint)(struct db *db);
	int (*release)(struct db *db);
	int (*rollback_step)(struct db *db);
	int (*script)(struct db *db, const char *sql);

	/* Finds the prepared statement, or prepares it. */
	int (*prepare)(struct db *db, const struct db_stmt *stmt, struct db_prepared **ret);

	/* Drops the prepared statement of that text; false = there is none. */
	bool (*forget)(struct db *db, const char *sql);

	/* Gives the statement its values, all bound. Once, before the first step. */
	int (*bind)(struct db *db, struct db_prepared *prepared);
	int (*step)(struct db *db, struct db_prepared *prepared);
	void (*reset)(struct db *db, struct db_prepared *prepared);
	int64_t (*changed)(const struct db *db);

	/* Sends a write without waiting for what comes of it; NULL = a posted write is run at once.
	 * What does not come out as expected is LAPSE_ERETRY from a later call, the commit at the
	 * latest, and the transaction that follows runs every write at once. */
	int (*post)(struct db *db, struct db_prepared *prepared, struct db_expect expect);

	/* The same for db_post_row(); a driver that has `post` has this one, too. Neither gets
	 * bind() before. */
	int (*post_row)(struct db *db, struct db_prepared *prepared, struct db_expect expect);

	/* Writes the rows that were gathered, or sends them. */
	int (*flush)(struct db *db);

	/* Columns of the current row. */
	int64_t (*number)(struct db_prepared *prepared, int column);
	const char *(*text)(struct db_prepared *prepared, int column);
	bool (*is_null)(struct db_prepared *prepared, int column);
};

struct db {
	uint32_t magic;
	const struct db_driver *driver;
	const struct clock *clock;
	enum db_lock lock_met; /* set by the driver, forgotten at the next begin */
	int lock_ms;           /* how long a locked row is waited for; 0 = the driver's own limit */
};

#endif
