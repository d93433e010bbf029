/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps: what goes and what stays, in slices, dry runs, and what comes in between. */
#include <inttypes.h>
#include <string.h>

#include "engine/hold.h"
#include "unit.h"

#define DAY INT64_C(86400000)

/* Seed 000, through the store: exactly the ttl stays, a millisecond more goes, unread never. */
static void the_boundary_is_exact(void **state)
{
	static const struct {
		lapse_ms age;
		bool read, stays;
	} cases[] = {
		/* oldest first */
		{ 500 * DAY, false, true },
		{ 2 * DAY, false, true },
		{ 25 * DAY / 24, true, false },
		{ DAY + 1, true, false },
		{ DAY + 1, false, true },
		{ DAY, true, true },
		{ DAY - 1, true, true },
		{ DAY / 24, true, true },
		{ 0, true, true },
	};
	struct world *w = *state;
	int64_t ids[ARRAY_LEN(cases)];
	struct sweep sweep;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		fake_clock_to(&w->time, NOW + 500 * DAY - cases[i].age);
		ids[i] = send_message(w, "o", "agent-42");
		if (cases[i].read)
			read_message(w, "o", "agent-42", ids[i]);
	}
	run_sweep(w, "messages", false, &sweep);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (message_exists(w, ids[i]) != cases[i].stays)
			fail_msg("case %zu", i);
	assert_int_equal(sweep.total, 2);
	assert_int_equal(w->engine.matrix.bounds[0]->pruned, 2);
	world_check_counters(w);
	fake_clock_advance(&w->time, 1);
	run_sweep(w, "messages", false, &sweep);
	assert_int_equal(sweep.total, 1);
	assert_false(message_exists(w, ids[5]));
}

static void a_sweep_says_what_it_did(void **state)
{
	struct world *w = *state;
	struct sweep sweep;

	send_read_message(w, "alpha", "a");
	send_read_message(w, "alpha", "b");
	send_read_message(w, "beta", "a");
	fake_clock_advance(&w->time, DAY + 5);
	run_sweep(w, "messages", false, &sweep);
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'message.pruned'"),
			 2);
	char *CLEANUP(mem_freep) data = side_text(
		w, "SELECT data FROM events WHERE kind = 'message.pruned' AND owner = 'alpha'");
	assert_string_equal(data, "{\"table\":\"messages\",\"count\":2,"
				  "\"oldest\":\"2027-01-15T08:00:00.000Z\","
				  "\"reason\":\"read and older than message_ttl_ms\"}");
	assert_int_equal(side_int(w, "SELECT count(*) FROM inboxes"), 0);
	assert_int_equal(w->engine.expiry_lag.counts[1], 3); /* 5 ms after the deadline */
}

/* A message read long after its day is only late from the moment it was read. */
static void lag_counts_from_the_reading(void **state)
{
	struct world *w = *state;
	struct sweep sweep;

	int64_t id = send_message(w, "o", "a");
	fake_clock_advance(&w->time, 10 * DAY);
	read_message(w, "o", "a", id);
	fake_clock_advance(&w->time, 1);
	run_sweep(w, "messages", false, &sweep);
	assert_int_equal(sweep.total, 1);
	assert_int_equal(w->engine.expiry_lag.counts[0], 1);
}

static void holds_protect_until_they_end(void **state)
{
	struct world *w = *state;
	struct sweep sweep;

	int64_t held = send_read_message(w, "o", "a");
	int64_t until = send_read_message(w, "o", "a");
	int64_t ended = send_read_message(w, "o", "a");
	int64_t plain = send_read_message(w, "o", "a");
	lapse_ms later = NOW + DAY + 1000;
	hold_message(w, "o", held, LAPSE_NEVER);
	hold_message(w, "o", until, later + 1);
	hold_message(w, "o", ended, later);
	fake_clock_to(&w->time, later);
	run_sweep(w, "messages", false, &sweep);
	assert_true(message_exists(w, held));
	assert_true(message_exists(w, until));
	assert_false(message_exists(w, ended));
	assert_false(message_exists(w, plain));
	fake_clock_to(&w->time, later + 1);
	run_sweep(w, "messages", false, &sweep);
	assert_false(message_exists(w, until));
	fake_clock_advance(&w->time, 1000 * DAY);
	run_sweep(w, "messages", false, &sweep);
	assert_true(message_exists(w, held));
	world_check_counters(w);
}

/* Slices */

static void a_large_prune_takes_several_slices(void **state)
{
	struct world *w = *state;
	struct sweep sweep;
	bool more = true;
	int slices = 0;

	make_read_messages(w, 2000, NOW - 2 * DAY);
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 600;
	sweep_init(&sweep, &w->engine, schedule_find(&w->engine, "messages"), false);
	for (; more; slices++) {
		assert_int_equal(sweep_slice(&sweep, &more), LAPSE_OK);
		assert_false(db_in_transaction(w->engine.db));
		send_message(w, "o", "meanwhile"); /* others commit in between */
		world_check_counters(w);
	}
	assert_in_range(slices, 5, 60);
	assert_int_equal(sweep.total, 2000);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages"), slices);
}

static void a_generous_budget_needs_one_slice(void **state)
{
	struct world *w = *state;
	struct sweep sweep;

	make_read_messages(w, 1000, NOW - 2 * DAY);
	w->settings.sweep_budget_ms = 1000;
	assert_int_equal(run_sweep(w, "messages", false, &sweep), 1);
	assert_int_equal(sweep.total, 1000);
}

/* The batch sizes around which a sweep could forget or repeat rows, real and dry. */
static void every_size_is_swept_whole(void **state)
{
	static const int64_t sizes[] = { 0, 1, 49, 50, 51, 100, 101 };
	struct world *w = *state;
	struct sweep sweep;

	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 2000;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		if (sizes[i])
			make_read_messages(w, sizes[i], NOW - 2 * DAY);
		run_sweep(w, "messages", true, &sweep);
		assert_int_equal(sweep.total, sizes[i]);
		run_sweep(w, "messages", false, &sweep);
		assert_int_equal(sweep.total, sizes[i]);
		assert_int_equal(side_int(w, "SELECT count(*) FROM messages"), 0);
		world_check_counters(w);
	}
}

/* What stops being due between two slices is kept. */
static void a_change_between_slices_wins(void **state)
{
	struct world *w = *state;
	struct sweep sweep;
	bool more = true;

	make_read_messages(w, 1000, NOW - 2 * DAY);
	int64_t last = side_int(w, "SELECT max(id) FROM messages");
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 2000;
	sweep_init(&sweep, &w->engine, schedule_find(&w->engine, "messages"), false);
	assert_int_equal(sweep_slice(&sweep, &more), LAPSE_OK);
	assert_true(more);
	side_run(w, "UPDATE messages SET read = 0 WHERE id = %" PRId64, last);
	side_run(w, "UPDATE messages SET timestamp = %" PRId64 " WHERE id = %" PRId64, NOW,
		 last - 1);
	side_run(w,
		 "INSERT INTO holds VALUES (1, 'o0', 'messages', 'k', %" PRId64 ", 'r', %" PRId64
		 ", 1)",
		 last - 2, NOW + DAY);
	while (more)
		assert_int_equal(sweep_slice(&sweep, &more), LAPSE_OK);
	assert_int_equal(sweep.total, 997);
	for (int i = 0; i < 3; i++)
		assert_true(message_exists(w, last - i));
}

/* Messages that become due while a sweep is under way are the next one's: a sweep ends. */
static void a_sweep_judges_by_its_start(void **state)
{
	struct world *w = *state;
	struct sweep sweep;
	bool more = true;

	make_read_messages(w, 500, NOW - 2 * DAY);
	int64_t fresh = send_read_message(w, "o", "a");
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 2000;
	sweep_init(&sweep, &w->engine, schedule_find(&w->engine, "messages"), false);
	assert_int_equal(sweep_slice(&sweep, &more), LAPSE_OK);
	fake_clock_advance(&w->time, 2 * DAY);
	while (more)
		assert_int_equal(sweep_slice(&sweep, &more), LAPSE_OK);
	assert_true(message_exists(w, fresh));
	assert_int_equal(sweep.total, 500);
}

static void a_failed_slice_removes_nothing(void **state)
{
	struct world *w = *state;
	struct sweep sweep;
	bool more;

	make_read_messages(w, 300, NOW - 2 * DAY);
	assert_int_equal(db_script(w->engine.db, "PRAGMA query_only=ON"), LAPSE_OK);
	sweep_init(&sweep, &w->engine, schedule_find(&w->engine, "messages"), false);
	assert_true(sweep_slice(&sweep, &more) < 0);
	assert_int_equal(db_script(w->engine.db, "PRAGMA query_only=OFF"), LAPSE_OK);
	assert_int_equal(sweep.total, 0);
	assert_int_equal(w->engine.matrix.bounds[0]->pruned, 0);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages"), 300);
	world_check_counters(w);
}

/* Dry runs */

static void a_dry_run_counts_and_changes_nothing(void **state)
{
	struct world *w = *state;
	struct sweep dry, real;

	make_read_messages(w, 1234, NOW - 2 * DAY);
	for (int i = 0; i < 20; i++)
		send_read_message(w, "o", "young");
	hold_message(w, "o0", side_int(w, "SELECT min(id) FROM messages WHERE owner = 'o0'"),
		     LAPSE_NEVER);
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 2000;
	char *CLEANUP(mem_freep) before = world_dump(w, NULL);
	assert_true(run_sweep(w, "messages", true, &dry) > 3);
	char *CLEANUP(mem_freep) after = world_dump(w, NULL);
	assert_string_equal(before, after);
	assert_int_equal(dry.total, 1233);
	assert_int_equal(w->engine.matrix.bounds[0]->swept, 1233);
	assert_int_equal(w->engine.matrix.bounds[0]->pruned, 0);
	assert_int_equal(w->engine.expiry_lag.sum, 0);
	world_check_counters(w);
	run_sweep(w, "messages", false, &real);
	assert_int_equal(real.total, dry.total);
	assert_int_equal(w->engine.matrix.bounds[0]->swept, 1233);
}

/* Housekeeping: lapse's own tables are bounded by the same path. */

static void housekeeping_bounds_lapses_own_tables(void **state)
{
	static const struct {
		const char *table, *insert; /* one row with its time as the only argument */
		lapse_ms window;
		bool kept_at_edge;
	} cases[] = {
		{ "events",
		  "INSERT INTO events VALUES (%" PRId64 " << 21, %" PRId64 ", 'o', 'k', '{}')", DAY,
		  true },
		{ "sweeps",
		  "INSERT INTO sweeps VALUES (%" PRId64 " << 21, 's', 1, %" PRId64 ", 0, 0, '')",
		  7 * DAY, true },
		{ "idempotency_keys",
		  "INSERT INTO idempotency_keys VALUES (%" PRId64
		  " << 21, 'o', hex(randomblob(8)), 'r', 200, '', %" PRId64 ")",
		  DAY, true },
		{ "tokens",
		  "INSERT INTO tokens (id, prefix, hash, owner, admin, created_at, expires_at) "
		  "VALUES (%" PRId64 " << 21, hex(randomblob(8)), 'h', 'o', 0, 1, %" PRId64 ")",
		  0, true },
		{ "holds",
		  "INSERT INTO holds VALUES (%" PRId64
		  " << 21, 'o', 'messages', hex(randomblob(8)), 1, 'r', %" PRId64 ", 1)",
		  0, true },
	};
	struct world *w = *state;
	struct sweep sweep;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		lapse_ms edge = NOW - cases[i].window;
		const lapse_ms times[] = { edge - 1, edge, edge + 1 };
		for (size_t k = 0; k < ARRAY_LEN(times); k++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
			side_run(w, cases[i].insert, times[k] - 2,
				 times[k]); /* no id is made ahead of time */
#pragma GCC diagnostic pop
		}
		side_run(w, "UPDATE counts SET live = 3 WHERE tbl = '%s'", cases[i].table);
	}
	world_reopen(w);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(sweep.total, ARRAY_LEN(cases));
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (strcmp(cases[i].table, "events") == 0)
			continue; /* the sweep's own are there too */
		if (side_int(w, "SELECT count(*) FROM %s", cases[i].table) != 2)
			fail_msg("%s", cases[i].table);
	}
	assert_int_equal(side_int(w, "SELECT count(*) FROM events WHERE kind = 'k'"), 2);
	world_check_counters(w);
}

static void a_restored_store_has_its_grace(void **state)
{
	struct world *w = *state;
	struct sweep sweep;

	int64_t id = send_read_message(w, "o", "a");
	side_run(w, "INSERT INTO meta VALUES ('restored_at', %" PRId64 ")", NOW + 100 * DAY);
	fake_clock_advance(&w->time, 100 * DAY);
	world_reopen(w);
	run_sweep(w, "messages", false, &sweep);
	assert_int_equal(sweep.total, 0);
	fake_clock_advance(&w->time, DAY - 1);
	run_sweep(w, "messages", false, &sweep);
	run_sweep(w, "messages", true, &sweep);
	assert_int_equal(sweep.total, 0);
	assert_true(message_exists(w, id));
	fake_clock_advance(&w->time, 1);
	run_sweep(w, "messages", false, &sweep);
	assert_int_equal(sweep.total, 1);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(the_boundary_is_exact),
		WORLD_TEST(a_sweep_says_what_it_did),
		WORLD_TEST(lag_counts_from_the_reading),
		WORLD_TEST(holds_protect_until_they_end),
		WORLD_TEST(a_large_prune_takes_several_slices),
		WORLD_TEST(a_generous_budget_needs_one_slice),
		WORLD_TEST(every_size_is_swept_whole),
		WORLD_TEST(a_change_between_slices_wins),
		WORLD_TEST(a_sweep_judges_by_its_start),
		WORLD_TEST(a_failed_slice_removes_nothing),
		WORLD_TEST(a_dry_run_counts_and_changes_nothing),
		WORLD_TEST(housekeeping_bounds_lapses_own_tables),
		WORLD_TEST(a_restored_store_has_its_grace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
