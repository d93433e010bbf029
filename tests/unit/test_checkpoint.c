/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpointer, as the engine runs it, keeps the write-ahead log bounded. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/sqlite/checkpoint.h"
#include "store/sqlite/store.h"
#include "unit.h"

#define MIB (INT64_C(1) << 20)
#define RESTART (32 * MIB) /* of checkpoint.c: from here on the log starts over */

static int setup_max(void **state, int64_t max)
{
	world_setup(state);
	struct world *w = *state;

	w->settings.wal_max_bytes = max;
	world_reopen(w);
	side_run(w, "CREATE TABLE blobs (b)");
	return 0;
}

static int setup(void **state)
{
	return setup_max(state, MIB);
}

static int setup_far(void **state)
{
	return setup_max(state, 1024 * MIB);
}

static int commit_bytes(struct world *w, int bytes)
{
	char sql[80];
	struct tx tx;
	int r = tx_begin(&tx, &w->engine);

	snprintf(sql, sizeof(sql), "INSERT INTO blobs VALUES (zeroblob(%d))", bytes);
	if (r == LAPSE_OK)
		r = db_script(tx.db, sql);
	if (r == LAPSE_OK)
		return tx_commit(&tx);
	tx_rollback(&tx);
	return r;
}

/* About four mebibytes of log. */
static int commit_blob(struct world *w)
{
	return commit_bytes(w, 4000000);
}

static int64_t wal_bytes(struct world *w)
{
	return sqlite_store_wal_bytes(w->engine.store);
}

/* Small commits until the log has started over, for 20 seconds at most: the machine may be busy. */
static bool settles_below(struct world *w, int64_t bytes)
{
	for (int i = 0; i < 4000 && wal_bytes(w) >= bytes; i++) {
		send_message(w, "o", "a");
		usleep(5000);
	}
	return wal_bytes(w) < bytes;
}

static void what_is_done_at_which_size(void **state)
{
	const int64_t max = 128 * MIB;

	(void)state;
	assert_int_equal(checkpoint_next(0, max), MIB);
	assert_int_equal(checkpoint_next(32 * MIB, max), 33 * MIB);
	assert_int_equal(checkpoint_next(max - MIB / 2, max), max);
	assert_int_equal(checkpoint_next(max, max), max + MIB);
	assert_int_equal(checkpoint_next(0, MIB), MIB);

	assert_false(checkpoint_starts_over(RESTART - 1, 0, max));
	assert_true(checkpoint_starts_over(RESTART, MIB, max));
	assert_false(checkpoint_starts_over(RESTART, MIB + 1, max));
	assert_false(checkpoint_starts_over(max - 1, 2 * MIB, max));
	assert_true(checkpoint_starts_over(max, 2 * MIB, max));
	assert_true(checkpoint_starts_over(MIB, 2 * MIB, MIB));
}

static void the_log_starts_over(void **state)
{
	struct world *w = *state;

	assert_int_equal(commit_blob(w), LAPSE_OK);
	assert_true(settles_below(w, MIB));
	assert_int_equal(sqlite_store_checkpoint_errors(w->engine.store), 0);
}

static void a_log_below_its_limit_starts_over_too(void **state)
{
	struct world *w = *state;
	int starts = 0;

	for (int64_t before = 0; starts < 2; before = wal_bytes(w)) {
		assert_int_equal(commit_bytes(w, 60000), LAPSE_OK);
		starts += wal_bytes(w) < before;
		assert_true(wal_bytes(w) < 16 * RESTART);
	}
	assert_int_equal(sqlite_store_checkpoint_errors(w->engine.store), 0);
}

/* A log cannot start over while it is read, which is no failure. */
static void below_its_limit_a_log_grows_while_it_is_read(void **state)
{
	struct world *w = *state;

	side_run(w, "BEGIN; SELECT count(*) FROM messages");
	while (wal_bytes(w) < 2 * RESTART)
		assert_int_equal(commit_blob(w), LAPSE_OK);
	assert_int_equal(sqlite_store_checkpoint_errors(w->engine.store), 0);
	side_run(w, "COMMIT");
	assert_true(settles_below(w, RESTART));
}

/* Where SQLite's lock of a checkpoint lies in the file of the log's index. */
#define CHECKPOINT_LOCK_AT 121

/* Another process holds it until it is killed. */
static pid_t hold_checkpoint_lock(const char *index)
{
	struct flock lock = { .l_type = F_WRLCK, .l_start = CHECKPOINT_LOCK_AT, .l_len = 1 };
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves it alone */
		int fd = open(index, O_RDWR | O_CLOEXEC);
		if (fcntl(fd, F_SETLK, &lock) == 0 && write(ready[1], "y", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1); /* 0 = it could not have the lock */
	close(ready[0]);
	return child;
}

static void a_busy_log_is_no_failure(void **state)
{
	struct world *w = *state;
	char index[TEMP_PATH_MAX];

	path_join(index, w->dir, DATADIR_DATABASE "-shm");
	pid_t child = hold_checkpoint_lock(index);
	while (wal_bytes(w) < RESTART + MIB)
		assert_int_equal(commit_bytes(w, 60000), LAPSE_OK);
	usleep(100000); /* the last try is over */
	assert_int_equal(sqlite_store_checkpoint_errors(w->engine.store), 0);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(commit_blob(w), LAPSE_OK);
	assert_true(settles_below(w, RESTART));
}

/* 160 MiB of commits with the short pauses a loop has. The writer can be ahead of a checkpoint
 * under way, so the bound has slack; without a checkpointer the log would be all of it. */
static void the_log_is_bounded_under_load(void **state)
{
	struct world *w = *state;
	char wal[TEMP_PATH_MAX];
	struct stat st;

	for (int i = 0; i < 40; i++) {
		assert_int_equal(commit_blob(w), LAPSE_OK);
		usleep(10000);
	}
	path_join(wal, w->dir, DATADIR_DATABASE "-wal");
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size < 3 * RESTART);
	assert_true(wal_bytes(w) < 3 * RESTART);
}

/* A reader that stays (a backup, a long count) pins the log. The log may grow meanwhile, even
 * beyond wal_max_bytes, but the loop neither fails nor stands still for it; when the reader goes,
 * the log is bounded again. */
static void a_reader_delays_it_only(void **state)
{
	struct world *w = *state;
	lapse_us fastest = INT64_MAX;

	side_run(w, "BEGIN; SELECT count(*) FROM messages");
	while (wal_bytes(w) < RESTART)
		assert_int_equal(commit_blob(w), LAPSE_OK);
	for (int i = 0; i < 4; i++) {
		lapse_us start = clock_mono(&CLOCK_SYSTEM);
		assert_int_equal(commit_blob(w), LAPSE_OK);
		lapse_us took = clock_mono(&CLOCK_SYSTEM) - start;
		fastest = took < fastest ? took : fastest;
		usleep(20000);
	}
	assert_true(fastest < 1000000); /* a busy disk may slow one down, a lock all of them */
	assert_true(wal_bytes(w) >= RESTART);
	side_run(w, "COMMIT");
	assert_true(settles_below(w, RESTART));
}

static void stopping_takes_nothing(void **state)
{
	(void)state;
	checkpointer_stop(NULL);
}

#define LOG_TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)
#define FAR_TEST(f) cmocka_unit_test_setup_teardown(f, setup_far, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_done_at_which_size),
		LOG_TEST(the_log_starts_over),
		FAR_TEST(a_log_below_its_limit_starts_over_too),
		FAR_TEST(below_its_limit_a_log_grows_while_it_is_read),
		FAR_TEST(a_busy_log_is_no_failure),
		LOG_TEST(the_log_is_bounded_under_load),
		LOG_TEST(a_reader_delays_it_only),
		cmocka_unit_test(stopping_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
