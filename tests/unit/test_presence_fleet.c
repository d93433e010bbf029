/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet in memory: finding, order, sharing, silence, and all of it at once against a model. */
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "presence/beats.h"
#include "presence/fleet.h"
#include "unit.h"

#define THRESHOLD INT64_C(90000)
#define CHECK INT64_C(30000)

static const struct traits PLAIN = { "local", "c", "[]", 0 };

static int setup(void **state)
{
	*state = fleet_new(THRESHOLD, CHECK, (struct breaker_rule){ 50, 10 }, NOW);
	return 0;
}

static int teardown(void **state)
{
	fleet_free(*state);
	return 0;
}

static uint32_t add(struct fleet *f, const char *name, lapse_ms at)
{
	static int64_t id;

	return fleet_add(f, name, &PLAIN, ++id, at, at);
}

/* An owner's breaker counts what is there: found by walking over every agent. */
static void check_breaker(struct map_node *node, void *arg)
{
	const struct breaker *b = CONTAINER_OF(node, struct breaker, node);
	const struct fleet *f = arg;
	uint32_t count = 0, silent = 0;

	for (uint32_t i = fleet_first(f); i; i = fleet_next(f, i))
		if (fleet_breaker_of(f, i) == b) {
			count++;
			silent += (fleet_at(f, i)->flags & AGENT_SILENT) != 0;
		}
	for (uint32_t i = fleet_first_parked(f); i; i = fleet_next(f, i))
		count += fleet_breaker_of(f, i) == b;
	assert_int_equal(b->count, count);
	assert_int_equal(b->silent, silent);
	assert_true(count > 0 || b->opened_at != LAPSE_NEVER); /* no breaker without a reason */
	assert_int_equal(list_is_linked(&b->link), b->opened_at != LAPSE_NEVER);
}

static struct breaker *local(struct fleet *f)
{
	return fleet_breaker_find(f, "local");
}

/* Every invariant, by walking everything. */
static void check(struct fleet *f, lapse_ms now)
{
	uint32_t n = 0, silent = 0, parked = 0, prev = 0;
	bool passed_mark = false;

	for (uint32_t i = fleet_first(f); i; prev = i, i = fleet_next(f, i), n++) {
		const struct agent *a = fleet_at(f, i);
		assert_int_equal(a->prev, prev);
		assert_true(a->id > 0 && a->base <= f->newest && a->last_seen <= a->base);
		if (prev)
			assert_true(fleet_at(f, prev)->base <= a->base);
		passed_mark |= i == f->mark;
		silent += (a->flags & AGENT_SILENT) != 0;
		if (passed_mark)
			assert_false(a->flags & AGENT_SILENT);
		assert_int_equal(fleet_find(f, fleet_profile(f, i)->owner, agent_name(a)), i);
	}
	for (uint32_t i = fleet_first_parked(f); i; i = fleet_next(f, i))
		parked++;
	assert_int_equal(f->count, n + parked);
	assert_int_equal(f->parked, parked);
	assert_int_equal(f->silent, silent);
	map_each(&f->breakers, check_breaker, f);
	assert_true(f->mark == 0 || passed_mark);
	(void)now;
}

static void names_of_every_length(void **state)
{
	struct fleet *f = *state;
	char name[ID_MAX_BYTES + 1];

	for (int n = 1; n <= ID_MAX_BYTES; n++) {
		memset(name, 'a' + n % 26, (size_t)n);
		name[n] = '\0';
		uint32_t i = add(f, name, NOW);
		assert_string_equal(agent_name(fleet_at(f, i)), name);
	}
	for (int n = 1; n <= ID_MAX_BYTES; n++) {
		memset(name, 'a' + n % 26, (size_t)n);
		name[n] = '\0';
		uint32_t i = fleet_find(f, "local", name);
		assert_string_equal(agent_name(fleet_at(f, i)), name);
		assert_int_equal(fleet_find(f, "other", name), 0);
	}
	check(f, NOW);
}

static void it_grows_and_shrinks_and_grows(void **state)
{
	struct fleet *f = *state;
	char name[32];

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 40000; i++) {
			snprintf(name, sizeof(name), "agent-%010d", i);
			assert_int_equal(fleet_find(f, "local", name), 0);
			add(f, name, NOW);
		}
		assert_int_equal(f->count, 40000);
		check(f, NOW);
		for (int i = 0; i < 40000; i++) {
			snprintf(name, sizeof(name), "agent-%010d", (i * 7919) % 40000);
			fleet_remove(f, fleet_find(f, "local", name));
		}
		assert_int_equal(f->count, 0);
		assert_int_equal(fleet_deadline(f), LAPSE_NEVER);
		check(f, NOW);
	}
	assert_true(f->used <= 40002); /* records are used again */
}

static void owners_are_apart(void **state)
{
	struct fleet *f = *state;
	struct traits mine = { "mine", "c", "[]", 0 }, yours = { "yours", "c", "[]", 0 };
	uint32_t a = fleet_add(f, "x", &mine, 1, NOW, NOW);
	uint32_t b = fleet_add(f, "x", &yours, 2, NOW, NOW);

	assert_int_equal(fleet_find(f, "mine", "x"), a);
	assert_int_equal(fleet_find(f, "yours", "x"), b);
	fleet_remove(f, a);
	assert_int_equal(fleet_find(f, "mine", "x"), 0);
	assert_int_equal(fleet_find(f, "yours", "x"), b);
}

static void what_agents_share_is_kept_once(void **state)
{
	struct fleet *f = *state;
	struct traits able = { "local", "c", "[\"a\",\"b\"]", 0 };
	struct traits marked = { "local", "c", "[\"a\",\"b\"]", 7 };
	char name[16];

	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		add(f, name, NOW);
	}
	assert_int_equal(f->profiles.count, 1);
	uint32_t one = fleet_find(f, "local", "n1"), two = fleet_find(f, "local", "n2");
	fleet_set(f, one, &able);
	assert_int_equal(f->profiles.count, 2);
	fleet_set(f, two, &able);
	assert_ptr_equal(fleet_profile(f, one), fleet_profile(f, two));
	fleet_set(f, two, &marked);
	assert_int_equal(f->profiles.count, 3);
	assert_string_equal(fleet_profile(f, two)->capabilities, "[\"a\",\"b\"]");
	assert_int_equal(fleet_profile(f, two)->metadata, 7);
	fleet_set(f, one, &PLAIN);
	fleet_remove(f, two);
	assert_int_equal(f->profiles.count, 1);
	fleet_set(f, one, &able); /* a hole is used again */
	assert_int_equal(f->profiles_used, 3);
	check(f, NOW);
}

static void a_heartbeat_moves_to_the_end(void **state)
{
	struct fleet *f = *state;
	uint32_t a = add(f, "a", NOW), b = add(f, "b", NOW + 1), c = add(f, "c", NOW + 2);

	assert_int_equal(fleet_deadline(f), NOW + THRESHOLD + 1);
	fleet_touch(f, a, NOW + 10);
	assert_int_equal(fleet_first(f), b);
	assert_int_equal(fleet_next(f, b), c);
	assert_int_equal(fleet_next(f, c), a);
	assert_int_equal(fleet_next(f, a), 0);
	assert_int_equal(fleet_deadline(f), NOW + 1 + THRESHOLD + 1);
	fleet_touch(f, b, NOW + 5); /* an effect that came late keeps the order */
	assert_int_equal(fleet_at(f, b)->base, NOW + 10);
	check(f, NOW);
}

static void the_mark_counts_the_silent(void **state)
{
	struct fleet *f = *state;
	uint32_t first = 0;

	for (int i = 0; i < 30; i++) {
		char name[16];
		snprintf(name, sizeof(name), "n%d", i);
		uint32_t a = add(f, name, NOW + i * 1000);
		first = first ? first : a;
	}
	struct breaker *b = local(f);
	assert_int_equal(fleet_breaker(f, b, false, NOW + 60000), BREAKER_STAYS_CLOSED);
	assert_int_equal(b->silent, 0);
	fleet_breaker(f, b, false, NOW + 60001);
	assert_int_equal(b->silent, 1);
	fleet_touch(f, first, NOW + 60001);
	assert_int_equal(b->silent, 0);
	assert_int_equal(fleet_breaker(f, b, false, NOW + 75001), BREAKER_STAYS_CLOSED);
	assert_int_equal(b->silent, 15);
	assert_int_equal(fleet_breaker(f, b, false, NOW + 76001), BREAKER_TRIPS);
	assert_int_equal(b->silent, 16);
	check(f, NOW);
}

static void a_breaker_opens_and_closes(void **state)
{
	struct fleet *f = *state;
	char name[16];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		add(f, name, i < 18 ? NOW : NOW + 80000);
	}
	lapse_ms trip = NOW + THRESHOLD + 1;
	uint32_t n0 = fleet_find(f, "local", "n0"), n19 = fleet_find(f, "local", "n19");
	struct breaker *b = local(f);
	assert_int_equal(fleet_fate(f, n0, trip - 1), AGENT_STAYS);
	assert_int_equal(fleet_fate(f, n0, trip), AGENT_SUSPECTED); /* before the check, too */
	assert_int_equal(fleet_fate(f, n19, trip), AGENT_STAYS);
	fleet_trip(f, b, trip);
	for (int i = 0; i < 18; i++)
		fleet_remove(f, fleet_first(f)); /* they left as suspects */
	check(f, trip);
	/* While it is open, an agent that falls due becomes a suspect, too. */
	assert_int_equal(fleet_fate(f, n19, NOW + 80000 + THRESHOLD + 1), AGENT_SUSPECTED);
	assert_int_equal(fleet_breaker(f, b, false, trip + THRESHOLD), BREAKER_STAYS_OPEN);
	assert_int_equal(fleet_breaker(f, b, false, trip + THRESHOLD + 1), BREAKER_RELEASES);
	assert_int_equal(fleet_breaker(f, b, true, trip + THRESHOLD + 1), BREAKER_STAYS_CLOSED);
	assert_int_equal(fleet_fate(f, n19, trip + THRESHOLD + 1), AGENT_EVICTED);
	fleet_release(f, b);
	assert_int_equal(b->opened_at, LAPSE_NEVER);
	check(f, trip);
}

/* An open breaker is kept when the last agent of its owner has left, and only then. */
static void a_breaker_without_agents(void **state)
{
	struct fleet *f = *state;
	uint32_t a = add(f, "a", NOW);

	fleet_trip(f, local(f), NOW);
	fleet_remove(f, a);
	check(f, NOW);
	assert_non_null(local(f));
	a = add(f, "a", NOW + 1);
	assert_int_equal(local(f)->opened_at, NOW);
	fleet_remove(f, a);
	fleet_release(f, local(f));
	assert_null(local(f));
	check(f, NOW);
}

static void one_owners_silence_is_not_anothers(void **state)
{
	const struct traits mine = { "mine", "c", "[]", 0 }, yours = { "yours", "c", "[]", 0 };
	struct fleet *f = *state;
	char name[16];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		fleet_add(f, name, &mine, i + 1, NOW, NOW);
	}
	uint32_t other = fleet_add(f, "n0", &yours, 100, NOW, NOW);
	lapse_ms due = NOW + THRESHOLD + 1;
	assert_int_equal(fleet_fate(f, fleet_find(f, "mine", "n0"), due), AGENT_SUSPECTED);
	assert_int_equal(fleet_fate(f, other, due), AGENT_EVICTED);
	assert_int_equal(fleet_breaker_find(f, "mine")->silent, 20);
	assert_int_equal(fleet_breaker_find(f, "yours")->silent, 1);
	check(f, due);
}

/* The mark walks in pieces, and is where the breaker's own look would have put it. */
static void the_mark_catches_up(void **state)
{
	struct fleet *f = *state;
	char name[16];

	assert_int_equal(fleet_silence_at(f), LAPSE_NEVER);
	assert_false(fleet_catch_up(f, NOW));
	for (int i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		add(f, name, NOW + i);
	}
	assert_int_equal(fleet_silence_at(f), NOW + 60001);
	assert_false(fleet_catch_up(f, NOW + 60000));
	assert_int_equal(f->silent, 0);
	assert_true(fleet_catch_up(f, NOW + 60000 + 8000));
	assert_in_range(f->silent, 1, 7999);
	while (fleet_catch_up(f, NOW + 60000 + 8000))
		check(f, NOW);
	assert_int_equal(f->silent, 8000);
	assert_int_equal(fleet_silence_at(f), NOW + 8000 + 60001);
	fleet_breaker(f, local(f), false, NOW + 60000 + 8000);
	assert_int_equal(f->silent, 8000);
	check(f, NOW);
}

/* Two buckets more for each agent more, and every agent is found at every size. */
static void the_table_grows_by_a_few_buckets_at_a_time(void **state)
{
	struct fleet *f = *state;
	uint32_t before = f->buckets_count;
	char name[16];

	for (uint32_t i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		add(f, name, NOW);
		assert_int_equal(f->buckets_count, 2 * (i + 1) < before ? before : 2 * (i + 1));
		assert_true(f->buckets_count <= f->mask + 1 && f->buckets_count > f->mask / 2);
		if (i % 250 == 0)
			check(f, NOW);
	}
	for (uint32_t b = 0, i; b < f->buckets_count; b++)
		for (i = f->buckets[b]; i; i = fleet_at(f, i)->chain)
			assert_ptr_equal(fleet_bucket(f, fleet_at(f, i)->hash), &f->buckets[b]);
	check(f, NOW);
}

static void parked_ones_are_not_met_again(void **state)
{
	struct fleet *f = *state;
	uint32_t a = add(f, "a", NOW), b = add(f, "b", NOW + 5), c = add(f, "c", NOW + 9);

	fleet_breaker(f, local(f), false, NOW + 60003);
	assert_int_equal(f->silent, 1);
	fleet_park(f, a, true);
	fleet_park(f, b, false);
	assert_int_equal(f->silent, 0);
	assert_int_equal(fleet_first(f), c);
	assert_int_equal(fleet_deadline(f), NOW + 9 + THRESHOLD + 1);
	check(f, NOW);
	fleet_unpark(f);
	assert_int_equal(fleet_first(f), a);
	assert_int_equal(fleet_next(f, a), b);
	assert_int_equal(fleet_next(f, b), c);
	check(f, NOW);
	fleet_park(f, a, true);
	fleet_touch(f, a, NOW + 100);
	assert_int_equal(fleet_first_parked(f), 0);
	assert_int_equal(fleet_next(f, c), a);
	fleet_park(f, b, true);
	fleet_remove(f, b);
	check(f, NOW);
}

static void a_new_base_for_every_agent(void **state)
{
	struct fleet *f = *state;
	char name[16];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		add(f, name, NOW);
	}
	fleet_breaker(f, local(f), false, NOW + THRESHOLD + 1);
	assert_int_equal(f->silent, 20);
	fleet_trip(f, local(f), NOW + THRESHOLD + 1);
	fleet_park(f, fleet_first(f), true);
	fleet_rebase(f, NOW + 1000000);
	assert_int_equal(f->silent + f->parked + local(f)->silent, 0);
	assert_int_equal(fleet_deadline(f), NOW + 1000000 + THRESHOLD + 1);
	check(f, NOW);
}

/* What came from agents after `since` was lost: only who was due by then stays due. */
static void an_outage_spares_who_was_alive(void **state)
{
	const lapse_ms since = NOW + THRESHOLD + 1, over = NOW + 5 * THRESHOLD;
	struct fleet *f = *state;
	uint32_t due = add(f, "due", NOW), edge = add(f, "edge", NOW + 1);
	uint32_t late = add(f, "late", NOW + THRESHOLD);

	for (int passed = 0; passed < 2; passed++) { /* the mark has passed them, or not */
		if (passed)
			fleet_breaker(f, local(f), false, over - 1);
		fleet_spare(f, since, over);
		assert_int_equal(fleet_at(f, due)->base, NOW);
		assert_int_equal(fleet_at(f, edge)->base, over);
		assert_int_equal(fleet_at(f, late)->base, over);
		assert_int_equal(fleet_deadline(f), NOW + THRESHOLD + 1);
		check(f, over);
	}
	assert_int_equal(f->silent, 1);
	fleet_remove(f, due);
	fleet_spare(f, since, over);
	assert_int_equal(fleet_deadline(f), over + THRESHOLD + 1);
	check(f, over);
}

/* Lines */

static bool touch_lines(struct fleet *f, const char *text, lapse_ms now, int64_t *n)
{
	return beats_touch(f, "local", text, strlen(text), now, n);
}

static void lines_touch_all_or_none(void **state)
{
	struct fleet *f = *state;
	uint32_t a = add(f, "a", NOW), b = add(f, "b", NOW);
	int64_t n = 0;

	assert_true(touch_lines(f, "a,c\nb,c\r\na,c", NOW + 1, &n));
	assert_int_equal(n, 3);
	assert_int_equal(fleet_at(f, a)->last_seen, NOW + 1);
	assert_int_equal(fleet_at(f, b)->last_seen, NOW + 1);
	static const char *const refused[] = { "a,c\nx,c\n", "a,c\nb,other\n", "a,c\n\n", "a\n",
					       "a,c,\n",     "a,c\nb,\n",      "a,c \n",  ",c\n" };
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		assert_false(touch_lines(f, refused[i], NOW + 5, &n));
	assert_false(touch_lines(f, "a,c\n", NOW + 1 + THRESHOLD + 1, &n)); /* it is due */
	assert_false(beats_touch(f, "other", "a,c", 3, NOW + 5, &n));
	assert_int_equal(fleet_at(f, a)->last_seen, NOW + 1);
	check(f, NOW);
}

static void lines_are_bounded(void **state)
{
	struct fleet *f = *state;
	struct buf CLEANUP(buf_done) text = { 0 };
	int64_t n = 0;

	add(f, "a", NOW);
	for (int i = 0; i < BEATS_MAX; i++)
		buf_puts(&text, "a,c\n");
	assert_true(beats_touch(f, "local", text.data, text.len, NOW + 1, &n));
	assert_int_equal(n, BEATS_MAX);
	buf_puts(&text, "a,c\n");
	assert_false(beats_touch(f, "local", text.data, text.len, NOW + 1, &n));
}

static void toggle_breaker(struct fleet *f, struct breaker *b, lapse_ms now)
{
	enum breaker_step step = b ? fleet_breaker(f, b, false, now) : BREAKER_STAYS_CLOSED;

	if (step == BREAKER_TRIPS)
		fleet_trip(f, b, now);
	if (step == BREAKER_RELEASES)
		fleet_release(f, b);
}

/* A hundred thousand random steps, with every invariant looked at now and then. */
static void random_steps(void **state)
{
	struct fleet *f = *state;
	uint64_t seed = 20261115;
	lapse_ms now = NOW;
	char name[40];

	for (int step = 0; step < 100000; step++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		uint32_t dice = (uint32_t)(seed >> 33);
		struct traits t = { dice & 64 ? "o" : "p", dice & 128 ? "c" : "d", "[]",
				    dice >> 8 & 3 };
		snprintf(name, sizeof(name), "a-name-%s%u", dice & 4096 ? "that-is-long-" : "",
			 dice >> 16 & 127);
		uint32_t i = fleet_find(f, t.owner, name);
		switch (dice & 15) {
		case 0:
			now += dice >> 20;
			fleet_catch_up(f, now);
			break;
		case 1:
			toggle_breaker(f, fleet_breaker_find(f, t.owner), now);
			break;
		case 2:
			if (i && fleet_first(f) == i)
				fleet_park(f, i, dice & 512);
			break;
		case 3:
			fleet_unpark(f);
			break;
		case 4:
		case 5:
			if (i)
				fleet_remove(f, i);
			break;
		default:
			if (i) {
				fleet_set(f, i, &t);
				fleet_touch(f, i, now);
			} else {
				fleet_add(f, name, &t, step + 1, now, now);
			}
		}
		if (step % 500 == 0)
			check(f, now);
	}
	check(f, now);
}

static void moving_name(int i, char *name, size_t size)
{
	snprintf(name, size, i % 2 ? "a%d" : "an-agent-with-a-name-too-long-to-be-inline-%d", i);
}

/* Silent, parked and live agents with all that is counted about them; names short and long. */
static void an_owner_gets_anothers_agents(void **state)
{
	struct fleet *f = *state;
	const struct traits ops = { "ops", "c", "[]", 0 };
	lapse_ms later = NOW + THRESHOLD - 1;
	char name[64];

	for (int i = 0; i < 300; i++) {
		moving_name(i, name, sizeof(name));
		add(f, name, i < 200 ? NOW : later);
	}
	fleet_add(f, "own", &ops, 1000, later, later);
	fleet_catch_up(f, later);
	assert_true(f->silent > 0 && local(f)->silent == f->silent);
	fleet_park(f, fleet_find(f, "local", "a1"), true);
	check(f, later);

	for (int i = 0; i < 300; i++) {
		moving_name(i, name, sizeof(name));
		uint32_t agent = fleet_find(f, "local", name);
		int64_t id = fleet_at(f, agent)->id;
		fleet_move(f, "local", "ops", name, id + 1); /* another life of the name */
		assert_int_equal(fleet_find(f, "local", name), agent);
		fleet_move(f, "local", "ops", name, id);
		assert_int_equal(fleet_find(f, "ops", name), agent);
		check(f, later);
	}
	assert_null(local(f));
	assert_int_equal(fleet_breaker_find(f, "ops")->count, 301);
	assert_int_equal(fleet_breaker_find(f, "ops")->silent, f->silent);
	assert_true(fleet_find(f, "ops", "a1") && fleet_find(f, "ops", "own"));
	assert_int_equal(fleet_find(f, "local", "a1"), 0);
	fleet_touch(f, fleet_find(f, "ops", "a1"), later);
	fleet_move(f, "nobody", "ops", "a1", 1);
	check(f, later);
}

/* Its heartbeat was under way when it moved: the memory hears of it once more as it was before. */
static void an_agent_that_moved_before_it_was_heard_of_is_one(void **state)
{
	struct fleet *f = *state;
	const struct traits ops = { "ops", "c", "[]", 0 };

	fleet_add(f, "a", &ops, 7, NOW, NOW);
	fleet_add(f, "a", &(struct traits){ "local", "c", "[\"sum\"]", 0 }, 7, NOW + 5, NOW + 5);
	fleet_move(f, "local", "ops", "a", 7);
	check(f, NOW + 5);
	assert_null(local(f));
	assert_int_equal(f->count, 1);
	uint32_t i = fleet_find(f, "ops", "a");
	assert_int_equal(fleet_at(f, i)->last_seen, NOW + 5);
	assert_string_equal(fleet_profile(f, i)->capabilities, "[\"sum\"]");
}

#define FLEET_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FLEET_TEST(names_of_every_length),
		FLEET_TEST(it_grows_and_shrinks_and_grows),
		FLEET_TEST(owners_are_apart),
		FLEET_TEST(what_agents_share_is_kept_once),
		FLEET_TEST(a_heartbeat_moves_to_the_end),
		FLEET_TEST(the_mark_counts_the_silent),
		FLEET_TEST(a_breaker_opens_and_closes),
		FLEET_TEST(a_breaker_without_agents),
		FLEET_TEST(one_owners_silence_is_not_anothers),
		FLEET_TEST(the_mark_catches_up),
		FLEET_TEST(the_table_grows_by_a_few_buckets_at_a_time),
		FLEET_TEST(parked_ones_are_not_met_again),
		FLEET_TEST(a_new_base_for_every_agent),
		FLEET_TEST(an_outage_spares_who_was_alive),
		FLEET_TEST(an_owner_gets_anothers_agents),
		FLEET_TEST(an_agent_that_moved_before_it_was_heard_of_is_one),
		FLEET_TEST(lines_touch_all_or_none),
		FLEET_TEST(lines_are_bounded),
		FLEET_TEST(random_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
