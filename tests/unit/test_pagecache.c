/* SPDX-License-Identifier: Apache-2.0 */
/* The page cache that does not look at all pages at every commit. A cache that counts stands below
 * it, as SQLite's own would. */
#include <stdio.h>
#include <string.h>

#include "store/sqlite/pagecache.h"
#include "unit.h"

static sqlite3_pcache_methods2 real;
static int truncations;

static void count_truncation(sqlite3_pcache *cache, unsigned limit)
{
	truncations += limit > 1; /* 1: a temporary table that ends, as recursive queries have */
	real.xTruncate(cache, limit);
}

static void install(void)
{
	assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &real), SQLITE_OK);
	sqlite3_pcache_methods2 counting = real;
	counting.xTruncate = count_truncation;
	assert_int_equal(sqlite3_config(SQLITE_CONFIG_PCACHE2, &counting), SQLITE_OK);
	pagecache_install();
}

struct desk {
	char dir[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
	sqlite3 *db;
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	temp_dir_make(d->dir);
	path_join(d->path, d->dir, "test.db");
	assert_int_equal(sqlite3_open(d->path, &d->db), SQLITE_OK);
	sqlite_do(
		d->db,
		"PRAGMA journal_mode = WAL; CREATE TABLE t (name TEXT PRIMARY KEY) WITHOUT ROWID");
	truncations = 0;
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

#define ADD_1000                                                                                   \
	"WITH RECURSIVE c (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM c WHERE k < 1000) "         \
	"INSERT INTO t SELECT hex(randomblob(20)) FROM c"

/* Rows in the middle of a table split its pages, and each split lets a page have a number far
 * beyond the end for a moment. */
static void commits_that_split_pages_look_at_no_others(void **state)
{
	struct desk *d = *state;

	for (int i = 0; i < 50; i++)
		sqlite_do(d->db, ADD_1000);
	assert_int_equal(sqlite_ask(d->db, "SELECT count(*) FROM t"), 50000);
	assert_int_equal(truncations, 0);
}

/* What goes beyond the end is dropped, or it would be taken for the database's later. */
static void a_rollback_drops_the_pages_it_had_added(void **state)
{
	struct desk *d = *state;

	for (int i = 0; i < 20; i++) {
		int before = truncations;
		sqlite_do(d->db, ADD_1000);
		sqlite_do(d->db, "BEGIN; " ADD_1000 "; " ADD_1000 "; ROLLBACK");
		assert_true(truncations > before);
		sqlite_do(d->db,
			  "BEGIN; " ADD_1000 "; SAVEPOINT a; " ADD_1000 "; ROLLBACK TO a; COMMIT");
		assert_int_equal(sqlite_ask(d->db, "SELECT count(*) FROM t"), 2000 * (i + 1));
	}
	sqlite_do(d->db, "DELETE FROM t WHERE name > '1'; VACUUM");
	sqlite_do(d->db, ADD_1000);
	assert_int_equal(sqlite_ask(d->db, "SELECT count(*) FROM pragma_integrity_check "
					   "WHERE integrity_check <> 'ok'"),
			 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(commits_that_split_pages_look_at_no_others, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_rollback_drops_the_pages_it_had_added, setup,
						teardown),
	};

	install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
