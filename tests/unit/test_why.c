/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of engine/why.h: what keeps a row, when it goes, and which events mention it. */
#include "engine/why.h"
#include "unit.h"

#define NEVER LAPSE_NEVER

static void a_row_is_judged_by_its_time_and_what_keeps_it(void **state)
{
	static const struct {
		const char *what;
		struct why_facts facts; /* time, window, op, allowed, referenced, held_until */
		enum why_state expected;
		lapse_ms goes_at;
	} cases[] = {
		{ "later", { NOW, 500, DUE_BEFORE, true, false, 0 }, WHY_LIVE, NOW + 500 },
		{ "at its deadline", { NOW, 0, DUE_BEFORE, true, false, 0 }, WHY_LIVE, NOW },
		{ "due at it", { NOW, 0, DUE_AT, true, false, 0 }, WHY_DUE, NOW },
		{ "past it", { NOW - 2, 1, DUE_BEFORE, true, false, 0 }, WHY_DUE, NOW - 1 },
		{ "no deadline", { NEVER, 0, DUE_AT, true, false, 0 }, WHY_KEPT, NEVER },
		{ "endless window", { 5, NEVER, DUE_AT, true, false, 0 }, WHY_KEPT, NEVER },
		{ "unread", { 1, 1, DUE_BEFORE, false, false, 0 }, WHY_PROTECTED, NEVER },
		{ "unread and held", { 1, 1, DUE_AT, false, false, NEVER }, WHY_PROTECTED, NEVER },
		{ "held", { 1, 1, DUE_AT, true, false, NOW + 9 }, WHY_HELD, NOW + 9 },
		{ "held for less than it lives",
		  { NOW, 20, DUE_AT, true, false, NOW + 9 },
		  WHY_HELD,
		  NOW + 20 },
		{ "held without end", { 1, 1, DUE_AT, true, false, NEVER }, WHY_HELD, NEVER },
		{ "a hold that has ended", { 1, 1, DUE_AT, true, false, NOW }, WHY_DUE, 2 },
		{ "referenced", { 1, 1, DUE_AT, true, true, 0 }, WHY_REFERENCED, NEVER },
		{ "referenced and held", { 1, 1, DUE_AT, true, true, NOW + 1 }, WHY_HELD, NOW + 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		lapse_ms goes_at = -1;
		enum why_state got = why_judge(&cases[i].facts, NOW, &goes_at);
		if (got != cases[i].expected || goes_at != cases[i].goes_at)
			fail_msg("%s: %s, %lld", cases[i].what, why_state_name(got),
				 (long long)goes_at);
	}
}

static void an_event_mentions_what_it_names(void **state)
{
	static const struct {
		const char *data, *quoted;
		bool expected;
	} cases[] = {
		{ "{\"agent_id\":\"bob\"}", "\"bob\"", true },
		{ "{\"agent_id\":\"bobby\"}", "\"bob\"", false },
		{ "{\"agent_id\":\"a \\\"bob\\\" b\"}", "\"bob\"", false },
		{ "{\"messages\":[{\"id\":\"1\",\"to\":\"bob\"}]}", "\"bob\"", true },
		{ "{\"messages\":[{\"id\":\"1\",\"to\":\"bob\"}]}", "\"to\"", false },
		{ "{\"type\":\"text\",\"to\":\"x\"}", "\"text\"", false },
		{ "{\"type\":\"text\",\"to\":\"text\"}", "\"text\"", true },
		{ "{\"table\":\"messages\",\"key\":\"k\"}", "\"messages\"", false },
		{ "{\"names\":[\"a\",\"bob\"]}", "\"bob\"", true },
		{ "{}", "\"\"", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (why_mentions(cases[i].data, cases[i].quoted) != cases[i].expected)
			fail_msg("%s in %s", cases[i].quoted, cases[i].data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_row_is_judged_by_its_time_and_what_keeps_it),
		cmocka_unit_test(an_event_mentions_what_it_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
