/* SPDX-License-Identifier: Apache-2.0 */
/* Every interval and limit that a seed names, exactly as it is by default: the numbers themselves,
 * and what the schedulers do by their own timers, whose clock the test moves. */
#include <stdio.h>

#include "unit.h"

/* Seeds 000 to 003, word for word. */
static void the_numbers_of_the_seeds(void **state)
{
	struct settings CLEANUP(settings_done) s;

	(void)state;
	settings_init(&s);
	assert_int_equal(s.message_ttl_ms, 86400000);
	assert_int_equal(s.message_sweep_ms, 60000);
	assert_int_equal(s.agent_evict_after_ms, 90000);
	assert_int_equal(s.agent_sweep_ms, 30000);
	assert_int_equal(s.agent_breaker_percent, 50);
	assert_int_equal(s.agent_breaker_min, 100);
	assert_int_equal(s.mailbox_default_ttl_ms, 86400000);
	assert_int_equal(s.mailbox_min_ttl_ms, 300000);
	assert_int_equal(s.mailbox_max_ttl_ms, 604800000);
	assert_int_equal(s.mailbox_sweep_ms, 300000);
	assert_int_equal(s.mailbox_sweep_batch, 50);
	assert_int_equal(s.mailbox_cleanup_max_retries, 3);
	assert_int_equal(s.mailbox_keep_expired_ms, INT64_C(30) * 86400000);
	assert_int_equal(s.attachment_ttl_ms, 86400000);
	assert_int_equal(s.attachment_sweep_ms, 60000);
	assert_false(s.attachment_sweep_at_start);
	assert_int_equal(s.table_sweep_ms, 300000);
	assert_int_equal(s.outbox_sweep_ms, 300000);
	assert_int_equal(s.outbox_keep_ms, 24 * 3600 * 1000);
	assert_int_equal(s.channel_keep_ms, 7 * 24 * 3600 * 1000);
	assert_int_equal(s.dedupe_window_ms, 24 * 3600 * 1000);
	assert_int_equal(s.presence_entries_max, 500);
	assert_int_equal(s.cleanup_max_attempts, 3);
}

static int64_t sweeps_of(struct world *w, const char *scheduler)
{
	return side_int(w, "SELECT count(*) FROM sweeps WHERE scheduler = '%s'", scheduler);
}

static void pass(struct world *w, lapse_ms ms)
{
	fake_clock_advance(&w->time, ms);
	tick_until_idle(w);
}

static const struct {
	const char *scheduler;
	lapse_ms interval;
} TIMERS[] = {
	{ "messages", 60000 },    { "agents", 30000 },      { "mailboxes", 300000 },
	{ "attachments", 60000 }, { "statestore", 300000 }, { "outbox", 300000 },
};

/* No sweep at the start, one at the interval and not a millisecond before, counted from the end of
 * the last one. */
static void every_timer_fires_at_its_interval(void **state)
{
	struct world *w = *state;

	tick_until_idle(w);
	for (size_t i = 0; i < ARRAY_LEN(TIMERS); i++)
		assert_int_equal(sweeps_of(w, TIMERS[i].scheduler), 0);
	lapse_ms began = w->time.wall;
	for (lapse_ms at = 30000; at <= 600000; at += 30000) {
		pass(w, began + at - 1 - w->time.wall);
		for (size_t i = 0; i < ARRAY_LEN(TIMERS); i++)
			assert_int_equal(sweeps_of(w, TIMERS[i].scheduler),
					 (at - 1) / TIMERS[i].interval);
		pass(w, 1);
		for (size_t i = 0; i < ARRAY_LEN(TIMERS); i++)
			assert_int_equal(sweeps_of(w, TIMERS[i].scheduler),
					 at / TIMERS[i].interval);
	}
}

/* Mailboxes that are due, behind the back of the deadlines: only the timer's sweep finds them. */
static void add_due_mailboxes(struct world *w, int n)
{
	side_run(w,
		 "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d) "
		 "INSERT INTO mailboxes (id, owner, address, username, domain, status, provider, "
		 "stalwart_name, stalwart_account, secret, "
		 "created_at, expires_at) SELECT i, 'local', 'b' || i || '@x', 'b' || i, 'x', "
		 "'active', 'local', '', '', '', %lld, %lld FROM c",
		 n, (long long)NOW - 1000, (long long)NOW - 1);
}

static int64_t expired(struct world *w)
{
	return side_int(w, "SELECT count(*) FROM mailboxes WHERE status = 'expired'");
}

static void the_mailbox_timer_expires_fifty_at_a_time(void **state)
{
	struct world *w = *state;

	tick_until_idle(w);
	add_due_mailboxes(w, 120);
	pass(w, 299999);
	assert_int_equal(expired(w), 0);
	pass(w, 1);
	assert_int_equal(expired(w), 50);
	pass(w, 300000);
	assert_int_equal(expired(w), 100);
	pass(w, 300000);
	assert_int_equal(expired(w), 120);
}

/* Failed deletions of accounts wait for a sweep, the timer's too; it takes ten. Theirs are of
 * mailboxes that are gone, so each attempt succeeds. */
static void the_mailbox_timer_retries_ten_deletions(void **state)
{
	struct world *w = *state;

	tick_until_idle(w);
	side_run(w,
		 "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 15) "
		 "INSERT INTO cleanups (id, owner, kind, target, state, attempts, next_at, "
		 "created_at, error) SELECT i, 'local', 'mailbox', printf('mbx_%%016x', i), 1, 1, "
		 "9223372036854775807, %lld, 'down' FROM c",
		 (long long)NOW);
	pass(w, 299999);
	assert_int_equal(side_int(w, "SELECT count(*) FROM cleanups"), 15);
	pass(w, 1);
	assert_int_equal(side_int(w, "SELECT count(*) FROM cleanups"), 5);
	pass(w, 300000);
	assert_int_equal(side_int(w, "SELECT count(*) FROM cleanups"), 0);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_numbers_of_the_seeds),
		WORLD_TEST(every_timer_fires_at_its_interval),
		WORLD_TEST(the_mailbox_timer_expires_fifty_at_a_time),
		WORLD_TEST(the_mailbox_timer_retries_ten_deletions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
