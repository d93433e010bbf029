/* SPDX-License-Identifier: Apache-2.0 */
/* Ids: those we make grow and parse back, those clients give are checked byte by byte. */
#include <string.h>

#include "base/id.h"
#include "unit.h"

static void ids_grow(void **state)
{
	struct idgen g = { 0 };
	int64_t last = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		int64_t id = id_next(&g, NOW + i / 10);
		assert_true(id > last);
		assert_true(id >= id_floor(NOW + i / 10));
		assert_true(id < id_floor(NOW + i / 10 + 1));
		last = id;
	}
}

/* The next id of a replica, when its millisecond has one. */
#define STEP 256

static void ids_grow_when_the_clock_goes_back(void **state)
{
	struct idgen g = { 0 };
	int64_t before = id_next(&g, NOW);

	(void)state;
	for (int i = 1; i < 1000; i++)
		assert_int_equal(id_next(&g, NOW - 3600000 - i), before + STEP * i);
	assert_int_equal(id_next(&g, 0), before + STEP * 1000);
	assert_int_equal(id_next(&g, -5), before + STEP * 1001);
	assert_int_equal(id_next(&g, NOW + 1), id_floor(NOW + 1));
}

/* Those of a store that counted in steps of one, too. */
static void ids_grow_past_those_of_the_store(void **state)
{
	struct idgen g = { .last = id_floor(NOW + 500) + 7 };

	(void)state;
	assert_int_equal(id_next(&g, NOW), id_floor(NOW + 500) + STEP);
	assert_int_equal(g.last, id_floor(NOW + 500) + STEP);
	g = (struct idgen){ .last = id_floor(NOW + 1) - 1, .replica = 3 };
	assert_int_equal(id_next(&g, NOW), id_floor(NOW + 1) + 3);
}

static void a_full_millisecond_borrows_from_the_next(void **state)
{
	struct idgen g = { .replica = 255 };
	int64_t last = 0;

	(void)state;
	for (int i = 0; i < 3 * 8192; i++) {
		int64_t id = id_next(&g, NOW);
		assert_true(id > last);
		assert_int_equal(id_time(id), NOW + i / 8192);
		assert_int_equal(id_replica(id), 255);
		last = id;
	}
	assert_int_equal(last, id_floor(NOW + 3) - 1);
	assert_int_equal(id_next(&g, NOW + 1), id_floor(NOW + 3) + 255); /* its debt comes first */
	assert_int_equal(id_next(&g, NOW + 4), id_floor(NOW + 4) + 255);
}

static void replicas_never_make_the_same_id(void **state)
{
	struct idgen a = { .replica = 0 }, b = { .replica = 1 };

	(void)state;
	for (int i = 0; i < 20000; i++) {
		int64_t x = id_next(&a, NOW + i / 5000), y = id_next(&b, NOW + i / 5000);
		assert_true(x != y);
		assert_int_equal(id_replica(x), 0);
		assert_int_equal(id_replica(y), 1);
		assert_int_equal(x >> 8, y >> 8);
	}
}

static void the_id_of_a_moment_is_a_bound(void **state)
{
	struct idgen g = { 0 };

	(void)state;
	for (lapse_ms t = NOW; t < NOW + 100; t++) {
		int64_t id = id_next(&g, t);
		assert_true(id_floor(t) <= id);
		assert_true(id < id_floor(t + 1));
	}
	assert_int_equal(id_floor(0), 0);
	assert_int_equal(id_floor(-1), 0);
	assert_int_equal(id_floor(INT64_MIN), 0);
	assert_int_equal(id_floor(1), INT64_C(1) << 21);
	assert_true(id_floor(INT64_MAX) > id_floor(NOW));
	assert_int_equal(id_floor(INT64_MAX), id_floor((INT64_C(1) << 42) - 1));
}

static void ids_are_sixteen_digits(void **state)
{
	static const struct {
		int64_t id;
		const char *text;
	} cases[] = {
		{ 0, "0000000000000000" },
		{ 1, "0000000000000001" },
		{ 0xabcdef, "0000000000abcdef" },
		{ INT64_MAX, "7fffffffffffffff" },
	};
	char text[ID_TEXT_LEN + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t back = -7;
		id_format(cases[i].id, text);
		assert_string_equal(text, cases[i].text);
		assert_true(id_parse(text, &back));
		assert_int_equal(back, cases[i].id);
	}
}

static void rejects_what_is_no_id(void **state)
{
	static const char *const cases[] = {
		"",
		"0",
		"000000000000000",
		"00000000000000000",
		"000000000000000g",
		"000000000000000A",
		"0x00000000000001",
		" 000000000000001",
		"000000000000001 ",
		"-000000000000001",
		"8000000000000000",
		"ffffffffffffffff",
		"000000000000000\xc3\xa4",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t id = -7;
		if (id_parse(cases[i], &id))
			fail_msg("'%s' was taken", cases[i]);
		assert_int_equal(id, -7);
	}
}

#define TEXT(s) s, sizeof(s) - 1

static const struct {
	const char *bytes;
	size_t n;
	bool valid, printable;
} SEQUENCES[] = {
	{ TEXT(""), true, true },
	{ TEXT("plain"), true, true },
	{ TEXT(" ~"), true, true },
	{ TEXT("\t"), true, false },
	{ TEXT("a\nb"), true, false },
	{ TEXT("\0"), true, false },
	{ TEXT("\x1f"), true, false },
	{ TEXT("\x7f"), true, false },
	{ TEXT("\xc2\x80"), true, false }, /* U+0080, the first C1 */
	{ TEXT("\xc2\x9f"), true, false }, /* U+009F, the last C1 */
	{ TEXT("\xc2\xa0"), true, true },
	{ TEXT("\xc3\xa4"), true, true },
	{ TEXT("\xdf\xbf"), true, true },
	{ TEXT("\xe0\xa0\x80"), true, true },
	{ TEXT("\xe2\x82\xac"), true, true },
	{ TEXT("\xed\x9f\xbf"), true, true }, /* U+D7FF, before the surrogates */
	{ TEXT("\xee\x80\x80"), true, true }, /* U+E000, after them */
	{ TEXT("\xef\xbf\xbf"), true, true },
	{ TEXT("\xf0\x90\x80\x80"), true, true },
	{ TEXT("\xf0\x9f\x98\x80"), true, true },
	{ TEXT("\xf4\x8f\xbf\xbf"), true, true }, /* U+10FFFF, the last */
	{ TEXT("\x80"), false, false },           /* a continuation alone */
	{ TEXT("\xbf"), false, false },
	{ TEXT("a\x80"), false, false },
	{ TEXT("\xc3"), false, false }, /* cut short */
	{ TEXT("\xe2\x82"), false, false },
	{ TEXT("\xf0\x9f\x98"), false, false },
	{ TEXT("\xc3("), false, false }, /* no continuation */
	{ TEXT("\xe2(\xac"), false, false },
	{ TEXT("\xe2\x82("), false, false },
	{ TEXT("\xf0\x9f\x98("), false, false },
	{ TEXT("\xc0\x80"), false, false }, /* overlong */
	{ TEXT("\xc0\xaf"), false, false },
	{ TEXT("\xc1\xbf"), false, false },
	{ TEXT("\xe0\x80\xaf"), false, false },
	{ TEXT("\xe0\x9f\xbf"), false, false },
	{ TEXT("\xf0\x80\x80\xaf"), false, false },
	{ TEXT("\xf0\x8f\xbf\xbf"), false, false },
	{ TEXT("\xed\xa0\x80"), false, false }, /* surrogates */
	{ TEXT("\xed\xbf\xbf"), false, false },
	{ TEXT("\xf4\x90\x80\x80"), false, false }, /* above U+10FFFF */
	{ TEXT("\xf5\x80\x80\x80"), false, false },
	{ TEXT("\xf8\x88\x80\x80\x80"), false, false },
	{ TEXT("\xfe"), false, false },
	{ TEXT("\xff"), false, false },
	{ TEXT("ok\xff"), false, false },
};

static void checks_utf8(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(SEQUENCES); i++) {
		/* A copy of just its size, so that a sanitizer sees a look past its end. */
		char *copy = mem_alloc(SEQUENCES[i].n);
		memcpy(copy, SEQUENCES[i].bytes, SEQUENCES[i].n);
		bool valid = utf8_is_valid(copy, SEQUENCES[i].n, false);
		bool printable = utf8_is_valid(copy, SEQUENCES[i].n, true);
		free(copy);
		if (valid != SEQUENCES[i].valid || printable != SEQUENCES[i].printable)
			fail_msg("sequence %zu", i);
	}
}

/* Texts are looked at by words: every byte, at every place, of texts of every length. */
static void checks_bytes_at_every_place(void **state)
{
	(void)state;
	for (size_t n = 1; n <= 20; n++) {
		char *text = mem_alloc(n);
		for (size_t place = 0; place < n; place++)
			for (int c = 0; c < 256; c++) {
				memset(text, place % 2 ? ' ' : '~', n);
				text[place] = (char)c;
				assert_int_equal(utf8_is_valid(text, n, false), c < 0x80);
				assert_int_equal(utf8_is_valid(text, n, true),
						 c >= ' ' && c < 0x7f);
			}
		free(text);
	}
}

static void checks_ids_of_clients(void **state)
{
	char longest[ID_MAX_BYTES + 1], too_long[ID_MAX_BYTES + 2];
	const struct {
		const char *text, *why; /* NULL = it may be used */
	} cases[] = {
		{ "agent-42", NULL },
		{ "a", NULL },
		{ "a b", NULL },
		{ "\xc3\xa4gent", NULL },
		{ "..", NULL },
		{ longest, NULL },
		{ "", "empty" },
		{ too_long, "128 bytes" },
		{ "a/b", "'/'" },
		{ "/", "'/'" },
		{ "a\nb", "control" },
		{ "a\x7f", "control" },
		{ "a\xc2\x85", "control" },
		{ "a\xff", "UTF-8" },
	};

	(void)state;
	memset(longest, 'x', ID_MAX_BYTES);
	longest[ID_MAX_BYTES] = '\0';
	memset(too_long, 'x', ID_MAX_BYTES + 1);
	too_long[ID_MAX_BYTES + 1] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *why = "";
		bool valid = id_is_valid(cases[i].text, &why);
		if (valid != !cases[i].why || (!valid && !strstr(why, cases[i].why)))
			fail_msg("case %zu: '%s'", i, why);
	}
}

static void random_is_random(void **state)
{
	unsigned char bytes[64] = { 0 };
	char hex[2 * sizeof(bytes) + 1];
	size_t zeros = 0;

	(void)state;
	random_bytes(bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++)
		zeros += bytes[i] == 0;
	assert_true(zeros < 16);
	for (int i = 0; i < 100; i++)
		assert_true(id_random() >= 0);
	assert_int_not_equal(id_random(), id_random());
	hex_encode("\x00\x1f\xff", 3, hex);
	assert_string_equal(hex, "001fff");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_grow),
		cmocka_unit_test(ids_grow_when_the_clock_goes_back),
		cmocka_unit_test(ids_grow_past_those_of_the_store),
		cmocka_unit_test(a_full_millisecond_borrows_from_the_next),
		cmocka_unit_test(replicas_never_make_the_same_id),
		cmocka_unit_test(the_id_of_a_moment_is_a_bound),
		cmocka_unit_test(ids_are_sixteen_digits),
		cmocka_unit_test(rejects_what_is_no_id),
		cmocka_unit_test(checks_utf8),
		cmocka_unit_test(checks_bytes_at_every_place),
		cmocka_unit_test(checks_ids_of_clients),
		cmocka_unit_test(random_is_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
