/* SPDX-License-Identifier: Apache-2.0 */
/* Durations and sizes as people write them. */
#include "base/mem.h"
#include "base/quantity.h"
#include "unit.h"

static void test_spans(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} good[] = {
		{ "0s", 0 },          { "500ms", 500 },     { "90s", 90000 },
		{ "5m", 300000 },     { "24h", 86400000 },  { "7d", 604800000 },
		{ "2w", 1209600000 }, { "1h30m", 5400000 }, { "1d2h3m4s5ms", 93784005 },
		{ "1.5h", 5400000 },  { "0.001s", 1 },      { "9223372036854775807ms", INT64_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		int64_t ms = -1;
		assert_true(span_parse(good[i].text, &ms));
		assert_int_equal(ms, good[i].ms);
	}
}

static void test_no_spans(void **state)
{
	static const char *const bad[] = { "",
					   "h",
					   "30",
					   "-1s",
					   "1.h",
					   ".5h",
					   "1 h",
					   "1H",
					   "1h ",
					   "1h30",
					   "1.5ms",
					   "0.0001s",
					   "1h-1m",
					   "infinity",
					   "1.0000001h",
					   "9223372036854775807s",
					   "9223372036854775808ms",
					   "9223372036854775807ms1ms" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int64_t ms = -1;
		assert_false(span_parse(bad[i], &ms));
		assert_int_equal(ms, -1);
	}
}

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "1024", 1024 },
		{ "64K", 65536 },
		{ "10MiB", 10485760 },
		{ "10mib", 10485760 },
		{ "2GB", 2000000000 },
		{ "1.5GiB", 1610612736 },
		{ "7B", 7 },
		{ "1TiB", INT64_C(1) << 40 },
	};
	static const char *const bad[] = { "",     "MiB",   "-1",
					   "1.5",  "1 MiB", "1PiB",
					   "1M1K", "0x10",  "9223372036854775807K" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		int64_t bytes = -1;
		assert_true(bytes_parse(good[i].text, &bytes));
		assert_int_equal(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int64_t bytes = -1;
		assert_false(bytes_parse(bad[i], &bytes));
		assert_int_equal(bytes, -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_spans),
					    cmocka_unit_test(test_no_spans),
					    cmocka_unit_test(test_sizes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
