/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the fault VFS itself: that it really forgets what was not synced, and only that.
 *
 * Three groups. Files: the VFS's methods are called directly and the file is looked at behind its
 * back. Faults: each kind strikes where and as often as it was told. Databases: a child process
 * commits rows through SQLite, is killed with SIGKILL, and the parent counts what is left with the
 * platform's VFS; that synchronous=FULL keeps all of them and OFF does not is what makes the
 * daemon's tests worth running.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECTOR 512
#define ROWS 60
#define TORN_SEEDS 25

struct world {
	char dir[64];
	char control[96];
	char db[96];
};

/* Steering */

static void steer(const struct world *world, const char *words)
{
	char next[112];

	snprintf(next, sizeof(next), "%s.next", world->control);
	FILE *file = fopen(next, "w");
	assert_non_null(file);
	assert_true(fputs(words, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(rename(next, world->control), 0);
}

static int world_open(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	if (!world)
		return -1;
	strcpy(world->dir, "/tmp/fault_vfs.XXXXXX");
	if (!mkdtemp(world->dir))
		return -1;
	snprintf(world->control, sizeof(world->control), "%s/control", world->dir);
	snprintf(world->db, sizeof(world->db), "%s/test.db", world->dir);
	setenv("FAULT_VFS_CONTROL", world->control, 1);
	*state = world;
	return 0;
}

static int world_close(void **state)
{
	static const char *const LEFT[] = { "control", "test.db", "test.db-wal", "test.db-shm",
					    "test.db-journal" };
	struct world *world = *state;
	char path[128];

	for (size_t i = 0; i < sizeof(LEFT) / sizeof(LEFT[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", world->dir, LEFT[i]);
		unlink(path);
	}
	const int r = rmdir(world->dir);
	free(world);
	return r;
}

/* Files */

static sqlite3_file *file_open(const char *path)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	sqlite3_file *file = calloc(1, (size_t)vfs->szOsFile);
	const int flags = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;

	assert_non_null(file);
	assert_int_equal(vfs->xOpen(vfs, path, file, flags, NULL), SQLITE_OK);
	return file;
}

static void file_close(sqlite3_file *file)
{
	file->pMethods->xClose(file);
	free(file);
}

static int file_fill(sqlite3_file *file, char byte, int len, sqlite3_int64 off)
{
	char buf[8 * SECTOR];

	assert_true(len <= (int)sizeof(buf));
	memset(buf, byte, sizeof(buf));
	return file->pMethods->xWrite(file, buf, len, off);
}

static int file_sync(sqlite3_file *file)
{
	return file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
}

static sqlite3_int64 file_size(sqlite3_file *file)
{
	sqlite3_int64 size = -1;

	assert_int_equal(file->pMethods->xFileSize(file, &size), SQLITE_OK);
	return size;
}

static char file_byte(sqlite3_file *file, sqlite3_int64 off)
{
	char byte = '?';

	assert_int_equal(file->pMethods->xRead(file, &byte, 1, off), SQLITE_OK);
	return byte;
}

/* The same questions to the disk, past the VFS. */
static off_t disk_size(const struct world *world)
{
	struct stat st;

	assert_int_equal(stat(world->db, &st), 0);
	return st.st_size;
}

static char disk_byte(const struct world *world, off_t off)
{
	char byte = '?';
	const int fd = open(world->db, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, off), 1);
	close(fd);
	return byte;
}

static void test_is_the_default_vfs(void **state)
{
	(void)state;
	assert_string_equal(sqlite3_vfs_find(NULL)->zName, "fault");
}

static void test_unsynced_write_is_not_on_the_disk(void **state)
{
	struct world *world = *state;

	steer(world, "power-loss");
	sqlite3_file *file = file_open(world->db);
	assert_int_equal(file_fill(file, 'a', 100, 0), SQLITE_OK);
	assert_int_equal(file_size(file), 100);
	assert_int_equal(file_byte(file, 99), 'a');
	assert_int_equal(disk_size(world), 0);
	assert_int_equal(file_sync(file), SQLITE_OK);
	assert_int_equal(disk_size(world), 100);
	assert_int_equal(disk_byte(world, 99), 'a');
	file_close(file);
}

static void test_reads_see_overlay_over_file(void **state)
{
	struct world *world = *state;
	char buf[12];

	steer(world, "power-loss");
	sqlite3_file *file = file_open(world->db);
	file_fill(file, 'a', 10, 0);
	file_sync(file);
	file_fill(file, 'b', 4, 2);
	file_fill(file, 'c', 2, 4);
	assert_int_equal(file->pMethods->xRead(file, buf, 10, 0), SQLITE_OK);
	assert_memory_equal(buf, "aabbccaaaa", 10);
	assert_int_equal(file->pMethods->xRead(file, buf, 12, 0), SQLITE_IOERR_SHORT_READ);
	assert_memory_equal(buf, "aabbccaaaa\0", 12);
	assert_int_equal(disk_byte(world, 2), 'a');
	file_close(file);
}

static void test_all_handles_share_it_even_after_a_close(void **state)
{
	struct world *world = *state;

	steer(world, "power-loss");
	sqlite3_file *one = file_open(world->db);
	sqlite3_file *two = file_open(world->db);
	file_fill(one, 'a', 10, 0);
	assert_int_equal(file_byte(two, 9), 'a');
	file_close(one);
	file_close(two);
	assert_int_equal(disk_size(world), 0);
	sqlite3_file *three = file_open(world->db);
	assert_int_equal(file_byte(three, 9), 'a');
	assert_int_equal(file_sync(three), SQLITE_OK);
	assert_int_equal(disk_size(world), 10);
	file_close(three);
}

static void test_truncate_is_forgotten_too(void **state)
{
	struct world *world = *state;

	steer(world, "power-loss");
	sqlite3_file *file = file_open(world->db);
	file_fill(file, 'a', 100, 0);
	file_sync(file);
	assert_int_equal(file->pMethods->xTruncate(file, 10), SQLITE_OK);
	file_fill(file, 'b', 5, 20);
	assert_int_equal(file_size(file), 25);
	assert_int_equal(file_byte(file, 9), 'a');
	assert_int_equal(file_byte(file, 15), 0);
	assert_int_equal(file_byte(file, 20), 'b');
	assert_int_equal(disk_size(world), 100);
	file_sync(file);
	assert_int_equal(disk_size(world), 25);
	assert_int_equal(disk_byte(world, 15), 0);
	file_close(file);
}

static void test_access_and_delete_know_the_overlay(void **state)
{
	struct world *world = *state;
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	int there = -1;

	steer(world, "power-loss");
	sqlite3_file *file = file_open(world->db);
	vfs->xAccess(vfs, world->db, SQLITE_ACCESS_EXISTS, &there);
	assert_int_equal(there, 0);
	file_fill(file, 'a', 10, 0);
	vfs->xAccess(vfs, world->db, SQLITE_ACCESS_EXISTS, &there);
	assert_int_equal(there, 1);
	file_close(file);
	assert_int_equal(vfs->xDelete(vfs, world->db, 0), SQLITE_OK);
	file = file_open(world->db);
	assert_int_equal(file_size(file), 0);
	file_close(file);
}

static void test_switching_off_writes_out(void **state)
{
	struct world *world = *state;

	steer(world, "power-loss");
	sqlite3_file *file = file_open(world->db);
	file_fill(file, 'a', 10, 0);
	steer(world, "pass");
	assert_int_equal(disk_size(world), 0);
	file_fill(file, 'b', 10, 10);
	assert_int_equal(disk_size(world), 20);
	assert_int_equal(disk_byte(world, 0), 'a');
	file_close(file);
}

/* Torn: the disk holds a mixture of old and new sectors, readers see only new ones. */
static int torn_sectors(struct world *world, sqlite3_file *file, int seed)
{
	char words[64];
	int fresh = 0;

	steer(world, "power-loss");
	file_fill(file, 'o', 8 * SECTOR, 0);
	file_sync(file);
	snprintf(words, sizeof(words), "torn percent=100 seed=%d", seed);
	steer(world, words);
	file_fill(file, 'n', 8 * SECTOR, 0);
	for (int i = 0; i < 8; i++) {
		const char first = disk_byte(world, i * SECTOR);
		assert_int_equal(first, disk_byte(world, (i + 1) * SECTOR - 1));
		assert_int_equal(file_byte(file, i * SECTOR), 'n');
		fresh += first == 'n';
	}
	return fresh;
}

static void test_torn_is_a_mixture_and_repeatable(void **state)
{
	struct world *world = *state;
	int mixed = 0;

	steer(world, "power-loss");
	sqlite3_file *file = file_open(world->db);
	for (int seed = 1; seed <= 10; seed++) {
		const int fresh = torn_sectors(world, file, seed);
		assert_int_equal(fresh, torn_sectors(world, file, seed));
		mixed += fresh > 0 && fresh < 8;
	}
	assert_true(mixed >= 8);
	assert_int_equal(file_sync(file), SQLITE_OK);
	for (int i = 0; i < 8; i++)
		assert_int_equal(disk_byte(world, i * SECTOR), 'n');
	file_close(file);
}

/* Faults */

static void test_full_strikes_only_what_grows(void **state)
{
	struct world *world = *state;

	steer(world, "power-loss full after=2 for=2");
	sqlite3_file *file = file_open(world->db);
	assert_int_equal(file_fill(file, 'a', 10, 0), SQLITE_OK);
	assert_int_equal(file_fill(file, 'a', 10, 10), SQLITE_OK);
	assert_int_equal(file_fill(file, 'b', 10, 5), SQLITE_OK);
	assert_int_equal(file_fill(file, 'c', 10, 20), SQLITE_FULL);
	assert_int_equal(file_size(file), 25);
	assert_int_equal(file_fill(file, 'c', 10, 20), SQLITE_FULL);
	assert_int_equal(file_fill(file, 'c', 10, 20), SQLITE_OK);
	file_close(file);
}

static void test_write_and_read_fail(void **state)
{
	struct world *world = *state;
	char byte;

	steer(world, "ioerr-write after=1 for=1");
	sqlite3_file *file = file_open(world->db);
	assert_int_equal(file_fill(file, 'a', 10, 0), SQLITE_OK);
	assert_int_equal(file_fill(file, 'a', 10, 0), SQLITE_IOERR_WRITE);
	assert_int_equal(file_fill(file, 'a', 10, 0), SQLITE_OK);
	steer(world, "ioerr-write");
	assert_int_equal(file->pMethods->xTruncate(file, 0), SQLITE_IOERR_TRUNCATE);
	steer(world, "ioerr-read for=1");
	assert_int_equal(file->pMethods->xRead(file, &byte, 1, 0), SQLITE_IOERR_READ);
	assert_int_equal(file_byte(file, 0), 'a');
	file_close(file);
}

static void test_only_names_a_file(void **state)
{
	struct world *world = *state;

	steer(world, "ioerr-write only=wal");
	sqlite3_file *file = file_open(world->db);
	assert_int_equal(file_fill(file, 'a', 10, 0), SQLITE_OK);
	steer(world, "ioerr-write only=db");
	assert_int_equal(file_fill(file, 'a', 10, 0), SQLITE_IOERR_WRITE);
	file_close(file);
}

/* As Linux does: after a failed fsync the pages are clean, readable, and never written. */
static void test_failed_sync_loses_what_it_had_to_write(void **state)
{
	struct world *world = *state;

	steer(world, "power-loss ioerr-sync for=1");
	sqlite3_file *file = file_open(world->db);
	file_fill(file, 'a', 10, 0);
	assert_int_equal(file_sync(file), SQLITE_IOERR_FSYNC);
	file_fill(file, 'b', 10, 10);
	assert_int_equal(file_sync(file), SQLITE_OK);
	assert_int_equal(file_byte(file, 0), 'a');
	assert_int_equal(file_byte(file, 10), 'b');
	assert_int_equal(disk_byte(world, 0), 0);
	assert_int_equal(disk_byte(world, 10), 'b');
	file_fill(file, 'c', 10, 0);
	assert_int_equal(file_sync(file), SQLITE_OK);
	assert_int_equal(file_byte(file, 0), 'c');
	assert_int_equal(disk_byte(world, 0), 'c');
	file_close(file);
}

static void test_failed_sync_is_told_to_every_handle_once(void **state)
{
	struct world *world = *state;

	steer(world, "power-loss ioerr-sync for=1");
	sqlite3_file *one = file_open(world->db);
	sqlite3_file *two = file_open(world->db);
	file_fill(two, 'a', 10, 0);
	assert_int_equal(file_sync(one), SQLITE_IOERR_FSYNC);
	assert_int_equal(file_sync(one), SQLITE_OK);
	assert_int_equal(file_sync(two), SQLITE_IOERR_FSYNC);
	assert_int_equal(file_sync(two), SQLITE_OK);
	file_close(one);
	file_close(two);
}

/* Databases: a child commits rows and is killed. */

struct scenario {
	const char *control;
	const char *journal_mode;
	const char *synchronous;
	bool keeps_all;
};

static void child_need(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "child: %s\n", what);
		_exit(99);
	}
}

static void child_exec(sqlite3 *db, const char *format, const char *value)
{
	char sql[256];

	snprintf(sql, sizeof(sql), format, value);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fprintf(stderr, "child: error %d: %s\n", sqlite3_extended_errcode(db),
			sqlite3_errmsg(db));
	child_need(sqlite3_errcode(db) == SQLITE_OK, sql);
}

static int count_rows(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	int count = -1;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		count = sqlite3_column_int(stmt, 0);
	sqlite3_finalize(stmt);
	return count;
}

/* One writer, and a second connection that reads and checkpoints, as in the daemon. */
struct child {
	sqlite3 *db;
	sqlite3 *helper;
};

static void child_create(struct child *child, const struct world *world,
			 const struct scenario *scenario)
{
	sqlite3 *db;

	child_need(sqlite3_open(world->db, &child->db) == SQLITE_OK, "open");
	db = child->db;
	child_exec(db, "PRAGMA journal_mode=%s", scenario->journal_mode);
	child_exec(db, "PRAGMA synchronous=%s", "FULL");
	child_exec(db, "CREATE TABLE %s(id INTEGER PRIMARY KEY, body BLOB)", "t");
	child_exec(db, "PRAGMA synchronous=%s", scenario->synchronous);
	child_exec(db, "PRAGMA wal_autocheckpoint=%s", "0");
	child_need(sqlite3_open(world->db, &child->helper) == SQLITE_OK, "open");
	child_exec(child->helper, "PRAGMA synchronous=%s", scenario->synchronous);
}

static void child_write_rows(struct child *child)
{
	for (int i = 0; i < ROWS; i++) {
		child_exec(child->db, "INSERT INTO t(body) VALUES(%s)", "randomblob(2000)");
		if (i == ROWS / 3)
			child_exec(child->helper, "PRAGMA wal_checkpoint(%s)", "PASSIVE");
		if (i == ROWS / 2)
			child_exec(child->helper, "PRAGMA wal_checkpoint(%s)", "TRUNCATE");
	}
	child_need(count_rows(child->helper, "SELECT count(*) FROM t") == ROWS,
		   "the helper misses rows");
}

static void child_run(const struct world *world, const struct scenario *scenario, int ready)
{
	struct child child;

	child_create(&child, world, scenario);
	child_write_rows(&child);
	child_need(write(ready, "x", 1) == 1, "write");
	for (;;)
		pause();
}

static void run_and_kill(const struct world *world, const struct scenario *scenario)
{
	int ready[2];
	char byte;

	steer(world, scenario->control);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(ready[0]);
		child_run(world, scenario, ready[1]);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Rows left on the disk; -1 when there is no database any more. */
static int survivors(const struct world *world, bool must_be_sound)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open_v2(world->db, &db, SQLITE_OPEN_READWRITE, "unix"), SQLITE_OK);
	const int sound =
		count_rows(db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check");
	const int count = count_rows(db, "SELECT count(*) FROM t");
	if (must_be_sound)
		assert_int_equal(sound, 1);
	sqlite3_close(db);
	return count;
}

static void run_scenario(void **state, const struct scenario *scenario)
{
	run_and_kill(*state, scenario);
	const int left = survivors(*state, scenario->keeps_all);
	if (scenario->keeps_all)
		assert_int_equal(left, ROWS);
	else
		assert_true(left < ROWS);
}

#define SCENARIO(name, ...)                                                                        \
	static void name(void **state)                                                             \
	{                                                                                          \
		const struct scenario scenario = { __VA_ARGS__ };                                  \
		run_scenario(state, &scenario);                                                    \
	}

SCENARIO(test_wal_full_keeps_all, "power-loss", "WAL", "FULL", true)
SCENARIO(test_wal_normal_loses, "power-loss", "WAL", "NORMAL", false)
SCENARIO(test_wal_off_loses, "power-loss", "WAL", "OFF", false)
SCENARIO(test_wal_off_torn_loses, "torn", "WAL", "OFF", false)
SCENARIO(test_journal_full_keeps_all, "power-loss", "DELETE", "FULL", true)
SCENARIO(test_journal_off_loses, "power-loss", "DELETE", "OFF", false)
SCENARIO(test_kill_alone_loses_nothing, "pass", "WAL", "OFF", true)

static void test_wal_full_survives_torn_sectors(void **state)
{
	struct world *world = *state;
	char words[64];

	for (int seed = 1; seed <= TORN_SEEDS; seed++) {
		snprintf(words, sizeof(words), "torn seed=%d percent=%d", seed, 20 + 3 * seed);
		const struct scenario scenario = { words, "WAL", "FULL", true };
		run_scenario(state, &scenario);
		unlink(world->db);
	}
}

static void child_run_and_exit(const struct world *world, const struct scenario *scenario)
{
	struct child child;

	child_create(&child, world, scenario);
	child_write_rows(&child);
	child_need(sqlite3_close(child.db) == SQLITE_OK && sqlite3_close(child.helper) == SQLITE_OK,
		   "close");
	exit(0);
}

/* A process that ends by itself leaves everything to the kernel. */
static void test_clean_exit_writes_out(void **state)
{
	const struct world *world = *state;
	const struct scenario scenario = { "power-loss", "WAL", "OFF", true };
	int status;

	steer(world, scenario.control);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		child_run_and_exit(world, &scenario);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(survivors(world, true), ROWS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_open, world_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_is_the_default_vfs),
		TEST(test_unsynced_write_is_not_on_the_disk),
		TEST(test_reads_see_overlay_over_file),
		TEST(test_all_handles_share_it_even_after_a_close),
		TEST(test_truncate_is_forgotten_too),
		TEST(test_access_and_delete_know_the_overlay),
		TEST(test_switching_off_writes_out),
		TEST(test_torn_is_a_mixture_and_repeatable),
		TEST(test_full_strikes_only_what_grows),
		TEST(test_write_and_read_fail),
		TEST(test_only_names_a_file),
		TEST(test_failed_sync_loses_what_it_had_to_write),
		TEST(test_failed_sync_is_told_to_every_handle_once),
		TEST(test_wal_full_keeps_all),
		TEST(test_wal_normal_loses),
		TEST(test_wal_off_loses),
		TEST(test_wal_off_torn_loses),
		TEST(test_journal_full_keeps_all),
		TEST(test_journal_off_loses),
		TEST(test_kill_alone_loses_nothing),
		TEST(test_wal_full_survives_torn_sectors),
		TEST(test_clean_exit_writes_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
