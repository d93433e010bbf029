/* SPDX-License-Identifier: Apache-2.0 */
/* Time as text and back, and arithmetic that saturates. */
#include <string.h>

#include "unit.h"

static const struct {
	lapse_ms t;
	const char *iso, *http;
} MOMENTS[] = {
	{ 0, "1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT" },
	{ -1, "1969-12-31T23:59:59.999Z", "Wed, 31 Dec 1969 23:59:59 GMT" },
	{ 951782400000, "2000-02-29T00:00:00.000Z", "Tue, 29 Feb 2000 00:00:00 GMT" },
	{ 951868799999, "2000-02-29T23:59:59.999Z", "Tue, 29 Feb 2000 23:59:59 GMT" },
	{ 951868800000, "2000-03-01T00:00:00.000Z", "Wed, 01 Mar 2000 00:00:00 GMT" },
	{ 1709164800000, "2024-02-29T00:00:00.000Z", "Thu, 29 Feb 2024 00:00:00 GMT" },
	{ 1763231580123, "2025-11-15T18:33:00.123Z", "Sat, 15 Nov 2025 18:33:00 GMT" },
	{ 1794767580123, "2026-11-15T18:33:00.123Z", "Sun, 15 Nov 2026 18:33:00 GMT" },
	{ 4107542400000, "2100-03-01T00:00:00.000Z", "Mon, 01 Mar 2100 00:00:00 GMT" },
	{ -2203891200000, "1900-03-01T00:00:00.000Z", "Thu, 01 Mar 1900 00:00:00 GMT" },
	{ -62167219200000, "0000-01-01T00:00:00.000Z", "Sat, 01 Jan 0000 00:00:00 GMT" },
	{ 253402300799999, "9999-12-31T23:59:59.999Z", "Fri, 31 Dec 9999 23:59:59 GMT" },
};

static void formats_and_reads_back(void **state)
{
	char iso[TIME_TEXT_LEN + 1], http[TIME_HTTP_LEN + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(MOMENTS); i++) {
		lapse_ms back = -7;
		time_format(MOMENTS[i].t, iso);
		assert_string_equal(iso, MOMENTS[i].iso);
		time_format_http(MOMENTS[i].t, http);
		assert_string_equal(http, MOMENTS[i].http);
		assert_true(time_parse(MOMENTS[i].iso, &back));
		assert_int_equal(back, MOMENTS[i].t);
	}
}

/* Every day from 1895 to 2105: the calendar has no hole and no day twice. */
static void walks_every_day(void **state)
{
	char iso[TIME_TEXT_LEN + 1], last[TIME_TEXT_LEN + 1] = "";

	(void)state;
	for (lapse_ms t = -2366755200000; t < 4260211200000; t += 86400000) {
		lapse_ms back;
		time_format(t, iso);
		assert_true(strcmp(iso, last) > 0);
		assert_true(time_parse(iso, &back));
		assert_int_equal(back, t);
		memcpy(last, iso, sizeof(last));
	}
}

/* Every millisecond around the turns of seconds, on both sides of 1970, forth and back. */
static void walks_every_millisecond(void **state)
{
	static const lapse_ms TURNS[] = { -62167219199000, -1000, 0, 1000, 1791072000000 };
	char iso[TIME_TEXT_LEN + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(TURNS); i++)
		for (int step = -999; step <= 999; step++) {
			lapse_ms t = TURNS[i] + (step % 2 ? step : -step), back;
			time_format(t, iso);
			assert_true(time_parse(iso, &back));
			assert_int_equal(back, t);
		}
}

static void clamps_years(void **state)
{
	char text[TIME_TEXT_LEN + 1], http[TIME_HTTP_LEN + 1];

	(void)state;
	time_format(INT64_MAX, text);
	assert_string_equal(text, "9999-12-31T23:59:59.999Z");
	time_format(INT64_MIN, text);
	assert_string_equal(text, "0000-01-01T00:00:00.000Z");
	time_format_http(INT64_MAX, http);
	assert_string_equal(http, "Fri, 31 Dec 9999 23:59:59 GMT");
}

static void reads_fractions_and_offsets(void **state)
{
	static const struct {
		const char *text;
		lapse_ms want;
	} cases[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "1970-01-01T00:00:00.5Z", 500 },
		{ "1970-01-01T00:00:00.05Z", 50 },
		{ "1970-01-01T00:00:00.001Z", 1 },
		{ "1970-01-01T00:00:00.0019Z", 1 },
		{ "1970-01-01T00:00:00.123456789Z", 123 },
		{ "1970-01-01T00:00:00+00:00", 0 },
		{ "1970-01-01T00:00:00-00:00", 0 },
		{ "1970-01-01T02:00:00+02:00", 0 },
		{ "1969-12-31T19:00:00-05:00", 0 },
		{ "1970-01-01T05:45:00.250+05:45", 250 },
		{ "1970-01-01T00:00:00+23:59", -86340000 },
		{ "1970-01-01T00:00:00-23:59", 86340000 },
		{ "2024-02-29T12:00:00Z", 1709208000000 },
		{ "2000-02-29T00:00:00Z", 951782400000 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		lapse_ms t = -7;
		if (!time_parse(cases[i].text, &t) || t != cases[i].want)
			fail_msg("%s gave %lld", cases[i].text, (long long)t);
	}
}

static void rejects_what_is_no_time(void **state)
{
	static const char *const cases[] = {
		"",
		"now",
		"2026",
		"2026-11-15",
		"2026-11-15T18:33",
		"2026-11-15T18:33Z",
		"2026-11-15T18:33:00",
		"2026-11-15 18:33:00Z",
		"2026-11-15t18:33:00z",
		" 2026-11-15T18:33:00Z",
		"2026-11-15T18:33:00Z ",
		"2026-11-15T18:33:00ZZ",
		"2026-11-15T18:33:00.Z",
		"2026-11-15T18:33:00.1234567890Z",
		"2026-11-15T18:33:00,5Z",
		"2026-00-15T18:33:00Z",
		"2026-13-15T18:33:00Z",
		"2026-11-00T18:33:00Z",
		"2026-11-31T18:33:00Z",
		"2026-12-32T18:33:00Z",
		"2026-01-99T18:33:00Z",
		"2025-02-29T18:33:00Z",
		"1900-02-29T18:33:00Z",
		"2100-02-29T18:33:00Z",
		"2024-02-30T18:33:00Z",
		"2026-11-15T24:00:00Z",
		"2026-11-15T18:60:00Z",
		"2026-11-15T18:33:60Z",
		"2026-11-15T18:33:00+24:00",
		"2026-11-15T18:33:00+02:60",
		"2026-11-15T18:33:00+0200",
		"2026-11-15T18:33:00+02",
		"2026-11-15T18:33:00+",
		"+026-11-15T18:33:00Z",
		"-026-11-15T18:33:00Z",
		"2026-1-15T18:33:00Z",
		"12026-11-15T18:33:00Z",
		"2026-11-15T1a:33:00Z",
		"2026-11-15T18:33:-1Z",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		lapse_ms t = -7;
		if (time_parse(cases[i], &t))
			fail_msg("'%s' was taken", cases[i]);
		assert_int_equal(t, -7);
	}
}

static void saturates(void **state)
{
	static const struct {
		int64_t a, b, sum, difference;
	} cases[] = {
		{ 1, 2, 3, -1 },
		{ -5, 5, 0, -10 },
		{ INT64_MAX, 1, INT64_MAX, INT64_MAX - 1 },
		{ INT64_MAX, INT64_MAX, INT64_MAX, 0 },
		{ INT64_MIN, 1, INT64_MIN + 1, INT64_MIN },
		{ INT64_MIN, -1, INT64_MIN, INT64_MIN + 1 },
		{ INT64_MAX, -1, INT64_MAX - 1, INT64_MAX },
		{ INT64_MAX, INT64_MIN, -1, INT64_MAX },
		{ INT64_MIN, INT64_MAX, -1, INT64_MIN },
		{ 0, INT64_MIN, INT64_MIN, INT64_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(time_add(cases[i].a, cases[i].b), cases[i].sum);
		assert_int_equal(time_sub(cases[i].a, cases[i].b), cases[i].difference);
	}
}

static void the_system_clock_runs(void **state)
{
	lapse_us mono = clock_mono(&CLOCK_SYSTEM);

	(void)state;
	assert_true(clock_wall(&CLOCK_SYSTEM) > 1700000000000); /* milliseconds, not seconds */
	assert_true(clock_wall(&CLOCK_SYSTEM) < 17000000000000);
	assert_true(clock_mono(&CLOCK_SYSTEM) >= mono);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formats_and_reads_back),
		cmocka_unit_test(walks_every_day),
		cmocka_unit_test(walks_every_millisecond),
		cmocka_unit_test(clamps_years),
		cmocka_unit_test(reads_fractions_and_offsets),
		cmocka_unit_test(rejects_what_is_no_time),
		cmocka_unit_test(saturates),
		cmocka_unit_test(the_system_clock_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
