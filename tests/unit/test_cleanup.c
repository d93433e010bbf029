/* SPDX-License-Identifier: Apache-2.0 */
/* Deletions outside: a durable intent, tried until it is done or a dead letter. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/deadletter.h"
#include "unit.h"

#define RUNS_MAX 64

/* Runs that only are kept; the test settles them. */
struct bench {
	struct world *world;
	struct cleanup *runs[RUNS_MAX];
	int started, settled;
};

static struct bench *bench; /* the running test's: kinds have no argument */

static void keep(struct engine *e, struct cleanup *c)
{
	assert_ptr_equal(e, &bench->world->engine);
	assert_true(bench->started < RUNS_MAX);
	bench->runs[bench->started++] = c;
}

/* A room's row, kept in step: a table with the state of each target. */
static int note_mail(struct tx *tx, const struct cleanup_outcome *o)
{
	static const struct db_stmt NOTE = {
		"INSERT INTO mail_states (target, state, attempts, why) VALUES ($1, $2, $3, $4) "
		"ON CONFLICT (target) DO UPDATE SET state = excluded.state, "
		"attempts = excluded.attempts, why = excluded.why"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &NOTE);

	db_bind_text(&q, 1, o->target);
	db_bind_int(&q, 2, o->state);
	db_bind_int(&q, 3, o->attempts);
	db_bind_text(&q, 4, o->why);
	return db_run(&q);
}

static const struct cleanup_kind MAIL = {
	.name = "mail",
	.running_max = 2,
	.attempts_max = offsetof(struct settings, cleanup_max_attempts),
	.failed = EVENT_MESSAGE_READ, /* any two that are told apart */
	.dead = EVENT_MESSAGE_SENT,
	.retried_by_sweep = true,
	.start = keep,
	.settled = note_mail,
};
/* Tried again after a pause, and by itself. */
static const struct cleanup_kind FILES = {
	.name = "files",
	.running_max = 8,
	.attempts_max = offsetof(struct settings, cleanup_max_attempts),
	.dead = EVENT_DEAD_LETTER,
	.start = keep,
};
static const struct cleanup_kind *const KINDS[] = { &FILES, &MAIL, &CLEANUP_FILE, NULL };

static void attach(struct bench *b)
{
	struct engine *e = &b->world->engine;

	cleaner_done(&e->cleaner);
	cleaner_init(&e->cleaner, KINDS);
	assert_int_equal(cleaner_load(e), LAPSE_OK);
	bench = b;
	side_run(b->world, "CREATE TABLE IF NOT EXISTS mail_states "
			   "(target TEXT PRIMARY KEY, state INT, attempts INT, why TEXT)");
}

static int setup(void **state)
{
	struct bench *b = mem_zalloc(1, sizeof(*b));
	void *w;

	world_setup(&w);
	b->world = w;
	attach(b);
	*state = b;
	return 0;
}

static void settle_next(struct bench *b, int err, const char *why)
{
	assert_true(b->settled < b->started);
	cleanup_settle(&b->world->engine, b->runs[b->settled], err, why);
	b->runs[b->settled++] = NULL;
	cleaner_stop(&b->world->engine); /* the outcome is written, nothing is started */
}

/* What a crash leaves: the process's memory goes, the store stays. */
static void forget_runs(struct bench *b)
{
	b->settled = b->started;
}

static int teardown(void **state)
{
	struct bench *b = *state;
	void *w = b->world;

	forget_runs(b);
	world_teardown(&w);
	free(b);
	return 0;
}

static void add(struct world *w, const struct cleanup_kind *kind, const char *target)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(cleanup_add(&tx, "owner", kind, target), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

static void advance_and_tick(struct bench *b, lapse_ms ms)
{
	fake_clock_advance(&b->world->time, ms);
	cleaner_tick(&b->world->engine);
}

static int64_t rows(struct bench *b, const char *where)
{
	return side_int(b->world, "SELECT count(*) FROM cleanups WHERE %s", where);
}

static void done_once_and_gone(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "blob-1");
	assert_int_equal(rows(b, "state = 1 AND attempts = 0"), 1);
	assert_int_equal(cleaner_next_us(&b->world->engine), 0);
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 1);
	assert_string_equal(b->runs[0]->owner, "owner");
	assert_ptr_equal(b->runs[0]->kind, &FILES);
	assert_string_equal(b->runs[0]->target, "blob-1");
	for (int i = 0; i < 10; i++)
		advance_and_tick(b, 5000);
	assert_int_equal(b->started, 1); /* while it runs it is not started again */
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(rows(b, "1"), 0);
	advance_and_tick(b, 3600000);
	assert_int_equal(b->started, 1);
	assert_int_equal(b->world->engine.cleaner.kinds[0].running_count, 0);
}

static void an_intent_of_a_rolled_back_transaction_is_none(void **state)
{
	struct bench *b = *state;
	struct tx tx;

	cleaner_tick(&b->world->engine);
	assert_int_equal(tx_begin(&tx, &b->world->engine), LAPSE_OK);
	assert_int_equal(cleanup_add(&tx, "o", &FILES, "x"), LAPSE_OK);
	tx_rollback(&tx);
	assert_true(cleaner_next_us(&b->world->engine) > 0);
	advance_and_tick(b, 3600000);
	assert_int_equal(b->started, 0);
}

static void put_off(void *ctx, struct offload *o)
{
	*(struct offload **)ctx = o;
}

/* A kind that blocks goes through the offloader, and the loop goes on meanwhile. */
static void what_blocks_is_offloaded(void **state)
{
	struct bench *b = *state;
	struct engine *e = &b->world->engine;
	struct offload *job = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/left", b->world->settings.data_dir);
	fclose(fopen(path, "w"));
	add(b->world, &CLEANUP_FILE, "left");
	e->offloader = (struct offloader){ put_off, &job };
	cleaner_tick(e);
	assert_ptr_equal(job, &e->durable.job); /* first the intent is durable */
	offload_work(job);
	offload_end(job);
	cleaner_tick(e);
	assert_ptr_not_equal(job, &e->durable.job);
	assert_int_equal(access(path, F_OK), 0);
	offload_work(job);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(rows(b, "1"), 1); /* nothing is written off the loop */
	offload_end(job);
	cleaner_tick(e);
	assert_int_equal(rows(b, "1"), 0);
}

/* Where there is no loop the same is done at once, and a failure has its reason. */
static void without_a_loop_it_is_done_at_once(void **state)
{
	struct bench *b = *state;
	char path[512];

	snprintf(path, sizeof(path), "%s/a-directory", b->world->settings.data_dir);
	assert_int_equal(mkdir(path, 0700), 0);
	add(b->world, &CLEANUP_FILE, "gone already");
	add(b->world, &CLEANUP_FILE, "a-directory");
	cleaner_tick(&b->world->engine);
	assert_int_equal(rows(b, "1"), 1);
	assert_int_equal(rows(b, "target = 'a-directory' AND attempts = 1 AND error <> ''"), 1);
	rmdir(path);
}

static void the_same_target_twice_is_one(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "x");
	add(b->world, &FILES, "x");
	add(b->world, &MAIL, "x");
	assert_int_equal(rows(b, "1"), 2);
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 2);
}

static void a_failure_is_tried_again_after_a_pause(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "x");
	cleaner_tick(&b->world->engine);
	settle_next(b, LAPSE_ETIMEOUT, "no answer");
	assert_int_equal(rows(b, "state = 1 AND attempts = 1 AND error = 'no answer'"), 1);
	advance_and_tick(b, 9999);
	assert_int_equal(b->started, 1);
	advance_and_tick(b, 5000); /* the pause of ten seconds is over at the next look */
	assert_int_equal(b->started, 2);
	assert_int_equal(b->runs[1]->attempts, 1);
	settle_next(b, LAPSE_ETIMEOUT, "still none");
	advance_and_tick(b, 19999);
	assert_int_equal(b->started, 2); /* the pause grows */
	advance_and_tick(b, 5000);
	assert_int_equal(b->started, 3);
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(rows(b, "1"), 0);
	assert_int_equal(b->world->engine.cleaner.dead, 0);
}

static void die(struct bench *b, const char *target)
{
	add(b->world, &FILES, target);
	for (int i = 0; i < 3; i++) {
		advance_and_tick(b, 60000);
		settle_next(b, LAPSE_EIO, "disk on fire");
	}
}

static void three_failures_are_a_dead_letter(void **state)
{
	struct bench *b = *state;
	struct buf CLEANUP(buf_done) metrics = { 0 };

	die(b, "x");
	assert_int_equal(rows(b, "state = -1 AND attempts = 3 AND error = 'disk on fire'"), 1);
	assert_int_equal(b->world->engine.cleaner.dead, 1);
	engine_write_metrics(&b->world->engine, &metrics);
	assert_non_null(strstr(buf_text(&metrics), "\nlapse_dead_letters 1\n"));
	char *CLEANUP(mem_freep) data = side_text(
		b->world, "SELECT owner || data FROM events WHERE kind = 'cleanup.dead_letter'");
	assert_non_null(strstr(data, "owner{\"id\":\""));
	assert_non_null(strstr(data, "\"kind\":\"files\",\"target\":\"x\",\"attempts\":3,"
				     "\"error\":\"disk on fire\"}"));
	advance_and_tick(b, 86400000);
	assert_int_equal(b->started, 3);
	world_check_counters(b->world);
}

static void the_number_of_attempts_is_a_setting(void **state)
{
	struct bench *b = *state;

	b->world->settings.cleanup_max_attempts = 1;
	add(b->world, &FILES, "x");
	cleaner_tick(&b->world->engine);
	settle_next(b, LAPSE_EIO, "no");
	assert_int_equal(rows(b, "state = -1 AND attempts = 1"), 1);
}

static void dead_letters_are_counted_after_a_restart(void **state)
{
	struct bench *b = *state;

	die(b, "x");
	world_reopen(b->world);
	assert_int_equal(b->world->engine.cleaner.dead, 1);
	attach(b);
}

/* The process ends between the take and the answer: the next start tries at once, since nothing
 * that ended can have a lease. */
static void a_lease_ends_with_its_process(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "x");
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 1);
	forget_runs(b);
	world_reopen(b->world);
	attach(b);
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 2);
	assert_string_equal(b->runs[1]->target, "x");
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(rows(b, "1"), 0);
}

/* A start does not shorten what waits for another reason: a pause after a failure, a time in the
 * future. */
static void a_start_leaves_pauses_alone(void **state)
{
	struct bench *b = *state;
	struct tx tx;

	add(b->world, &FILES, "failed");
	cleaner_tick(&b->world->engine);
	settle_next(b, LAPSE_EIO, "no");
	assert_int_equal(tx_begin(&tx, &b->world->engine), LAPSE_OK);
	assert_int_equal(cleanup_add_at(&tx, "o", &FILES, "later", NOW + 5000), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	world_reopen(b->world);
	attach(b);
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 1);
	advance_and_tick(b, 5000);
	assert_int_equal(b->started, 2);
	assert_string_equal(b->runs[1]->target, "later");
	settle_next(b, LAPSE_OK, "");
	advance_and_tick(b, 5000);
	assert_int_equal(b->started, 3);
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(rows(b, "1"), 0);
}

static void a_settlement_that_cannot_be_written_is_repeated(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "x");
	cleaner_tick(&b->world->engine);
	store_fails(b->world);
	settle_next(b, LAPSE_OK, "");
	store_is_back(b->world);
	assert_int_equal(rows(b, "state = 1 AND attempts = 0"), 1);
	assert_int_equal(b->world->engine.cleaner.kinds[0].running_count, 0);
	char *CLEANUP(mem_freep) log = world_log(b->world);
	assert_non_null(strstr(log, "cleanup.settle_failed"));
	advance_and_tick(b, 60000);
	assert_int_equal(b->started, 2);
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(rows(b, "1"), 0);
}

static void a_take_that_cannot_be_written_starts_nothing(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "x");
	store_fails(b->world);
	cleaner_tick(&b->world->engine);
	store_is_back(b->world);
	assert_int_equal(b->started, 0);
	advance_and_tick(b, 5000);
	assert_int_equal(b->started, 1);
}

/* Eight at once; the others follow as places come free, none is lost, none runs twice. */
static void so_many_at_once(void **state)
{
	struct bench *b = *state;
	bool seen[20] = { false };

	for (int i = 0; i < 20; i++) {
		char target[16];
		snprintf(target, sizeof(target), "%d", i);
		add(b->world, &FILES, target);
	}
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 8);
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 8);
	assert_true(cleaner_next_us(&b->world->engine) > 0);
	for (int round = 0; b->settled < 20; round++) {
		assert_true(round < 50);
		assert_true(b->started - b->settled <= 8);
		assert_int_equal(b->world->engine.cleaner.kinds[0].running_count,
				 b->started - b->settled);
		for (int i = 0; i < 3 && b->settled < b->started; i++) {
			int target = atoi(b->runs[b->settled]->target);
			assert_false(seen[target]);
			seen[target] = true;
			settle_next(b, LAPSE_OK, "");
		}
		advance_and_tick(b, 5000);
	}
	assert_int_equal(b->started, 20);
	assert_int_equal(rows(b, "1"), 0);
}

/* A place that comes free is used at once while others wait: no pause of five seconds. */
static void a_free_place_is_used_at_once(void **state)
{
	struct bench *b = *state;

	for (int i = 0; i < 9; i++) {
		char target[16];
		snprintf(target, sizeof(target), "%d", i);
		add(b->world, &FILES, target);
	}
	cleaner_tick(&b->world->engine);
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(cleaner_next_us(&b->world->engine), 0);
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 9);
}

/* Ids are unique even when the clock went back while the engine was closed. */
static void a_clock_that_went_back_is_no_conflict(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "x");
	world_close(b->world);
	b->world->time.wall -= 3600000;
	world_open(b->world);
	fake_clock_advance(&b->world->time, 3600000); /* the same millisecond comes a second time */
	add(b->world, &FILES, "y");
	assert_int_equal(rows(b, "1"), 2);
}

/* Kinds. */

static int64_t mail_state(struct bench *b, const char *target)
{
	return side_int(b->world, "SELECT state FROM mail_states WHERE target = '%s'", target);
}

static void fail_mail(struct bench *b, const char *target)
{
	add(b->world, &MAIL, target);
	cleaner_tick(&b->world->engine);
	settle_next(b, LAPSE_EUPSTREAM, "502");
}

static int64_t retry_some(struct bench *b, int64_t max)
{
	struct tx tx;
	int64_t n = -1;

	assert_int_equal(tx_begin(&tx, &b->world->engine), LAPSE_OK);
	assert_int_equal(cleanup_retry(&tx, &MAIL, max, NULL, NULL, &n), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	cleaner_tick(&b->world->engine);
	return n;
}

/* One kind that is busy does not keep another from its work. */
static void kinds_have_places_of_their_own(void **state)
{
	struct bench *b = *state;

	for (int i = 0; i < 5; i++) {
		char target[16];
		snprintf(target, sizeof(target), "%d", i);
		add(b->world, &MAIL, target);
	}
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 2);
	add(b->world, &FILES, "x");
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 3);
	assert_ptr_equal(b->runs[2]->kind, &FILES);
}

static void the_room_hears_of_every_outcome(void **state)
{
	struct bench *b = *state;

	fail_mail(b, "m");
	assert_int_equal(mail_state(b, "m"), CLEANUP_PENDING);
	assert_int_equal(side_int(b->world, "SELECT attempts FROM mail_states"), 1);
	assert_int_equal(
		side_int(b->world, "SELECT count(*) FROM events WHERE kind = 'message.read'"), 1);
	assert_int_equal(retry_some(b, 10), 1);
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(mail_state(b, "m"), CLEANUP_DONE);
	assert_int_equal(rows(b, "1"), 0);
}

/* Not by time: only a sweep brings it back, oldest first, and as many as it says. */
static void what_sweeps_retry_waits_for_one(void **state)
{
	struct bench *b = *state;

	fail_mail(b, "m1");
	fail_mail(b, "m2");
	fail_mail(b, "m3");
	advance_and_tick(b, 86400000);
	assert_int_equal(b->started, 3);
	assert_int_equal(retry_some(b, 2), 2);
	assert_int_equal(b->started, 5);
	assert_string_equal(b->runs[3]->target, "m1");
	assert_string_equal(b->runs[4]->target, "m2");
	assert_int_equal(retry_some(b, 10), 1); /* what is under way is not taken twice */
}

/* One that takes longer than a take lasts is not started a second time beside itself. */
static void a_slow_one_runs_once(void **state)
{
	struct bench *b = *state;

	add(b->world, &MAIL, "slow");
	cleaner_tick(&b->world->engine);
	for (int i = 0; i < 5; i++)
		advance_and_tick(b, 61000);
	assert_int_equal(b->started, 1);
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(rows(b, "1"), 0);
}

/* Its outcome waits to be written when it would be taken again: a second deletion could meet what
 * has the name by then. */
static void one_whose_outcome_is_not_written_runs_once(void **state)
{
	struct bench *b = *state;
	struct engine *e = &b->world->engine;

	add(b->world, &MAIL, "slow");
	cleaner_tick(e);
	fake_clock_advance(&b->world->time, 61000);
	cleanup_settle(e, b->runs[b->settled++], LAPSE_OK, "");
	e->crowded = true;
	e->cleaner.write_after = clock_mono(e->clock) + 50000;
	cleaner_tick(e);
	assert_int_equal(b->started, 1);
	e->crowded = false;
	cleaner_tick(e);
	assert_int_equal(rows(b, "1"), 0);
	assert_int_equal(b->started, 1);
}

/* A reason is cut between two characters: it goes into events and answers, which are UTF-8. */
static void a_long_reason_stays_text(void **state)
{
	struct bench *b = *state;
	char why[256] = "";

	for (size_t i = 0; i < sizeof(why) - 3; i += 2)
		memcpy(why + i, "\u00e9", 2);
	add(b->world, &MAIL, "long");
	cleaner_tick(&b->world->engine);
	settle_next(b, LAPSE_EIO, why);
	assert_int_equal(rows(b, "hex(error) LIKE '%C3A93F'"), 1);
}

/* Outcomes that come together are one transaction; one that cannot be written takes none along
 * for good. */
static void outcomes_are_written_together(void **state)
{
	struct bench *b = *state;

	add(b->world, &MAIL, "a");
	add(b->world, &MAIL, "b");
	cleaner_tick(&b->world->engine);
	cleanup_settle(&b->world->engine, b->runs[b->settled++], LAPSE_OK, "");
	cleanup_settle(&b->world->engine, b->runs[b->settled++], LAPSE_EIO, "no");
	assert_int_equal(cleaner_next_us(&b->world->engine), 0);
	assert_int_equal(rows(b, "1"), 2);
	cleaner_tick(&b->world->engine);
	assert_int_equal(rows(b, "1"), 1);
	assert_int_equal(mail_state(b, "a"), CLEANUP_DONE);
	assert_int_equal(mail_state(b, "b"), CLEANUP_PENDING);
}

/* Nothing outside is touched before the intent would survive a power loss: it waits for a sync that
 * is under way, and syncs itself when there is none. */
/* A server that is down is one line, and it names every account. */
static void failures_together_name_every_target(void **state)
{
	struct bench *b = *state;

	add(b->world, &FILES, "x");
	add(b->world, &FILES, "y");
	add(b->world, &FILES, "z");
	cleaner_tick(&b->world->engine);
	assert_int_equal(b->started, 3);
	cleanup_settle(&b->world->engine, b->runs[0], LAPSE_EIO, "no");
	cleanup_settle(&b->world->engine, b->runs[1], LAPSE_EIO, "neither");
	cleanup_settle(&b->world->engine, b->runs[2], LAPSE_OK, "");
	b->settled = 3;
	cleaner_tick(&b->world->engine);
	char *CLEANUP(mem_freep) log = world_log(b->world);
	assert_non_null(strstr(log, "\"count\":2,\"targets\":[\"x\",\"y\"]"));
	assert_null(strstr(log, "\"z\""));
}

static void the_intent_is_durable_before_the_call(void **state)
{
	struct bench *b = *state;
	struct engine *e = &b->world->engine;

	add(b->world, &MAIL, "m");
	e->store->syncing = true; /* of a turn that began before */
	cleaner_tick(e);
	assert_int_equal(rows(b, "next_at > created_at"), 1); /* taken */
	assert_int_equal(b->started, 0);
	assert_true(cleaner_next_us(e) > 0); /* and nobody spins meanwhile */
	e->store->syncing = false;
	assert_false(store_is_durable(e->store, store_mark(e->store)));
	assert_int_equal(cleaner_next_us(e), 0);
	cleaner_tick(e);
	assert_int_equal(b->started, 1);
	assert_true(store_is_durable(e->store, store_mark(e->store)));
}

/* Its own sync is a worker's: the loop goes on, and the call begins when it is over. */
static void its_own_sync_is_not_the_loops(void **state)
{
	struct bench *b = *state;
	struct engine *e = &b->world->engine;
	struct offload *job = NULL;

	e->offloader = (struct offloader){ put_off, &job };
	add(b->world, &MAIL, "m");
	cleaner_tick(e);
	assert_non_null(job);
	assert_false(store_is_durable(e->store, store_mark(e->store)));
	assert_int_equal(b->started, 0);
	assert_true(cleaner_next_us(e) > 0); /* and nobody spins meanwhile */
	offload_work(job);
	add(b->world, &MAIL, "later"); /* with a sync that began later and ends first */
	offload_end(job);
	assert_true(store_is_durable(e->store, store_mark(e->store)));
	e->offloader = (struct offloader){ 0 };
	cleaner_tick(e);
	assert_int_equal(b->started, 2);
}

/* Dead letters. */

static int64_t die_mail(struct bench *b, const char *target)
{
	fail_mail(b, target);
	for (int i = 0; i < 2; i++) {
		retry_some(b, 10);
		settle_next(b, LAPSE_EUPSTREAM, "502");
	}
	assert_int_equal(mail_state(b, target), CLEANUP_DEAD);
	return side_int(b->world, "SELECT id FROM cleanups WHERE target = '%s'", target);
}

static void count_letter(void *arg, const struct dead_letter *d)
{
	assert_int_equal(d->state, CLEANUP_DEAD);
	assert_string_equal(d->error, "502");
	assert_int_equal(d->attempts, 3);
	++*(int *)arg;
}

static void a_dead_letter_is_retried_with_all_its_attempts(void **state)
{
	struct bench *b = *state;
	int64_t id = die_mail(b, "m");
	struct dead_letter d;
	struct arena arena;
	struct tx tx;
	int seen = 0;

	arena_init(&arena);
	assert_int_equal(tx_begin(&tx, &b->world->engine), LAPSE_OK);
	assert_int_equal(dead_letter_list(&tx, INT64_MAX, 10, count_letter, &seen), LAPSE_OK);
	assert_int_equal(seen, 1);
	assert_int_equal(dead_letter_retry(&tx, id, &arena, &d), LAPSE_OK);
	assert_int_equal(dead_letter_retry(&tx, id, &arena, &d), LAPSE_ENOTFOUND);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(d.state, CLEANUP_PENDING);
	assert_int_equal(d.attempts, 0);
	assert_int_equal(mail_state(b, "m"), CLEANUP_PENDING);
	assert_int_equal(b->world->engine.cleaner.dead, 0);
	cleaner_tick(&b->world->engine);
	settle_next(b, LAPSE_OK, "");
	assert_int_equal(rows(b, "1"), 0);
	arena_done(&arena);
}

static void a_dropped_dead_letter_is_gone(void **state)
{
	struct bench *b = *state;
	int64_t id = die_mail(b, "m");
	struct arena arena;
	struct tx tx;

	arena_init(&arena);
	assert_int_equal(tx_begin(&tx, &b->world->engine), LAPSE_OK);
	assert_int_equal(dead_letter_drop(&tx, id, &arena), LAPSE_OK);
	assert_int_equal(dead_letter_drop(&tx, id, &arena), LAPSE_ENOTFOUND);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(mail_state(b, "m"), CLEANUP_DROPPED);
	assert_int_equal(b->world->engine.cleaner.dead, 0);
	assert_int_equal(rows(b, "1"), 0);
	arena_done(&arena);
}

/* Wanting it deleted again brings a dead letter back, and the count follows. */
static void a_dead_letter_wanted_again_is_pending(void **state)
{
	struct bench *b = *state;

	die_mail(b, "m");
	assert_int_equal(b->world->engine.cleaner.dead, 1);
	add(b->world, &MAIL, "m");
	assert_int_equal(b->world->engine.cleaner.dead, 0);
	assert_int_equal(rows(b, "state = 1 AND attempts = 0"), 1);
}

#define BENCH_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BENCH_TEST(done_once_and_gone),
		BENCH_TEST(an_intent_of_a_rolled_back_transaction_is_none),
		BENCH_TEST(what_blocks_is_offloaded),
		BENCH_TEST(without_a_loop_it_is_done_at_once),
		BENCH_TEST(the_same_target_twice_is_one),
		BENCH_TEST(a_failure_is_tried_again_after_a_pause),
		BENCH_TEST(three_failures_are_a_dead_letter),
		BENCH_TEST(the_number_of_attempts_is_a_setting),
		BENCH_TEST(dead_letters_are_counted_after_a_restart),
		BENCH_TEST(a_lease_ends_with_its_process),
		BENCH_TEST(a_start_leaves_pauses_alone),
		BENCH_TEST(a_settlement_that_cannot_be_written_is_repeated),
		BENCH_TEST(a_take_that_cannot_be_written_starts_nothing),
		BENCH_TEST(so_many_at_once),
		BENCH_TEST(a_free_place_is_used_at_once),
		BENCH_TEST(a_clock_that_went_back_is_no_conflict),
		BENCH_TEST(kinds_have_places_of_their_own),
		BENCH_TEST(the_room_hears_of_every_outcome),
		BENCH_TEST(what_sweeps_retry_waits_for_one),
		BENCH_TEST(a_slow_one_runs_once),
		BENCH_TEST(one_whose_outcome_is_not_written_runs_once),
		BENCH_TEST(a_long_reason_stays_text),
		BENCH_TEST(outcomes_are_written_together),
		BENCH_TEST(failures_together_name_every_target),
		BENCH_TEST(the_intent_is_durable_before_the_call),
		BENCH_TEST(its_own_sync_is_not_the_loops),
		BENCH_TEST(a_dead_letter_is_retried_with_all_its_attempts),
		BENCH_TEST(a_dropped_dead_letter_is_gone),
		BENCH_TEST(a_dead_letter_wanted_again_is_pending),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
