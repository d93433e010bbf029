/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite behind db.h. Only the files of this folder know SQLite.
 *
 * Write-ahead log; the writer commits lazily and store/sqlite/syncer.c syncs: docs/adr/0003.
 * Autocheckpoints are off because a checkpoint's fsync must not run on the loop;
 * store/sqlite/checkpoint.c does them.
 */
#include "store/sqlite/db.h"

#include <assert.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/driver.h"
#include "store/sqlite/frames.h"
#include "store/sqlite/pagecache.h"
#include "store/sqlite/posted.h"

#define CACHE_KIB 40960    /* page cache of a writer: the hot part of a million rows */
#define POSTED_AT_ONCE 2   /* rows of a statement that do not wait for others */
#define STATEMENTS_MIN 128 /* slots of the statement table; it doubles */

struct sqlite_prepared {
	struct db_prepared head;
	const char *key; /* where its text was when it was prepared; SQLite has a copy */
	sqlite3_stmt *stmt;
	struct posted_stmt *many; /* over many rows; NULL until there were some */
	int64_t posted_in;        /* the transaction in which rows of it were posted last */
	int posted;               /* and how many */
	unsigned char index_of[DB_PARAMS_MAX + 1]; /* $n → SQLite's index, which is by appearance */
};

struct sqlite_db {
	struct db head;
	sqlite3 *handle;
	struct sqlite_prepared **slots; /* open addressing by the address of the text */
	size_t mask, count;
	sqlite_wal_fn *wal_fn;
	void *wal_arg;
	int64_t page_bytes;

	struct posted *posted; /* NULL until rows were posted */
	int64_t transactions;  /* so far */
	int failed;            /* what became of gathered rows: the transaction is lost */
	bool awaited;          /* no row waits in this transaction */
	bool await_next;       /* nor in the next one: it finds out which row is to blame */
};

static const struct db_driver SQLITE_DRIVER;

static struct sqlite_db *sqlite_of(const struct db *db)
{
	return CONTAINER_OF(db, struct sqlite_db, head);
}

static struct sqlite_prepared *prepared_of(struct db_prepared *prepared)
{
	return CONTAINER_OF(prepared, struct sqlite_prepared, head);
}

void db_process_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
	pthread_once(&once, pagecache_install);
}

int sqlite_translate(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return LAPSE_OK;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return LAPSE_ERETRY;
	case SQLITE_CONSTRAINT:
		return LAPSE_ECONFLICT;
	case SQLITE_FULL:
		return LAPSE_EFULL;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return LAPSE_EIO;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return LAPSE_ECORRUPT;
	case SQLITE_INTERRUPT:
		return LAPSE_ETIMEOUT;
	case SQLITE_TOOBIG:
		return LAPSE_ETOOLARGE;
	default:
		return LAPSE_EINTERNAL;
	}
}

static const char *sqlite_error(const struct db *db)
{
	return sqlite3_errmsg(sqlite_of(db)->handle);
}

static int sqlite_script(struct db *head, const char *sql)
{
	struct sqlite_db *db = sqlite_of(head);

	assert(posted_rows(db->posted) == 0); /* scripts are for schemas, at a start */
	return sqlite_translate(sqlite3_exec(db->handle, sql, NULL, NULL, NULL));
}

/* journal_size_limit: cutting the log back when it starts over took 25 ms of a commit; it keeps its
 * size, which checkpoints bound. */
static int sqlite_configure(struct sqlite_db *db, const struct db_config *config)
{
	char sql[512];

	snprintf(
		sql, sizeof(sql),
		"PRAGMA temp_store=MEMORY; PRAGMA cache_size=-%d; PRAGMA wal_autocheckpoint=0;"
		"PRAGMA synchronous=%s; PRAGMA journal_size_limit=-1; PRAGMA trusted_schema=OFF;%s",
		config->read_only ? CACHE_KIB / 16 : CACHE_KIB,
		!config->durable ? "OFF"
		: config->lazy   ? "NORMAL"
				 : "FULL",
		config->read_only ? "" : "PRAGMA journal_mode=WAL;");
	return sqlite_script(&db->head, sql);
}

static int64_t page_bytes(sqlite3 *handle)
{
	sqlite3_stmt *s = NULL;
	int64_t n = 4096;

	if (sqlite3_prepare_v2(handle, "PRAGMA page_size", -1, &s, NULL) == SQLITE_OK &&
	    sqlite3_step(s) == SQLITE_ROW)
		n = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return n;
}

static void free_prepared(struct sqlite_prepared *prepared)
{
	assert(!prepared->head.open);
	posted_stmt_free(prepared->many);
	sqlite3_finalize(prepared->stmt);
	free(prepared->head.values);
	free(prepared);
}

static void sqlite_close(struct db *head)
{
	struct sqlite_db *db = sqlite_of(head);

	posted_drop(db->posted);
	for (size_t i = 0; i <= db->mask; i++)
		if (db->slots[i])
			free_prepared(db->slots[i]);
	free(db->slots);
	sqlite3_close(db->handle);
	posted_free(db->posted);
	head->magic = 0;
	free(db);
}

int db_open(const struct db_config *config, struct db **ret, struct problem *p)
{
	int flags = config->read_only ? SQLITE_OPEN_READONLY
				      : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
	struct sqlite_db *db = mem_zalloc(1, sizeof(*db));
	int rc = sqlite3_open_v2(config->path, &db->handle, flags | SQLITE_OPEN_NOMUTEX,
				 config->read_only ? NULL : frames_vfs());
	int r = sqlite_translate(rc);

	db->head =
		(struct db){ .magic = DB_MAGIC, .driver = &SQLITE_DRIVER, .clock = config->clock };
	db->mask = STATEMENTS_MIN - 1;
	db->slots = mem_zalloc(STATEMENTS_MIN, sizeof(*db->slots));
	if (r == LAPSE_OK) {
		sqlite3_extended_result_codes(db->handle, 1);
		sqlite3_busy_timeout(db->handle, config->busy_timeout_ms);
		frames_watch(db->handle);
		r = sqlite_configure(db, config);
	}
	if (r < 0) {
		problem_set(p, r, NULL, "cannot open the database %.120s: %.100s", config->path,
			    sqlite3_errmsg(db->handle));
		sqlite_close(&db->head);
		return r;
	}
	db->page_bytes = page_bytes(db->handle);
	*ret = &db->head;
	return LAPSE_OK;
}

/* The slot of the text at that address, or the free one where it belongs. */
static struct sqlite_prepared **slot_of(const struct sqlite_db *db, const char *key)
{
	size_t i = ((uintptr_t)key >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 32;

	while (db->slots[i & db->mask] && db->slots[i & db->mask]->key != key)
		i++;
	return &db->slots[i & db->mask];
}

static void grow_slots(struct sqlite_db *db)
{
	struct sqlite_prepared **old = db->slots;
	size_t old_mask = db->mask;

	db->mask = (old_mask + 1) * 2 - 1;
	db->slots = mem_zalloc(db->mask + 1, sizeof(*db->slots));
	for (size_t i = 0; i <= old_mask; i++)
		if (old[i])
			*slot_of(db, old[i]->key) = old[i];
	free(old);
}

/* The address is only where to look first: a text that was freed may have left its place to
 * another one. */
static bool is_text_of(const struct sqlite_prepared *prepared, const char *sql)
{
	return strcmp(sqlite3_sql(prepared->stmt), sql) == 0;
}

static void forget_slot(struct sqlite_db *db, size_t i)
{
	free_prepared(db->slots[i]);
	db->slots[i] = NULL;
	db->count--;
	/* Those behind it may have been pushed there by it. */
	for (i = (i + 1) & db->mask; db->slots[i]; i = (i + 1) & db->mask) {
		struct sqlite_prepared *moved = db->slots[i];
		db->slots[i] = NULL;
		*slot_of(db, moved->key) = moved;
	}
}

static bool sqlite_forget(struct db *head, const char *sql)
{
	struct sqlite_db *db = sqlite_of(head);
	size_t i = 0;

	while (i <= db->mask && !(db->slots[i] && is_text_of(db->slots[i], sql)))
		i++;
	if (i > db->mask)
		return false;
	forget_slot(db, i);
	return true;
}

static int prepare_statement(struct sqlite_db *db, const struct db_stmt *stmt,
			     struct sqlite_prepared **ret)
{
	sqlite3_stmt *s;
	int rc = sqlite3_prepare_v3(db->handle, stmt->sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL);

	if (rc != SQLITE_OK)
		return sqlite_translate(rc);
	struct sqlite_prepared *prepared = mem_zalloc(1, sizeof(*prepared));
	prepared->key = stmt->sql;
	prepared->stmt = s;
	int params = sqlite3_bind_parameter_count(s);
	assert(params <= DB_PARAMS_MAX);
	prepared->head.params = params;
	prepared->head.values = mem_zalloc((size_t)params + 1, sizeof(*prepared->head.values));
	for (int n = 1; n <= params; n++) {
		char name[8];
		snprintf(name, sizeof(name), "$%d", n);
		int index = sqlite3_bind_parameter_index(s, name);
		assert(index > 0); /* parameters are $1 … $n without a gap */
		prepared->index_of[n] = (unsigned char)index;
	}
	*ret = prepared;
	return LAPSE_OK;
}

static int sqlite_prepare(struct db *head, const struct db_stmt *stmt, struct db_prepared **ret)
{
	struct sqlite_db *db = sqlite_of(head);
	struct sqlite_prepared *prepared = *slot_of(db, stmt->sql);

	if (prepared && !is_text_of(prepared, stmt->sql)) {
		forget_slot(db, (size_t)(slot_of(db, stmt->sql) - db->slots));
		prepared = NULL;
	}
	if (!prepared) {
		int r = prepare_statement(db, stmt, &prepared);
		if (r < 0)
			return r;
		if (db->count++ * 2 > db->mask)
			grow_slots(db);
		*slot_of(db, stmt->sql) = prepared;
	}
	*ret = &prepared->head;
	return LAPSE_OK;
}

static int bind_value(sqlite3_stmt *stmt, int index, const struct db_value *v)
{
	switch (v->kind) {
	case DB_INT:
		return sqlite3_bind_int64(stmt, index, v->number);
	case DB_TEXT:
		return sqlite3_bind_text(stmt, index, v->text, -1, SQLITE_STATIC);
	case DB_NULL:
		break;
	}
	return sqlite3_bind_null(stmt, index);
}

static int sqlite_bind(struct db *db, struct db_prepared *prepared)
{
	const struct sqlite_prepared *p = prepared_of(prepared);

	(void)db;
	for (int n = 1; n <= prepared->params; n++) {
		int rc = bind_value(p->stmt, p->index_of[n], &prepared->values[n - 1]);
		if (rc != SQLITE_OK)
			return sqlite_translate(rc);
	}
	return LAPSE_OK;
}

/* Writes the rows that wait. What becomes of them belongs to rows posted before, so it ends the
 * transaction: a constraint is found again by the next one, at the row that is to blame. */
static int sqlite_flush(struct db *head)
{
	struct sqlite_db *db = sqlite_of(head);

	if (db->failed < 0 || posted_rows(db->posted) == 0)
		return db->failed;
	int r = posted_run(db->posted);
	if (r == LAPSE_ECONFLICT)
		r = LAPSE_ERETRY;
	db->await_next |= r == LAPSE_ERETRY;
	if (r < 0)
		posted_drop(db->posted);
	db->failed = r;
	return r;
}

static int sqlite_step(struct db *head, struct db_prepared *prepared)
{
	struct sqlite_db *db = sqlite_of(head);

	if (posted_rows(db->posted) > 0 && !sqlite3_stmt_busy(prepared_of(prepared)->stmt))
		sqlite_flush(head);
	if (db->failed < 0)
		return db->failed;
	int rc = sqlite3_step(prepared_of(prepared)->stmt);
	return rc == SQLITE_ROW ? 1 : sqlite_translate(rc);
}

static void sqlite_reset(struct db *db, struct db_prepared *prepared)
{
	(void)db;
	sqlite3_reset(prepared_of(prepared)->stmt);
}

static int64_t sqlite_changed(const struct db *db)
{
	return sqlite3_changes64(sqlite_of(db)->handle);
}

static int64_t sqlite_changes_total(const struct db *head)
{
	const struct sqlite_db *db = sqlite_of(head);

	return sqlite3_total_changes64(db->handle) + posted_rows(db->posted);
}

static int64_t sqlite_number(struct db_prepared *prepared, int column)
{
	return sqlite3_column_int64(prepared_of(prepared)->stmt, column);
}

static const char *sqlite_text(struct db_prepared *prepared, int column)
{
	return (const char *)sqlite3_column_text(prepared_of(prepared)->stmt, column);
}

static bool sqlite_is_null(struct db_prepared *prepared, int column)
{
	return sqlite3_column_type(prepared_of(prepared)->stmt, column) == SQLITE_NULL;
}

/* A statement of our own, without parameters. */
static int sqlite_run_fixed(struct db *db, const struct db_stmt *stmt)
{
	struct db_prepared *prepared;
	int r = sqlite_prepare(db, stmt, &prepared);

	if (r < 0)
		return r;
	r = sqlite_translate(sqlite3_step(prepared_of(prepared)->stmt));
	sqlite3_reset(prepared_of(prepared)->stmt);
	return r;
}

static const struct db_stmt BEGIN_WRITE = { "BEGIN IMMEDIATE" };
static const struct db_stmt BEGIN_READ = { "BEGIN" };
static const struct db_stmt COMMIT = { "COMMIT" };
static const struct db_stmt ROLLBACK = { "ROLLBACK" };
static const struct db_stmt SAVEPOINT = { "SAVEPOINT step" };
static const struct db_stmt RELEASE = { "RELEASE step" };
static const struct db_stmt ROLLBACK_TO = { "ROLLBACK TO step" };

static int sqlite_begin(struct db *head, bool write)
{
	struct sqlite_db *db = sqlite_of(head);

	assert(db->failed == LAPSE_OK && posted_rows(db->posted) == 0);
	db->transactions++;
	db->awaited = db->await_next;
	db->await_next = false;
	return sqlite_run_fixed(head, write ? &BEGIN_WRITE : &BEGIN_READ);
}

/* After the rows that wait. */
static int sqlite_run_after_rows(struct db *head, const struct db_stmt *stmt)
{
	int r = sqlite_flush(head);

	return r < 0 ? r : sqlite_run_fixed(head, stmt);
}

static int sqlite_commit(struct db *db)
{
	return sqlite_run_after_rows(db, &COMMIT);
}

static bool has_transaction(const struct sqlite_db *db)
{
	return !sqlite3_get_autocommit(db->handle);
}

static bool sqlite_in_transaction(const struct db *head)
{
	const struct sqlite_db *db = sqlite_of(head);

	return has_transaction(db) && db->failed == LAPSE_OK;
}

static void sqlite_rollback(struct db *head)
{
	struct sqlite_db *db = sqlite_of(head);

	posted_drop(db->posted);
	db->failed = LAPSE_OK;
	if (has_transaction(db))
		sqlite_run_fixed(head, &ROLLBACK);
}

static int sqlite_savepoint(struct db *db)
{
	return sqlite_run_after_rows(db, &SAVEPOINT);
}

static int sqlite_release(struct db *db)
{
	return sqlite_run_after_rows(db, &RELEASE);
}

static int sqlite_rollback_step(struct db *head)
{
	struct sqlite_db *db = sqlite_of(head);

	posted_drop(db->posted); /* what waited before the step is written */
	int r = db->failed < 0 ? db->failed : sqlite_run_fixed(head, &ROLLBACK_TO);
	return r < 0 ? r : sqlite_run_fixed(head, &RELEASE);
}

/* Posted rows */

/* The first rows of a statement are written at once: a transaction with few of them gains nothing.
 */
static bool may_wait(struct sqlite_db *db, struct sqlite_prepared *p)
{
	if (db->awaited || db->failed < 0 || !has_transaction(db))
		return false;
	if (p->posted_in != db->transactions) {
		p->posted_in = db->transactions;
		p->posted = 0;
	}
	return p->posted++ >= POSTED_AT_ONCE && posted_takes(&p->head) &&
	       strncmp(sqlite3_sql(p->stmt), "INSERT", 6) == 0;
}

static int post_now(struct db *head, struct db_prepared *prepared, struct db_expect expect)
{
	int r = sqlite_bind(head, prepared);

	if (r == LAPSE_OK)
		r = sqlite_step(head, prepared);
	assert(r <= 0);
	if (r < 0 || expect.rows < 0 || sqlite_changed(head) == expect.rows)
		return r;
	return expect.otherwise;
}

static int sqlite_post_row(struct db *head, struct db_prepared *prepared, struct db_expect expect)
{
	struct sqlite_db *db = sqlite_of(head);
	struct sqlite_prepared *p = prepared_of(prepared);
	bool full = false;

	if (!may_wait(db, p))
		return post_now(head, prepared, expect);
	if (!db->posted)
		db->posted = posted_new(db->handle);
	if (!db->posted || (!p->many && posted_stmt_new(db->posted, sqlite3_sql(p->stmt),
							p->head.params, &p->many) < 0))
		return post_now(head, prepared, expect);
	posted_add(db->posted, p->many, p->head.values, expect.rows, &full);
	return full ? sqlite_flush(head) : LAPSE_OK;
}

static void sqlite_interrupt(struct db *db)
{
	sqlite3_interrupt(sqlite_of(db)->handle);
}

static const struct db_driver SQLITE_DRIVER = {
	.close = sqlite_close,
	.error = sqlite_error,
	.interrupt = sqlite_interrupt,
	.begin = sqlite_begin,
	.commit = sqlite_commit,
	.rollback = sqlite_rollback,
	.in_transaction = sqlite_in_transaction,
	.changes_total = sqlite_changes_total,
	.savepoint = sqlite_savepoint,
	.release = sqlite_release,
	.rollback_step = sqlite_rollback_step,
	.script = sqlite_script,
	.prepare = sqlite_prepare,
	.forget = sqlite_forget,
	.bind = sqlite_bind,
	.step = sqlite_step,
	.reset = sqlite_reset,
	.changed = sqlite_changed,
	.post_row = sqlite_post_row,
	.flush = sqlite_flush,
	.number = sqlite_number,
	.text = sqlite_text,
	.is_null = sqlite_is_null,
};

static int sqlite_on_commit(void *arg, sqlite3 *handle, const char *name, int pages)
{
	const struct sqlite_db *db = arg;

	(void)handle;
	(void)name;
	db->wal_fn(db->wal_arg, pages * db->page_bytes);
	return SQLITE_OK;
}

void sqlite_on_wal(struct db *head, sqlite_wal_fn *fn, void *arg)
{
	struct sqlite_db *db = sqlite_of(head);

	db->wal_fn = fn;
	db->wal_arg = arg;
	sqlite3_wal_hook(db->handle, sqlite_on_commit, db);
}

int sqlite_checkpoint(struct db *head, bool hard, int64_t *ret_left)
{
	const struct sqlite_db *db = sqlite_of(head);
	int mode = hard ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE;
	int all = 0, copied = 0;
	int rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, mode, &all, &copied);

	*ret_left = all > copied ? (all - copied) * db->page_bytes : 0;
	return rc == SQLITE_IOERR_FSYNC ? LAPSE_ESYNC : sqlite_translate(rc);
}

int sqlite_sync(struct db *head)
{
	sqlite3_file *file = NULL;
	int rc = sqlite3_file_control(sqlite_of(head)->handle, NULL, SQLITE_FCNTL_FILE_POINTER,
				      &file);

	if (rc == SQLITE_OK)
		rc = file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
	return rc == SQLITE_IOERR_FSYNC ? LAPSE_ESYNC : sqlite_translate(rc);
}

int sqlite_copy_to(struct db *db, const char *path)
{
	static const struct db_stmt COPY = { "VACUUM INTO $1" };
	struct db_query CLEANUP(db_finish) q = db_query(db, &COPY);

	db_bind_text(&q, 1, path);
	return db_run(&q);
}

int sqlite_check(struct db *db, char *ret_text, size_t size)
{
	static const struct db_stmt CHECK = { "PRAGMA integrity_check(1)" };
	struct db_query CLEANUP(db_finish) q = db_query(db, &CHECK);
	int r = db_step(&q);

	if (r < 0)
		return r;
	const char *text = r > 0 ? db_text(&q, 0) : NULL;
	if (!text)
		text = "the check gave no answer";
	snprintf(ret_text, size, "%s", strcmp(text, "ok") == 0 ? "" : text);
	return LAPSE_OK;
}
