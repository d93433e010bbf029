/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpointer, as the engine runs it, keeps the write-ahead log bounded. */
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/checkpoint.h"
#include "store/sqlite/store.h"
#include "unit.h"

#define MIB (INT64_C(1) << 20)
#define SOFT (32 * MIB) /* of checkpoint.c: from here on the log is copied back */

static int setup(void **state)
{
	world_setup(state);
	struct world *w = *state;

	w->settings.wal_max_bytes = MIB;
	world_reopen(w);
	side_run(w, "CREATE TABLE blobs (b)");
	return 0;
}

/* About four mebibytes of log. */
static int commit_blob(struct world *w)
{
	struct tx tx;
	int r = tx_begin(&tx, &w->engine);

	if (r == LAPSE_OK)
		r = db_script(tx.db, "INSERT INTO blobs VALUES (zeroblob(4000000))");
	if (r == LAPSE_OK)
		return tx_commit(&tx);
	tx_rollback(&tx);
	return r;
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

static void the_log_starts_over(void **state)
{
	struct world *w = *state;

	while (wal_bytes(w) < SOFT)
		assert_int_equal(commit_blob(w), LAPSE_OK);
	assert_true(settles_below(w, MIB));
	assert_int_equal(sqlite_store_checkpoint_errors(w->engine.store), 0);
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
	assert_true(st.st_size < 3 * SOFT);
	assert_true(wal_bytes(w) < 3 * SOFT);
}

/* A reader that stays (a backup, a long count) pins the log. The log may grow meanwhile, even
 * beyond wal_max_bytes, but the loop neither fails nor stands still for it; when the reader goes,
 * the log is bounded again. */
static void a_reader_delays_it_only(void **state)
{
	struct world *w = *state;
	lapse_us fastest = INT64_MAX;

	side_run(w, "BEGIN; SELECT count(*) FROM messages");
	while (wal_bytes(w) < SOFT)
		assert_int_equal(commit_blob(w), LAPSE_OK);
	for (int i = 0; i < 4; i++) {
		lapse_us start = clock_mono(&CLOCK_SYSTEM);
		assert_int_equal(commit_blob(w), LAPSE_OK);
		lapse_us took = clock_mono(&CLOCK_SYSTEM) - start;
		fastest = took < fastest ? took : fastest;
		usleep(20000);
	}
	assert_true(fastest < 1000000); /* a busy disk may slow one down, a lock all of them */
	assert_true(wal_bytes(w) >= SOFT);
	side_run(w, "COMMIT");
	assert_true(settles_below(w, SOFT));
}

static void stopping_takes_nothing(void **state)
{
	(void)state;
	checkpointer_stop(NULL);
}

#define LOG_TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOG_TEST(the_log_starts_over),
		LOG_TEST(the_log_is_bounded_under_load),
		LOG_TEST(a_reader_delays_it_only),
		cmocka_unit_test(stopping_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
