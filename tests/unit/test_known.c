/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses about inboxes: what was added is known until something pushes it out or drops it. */
#include "message/known.h"
#include "unit.h"

static void what_was_added_is_known(void **state)
{
	struct known k = { 0 };
	uint64_t bob = known_name("alice", "bob");

	(void)state;
	assert_int_not_equal(bob, 0);
	assert_int_not_equal(bob, known_name("bob", "alice"));
	assert_int_not_equal(bob, known_name("aliceb", "ob"));
	assert_false(known_has(&k, bob));
	known_drop(&k, bob);
	known_add(&k, bob);
	assert_true(known_has(&k, bob));
	assert_false(known_has(&k, known_name("alice", "carol")));
	known_drop(&k, known_name("alice", "carol"));
	assert_true(known_has(&k, bob));
	known_drop(&k, bob);
	assert_false(known_has(&k, bob));
	known_done(&k);
}

static void a_place_holds_one(void **state)
{
	struct known k = { 0 };

	(void)state;
	known_add(&k, 7);
	known_add(&k, 7 + (UINT64_C(1) << 40)); /* the same place */
	assert_false(known_has(&k, 7));
	known_drop(&k, 7);
	assert_true(known_has(&k, 7 + (UINT64_C(1) << 40)));
	known_done(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_added_is_known),
		cmocka_unit_test(a_place_holds_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
