/* SPDX-License-Identifier: Apache-2.0 */
/* When the database was away, and since when it is back. */
#include "engine/outage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/err.h"

static void a_long_one_counts(void **state)
{
	struct outage o = { 0 };

	(void)state;
	outage_note(&o, LAPSE_OK, 5);
	outage_note(&o, LAPSE_EUNAVAILABLE, 10);
	outage_note(&o, LAPSE_EUNAVAILABLE, 10 + OUTAGE_MIN_MS / 2);
	assert_true(o.is_on);
	outage_note(&o, LAPSE_OK, 10 + OUTAGE_MIN_MS);
	assert_int_equal(o.count, 1);
	assert_int_equal(o.since, 10);
	assert_false(o.is_on);
	outage_note(&o, LAPSE_OK, 10 + 3 * OUTAGE_MIN_MS);
	assert_int_equal(o.count, 1);
}

static void a_short_one_does_not(void **state)
{
	struct outage o = { 0 };

	(void)state;
	outage_note(&o, LAPSE_EUNAVAILABLE, 0);
	outage_note(&o, LAPSE_OK, OUTAGE_MIN_MS - 1);
	assert_int_equal(o.count, 0);
	assert_false(o.is_on);
}

/* A lock, a full disk: the database is there. */
static void other_errors_are_none(void **state)
{
	struct outage o = { 0 };

	(void)state;
	outage_note(&o, LAPSE_ERETRY, 1);
	outage_note(&o, LAPSE_EFULL, 2);
	outage_note(&o, LAPSE_OK, 3 * OUTAGE_MIN_MS);
	assert_int_equal(o.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_one_counts),
		cmocka_unit_test(a_short_one_does_not),
		cmocka_unit_test(other_errors_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
