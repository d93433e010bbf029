/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The database, as the rest of lapse sees it: one connection, statements, transactions.
 *
 * What rooms may rely on is what SQLite and PostgreSQL both have: `$1` parameters, RETURNING,
 * ON CONFLICT; nothing else. Statements are static descriptors, prepared once a connection and
 * found again by their address. Errors come sorted: LAPSE_ERETRY (another writer; nothing
 * happened), LAPSE_ECONFLICT (a constraint), LAPSE_EFULL, LAPSE_EIO, LAPSE_ECORRUPT.
 *
 *	static const struct db_stmt FIND = { "SELECT name FROM t WHERE id = $1" };
 *
 *	struct db_query CLEANUP(db_finish) q = db_query(db, &FIND);
 *	db_bind_int(&q, 1, id);
 *	while ((r = db_step(&q)) > 0)
 *		use(db_text(&q, 0));
 *
 * A connection belongs to one thread at a time. A statement can be open once a connection.
 */
#ifndef LAPSE_STORE_DB_H
#define LAPSE_STORE_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

struct db;

struct db_config {
	const char *path;
	const struct clock *clock;
	bool read_only;
	bool durable;        /* false: nothing is synced, for tests that prove they notice */
	bool lazy;           /* a commit does not sync; syncer.h does */
	int busy_timeout_ms; /* how long another connection's lock is waited for */
};

/* Once a process, before the first db_open(): turns off statistics that cost a lock an allocation.
 */
void db_process_init(void);

/* On failure `p` says why and *ret is untouched. */
int db_open(const struct db_config *config, struct db **ret, struct problem *p);
void db_close(struct db *db);

/* The last error's text, for logs. */
const char *db_error(const struct db *db);

/* A transaction. `now` is read when it begins; on PostgreSQL it will be the database's. A read
 * transaction sees one state and writes nothing. */
int db_begin(struct db *db, lapse_ms *ret_now);
int db_begin_read(struct db *db, lapse_ms *ret_now);
int db_commit(struct db *db);
void db_rollback(struct db *db);

/* Whether a transaction is open. Some errors (a full disk for one) end it behind our back: after
 * any error, ask. */
bool db_in_transaction(const struct db *db);

/* A number that grows with every row the connection changes. */
int64_t db_changes_total(const struct db *db);

/* One step inside a transaction that can be undone alone. They do not nest. */
int db_savepoint(struct db *db);
int db_release(struct db *db);
int db_rollback_step(struct db *db);

/* Runs a script of several statements, without parameters. */
int db_script(struct db *db, const char *sql);

struct db_stmt {
	const char *sql;
};

struct db_query {
	struct db *db;
	struct db_prepared *prepared; /* NULL when preparing failed */
	int err;                      /* first error of preparing or binding */
};

struct db_query db_query(struct db *db, const struct db_stmt *stmt);
void db_finish(struct db_query *q);

/* How many parameters the statement has. */
int db_params(const struct db_query *q);

/* Bound values are borrowed until db_finish(). A NULL text is SQL's NULL. */
void db_bind_int(struct db_query *q, int n, int64_t value);
void db_bind_text(struct db_query *q, int n, const char *text);

/* 1 = a row, 0 = done, negative = an error. */
int db_step(struct db_query *q);

/* Steps to the end and drops what comes. */
int db_run(struct db_query *q);

/* How many rows the finished INSERT, UPDATE or DELETE changed. Cheaper than RETURNING, which makes
 * SQLite build a temporary table. */
int64_t db_changed(const struct db_query *q);

/* Columns of the current row; texts live until the next step. */
int64_t db_int(const struct db_query *q, int column);
const char *db_text(const struct db_query *q, int column); /* NULL for SQL's NULL */
bool db_is_null(const struct db_query *q, int column);

/* SQLite's write-ahead log. The hook runs after each commit with the log's size; checkpoints are
 * made on a connection of their own, off the loop. A hard checkpoint makes writers wait for the
 * little that is left and lets the log start over.
 *
 * LAPSE_ESYNC from a checkpoint means that pages copied from the log may be lost although the log
 * says they were copied: only a restart that replays the whole log is safe then, before anything
 * overwrites it and without a clean close, which would checkpoint again. */
typedef void db_wal_fn(void *arg, int64_t wal_bytes);
void db_on_wal(struct db *db, db_wal_fn *fn, void *arg);
int db_checkpoint(struct db *db, bool hard, int64_t *ret_left); /* bytes of log not copied */

/* The write-ahead log as a file that can be synced, from any one thread, while others write it. */
struct db_log;
int db_log_open(const char *database, bool durable, struct db_log **ret, struct problem *p);
int db_log_sync(struct db_log *log);
void db_log_close(struct db_log *log); /* takes NULL */

/* Ends a long read from another thread; its statement returns LAPSE_ETIMEOUT. */
void db_interrupt(struct db *db);

/* Writes a consistent copy of the whole database to a new file. */
int db_copy_to(struct db *db, const char *path);

/* Whether the file is sound: empty text = yes, else what is wrong. */
int db_check(struct db *db, char *ret_text, size_t size);

#endif
