/* SPDX-License-Identifier: Apache-2.0 */
/* How removals give way to other sessions: decisions, without a clock or a database. */
#include "unit.h"

#include "contract/yield.h"

#define AT INT64_C(50000000) /* monotonic */

static struct yield yield_of(enum foreign_engine engine)
{
	return (struct yield){ .engine = engine, .slice_us = 50000, .met_at = INT64_MIN };
}

static const enum foreign_engine ENGINES[] = { FOREIGN_SQLITE, FOREIGN_POSTGRES };

static void alone_it_neither_rests_nor_stops_early(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ENGINES); i++) {
		struct yield y = yield_of(ENGINES[i]);
		yield_note(&y, false, AT);
		assert_false(yield_is_giving_way(&y, AT));
		assert_int_equal(yield_cut_us(&y, AT), 50000);
		assert_int_equal(yield_rest_us(&y, 50000, AT), 0);
	}
}

/* A cut is shorter than the first sleep of a writer that finds SQLite's lock taken (1 ms), and the
 * rest is longer, so it gets the lock at its second try. */
static void beside_a_writer_it_is_brief_and_rests(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ENGINES); i++) {
		struct yield y = yield_of(ENGINES[i]);
		yield_note(&y, true, AT);
		lapse_us cut = yield_cut_us(&y, AT);
		assert_true(cut <= 3000);
		assert_true(yield_rest_us(&y, cut, AT) >= cut / 2);
		assert_true(yield_rest_us(&y, 2 * cut, AT) > yield_rest_us(&y, cut, AT));
	}
	struct yield y = yield_of(FOREIGN_SQLITE);
	yield_note(&y, true, AT);
	assert_true(yield_cut_us(&y, AT) < 1000);
	assert_true(yield_rest_us(&y, 1, AT) > 1000);
}

static void a_slice_of_the_contract_that_is_shorter_stays(void **state)
{
	struct yield y = yield_of(FOREIGN_POSTGRES);

	(void)state;
	y.slice_us = 1000;
	yield_note(&y, true, AT);
	assert_int_equal(yield_cut_us(&y, AT), 1000);
}

static void a_writer_is_remembered_for_a_while(void **state)
{
	struct yield y = yield_of(FOREIGN_SQLITE);

	(void)state;
	yield_note(&y, true, AT);
	yield_note(&y, false, AT + 1);
	assert_true(yield_is_giving_way(&y, AT + YIELD_FOR_US - 1));
	assert_false(yield_is_giving_way(&y, AT + YIELD_FOR_US));
	assert_int_equal(yield_rest_us(&y, 500, AT + YIELD_FOR_US), 0);
	yield_note(&y, true, AT + YIELD_FOR_US);
	assert_true(yield_is_giving_way(&y, AT + YIELD_FOR_US));
}

static void the_number_of_rows_follows_the_time(void **state)
{
	static const struct {
		int64_t rows;
		bool full;
		lapse_us took, wanted;
		int64_t next;
	} table[] = {
		{ 100, true, 0, 1000, 200 },    /* too quick to tell: twice as many */
		{ 100, true, 499, 1000, 200 },  /* less than half the time */
		{ 100, true, 799, 1000, 125 },  /* in proportion */
		{ 100, true, 1000, 1000, 99 },  /* as wanted */
		{ 100, true, 1250, 1000, 80 },  /* too slow: in proportion */
		{ 100, true, 9000, 1000, 50 },  /* much too slow: half */
		{ 100, false, 10, 1000, 100 },  /* a page that was not full says nothing… */
		{ 100, false, 1250, 1000, 80 }, /* …unless it was too slow */
		{ 12, true, 9000, 1000, YIELD_ROWS_LEAST },
		{ 9000, true, 0, 1000, YIELD_ROWS_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		assert_int_equal(
			yield_rows(table[i].rows, table[i].full, table[i].took, table[i].wanted),
			table[i].next);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_it_neither_rests_nor_stops_early),
		cmocka_unit_test(beside_a_writer_it_is_brief_and_rests),
		cmocka_unit_test(a_slice_of_the_contract_that_is_shorter_stays),
		cmocka_unit_test(a_writer_is_remembered_for_a_while),
		cmocka_unit_test(the_number_of_rows_follows_the_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
