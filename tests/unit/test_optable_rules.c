/* SPDX-License-Identifier: Apache-2.0 */
/* The decision tables of seed 004, at their boundaries. */
#include "unit.h"

#include "optable/rules.h"

static void a_lease_is_judged(void **state)
{
	static const struct {
		bool exists, same;
		lapse_ms expires_at;
		enum lease_verdict verdict;
	} rows[] = {
		{ false, false, 0, LEASE_ACQUIRE },
		{ true, true, NOW + 1, LEASE_RENEW },
		{ true, false, NOW + 1, LEASE_REFUSE },
		{ true, true, NOW, LEASE_TAKE_OVER }, /* at its deadline it is over */
		{ true, false, NOW, LEASE_TAKE_OVER },
		{ true, true, NOW - 1, LEASE_TAKE_OVER },
		{ true, false, LAPSE_NEVER, LEASE_REFUSE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(lease_judge(rows[i].exists, rows[i].same, rows[i].expires_at, NOW),
				 rows[i].verdict);
}

static void tokens_grow(void **state)
{
	(void)state;
	assert_int_equal(fencing_next(0, NOW), NOW * 1000);
	assert_int_equal(fencing_next(NOW * 1000, NOW), NOW * 1000 + 1);
	assert_int_equal(fencing_next(NOW * 1000 - 1, NOW), NOW * 1000);
	assert_int_equal(fencing_next(NOW * 1000 + 5, NOW), NOW * 1000 + 6);
	assert_int_equal(fencing_next(41, 0), 42);
	assert_true(fencing_next(0, LAPSE_NEVER) <= FENCING_TOKEN_MAX);
	assert_true(fencing_next(0, INT64_C(4102444800000)) <
		    FENCING_TOKEN_MAX); /* the year 2100 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lease_is_judged),
		cmocka_unit_test(tokens_grow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
