/* SPDX-License-Identifier: Apache-2.0 */
/* db.h over SQLite: binding, the statement cache, transactions and steps, and errors in order. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite/db.h"
#include "unit.h"

struct desk {
	char dir[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
	struct fake_clock time;
	struct db *db;
};

static struct db *open_db(const struct desk *d, bool read_only)
{
	struct db_config config = { .path = d->path,
				    .clock = &d->time.clock,
				    .read_only = read_only,
				    .busy_timeout_ms = 1 };
	struct problem p = { 0 };
	struct db *db = NULL;

	if (db_open(&config, &db, &p) < 0)
		fail_msg("%s", p.message);
	return db;
}

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	temp_dir_make(d->dir);
	path_join(d->path, d->dir, "test.db");
	fake_clock_init(&d->time);
	d->db = open_db(d, false);
	assert_int_equal(db_script(d->db,
				   "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE,"
				   " n INTEGER NOT NULL DEFAULT 0)"),
			 LAPSE_OK);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	db_close(d->db);
	temp_dir_remove(d->dir);
	free(d);
	return 0;
}

static const struct db_stmt INSERT = { "INSERT INTO t (id, name, n) VALUES ($1, $2, $3)" };
static const struct db_stmt COUNT = { "SELECT count(*) FROM t" };

static int insert(struct db *db, int64_t id, const char *name)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &INSERT);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, name);
	db_bind_int(&q, 3, 0);
	return db_run(&q);
}

static int64_t count(struct db *db)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COUNT);

	assert_int_equal(db_step(&q), 1);
	return db_int(&q, 0);
}

/* SQLite numbers $n by first appearance; we bind by name. */
static void binds_by_name(void **state)
{
	static const struct {
		struct db_stmt stmt;
		int params;
		const char *want;
	} cases[] = {
		{ { "SELECT $1 || $2 || $3" }, 3, "abc" },
		{ { "SELECT $3 || $1 || $2" }, 3, "cab" },
		{ { "SELECT $2 || $2 || $1 || $2" }, 2, "bbab" },
		{ { "SELECT $3 || $2 || $1 || $3 || $1" }, 3, "cbaca" },
	};
	struct desk *d = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct db_query CLEANUP(db_finish) q = db_query(d->db, &cases[i].stmt);
		assert_int_equal(db_params(&q), cases[i].params);
		db_bind_text(&q, 1, "a");
		db_bind_text(&q, 2, "b");
		if (cases[i].params > 2)
			db_bind_text(&q, 3, "c");
		assert_int_equal(db_step(&q), 1);
		assert_string_equal(db_text(&q, 0), cases[i].want);
		assert_int_equal(db_step(&q), 0);
	}
}

static void binds_all_sixteen(void **state)
{
	static const struct db_stmt stmt = { "SELECT $16, $15, $14, $13, $12, $11, $10, $9, $8, "
					     "$7, $6, $5, $4, $3, $2, $1" };
	struct desk *d = *state;
	struct db_query CLEANUP(db_finish) q = db_query(d->db, &stmt);

	for (int i = 1; i <= 16; i++)
		db_bind_int(&q, i, i * 100);
	assert_int_equal(db_step(&q), 1);
	for (int i = 0; i < 16; i++)
		assert_int_equal(db_int(&q, i), (16 - i) * 100);
}

static void reads_what_it_wrote(void **state)
{
	static const struct db_stmt stmt = { "SELECT $1, $2, $3, $4" };
	struct desk *d = *state;
	struct db_query CLEANUP(db_finish) q = db_query(d->db, &stmt);

	db_bind_int(&q, 1, INT64_MIN);
	db_bind_int(&q, 2, INT64_MAX);
	db_bind_text(&q, 3, NULL);
	db_bind_text(&q, 4, "");
	assert_int_equal(db_step(&q), 1);
	assert_int_equal(db_int(&q, 0), INT64_MIN);
	assert_int_equal(db_int(&q, 1), INT64_MAX);
	assert_true(db_is_null(&q, 2));
	assert_null(db_text(&q, 2));
	assert_false(db_is_null(&q, 3));
	assert_string_equal(db_text(&q, 3), "");
}

static void a_statement_is_used_again(void **state)
{
	struct desk *d = *state;

	for (int i = 1; i <= 50; i++) {
		char name[16];
		snprintf(name, sizeof(name), "n%d", i);
		assert_int_equal(insert(d->db, i, name), LAPSE_OK);
	}
	assert_int_equal(count(d->db), 50);
}

#define MANY 700

/* Descriptors are found by address: the table grows and every one is still itself. */
static void caches_many_statements(void **state)
{
	struct db_stmt *stmts = mem_zalloc(MANY, sizeof(*stmts));
	struct desk *d = *state;

	for (int i = 0; i < MANY; i++) {
		char sql[32];
		snprintf(sql, sizeof(sql), "SELECT %d + $1", i);
		stmts[i].sql = mem_strdup(sql);
	}
	for (int k = 0; k < 3 * MANY; k++) {
		int i = k * 7 % MANY;
		struct db_query CLEANUP(db_finish) q = db_query(d->db, &stmts[i]);
		db_bind_int(&q, 1, 1000000);
		assert_int_equal(db_step(&q), 1);
		assert_int_equal(db_int(&q, 0), 1000000 + i);
	}
	for (int i = 0; i < MANY; i++)
		free((void *)(uintptr_t)stmts[i].sql);
	free(stmts);
}

static void a_bad_statement_is_an_error_not_a_crash(void **state)
{
	static const struct db_stmt bad = { "SELECT nothing FROM nowhere WHERE x = $1" };
	struct desk *d = *state;

	for (int i = 0; i < 2; i++) {
		struct db_query CLEANUP(db_finish) q = db_query(d->db, &bad);
		db_bind_int(&q, 1, 1);
		db_bind_text(&q, 1, "x");
		assert_int_equal(db_params(&q), 0);
		assert_int_equal(db_step(&q), LAPSE_EINTERNAL);
	}
	assert_int_equal(count(d->db), 0);
}

/* Errors */

static void a_constraint_is_a_conflict(void **state)
{
	struct desk *d = *state;

	assert_int_equal(insert(d->db, 1, "a"), LAPSE_OK);
	assert_int_equal(insert(d->db, 1, "b"), LAPSE_ECONFLICT);
	assert_int_equal(insert(d->db, 2, "a"), LAPSE_ECONFLICT);
	assert_int_equal(db_script(d->db, "INSERT INTO t (id, n) VALUES (3, NULL)"),
			 LAPSE_ECONFLICT);
	assert_int_equal(count(d->db), 1);
}

static void anothers_lock_is_a_retry(void **state)
{
	struct desk *d = *state;
	struct db *other = open_db(d, false);
	lapse_ms now = -1;

	assert_int_equal(db_begin(other, &now), LAPSE_OK);
	assert_int_equal(now, NOW);
	now = -1;
	assert_int_equal(db_begin(d->db, &now), LAPSE_ERETRY);
	assert_int_equal(now, -1);
	assert_false(db_in_transaction(d->db));
	assert_int_equal(insert(d->db, 1, "a"), LAPSE_ERETRY);
	assert_int_equal(db_begin_read(d->db, &now), LAPSE_OK);
	assert_int_equal(count(d->db), 0);
	assert_int_equal(db_commit(d->db), LAPSE_OK);
	db_rollback(other);
	assert_int_equal(insert(d->db, 1, "a"), LAPSE_OK);
	db_close(other);
}

/* A reader that wants to write after somebody else did cannot: its state is old. */
static void an_old_snapshot_is_a_retry(void **state)
{
	struct desk *d = *state;
	struct db *other = open_db(d, false);
	lapse_ms now;

	assert_int_equal(db_begin_read(d->db, &now), LAPSE_OK);
	assert_int_equal(count(d->db), 0);
	assert_int_equal(insert(other, 1, "a"), LAPSE_OK);
	assert_int_equal(count(d->db), 0);
	assert_int_equal(insert(d->db, 2, "b"), LAPSE_ERETRY);
	db_rollback(d->db);
	assert_int_equal(count(d->db), 1);
	db_close(other);
}

static void garbage_is_corrupt(void **state)
{
	struct desk *d = *state;
	struct db_config config = { .path = d->path, .clock = &d->time.clock };
	struct problem p = { 0 };
	struct db *db = NULL;

	path_join(d->path, d->dir, "garbage.db");
	file_write(d->path, "This is a text of more than a hundred bytes, which is no database at "
			    "all, however long one may look at its header.");
	assert_int_equal(db_open(&config, &db, &p), LAPSE_ECORRUPT);
	assert_null(db);
	assert_non_null(strstr(p.message, "garbage.db"));
}

static void a_missing_directory_is_an_io_error(void **state)
{
	struct desk *d = *state;
	struct db_config config = { .path = d->path, .clock = &d->time.clock };
	struct problem p = { 0 };
	struct db *db = NULL;

	path_join(d->path, d->dir, "nowhere/x.db");
	assert_int_equal(db_open(&config, &db, &p), LAPSE_EIO);
	assert_null(db);
	assert_non_null(strstr(p.message, "nowhere"));
}

static void a_read_only_connection_cannot_write(void **state)
{
	struct desk *d = *state;
	struct db *reader = open_db(d, true);

	assert_int_equal(insert(reader, 1, "a"), LAPSE_EIO);
	assert_int_equal(insert(d->db, 1, "a"), LAPSE_OK);
	assert_int_equal(count(reader), 1);
	db_close(reader);
}

static int fill_until_full(struct desk *d)
{
	int r = LAPSE_OK;

	for (int i = 100; r == LAPSE_OK && i < 1000; i++) {
		struct buf CLEANUP(buf_done) name = { 0 };
		buf_printf(&name, "%2000d", i);
		r = insert(d->db, i, buf_text(&name));
	}
	return r;
}

static void a_full_disk_is_full_and_passes(void **state)
{
	struct desk *d = *state;
	lapse_ms now;

	assert_int_equal(insert(d->db, 1, "a"), LAPSE_OK);
	assert_int_equal(db_script(d->db, "PRAGMA max_page_count=20"), LAPSE_OK);
	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	assert_int_equal(fill_until_full(d), LAPSE_EFULL);
	db_rollback(d->db); /* harmless where SQLite has done it already */
	assert_false(db_in_transaction(d->db));
	assert_int_equal(count(d->db), 1);
	assert_int_equal(db_script(d->db, "PRAGMA max_page_count=100000"), LAPSE_OK);
	assert_int_equal(insert(d->db, 2, "b"), LAPSE_OK);
}

/* Transactions */

static void a_transaction_is_all_or_nothing(void **state)
{
	struct desk *d = *state;
	lapse_ms now = 0;

	d->time.wall = NOW + 5;
	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	assert_int_equal(now, NOW + 5);
	assert_true(db_in_transaction(d->db));
	assert_int_equal(insert(d->db, 1, "a"), LAPSE_OK);
	db_rollback(d->db);
	assert_false(db_in_transaction(d->db));
	assert_int_equal(count(d->db), 0);
	db_rollback(d->db); /* harmless */
	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	assert_int_equal(insert(d->db, 1, "a"), LAPSE_OK);
	assert_int_equal(db_commit(d->db), LAPSE_OK);
	assert_int_equal(count(d->db), 1);
	assert_true(db_commit(d->db) < 0);
}

static void a_step_is_undone_alone(void **state)
{
	struct desk *d = *state;
	lapse_ms now;

	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	assert_int_equal(db_savepoint(d->db), LAPSE_OK);
	assert_int_equal(insert(d->db, 1, "kept"), LAPSE_OK);
	assert_int_equal(db_release(d->db), LAPSE_OK);
	assert_int_equal(db_savepoint(d->db), LAPSE_OK);
	assert_int_equal(insert(d->db, 2, "undone"), LAPSE_OK);
	assert_int_equal(insert(d->db, 3, "kept"), LAPSE_ECONFLICT);
	assert_int_equal(db_rollback_step(d->db), LAPSE_OK);
	assert_true(db_in_transaction(d->db));
	assert_int_equal(db_savepoint(d->db), LAPSE_OK);
	assert_int_equal(insert(d->db, 4, "kept too"), LAPSE_OK);
	assert_int_equal(db_release(d->db), LAPSE_OK);
	assert_int_equal(db_commit(d->db), LAPSE_OK);
	assert_int_equal(count(d->db), 2);
	assert_int_equal(insert(d->db, 2, "undone"), LAPSE_OK);
}

static void counts_changes(void **state)
{
	static const struct db_stmt update = { "UPDATE t SET n = n + 1 WHERE id <= $1" };
	struct desk *d = *state;
	int64_t before = db_changes_total(d->db);

	for (int i = 1; i <= 5; i++)
		insert(d->db, i, NULL);
	assert_int_equal(db_changes_total(d->db), before + 5);
	for (int64_t n = 5; n >= 0; n--) {
		struct db_query CLEANUP(db_finish) q = db_query(d->db, &update);
		db_bind_int(&q, 1, n);
		assert_int_equal(db_run(&q), LAPSE_OK);
		assert_int_equal(db_changed(&q), n);
	}
	assert_int_equal(db_changes_total(d->db), before + 5 + 15);
	assert_int_equal(count(d->db), 5);
	assert_int_equal(db_changes_total(d->db), before + 5 + 15);
}

/* A posted write comes to what is expected of it, or to the error the caller has named. */
static void a_post_is_held_to_its_expectation(void **state)
{
	static const struct db_stmt update = { "UPDATE t SET n = n + 1 WHERE id <= $1" };
	const struct {
		int64_t ids;
		struct db_expect expect;
		int result;
	} cases[] = {
		{ 0, DB_ANY, LAPSE_OK },
		{ 1, DB_ANY, LAPSE_OK },
		{ 3, DB_ANY, LAPSE_OK },
		{ 0, DB_ONE, LAPSE_EINTERNAL },
		{ 1, DB_ONE, LAPSE_OK },
		{ 2, DB_ONE, LAPSE_EINTERNAL },
		{ 0, DB_ONE_OR(LAPSE_ELIMIT), LAPSE_ELIMIT },
		{ 1, DB_ONE_OR(LAPSE_ELIMIT), LAPSE_OK },
		{ 2, DB_ONE_OR(LAPSE_ELIMIT), LAPSE_ELIMIT },
		{ 2, DB_ROWS_OR(3, LAPSE_ERETRY), LAPSE_ERETRY },
		{ 3, DB_ROWS_OR(3, LAPSE_ERETRY), LAPSE_OK },
		{ 0, DB_ROWS_OR(0, LAPSE_ECONFLICT), LAPSE_OK },
		{ 1, DB_ROWS_OR(0, LAPSE_ECONFLICT), LAPSE_ECONFLICT },
	};
	struct desk *d = *state;

	for (int i = 1; i <= 3; i++)
		insert(d->db, i, NULL);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct db_query CLEANUP(db_finish) q = db_query(d->db, &update);
		db_bind_int(&q, 1, cases[i].ids);
		assert_int_equal(db_post(&q, cases[i].expect), cases[i].result);
	}
}

static int post_insert(struct db *db, int64_t id, const char *name, struct db_expect expect)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &INSERT);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, name);
	db_bind_int(&q, 3, 0);
	return db_post(&q, expect);
}

/* An error of the database is that error, whatever was expected; the statement stays usable. */
static void a_post_passes_errors_on(void **state)
{
	static const struct db_stmt bad = { "UPDATE nothing SET n = 1" };
	const struct db_expect expects[] = { DB_ANY, DB_ONE, DB_ONE_OR(LAPSE_ELIMIT) };
	struct desk *d = *state;
	struct db *other = open_db(d, false);
	lapse_ms now;

	assert_int_equal(post_insert(d->db, 1, "a", DB_ONE), LAPSE_OK);
	for (size_t i = 0; i < ARRAY_LEN(expects); i++) {
		assert_int_equal(post_insert(d->db, 1, "b", expects[i]), LAPSE_ECONFLICT);
		struct db_query CLEANUP(db_finish) q = db_query(d->db, &bad);
		assert_int_equal(db_post(&q, expects[i]), LAPSE_EINTERNAL);
	}
	assert_int_equal(db_begin(other, &now), LAPSE_OK);
	assert_int_equal(post_insert(d->db, 2, "b", DB_ANY), LAPSE_ERETRY);
	db_rollback(other);
	db_close(other);
	assert_int_equal(post_insert(d->db, 2, "b", DB_ANY), LAPSE_OK);
	assert_int_equal(count(d->db), 2);
}

static void copies_itself(void **state)
{
	struct desk *d = *state;
	struct desk copy = *d;
	char fault[100] = "unset";

	insert(d->db, 1, "a");
	insert(d->db, 2, "b");
	path_join(copy.path, d->dir, "copy.db");
	assert_int_equal(sqlite_copy_to(d->db, copy.path), LAPSE_OK);
	insert(d->db, 3, "later");
	copy.db = open_db(&copy, false);
	assert_int_equal(count(copy.db), 2);
	assert_int_equal(sqlite_check(copy.db, fault, sizeof(fault)), LAPSE_OK);
	assert_string_equal(fault, "");
	db_close(copy.db);
	assert_true(sqlite_copy_to(d->db, copy.path) < 0); /* never over a file that is there */
	copy.db = open_db(&copy, false);
	assert_int_equal(count(copy.db), 2);
	db_close(copy.db);
}

static void overwrite(const char *path, long from, long to)
{
	FILE *f = fopen(path, "r+e");

	assert_non_null(f);
	assert_int_equal(fseek(f, from, SEEK_SET), 0);
	for (long i = from; i < to; i++)
		fputc('Z', f);
	assert_int_equal(fclose(f), 0);
}

static void notices_damage(void **state)
{
	struct desk *d = *state;
	char fault[100] = "";

	for (int i = 1; i <= 2000; i++)
		insert(d->db, i, NULL);
	assert_int_equal(sqlite_check(d->db, fault, sizeof(fault)), LAPSE_OK);
	assert_string_equal(fault, "");
	assert_int_equal(db_script(d->db, "PRAGMA wal_checkpoint(RESTART)"), LAPSE_OK);
	db_close(d->db);
	overwrite(d->path, 4096 * 3, 4096 * 3 + 2000);
	d->db = open_db(d, false);
	int r = sqlite_check(d->db, fault, sizeof(fault));
	assert_true(r == LAPSE_ECORRUPT || (r == LAPSE_OK && fault[0]));
}

static int64_t wal_seen;

static void note_wal(void *arg, int64_t bytes)
{
	*(int64_t *)arg = bytes;
}

static void reports_its_log(void **state)
{
	struct desk *d = *state;

	wal_seen = 0;
	sqlite_on_wal(d->db, note_wal, &wal_seen);
	insert(d->db, 1, "a");
	int64_t first = wal_seen;
	assert_true(first > 0 && first % 4096 == 0);
	insert(d->db, 2, "b");
	assert_true(wal_seen > first);
	assert_int_equal(db_script(d->db, "PRAGMA wal_checkpoint(RESTART)"), LAPSE_OK);
	insert(d->db, 3, "c");
	assert_true(wal_seen <= first); /* it started over */
}

static void interrupts_a_long_read(void **state)
{
	static const struct db_stmt endless = {
		"WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k) SELECT i FROM k"
	};
	struct desk *d = *state;
	struct db_query CLEANUP(db_finish) q = db_query(d->db, &endless);

	assert_int_equal(db_step(&q), 1);
	db_interrupt(d->db);
	assert_int_equal(db_step(&q), LAPSE_ETIMEOUT);
}

/* Posted rows: they wait, and nothing can tell */

static int post_row(struct db *db, int64_t id, const char *name)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &INSERT);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, name);
	db_bind_int(&q, 3, 7);
	return db_post_row(&q, DB_ONE);
}

static void post_rows(struct db *db, int64_t from, int64_t to)
{
	for (int64_t id = from; id <= to; id++)
		assert_int_equal(post_row(db, id, NULL), LAPSE_OK);
}

static void posted_rows_are_seen_by_what_follows(void **state)
{
	const struct desk *d = *state;
	int64_t before = db_changes_total(d->db);
	lapse_ms now;

	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	post_rows(d->db, 1, 1000);
	assert_int_equal(db_changes_total(d->db) - before, 1000);
	assert_int_equal(count(d->db), 1000);
	assert_int_equal(db_changes_total(d->db) - before, 1000);
	post_rows(d->db, 1001, 1020);
	assert_int_equal(db_commit(d->db), LAPSE_OK);
	assert_int_equal(count(d->db), 1020);
	assert_int_equal(post_row(d->db, 2000, "alone"), LAPSE_OK); /* outside a transaction */
	assert_int_equal(count(d->db), 1021);
}

static void posted_values_arrive_as_they_are(void **state)
{
	static const struct db_stmt SAME = {
		"SELECT count(*) FROM t WHERE id = $1 AND name IS $2 AND n = 7"
	};
	const struct desk *d = *state;
	char *text = mem_zalloc(1, 100001);
	lapse_ms now;

	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	for (int i = 0; i < 20; i++) {
		/* No text, an empty one, short ones, and one that is too long to wait. */
		memset(text, 'x', i == 10 ? 100000 : (size_t)i);
		text[i == 10 ? 100000 : i] = '\0';
		assert_int_equal(post_row(d->db, i, i == 5 ? NULL : text), LAPSE_OK);
	}
	for (int i = 0; i < 20; i++) {
		struct db_query CLEANUP(db_finish) q = db_query(d->db, &SAME);
		memset(text, 'x', i == 10 ? 100000 : (size_t)i);
		text[i == 10 ? 100000 : i] = '\0';
		db_bind_int(&q, 1, i);
		db_bind_text(&q, 2, i == 5 ? NULL : text);
		assert_int_equal(db_step(&q), 1);
		assert_int_equal(db_int(&q, 0), 1);
	}
	assert_int_equal(db_commit(d->db), LAPSE_OK);
	free(text);
}

static void a_step_takes_its_posted_rows_with_it(void **state)
{
	const struct desk *d = *state;
	lapse_ms now;

	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	post_rows(d->db, 1, 10);
	assert_int_equal(db_savepoint(d->db), LAPSE_OK);
	post_rows(d->db, 11, 20);
	assert_int_equal(db_rollback_step(d->db), LAPSE_OK);
	assert_int_equal(db_savepoint(d->db), LAPSE_OK);
	post_rows(d->db, 21, 25);
	assert_int_equal(db_release(d->db), LAPSE_OK);
	post_rows(d->db, 11, 13);
	assert_int_equal(db_commit(d->db), LAPSE_OK);
	assert_int_equal(count(d->db), 18);
	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	post_rows(d->db, 31, 40);
	db_rollback(d->db);
	assert_int_equal(count(d->db), 18);
}

static void a_flush_writes_posted_rows_at_once(void **state)
{
	const struct desk *d = *state;
	lapse_ms now;

	assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
	assert_int_equal(db_flush(d->db), LAPSE_OK); /* there are none */
	post_rows(d->db, 1, 5);
	assert_int_equal(db_flush(d->db), LAPSE_OK);
	post_rows(d->db, 6, 9);
	assert_int_equal(post_row(d->db, 3, NULL), LAPSE_OK);
	assert_int_equal(db_flush(d->db), LAPSE_ERETRY);
	assert_false(db_in_transaction(d->db));
	db_rollback(d->db);
	assert_int_equal(count(d->db), 0);
}

/* The row to blame is found by the next transaction, which writes each at once. */
static void a_posted_row_that_cannot_be_written_ends_the_transaction(void **state)
{
	const struct desk *d = *state;
	lapse_ms now;

	for (int way = 0; way < 3; way++) {
		assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
		post_rows(d->db, 1, 5);
		assert_int_equal(post_row(d->db, 3, NULL), LAPSE_OK);
		if (way == 1)
			assert_int_equal(db_savepoint(d->db), LAPSE_ERETRY);
		if (way == 2) {
			struct db_query CLEANUP(db_finish) q = db_query(d->db, &COUNT);
			assert_int_equal(db_step(&q), LAPSE_ERETRY);
		}
		assert_int_equal(db_commit(d->db), LAPSE_ERETRY);
		assert_false(db_in_transaction(d->db));
		db_rollback(d->db);
		assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
		post_rows(d->db, 1, 5);
		assert_int_equal(post_row(d->db, 3, NULL), LAPSE_ECONFLICT);
		db_rollback(d->db);
		assert_int_equal(count(d->db), 0);
	}
}

static void a_posted_row_that_changes_nothing_is_noticed(void **state)
{
	static const struct db_stmt PERHAPS = {
		"INSERT INTO t (id) VALUES ($1) ON CONFLICT DO NOTHING"
	};
	const struct desk *d = *state;
	lapse_ms now;

	for (int round = 0; round < 2; round++) {
		assert_int_equal(db_begin(d->db, &now), LAPSE_OK);
		for (int64_t i = 0; i < 6; i++) {
			struct db_query CLEANUP(db_finish) q = db_query(d->db, &PERHAPS);
			db_bind_int(&q, 1, i % 5);
			assert_int_equal(db_post_row(&q, DB_ONE_OR(LAPSE_ELIMIT)),
					 round == 1 && i == 5 ? LAPSE_ELIMIT : LAPSE_OK);
		}
		assert_int_equal(db_commit(d->db), round == 0 ? LAPSE_ERETRY : LAPSE_OK);
		db_rollback(d->db);
	}
	assert_int_equal(count(d->db), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(binds_by_name, setup, teardown),
		cmocka_unit_test_setup_teardown(posted_rows_are_seen_by_what_follows, setup,
						teardown),
		cmocka_unit_test_setup_teardown(posted_values_arrive_as_they_are, setup, teardown),
		cmocka_unit_test_setup_teardown(a_step_takes_its_posted_rows_with_it, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_flush_writes_posted_rows_at_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_posted_row_that_cannot_be_written_ends_the_transaction, setup, teardown),
		cmocka_unit_test_setup_teardown(a_posted_row_that_changes_nothing_is_noticed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(binds_all_sixteen, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_what_it_wrote, setup, teardown),
		cmocka_unit_test_setup_teardown(a_statement_is_used_again, setup, teardown),
		cmocka_unit_test_setup_teardown(caches_many_statements, setup, teardown),
		cmocka_unit_test_setup_teardown(a_bad_statement_is_an_error_not_a_crash, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_constraint_is_a_conflict, setup, teardown),
		cmocka_unit_test_setup_teardown(anothers_lock_is_a_retry, setup, teardown),
		cmocka_unit_test_setup_teardown(an_old_snapshot_is_a_retry, setup, teardown),
		cmocka_unit_test_setup_teardown(garbage_is_corrupt, setup, teardown),
		cmocka_unit_test_setup_teardown(a_missing_directory_is_an_io_error, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_read_only_connection_cannot_write, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_full_disk_is_full_and_passes, setup, teardown),
		cmocka_unit_test_setup_teardown(a_transaction_is_all_or_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_step_is_undone_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(counts_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(a_post_is_held_to_its_expectation, setup, teardown),
		cmocka_unit_test_setup_teardown(a_post_passes_errors_on, setup, teardown),
		cmocka_unit_test_setup_teardown(copies_itself, setup, teardown),
		cmocka_unit_test_setup_teardown(notices_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(reports_its_log, setup, teardown),
		cmocka_unit_test_setup_teardown(interrupts_a_long_read, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
