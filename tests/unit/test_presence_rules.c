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
	/* A check longer than half the threshold would make everybody silent at once. */
	assert_int_equal(presence_silent_after(THRESHOLD, 45000), 45000);
	assert_int_equal(presence_silent_after(THRESHOLD, 86400000), 45000);
	assert_int_equal(presence_silent_after(1, 1), 1);
}

static void the_breaker_trips_for_more_than_half_and_at_least_ten(void **state)
{
	static const struct {
		uint32_t tracked, silent;
		bool trips;
	} rows[] = {
		{ 0, 0, false },   { 1, 1, false },       { 9, 9, false },
		{ 10, 10, true },  { 19, 10, true },      { 20, 10, false },
		{ 20, 11, true },  { 100, 50, false },    { 100, 51, true },
		{ 100, 90, true }, { 100, 10, false },    { 101, 50, false },
		{ 101, 51, true }, { 1000000, 1, false }, { 1000000, 500001, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct breaker_view v = { LAPSE_NEVER, rows[i].tracked, rows[i].silent, 0 };
		assert_int_equal(breaker_judge(&v, THRESHOLD, NOW),
				 rows[i].trips ? BREAKER_TRIPS : BREAKER_STAYS_CLOSED);
	}
}

static void the_breaker_closes_by_itself(void **state)
{
	struct breaker_view v = { .opened_at = NOW, .tracked = 100, .silent = 0, .suspects = 90 };

	(void)state;
	assert_int_equal(breaker_judge(&v, THRESHOLD, NOW), BREAKER_STAYS_OPEN);
	assert_int_equal(breaker_judge(&v, THRESHOLD, NOW + 90000), BREAKER_STAYS_OPEN);
	assert_int_equal(breaker_judge(&v, THRESHOLD, NOW + 90001), BREAKER_RELEASES);
	v.silent = 100; /* whoever else is silent does not keep it open */
	assert_int_equal(breaker_judge(&v, THRESHOLD, NOW + 90001), BREAKER_RELEASES);
	v.suspects = 0; /* all came back */
	assert_int_equal(breaker_judge(&v, THRESHOLD, NOW + 1), BREAKER_RELEASES);
}

static void one_agent_by_one(void **state)
{
	static const struct {
		lapse_ms silent;
		bool suspect, open;
		enum agent_fate fate;
	} rows[] = {
		{ 90000, false, false, AGENT_STAYS },   { 90000, true, true, AGENT_STAYS },
		{ 90001, false, false, AGENT_EVICTED }, { 90001, true, false, AGENT_EVICTED },
		{ 90001, true, true, AGENT_EVICTED },   { 90001, false, true, AGENT_SUSPECTED },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(agent_judge(NOW, rows[i].suspect, rows[i].open, THRESHOLD,
					     NOW + rows[i].silent),
				 rows[i].fate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_threshold_is_exact),
		cmocka_unit_test(the_deadline_is_the_first_due_moment),
		cmocka_unit_test(silence_counts_one_check_earlier),
		cmocka_unit_test(the_breaker_trips_for_more_than_half_and_at_least_ten),
		cmocka_unit_test(the_breaker_closes_by_itself),
		cmocka_unit_test(one_agent_by_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
