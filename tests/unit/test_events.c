/* SPDX-License-Identifier: Apache-2.0 */
/* Events: written with what they tell of, in an order that a reader can resume from. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static int add(struct tx *tx, const char *owner, enum event_kind kind, const char *json)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	buf_puts(&data, json);
	return event_add(tx, owner, kind, &data);
}

static void every_kind_has_a_name(void **state)
{
	static const char *const names[] = { "",
#define X(name, text) text,
					     EVENTS(X)
#undef X
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_string_equal(event_name((enum event_kind)i), names[i]);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(names[i], names[k]);
	}
	assert_string_equal(event_name(EVENT_MESSAGES_TICK_FAILED),
			    "messages.lifecycle_tick_failed");
}

static void an_event_comes_with_its_transaction(void **state)
{
	struct world *w = *state;
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(add(&tx, "o", EVENT_HOLD_PLACED, "{\"n\":1}"), LAPSE_OK);
	tx_rollback(&tx);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events"), 0);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(add(&tx, "o", EVENT_HOLD_PLACED, "{\"n\":1}"), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	char *CLEANUP(mem_freep) row =
		side_text(w, "SELECT at || '|' || owner || '|' || kind || '|' || data FROM events");
	assert_string_equal(row, "1800000000000|o|hold.placed|{\"n\":1}");
	world_check_counters(w);
}

/* However many: all of them, in their order, each with its own owner. */
static void many_are_written_like_one(void **state)
{
	static const size_t counts[] = { 0, 1, 15, 16, 17, 32, 50 };
	struct world *w = *state;
	struct event_fact facts[50];
	char data[50][32], owners[50][32];

	for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
		struct tx tx;
		for (size_t i = 0; i < counts[c]; i++) {
			snprintf(data[i], sizeof(data[i]), "{\"n\":%zu}", i);
			snprintf(owners[i], sizeof(owners[i]), "o%zu", i % 3);
			facts[i] = (struct event_fact){ owners[i], data[i] };
		}
		side_run(w, "DELETE FROM events; UPDATE counts SET live = 0 WHERE tbl = 'events'");
		world_reopen(w);
		assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
		assert_int_equal(events_add(&tx, EVENT_HOLD_PLACED, facts, counts[c]), LAPSE_OK);
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
		assert_int_equal(side_int(w, "SELECT count(*) FROM (SELECT *, row_number() OVER "
					     "(ORDER BY seq) - 1 AS n FROM events) WHERE data = "
					     "'{\"n\":' || n || '}' AND owner = 'o' || (n %% 3) "
					     "AND at = 1800000000000 AND kind = 'hold.placed'"),
				 (int64_t)counts[c]);
		assert_int_equal(side_int(w, "SELECT count(*) FROM events"), (int64_t)counts[c]);
		world_check_counters(w);
	}
}

/* The sequence grows even when the clock does not, or goes back, or the engine is reopened. */
static void the_sequence_only_grows(void **state)
{
	static const lapse_ms steps[] = { 0, 0, 5, -3600000, 0, 1, 3600000, -1, 86400000 };
	struct world *w = *state;
	int64_t last = 0;

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct tx tx;
		w->time.wall += steps[i];
		if (i % 2)
			world_reopen(w);
		assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
		for (int k = 0; k < 3; k++)
			assert_int_equal(add(&tx, "o", EVENT_HOLD_PLACED, "{}"), LAPSE_OK);
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
		assert_int_equal(
			side_int(w, "SELECT count(*) FROM events WHERE seq > %" PRId64, last), 3);
		last = side_int(w, "SELECT max(seq) FROM events");
	}
	world_check_counters(w);
}

/* Events of a clock that was ahead for a while do not stay for ever. */
static void a_clock_that_was_ahead_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct sweep sweep;
	struct tx tx;

	world_close(w);
	w->time.wall = NOW + 3600000;
	world_open(w);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(add(&tx, "o", EVENT_HOLD_PLACED, "{}"), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	world_close(w);
	w->time.wall = NOW;
	world_open(w);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(add(&tx, "o", EVENT_HOLD_PLACED, "{}"), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	fake_clock_to(&w->time, NOW + 2 * 86400000);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events"), 0);
	world_check_counters(w);
}

static void a_sweep_of_events_makes_none(void **state)
{
	struct world *w = *state;
	struct sweep sweep;
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	for (int i = 0; i < 500; i++)
		assert_int_equal(add(&tx, "o", EVENT_HOLD_PLACED, "{}"), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	fake_clock_advance(&w->time, 86400000);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(sweep.total, 0);
	fake_clock_advance(&w->time, 1);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(sweep.total, 500);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events"), 0);
	world_check_counters(w);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_has_a_name),
		WORLD_TEST(an_event_comes_with_its_transaction),
		WORLD_TEST(many_are_written_like_one),
		WORLD_TEST(the_sequence_only_grows),
		WORLD_TEST(a_clock_that_was_ahead_leaves_nothing),
		WORLD_TEST(a_sweep_of_events_makes_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
