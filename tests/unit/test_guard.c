/* SPDX-License-Identifier: Apache-2.0 */
/* Trusted time: it follows the wall clock, never goes back, and does not believe in leaps. */
#include "engine/guard.h"
#include "unit.h"

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

struct desk {
	struct fake_clock time;
	struct settings settings;
	struct guard guard;
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	fake_clock_init(&d->time);
	settings_init(&d->settings);
	guard_init(&d->guard, &d->time.clock, &d->settings);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	settings_done(&d->settings);
	free(d);
	return 0;
}

static void it_follows_the_clock(void **state)
{
	struct desk *d = *state;

	assert_int_equal(guard_now(&d->guard), NOW);
	for (int i = 0; i < 1000; i++) {
		fake_clock_advance(&d->time, i);
		assert_int_equal(guard_now(&d->guard), d->time.wall);
	}
	fake_clock_advance(&d->time, 1000 * DAY); /* nobody looked for years */
	assert_int_equal(guard_now(&d->guard), d->time.wall);
	assert_false(d->guard.jumped);
	assert_int_equal(clock_wall(&d->guard.clock), d->time.wall);
	assert_int_equal(clock_mono(&d->guard.clock), d->time.mono);
}

static void a_leap_is_more_than_a_minute(void **state)
{
	static const struct {
		lapse_ms step;
		bool jumped;
		lapse_ms want; /* after NOW */
	} cases[] = {
		{ -DAY, false, 0 },        { -1, false, 0 },
		{ 0, false, 0 },           { 1, false, 1 },
		{ MINUTE, false, MINUTE }, { MINUTE + 1, true, 0 },
		{ 365 * DAY, true, 0 },    { INT64_MAX - NOW, true, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct desk *d = *state;
		fake_clock_init(&d->time);
		guard_init(&d->guard, &d->time.clock, &d->settings);
		d->time.wall += cases[i].step;
		lapse_ms now = guard_now(&d->guard);
		if (now != NOW + cases[i].want || d->guard.jumped != cases[i].jumped)
			fail_msg("case %zu: %lld", i, (long long)(now - NOW));
		assert_int_equal(d->guard.jumps, cases[i].jumped);
	}
}

static void it_never_goes_back(void **state)
{
	struct desk *d = *state;

	d->time.wall -= HOUR;
	for (int i = 0; i < 100; i++) {
		assert_int_equal(guard_now(&d->guard), NOW + i * SECOND); /* its own pace */
		fake_clock_advance(&d->time, SECOND);
	}
	d->time.wall += HOUR;
	assert_int_equal(guard_now(&d->guard), d->time.wall);
	assert_false(d->guard.jumped);
}

/* Fractions of a millisecond between two looks are not lost. */
static void its_own_pace_is_exact(void **state)
{
	struct desk *d = *state;

	d->time.wall -= HOUR;
	for (int i = 0; i < 10000; i++) {
		d->time.mono += 300;
		guard_now(&d->guard);
	}
	assert_int_equal(guard_now(&d->guard), NOW + 3000);
}

static void a_leap_ends_when_the_clock_comes_back(void **state)
{
	struct desk *d = *state;

	d->time.wall += DAY;
	for (int i = 0; i < 100; i++) {
		assert_int_equal(guard_now(&d->guard), NOW + i * MINUTE);
		assert_true(d->guard.jumped);
		fake_clock_advance(&d->time, MINUTE);
	}
	d->time.wall -= DAY;
	assert_int_equal(guard_now(&d->guard), NOW + 100 * MINUTE);
	assert_false(d->guard.jumped);
	assert_int_equal(d->guard.jumps, 1);
	assert_int_equal(d->guard.accepts, 0);
}

static void a_leap_can_be_accepted(void **state)
{
	struct desk *d = *state;

	assert_false(guard_accept(&d->guard));
	d->time.wall += 30 * DAY;
	assert_true(guard_accept(&d->guard));
	assert_int_equal(guard_now(&d->guard), NOW + 30 * DAY);
	assert_false(d->guard.jumped);
	assert_false(guard_accept(&d->guard));
	fake_clock_advance(&d->time, SECOND);
	assert_int_equal(guard_now(&d->guard), NOW + 30 * DAY + SECOND);
	assert_int_equal(d->guard.accepts, 1);
}

/* Up to an hour a steady leap is believed after a quarter of an hour; a larger one never. */
static void a_small_steady_leap_proves_itself(void **state)
{
	static const struct {
		lapse_ms leap, wait;
		bool accepted;
	} cases[] = {
		{ 2 * MINUTE, 15 * MINUTE - 1, false },
		{ 2 * MINUTE, 15 * MINUTE, true },
		{ HOUR, 15 * MINUTE, true },
		{ HOUR + 1, 15 * MINUTE, false },
		{ HOUR + 1, 300 * DAY, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct desk *d = *state;
		fake_clock_init(&d->time);
		guard_init(&d->guard, &d->time.clock, &d->settings);
		d->time.wall += cases[i].leap;
		guard_now(&d->guard);
		fake_clock_advance(&d->time, cases[i].wait);
		lapse_ms now = guard_now(&d->guard);
		if (now != NOW + cases[i].wait + (cases[i].accepted ? cases[i].leap : 0))
			fail_msg("case %zu", i);
		assert_int_equal(d->guard.accepts, cases[i].accepted);
	}
}

static void a_leap_that_changes_starts_anew(void **state)
{
	struct desk *d = *state;

	d->time.wall += 10 * MINUTE;
	guard_now(&d->guard);
	fake_clock_advance(&d->time, 14 * MINUTE);
	d->time.wall += 10 * MINUTE;
	guard_now(&d->guard);
	fake_clock_advance(&d->time, 14 * MINUTE);
	assert_int_equal(guard_now(&d->guard), NOW + 28 * MINUTE);
	fake_clock_advance(&d->time, MINUTE);
	assert_int_equal(guard_now(&d->guard), NOW + 49 * MINUTE);
}

static void the_high_water_mark_raises_it(void **state)
{
	struct desk *d = *state;

	guard_raise(&d->guard, NOW - 5);
	assert_int_equal(guard_now(&d->guard), NOW);
	guard_raise(&d->guard, NOW + 5);
	assert_int_equal(guard_now(&d->guard), NOW + 5);
	fake_clock_advance(&d->time, 10);
	assert_int_equal(guard_now(&d->guard),
			 NOW + 15); /* at its own pace until it is caught up */
}

static void judges_the_grace(void **state)
{
	static const struct {
		lapse_ms restored_at, window, now;
		bool grace;
	} cases[] = {
		{ 0, DAY, NOW, false },
		{ NOW, DAY, NOW, true },
		{ NOW, DAY, NOW - 5, true }, /* a clock that went back */
		{ NOW, DAY, NOW + DAY - 1, true },
		{ NOW, DAY, NOW + DAY, false },
		{ NOW, DAY, NOW + DAY + 1, false },
		{ NOW, 1, NOW, true },
		{ NOW, 1, NOW + 1, false },
		{ NOW, 0, NOW + DAY - 1, true }, /* rows with a deadline of their own: a day */
		{ NOW, 0, NOW + DAY, false },
		{ NOW, INT64_MAX, INT64_MAX - 1, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (guard_in_grace(cases[i].restored_at, cases[i].window, cases[i].now) !=
		    cases[i].grace)
			fail_msg("case %zu", i);
}

/* Through the engine: a leap expires nothing, by no path, and says so; accepting it does. */
static void a_leap_removes_nothing(void **state)
{
	struct world *w = *state;

	int64_t id = send_read_message(w, "o", "a");
	w->time.wall += 30 * DAY;
	w->time.mono += 2 * MINUTE * 1000;
	tick_until_idle(w);
	assert_true(message_exists(w, id));
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'clock.jumped'"), 1);
	assert_true(guard_accept(&w->engine.guard));
	fake_clock_advance(&w->time, 2 * MINUTE);
	tick_until_idle(w);
	assert_false(message_exists(w, id));
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'clock.accepted'"),
			 1);
	world_check_counters(w);
}

static void downtime_is_no_leap(void **state)
{
	struct world *w = *state;

	int64_t id = send_read_message(w, "o", "a");
	world_close(w);
	fake_clock_advance(&w->time, 30 * DAY);
	world_open(w);
	fake_clock_advance(&w->time, 2 * MINUTE);
	tick_until_idle(w);
	assert_false(message_exists(w, id));
	assert_false(w->engine.guard.jumped);
}

static void trusted_time_survives_a_restart(void **state)
{
	struct world *w = *state;
	struct tx tx;

	fake_clock_advance(&w->time, DAY);
	tick_until_idle(w);
	world_close(w);
	w->time.wall -= DAY; /* the clock was set back meanwhile */
	world_open(w);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(tx.now, NOW + DAY);
	tx_rollback(&tx);
}

/* With an engine */

static void put_off(void *ctx, struct offload *o)
{
	*(struct offload **)ctx = o;
}

/* The mark is committed on the loop and synced on a worker; nobody spins meanwhile. */
static void the_loop_does_not_wait_for_the_disk(void **state)
{
	struct world *w = *state;
	struct engine *e = &w->engine;
	struct offload *job = NULL;

	tick_until_idle(w);
	e->offloader = (struct offloader){ put_off, &job };
	fake_clock_advance(&w->time, MINUTE + SECOND);
	guard_tick(e);
	assert_non_null(job);
	assert_int_equal(side_int(w, "SELECT value FROM meta WHERE key = 'clock_high_water'"),
			 w->time.wall);
	assert_false(store_is_durable(e->store, e->guard.stored));
	assert_true(guard_next_us(e) > 0);
	struct offload *first = job;
	guard_tick(e);
	assert_ptr_equal(job, first); /* one at a time */
	offload_work(job);
	offload_end(job);
	assert_true(store_is_durable(e->store, e->guard.stored));
	assert_true(guard_next_us(e) > 0);
}

/* A leap is told once, in an event, and again only when there is another. */
static void a_leap_is_written_down_once(void **state)
{
	struct world *w = *state;

	tick_until_idle(w);
	w->time.wall += DAY;
	for (int i = 0; i < 5; i++) {
		tick_until_idle(w);
		fake_clock_advance(&w->time, SECOND);
	}
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'clock.jumped'"), 1);
	assert_true(guard_accept(&w->engine.guard));
	assert_int_equal(guard_next_us(&w->engine), 0);
	tick_until_idle(w);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'clock.accepted'"),
			 1);
}

#define DESK_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		DESK_TEST(it_follows_the_clock),
		DESK_TEST(a_leap_is_more_than_a_minute),
		DESK_TEST(it_never_goes_back),
		DESK_TEST(its_own_pace_is_exact),
		DESK_TEST(a_leap_ends_when_the_clock_comes_back),
		DESK_TEST(a_leap_can_be_accepted),
		DESK_TEST(a_small_steady_leap_proves_itself),
		DESK_TEST(a_leap_that_changes_starts_anew),
		DESK_TEST(the_high_water_mark_raises_it),
		cmocka_unit_test(judges_the_grace),
		WORLD_TEST(a_leap_removes_nothing),
		WORLD_TEST(downtime_is_no_leap),
		WORLD_TEST(trusted_time_survives_a_restart),
		WORLD_TEST(the_loop_does_not_wait_for_the_disk),
		WORLD_TEST(a_leap_is_written_down_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
