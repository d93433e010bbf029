/* SPDX-License-Identifier: Apache-2.0 */
/* The ring and the replay: every reader gets the events of its owner, all of them, once, in order.
 */
#include <stdio.h>
#include <string.h>

#include "engine/replay.h"
#include "unit.h"

#define RING_BYTES 65536

/* A reader that keeps what it read. */
struct follower {
	struct ring_reader reader;
	const char *owner;
	bool engine_too;
	struct buf got;
	int woken;
};

static void count_wake(struct ring_reader *r)
{
	CONTAINER_OF(r, struct follower, reader)->woken++;
}

static void follow(struct ring *r, struct follower *f, const char *owner, bool engine_too)
{
	*f = (struct follower){ .owner = owner, .engine_too = engine_too };
	f->reader.wake = count_wake;
	ring_join(r, &f->reader, owner, engine_too);
	assert_true(ring_seek(&f->reader));
}

static enum ring_state read_some(struct follower *f, size_t max)
{
	char bytes[4096];
	size_t n = 0;
	enum ring_state state = ring_read(&f->reader, bytes, max, &n);

	assert_true(n <= max);
	buf_add(&f->got, bytes, n);
	return state;
}

static void unfollow(struct follower *f)
{
	ring_leave(&f->reader);
	buf_done(&f->got);
}

static void put(struct ring *r, int64_t seq, const char *owner, const char *text)
{
	ring_hold(r);
	ring_add(r, seq, owner, text, strlen(text));
	ring_release(r);
}

static int ring_setup(void **state)
{
	struct ring *r = mem_zalloc(1, sizeof(*r));

	ring_init(r);
	ring_start(r, 100, 0);
	ring_enable(r, RING_BYTES);
	*state = r;
	return 0;
}

static int ring_teardown(void **state)
{
	ring_done(*state);
	free(*state);
	return 0;
}

static void a_reader_gets_its_owners_events(void **state)
{
	struct ring *r = *state;
	struct follower a, admin;

	follow(r, &a, "a", false);
	follow(r, &admin, "b", true);
	put(r, 101, "a", "one ");
	put(r, 102, "", "engine ");
	put(r, 103, "b", "two ");
	put(r, 104, "a", "three ");
	assert_int_equal(a.woken, 1);
	assert_int_equal(ring_backlog(&a.reader), 2);
	assert_int_equal(read_some(&a, 100), RING_IDLE);
	assert_int_equal(read_some(&admin, 100), RING_IDLE);
	assert_string_equal(buf_text(&a.got), "one three ");
	assert_string_equal(buf_text(&admin.got), "engine two ");
	assert_int_equal(a.reader.cursor, 104);
	assert_int_equal(ring_backlog(&a.reader), 0);
	put(r, 105, "a", "four ");
	assert_int_equal(a.woken, 2);
	assert_int_equal(admin.woken, 2);
	unfollow(&a);
	unfollow(&admin);
}

static void a_ring_without_memory_keeps_nothing(void **state)
{
	struct ring r;

	(void)state;
	ring_init(&r);
	put(&r, 1, "a", "one");
	ring_done(&r);
}

static void put_untold(struct ring *r, int64_t seq, const char *owner)
{
	ring_hold(r);
	ring_add(r, seq, owner, NULL, 0);
	ring_release(r);
}

static void without_readers_the_table_tells(void **state)
{
	struct ring *r = *state;
	struct follower a;

	assert_false(ring_is_followed(r));
	put(r, 101, "a", "one ");
	put_untold(r, 102, "a");
	assert_int_equal(r->newest, 102);
	assert_int_equal(r->floor, 102);
	assert_int_equal(r->head, r->tail); /* what came before is not in the ring alone */
	follow(r, &a, "a", false);
	assert_true(ring_is_followed(r));
	assert_int_equal(a.reader.cursor, 102);
	a.reader.cursor = 101;
	assert_false(ring_seek(&a.reader));
	a.reader.cursor = 102;
	assert_true(ring_seek(&a.reader));
	put(r, 103, "a", "three ");
	assert_int_equal(read_some(&a, 100), RING_IDLE);
	assert_string_equal(buf_text(&a.got), "three ");
	unfollow(&a);
	assert_false(ring_is_followed(r));
}

/* Its transaction began before the reader came. */
static void a_reader_is_told_of_an_event_without_text(void **state)
{
	struct ring *r = *state;
	struct follower a, b;

	follow(r, &a, "a", false);
	follow(r, &b, "b", false);
	ring_hold(r);
	ring_hold(r);
	ring_add(r, 101, "a", NULL, 0); /* staged */
	ring_release(r);
	ring_release(r);
	assert_int_equal(a.woken, 1);
	assert_int_equal(b.woken, 0);
	assert_int_equal(ring_backlog(&a.reader), 1);
	assert_int_equal(read_some(&a, 100), RING_BEHIND);
	assert_false(ring_seek(&a.reader)); /* the table first */
	put(r, 102, "b", "two ");
	assert_int_equal(read_some(&b, 100), RING_IDLE);
	assert_string_equal(buf_text(&b.got), "two ");
	unfollow(&a);
	unfollow(&b);
}

/* While the log is synced for one transaction, another may commit and end. */
static void events_are_shown_in_their_order(void **state)
{
	struct ring *r = *state;
	struct follower a;

	follow(r, &a, "a", false);
	ring_hold(r); /* the first commits … */
	ring_hold(r); /* the second commits */
	ring_add(r, 103, "a", "3", 1);
	ring_add(r, 104, "a", "4", 1);
	ring_release(r); /* … and ends */
	assert_int_equal(a.woken, 0);
	assert_int_equal(r->newest, 100);
	ring_add(r, 101, "a", "1", 1);
	ring_add(r, 102, "a", "2", 1);
	assert_int_equal(a.woken, 0);
	ring_release(r);
	assert_int_equal(read_some(&a, 100), RING_IDLE);
	assert_string_equal(buf_text(&a.got), "1234");
	assert_int_equal(a.reader.cursor, 104);
	unfollow(&a);
}

static void a_cursor_finds_its_place(void **state)
{
	struct ring *r = *state;
	struct follower a;

	for (int64_t i = 101; i <= 120; i++)
		put(r, i, i % 2 ? "a" : "b", i % 2 ? "a" : "b");
	follow(r, &a, "a", false);
	for (int64_t cursor = 100; cursor <= 121; cursor++) {
		buf_done(&a.got);
		a.reader.cursor = cursor;
		assert_true(ring_seek(&a.reader));
		size_t left = cursor >= 120 ? 0 : (size_t)(120 - cursor) / 2;
		assert_int_equal(ring_backlog(&a.reader), left);
		assert_int_equal(read_some(&a, 100), RING_IDLE);
		assert_int_equal(a.got.len, left);
	}
	a.reader.cursor = 99;
	assert_false(ring_seek(&a.reader));
	unfollow(&a);
}

static void what_is_forgotten_is_not_read(void **state)
{
	struct ring *r = *state;
	struct follower a;

	follow(r, &a, "a", false);
	put(r, 101, "a", "1");
	put(r, 102, "a", "2");
	ring_forget(r, 101);
	assert_int_equal(read_some(&a, 100), RING_BEHIND);
	assert_int_equal(a.reader.cursor, 100);
	assert_int_equal(ring_backlog(&a.reader), 2);
	assert_false(ring_seek(&a.reader));
	put(r, 103, "a", "3");
	assert_int_equal(a.woken, 1);
	a.reader.cursor = 101;
	assert_true(ring_seek(&a.reader));
	assert_int_equal(read_some(&a, 100), RING_IDLE);
	assert_string_equal(buf_text(&a.got), "23");
	unfollow(&a);
}

/* Half an event was sent when it is overwritten: the rest is where the reader says. */
static void an_event_can_be_split(void **state)
{
	struct ring *r = *state;
	struct follower a;

	follow(r, &a, "a", false);
	put(r, 101, "a", "0123456789");
	put(r, 102, "a", "abc");
	assert_int_equal(read_some(&a, 4), RING_MORE);
	assert_int_equal(a.reader.offset, 4);
	assert_int_equal(a.reader.partial, 101);
	assert_int_equal(read_some(&a, 4), RING_MORE);
	assert_int_equal(read_some(&a, 4), RING_MORE); /* "89": the next one does not fit */
	assert_int_equal(a.reader.offset, 0);
	assert_int_equal(a.reader.cursor, 101);
	assert_string_equal(buf_text(&a.got), "0123456789");
	assert_int_equal(read_some(&a, 2), RING_MORE);
	ring_forget(r, 102);
	assert_int_equal(read_some(&a, 2), RING_BEHIND);
	assert_int_equal(a.reader.cursor, 101);
	assert_int_equal(a.reader.offset, 2);
	a.reader.offset = 0; /* so that it may leave */
	unfollow(&a);
}

static void an_event_too_large_is_left_to_the_table(void **state)
{
	struct ring *r = *state;
	char *CLEANUP(mem_freep) large = mem_zalloc(1, RING_BYTES / 2 + 1);
	struct follower a;

	memset(large, 'x', RING_BYTES / 2);
	follow(r, &a, "a", false);
	put(r, 101, "a", "1");
	put(r, 102, "a", large);
	assert_int_equal(r->newest, 102);
	assert_int_equal(read_some(&a, 100), RING_BEHIND);
	assert_false(ring_seek(&a.reader));
	a.reader.cursor = 102;
	assert_true(ring_seek(&a.reader));
	put(r, 103, "a", large); /* this time it waits */
	assert_int_equal(a.woken, 2);
	assert_int_equal(read_some(&a, 100), RING_BEHIND);
	unfollow(&a);
}

static void owners_that_are_gone_cost_nothing(void **state)
{
	struct ring *r = *state;
	char owner[32];

	for (int i = 0; i < 20000; i++) {
		snprintf(owner, sizeof(owner), "owner-%d", i);
		put(r, 101 + i, owner, "0123456789012345678901234567890123456789");
	}
	assert_true(r->chains.count <= RING_BYTES / 88);
	ring_forget(r, INT64_MAX);
	assert_int_equal(r->chains.count, 0);
}

/* Random events and readers against a plain list of all events. */

#define MODEL_EVENTS 6000
#define MODEL_OWNERS 4
#define MODEL_READERS 12

struct model {
	struct {
		const char *owner;
		char text[700];
	} events[MODEL_EVENTS];
	int64_t count; /* event i has the sequence 101 + i */
};

static const char *const OWNERS[MODEL_OWNERS] = { "", "a", "b", "c" };

static bool is_for(const struct follower *f, const char *owner)
{
	return strcmp(f->owner, owner) == 0 || (f->engine_too && owner[0] == '\0');
}

/* What the table would do: everything the reader misses. */
static void catch_up(struct model *m, struct follower *f)
{
	for (int64_t i = f->reader.cursor - 100; i < m->count; i++) {
		if (!is_for(f, m->events[i].owner))
			continue;
		if (f->reader.offset)
			assert_int_equal(f->reader.partial, 101 + i);
		buf_puts(&f->got, m->events[i].text + f->reader.offset);
		f->reader.offset = 0;
	}
	f->reader.cursor = 100 + m->count;
}

static void make_event(struct model *m, struct ring *r)
{
	const char *owner = OWNERS[rand() % MODEL_OWNERS];
	int n = snprintf(m->events[m->count].text, 64, "<%d>", (int)m->count);
	int more = rand() % 8 ? rand() % 60 : rand() % 600;

	m->events[m->count].owner = owner;
	memset(m->events[m->count].text + n, '.', (size_t)more);
	m->events[m->count].text[n + more] = '\0';
	put(r, 101 + m->count, owner, m->events[m->count].text);
	m->count++;
}

static void read_at_random(struct model *m, struct follower *f, int *behind)
{
	for (int i = rand() % 20; i > 0; i--) {
		enum ring_state state = read_some(f, 1 + (size_t)rand() % 900);
		if (state == RING_IDLE)
			return;
		if (state == RING_BEHIND) {
			++*behind;
			catch_up(m, f);
			assert_true(ring_seek(&f->reader));
		}
	}
}

static void expect_all(const struct model *m, const struct follower *f)
{
	struct buf CLEANUP(buf_done) expected = { 0 };

	for (int64_t i = 0; i < m->count; i++)
		if (is_for(f, m->events[i].owner))
			buf_puts(&expected, m->events[i].text);
	assert_string_equal(buf_text(&f->got), buf_text(&expected));
}

static void readers_agree_with_a_list(void **state)
{
	struct ring *r = *state;
	struct model *m = mem_zalloc(1, sizeof(*m));
	struct follower f[MODEL_READERS];
	int behind = 0;

	srand(7);
	for (int i = 0; i < MODEL_READERS; i++)
		follow(r, &f[i], OWNERS[1 + i % 3], i % 2);
	while (m->count < MODEL_EVENTS) {
		for (int n = rand() % 40; n > 0 && m->count < MODEL_EVENTS; n--)
			make_event(m, r);
		for (int i = 0; i < MODEL_READERS; i++)
			if (rand() % (2 + 4 * i) == 0)
				read_at_random(m, &f[i], &behind);
	}
	assert_true(behind > 20);
	for (int i = 0; i < MODEL_READERS; i++) {
		while (read_some(&f[i], 4000) != RING_IDLE)
			if (!ring_seek(&f[i].reader))
				catch_up(m, &f[i]), ring_seek(&f[i].reader);
		expect_all(m, &f[i]);
		assert_int_equal(ring_backlog(&f[i].reader), 0);
		unfollow(&f[i]);
	}
	free(m);
}

/* With a store */

static int64_t add(struct world *w, const char *owner, const char *json)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	struct tx tx;

	buf_puts(&data, json);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(event_add(&tx, owner, EVENT_HOLD_PLACED, &data), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return w->engine.ring.newest;
}

static int enabled_setup(void **state)
{
	if (world_setup(state) != 0)
		return -1;
	ring_enable(&((struct world *)*state)->engine.ring, RING_BYTES);
	return 0;
}

static void an_event_reaches_the_ring_with_its_commit(void **state)
{
	struct world *w = *state;
	struct buf CLEANUP(buf_done) data = { 0 };
	struct follower o;
	struct tx tx;

	buf_puts(&data, "{\"n\":\n1}");
	follow(&w->engine.ring, &o, "o", false);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(event_add(&tx, "o", EVENT_HOLD_PLACED, &data), LAPSE_OK);
	tx_rollback(&tx);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(event_add(&tx, "o", EVENT_HOLD_PLACED, &data), LAPSE_OK);
	assert_int_equal(tx_commit_start(&tx), LAPSE_OK);
	assert_int_equal(o.woken, 0);
	tx_commit_finish(&tx);
	assert_int_equal(o.woken, 1);
	assert_int_equal(read_some(&o, 1000), RING_IDLE);
	char *expected =
		arena_printf(&tx.arena,
			     "id: %016llx\nevent: hold.placed\ndata: {\"at\":"
			     "\"2027-01-15T08:00:00.000Z\",\"owner\":\"o\",\"data\":{\"n\":"
			     " 1}}\n\n",
			     (unsigned long long)w->engine.ring.newest);
	assert_string_equal(buf_text(&o.got), expected);
	arena_done(&tx.arena);
	unfollow(&o);
}

static struct replay_reader *ask(struct replay *r, const char *owner, bool engine_too,
				 int64_t cursor)
{
	struct replay_reader *reader = &r->readers[r->count++];

	*reader = (struct replay_reader){ .owner = mem_strdup(owner),
					  .engine_too = engine_too,
					  .cursor = cursor };
	return reader;
}

static void a_replay_serves_many(void **state)
{
	struct world *w = *state;
	struct replay *r = mem_zalloc(1, sizeof(*r));
	int64_t first = add(w, "a", "{\"n\":1}");

	add(w, "b", "{\"n\":2}");
	add(w, "", "{\"n\":3}");
	int64_t upto = add(w, "a", "{\"n\":4}");
	add(w, "a", "{\"n\":5}");
	r->upto = upto;
	struct replay_reader *a = ask(r, "a", false, 0), *again = ask(r, "a", false, first);
	struct replay_reader *admin = ask(r, "b", true, 0), *other = ask(r, "c", false, 0);
	replay_run(&w->engine, r);
	assert_int_equal(r->err, LAPSE_OK);
	assert_int_equal(a->events, 2);
	assert_non_null(strstr(buf_text(&a->text), "\"n\":1"));
	assert_non_null(strstr(buf_text(&a->text), "\"n\":4"));
	assert_int_equal(again->events, 1);
	assert_int_equal(admin->events, 2);
	assert_non_null(strstr(buf_text(&admin->text), "\"n\":3"));
	assert_int_equal(other->events, 0);
	for (size_t i = 0; i < r->count; i++)
		assert_int_equal(r->readers[i].cursor, upto);
	replay_done(r);
	free(r);
}

static void a_replay_goes_on_in_the_middle_of_an_event(void **state)
{
	struct world *w = *state;
	struct replay *r = mem_zalloc(1, sizeof(*r));
	struct follower a;

	follow(&w->engine.ring, &a, "a", false);
	int64_t seq = add(w, "a", "{\"n\":1}");
	assert_int_equal(read_some(&a, 1000), RING_IDLE);
	r->upto = seq;
	struct replay_reader *rest = ask(r, "a", false, 0), *lost = ask(r, "a", false, 0);
	rest->offset = lost->offset = 30;
	rest->partial = seq;
	lost->partial = seq - 1; /* it was pruned meanwhile */
	replay_run(&w->engine, r);
	assert_string_equal(buf_text(&rest->text), buf_text(&a.got) + 30);
	assert_false(rest->lost);
	assert_true(lost->lost);
	replay_done(r);
	free(r);
	unfollow(&a);
}

static void a_replay_is_bounded(void **state)
{
	struct world *w = *state;
	struct replay *r = mem_zalloc(1, sizeof(*r));
	char json[2048] = "{\"x\":\"";
	uint64_t events = 0;

	memset(json + 6, 'y', 2000);
	memcpy(json + 2006, "\"}", 3);
	for (int i = 0; i < 100; i++)
		r->upto = add(w, "a", json);
	for (int64_t cursor = 0, runs = 0; cursor < r->upto; runs++) {
		r->from = cursor;
		struct replay_reader *a = ask(r, "a", false, cursor);
		replay_run(&w->engine, r);
		assert_true(a->text.len < REPLAY_PAGE_BYTES + 2200);
		assert_true(a->cursor > cursor && runs < 20);
		cursor = a->cursor;
		events += a->events;
		replay_done(r);
	}
	assert_int_equal(events, 100);
	free(r);
}

/* Guarantee 1: what is past its lifetime is not shown, swept or not. */
static void a_replay_hides_what_is_due(void **state)
{
	struct world *w = *state;
	struct replay *r = mem_zalloc(1, sizeof(*r));
	int64_t old = add(w, "a", "{\"n\":1}");

	fake_clock_advance(&w->time, 1000);
	r->upto = add(w, "a", "{\"n\":2}");
	r->due = id_floor(NOW + 1000) - 1;
	struct replay_reader *a = ask(r, "a", false, 0), *b = ask(r, "b", false, 0);
	replay_run(&w->engine, r);
	assert_int_equal(a->hidden, old);
	assert_int_equal(a->events, 1);
	assert_int_equal(b->hidden, 0);
	replay_done(r);
	free(r);
}

static void pruning_is_remembered(void **state)
{
	struct world *w = *state;
	struct follower a;
	struct sweep sweep;
	int64_t old = add(w, "a", "{\"n\":1}");

	follow(&w->engine.ring, &a, "a", false);
	a.reader.cursor = 0;
	fake_clock_advance(&w->time, 86400000 + 1);
	int64_t fresh = add(w, "a", "{\"n\":2}");
	assert_int_equal(w->engine.ring.pruned, 0);
	run_sweep(w, "housekeeping", true, &sweep);
	assert_int_equal(w->engine.ring.pruned, 0);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(w->engine.ring.pruned, old);
	assert_int_equal(w->engine.ring.floor, old);
	unfollow(&a);
	world_reopen(w);
	assert_int_equal(w->engine.ring.pruned, old);
	assert_true(w->engine.ring.newest >= fresh);
}

#define RING_TEST(f) cmocka_unit_test_setup_teardown(f, ring_setup, ring_teardown)
#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, enabled_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RING_TEST(a_reader_gets_its_owners_events),
		cmocka_unit_test(a_ring_without_memory_keeps_nothing),
		RING_TEST(without_readers_the_table_tells),
		RING_TEST(a_reader_is_told_of_an_event_without_text),
		RING_TEST(events_are_shown_in_their_order),
		RING_TEST(a_cursor_finds_its_place),
		RING_TEST(what_is_forgotten_is_not_read),
		RING_TEST(an_event_can_be_split),
		RING_TEST(an_event_too_large_is_left_to_the_table),
		RING_TEST(owners_that_are_gone_cost_nothing),
		RING_TEST(readers_agree_with_a_list),
		WORLD_TEST(an_event_reaches_the_ring_with_its_commit),
		WORLD_TEST(a_replay_serves_many),
		WORLD_TEST(a_replay_goes_on_in_the_middle_of_an_event),
		WORLD_TEST(a_replay_is_bounded),
		WORLD_TEST(a_replay_hides_what_is_due),
		WORLD_TEST(pruning_is_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
