/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a database: statements and transactions. Rooms and the engine use it through the
 * transaction they are given (engine/tx.h); store/store.h owns the connections.
 *
 * What rooms may rely on is what SQLite and PostgreSQL both have: `$1` parameters, RETURNING,
 * ON CONFLICT; nothing else. A statement is prepared once per connection and found again by its
 * text. Errors come sorted: LAPSE_ERETRY (another writer; nothing happened), LAPSE_ECONFLICT (a
 * constraint), LAPSE_EFULL, LAPSE_EIO, LAPSE_ECORRUPT.
 *
 *	static const struct db_stmt FIND = { "SELECT name FROM t WHERE id = $1" };
 *
 *	struct db_query CLEANUP(db_finish) q = db_query(db, &FIND);
 *	db_bind_int(&q, 1, id);
 *	while ((r = db_step(&q)) > 0)
 *		use(db_text(&q, 0));
 *
 * Legal order of a query: db_query, every parameter bound once, then either steps up to the end
 * (db_step, db_run) or one db_post, then db_finish. A connection belongs to one thread at a time. A
 * statement can be open once per connection.
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
	bool lazy;           /* a commit does not sync; the store does */
	int busy_timeout_ms; /* how long another connection's lock is waited for */
};

/* Before the first db_open() of the process: turns off statistics that would cost a lock per
 * allocation, and makes commits cheaper (store/sqlite/pagecache.h). */
void db_process_init(void);

/* On failure `p` says why and *ret is untouched. */
int db_open(const struct db_config *config, struct db **ret, struct problem *p);
void db_close(struct db *db); /* takes NULL */

/* The last error's text, for logs. */
const char *db_error(const struct db *db);

/* A transaction. `now` is read when it begins; on PostgreSQL it is the database's. A read
 * transaction sees one state and writes nothing. */
int db_begin(struct db *db, lapse_ms *ret_now);
int db_begin_read(struct db *db, lapse_ms *ret_now);
int db_commit(struct db *db);
void db_rollback(struct db *db);

/* Whether a transaction is open. Some errors (a full disk for one) end it behind our back: after
 * any error, ask. */
bool db_in_transaction(const struct db *db);

/* Why a transaction must be tried again (LAPSE_ERETRY): a row that another session has locked, and
 * that was waited for in vain. HERE: by the very statement that returned the error; EARLIER: by a
 * posted one before it, which the next run will find. */
enum db_lock { DB_LOCK_NONE, DB_LOCK_EARLIER, DB_LOCK_HERE };
enum db_lock db_lock_met(const struct db *db);

/* The transactions that follow wait no longer for a locked row; 0 = as long as usual. */
void db_limit_lock_wait(struct db *db, int ms);

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
	int err;                      /* first error of preparing or stepping */
	bool started;                 /* the values are bound and it was stepped */
	bool ended;                   /* it has no more rows: stepping it again is a mistake */
};

struct db_query db_query(struct db *db, const struct db_stmt *stmt);
void db_finish(struct db_query *q);

/* Drops what is prepared for a text that is not used any more. It must not be open. False = there
 * was nothing. */
bool db_forget(struct db *db, const char *sql);

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

/* A posted write: an INSERT, UPDATE or DELETE whose result the caller only checks. The caller says
 * what must come out; a database over a network need not be waited for before the transaction
 * commits.
 *
 *	db_post(&q, DB_ANY)                    any number of rows, also none
 *	db_post(&q, DB_ONE)                    one row: anything else is a mistake of ours
 *	db_post(&q, DB_ONE_OR(LAPSE_ELIMIT))   one row, otherwise this error
 *	db_post(&q, DB_ROWS_OR(n, LAPSE_E…))   exactly n rows, otherwise this error
 *
 * SQLite runs it at once and returns what came out. PostgreSQL returns LAPSE_OK, looks at the
 * answers before COMMIT, and when one is not as expected has the transaction run again, awaited:
 * then this call returns the error. So the code after it must do no more than pass the error on,
 * with a text if it likes. */
struct db_expect {
	int64_t rows; /* that must have changed; negative = any number */
	int otherwise;
};
#define DB_ANY ((struct db_expect){ .rows = -1 })
#define DB_ROWS_OR(n, err) ((struct db_expect){ .rows = (n), .otherwise = (err) })
#define DB_ONE_OR(err) DB_ROWS_OR(1, err)
#define DB_ONE DB_ONE_OR(LAPSE_EINTERNAL)
int db_post(struct db_query *q, struct db_expect expect);

/* The same for a row of which many are posted in a transaction. The rows of a statement are
 * gathered and run as one, before the next statement that is waited for, the end of the step or
 * the commit. What is posted meanwhile overtakes it on PostgreSQL, so nothing that is posted may
 * rely on the row. A row that cannot be written is told as db_post() tells it on PostgreSQL, by
 * SQLite too. The statement has one of these forms, in which its text is the same for all rows;
 * SQLite gathers the first:
 *
 *	INSERT INTO t (…) VALUES (…) [ON CONFLICT (…) DO NOTHING]
 *	UPDATE t SET … WHERE …      by a key that is posted once in a transaction */
int db_post_row(struct db_query *q, struct db_expect expect);

/* Does what gathered rows wait for, so that what follows does not have to. */
int db_flush(struct db *db);

/* Columns of the current row; texts live until the next step. */
int64_t db_int(const struct db_query *q, int column);
const char *db_text(const struct db_query *q, int column); /* NULL for SQL's NULL */
bool db_is_null(const struct db_query *q, int column);

/* Ends a long read from another thread; its statement returns LAPSE_ETIMEOUT. */
void db_interrupt(struct db *db);

#endif
