/* SPDX-License-Identifier: Apache-2.0 */
/* The pure rules of presence: the threshold to the millisecond, and the breaker's whole table. */
#include "presence/rules.h"
#include "unit.h"

#define THRESHOLD INT64_C(90000)
#define CHECK INT64_C(30000)

/* Seed 001: 91 s goes, 89 s stays; exactly the threshold stays. */
static void the_threshold_is_exact(void **state)
{
	static const struct {
		lapse_ms silent;
		bool due;
	} rows[] = {
		{ 0, false },      { 89000, false }, { 89999, false },
		{ 90000, false },  { 90001, true },  { 91000, true },
		{ 1000000, true }, { -5000, false }, { INT64_MAX, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		lapse_ms now = rows[i].silent == INT64_MAX ? INT64_MAX : NOW + rows[i].silent;
		lapse_ms base = rows[i].silent == INT64_MAX ? 0 : NOW;
		assert_int_equal(presence_is_due(base, THRESHOLD, now), rows[i].due);
	}
}

static void the_deadline_is_the_first_due_moment(void **state)
{
	lapse_ms at = presence_deadline(NOW, THRESHOLD);

	(void)state;
	assert_int_equal(at, NOW + 90001);
	assert_true(presence_is_due(NOW, THRESHOLD, at));
	assert_false(presence_is_due(NOW, THRESHOLD, at - 1));
	assert_int_equal(presence_deadline(INT64_MAX - 5, THRESHOLD), LAPSE_NEVER);
}

static void silence_counts_one_check_earlier(void **state)
{
	(void)state;
	assert_int_equal(presence_silent_after(THRESHOLD, CHECK), 60000);
	assert_int_equal(presence_silent_after(THRESHOLD, 0), 90000);
	/* A check longer than half the threshold would make every agent silent at once. */
	assert_int_equal(presence_silent_after(THRESHOLD, 45000), 45000);
	assert_int_equal(presence_silent_after(THRESHOLD, 86400000), 45000);
	assert_int_equal(presence_silent_after(1, 1), 1);
}

static const struct breaker_rule RULE = { .percent = 50, .least = 100 };

static enum breaker_step judge_closed(const struct breaker_rule *rule, uint32_t tracked,
				      uint32_t silent)
{
	const struct breaker_view v = { LAPSE_NEVER, tracked, silent };

	return breaker_judge(rule, &v, THRESHOLD, NOW);
}

static void the_breaker_trips_for_more_than_half_and_at_least_a_hundred(void **state)
{
	static const struct {
		uint32_t tracked, silent;
		bool trips;
	} rows[] = {
		{ 0, 0, false },     { 1, 1, false },       { 10, 10, false },
		{ 99, 99, false },   { 100, 100, true },    { 100, 99, false },
		{ 199, 100, true },  { 200, 100, false },   { 200, 101, true },
		{ 201, 100, false }, { 201, 101, true },    { 1000, 500, false },
		{ 1000, 501, true }, { 1000000, 1, false }, { 100000000, 50000001, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(judge_closed(&RULE, rows[i].tracked, rows[i].silent),
				 rows[i].trips ? BREAKER_TRIPS : BREAKER_STAYS_CLOSED);
}

static void its_numbers_are_settings(void **state)
{
	const struct breaker_rule off = { 0, 100 }, one = { 50, 1 }, most = { 99, 10 },
				  few = { 1, 1 };

	(void)state;
	assert_int_equal(judge_closed(&off, 1000, 1000), BREAKER_STAYS_CLOSED);
	assert_int_equal(judge_closed(&one, 1, 1), BREAKER_TRIPS);
	assert_int_equal(judge_closed(&one, 2, 1), BREAKER_STAYS_CLOSED);
	assert_int_equal(judge_closed(&most, 100, 99), BREAKER_STAYS_CLOSED);
	assert_int_equal(judge_closed(&most, 100, 100), BREAKER_TRIPS);
	assert_int_equal(judge_closed(&few, 100, 1), BREAKER_STAYS_CLOSED);
	assert_int_equal(judge_closed(&few, 100, 2), BREAKER_TRIPS);
}

static void the_breaker_closes_by_itself(void **state)
{
	struct breaker_view v = { .opened_at = NOW, .tracked = 1000, .silent = 0 };

	(void)state;
	assert_int_equal(breaker_judge(&RULE, &v, THRESHOLD, NOW), BREAKER_STAYS_OPEN);
	assert_int_equal(breaker_judge(&RULE, &v, THRESHOLD, NOW + 90000), BREAKER_STAYS_OPEN);
	assert_int_equal(breaker_judge(&RULE, &v, THRESHOLD, NOW + 90001), BREAKER_RELEASES);
	v.silent = 1000; /* other silent agents do not keep it open */
	assert_int_equal(breaker_judge(&RULE, &v, THRESHOLD, NOW + 90001), BREAKER_RELEASES);
}

static void one_agent_by_one(void **state)
{
	static const struct {
		lapse_ms silent;
		bool overdue, open;
		enum agent_fate fate;
	} rows[] = {
		{ 90000, false, false, AGENT_STAYS },   { 90000, true, true, AGENT_STAYS },
		{ 90001, false, false, AGENT_EVICTED }, { 90001, true, false, AGENT_EVICTED },
		{ 90001, true, true, AGENT_EVICTED },   { 90001, false, true, AGENT_SUSPECTED },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(agent_judge(NOW, rows[i].overdue, rows[i].open, THRESHOLD,
					     NOW + rows[i].silent),
				 rows[i].fate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_threshold_is_exact),
		cmocka_unit_test(the_deadline_is_the_first_due_moment),
		cmocka_unit_test(silence_counts_one_check_earlier),
		cmocka_unit_test(the_breaker_trips_for_more_than_half_and_at_least_a_hundred),
		cmocka_unit_test(its_numbers_are_settings),
		cmocka_unit_test(the_breaker_closes_by_itself),
		cmocka_unit_test(one_agent_by_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
