/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a key: who is woken, when, and once. */
#include <stdio.h>
#include <string.h>

#include "api/state.h"
#include "unit.h"

struct sleeper {
	struct waiter waiter;
	struct waits *waits;
	int woken, order;
	const char *again;      /* waits for this key when woken */
	struct sleeper *leaves; /* takes this one out when woken */
};

static int order;

static void wake(struct waiter *w)
{
	struct sleeper *s = CONTAINER_OF(w, struct sleeper, waiter);

	s->woken++;
	s->order = ++order;
	if (s->again)
		wait_add(s->waits, s->again, LAPSE_NEVER, &s->waiter);
	if (s->leaves)
		wait_remove(s->waits, &s->leaves->waiter);
}

static void add_until(struct waits *w, const char *key, lapse_us until, struct sleeper *s)
{
	*s = (struct sleeper){ .waits = w, .waiter = { .wake = wake } };
	list_init(&s->waiter.link);
	wait_add(w, key, until, &s->waiter);
}

static void add(struct waits *w, const char *key, struct sleeper *s)
{
	add_until(w, key, LAPSE_NEVER, s);
}

static void a_key_wakes_its_own_in_order(void **state)
{
	struct sleeper a, b, c;
	struct waits w;

	(void)state;
	waits_init(&w);
	order = 0;
	add(&w, "k", &a);
	add(&w, "other", &b);
	add(&w, "k", &c);
	wait_wake(&w, "nobody");
	wait_wake(&w, "k");
	assert_int_equal(a.order, 1);
	assert_int_equal(c.order, 2);
	assert_int_equal(b.woken, 0);
	wait_wake(&w, "k");
	assert_int_equal(a.woken, 1);
	wait_wake(&w, "other");
	assert_int_equal(b.woken, 1);
	assert_int_equal(w.keys.count, 0);
	waits_done(&w);
}

static void who_leaves_is_not_woken(void **state)
{
	struct sleeper a, b;
	struct waits w;

	(void)state;
	waits_init(&w);
	add(&w, "k", &a);
	add(&w, "k", &b);
	wait_remove(&w, &a.waiter);
	wait_remove(&w, &a.waiter); /* harmless */
	wait_wake(&w, "k");
	assert_int_equal(a.woken, 0);
	assert_int_equal(b.woken, 1);
	wait_remove(&w, &b.waiter);
	add(&w, "k", &a);
	wait_remove(&w, &a.waiter);
	assert_int_equal(w.keys.count, 0);
	waits_done(&w);
}

static void who_waits_again_is_woken_next_time(void **state)
{
	struct sleeper a;
	struct waits w;

	(void)state;
	waits_init(&w);
	add(&w, "k", &a);
	a.again = "k";
	wait_wake(&w, "k");
	assert_int_equal(a.woken, 1);
	wait_wake(&w, "k");
	assert_int_equal(a.woken, 2);
	wait_remove(&w, &a.waiter);
	waits_done(&w);
}

static void many_keys(void **state)
{
	static struct sleeper sleepers[500];
	struct waits w;
	char key[16];

	(void)state;
	waits_init(&w);
	for (int i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "%d", i / 2);
		add(&w, key, &sleepers[i]);
	}
	assert_int_equal(w.keys.count, 250);
	for (int i = 0; i < 250; i++) {
		snprintf(key, sizeof(key), "%d", i);
		wait_wake(&w, key);
	}
	for (int i = 0; i < 500; i++)
		assert_int_equal(sleepers[i].woken, 1);
	waits_done(&w);
}

/* Through the message room: the inbox is woken after the commit, not before, not by others. */
static void a_message_wakes_its_inbox(void **state)
{
	struct world *w = *state;
	struct message m = {
		.to = "a", .from = "f", .content = "c", .type = "t", .metadata = "{}"
	};
	struct problem p = { 0 };
	struct arena arena;
	struct sleeper s;
	struct tx tx;

	arena_init(&arena);
	add(&api_of(&w->engine)->waits, message_wait_key(&arena, "o", "a"), &s);
	send_message(w, "o", "b");
	send_message(w, "other", "a");
	assert_int_equal(s.woken, 0);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(send_one(&tx, "o", &m, &p), LAPSE_OK);
	tx_rollback(&tx);
	assert_int_equal(s.woken, 0);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(send_one(&tx, "o", &m, &p), LAPSE_OK);
	assert_int_equal(s.woken, 0);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(s.woken, 1);
	arena_done(&arena);
}

/* Somebody who looked before the message came, in the same transaction, and waits after it. */
static void a_waiter_of_the_same_turn_is_woken(void **state)
{
	struct world *w = *state;
	struct message m = {
		.to = "a", .from = "f", .content = "c", .type = "t", .metadata = "{}"
	};
	struct problem p = { 0 };
	struct arena arena;
	struct sleeper s;
	struct tx tx;

	arena_init(&arena);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	add(&api_of(&w->engine)->waits, message_wait_key(&arena, "o", "a"), &s);
	assert_int_equal(send_one(&tx, "o", &m, &p), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	assert_int_equal(s.woken, 1);
	arena_done(&arena);
}

/* wait_wake() has taken everyone out of the queue: leaving then is harmless. */
static void one_who_is_woken_may_take_another_out(void **state)
{
	struct sleeper a, b, c;
	struct waits w;

	(void)state;
	waits_init(&w);
	add(&w, "k", &a);
	add(&w, "k", &b);
	add(&w, "k", &c);
	a.leaves = &b;
	wait_wake(&w, "k");
	assert_int_equal(a.woken, 1);
	assert_int_equal(c.woken, 1);
	waits_done(&w);
}

static void a_limit_ends_the_wait_once(void **state)
{
	struct sleeper a, b, c;
	struct waits w;

	(void)state;
	waits_init(&w);
	assert_int_equal(waits_next_us(&w, 0), INT64_MAX);
	order = 0;
	add_until(&w, "k", 300, &a);
	add_until(&w, "k", 200, &b);
	add(&w, "k", &c);
	assert_int_equal(waits_next_us(&w, 50), 150);
	assert_int_equal(waits_next_us(&w, 201), 0);
	waits_expire(&w, 199);
	assert_int_equal(b.woken, 0);
	waits_expire(&w, 200);
	assert_int_equal(b.woken, 1);
	assert_int_equal(a.woken + c.woken, 0);
	wait_wake(&w, "k"); /* and then their limits mean nothing */
	assert_int_equal(a.woken, 1);
	assert_int_equal(c.woken, 1);
	assert_int_equal(b.woken, 1);
	waits_expire(&w, 1000);
	assert_int_equal(a.woken + b.woken + c.woken, 3);
	assert_int_equal(w.limits.count, 0);
	waits_done(&w);
}

static void the_last_whose_time_is_over_takes_the_key_along(void **state)
{
	struct sleeper a, b;
	struct waits w;

	(void)state;
	waits_init(&w);
	add_until(&w, "k", 1, &a);
	add_until(&w, "k", 2, &b);
	a.leaves = &b;
	waits_expire(&w, 10);
	assert_int_equal(a.woken, 1);
	assert_int_equal(b.woken, 0); /* a has taken it out */
	assert_int_equal(w.keys.count, 0);
	waits_done(&w);
}

/* The ticks of an engine keep the limits of its calls. */
static void the_engine_sleeps_until_the_first_limit(void **state)
{
	struct world *w = *state;
	struct sleeper a;

	tick_until_idle(w);
	lapse_us now = clock_mono(w->engine.clock);
	add_until(&api_of(&w->engine)->waits, "k", now + 5000, &a);
	assert_true(engine_next_us(&w->engine) <= 5000);
	tick_until_idle(w);
	assert_int_equal(a.woken, 0);
	fake_clock_advance(&w->time, 5);
	assert_int_equal(engine_next_us(&w->engine), 0);
	tick_until_idle(w);
	assert_int_equal(a.woken, 1);
	assert_false(waiters_exist(&w->engine));
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_wakes_its_own_in_order),
		cmocka_unit_test(who_leaves_is_not_woken),
		cmocka_unit_test(who_waits_again_is_woken_next_time),
		cmocka_unit_test(many_keys),
		WORLD_TEST(a_message_wakes_its_inbox),
		WORLD_TEST(a_waiter_of_the_same_turn_is_woken),
		cmocka_unit_test(one_who_is_woken_may_take_another_out),
		cmocka_unit_test(a_limit_ends_the_wait_once),
		cmocka_unit_test(the_last_whose_time_is_over_takes_the_key_along),
		WORLD_TEST(the_engine_sleeps_until_the_first_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
