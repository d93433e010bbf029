/* SPDX-License-Identifier: Apache-2.0 */
/* The whole decision table of seed 000, with its boundary: 24 h exactly stays, one ms more goes. */
#include "message/rules.h"
#include "unit.h"

#define HOUR INT64_C(3600000)
#define TTL (24 * HOUR)

static void judges_by_read_and_age(void **state)
{
	static const struct {
		const char *name;
		bool read;
		lapse_ms timestamp, ttl, now;
		enum message_verdict want;
	} cases[] = {
		{ "S1: read, 25 h", true, NOW - 25 * HOUR, TTL, NOW, MESSAGE_DUE },
		{ "S2: unread, 48 h", false, NOW - 48 * HOUR, TTL, NOW, MESSAGE_LIVE },
		{ "S3: read, 1 h", true, NOW - HOUR, TTL, NOW, MESSAGE_LIVE },
		{ "one ms less", true, NOW - TTL + 1, TTL, NOW, MESSAGE_LIVE },
		{ "24 h exactly", true, NOW - TTL, TTL, NOW, MESSAGE_LIVE },
		{ "one ms more", true, NOW - TTL - 1, TTL, NOW, MESSAGE_DUE },
		{ "unread, one ms more", false, NOW - TTL - 1, TTL, NOW, MESSAGE_LIVE },
		{ "now", true, NOW, TTL, NOW, MESSAGE_LIVE },
		{ "the future", true, NOW + HOUR, TTL, NOW, MESSAGE_LIVE },
		{ "the far future", true, INT64_MAX, TTL, NOW, MESSAGE_LIVE },
		{ "the farthest past, read", true, INT64_MIN, TTL, NOW, MESSAGE_DUE },
		{ "the farthest past, unread", false, INT64_MIN, TTL, NOW, MESSAGE_LIVE },
		{ "the end of time", true, 0, TTL, INT64_MAX, MESSAGE_DUE },
		{ "age saturates below", true, INT64_MAX, TTL, INT64_MIN, MESSAGE_LIVE },
		{ "age saturates above", true, INT64_MIN, INT64_MAX - 1, INT64_MAX, MESSAGE_DUE },
		{ "an endless ttl", true, INT64_MIN, INT64_MAX, INT64_MAX, MESSAGE_LIVE },
		{ "the shortest ttl, at it", true, NOW - 1, 1, NOW, MESSAGE_LIVE },
		{ "the shortest ttl, past it", true, NOW - 2, 1, NOW, MESSAGE_DUE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (message_judge(cases[i].read, cases[i].timestamp, cases[i].ttl, cases[i].now) !=
		    cases[i].want)
			fail_msg("%s", cases[i].name);
}

static void judges_claims(void **state)
{
	static const struct {
		int64_t given, current;
		enum claim_verdict want;
	} cases[] = {
		{ CLAIM_NONE, CLAIM_NONE, CLAIM_OURS },
		{ CLAIM_NONE, 7, CLAIM_OURS },
		{ CLAIM_NONE, 0, CLAIM_OURS },
		{ 7, 7, CLAIM_OURS },
		{ 7, 8, CLAIM_LOST },
		{ 7, CLAIM_NONE, CLAIM_LOST },
		{ 7, 0, CLAIM_LOST },
		{ 0, 7, CLAIM_LOST }, /* sixteen zeros are a claim like any other */
		{ INT64_MAX, INT64_MAX, CLAIM_OURS },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (message_judge_claim(cases[i].given, cases[i].current) != cases[i].want)
			fail_msg("case %zu", i);
}

static void filing_hurries_as_the_tail_fills(void **state)
{
	static const struct {
		int64_t count, max;
		lapse_us slice_us, rest_us;
	} cases[] = {
		{ 0, 8000, 100, 2500 },
		{ 4000, 8000, 100, 2500 }, /* where passes begin */
		{ 5000, 8000, 100, 2500 },
		{ 6000, 8000, 275, 1925 }, /* half of the way */
		{ 7000, 8000, 450, 1350 },
		{ 8001, 8000, 450, 1350 }, /* a sender has just added one */
		{ 1, 1, 100, 2500 },
		{ 2, 1, 450, 1350 },
		{ 10000000, 10000000, 450, 1350 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct filing_pace pace = message_filing_pace(cases[i].count, cases[i].max);
		assert_int_equal(pace.slice_us, cases[i].slice_us);
		assert_int_equal(pace.rest_us, cases[i].rest_us);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(judges_by_read_and_age),
		cmocka_unit_test(judges_claims),
		cmocka_unit_test(filing_hurries_as_the_tail_fills),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
