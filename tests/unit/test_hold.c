/* SPDX-License-Identifier: Apache-2.0 */
/* Holds: placed, replaced, listed, released, ended, bounded. (Sweeps and holds: test_sweep.c.) */
#include <string.h>

#include "engine/hold.h"
#include "unit.h"

static int place(struct world *w, const char *owner, const char *table, const char *key,
		 const char *reason, lapse_ms until, struct hold *ret)
{
	struct hold h = {
		.owner = owner, .table = table, .key = key, .reason = reason, .until = until
	};
	struct problem p = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	int r = hold_place(&tx, &h, &p);
	if (r < 0) {
		assert_true(problem_text(&p, r)[0]);
		tx_rollback(&tx);
	} else {
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
		*ret = h;
	}
	return r;
}

static int release(struct world *w, const char *owner, const char *key)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	int r = hold_release(&tx, owner, "messages", key);
	if (r < 0)
		tx_rollback(&tx);
	else
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return r;
}

/* The reason of a live hold, or "" where there is none. */
static const char *reason_of(struct world *w, const char *owner, const char *key)
{
	static char reason[64];
	struct arena arena;
	struct hold h;
	struct tx tx;

	arena_init(&arena);
	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	int r = hold_get(&tx, &arena, owner, "messages", key, &h);
	assert_true(r == LAPSE_OK || r == LAPSE_ENOTFOUND);
	strncpy(reason, r == LAPSE_OK ? h.reason : "", sizeof(reason) - 1);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	arena_done(&arena);
	return reason;
}

static const char *new_key(struct world *w, char key[ID_TEXT_LEN + 1])
{
	id_format(send_message(w, "o", "a"), key);
	return key;
}

static void a_hold_is_placed_replaced_and_released(void **state)
{
	struct world *w = *state;
	char key[ID_TEXT_LEN + 1];
	struct hold first, second;

	new_key(w, key);
	assert_int_equal(place(w, "o", "messages", key, "one", LAPSE_NEVER, &first), LAPSE_OK);
	assert_int_equal(first.placed_at, NOW);
	assert_string_equal(reason_of(w, "o", key), "one");
	fake_clock_advance(&w->time, 10);
	assert_int_equal(place(w, "o", "messages", key, "two", NOW + 99, &second), LAPSE_OK);
	assert_int_equal(second.id, first.id);
	assert_int_equal(second.placed_at, NOW);
	assert_string_equal(reason_of(w, "o", key), "two");
	assert_int_equal(side_int(w, "SELECT count(*) FROM holds"), 1);
	world_check_counters(w);
	assert_int_equal(release(w, "o", key), LAPSE_OK);
	assert_string_equal(reason_of(w, "o", key), "");
	assert_int_equal(release(w, "o", key), LAPSE_ENOTFOUND);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'hold.placed'"), 2);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'hold.released'"),
			 1);
	world_check_counters(w);
}

static void only_what_exists_can_be_held(void **state)
{
	struct world *w = *state;
	char key[ID_TEXT_LEN + 1];
	struct hold h;

	new_key(w, key);
	const struct {
		const char *owner, *table, *key;
		int want;
	} cases[] = {
		{ "o", "messages", key, LAPSE_OK },
		{ "other", "messages", key, LAPSE_ENOTFOUND },
		{ "o", "messages", "0000000000000001", LAPSE_ENOTFOUND },
		{ "o", "messages", "nonsense", LAPSE_ENOTFOUND },
		{ "o", "nothing", key, LAPSE_ENOTFOUND },
		{ "o", "events", key, LAPSE_EINVAL },
		{ "o", "tokens", key, LAPSE_EINVAL },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (place(w, cases[i].owner, cases[i].table, cases[i].key, "r", LAPSE_NEVER, &h) !=
		    cases[i].want)
			fail_msg("case %zu", i);
	assert_int_equal(side_int(w, "SELECT count(*) FROM holds"), 1);
	world_check_counters(w);
}

static void a_hold_belongs_to_its_owner(void **state)
{
	struct world *w = *state;
	char key[ID_TEXT_LEN + 1];
	struct hold h;

	new_key(w, key);
	assert_int_equal(place(w, "o", "messages", key, "mine", LAPSE_NEVER, &h), LAPSE_OK);
	assert_string_equal(reason_of(w, "other", key), "");
	assert_int_equal(release(w, "other", key), LAPSE_ENOTFOUND);
	assert_string_equal(reason_of(w, "o", key), "mine");
}

static void a_hold_ends_by_itself(void **state)
{
	struct world *w = *state;
	char key[ID_TEXT_LEN + 1];
	struct sweep sweep;
	struct hold h;

	new_key(w, key);
	assert_int_equal(place(w, "o", "messages", key, "short", NOW + 100, &h), LAPSE_OK);
	fake_clock_to(&w->time, NOW + 99);
	assert_string_equal(reason_of(w, "o", key), "short");
	fake_clock_to(&w->time, NOW + 100);
	assert_string_equal(reason_of(w, "o", key), "");
	fake_clock_to(&w->time, NOW + 101);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(side_int(w, "SELECT count(*) FROM holds"), 0);
	world_check_counters(w);
}

/* One whose end has passed is none, before the sweep as after it: there is nothing to release. */
static void an_ended_hold_cannot_be_released(void **state)
{
	struct world *w = *state;
	char key[ID_TEXT_LEN + 1];
	struct hold h;

	new_key(w, key);
	assert_int_equal(place(w, "o", "messages", key, "short", NOW + 100, &h), LAPSE_OK);
	fake_clock_to(&w->time, NOW + 100);
	assert_int_equal(release(w, "o", key), LAPSE_ENOTFOUND);
}

/* And a hold placed after it is a new one, not the old one with an older date. */
static void a_hold_after_an_ended_one_is_new(void **state)
{
	struct world *w = *state;
	char key[ID_TEXT_LEN + 1];
	struct hold h;

	new_key(w, key);
	assert_int_equal(place(w, "o", "messages", key, "short", NOW + 100, &h), LAPSE_OK);
	fake_clock_to(&w->time, NOW + 5000);
	assert_int_equal(place(w, "o", "messages", key, "again", LAPSE_NEVER, &h), LAPSE_OK);
	assert_int_equal(h.placed_at, NOW + 5000);
}

static void the_number_of_holds_is_bounded(void **state)
{
	struct world *w = *state;
	char keys[3][ID_TEXT_LEN + 1];
	struct hold h;

	w->settings.holds_max = 2;
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			place(w, "o", "messages", new_key(w, keys[i]), "r", LAPSE_NEVER, &h),
			i < 2 ? LAPSE_OK : LAPSE_ELIMIT);
	assert_int_equal(place(w, "o", "messages", keys[0], "replaced", LAPSE_NEVER, &h), LAPSE_OK);
	world_check_counters(w);
	assert_int_equal(release(w, "o", keys[0]), LAPSE_OK);
	assert_int_equal(place(w, "o", "messages", keys[2], "r", LAPSE_NEVER, &h), LAPSE_OK);
	world_check_counters(w);
}

static void the_bound_holds_within_a_transaction(void **state)
{
	struct world *w = *state;
	char keys[3][ID_TEXT_LEN + 1];
	struct problem p = { 0 };
	int results[3];
	struct tx tx;

	w->settings.holds_max = 2;
	for (int i = 0; i < 3; i++)
		new_key(w, keys[i]);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	for (int i = 0; i < 3; i++) {
		struct hold h = { .owner = "o",
				  .table = "messages",
				  .key = keys[i],
				  .reason = "r",
				  .until = LAPSE_NEVER };
		assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
		results[i] = hold_place(&tx, &h, &p);
		assert_int_equal(results[i] < 0 ? tx_step_undo(&tx) : tx_step_end(&tx), LAPSE_OK);
	}
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(results[1], LAPSE_OK);
	assert_int_equal(results[2], LAPSE_ELIMIT);
	world_check_counters(w);
}

static void note_hold(void *arg, const struct hold *h)
{
	buf_printf(arg, "%s ", h->reason);
}

static char *list(struct world *w, const char *owner, int64_t before, int64_t limit)
{
	struct buf out = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(hold_list(&tx, owner, before, limit, note_hold, &out), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return buf_take(&out);
}

static void lists_live_ones_newest_first(void **state)
{
	struct world *w = *state;
	char key[ID_TEXT_LEN + 1];
	struct hold h, b;

	assert_int_equal(place(w, "o", "messages", new_key(w, key), "a", LAPSE_NEVER, &h), 0);
	assert_int_equal(place(w, "o", "messages", new_key(w, key), "b", NOW + 5, &b), 0);
	assert_int_equal(place(w, "o", "messages", new_key(w, key), "c", LAPSE_NEVER, &h), 0);
	char *CLEANUP(mem_freep) all = list(w, "o", INT64_MAX, 10);
	assert_string_equal(all, "c b a ");
	char *CLEANUP(mem_freep) two = list(w, "o", INT64_MAX, 2);
	assert_string_equal(two, "c b ");
	char *CLEANUP(mem_freep) rest = list(w, "o", b.id, 10);
	assert_string_equal(rest, "a ");
	char *CLEANUP(mem_freep) others = list(w, "other", INT64_MAX, 10);
	assert_string_equal(others, "");
	fake_clock_to(&w->time, NOW + 5);
	char *CLEANUP(mem_freep) later = list(w, "o", INT64_MAX, 10);
	assert_string_equal(later, "c a ");
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(a_hold_is_placed_replaced_and_released),
		WORLD_TEST(only_what_exists_can_be_held),
		WORLD_TEST(a_hold_belongs_to_its_owner),
		WORLD_TEST(a_hold_ends_by_itself),
		WORLD_TEST(an_ended_hold_cannot_be_released),
		WORLD_TEST(a_hold_after_an_ended_one_is_new),
		WORLD_TEST(the_number_of_holds_is_bounded),
		WORLD_TEST(the_bound_holds_within_a_transaction),
		WORLD_TEST(lists_live_ones_newest_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
