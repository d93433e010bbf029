/* SPDX-License-Identifier: Apache-2.0 */
/* Effects run after the commit, in order, and are dropped with what they belong to. */
#include <string.h>

#include "unit.h"

static char ran[16]; /* what ran, one letter an effect */
static bool in_transaction;

static void note(struct engine *e, void *arg)
{
	strncat(ran, arg, sizeof(ran) - strlen(ran) - 1);
	in_transaction = in_transaction || db_in_transaction(e->db);
}

static void effect(struct tx *tx, const char *letter)
{
	tx_effect(tx, note, arena_strdup(&tx->arena, letter));
}

static int setup(void **state)
{
	memset(ran, 0, sizeof(ran));
	in_transaction = false;
	return world_setup(state);
}

static struct tx *begin(struct world *w, struct tx *tx)
{
	assert_int_equal(tx_begin(tx, &w->engine), LAPSE_OK);
	assert_int_equal(tx->now, w->time.wall);
	return tx;
}

static void effects_run_after_the_commit_in_order(void **state)
{
	struct tx tx;

	begin(*state, &tx);
	effect(&tx, "a");
	effect(&tx, "b");
	effect(&tx, "c");
	assert_string_equal(ran, "");
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(ran, "abc");
	assert_false(in_transaction);
}

/* Those that need not be durable, at the commit; dropped like all others. */
static void early_effects_run_before_the_sync(void **state)
{
	struct tx tx;

	begin(*state, &tx);
	effect(&tx, "a");
	tx_effect_early(&tx, note, arena_strdup(&tx.arena, "b"));
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	tx_effect_early(&tx, note, arena_strdup(&tx.arena, "x"));
	assert_int_equal(tx_step_undo(&tx), LAPSE_OK);
	tx_effect_early(&tx, note, arena_strdup(&tx.arena, "c"));
	assert_string_equal(ran, "");
	assert_int_equal(tx_commit_start(&tx), LAPSE_OK);
	assert_string_equal(ran, "bc");
	tx_commit_finish(&tx);
	assert_string_equal(ran, "bca");
	begin(*state, &tx);
	tx_effect_early(&tx, note, arena_strdup(&tx.arena, "y"));
	tx_rollback(&tx);
	assert_string_equal(ran, "bca");
	assert_false(in_transaction);
}

static void a_rollback_drops_them(void **state)
{
	struct world *w = *state;
	struct tx tx;

	begin(w, &tx);
	effect(&tx, "a");
	tx_count(&tx, &MESSAGE_BOUND, 5);
	tx_rollback(&tx);
	assert_string_equal(ran, "");
	world_check_counters(w);
	begin(w, &tx);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(ran, "");
}

static void an_undone_step_drops_its_own(void **state)
{
	struct world *w = *state;
	struct tx tx;

	begin(w, &tx);
	effect(&tx, "a");
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	effect(&tx, "b");
	assert_int_equal(tx_step_end(&tx), LAPSE_OK);
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	effect(&tx, "c");
	effect(&tx, "d");
	assert_int_equal(tx_step_undo(&tx), LAPSE_OK);
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	effect(&tx, "e");
	assert_int_equal(tx_step_end(&tx), LAPSE_OK);
	effect(&tx, "f");
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(ran, "abef");
}

static void a_first_step_undone_leaves_none(void **state)
{
	struct tx tx;

	begin(*state, &tx);
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	effect(&tx, "a");
	assert_int_equal(tx_step_undo(&tx), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_string_equal(ran, "");
}

/* The rows, the counts table and the engine's numbers go the same way. */
static void live_counts_follow(void **state)
{
	struct world *w = *state;
	struct message m = {
		.to = "a", .from = "f", .content = "c", .type = "t", .metadata = "{}"
	};
	struct problem p = { 0 };
	struct tx tx;

	begin(w, &tx);
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	assert_int_equal(send_one(&tx, "o", &m, &p), LAPSE_OK);
	assert_int_equal(tx_step_end(&tx), LAPSE_OK);
	assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
	assert_int_equal(send_one(&tx, "o", &m, &p), LAPSE_OK);
	assert_int_equal(tx_step_undo(&tx), LAPSE_OK);
	assert_int_equal(w->engine.matrix.bounds[0]->live, 0);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(w->engine.matrix.bounds[0]->live, 1);
	world_check_counters(w);
	world_reopen(w);
	assert_int_equal(w->engine.matrix.bounds[0]->live, 1);
}

static void a_failed_commit_undoes_everything(void **state)
{
	struct world *w = *state;
	struct message m = {
		.to = "a", .from = "f", .content = "c", .type = "t", .metadata = "{}"
	};
	struct problem p = { 0 };
	struct tx tx;

	begin(w, &tx);
	assert_int_equal(send_one(&tx, "o", &m, &p), LAPSE_OK);
	effect(&tx, "a");
	assert_int_equal(db_script(tx.db, "PRAGMA query_only=ON"), LAPSE_OK);
	assert_true(tx_commit(&tx) < 0);
	assert_int_equal(db_script(w->engine.db, "PRAGMA query_only=OFF"), LAPSE_OK);
	assert_string_equal(ran, "");
	assert_false(db_in_transaction(w->engine.db));
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages"), 0);
	world_check_counters(w);
}

static void a_refused_begin_can_be_rolled_back(void **state)
{
	struct world *w = *state;
	struct tx tx;

	store_fails(w);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_ERETRY);
	tx_rollback(&tx);
	store_is_back(w);
	begin(w, &tx);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

static void reads_see_one_state_and_write_nothing(void **state)
{
	struct world *w = *state;
	static const struct db_stmt count = { "SELECT count(*) FROM messages" };
	uint64_t commits = w->engine.commit_seconds.counts[0];
	struct tx tx;

	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	for (int i = 0; i < 2; i++) {
		struct db_query CLEANUP(db_finish) q = db_query(tx.db, &count);
		assert_int_equal(db_step(&q), 1);
		assert_int_equal(db_int(&q, 0), 0);
		side_run(w,
			 "INSERT INTO messages VALUES (%d, 0, NULL, NULL, NULL, 0, 1, 'o', 'a', "
			 "'s', 't', '{}', 'c', 101)",
			 i + 1);
	}
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(w->engine.commit_seconds.counts[0], commits);
}

#define TX_TEST(f) cmocka_unit_test_setup_teardown(f, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TX_TEST(effects_run_after_the_commit_in_order),
		TX_TEST(early_effects_run_before_the_sync),
		TX_TEST(a_rollback_drops_them),
		TX_TEST(an_undone_step_drops_its_own),
		TX_TEST(a_first_step_undone_leaves_none),
		TX_TEST(live_counts_follow),
		TX_TEST(a_failed_commit_undoes_everything),
		TX_TEST(a_refused_begin_can_be_rolled_back),
		TX_TEST(reads_see_one_state_and_write_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
