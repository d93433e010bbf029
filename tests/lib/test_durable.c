/* SPDX-License-Identifier: Apache-2.0 */
/* What a call has written is there after it, however the process ends. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib.h"

static void test_across_close_and_open(void **state)
{
	struct world *w = *state;
	int64_t id = send_read(w, "bob", "kept");
	char key[LAPSE_ID_SIZE];

	send_to(w, "bob", "unread");
	lapse_id_format(id, key);
	assert_ok(w, lapse_hold_place(w->store, "messages", key, "r", LAPSE_NEVER));
	world_reopen(w);
	assert_int_equal(count_messages(w, "bob"), 2);
	world_pass(w, DAY_MS + 1);
	assert_int_equal(swept(w, "messages", false), 0);
	assert_ok(w, lapse_hold_release(w->store, "messages", key));
	assert_int_equal(swept(w, "messages", false), 1);
	world_reopen(w);
	assert_int_equal(swept(w, "messages", true), 0);
	assert_true(send_to(w, "bob", "later") > id);
}

/* A child writes, tells us the ids and ends without a word; its ids are in the pipe only once the
 * call has returned. */
static void write_and_die(struct world *w, int out)
{
	int64_t ids[20], claim = 0;

	world_open(w);
	for (int i = 0; i < 20; i++) {
		ids[i] = send_to(w, "bob", "x");
		if (i == 10)
			assert_ok(w, lapse_message_claim(w->store, "bob", 2, HOUR_MS, NULL, NULL,
							 &claim));
	}
	assert_ok(w, lapse_message_mark_read(w->store, "bob", ids[0], claim));
	if (write(out, ids, sizeof(ids)) != (ssize_t)sizeof(ids))
		_exit(1);
	_exit(0);
}

static void test_after_an_exit_without_close(void **state)
{
	struct world *w = *state;
	static struct seen seen;
	int64_t ids[20], claim = 0;
	int pipes[2], status;

	assert_int_equal(pipe(pipes), 0);
	pid_t pid = fork();
	if (pid == 0)
		write_and_die(w, pipes[1]);
	assert_true(pid > 0);
	assert_int_equal(read(pipes[0], ids, sizeof(ids)), sizeof(ids));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pipes[0]);
	close(pipes[1]);

	world_open(w);
	assert_int_equal(count_messages(w, "bob"), 20);
	assert_ok(w, lapse_message_list(w->store, "bob", true, 0, 100, see_message, &seen));
	assert_int_equal(seen.count, 19);
	assert_int_equal(seen.items[18].id, ids[1]);
	/* The lease of ids[1] holds: ids[2] is the first that is offered. */
	seen.count = 0;
	assert_ok(w, lapse_message_claim(w->store, "bob", 1, 1000, see_message, &seen, &claim));
	assert_int_equal(seen.items[0].id, ids[2]);
}

/* Trusted time does not go back over a restart: what was due stays due. */
static void test_time_goes_on_after_a_restart(void **state)
{
	struct world *w = *state;

	send_read(w, "bob", "x");
	world_pass(w, DAY_MS + 1);
	assert_ok(w, lapse_tick(w->store)); /* stores the high-water mark */
	w->wall = NOW;
	world_reopen(w);
	assert_int_equal(count_messages(w, "bob"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_across_close_and_open, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_after_an_exit_without_close, world_setup_bare,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_time_goes_on_after_a_restart, world_setup,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
