/* SPDX-License-Identifier: Apache-2.0 */
/* Schedulers: armed once and again, whatever the last sweep came to; by hand; stopping. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

#define DAY INT64_C(86400000)
#define MINUTE INT64_C(60000)

static struct scheduler *messages(struct world *w)
{
	return schedule_find(&w->engine, "messages");
}

static int64_t history(struct world *w, const char *where)
{
	return side_int(w, "SELECT count(*) FROM sweeps WHERE scheduler = 'messages' AND %s",
			where);
}

static void advance_and_tick(struct world *w, lapse_ms ms)
{
	fake_clock_advance(&w->time, ms);
	tick_until_idle(w);
}

static void the_first_sweep_comes_after_one_interval(void **state)
{
	struct world *w = *state;

	assert_int_equal(schedule_next_us(&w->engine), MINUTE * 1000);
	assert_int_equal(messages(w)->last_ended_at, LAPSE_NEVER);
	fake_clock_advance(&w->time, MINUTE - 1);
	engine_tick(&w->engine);
	assert_int_equal(history(w, "1"), 0);
	assert_int_equal(schedule_next_us(&w->engine), 1000);
	advance_and_tick(w, 1);
	assert_int_equal(history(w, "1"), 1);
	assert_int_equal(messages(w)->last_ended_at, NOW + MINUTE);
}

/* S4: it re-arms itself, a minute after the end of the last one, for ever. */
static void it_re_arms_after_success(void **state)
{
	struct world *w = *state;

	for (int i = 1; i <= 20; i++) {
		int64_t id = send_read_message(w, "o", "a");
		assert_int_equal(schedule_next_us(&w->engine), MINUTE * 1000);
		advance_and_tick(w, MINUTE);
		assert_int_equal(history(w, "error = ''"), i);
		assert_true(message_exists(w, id));
	}
	advance_and_tick(w, 2 * DAY);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages"), 0);
	assert_int_equal(history(w, "pruned = 20"), 1);
	assert_int_equal(messages(w)->errors, 0);
}

static void the_interval_counts_from_the_end(void **state)
{
	struct world *w = *state;

	make_read_messages(w, 2000, NOW - 2 * DAY);
	w->settings.sweep_budget_ms = 1;
	fake_clock_advance(&w->time, MINUTE);
	w->time.mono_step = 5000000; /* every look at the clock is five seconds later */
	while (messages(w)->last_ended_at == LAPSE_NEVER)
		engine_tick(&w->engine);
	w->time.mono_step = 0;
	assert_int_equal(history(w, "pruned = 2000"), 1);
	assert_true(messages(w)->sweep.ended - messages(w)->sweep.started > MINUTE * 1000);
	assert_true(messages(w)->next_at >= messages(w)->sweep.ended + MINUTE * 1000);
	int64_t before = history(w, "1");
	w->time.mono = messages(w)->next_at - 1;
	engine_tick(&w->engine);
	assert_int_equal(history(w, "1"), before);
	w->time.mono++;
	tick_until_idle(w);
	assert_int_equal(history(w, "1"), before + 1);
}

/* While others want the store: a short sweep goes through, a long one has a quarter of it. */
#define BURST_US 10000
static void a_long_sweep_rests_and_a_short_one_does_not(void **state)
{
	struct world *w = *state;
	struct scheduler *s = messages(w);
	lapse_us rested = 0;
	int slices = 0, unrested = 0;

	make_read_messages(w, 3000, NOW - 2 * DAY);
	w->settings.sweep_budget_ms = 1;
	w->engine.crowded = true;
	fake_clock_advance(&w->time, MINUTE);
	lapse_us began = w->time.mono;
	while (s->last_ended_at == LAPSE_NEVER) {
		w->time.mono_step = 200;
		schedule_tick_one(&w->engine, s);
		w->time.mono_step = 0;
		lapse_us rest = s->running ? s->rest_until - w->time.mono : 0;
		if (s->running)
			assert_int_equal(s->rest_until - s->worked_until,
					 s->owed > BURST_US ? 3 * (s->owed - BURST_US) : 0);
		slices++;
		unrested += rested == 0 && rest <= 0;
		rested += rest > 0 ? rest : 0;
		w->time.mono += rest > 0 ? rest : 0;
	}
	assert_true(slices > 10);
	assert_in_range(unrested, 4, 10);                /* of about 1 ms each */
	lapse_us worked = w->time.mono - began - rested; /* with every look at the clock */
	assert_true(rested > worked);
	fake_clock_advance(&w->time, MINUTE - 1); /* paid for: the next one starts afresh */
	make_read_messages(w, 50, NOW - 2 * DAY);
	fake_clock_advance(&w->time, 1);
	w->time.mono_step = 200;
	schedule_tick_one(&w->engine, s);
	w->time.mono_step = 0;
	assert_true(s->owed < BURST_US);
	assert_false(s->rest_until > w->time.mono);
}

/* A failing store for a while costs ticks, not data, and is told when the store is back. */
static void it_re_arms_after_failure(void **state)
{
	struct world *w = *state;

	int64_t due = send_read_message(w, "o", "a");
	fake_clock_advance(&w->time, 2 * DAY);
	store_fails(w);
	for (int i = 1; i <= 3; i++) {
		tick_until_idle(w);
		assert_int_equal(messages(w)->errors, i);
		assert_int_equal(schedule_next_us(&w->engine), MINUTE * 1000);
		fake_clock_advance(&w->time, MINUTE);
	}
	store_is_back(w);
	assert_true(message_exists(w, due));
	tick_until_idle(w);
	assert_false(message_exists(w, due));
	assert_int_equal(messages(w)->errors, 3);
	char *CLEANUP(mem_freep) data = side_text(
		w, "SELECT data FROM events WHERE kind = 'messages.lifecycle_tick_failed'");
	assert_string_equal(data, "{\"scheduler\":\"messages\",\"failures\":3}");
	advance_and_tick(w, MINUTE);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = "
				     "'messages.lifecycle_tick_failed'"),
			 1);
	assert_int_equal(history(w, "error <> ''"), 0); /* nobody could write them down */
	assert_int_equal(history(w, "error = ''"), 2);
	world_check_counters(w);
}

static void a_failure_is_logged_and_counted(void **state)
{
	struct world *w = *state;
	struct buf CLEANUP(buf_done) metrics = { 0 };

	store_fails(w);
	advance_and_tick(w, MINUTE);
	store_is_back(w);
	char *CLEANUP(mem_freep) log = world_log(w);
	assert_non_null(
		strstr(log, "\"level\":\"error\",\"event\":\"messages.lifecycle_tick_failed\""));
	assert_non_null(strstr(log, "housekeeping.lifecycle_tick_failed"));
	assert_non_null(strstr(log, "\"next_try_ms\":60000"));
	engine_write_metrics(&w->engine, &metrics);
	assert_non_null(strstr(buf_text(&metrics),
			       "lifecycle_tick_errors_total{scheduler=\"messages\"} 1\n"));
}

/* The sweep itself fails while the store can be written: the history has it at once. */
static void a_failure_is_in_the_history(void **state)
{
	struct world *w = *state;

	send_read_message(w, "o", "a");
	side_run(w,
		 "CREATE TRIGGER t BEFORE DELETE ON messages BEGIN SELECT RAISE(FAIL, 'no'); END");
	advance_and_tick(w, 2 * DAY);
	assert_int_equal(history(w, "error = 'conflict' AND pruned = 0"), 1);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = "
				     "'messages.lifecycle_tick_failed'"),
			 1);
	assert_int_equal(messages(w)->errors, 1);
	assert_int_equal(messages(w)->last_ended_at, LAPSE_NEVER);
	side_run(w, "DROP TRIGGER t");
	advance_and_tick(w, MINUTE);
	assert_int_equal(history(w, "error = '' AND pruned = 1"), 1);
	world_check_counters(w);
}

static void one_scheduler_failing_does_not_stop_the_other(void **state)
{
	struct world *w = *state;

	send_read_message(w, "o", "a");
	side_run(w,
		 "CREATE TRIGGER t BEFORE DELETE ON messages BEGIN SELECT RAISE(FAIL, 'no'); END");
	advance_and_tick(w, 2 * DAY);
	assert_int_equal(messages(w)->errors, 1);
	assert_int_equal(schedule_find(&w->engine, "housekeeping")->errors, 0);
	assert_int_equal(
		side_int(w, "SELECT count(*) FROM sweeps WHERE scheduler = 'housekeeping'"), 1);
}

static void the_last_sweep_is_remembered(void **state)
{
	struct world *w = *state;

	advance_and_tick(w, MINUTE);
	world_reopen(w);
	assert_int_equal(messages(w)->last_ended_at, NOW + MINUTE);
	assert_int_equal(schedule_next_us(&w->engine), MINUTE * 1000);
}

static void a_scheduler_that_stands_still_is_stalled(void **state)
{
	struct world *w = *state;

	fake_clock_advance(&w->time, 5 * MINUTE);
	assert_false(schedule_is_stalled(&w->engine, messages(w)));
	fake_clock_advance(&w->time, 1);
	assert_true(schedule_is_stalled(&w->engine, messages(w)));
	store_fails(w);
	tick_until_idle(w); /* failing is not finishing */
	store_is_back(w);
	assert_true(schedule_is_stalled(&w->engine, messages(w)));
	advance_and_tick(w, MINUTE);
	assert_false(schedule_is_stalled(&w->engine, messages(w)));
	w->settings.message_sweep_ms = 10; /* short intervals get ten seconds */
	fake_clock_advance(&w->time, 10000);
	assert_false(schedule_is_stalled(&w->engine, messages(w)));
	fake_clock_advance(&w->time, 1);
	assert_true(schedule_is_stalled(&w->engine, messages(w)));
}

/* By hand */

struct asker {
	struct sweep_request request;
	int calls, err;
	int64_t total;
};

static void note_done(struct sweep_request *r, int err, const struct sweep *result)
{
	struct asker *a = CONTAINER_OF(r, struct asker, request);

	a->calls++;
	a->err = err;
	a->total = result->total;
}

static int ask(struct world *w, struct asker *a, bool dry_run)
{
	*a = (struct asker){ .request = { .dry_run = dry_run, .done = note_done } };
	return schedule_request(&w->engine, messages(w), &a->request);
}

static void a_sweep_by_hand_runs_at_once(void **state)
{
	struct world *w = *state;
	struct asker dry, real;

	make_read_messages(w, 500, NOW - 2 * DAY);
	assert_int_equal(ask(w, &dry, true), LAPSE_OK);
	assert_int_equal(ask(w, &real, false), LAPSE_OK);
	assert_int_equal(engine_next_us(&w->engine), 0);
	char *CLEANUP(mem_freep) before = world_dump(w, "sweeps counts meta");
	while (!dry.calls)
		engine_tick(&w->engine);
	char *CLEANUP(mem_freep) after = world_dump(w, "sweeps counts meta");
	assert_string_equal(before, after); /* but for its line in the history */
	tick_until_idle(w);
	assert_int_equal(dry.calls + real.calls, 2);
	assert_int_equal(dry.total, 500);
	assert_int_equal(real.total, 500);
	assert_int_equal(history(w, "dry_run = 1 AND pruned = 500"), 1);
	assert_int_equal(history(w, "dry_run = 0 AND pruned = 500"), 1);
	assert_int_equal(messages(w)->last_ended_at, NOW);
	world_check_counters(w);
}

static void a_dry_run_is_no_sweep(void **state)
{
	struct world *w = *state;
	struct asker dry;

	assert_int_equal(ask(w, &dry, true), LAPSE_OK);
	tick_until_idle(w);
	assert_int_equal(messages(w)->last_ended_at, LAPSE_NEVER);
	world_reopen(w);
	assert_int_equal(messages(w)->last_ended_at, LAPSE_NEVER);
}

/* Somebody who looks every half minute must not keep the periodic sweep from running. */
static void dry_runs_do_not_put_off_the_periodic_sweep(void **state)
{
	struct world *w = *state;
	struct asker dry;

	for (int i = 0; i < 20; i++) {
		fake_clock_advance(&w->time, MINUTE / 2);
		assert_int_equal(ask(w, &dry, true), LAPSE_OK);
		tick_until_idle(w);
	}
	assert_true(history(w, "dry_run = 0") >= 9);
}

static void an_asker_learns_of_failure(void **state)
{
	struct world *w = *state;
	struct asker a;

	store_fails(w);
	assert_int_equal(ask(w, &a, false), LAPSE_OK);
	engine_tick(&w->engine);
	store_is_back(w);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.err, LAPSE_ERETRY);
	assert_int_equal(a.total, 0);
}

static void the_queue_has_a_limit(void **state)
{
	struct world *w = *state;
	struct asker askers[SWEEP_REQUESTS_MAX], one_more;

	for (int i = 0; i < SWEEP_REQUESTS_MAX; i++)
		assert_int_equal(ask(w, &askers[i], i % 2), LAPSE_OK);
	assert_int_equal(ask(w, &one_more, false), LAPSE_ELIMIT);
	tick_until_idle(w);
	for (int i = 0; i < SWEEP_REQUESTS_MAX; i++)
		assert_int_equal(askers[i].calls, 1);
	assert_int_equal(one_more.calls, 0);
	assert_int_equal(ask(w, &one_more, false), LAPSE_OK);
	tick_until_idle(w);
	assert_int_equal(one_more.calls, 1);
}

static void stopping_answers_all_who_wait(void **state)
{
	struct world *w = *state;
	struct asker askers[3];

	make_read_messages(w, 1000, NOW - 2 * DAY);
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 2000;
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask(w, &askers[i], false), LAPSE_OK);
	engine_tick(&w->engine); /* the first is under way */
	assert_true(messages(w)->running);
	engine_stop(&w->engine);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(askers[i].calls, 1);
		assert_int_equal(askers[i].err, LAPSE_EUNAVAILABLE);
	}
	assert_false(messages(w)->running);
	world_reopen(w);
	world_check_counters(w); /* the slice that was done stands */
	assert_in_range(w->engine.matrix.bounds[0]->live, 1, 999);
}

/* Foreground work gets its turn: a tick is one slice of a scheduler. */
static void a_tick_is_a_slice(void **state)
{
	struct world *w = *state;

	make_read_messages(w, 1000, NOW - 2 * DAY);
	w->settings.sweep_budget_ms = 1;
	fake_clock_advance(&w->time, MINUTE);
	w->time.mono_step = 2000;
	int64_t left = 1000;
	while (left > 0) {
		engine_tick(&w->engine);
		int64_t now = side_int(w, "SELECT count(*) FROM messages WHERE owner LIKE 'o_'");
		assert_in_range(left - now, 1, 200);
		left = now;
		send_message(w, "x", "foreground");
	}
	world_check_counters(w);
}

static void unknown_schedulers_are_not_found(void **state)
{
	struct world *w = *state;

	assert_null(schedule_find(&w->engine, "nothing"));
	assert_null(schedule_find(&w->engine, ""));
	assert_non_null(schedule_find(&w->engine, "housekeeping"));
}

/* All schedulers have the interval of the one that is looked at. */
static int setup(void **state)
{
	world_setup(state);
	((struct world *)*state)->settings.agent_sweep_ms = MINUTE;
	world_reopen(*state);
	return 0;
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(the_first_sweep_comes_after_one_interval),
		WORLD_TEST(it_re_arms_after_success),
		WORLD_TEST(the_interval_counts_from_the_end),
		WORLD_TEST(a_long_sweep_rests_and_a_short_one_does_not),
		WORLD_TEST(it_re_arms_after_failure),
		WORLD_TEST(a_failure_is_logged_and_counted),
		WORLD_TEST(a_failure_is_in_the_history),
		WORLD_TEST(one_scheduler_failing_does_not_stop_the_other),
		WORLD_TEST(the_last_sweep_is_remembered),
		WORLD_TEST(a_scheduler_that_stands_still_is_stalled),
		WORLD_TEST(a_sweep_by_hand_runs_at_once),
		WORLD_TEST(a_dry_run_is_no_sweep),
		WORLD_TEST(dry_runs_do_not_put_off_the_periodic_sweep),
		WORLD_TEST(an_asker_learns_of_failure),
		WORLD_TEST(the_queue_has_a_limit),
		WORLD_TEST(stopping_answers_all_who_wait),
		WORLD_TEST(a_tick_is_a_slice),
		WORLD_TEST(unknown_schedulers_are_not_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
