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
#include <unistd.h>

#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "unit.h"

/* One worker: takes a job, runs it, and hands it back to the thread that owns the engine. */
struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct offload *job, *finished; /* the depot starts one at a time; the check another */
	struct offload *queued;
	bool stop;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->queued && !w->stop)
			pthread_cond_wait(&w->changed, &w->lock);
		if (!w->queued)
			break;
		struct offload *o = w->queued;
		w->queued = NULL;
		pthread_mutex_unlock(&w->lock);
		o->work(o);
		pthread_mutex_lock(&w->lock);
		w->finished = o;
		pthread_cond_broadcast(&w->changed);
		while (w->finished)
			pthread_cond_wait(&w->changed, &w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void enqueue(void *ctx, struct offload *o)
{
	struct worker *w = ctx;

	pthread_mutex_lock(&w->lock);
	while (w->queued)
		pthread_cond_wait(&w->changed, &w->lock);
	w->queued = o;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static bool take_finished(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	struct offload *o = w->finished;
	w->finished = NULL;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	if (o)
		o->done(o);
	return o != NULL;
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
	while (side_int(w, "SELECT count(*) FROM cleanups") > 0 || w->engine.depot->busy ||
	       w->engine.depot->waiting_count > 0) {
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

static void cleanup_races_staging_of_the_same_bytes(void **state)
{
	struct world *w = *state;
	struct worker worker;
	const char *text = getenv("LAPSE_RACE_ROUNDS");
	int rounds = text ? atoi(text) : 10000;

	worker_start(&worker, w);
	for (int i = 0; i < rounds; i++)
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
	assert_int_equal(w->engine.depot->orphans_found, 1);
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
