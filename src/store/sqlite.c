/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite behind db.h. The only file that knows SQLite.
 *
 * Write-ahead log; the writer commits lazily and store/syncer.c syncs: docs/adr/0003.
 * Autocheckpoints are off because a checkpoint's fsync must not run on the loop; store/checkpoint.c
 * does them.
 */
#include <assert.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/db.h"

#define PARAMS_MAX 64
#define CACHE_KIB 40960    /* page cache of a writer: the hot part of a million rows */
#define STATEMENTS_MIN 128 /* slots of the statement table; it doubles */

struct db_prepared {
	const struct db_stmt *key; /* NULL = a free slot */
	sqlite3_stmt *stmt;
	int params;
	unsigned char index_of[PARAMS_MAX + 1]; /* $n → SQLite's index, which is by appearance */
	bool open;
};

struct db {
	sqlite3 *handle;
	const struct clock *clock;
	struct db_prepared **slots; /* open addressing by the descriptor's address */
	size_t mask, count;
	db_wal_fn *wal_fn;
	void *wal_arg;
	int64_t page_bytes;
};

void db_process_init(void)
{
	sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

static int translate(int rc)
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

const char *db_error(const struct db *db)
{
	return sqlite3_errmsg(db->handle);
}

int db_script(struct db *db, const char *sql)
{
	return translate(sqlite3_exec(db->handle, sql, NULL, NULL, NULL));
}

/* journal_size_limit: cutting the log back when it starts over took 25 ms of a commit; it keeps its
 * size, which checkpoints bound. */
static int configure(struct db *db, const struct db_config *config)
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
	return db_script(db, sql);
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

int db_open(const struct db_config *config, struct db **ret, struct problem *p)
{
	int flags = config->read_only ? SQLITE_OPEN_READONLY
				      : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
	struct db *db = mem_zalloc(1, sizeof(*db));
	int rc = sqlite3_open_v2(config->path, &db->handle, flags | SQLITE_OPEN_NOMUTEX, NULL);
	int r = translate(rc);

	db->clock = config->clock;
	db->mask = STATEMENTS_MIN - 1;
	db->slots = mem_zalloc(STATEMENTS_MIN, sizeof(*db->slots));
	if (r == LAPSE_OK) {
		sqlite3_extended_result_codes(db->handle, 1);
		sqlite3_busy_timeout(db->handle, config->busy_timeout_ms);
		r = configure(db, config);
	}
	if (r < 0) {
		problem_set(p, r, NULL, "cannot open the database %.120s: %.100s", config->path,
			    sqlite3_errmsg(db->handle));
		db_close(db);
		return r;
	}
	db->page_bytes = page_bytes(db->handle);
	*ret = db;
	return LAPSE_OK;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	for (size_t i = 0; i <= db->mask; i++)
		if (db->slots[i]) {
			sqlite3_finalize(db->slots[i]->stmt);
			free(db->slots[i]);
		}
	free(db->slots);
	sqlite3_close(db->handle);
	free(db);
}

/* The slot of the descriptor, or the free one where it belongs. */
static struct db_prepared **slot_of(const struct db *db, const struct db_stmt *key)
{
	size_t i = ((uintptr_t)key >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 32;

	while (db->slots[i & db->mask] && db->slots[i & db->mask]->key != key)
		i++;
	return &db->slots[i & db->mask];
}

static void grow_slots(struct db *db)
{
	struct db_prepared **old = db->slots;
	size_t old_mask = db->mask;

	db->mask = (old_mask + 1) * 2 - 1;
	db->slots = mem_zalloc(db->mask + 1, sizeof(*db->slots));
	for (size_t i = 0; i <= old_mask; i++)
		if (old[i])
			*slot_of(db, old[i]->key) = old[i];
	free(old);
}

static int prepare(struct db *db, const struct db_stmt *stmt, struct db_prepared **ret)
{
	sqlite3_stmt *s;
	int rc = sqlite3_prepare_v3(db->handle, stmt->sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL);

	if (rc != SQLITE_OK)
		return translate(rc);
	struct db_prepared *prepared = mem_zalloc(1, sizeof(*prepared));
	prepared->key = stmt;
	prepared->stmt = s;
	prepared->params = sqlite3_bind_parameter_count(s);
	assert(prepared->params <= PARAMS_MAX);
	for (int n = 1; n <= prepared->params; n++) {
		char name[8];
		snprintf(name, sizeof(name), "$%d", n);
		int index = sqlite3_bind_parameter_index(s, name);
		assert(index > 0); /* parameters are $1 … $n without a gap */
		prepared->index_of[n] = (unsigned char)index;
	}
	*ret = prepared;
	return LAPSE_OK;
}

struct db_query db_query(struct db *db, const struct db_stmt *stmt)
{
	struct db_query q = { .db = db };
	struct db_prepared *prepared = *slot_of(db, stmt);

	if (!prepared) {
		q.err = prepare(db, stmt, &prepared);
		if (q.err < 0)
			return q;
		if (db->count++ * 2 > db->mask)
			grow_slots(db);
		*slot_of(db, stmt) = prepared;
	}
	assert(prepared && !prepared->open);
	prepared->open = true;
	q.prepared = prepared;
	return q;
}

void db_finish(struct db_query *q)
{
	if (!q->prepared)
		return;
	sqlite3_reset(q->prepared->stmt);
	q->prepared->open = false;
	q->prepared = NULL;
}

int db_params(const struct db_query *q)
{
	return q->prepared ? q->prepared->params : 0;
}

static void note_error(struct db_query *q, int rc)
{
	if (rc != SQLITE_OK && q->err == LAPSE_OK)
		q->err = translate(rc);
}

void db_bind_int(struct db_query *q, int n, int64_t value)
{
	if (!q->prepared)
		return;
	assert(n >= 1 && n <= q->prepared->params);
	note_error(q, sqlite3_bind_int64(q->prepared->stmt, q->prepared->index_of[n], value));
}

void db_bind_text(struct db_query *q, int n, const char *text)
{
	if (!q->prepared)
		return;
	assert(n >= 1 && n <= q->prepared->params);
	note_error(q, sqlite3_bind_text(q->prepared->stmt, q->prepared->index_of[n], text, -1,
					SQLITE_STATIC));
}

int db_step(struct db_query *q)
{
	if (q->err < 0)
		return q->err;
	int rc = sqlite3_step(q->prepared->stmt);
	if (rc == SQLITE_ROW)
		return 1;
	q->err = translate(rc);
	return q->err;
}

int db_run(struct db_query *q)
{
	int r;

	while ((r = db_step(q)) > 0)
		;
	return r;
}

int64_t db_changed(const struct db_query *q)
{
	return sqlite3_changes64(q->db->handle);
}

int64_t db_changes_total(const struct db *db)
{
	return sqlite3_total_changes64(db->handle);
}

int64_t db_int(const struct db_query *q, int column)
{
	return sqlite3_column_int64(q->prepared->stmt, column);
}

const char *db_text(const struct db_query *q, int column)
{
	return (const char *)sqlite3_column_text(q->prepared->stmt, column);
}

bool db_is_null(const struct db_query *q, int column)
{
	return sqlite3_column_type(q->prepared->stmt, column) == SQLITE_NULL;
}

static int run_fixed(struct db *db, const struct db_stmt *stmt)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, stmt);

	return db_run(&q);
}

static const struct db_stmt BEGIN_WRITE = { "BEGIN IMMEDIATE" };
static const struct db_stmt BEGIN_READ = { "BEGIN" };
static const struct db_stmt COMMIT = { "COMMIT" };
static const struct db_stmt ROLLBACK = { "ROLLBACK" };
static const struct db_stmt SAVEPOINT = { "SAVEPOINT step" };
static const struct db_stmt RELEASE = { "RELEASE step" };
static const struct db_stmt ROLLBACK_TO = { "ROLLBACK TO step" };

static int begin(struct db *db, const struct db_stmt *stmt, lapse_ms *ret_now)
{
	int r = run_fixed(db, stmt);

	if (r == LAPSE_OK)
		*ret_now = clock_wall(db->clock);
	return r;
}

int db_begin(struct db *db, lapse_ms *ret_now)
{
	return begin(db, &BEGIN_WRITE, ret_now);
}

int db_begin_read(struct db *db, lapse_ms *ret_now)
{
	return begin(db, &BEGIN_READ, ret_now);
}

int db_commit(struct db *db)
{
	return run_fixed(db, &COMMIT);
}

bool db_in_transaction(const struct db *db)
{
	return !sqlite3_get_autocommit(db->handle);
}

void db_rollback(struct db *db)
{
	if (db_in_transaction(db))
		run_fixed(db, &ROLLBACK);
}

int db_savepoint(struct db *db)
{
	return run_fixed(db, &SAVEPOINT);
}

int db_release(struct db *db)
{
	return run_fixed(db, &RELEASE);
}

int db_rollback_step(struct db *db)
{
	int r = run_fixed(db, &ROLLBACK_TO);

	return r < 0 ? r : run_fixed(db, &RELEASE);
}

static int on_commit(void *arg, sqlite3 *handle, const char *name, int pages)
{
	struct db *db = arg;

	(void)handle;
	(void)name;
	db->wal_fn(db->wal_arg, pages * db->page_bytes);
	return SQLITE_OK;
}

void db_on_wal(struct db *db, db_wal_fn *fn, void *arg)
{
	db->wal_fn = fn;
	db->wal_arg = arg;
	sqlite3_wal_hook(db->handle, on_commit, db);
}

int db_checkpoint(struct db *db, bool hard, int64_t *ret_left)
{
	int mode = hard ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE;
	int all = 0, copied = 0;
	int rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, mode, &all, &copied);

	*ret_left = all > copied ? (all - copied) * db->page_bytes : 0;
	return rc == SQLITE_IOERR_FSYNC ? LAPSE_ESYNC : translate(rc);
}

struct db_log {
	const char *name; /* SQLite's form of a file name, with its parameters behind it */
	sqlite3_file *file;
	bool durable;
};

int db_log_open(const char *database, bool durable, struct db_log **ret, struct problem *p)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	struct db_log *log = mem_zalloc(1, sizeof(*log));
	char path[4096], full[4096];

	/* Through SQLite's own file layer, so that whatever stands below SQLite sees the sync. */
	snprintf(path, sizeof(path), "%s-wal", database);
	log->file = mem_zalloc(1, (size_t)vfs->szOsFile);
	log->durable = durable;
	int rc = vfs->xFullPathname(vfs, path, sizeof(full), full);
	if (rc == SQLITE_OK) {
		log->name = sqlite3_create_filename(full, "", "", 0, NULL);
		rc = vfs->xOpen(vfs, log->name, log->file,
				SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_WAL, NULL);
	}
	if (rc != SQLITE_OK) {
		db_log_close(log);
		return problem_set(p, LAPSE_EIO, NULL, "cannot open the log %.160s", path);
	}
	*ret = log;
	return LAPSE_OK;
}

int db_log_sync(struct db_log *log)
{
	if (!log->durable)
		return LAPSE_OK;
	int rc = log->file->pMethods->xSync(log->file, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
	return rc == SQLITE_OK ? LAPSE_OK : LAPSE_ESYNC;
}

void db_log_close(struct db_log *log)
{
	if (!log)
		return;
	if (log->file->pMethods)
		log->file->pMethods->xClose(log->file);
	sqlite3_free_filename((char *)(uintptr_t)log->name);
	free(log->file);
	free(log);
}

void db_interrupt(struct db *db)
{
	sqlite3_interrupt(db->handle);
}

int db_copy_to(struct db *db, const char *path)
{
	static const struct db_stmt COPY = { "VACUUM INTO $1" };
	struct db_query CLEANUP(db_finish) q = db_query(db, &COPY);

	db_bind_text(&q, 1, path);
	return db_run(&q);
}

int db_check(struct db *db, char *ret_text, size_t size)
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
