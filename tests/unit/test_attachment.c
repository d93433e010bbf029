/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attachments against a whole engine: a cleanup that races a staging of the same bytes, figures,
 * and the check after a start. Files are deleted by a thread of their own, as in the daemon.
 *
 * LAPSE_RACE_ROUNDS: rounds of the race (10000).
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "unit.h"

#define JOBS_MAX 8 /* a batch of files, a slice of the check, a sync: each once at a time */

/* One worker: takes jobs in their order, and hands them back to the thread that owns the engine. */
struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct offload *jobs[JOBS_MAX];
	unsigned queued, worked, finished; /* jobs, ever */
	bool stop;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (w->worked == w->queued && !w->stop)
			pthread_cond_wait(&w->changed, &w->lock);
		if (w->worked == w->queued)
			break;
		struct offload *o = w->jobs[w->worked % JOBS_MAX];
		pthread_mutex_unlock(&w->lock);
		offload_work(o);
		pthread_mutex_lock(&w->lock);
		w->worked++;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void enqueue(void *ctx, struct offload *o)
{
	struct worker *w = ctx;

	pthread_mutex_lock(&w->lock);
	assert_true(w->queued - w->finished < JOBS_MAX);
	w->jobs[w->queued++ % JOBS_MAX] = o;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static void take_finished(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	struct offload *o = w->finished == w->worked ? NULL : w->jobs[w->finished++ % JOBS_MAX];
	pthread_mutex_unlock(&w->lock);
	if (o)
		offload_end(o);
}

static void worker_start(struct worker *w, struct world *world)
{
	*w = (struct worker){ .stop = false };
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	pthread_create(&w->thread, NULL, work, w);
	world->engine.offloader = (struct offloader){ enqueue, w };
}

static void worker_end(struct worker *w, struct world *world)
{
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	world->engine.offloader = (struct offloader){ 0 };
}

/* Staging, as the daemon does it: the file first, then the row. */

static void note_id(void *arg, const struct attachment *a)
{
	*(int64_t *)arg = a->id;
}

static int stage(struct world *w, const char *owner, const char *bytes, bool persist, lapse_ms ttl,
		 int64_t *ret_id)
{
	struct attachment_draft d = { .name = "n", .terms = { persist, ttl } };
	struct problem p = { 0 };
	struct blob b;
	struct tx tx;

	blob_init(&b, w->dir, id_next(&w->engine.ids, clock_wall(w->engine.clock)), 1000, false);
	assert_int_equal(blob_write(&b, bytes, strlen(bytes), &p), LAPSE_OK);
	assert_int_equal(blob_finish(&b, &p), LAPSE_OK);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	int r = attachment_stage(&tx, owner, &b, &d, note_id, ret_id, &p);
	if (r == LAPSE_OK)
		assert_int_equal(tx_commit_lazy(&tx), LAPSE_OK);
	else
		tx_rollback(&tx);
	blob_discard(&b);
	return r;
}

static int64_t count_files(const struct world *w)
{
	char path[TEMP_PATH_MAX];
	int64_t n = 0;

	for (unsigned i = 0; i < BLOB_FANOUT; i++) {
		snprintf(path, sizeof(path), "%.200s/files/%02x", w->dir, i);
		DIR *dir = opendir(path);
		for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
			n += e->d_name[0] != '.';
		if (dir)
			closedir(dir);
	}
	return n;
}

/* Every row has its file. */
static void assert_rows_have_files(struct world *w)
{
	sqlite3_stmt *stmt = NULL;

	sqlite3_prepare_v2(w->side, "SELECT checksum, id FROM attachments", -1, &stmt, NULL);
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		int64_t size = 0;
		assert_int_equal(blob_stat(w->dir, (const char *)sqlite3_column_text(stmt, 0),
					   sqlite3_column_int64(stmt, 1), &size),
				 LAPSE_OK);
	}
	sqlite3_finalize(stmt);
}

static void drain(struct world *w, struct worker *worker)
{
	while (side_int(w, "SELECT count(*) FROM cleanups") > 0 || depot_of(&w->engine)->busy ||
	       depot_of(&w->engine)->waiting_count > 0) {
		engine_tick(&w->engine);
		take_finished(worker);
		fake_clock_advance(&w->time, 1);
	}
}

static void sweep_now(struct world *w)
{
	struct sweep result;

	run_sweep(w, "attachments", false, &result);
}

/* One round: expire the row, sweep it, and stage the same bytes while its file is being deleted. */
static void race_round(struct world *w, struct worker *worker, int round)
{
	int64_t id = 0;

	fake_clock_advance(&w->time, 10);
	sweep_now(w);
	if (round % 3 == 0)
		engine_tick(&w->engine); /* hands the deletion to the worker */
	assert_int_equal(stage(w, "o", "the same bytes", false, round % 2 ? 0 : 5, &id), LAPSE_OK);
	if (round % 3 == 1)
		engine_tick(&w->engine);
	if (round % 5 == 0)
		assert_int_equal(stage(w, "o", "the same bytes", false, 0, &id), LAPSE_OK);
	take_finished(worker);
	assert_rows_have_files(w);
}

#define RACE_MAX_US INT64_C(20000000)

static void cleanup_races_staging_of_the_same_bytes(void **state)
{
	struct world *w = *state;
	struct worker worker;
	const char *text = getenv("LAPSE_RACE_ROUNDS");
	int rounds = text ? atoi(text) : 10000;
	lapse_us stop = clock_mono(&CLOCK_SYSTEM) + RACE_MAX_US; /* a slow disk races less often */

	worker_start(&worker, w);
	for (int i = 0; i < rounds && (text || clock_mono(&CLOCK_SYSTEM) < stop); i++)
		race_round(w, &worker, i);
	fake_clock_advance(&w->time, 10);
	sweep_now(w);
	drain(w, &worker);
	worker_end(&worker, w);
	assert_rows_have_files(w);
	assert_int_equal(side_int(w, "SELECT count(*) FROM attachments"), 0);
	assert_int_equal(count_files(w), 0);
	assert_int_equal(w->engine.cleaner.dead, 0);
	assert_int_equal(side_int(w, "SELECT total_count + total_bytes + persistent_count "
				     "FROM attachment_totals WHERE owner = ''"),
			 0);
}

static void figures_agree_with_the_rows(void **state)
{
	struct world *w = *state;
	char bytes[32];
	int64_t id;

	for (int i = 0; i < 200; i++) {
		snprintf(bytes, sizeof(bytes), "%.*s", 1 + i % 7, "abcdefg");
		stage(w, i % 2 ? "red" : "blue", bytes, i % 11 == 0, i % 5 ? 1000 : 0, &id);
		if (i % 17 == 0)
			sweep_now(w);
		fake_clock_advance(&w->time, i % 13);
	}
	assert_int_equal(
		side_int(w, "SELECT count(*) FROM (SELECT owner, count(*) AS n, sum(size) AS b, "
			    "sum(persist) AS pn, sum(persist * size) AS pb FROM attachments "
			    "GROUP BY owner UNION ALL SELECT '', count(*), "
			    "coalesce(sum(size), 0), coalesce(sum(persist), 0), "
			    "coalesce(sum(persist * size), 0) FROM attachments) AS x "
			    "LEFT JOIN attachment_totals AS t ON t.owner = x.owner "
			    "WHERE t.total_count IS NOT n OR t.total_bytes IS NOT b "
			    "OR t.persistent_count IS NOT pn OR t.persistent_bytes IS NOT pb"),
		0);
	world_check_counters(w);
}

static void a_staging_that_is_rolled_back_keeps_nothing(void **state)
{
	struct world *w = *state;
	struct attachment_draft d = { .name = "n", .terms = { false, 1000 } };
	struct problem p = { 0 };
	struct blob b;
	struct tx tx;
	int64_t id;

	blob_init(&b, w->dir, id_next(&w->engine.ids, NOW), 1000, false);
	blob_write(&b, "x", 1, &p);
	blob_finish(&b, &p);
	tx_begin(&tx, &w->engine);
	assert_int_equal(attachment_stage(&tx, "o", &b, &d, note_id, &id, &p), LAPSE_OK);
	tx_rollback(&tx);
	assert_false(b.kept);
	blob_discard(&b);
	assert_int_equal(count_files(w), 0);
}

static void the_limit_is_checked_in_the_transaction(void **state)
{
	struct world *w = *state;
	int64_t id;

	w->settings.attachment_total_bytes = 10;
	assert_int_equal(stage(w, "o", "123456", false, 1000, &id), LAPSE_OK);
	assert_int_equal(stage(w, "o", "12345", false, 1000, &id), LAPSE_ELIMIT);
	assert_int_equal(stage(w, "o", "1234", false, 1000, &id), LAPSE_OK);
	assert_int_equal(count_files(w), 2);
}

/* A grace after a restore: nothing is removed, and the check comes again when it is over. */
static void after_a_restore_nothing_is_mended_for_a_day(void **state)
{
	struct world *w = *state;
	int64_t id;

	stage(w, "o", "row", false, LAPSE_NEVER, &id);
	stage(w, "o", "other", false, LAPSE_NEVER, &id);
	side_run(w, "INSERT INTO meta (key, value) VALUES ('restored_at', %lld)", (long long)NOW);
	side_run(w, "DELETE FROM attachments WHERE size = 3");
	side_run(w, "UPDATE counts SET live = 1 WHERE tbl = 'attachments'");
	world_reopen(w);
	tick_until_idle(w);
	for (int i = 0; i < 50; i++) {
		fake_clock_advance(&w->time, 10);
		tick_until_idle(w);
	}
	assert_int_equal(count_files(w), 2);
	fake_clock_advance(&w->time, 86400000 + 1000);
	for (int i = 0; i < 50; i++) {
		fake_clock_advance(&w->time, 10);
		tick_until_idle(w);
	}
	assert_int_equal(count_files(w), 1);
	assert_int_equal(depot_of(&w->engine)->orphans_found, 1);
}

/* The check after a start, with a second life of the store: reopened, and ticked to its end. */
static void check(struct world *w)
{
	world_reopen(w);
	for (int i = 0; depot_of(&w->engine)->reconcile.phase != RECONCILE_DONE; i++) {
		assert_true(i < 100000);
		tick_until_idle(w);
		fake_clock_advance(&w->time, 10);
	}
	tick_until_idle(w);
}

/* `n` rows behind the engine's back, without a file each. */
static void make_rows(struct world *w, int64_t n)
{
	side_run(w,
		 "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < %lld) "
		 "INSERT INTO attachments SELECT n, 'o', printf('%%064x', n), 'n', 1, 0, %lld, 1, "
		 "NULL, 0 FROM i",
		 (long long)n, (long long)LAPSE_NEVER);
	side_run(w, "UPDATE counts SET live = live + %lld WHERE tbl = 'attachments'", (long long)n);
}

/* More than can be remembered: it still counts how many they are. */
static void a_disk_that_is_not_mounted_removes_none_of_many_rows(void **state)
{
	struct world *w = *state;
	const int64_t n = 250000;
	int64_t id;

	stage(w, "o", "a file", false, LAPSE_NEVER, &id); /* so there is a directory */
	make_rows(w, n);
	check(w);
	assert_int_equal(side_int(w, "SELECT count(*) FROM attachments"), n + 1);
	assert_int_equal(depot_of(&w->engine)->reconcile.missing_total, n);
	assert_true(depot_of(&w->engine)->reconcile.files_gone);
}

static void remove_files(struct world *w, char elsewhere[TEMP_PATH_MAX])
{
	char path[TEMP_PATH_MAX];

	path_join(path, w->dir, "files");
	path_join(elsewhere, w->dir, "elsewhere");
	assert_int_equal(rename(path, elsewhere), 0);
}

/* Few rows are no reason to remove them all; nor is somebody who reads. */
static void not_even_a_few_rows_and_not_by_readers(void **state)
{
	struct world *w = *state;
	char elsewhere[TEMP_PATH_MAX];
	int64_t ids[3];

	for (int i = 0; i < 3; i++)
		stage(w, "o", &"abc"[i], false, LAPSE_NEVER, &ids[i]);
	remove_files(w, elsewhere);
	check(w);
	depot_report_missing(&w->engine, ids[1]);
	tick_until_idle(w);
	assert_int_equal(side_int(w, "SELECT count(*) FROM attachments"), 3);
}

/* Readers come before the check has looked at everything. */
static void readers_remove_nothing_before_the_check_is_over(void **state)
{
	struct world *w = *state;
	char elsewhere[TEMP_PATH_MAX];
	int64_t id;

	stage(w, "o", "read", false, LAPSE_NEVER, &id);
	remove_files(w, elsewhere);
	world_reopen(w);
	depot_report_missing(&w->engine, id);
	engine_tick(&w->engine);
	assert_int_equal(side_int(w, "SELECT count(*) FROM attachments"), 1);
}

/* A store that fails is tried again, and nothing is said to be removed that is not. */
static void rows_are_mended_when_the_store_is_back(void **state)
{
	struct world *w = *state;
	int64_t id;

	stage(w, "o", "a file", false, LAPSE_NEVER, &id);
	make_rows(w, 1);
	world_reopen(w);
	struct reconcile *x = &depot_of(&w->engine)->reconcile;
	while (x->phase != RECONCILE_MEND) {
		reconcile_tick(&w->engine);
		fake_clock_advance(&w->time, 10);
	}
	store_fails(w);
	reconcile_tick(&w->engine);
	store_is_back(w);
	char *text = world_log(w);
	assert_null(strstr(text, "its row was removed"));
	free(text);
	assert_int_equal(x->phase, RECONCILE_MEND);
	fake_clock_advance(&w->time, 60000);
	reconcile_tick(&w->engine);
	assert_int_equal(x->phase, RECONCILE_DONE);
	assert_int_equal(side_int(w, "SELECT count(*) FROM attachments"), 1);
	assert_int_equal(depot_of(&w->engine)->missing_found, 1);
}

static void put_file(const struct world *w, const char *name)
{
	char path[2 * TEMP_PATH_MAX], dir[TEMP_PATH_MAX];

	snprintf(path, sizeof(path), "%s/files/%s", w->dir, name);
	snprintf(dir, sizeof(dir), "%.200s/files/%.2s", w->dir, name);
	mkdir(dir, 0700);
	file_write(path, "x");
}

/* So that files with small ids could be its own. */
static void make_store_old(struct world *w)
{
	side_run(w, "UPDATE meta SET value = 0 WHERE key = 'created_at'");
}

#define CHECKSUM_TAIL "7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

/* A name of ours in another's directory is none of ours: an intent would delete something else. */
static void a_file_in_the_wrong_directory_is_left_alone(void **state)
{
	struct world *w = *state;

	make_store_old(w);
	put_file(w, "bb/ba" CHECKSUM_TAIL "-0000000000000007");
	put_file(w, "bb/README");
	check(w);
	assert_int_equal(count_files(w), 2);
	assert_int_equal(depot_of(&w->engine)->orphans_found, 0);
}

/* Neither a directory nor a symlink is a file that we have written. */
static void what_only_has_a_name_of_ours_is_left_alone(void **state)
{
	struct world *w = *state;
	char path[2 * TEMP_PATH_MAX];

	make_store_old(w);
	put_file(w, "ba/README");
	snprintf(path, sizeof(path), "%s/files/ba/ba" CHECKSUM_TAIL "-0000000000000007", w->dir);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/files/ba/ba" CHECKSUM_TAIL "-0000000000000008", w->dir);
	assert_int_equal(symlink("README", path), 0);
	check(w);
	assert_int_equal(count_files(w), 3);
	assert_int_equal(depot_of(&w->engine)->orphans_found, 0);
}

/* Whoever made it, it was not this store, which did not exist then. */
static void a_file_from_before_the_store_is_left_alone(void **state)
{
	struct world *w = *state;
	char name[128];

	put_file(w, "ba/ba" CHECKSUM_TAIL "-0000000000000007");
	snprintf(name, sizeof(name), "ba/ba" CHECKSUM_TAIL "-%016llx", (long long)id_floor(NOW));
	put_file(w, name);
	check(w);
	assert_int_equal(count_files(w), 1);
	assert_int_equal(depot_of(&w->engine)->reconcile.older, 1);
	assert_int_equal(depot_of(&w->engine)->orphans_found, 1);
}

/* One directory that cannot be read is told of; the check goes on with all others. */
static void what_cannot_be_read_is_passed_by(void **state)
{
	struct world *w = *state;
	char path[TEMP_PATH_MAX], aside[TEMP_PATH_MAX], checksum[BLOB_CHECKSUM_LEN + 1];
	int64_t id, orphan;

	make_store_old(w);
	stage(w, "o", "in the way", false, LAPSE_NEVER, &id);
	char *text = side_text(w, "SELECT checksum FROM attachments");
	snprintf(checksum, sizeof(checksum), "%s", text);
	free(text);
	snprintf(path, sizeof(path), "%.200s/files/%.2s", w->dir, checksum);
	snprintf(aside, sizeof(aside), "%.200s/aside", w->dir);
	assert_int_equal(rename(path, aside), 0);
	file_write(path, "not a directory"); /* root reads whatever has another mode */
	put_file(w, "ff/ff" CHECKSUM_TAIL "-0000000000000007");
	stage(w, "o", "other", false, LAPSE_NEVER, &orphan);
	check(w);
	assert_int_equal(depot_of(&w->engine)->reconcile.unreadable,
			 2); /* the directory, and the row */
	assert_int_equal(depot_of(&w->engine)->orphans_found, 1);
	assert_int_equal(side_int(w, "SELECT count(*) FROM attachments"), 2);
	text = world_log(w);
	assert_non_null(strstr(text, "Not a directory"));
	free(text);
}

static void remove_file(const struct world *w, int64_t id)
{
	char path[2 * TEMP_PATH_MAX];

	snprintf(path, sizeof(path), "%s/files/00/%064llx-%016llx", w->dir, (long long)id,
		 (long long)id);
	unlink(path);
}

static void make_files(const struct world *w, int64_t n)
{
	char name[128];

	for (int64_t id = 1; id <= n; id++) {
		snprintf(name, sizeof(name), "00/%064llx-%016llx", (long long)id, (long long)id);
		put_file(w, name);
	}
}

/* A file that goes after its directory was read was somebody's: row and intent went with it. */
static void what_is_removed_meanwhile_is_no_leftover(void **state)
{
	struct world *w = *state;
	struct reconcile *x;

	make_store_old(w);
	make_files(w, 500);
	world_reopen(w);
	x = &depot_of(&w->engine)->reconcile;
	for (int i = 0; i < 100 && x->reported == 0; i++) {
		engine_tick(&w->engine);
		fake_clock_advance(&w->time, 10);
	}
	int64_t found = x->reported; /* a slice is full, and there is more */
	assert_in_range(found, 1, 499);
	for (int64_t id = 1; id <= 500; id++)
		remove_file(w, id);
	for (int i = 0; i < 100 && x->phase != RECONCILE_DONE; i++) {
		engine_tick(&w->engine);
		fake_clock_advance(&w->time, 10);
	}
	assert_int_equal(x->phase, RECONCILE_DONE);
	assert_int_equal(depot_of(&w->engine)->orphans_found, found);
}

/* The same for a row that goes, and its file, after the row was read. */
static void race_rows(struct world *w, struct worker *worker, int round)
{
	struct reconcile *x = &depot_of(&w->engine)->reconcile;

	for (engine_tick(&w->engine); x->phase != RECONCILE_ROWS || !x->busy;
	     engine_tick(&w->engine)) {
		take_finished(worker);
		fake_clock_advance(&w->time, 10);
	}
	usleep((useconds_t)round * 50);
	side_run(w, "DELETE FROM attachments");
	for (int64_t id = 1; id <= 400; id++)
		remove_file(w, id);
	while (x->phase != RECONCILE_DONE) {
		engine_tick(&w->engine);
		take_finished(worker);
		fake_clock_advance(&w->time, 10);
	}
	assert_int_equal(x->missing_total, 0);
}

static void what_is_removed_meanwhile_is_no_loss(void **state)
{
	struct world *w = *state;
	struct worker worker;

	side_run(w, "PRAGMA synchronous=OFF");
	for (int round = 0; round < 40; round++) {
		make_files(w, 400);
		make_rows(w, 400);
		world_reopen(w);
		worker_start(&worker, w);
		race_rows(w, &worker, round);
		worker_end(&worker, w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
		T(cleanup_races_staging_of_the_same_bytes),
		T(figures_agree_with_the_rows),
		T(a_staging_that_is_rolled_back_keeps_nothing),
		T(the_limit_is_checked_in_the_transaction),
		T(after_a_restore_nothing_is_mended_for_a_day),
		T(a_disk_that_is_not_mounted_removes_none_of_many_rows),
		T(not_even_a_few_rows_and_not_by_readers),
		T(readers_remove_nothing_before_the_check_is_over),
		T(rows_are_mended_when_the_store_is_back),
		T(a_file_in_the_wrong_directory_is_left_alone),
		T(what_only_has_a_name_of_ours_is_left_alone),
		T(a_file_from_before_the_store_is_left_alone),
		T(what_cannot_be_read_is_passed_by),
		T(what_is_removed_meanwhile_is_no_leftover),
		T(what_is_removed_meanwhile_is_no_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
