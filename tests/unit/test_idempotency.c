/* SPDX-License-Identifier: Apache-2.0 */
/* Idempotency keys: the first answer again, inside the window, to the same request only. */
#include <string.h>

#include "api/idempotency.h"
#include "unit.h"

#define DAY INT64_C(86400000)

struct answer {
	int result, status;
	char text[64];
};

static struct idempotency request(const char *owner, const char *key, const char *body)
{
	struct idempotency i = { .owner = owner, .key = key };

	idempotency_hash(&i, "POST", "/v1/things", body, strlen(body));
	return i;
}

/* Begins, and where the key is new ends with the answer given (NULL = leaves it under way). */
static struct answer run_in(struct tx *tx, struct idempotency i, const char *given)
{
	struct answer a = { 0 };
	const char *text = "";
	struct arena arena;

	arena_init(&arena);
	a.result = idempotency_begin(tx, &i, &arena, &a.status, &text);
	if (a.result > 0)
		strncpy(a.text, text, sizeof(a.text) - 1);
	if (a.result == 0 && given)
		assert_int_equal(idempotency_end(tx, &i, 201, given), LAPSE_OK);
	arena_done(&arena);
	return a;
}

static struct answer run(struct world *w, struct idempotency i, const char *given)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	struct answer a = run_in(&tx, i, given);
	if (a.result < 0)
		tx_rollback(&tx);
	else
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return a;
}

static void a_retry_gets_the_first_answer(void **state)
{
	struct world *w = *state;
	struct idempotency i = request("o", "k", "{}");

	assert_int_equal(run(w, i, "first").result, 0);
	for (int n = 0; n < 3; n++) {
		struct answer a = run(w, i, "another");
		assert_int_equal(a.result, 1);
		assert_int_equal(a.status, 201);
		assert_string_equal(a.text, "first");
		world_reopen(w);
	}
	world_check_counters(w);
}

static void a_retry_in_the_same_turn_too(void **state)
{
	struct world *w = *state;
	struct idempotency i = request("o", "k", "{}");
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(run_in(&tx, i, "first").result, 0);
	assert_string_equal(run_in(&tx, i, "second").text, "first");
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	world_check_counters(w);
}

static void keys_belong_to_their_owner_and_request(void **state)
{
	struct world *w = *state;

	assert_int_equal(run(w, request("o", "k", "{}"), "first").result, 0);
	assert_int_equal(run(w, request("o", "k", "{ }"), "x").result, LAPSE_EUNPROCESSABLE);
	assert_int_equal(run(w, request("other", "k", "{ }"), "x").result, 0);
	assert_int_equal(run(w, request("o", "k2", "{ }"), "x").result, 0);
	assert_string_equal(run(w, request("o", "k", "{}"), "x").text, "first");
}

static void the_fingerprint_keeps_its_parts_apart(void **state)
{
	static const struct {
		const char *method, *path, *body;
	} cases[] = {
		{ "POST", "/a", "b" }, { "POST", "/ab", "" },  { "POSTX", "/a", "b" },
		{ "PUT", "/a", "b" },  { "POST", "/a", "b " }, { "POST/", "a", "b" },
	};
	char seen[ARRAY_LEN(cases)][65];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct idempotency x = { 0 };
		idempotency_hash(&x, cases[i].method, cases[i].path, cases[i].body,
				 strlen(cases[i].body));
		assert_int_equal(strlen(x.request), 64);
		memcpy(seen[i], x.request, sizeof(seen[i]));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(seen[i], seen[k]);
	}
}

static void a_failure_leaves_no_key(void **state)
{
	struct world *w = *state;
	struct idempotency i = request("o", "k", "{}");
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	assert_int_equal(run_in(&tx, i, NULL).result, 0);
	assert_int_equal(tx_step_undo(&tx), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	world_check_counters(w);
	assert_int_equal(run(w, i, "second try").result, 0);
}

static void one_under_way_is_a_conflict(void **state)
{
	struct world *w = *state;
	struct idempotency i = request("o", "k", "{}");
	struct tx tx;

	assert_int_equal(run(w, i, NULL).result, 0);
	assert_int_equal(run(w, i, NULL).result, LAPSE_ECONFLICT);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(idempotency_drop(&tx, &i), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	world_check_counters(w);
	assert_int_equal(run(w, i, "again").result, 0);
}

static void one_under_way_does_not_survive_a_crash(void **state)
{
	struct world *w = *state;

	assert_int_equal(run(w, request("o", "k", "{}"), NULL).result, 0);
	assert_int_equal(run(w, request("o", "done", "{}"), "kept").result, 0);
	world_reopen(w);
	world_check_counters(w);
	assert_int_equal(run(w, request("o", "k", "{}"), "again").result, 0);
	assert_string_equal(run(w, request("o", "done", "{}"), "x").text, "kept");
}

/* Past its window a key is none, before the sweep as after it; at its edge it still is one. */
static void a_key_lasts_its_window(void **state)
{
	struct world *w = *state;
	struct idempotency i = request("o", "k", "{}");
	struct sweep sweep;

	assert_int_equal(run(w, i, "first").result, 0);
	fake_clock_to(&w->time, NOW + DAY);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_string_equal(run(w, i, "second").text, "first");
	fake_clock_to(&w->time, NOW + DAY + 1);
	assert_int_equal(run(w, i, "second").result, 0);
	assert_string_equal(run(w, i, "third").text, "second");
	world_check_counters(w);
	fake_clock_to(&w->time, NOW + 2 * DAY + 2);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(side_int(w, "SELECT count(*) FROM idempotency_keys"), 0);
	world_check_counters(w);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(a_retry_gets_the_first_answer),
		WORLD_TEST(a_retry_in_the_same_turn_too),
		WORLD_TEST(keys_belong_to_their_owner_and_request),
		cmocka_unit_test(the_fingerprint_keeps_its_parts_apart),
		WORLD_TEST(a_failure_leaves_no_key),
		WORLD_TEST(one_under_way_is_a_conflict),
		WORLD_TEST(one_under_way_does_not_survive_a_crash),
		WORLD_TEST(a_key_lasts_its_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
