/* SPDX-License-Identifier: Apache-2.0 */
/* The engine through the library: time, ticks, sweeps, holds, backups, events, the matrix. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib.h"

static struct seen seen;

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return world_setup(state);
}

/* Seed 000: read and more than 24 h old goes; 24 h exactly stays. */
static void test_24_hours_at_the_millisecond(void **state)
{
	struct world *w = *state;
	int64_t id = send_read(w, "bob", "read");

	send_to(w, "bob", "unread");
	world_pass(w, DAY_MS);
	assert_ok(w, lapse_message_get(w->store, "bob", id, NULL, NULL));
	assert_int_equal(swept(w, "messages", false), 0);
	assert_int_equal(count_messages(w, "bob"), 2);

	world_pass(w, 1);
	assert_error(w, lapse_message_get(w->store, "bob", id, NULL, NULL), LAPSE_EEXPIRED, "id");
	assert_int_equal(count_messages(w, "bob"), 1);
	assert_int_equal(swept(w, "messages", false), 1);
	assert_error(w, lapse_message_get(w->store, "bob", id, NULL, NULL), LAPSE_ENOTFOUND, "id");
	world_pass(w, 1000 * DAY_MS);
	assert_int_equal(swept(w, "messages", false), 0);
	assert_int_equal(count_messages(w, "bob"), 1);
}

static void test_a_dry_run_removes_nothing(void **state)
{
	struct world *w = *state;
	const struct lapse_sweep_result *result = NULL;

	for (int i = 0; i < 120; i++)
		send_read(w, "bob", "x");
	world_pass(w, DAY_MS + 1);
	assert_ok(w, lapse_sweep(w->store, "messages", true, &result));
	assert_true(result->dry_run);
	assert_int_equal(result->pruned, 120);
	assert_int_equal(result->tables_count, 1);
	assert_string_equal(result->tables[0].table, "messages");
	assert_int_equal(result->tables[0].pruned, 120);
	assert_true(result->duration_us >= 0);
	/* No other sweep that was due has used the occasion: the oldest events are still there. */
	assert_ok(w, lapse_matrix(w->store, see_bound, &seen));
	for (size_t i = 0; i < seen.count; i++)
		if (strcmp(seen.items[i].text, "events") == 0)
			assert_true(seen.items[i].id >= 120);
	assert_int_equal(swept(w, "messages", true), 120);
	assert_int_equal(swept(w, "messages", false), 120);
	assert_int_equal(swept(w, "messages", true), 0);
	assert_ok(w, lapse_sweep(w->store, "messages", false, NULL));
	assert_error(w, lapse_sweep(w->store, "nobody", false, NULL), LAPSE_ENOTFOUND, "scheduler");
	assert_error(w, lapse_sweep(w->store, NULL, false, NULL), LAPSE_ENOTFOUND, "scheduler");
}

static void test_ticks_sweep_when_it_is_time(void **state)
{
	struct world *w = *state;

	send_read(w, "bob", "x");
	tick_until_idle(w);
	assert_in_range(lapse_next_us(w->store), 1, 60000000);
	world_pass(w, DAY_MS + 1);
	assert_int_equal(lapse_next_us(w->store), 0);
	tick_until_idle(w);
	assert_int_equal(swept(w, "messages", true), 0);
	assert_ok(w, lapse_events(w->store, 0, 100, see_event, &seen));
	size_t pruned = 0;
	for (size_t i = 0; i < seen.count; i++)
		pruned += strcmp(seen.items[i].text, "message.pruned") == 0;
	assert_int_equal(pruned, 1);
	assert_true(lapse_next_us(w->store) > 0);
	world_pass(w, (lapse_next_us(w->store) + 999) / 1000);
	assert_int_equal(lapse_next_us(w->store), 0);
}

/* A wall clock that leaps while time hardly passes is not followed. */
static void test_a_leap_removes_nothing_until_it_is_accepted(void **state)
{
	struct world *w = *state;
	const struct lapse_clock_state *clock;

	send_read(w, "bob", "x");
	assert_ok(w, lapse_clock(w->store, &clock));
	assert_int_equal(clock->trusted, NOW);
	assert_false(clock->jumped);
	assert_error(w, lapse_clock_accept(w->store), LAPSE_ECONFLICT, "");
	w->wall += 365 * DAY_MS;
	assert_ok(w, lapse_clock(w->store, &clock));
	assert_true(clock->jumped);
	assert_int_equal(clock->trusted, NOW);
	assert_int_equal(clock->wall, NOW + 365 * DAY_MS);
	assert_int_equal(clock->leap_ms, 365 * DAY_MS);
	tick_until_idle(w);
	assert_int_equal(swept(w, "messages", false), 0);
	assert_int_equal(count_messages(w, "bob"), 1);
	assert_non_null(strstr(w->log, "clock.jumped"));
	assert_ok(w, lapse_clock_accept(w->store));
	assert_int_equal(count_messages(w, "bob"), 0);
	assert_int_equal(swept(w, "messages", false), 1);
}

static void test_a_clock_that_goes_back(void **state)
{
	struct world *w = *state;
	const struct lapse_clock_state *clock;
	int64_t first = send_to(w, "bob", "1");

	w->wall -= DAY_MS;
	w->mono -= 5000000; /* which it should not */
	assert_ok(w, lapse_clock(w->store, &clock));
	assert_int_equal(clock->trusted, NOW);
	assert_true(send_to(w, "bob", "2") > first);
	w->wall = INT64_MIN;
	assert_true(send_to(w, "bob", "3") > first);
	w->wall = NOW;
	world_reopen(w);
	assert_int_equal(count_messages(w, "bob"), 3);
}

static int setup_one_hand(void **state)
{
	int r = world_setup_bare(state);
	struct world *w = *state;

	memset(&seen, 0, sizeof(seen));
	w->options.mono = NULL;
	world_open(w);
	return r;
}

/* With a wall clock alone, time is what the caller says. */
static void test_a_clock_of_one_hand(void **state)
{
	struct world *w = *state;

	send_read(w, "bob", "x");
	w->wall += DAY_MS;
	assert_int_equal(swept(w, "messages", false), 0);
	w->wall += 1;
	assert_int_equal(lapse_next_us(w->store), 0);
	tick_until_idle(w);
	assert_int_equal(count_messages(w, "bob"), 0);
	w->wall -= HOUR_MS; /* back: time stands still, and goes on when it is reached again */
	assert_true(lapse_next_us(w->store) > 0);
	send_to(w, "bob", "y");
	w->wall = INT64_MAX;
	tick_until_idle(w);
	assert_int_equal(count_messages(w, "bob"), 1);
}

static int setup_machine(void **state)
{
	int r = world_setup_bare(state);
	struct world *w = *state;

	w->options.wall = NULL;
	w->options.mono = NULL;
	world_open(w);
	return r;
}

static void test_the_machines_clock(void **state)
{
	struct world *w = *state;
	const struct lapse_clock_state *clock;

	assert_ok(w, lapse_clock(w->store, &clock));
	assert_true(clock->trusted > INT64_C(1700000000000));
	assert_true(clock->trusted - clock->wall < 1000);
	tick_until_idle(w);
	send_to(w, "bob", "x");
}

static void test_a_held_message_stays(void **state)
{
	struct world *w = *state;
	int64_t id = send_read(w, "bob", "evidence");
	char key[LAPSE_ID_SIZE];

	lapse_id_format(id, key);
	assert_ok(w, lapse_hold_place(w->store, "messages", key, "an audit", LAPSE_NEVER));
	world_pass(w, DAY_MS + 1);
	assert_int_equal(swept(w, "messages", false), 0);
	assert_ok(w, lapse_hold_list(w->store, 0, 10, see_hold, &seen));
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.items[0].text, key);
	assert_int_equal(seen.items[0].at, LAPSE_NEVER);
	assert_ok(w, lapse_hold_release(w->store, "messages", key));
	assert_error(w, lapse_hold_release(w->store, "messages", key), LAPSE_ENOTFOUND, "key");
	assert_int_equal(swept(w, "messages", false), 1);
}

static void test_a_hold_with_an_end(void **state)
{
	struct world *w = *state;
	char key[LAPSE_ID_SIZE];

	lapse_id_format(send_read(w, "bob", "x"), key);
	assert_ok(w, lapse_hold_place(w->store, "messages", key, "until noon", NOW + 2 * DAY_MS));
	world_pass(w, 2 * DAY_MS - 1);
	assert_int_equal(swept(w, "messages", false), 0);
	world_pass(w, 1);
	assert_int_equal(swept(w, "messages", false), 1);
}

static void test_holds_that_are_refused(void **state)
{
	struct world *w = *state;
	char key[LAPSE_ID_SIZE];

	lapse_id_format(send_to(w, "bob", "x"), key);
	assert_error(w, lapse_hold_place(w->store, "nothing", key, "r", LAPSE_NEVER),
		     LAPSE_ENOTFOUND, "table");
	assert_error(w, lapse_hold_place(w->store, "events", key, "r", LAPSE_NEVER), LAPSE_EINVAL,
		     "table");
	assert_error(w, lapse_hold_place(w->store, "messages", "x", "r", LAPSE_NEVER),
		     LAPSE_ENOTFOUND, "key");
	assert_error(w, lapse_hold_place(w->store, "messages", NULL, "r", LAPSE_NEVER),
		     LAPSE_EINVAL, "key");
	assert_error(w, lapse_hold_place(w->store, "messages", key, "", LAPSE_NEVER), LAPSE_EINVAL,
		     "reason");
	assert_error(w, lapse_hold_place(w->store, "messages", key, NULL, LAPSE_NEVER),
		     LAPSE_EINVAL, "reason");
	assert_error(w, lapse_hold_place(w->store, "messages", key, "r", NOW), LAPSE_EINVAL,
		     "until");
	assert_error(w, lapse_hold_release(w->store, NULL, key), LAPSE_EINVAL, "table");
	assert_ok(w, lapse_hold_list(w->store, 0, 10, see_hold, &seen));
	assert_int_equal(seen.count, 0);
}

static void test_events_can_be_read_on(void **state)
{
	struct world *w = *state;
	int64_t id = send_to(w, "bob", "x");

	assert_ok(w, lapse_events(w->store, 0, 10, see_event, &seen));
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.items[0].text, "message.sent");
	assert_int_equal(seen.items[0].at, NOW);
	assert_ok(w, lapse_message_mark_read(w->store, "bob", id, LAPSE_NO_CLAIM));
	assert_ok(w, lapse_events(w->store, seen.items[0].id, 10, see_event, &seen));
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.items[1].text, "message.read");
	assert_true(seen.items[1].id > seen.items[0].id);
	assert_ok(w, lapse_set_owner(w->store, "acme"));
	assert_ok(w, lapse_events(w->store, 0, 10, see_event, &seen));
	assert_int_equal(seen.count, 2);
	assert_error(w, lapse_events(w->store, 0, 0, NULL, NULL), LAPSE_EINVAL, "limit");
}

/* One past its lifetime is not shown, swept or not. */
static void test_events_have_a_lifetime(void **state)
{
	struct world *w = *state;

	send_to(w, "bob", "x");
	world_pass(w, DAY_MS);
	assert_ok(w, lapse_events(w->store, 0, 10, see_event, &seen));
	assert_int_equal(seen.count, 1);
	world_pass(w, 1);
	assert_ok(w, lapse_events(w->store, 0, 10, see_event, &seen));
	assert_int_equal(seen.count, 1);
}

static void expect_messages_row(void *arg, const struct lapse_bound *b)
{
	if (strcmp(b->table, "messages") != 0)
		return;
	*(int *)arg += 1;
	assert_string_equal(b->scheduler, "messages");
	assert_int_equal(b->window_ms, DAY_MS);
	assert_int_equal(b->paths, LAPSE_PATH_LAZY | LAPSE_PATH_SWEEP);
	assert_int_equal(b->live_rows, 3);
	assert_int_equal(b->due_rows, 2);
	assert_int_equal(b->oldest_due_ms, 7);
	assert_int_equal(b->last_sweep, LAPSE_NEVER);
	assert_int_equal(b->pruned, 0);
	assert_true(b->safety_rule[0] && b->bounded_by[0] && b->due_when[0] && b->action[0]);
}

static void test_the_matrix(void **state)
{
	struct world *w = *state;
	int rows = 0;

	send_read(w, "bob", "1");
	send_read(w, "bob", "2");
	send_to(w, "bob", "3");
	world_pass(w, DAY_MS + 7);
	assert_ok(w, lapse_matrix(w->store, expect_messages_row, &rows));
	assert_int_equal(rows, 1);
	assert_ok(w, lapse_matrix(w->store, NULL, NULL));
}

static int setup_two_backups(void **state)
{
	static const struct lapse_setting settings[] = { { "backup_keep", "2" } };
	int r = world_setup_bare(state);
	struct world *w = *state;

	w->options.settings = settings;
	w->options.settings_count = 1;
	world_open(w);
	return r;
}

static bool is_there(const struct world *w, const char *name)
{
	char path[2 * PATH_SIZE + 2];

	snprintf(path, sizeof(path), "%s/%.128s", w->dir, name);
	return access(path, R_OK) == 0;
}

/* Surplus backups are deletions outside the store: a tick carries them out. */
static void test_backups(void **state)
{
	struct world *w = *state;
	const struct lapse_backup_file *file;
	char names[3][PATH_SIZE];

	send_to(w, "bob", "x");
	for (int i = 0; i < 3; i++) {
		assert_ok(w, lapse_backup(w->store, &file));
		assert_true(file->bytes > 0);
		assert_int_equal(file->created_at, w->wall);
		snprintf(names[i], PATH_SIZE, "%s", file->name);
		assert_true(is_there(w, names[i]));
		world_pass(w, 1000);
	}
	assert_true(is_there(w, names[0]));
	assert_int_equal(lapse_next_us(w->store), 0);
	tick_until_idle(w);
	assert_false(is_there(w, names[0]));
	assert_true(is_there(w, names[1]) && is_there(w, names[2]));
	assert_ok(w, lapse_backup(w->store, NULL));
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD(test_24_hours_at_the_millisecond),
		WORLD(test_a_dry_run_removes_nothing),
		WORLD(test_ticks_sweep_when_it_is_time),
		WORLD(test_a_leap_removes_nothing_until_it_is_accepted),
		WORLD(test_a_clock_that_goes_back),
		cmocka_unit_test_setup_teardown(test_a_clock_of_one_hand, setup_one_hand,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_the_machines_clock, setup_machine,
						world_teardown),
		WORLD(test_a_held_message_stays),
		WORLD(test_a_hold_with_an_end),
		WORLD(test_holds_that_are_refused),
		WORLD(test_events_can_be_read_on),
		WORLD(test_events_have_a_lifetime),
		WORLD(test_the_matrix),
		cmocka_unit_test_setup_teardown(test_backups, setup_two_backups, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
