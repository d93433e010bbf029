/* SPDX-License-Identifier: Apache-2.0 */
/* A store that fails: somebody else's tool holds the write lock of the file. Calls say so, change
 * nothing, and work again once it is back. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "lib.h"

static sqlite3 *tool;

static void store_fails(struct world *w)
{
	char path[PATH_SIZE + 16];

	snprintf(path, sizeof(path), "%s/lapse.db", w->dir);
	assert_int_equal(sqlite3_open(path, &tool), SQLITE_OK);
	assert_int_equal(sqlite3_exec(tool, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
}

static void store_is_back(void)
{
	sqlite3_close(tool);
}

static void test_a_write_that_finds_the_store_locked(void **state)
{
	struct world *w = *state;
	struct lapse_draft d = { .to = "bob", .from = "alice", .content = "x" };
	int64_t claim = 42, id = 42;

	send_to(w, "bob", "before");
	store_fails(w);
	assert_error(w, lapse_message_send(w->store, &d, &id), LAPSE_ERETRY, "");
	assert_non_null(strstr(lapse_error_message(w->store), "locked"));
	assert_error(w, lapse_message_claim(w->store, "bob", 1, 1, NULL, NULL, &claim),
		     LAPSE_ERETRY, "");
	assert_int_equal(id, 42);
	assert_int_equal(claim, 42);
	assert_int_equal(count_messages(w, "bob"), 1); /* reads go on */
	store_is_back();
	assert_ok(w, lapse_message_send(w->store, &d, &id));
	assert_int_equal(count_messages(w, "bob"), 2);
}

static void test_a_tick_and_a_sweep_that_fail(void **state)
{
	struct world *w = *state;
	const struct lapse_sweep_result *result = NULL;

	send_read(w, "bob", "x");
	tick_until_idle(w);
	world_pass(w, DAY_MS + 1);
	store_fails(w);
	assert_error(w, lapse_tick(w->store), LAPSE_EUNAVAILABLE, "");
	assert_error(w, lapse_sweep(w->store, "messages", false, &result), LAPSE_ERETRY, "");
	assert_null(result);
	assert_non_null(strstr(w->log, "messages.lifecycle_tick_failed"));
	store_is_back();
	assert_ok(w, lapse_tick(w->store));
	assert_int_equal(swept(w, "messages", false), 1);
}

static void see_expired(void *arg, const struct lapse_mailbox *m)
{
	*(int *)arg += m->expired ? 1 : 100;
}

/* A look that should end a mailbox and cannot is an error: it is never shown as live. */
static void test_a_look_at_a_due_mailbox(void **state)
{
	struct world *w = *state;
	static struct seen holds;
	const lapse_ms ttl = HOUR_MS;
	int shown = 0;

	assert_ok(w, lapse_mailbox_create(w->store, "alice", NULL, ttl, NULL, NULL));
	world_pass(w, ttl + 1);
	store_fails(w);
	assert_error(w, lapse_mailbox_create(w->store, "bob", NULL, ttl, NULL, NULL), LAPSE_ERETRY,
		     "");
	assert_error(w, lapse_mailbox_list(w->store, true, NULL, 10, see_expired, &shown),
		     LAPSE_ERETRY, "");
	assert_int_equal(shown, 0);
	assert_ok(w, lapse_hold_list(w->store, 0, 1, see_hold, &holds)); /* the store is usable */
	store_is_back();
	assert_ok(w, lapse_mailbox_list(w->store, true, NULL, 10, see_expired, &shown));
	assert_int_equal(shown, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_write_that_finds_the_store_locked,
						world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_a_tick_and_a_sweep_that_fail, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_a_look_at_a_due_mailbox, world_setup,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
