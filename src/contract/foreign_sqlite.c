/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's SQLite file. It stays as its owner set it up: the journal mode is never changed, nothing
 * is created, and closing does not checkpoint. Foreign keys are enforced, as the file's own program
 * is expected to.
 *
 * In WAL mode a lazy removal's commit is not synced, which would make every writer wait for the
 * disk: after a loss of power rows may be back, in order, and the next sweep removes them again.
 */
#include <assert.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "contract/foreign.h"

#define KEPT_MAX 16   /* statements that stay compiled: those of a slice, several times over */
#define NAP_US 100    /* between two tries for the lock: a commit of another takes about as long */
#define NAPS_SHORT 20 /* tries after so short a nap; then it is a millisecond */
#define TIDY_PAGES 1000     /* of the log: from here on SQLite makes who commits write them back */
#define PROGRESS_STEPS 2000 /* of SQLite's machine between two looks at the clock, about 50 µs */

struct kept {
	char *sql;
	sqlite3_stmt *stmt;
	uint64_t used;
};

struct foreign_sqlite {
	struct foreign base;
	sqlite3 *db;
	struct kept kept[KEPT_MAX];
	uint64_t uses;
	int64_t statement_ms, lock_ms;
	bool has_log;      /* the journal mode is WAL */
	bool lazy;         /* commits are not synced */
	int log_pages;     /* of the log at our last commit */
	int64_t version;   /* changes when another connection has written; 0 = not known yet */
	lapse_us deadline; /* monotonic, of the running statement */
	atomic_bool cancelled;
};

static struct foreign_sqlite *foreign_sqlite_of(struct foreign *f)
{
	assert(f->driver == &FOREIGN_SQLITE_DRIVER);
	return (struct foreign_sqlite *)f;
}

static int sort_sqlite(int code)
{
	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return LAPSE_ERETRY;
	case SQLITE_INTERRUPT:
		return LAPSE_ETIMEOUT;
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return LAPSE_EFORBIDDEN;
	case SQLITE_CONSTRAINT:
		return LAPSE_ECONFLICT;
	case SQLITE_FULL:
		return LAPSE_EFULL;
	case SQLITE_CANTOPEN:
		return LAPSE_EUNAVAILABLE;
	case SQLITE_IOERR:
		return LAPSE_EIO;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return LAPSE_ECORRUPT;
	default:
		return LAPSE_EUPSTREAM;
	}
}

/* SQLite has no code of its own for a name that is missing. */
static int fail_sqlite(struct foreign_sqlite *s, int code)
{
	const char *words = sqlite3_errmsg(s->db);
	int err = sort_sqlite(code);

	if ((code & 0xff) == SQLITE_ERROR &&
	    (strstr(words, "no such table") || strstr(words, "no such column")))
		err = LAPSE_ENOTFOUND;
	return foreign_fail(&s->base, err, words);
}

static int look_at_clock(void *arg)
{
	struct foreign_sqlite *s = arg;

	return atomic_load(&s->cancelled) || clock_mono(&CLOCK_SYSTEM) > s->deadline;
}

/* SQLite's own handler would sleep for up to 100 ms at a time, and miss the moment. */
static int nap_for_lock(void *arg, int tries)
{
	const struct foreign_sqlite *s = arg;

	if (tries > s->lock_ms)
		return 0;
	usleep(tries < NAPS_SHORT ? NAP_US : 1000);
	return 1;
}

/* In the place of SQLite's own, which would write pages back before the commit returns. */
static int note_log_pages(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct foreign_sqlite *s = arg;

	(void)db;
	(void)name;
	s->log_pages = pages;
	return SQLITE_OK;
}

/* Whether the file is a store of lapse: bounds of a contract must not reach into it. */
static bool is_own_store(sqlite3 *db)
{
	static const char sql[] =
		"SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN "
		"('holds', 'idempotency_keys', 'sweeps', 'cleanups', 'counts')";
	sqlite3_stmt *stmt = NULL;
	bool own = false;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		own = sqlite3_column_int(stmt, 0) == 5;
	sqlite3_finalize(stmt);
	return own;
}

static int open_sqlite_file(const struct foreign_config *config, sqlite3 **ret, struct buf *error)
{
	int flags = config->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
	sqlite3 *db = NULL;
	int code = sqlite3_open_v2(config->target, &db, flags | SQLITE_OPEN_NOMUTEX, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_exec(db, "PRAGMA foreign_keys=ON; SELECT 1 FROM sqlite_schema", NULL,
				    NULL, NULL);
	if (code == SQLITE_OK && is_own_store(db)) {
		buf_puts(error, "this is lapse's own store; a contract is for other databases");
		sqlite3_close(db);
		return LAPSE_EFORBIDDEN;
	}
	if (code != SQLITE_OK) {
		buf_printf(error, "cannot open %s: %s", config->target,
			   db ? sqlite3_errmsg(db) : "out of memory");
		sqlite3_close(db);
		return sort_sqlite(code);
	}
	*ret = db;
	return LAPSE_OK;
}

static bool has_log(sqlite3 *db)
{
	sqlite3_stmt *stmt = NULL;
	bool is_wal = false;

	if (sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		is_wal = strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0;
	sqlite3_finalize(stmt);
	return is_wal;
}

static int foreign_sqlite_open(const struct foreign_config *config, struct foreign **ret,
			       struct buf *error)
{
	sqlite3 *db = NULL;
	int err = open_sqlite_file(config, &db, error);

	if (err < 0)
		return err;
	struct foreign_sqlite *s = mem_zalloc(1, sizeof(*s));
	s->base.driver = &FOREIGN_SQLITE_DRIVER;
	s->db = db;
	s->base.read_only = sqlite3_db_readonly(db, "main") == 1;
	s->statement_ms = config->statement_ms;
	sqlite3_extended_result_codes(db, 1);
	sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	s->lock_ms = config->lock_ms;
	s->has_log = has_log(db);
	sqlite3_busy_handler(db, nap_for_lock, s);
	sqlite3_wal_hook(db, note_log_pages, s);
	sqlite3_progress_handler(db, PROGRESS_STEPS, look_at_clock, s);
	*ret = &s->base;
	return LAPSE_OK;
}

static void kept_drop(struct kept *k)
{
	sqlite3_finalize(k->stmt);
	free(k->sql);
	*k = (struct kept){ 0 };
}

static void foreign_sqlite_close(struct foreign *f)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);

	for (size_t i = 0; i < KEPT_MAX; i++)
		kept_drop(&s->kept[i]);
	int code = sqlite3_close(s->db);
	assert(code == SQLITE_OK);
	(void)code;
	free(s);
}

static void start_clock(struct foreign_sqlite *s)
{
	atomic_store(&s->cancelled, false);
	s->deadline = time_add(clock_mono(&CLOCK_SYSTEM), s->statement_ms * 1000);
}

static int run_sqlite_text(struct foreign_sqlite *s, const char *sql)
{
	start_clock(s);
	int code = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
	return code == SQLITE_OK ? LAPSE_OK : fail_sqlite(s, code);
}

static int sync_lazily(struct foreign_sqlite *s, bool lazy)
{
	if (!s->has_log || lazy == s->lazy)
		return LAPSE_OK;
	int err =
		run_sqlite_text(s, lazy ? "PRAGMA synchronous=NORMAL" : "PRAGMA synchronous=FULL");
	if (err == LAPSE_OK)
		s->lazy = lazy;
	return err;
}

static int foreign_sqlite_begin(struct foreign *f, bool write, int64_t lock_ms)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);
	int err = write ? sync_lazily(s, false) : LAPSE_OK;

	(void)lock_ms;
	assert(sqlite3_get_autocommit(s->db));
	return err < 0 ? err : run_sqlite_text(s, write ? "BEGIN IMMEDIATE" : "BEGIN");
}

static int foreign_sqlite_commit(struct foreign *f)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);
	int err = run_sqlite_text(s, "COMMIT");

	if (err < 0 && !sqlite3_get_autocommit(s->db))
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return err;
}

/* Some errors end the transaction by themselves. */
static void foreign_sqlite_rollback(struct foreign *f)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);

	if (!sqlite3_get_autocommit(s->db))
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}

/* The compiled statement of this text: one from before, or a new one in the place of the one that
 * was not used for longest. */
static int find_statement(struct foreign_sqlite *s, const char *sql, sqlite3_stmt **ret)
{
	struct kept *oldest = &s->kept[0];

	for (size_t i = 0; i < KEPT_MAX; i++) {
		struct kept *k = &s->kept[i];
		if (k->sql && strcmp(k->sql, sql) == 0) {
			k->used = ++s->uses;
			*ret = k->stmt;
			return LAPSE_OK;
		}
		if (k->used < oldest->used)
			oldest = k;
	}
	sqlite3_stmt *stmt = NULL;
	int code = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
	if (code != SQLITE_OK)
		return fail_sqlite(s, code);
	kept_drop(oldest);
	*oldest = (struct kept){ .sql = mem_strdup(sql), .stmt = stmt, .used = ++s->uses };
	*ret = stmt;
	return LAPSE_OK;
}

static void bind_datum(sqlite3_stmt *stmt, int n, const struct datum *d)
{
	switch (d->kind) {
	case DATUM_NULL:
		sqlite3_bind_null(stmt, n);
		return;
	case DATUM_INT:
		sqlite3_bind_int64(stmt, n, d->number);
		return;
	case DATUM_REAL:
		sqlite3_bind_double(stmt, n, d->real);
		return;
	case DATUM_TEXT:
		sqlite3_bind_text(stmt, n, d->text, (int)d->size, SQLITE_STATIC);
		return;
	case DATUM_BLOB:
		sqlite3_bind_blob(stmt, n, d->text, (int)d->size, SQLITE_STATIC);
		return;
	}
}

static struct datum read_datum(struct arena *arena, sqlite3_stmt *stmt, int column)
{
	struct datum d = { 0 };

	switch (sqlite3_column_type(stmt, column)) {
	case SQLITE_INTEGER:
		return datum_int(sqlite3_column_int64(stmt, column));
	case SQLITE_FLOAT:
		return (struct datum){ .kind = DATUM_REAL,
				       .real = sqlite3_column_double(stmt, column) };
	case SQLITE_TEXT:
		d.kind = DATUM_TEXT;
		d.text = (const char *)sqlite3_column_text(stmt, column);
		break;
	case SQLITE_BLOB:
		d.kind = DATUM_BLOB;
		d.text = sqlite3_column_blob(stmt, column);
		break;
	default:
		return d;
	}
	d.size = (size_t)sqlite3_column_bytes(stmt, column);
	return datum_copy(arena, &(struct datum){ d.kind, 0, 0, d.text ? d.text : "", d.size });
}

static void read_sqlite_row(sqlite3_stmt *stmt, struct rows *ret)
{
	struct datum *cells = rows_add(ret);

	for (size_t i = 0; i < ret->columns; i++)
		cells[i] = read_datum(&ret->arena, stmt, (int)i);
}

static int foreign_sqlite_run(struct foreign *f, const char *sql, const struct datum *params,
			      size_t count, struct rows *ret)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);
	sqlite3_stmt *stmt = NULL;
	int code;

	start_clock(s);
	int err = find_statement(s, sql, &stmt);
	if (err < 0)
		return err;
	assert((size_t)sqlite3_bind_parameter_count(stmt) == count);
	for (size_t i = 0; i < count; i++)
		bind_datum(stmt, (int)i + 1, &params[i]);
	ret->columns = (size_t)sqlite3_column_count(stmt);
	int64_t before = sqlite3_total_changes64(s->db);
	while ((code = sqlite3_step(stmt)) == SQLITE_ROW)
		read_sqlite_row(stmt, ret);
	if (code == SQLITE_DONE && sqlite3_total_changes64(s->db) != before)
		ret->changed = sqlite3_changes64(s->db);
	if (code != SQLITE_DONE)
		err = fail_sqlite(s, code);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return err;
}

static int foreign_sqlite_begin_removal(struct foreign *f, int64_t lock_ms, bool lazy)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);
	struct rows CLEANUP(rows_done) rows;

	(void)lock_ms;
	rows_init(&rows);
	int err = sync_lazily(s, lazy);
	if (err == LAPSE_OK)
		err = foreign_sqlite_run(f, "PRAGMA data_version", NULL, 0, &rows);
	if (err < 0)
		return err;
	int64_t version = rows_int(&rows, 0, 0);
	f->met_writer = s->version != 0 && version != s->version;
	s->version = version;
	return run_sqlite_text(s, "BEGIN IMMEDIATE");
}

static int foreign_sqlite_flush(struct foreign *f)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);
	sqlite3_file *log = NULL;

	if (!s->has_log)
		return LAPSE_OK;
	int code = sqlite3_file_control(s->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
	if (code == SQLITE_OK && log && log->pMethods)
		code = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
	return code == SQLITE_OK ? LAPSE_OK
				 : foreign_fail(f, sort_sqlite(code), "the log cannot be synced");
}

/* A busy reader or another that does the same is no failure: it is tried again after the next
 * removal. */
static void foreign_sqlite_tidy(struct foreign *f)
{
	struct foreign_sqlite *s = foreign_sqlite_of(f);

	if (s->log_pages >= TIDY_PAGES)
		sqlite3_wal_checkpoint_v2(s->db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	s->log_pages = 0;
}

static int foreign_sqlite_now(struct foreign *f, lapse_ms *ret)
{
	(void)f;
	*ret = clock_wall(&CLOCK_SYSTEM);
	return LAPSE_OK;
}

static void foreign_sqlite_cancel(struct foreign *f)
{
	atomic_store(&foreign_sqlite_of(f)->cancelled, true);
}

static void foreign_sqlite_limit(struct foreign *f, int64_t statement_ms)
{
	foreign_sqlite_of(f)->statement_ms = statement_ms;
}

const struct foreign_driver FOREIGN_SQLITE_DRIVER = {
	.open = foreign_sqlite_open,
	.close = foreign_sqlite_close,
	.begin = foreign_sqlite_begin,
	.begin_removal = foreign_sqlite_begin_removal,
	.tidy = foreign_sqlite_tidy,
	.flush = foreign_sqlite_flush,
	.commit = foreign_sqlite_commit,
	.rollback = foreign_sqlite_rollback,
	.run = foreign_sqlite_run,
	.now = foreign_sqlite_now,
	.cancel = foreign_sqlite_cancel,
	.limit = foreign_sqlite_limit,
};
