/* SPDX-License-Identifier: Apache-2.0 */
/* The VFS that writes the frames of a commit together: after each commit, the files alone must hold
 * what was committed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/sqlite/frames.h"
#include "unit.h"

struct desk {
	char dir[TEMP_PATH_MAX], path[TEMP_PATH_MAX], copy[TEMP_PATH_MAX];
	sqlite3 *db;
	int64_t rows;
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	temp_dir_make(d->dir);
	path_join(d->path, d->dir, "test.db");
	path_join(d->copy, d->dir, "copy.db");
	assert_non_null(frames_vfs());
	assert_int_equal(sqlite3_open_v2(d->path, &d->db,
					 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, frames_vfs()),
			 SQLITE_OK);
	frames_watch(d->db);
	/* Ten pages of cache: a large transaction writes frames before it commits, and some of them
	 * again. */
	sqlite_do(d->db,
		  "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = 10;"
		  "PRAGMA wal_autocheckpoint = 0;"
		  "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT); CREATE INDEX i ON t (name)");
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	assert_int_equal(sqlite3_close(d->db), SQLITE_OK);
	temp_dir_remove(d->dir);
	free(d);
	return 0;
}

static void file_copy(const char *from, const char *to)
{
	char bytes[65536];
	FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
	size_t n;

	assert_non_null(in);
	assert_non_null(out);
	while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
		assert_int_equal(fwrite(bytes, 1, n, out), n);
	fclose(in);
	assert_int_equal(fclose(out), 0);
}

/* As after a crash: the files as they are now, opened by SQLite without this VFS. */
static void check_files(const struct desk *d)
{
	char log[TEMP_PATH_MAX + 8], log_copy[TEMP_PATH_MAX + 8];
	sqlite3 *db = NULL;

	snprintf(log, sizeof(log), "%s-wal", d->path);
	snprintf(log_copy, sizeof(log_copy), "%s-wal", d->copy);
	file_copy(d->path, d->copy);
	file_copy(log, log_copy);
	assert_int_equal(sqlite3_open(d->copy, &db), SQLITE_OK);
	assert_int_equal(sqlite_ask(db, "SELECT count(*) FROM t"), d->rows);
	assert_int_equal(sqlite_ask(db, "SELECT count(*) FROM pragma_integrity_check "
					"WHERE integrity_check <> 'ok'"),
			 0);
	sqlite3_close(db);
}

static void add_rows(struct desk *d, int n, const char *end)
{
	char sql[256];

	sqlite_do(d->db, "BEGIN IMMEDIATE");
	for (int i = 0; i < n; i += 50) {
		snprintf(
			sql, sizeof(sql),
			"WITH RECURSIVE c (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM c WHERE k < "
			"%d) INSERT INTO t (name) SELECT hex(randomblob(40)) FROM c",
			n - i < 50 ? n - i : 50);
		sqlite_do(d->db, sql);
		assert_true(sqlite_ask(d->db, "SELECT count(*) FROM t WHERE name > 'A'") >= 0);
	}
	sqlite_do(d->db, end);
	if (strcmp(end, "COMMIT") == 0)
		d->rows += n;
}

static void commits_of_all_sizes_are_in_the_files(void **state)
{
	static const int sizes[] = { 1, 1, 7, 60, 3000, 2, 1500, 1, 400, 1 };
	struct desk *d = *state;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		add_rows(d, sizes[i], "COMMIT");
		check_files(d);
		if (i % 3 == 2) { /* what is undone lies in the log, and is written over */
			add_rows(d, 700, "ROLLBACK");
			check_files(d);
		}
		if (i % 4 == 3) { /* the log starts over */
			sqlite_do(d->db, "PRAGMA wal_checkpoint(RESTART)");
			check_files(d);
		}
	}
}

static void another_connection_sees_each_commit(void **state)
{
	struct desk *d = *state;
	sqlite3 *other = NULL;

	assert_int_equal(sqlite3_open(d->path, &other), SQLITE_OK);
	for (int i = 0; i < 50; i++) {
		add_rows(d, i % 10 == 0 ? 500 : 3, "COMMIT");
		assert_int_equal(sqlite_ask(other, "SELECT count(*) FROM t"), d->rows);
		assert_true(sqlite_ask(other, "SELECT count(*) FROM t WHERE name > 'A'") >= 0);
		if (i % 7 == 0) { /* somebody else's commit moves the end of the log */
			sqlite_do(other, "INSERT INTO t (name) VALUES ('other')");
			d->rows++;
		}
	}
	sqlite3_close(other);
	check_files(d);
}

/* What a rolled back transaction has held back must not come after what another connection has
 * committed in its place. */
static void held_frames_go_with_their_transaction(void **state)
{
	struct desk *d = *state;
	sqlite3 *other = NULL;

	assert_int_equal(sqlite3_open(d->path, &other), SQLITE_OK);
	sqlite_do(d->db, "CREATE TABLE log (id INTEGER PRIMARY KEY, text)");
	for (int i = 0; i < 40; i++) {
		/* Appended to a log that starts over, so that pages are written early and nothing
		 * is read from it. */
		char sql[256];
		snprintf(
			sql, sizeof(sql),
			"BEGIN IMMEDIATE; WITH RECURSIVE c (k) AS (SELECT 1 UNION ALL SELECT k + 1 "
			"FROM c WHERE k < %d) INSERT INTO log (text) SELECT zeroblob(3000) FROM c; "
			"ROLLBACK",
			20 + i);
		sqlite_do(d->db, "PRAGMA wal_checkpoint(RESTART)");
		sqlite_do(d->db, sql);
		sqlite_do(other, "WITH RECURSIVE c (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM c "
				 "WHERE k < 80) INSERT INTO t (name) SELECT hex(randomblob(1500)) "
				 "FROM c");
		d->rows += 80;
		assert_int_equal(sqlite_ask(d->db, "SELECT count(*) FROM t WHERE name > ''"),
				 d->rows);
		check_files(d);
	}
	sqlite3_close(other);
}

static void a_large_commit_is_in_the_files(void **state)
{
	struct desk *d = *state;

	sqlite_do(d->db, "PRAGMA cache_size = 10000");
	add_rows(d, 20000, "COMMIT");
	check_files(d);
}

static int64_t writes_so_far(void)
{
	int64_t n = -1;
	char line[128];
	FILE *f = fopen("/proc/self/io", "r");

	assert_non_null(f);
	while (n < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "syscw: %" SCNd64, &n);
	fclose(f);
	return n;
}

static void a_commit_is_one_write(void **state)
{
	struct desk *d = *state;

	sqlite_do(d->db, "PRAGMA cache_size = 1000");
	add_rows(d, 300, "COMMIT");
	int64_t before = writes_so_far();
	for (int i = 0; i < 10; i++)
		add_rows(d, 3, "COMMIT");
	assert_int_equal(writes_so_far() - before, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(commits_of_all_sizes_are_in_the_files, setup,
						teardown),
		cmocka_unit_test_setup_teardown(another_connection_sees_each_commit, setup,
						teardown),
		cmocka_unit_test_setup_teardown(held_frames_go_with_their_transaction, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_large_commit_is_in_the_files, setup, teardown),
		cmocka_unit_test_setup_teardown(a_commit_is_one_write, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
