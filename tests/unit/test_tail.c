/* SPDX-License-Identifier: Apache-2.0 */
/* The tail of new messages: its order, what is hidden and shown again, and that it frees all it
 * takes. And the store behind it: a rollback, a failed commit and a restart leave memory and rows
 * in step. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "message/message.h"
#include "message/slice.h"
#include "message/unread.h"
#include "unit.h"

#define INBOXES 300

static void add(struct tail *t, struct tail_inbox *i, int64_t id)
{
	tail_add(t, i, &(struct tail_entry){ .id = id, .timestamp = id });
}

/* Opened in another order than their names have, then walked by name. */
static void inboxes_follow_each_other_by_name(void **state)
{
	struct tail *t = tail_new(1000);
	char agent[16], last[TAIL_NAME_BYTES] = "";
	size_t n = 0;

	(void)state;
	for (int i = 0; i < INBOXES; i++) {
		snprintf(agent, sizeof(agent), "a%03d", i * 7 % INBOXES);
		add(t, tail_open(t, i % 2 ? "red" : "blue", agent, 0), i + 1);
	}
	for (struct tail_inbox *i = tail_after(t, ""); i; i = tail_after(t, last), n++) {
		assert_true(strcmp(i->node.key, last) > 0);
		assert_ptr_equal(tail_find(t, i->owner, i->agent), i);
		snprintf(last, sizeof(last), "%s", i->node.key);
	}
	assert_int_equal(n, INBOXES);
	assert_int_equal(t->count, INBOXES);
	assert_null(tail_find(t, "red", "nobody"));
	tail_free(t); /* asserts that no byte is left */
}

static void what_is_hidden_can_be_shown_again(void **state)
{
	struct tail *t = tail_new(1000);
	struct tail_inbox *i = tail_open(t, "o", "a", 5);

	(void)state;
	for (int64_t id = 1; id <= 10; id++)
		add(t, i, 10 * id);
	tail_hide(t, i, 10);
	tail_hide(t, i, 50);
	assert_null(tail_entry_of(i, 50));
	assert_int_equal(t->count, 8);
	tail_show(t, i, 50);
	tail_tidy(t);
	assert_non_null(tail_entry_of(i, 50));
	assert_null(tail_entry_of(i, 10));
	assert_null(tail_entry_of(i, 55));
	for (int64_t id = 2; id <= 8; id++)
		tail_hide(t, i, 10 * id);
	tail_tidy(t);
	assert_int_equal(i->count, 2); /* the hidden ones have made room */
	add(t, i, 110);
	tail_take_back(t, i);
	tail_hide(t, i, 90);
	tail_hide(t, i, 100);
	tail_tidy(t);
	assert_int_equal(t->count, 0);
	tail_free(t);
}

static void empty_inboxes_stay_while_they_are_few(void **state)
{
	struct tail *t = tail_new(2);

	(void)state;
	for (int k = 0; k < 4; k++) {
		char agent[] = { (char)('a' + k), '\0' };
		struct tail_inbox *i = tail_open(t, "o", agent, 0);
		add(t, i, k + 1);
		tail_hide(t, i, k + 1);
		tail_tidy(t);
	}
	assert_non_null(tail_find(t, "o", "a"));
	assert_non_null(tail_find(t, "o", "b"));
	assert_null(tail_find(t, "o", "c"));
	assert_int_equal(t->inboxes.count, 2);
	tail_free(t);
}

static void the_oldest_messages_are_filed(void **state)
{
	struct tail *t = tail_new(1000);
	struct tail_inbox *i = tail_open(t, "o", "a", 5);

	(void)state;
	for (int64_t id = 1; id <= 10; id++)
		add(t, i, id);
	tail_hide(t, i, 2);
	tail_file(t, i, 3);
	tail_tidy(t);
	assert_int_equal(i->filed_unread, 8);
	assert_int_equal(i->live, 6);
	assert_null(tail_entry_of(i, 4));
	assert_non_null(tail_entry_of(i, 5));
	tail_free(t);
}

/* With a store */

static int small_tail(void **state)
{
	int r = world_setup(state);
	struct world *w = *state;

	w->settings.message_tail_max = 8;
	world_reopen(w);
	return r;
}

static int send_in(struct tx *tx, const char *agent)
{
	const struct message draft = { .from = "f", .content = "c", .type = "t", .metadata = "{}" };
	struct message sent;
	struct problem p = { 0 };

	return message_send(tx, "o", &draft, &agent, 1, &sent, &p);
}

/* What the memory holds, as a text. */
static void tail_text(struct world *w, char *out, size_t size)
{
	const struct tail *t = tail_of(&w->engine);
	size_t n = (size_t)snprintf(out, size, "%" PRId64 "/%" PRId64 "/%d", t->count, t->bytes,
				    t->pass.running);

	for (const struct tail_inbox *i = t->heads[0]; i; i = i->next[0])
		n += (size_t)snprintf(out + n, size - n, " %s:%zu:%" PRId64, i->agent, i->live,
				      i->filed_unread);
	assert_true(n < size);
}

static void mark_all(struct tx *tx, const char *agent)
{
	int64_t count = 0;
	bool more = true;

	assert_int_equal(message_mark_before(tx, "o", agent, LAPSE_NEVER, 100, &count, &more),
			 LAPSE_OK);
}

/* A full tail, so that sends file as well; then the whole transaction is given up. */
static void a_rollback_takes_the_memory_back(void **state)
{
	struct world *w = *state;
	char before[512], after[512];
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	for (int i = 0; i < 8; i++)
		assert_int_equal(send_in(&tx, i % 2 ? "a" : "b"), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	tail_text(w, before, sizeof(before));
	for (int round = 0; round < 2; round++) {
		assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
		assert_int_equal(tx_step_begin(&tx), LAPSE_OK);
		for (int i = 0; i < 5; i++)
			assert_int_equal(send_in(&tx, i % 2 ? "a" : "new"), LAPSE_OK);
		mark_all(&tx, "a");
		mark_all(&tx, "new");
		if (round == 1)
			assert_int_equal(tx_step_undo(&tx), LAPSE_OK);
		tx_rollback(&tx);
		tail_text(w, after, sizeof(after));
		/* An array that has grown stays as large as it is: compare without the bytes. */
		assert_string_equal(strchr(before, ' '), strchr(after, ' '));
		assert_int_equal(tail_of(&w->engine)->count, 8);
		world_check_counters(w);
	}
}

static void check_mark(struct world *w)
{
	int64_t mark = side_int(w, "SELECT value FROM meta WHERE key = 'messages_filed'");
	int64_t oldest = side_int(w, "SELECT min(id) FROM messages WHERE read = 0 AND id NOT IN "
				     "(SELECT id FROM messages_unread)");

	if (oldest)
		assert_int_equal(mark, oldest - 1);
	else
		assert_true(mark >= side_int(w, "SELECT max(id) FROM messages"));
}

static void a_restart_reads_the_same_tail(void **state)
{
	struct world *w = *state;
	struct tx tx;

	for (int i = 0; i < 30; i++) {
		assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
		assert_int_equal(send_in(&tx, i % 3 ? "a" : "b"), LAPSE_OK);
		if (i % 5 == 4)
			mark_all(&tx, "b");
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
		int64_t unread = tail_of(&w->engine)->count +
				 side_int(w, "SELECT count(*) FROM messages_unread");
		assert_int_equal(unread,
				 side_int(w, "SELECT count(*) FROM messages WHERE read = 0"));
		assert_true(tail_of(&w->engine)->count <= 8);
		int64_t count = tail_of(&w->engine)->count;
		world_reopen(w);
		assert_int_equal(tail_of(&w->engine)->count, count);
		world_check_counters(w);
		check_mark(w);
	}
	w->settings.message_tail_max = 0; /* whoever wants none has everything filed */
	world_reopen(w);
	assert_int_equal(tail_of(&w->engine)->count, 0);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages_unread"),
			 side_int(w, "SELECT count(*) FROM messages WHERE read = 0"));
	world_check_counters(w);
}

static void send_many(struct world *w, const char *agent, int n)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	for (int i = 0; i < n; i++)
		assert_int_equal(send_in(&tx, agent), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
}

/* The row of an inbox goes with the last message, although the tail still knows the inbox. */
static void an_inbox_whose_row_has_gone_is_made_anew(void **state)
{
	struct world *w = *state;
	struct sweep sweep;
	struct tx tx;

	send_many(w, "a", 1);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	mark_all(&tx, "a");
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	fake_clock_advance(&w->time, w->settings.message_ttl_ms + 1);
	run_sweep(w, "messages", false, &sweep);
	assert_int_equal(side_int(w, "SELECT count(*) FROM inboxes"), 0);
	assert_non_null(tail_find(tail_of(&w->engine), "o", "a"));
	send_many(w, "a", 2);
	assert_int_equal(side_int(w, "SELECT count(*) FROM inboxes"), 1);
	world_check_counters(w);
}

static void a_slice_that_fails_changes_nothing(void **state)
{
	struct world *w = *state;
	struct tail *t = tail_of(&w->engine);
	char before[512], after[512];

	send_many(w, "a", 3);
	send_many(w, "b", 3);
	tail_text(w, before, sizeof(before));
	side_run(w, "CREATE TRIGGER refuse BEFORE INSERT ON messages_unread WHEN new.agent = 'b' "
		    "BEGIN SELECT RAISE(ABORT, 'no'); END");
	engine_tick(&w->engine);
	tail_text(w, after, sizeof(after));
	assert_string_equal(before, after);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages_unread"), 0);
	side_run(w, "DROP TRIGGER refuse");
	engine_tick(&w->engine);
	assert_int_equal(t->filed, 0); /* it rests for a second */
	fake_clock_advance(&w->time, 1000);
	engine_tick(&w->engine);
	assert_int_equal(t->filed, 6);
	world_check_counters(w);
}

/* A look at the clock includes what rows cost, which SQLite would otherwise gather for longer: an
 * error among the first rows is met within the slice, not at its commit. */
static void a_slice_writes_its_rows_before_it_looks_at_the_clock(void **state)
{
	struct world *w = *state;
	struct slice s;
	struct tx tx;

	w->settings.message_tail_max = 1000;
	world_reopen(w);
	send_many(w, "a", 100);
	side_run(w, "CREATE TRIGGER refuse BEFORE INSERT ON messages_unread WHEN "
		    "(SELECT count(*) FROM messages_unread) = 20 "
		    "BEGIN SELECT RAISE(ABORT, 'no'); END");
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_true(slice_file(&s, tail_of(&w->engine), tx.db, w->engine.clock, 1000000) < 0);
	assert_int_equal(s.written, 32);
	tx_rollback(&tx);
	world_check_counters(w);
}

static void a_slice_ends_within_a_large_inbox(void **state)
{
	struct world *w = *state;
	struct tail *t;

	w->settings.message_tail_max = 1000;
	world_reopen(w);
	t = tail_of(&w->engine);
	send_many(w, "a", 600);
	w->engine.crowded = true;
	w->time.mono_step = 30; /* four looks are a slice */
	engine_tick(&w->engine);
	w->time.mono_step = 0;
	assert_in_range(t->filed, 32, 200);
	assert_int_equal(t->count, 600 - t->filed);
	assert_true(t->pass.running);
	assert_int_equal(side_int(w, "SELECT count(*) FROM messages_unread"), t->filed);
	world_check_counters(w);
}

/* While requests want the store: what a slice takes is at most a quarter, and far less while the
 * tail has room. */
static void slices_give_way(void **state)
{
	struct world *w = *state;
	struct tail *t = tail_of(&w->engine);

	send_many(w, "a", 4);
	w->engine.crowded = true;
	engine_tick(&w->engine);
	assert_int_equal(t->filed, 4);
	assert_int_equal(t->rest_until - w->time.mono, 2500);
	send_many(w, "a", 8);
	engine_tick(&w->engine);
	assert_int_equal(t->filed, 4); /* it rests */
	w->time.mono += 2500;
	w->time.mono_step = 1000;
	lapse_us began = w->time.mono;
	engine_tick(&w->engine);
	w->time.mono_step = 0;
	lapse_us took = w->time.mono - began;
	assert_true(t->rest_until - w->time.mono > 2500); /* it was slow */
	assert_true(t->rest_until - w->time.mono <= 3 * took);
	w->engine.crowded = false;
	w->time.mono = t->rest_until;
	engine_tick(&w->engine);
	assert_true(t->rest_until <= w->time.mono);
	world_check_counters(w);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_inboxes_stay_while_they_are_few),
		cmocka_unit_test(the_oldest_messages_are_filed),
		cmocka_unit_test_setup_teardown(an_inbox_whose_row_has_gone_is_made_anew,
						small_tail, world_teardown),
		cmocka_unit_test_setup_teardown(a_slice_that_fails_changes_nothing, small_tail,
						world_teardown),
		WORLD_TEST(a_slice_writes_its_rows_before_it_looks_at_the_clock),
		WORLD_TEST(a_slice_ends_within_a_large_inbox),
		cmocka_unit_test_setup_teardown(slices_give_way, small_tail, world_teardown),
		cmocka_unit_test(inboxes_follow_each_other_by_name),
		cmocka_unit_test(what_is_hidden_can_be_shown_again),
		cmocka_unit_test_setup_teardown(a_rollback_takes_the_memory_back, small_tail,
						world_teardown),
		cmocka_unit_test_setup_teardown(a_restart_reads_the_same_tail, small_tail,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
