/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions about an attachment: its lifetime, ranges, names, roots. */
#include <string.h>

#include "attachment/rules.h"
#include "unit.h"

#define INFINITE LAPSE_NEVER

static void due_is_at_least_the_ttl(void **state)
{
	(void)state;
	static const struct {
		struct attachment_terms terms;
		lapse_ms age;
		bool due;
	} cases[] = {
		{ { false, 1000 }, 999, false },
		{ { false, 1000 }, 1000, true },
		{ { false, 1000 }, 1001, true },
		{ { false, 0 }, 0, true },
		{ { false, INFINITE }, 1000, false },
		{ { true, 1000 }, 1000000, false },
		{ { true, 0 }, 0, false },
		{ { true, INFINITE }, 5, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		lapse_ms due_at = attachment_due_at(&cases[i].terms, NOW);
		assert_int_equal(attachment_is_due(due_at, NOW + cases[i].age), cases[i].due);
	}
}

static void a_lifetime_that_does_not_fit_never_ends_early(void **state)
{
	struct attachment_terms t = { false, INT64_MAX - 1 };

	(void)state;
	assert_false(attachment_is_due(attachment_due_at(&t, NOW), NOW + 1));
}

static void staging_again_only_gives(void **state)
{
	(void)state;
	static const struct attachment_terms all[] = {
		{ false, 0 }, { false, 10 }, { false, INFINITE },
		{ true, 0 },  { true, 10 },  { true, INFINITE },
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		for (size_t j = 0; j < ARRAY_LEN(all); j++) {
			struct attachment_terms m = attachment_merge(&all[i], &all[j]);
			assert_int_equal(m.persist, all[i].persist || all[j].persist);
			assert_true(m.ttl_ms >= all[i].ttl_ms && m.ttl_ms >= all[j].ttl_ms);
			assert_true(m.ttl_ms == all[i].ttl_ms || m.ttl_ms == all[j].ttl_ms);
		}
}

static void ranges(void **state)
{
	(void)state;
	static const struct {
		const char *header;
		enum range_verdict verdict;
		int64_t offset, length;
	} cases[] = {
		{ NULL, RANGE_WHOLE, 0, 100 },
		{ "bytes=0-0", RANGE_PART, 0, 1 },
		{ "bytes=0-99", RANGE_PART, 0, 100 },
		{ "bytes=0-100", RANGE_PART, 0, 100 },
		{ "bytes=99-", RANGE_PART, 99, 1 },
		{ "BYTES=5-6", RANGE_PART, 5, 2 },
		{ "bytes=-1", RANGE_PART, 99, 1 },
		{ "bytes=-100", RANGE_PART, 0, 100 },
		{ "bytes=-101", RANGE_PART, 0, 100 },
		{ "bytes=0-9223372036854775807", RANGE_PART, 0, 100 },
		{ "bytes=0-99999999999999999999", RANGE_PART, 0, 100 },
		{ "bytes=100-", RANGE_UNSATISFIABLE, 0, 100 },
		{ "bytes=99999999999999999999-", RANGE_UNSATISFIABLE, 0, 100 },
		{ "bytes=-0", RANGE_UNSATISFIABLE, 0, 100 },
		{ "bytes=2-1", RANGE_WHOLE, 0, 100 },
		{ "bytes=1-2,4-5", RANGE_WHOLE, 0, 100 },
		{ "bytes=-", RANGE_WHOLE, 0, 100 },
		{ "bytes=", RANGE_WHOLE, 0, 100 },
		{ "bytes=--1", RANGE_WHOLE, 0, 100 },
		{ "bytes= 1-2", RANGE_WHOLE, 0, 100 },
		{ "items=1-2", RANGE_WHOLE, 0, 100 },
		{ "", RANGE_WHOLE, 0, 100 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t offset = -1, length = -1;
		assert_int_equal(attachment_range(cases[i].header, 100, &offset, &length),
				 cases[i].verdict);
		assert_int_equal(offset, cases[i].offset);
		assert_int_equal(length, cases[i].length);
	}
}

static void nothing_can_be_asked_of_an_empty_one(void **state)
{
	int64_t offset, length;

	(void)state;
	assert_int_equal(attachment_range("bytes=0-", 0, &offset, &length), RANGE_UNSATISFIABLE);
	assert_int_equal(attachment_range(NULL, 0, &offset, &length), RANGE_WHOLE);
	assert_int_equal(length, 0);
}

static void names_cannot_leave_the_header(void **state)
{
	(void)state;
	static const struct {
		const char *name, *header;
	} cases[] = {
		{ "a.txt", "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt" },
		{ "../x", "attachment; filename=\"_._x\"; filename*=UTF-8''_._x" },
		{ "a\"; b=c", "attachment; filename=\"a__ b=c\"; filename*=UTF-8''a__%20b%3Dc" },
		{ "a\r\nb", "attachment; filename=\"a__b\"; filename*=UTF-8''a__b" },
		{ "\xc3\xbc", "attachment; filename=\"_\"; filename*=UTF-8''%C3%BC" },
		{ "50%", "attachment; filename=\"50_\"; filename*=UTF-8''50_" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf CLEANUP(buf_done) out = { 0 };
		attachment_disposition(&out, cases[i].name);
		assert_string_equal(buf_text(&out), cases[i].header);
	}
}

static void paths_below_roots(void **state)
{
	(void)state;
	static const struct {
		const char *roots, *path, *rest;
		size_t root_len;
	} cases[] = {
		{ "/a", "/a/b", "b", 2 },
		{ "/a/", "/a/b", "b", 2 },
		{ "/a///", "/a//b", "b", 2 },
		{ "/a:/c", "/c/d/e", "d/e", 2 },
		{ "/", "/etc/passwd", "etc/passwd", 1 },
		{ "/a", "/ab/c", NULL, 0 },
		{ "/a", "/a", NULL, 0 },
		{ "/a", "/a/", NULL, 0 },
		{ "/a", "/b", NULL, 0 },
		{ "/a/b", "/a", NULL, 0 },
		{ "", "/a", NULL, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *root = NULL;
		size_t n = 0;
		const char *rest = attachment_below_root(cases[i].roots, cases[i].path, &root, &n);
		if (!cases[i].rest) {
			assert_null(rest);
			continue;
		}
		assert_string_equal(rest, cases[i].rest);
		assert_int_equal(n, cases[i].root_len);
	}
}

static void roots_are_absolute(void **state)
{
	(void)state;
	assert_true(attachment_roots_are_valid(""));
	assert_true(attachment_roots_are_valid("/a:/b/c"));
	assert_false(attachment_roots_are_valid("a"));
	assert_false(attachment_roots_are_valid("/a:"
						"b"));
	assert_false(attachment_roots_are_valid("/a::/b"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(due_is_at_least_the_ttl),
		cmocka_unit_test(a_lifetime_that_does_not_fit_never_ends_early),
		cmocka_unit_test(staging_again_only_gives),
		cmocka_unit_test(ranges),
		cmocka_unit_test(nothing_can_be_asked_of_an_empty_one),
		cmocka_unit_test(names_cannot_leave_the_header),
		cmocka_unit_test(paths_below_roots),
		cmocka_unit_test(roots_are_absolute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
