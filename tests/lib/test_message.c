/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of messages: sending, listing, reading, claiming, statistics, and what they refuse. */
#include <stdlib.h>
#include <string.h>

#include "lib.h"

static struct seen seen;

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return world_setup(state);
}

static void expect_whole(void *arg, const struct lapse_message *m)
{
	const int64_t *id = arg;

	assert_int_equal(m->id, *id);
	assert_string_equal(m->to, "bob");
	assert_string_equal(m->from, "alice");
	assert_string_equal(m->content, "grün\n");
	assert_string_equal(m->type, "task");
	assert_string_equal(m->metadata, "{\"a\":[1,2]}");
	assert_int_equal(m->timestamp, NOW);
	assert_int_equal(m->read_at, LAPSE_NEVER);
	assert_int_equal(m->claim_id, LAPSE_NO_CLAIM);
}

static void test_a_message_comes_back_whole(void **state)
{
	struct world *w = *state;
	char content[] = "grün\n", metadata[] = " { \"a\" : [1, 2] } ";
	struct lapse_draft d = { "bob", "alice", content, "task", metadata };
	int64_t id;

	assert_ok(w, lapse_message_send(w->store, &d, &id));
	memset(content, 'x', 3); /* what we passed is ours again */
	memset(metadata, 'x', 3);
	assert_ok(w, lapse_message_get(w->store, "bob", id, expect_whole, &id));
	assert_ok(w, lapse_message_get(w->store, "bob", id, NULL, NULL));
}

static void test_defaults_of_a_draft(void **state)
{
	struct world *w = *state;
	struct lapse_draft d = { .to = "bob", .from = "alice", .content = "" };

	assert_ok(w, lapse_message_send(w->store, &d, NULL));
	assert_ok(w, lapse_message_list(w->store, "bob", true, 0, 1, see_message, &seen));
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.items[0].text, "");
}

static void refuse(struct world *w, struct lapse_draft d, int err, const char *field)
{
	int64_t untouched = 42;

	assert_error(w, lapse_message_send(w->store, &d, &untouched), err, field);
	assert_int_equal(untouched, 42);
}

static void test_drafts_that_are_refused(void **state)
{
	struct world *w = *state;
	const struct lapse_draft good = { "bob", "alice", "c", NULL, NULL };
	struct lapse_draft d;
	char *large = malloc(1048578), id129[130], type65[66];

	memset(large, 'x', 1048577);
	large[1048577] = '\0';
	memset(id129, 'x', 129);
	id129[129] = '\0';
	memset(type65, 'x', 65);
	type65[65] = '\0';
	const struct {
		const char *to, *from, *content, *type, *metadata;
		int err;
		const char *field;
	} cases[] = {
		{ "", NULL, NULL, NULL, NULL, LAPSE_EINVAL, "to" },
		{ "a/b", NULL, NULL, NULL, NULL, LAPSE_EINVAL, "to" },
		{ "\xff", NULL, NULL, NULL, NULL, LAPSE_EINVAL, "to" },
		{ id129, NULL, NULL, NULL, NULL, LAPSE_EINVAL, "to" },
		{ NULL, "", NULL, NULL, NULL, LAPSE_EINVAL, "from" },
		{ NULL, "a\n", NULL, NULL, NULL, LAPSE_EINVAL, "from" },
		{ NULL, NULL, "\xc3", NULL, NULL, LAPSE_EINVAL, "content" },
		{ NULL, NULL, large, NULL, NULL, LAPSE_ETOOLARGE, "content" },
		{ NULL, NULL, NULL, "", NULL, LAPSE_EINVAL, "type" },
		{ NULL, NULL, NULL, type65, NULL, LAPSE_EINVAL, "type" },
		{ NULL, NULL, NULL, "a\tb", NULL, LAPSE_EINVAL, "type" },
		{ NULL, NULL, NULL, NULL, "", LAPSE_EINVAL, "metadata" },
		{ NULL, NULL, NULL, NULL, "[1]", LAPSE_EINVAL, "metadata" },
		{ NULL, NULL, NULL, NULL, "{\"a\":1,\"a\":2}", LAPSE_EINVAL, "metadata" },
		{ NULL, NULL, NULL, NULL, "{} x", LAPSE_EINVAL, "metadata" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		d = good;
		d.to = cases[i].to ? cases[i].to : d.to;
		d.from = cases[i].from ? cases[i].from : d.from;
		d.content = cases[i].content ? cases[i].content : d.content;
		d.type = cases[i].type;
		d.metadata = cases[i].metadata;
		refuse(w, d, cases[i].err, cases[i].field);
	}
	refuse(w, (struct lapse_draft){ NULL, "a", "c", NULL, NULL }, LAPSE_EINVAL, "to");
	refuse(w, (struct lapse_draft){ "b", NULL, "c", NULL, NULL }, LAPSE_EINVAL, "from");
	refuse(w, (struct lapse_draft){ "b", "a", NULL, NULL, NULL }, LAPSE_EINVAL, "content");
	free(large);
	assert_ok(w, lapse_message_stats(w->store, NULL, 10, see_inbox, &seen));
	assert_int_equal(seen.count, 0);
	assert_ok(w, lapse_message_send(w->store, &good, NULL));
}

static void test_a_broadcast_goes_to_all_or_none(void **state)
{
	struct world *w = *state;
	const char *to[] = { "a", "b", "c" };
	const char *twice[] = { "a", "b", "a" };
	const char *bad[] = { "a", "b/c", NULL };
	struct lapse_draft d = { .from = "alice", .content = "all" };
	int64_t ids[3] = { 0 };

	assert_ok(w, lapse_message_broadcast(w->store, to, 3, &d, ids));
	assert_true(0 < ids[0] && ids[0] < ids[1] && ids[1] < ids[2]);
	assert_ok(w, lapse_message_get(w->store, "c", ids[2], see_message, &seen));
	assert_string_equal(seen.items[0].text, "all");
	assert_error(w, lapse_message_broadcast(w->store, twice, 3, &d, NULL), LAPSE_EINVAL, "to");
	assert_error(w, lapse_message_broadcast(w->store, bad, 2, &d, NULL), LAPSE_EINVAL, "to");
	assert_error(w, lapse_message_broadcast(w->store, bad + 1, 2, &d, NULL), LAPSE_EINVAL,
		     "to");
	assert_error(w, lapse_message_broadcast(w->store, to, 0, &d, NULL), LAPSE_EINVAL, "to");
	assert_error(w, lapse_message_broadcast(w->store, NULL, 1, &d, NULL), LAPSE_EINVAL, "to");
	assert_ok(w, lapse_message_broadcast(w->store, to, 1, &d, NULL));
	assert_int_equal(count_messages(w, "a"), 2);
	assert_int_equal(count_messages(w, "b"), 1);
}

static int setup_small_inbox(void **state)
{
	static const struct lapse_setting settings[] = { { "unread_max_per_agent", "1" } };
	int r = world_setup_bare(state);
	struct world *w = *state;

	w->options.settings = settings;
	w->options.settings_count = 1;
	world_open(w);
	return r;
}

static void test_a_full_inbox_stops_the_whole_broadcast(void **state)
{
	struct world *w = *state;
	const char *to[] = { "a", "full", "c" };
	struct lapse_draft d = { .from = "alice", .content = "all" };
	int64_t ids[3] = { 1, 2, 3 };

	send_to(w, "full", "one");
	assert_error(w, lapse_message_broadcast(w->store, to, 3, &d, ids), LAPSE_ELIMIT, "to");
	assert_int_equal(ids[0], 1);
	assert_int_equal(count_messages(w, "a"), 0);
}

static void test_lists_go_newest_first_in_pages(void **state)
{
	struct world *w = *state;
	int64_t ids[5];

	for (int i = 0; i < 5; i++) {
		char text[] = { (char)('0' + i), '\0' };
		ids[i] = send_to(w, "bob", text);
	}
	assert_ok(w, lapse_message_mark_read(w->store, "bob", ids[3], LAPSE_NO_CLAIM));
	assert_ok(w, lapse_message_list(w->store, "bob", false, 0, 2, see_message, &seen));
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.items[0].text, "4");
	assert_int_equal(seen.items[1].read_at, NOW);
	assert_ok(w, lapse_message_list(w->store, "bob", false, seen.items[1].id, 10, see_message,
					&seen));
	assert_int_equal(seen.count, 5);
	assert_string_equal(seen.items[4].text, "0");
	assert_ok(w, lapse_message_list(w->store, "bob", true, 0, 10, see_message, &seen));
	assert_int_equal(seen.count, 9);
	assert_error(w, lapse_message_list(w->store, "bob", true, 0, 0, NULL, NULL), LAPSE_EINVAL,
		     "limit");
	assert_error(w, lapse_message_list(w->store, "bob", true, 0, 1001, NULL, NULL),
		     LAPSE_EINVAL, "limit");
	assert_error(w, lapse_message_list(w->store, "", true, 0, 1, NULL, NULL), LAPSE_EINVAL,
		     "agent");
	assert_error(w, lapse_message_list(w->store, NULL, true, 0, 1, NULL, NULL), LAPSE_EINVAL,
		     "agent");
}

static void test_marking_as_read(void **state)
{
	struct world *w = *state;
	int64_t id = send_to(w, "bob", "x");

	assert_ok(w, lapse_message_mark_read(w->store, "bob", id, LAPSE_NO_CLAIM));
	world_pass(w, SECOND_MS);
	assert_ok(w, lapse_message_mark_read(w->store, "bob", id, LAPSE_NO_CLAIM));
	assert_ok(w, lapse_message_get(w->store, "bob", id, see_message, &seen));
	assert_int_equal(seen.items[0].read_at, NOW);
	assert_error(w, lapse_message_mark_read(w->store, "eve", id, LAPSE_NO_CLAIM),
		     LAPSE_ENOTFOUND, "id");
	assert_error(w, lapse_message_mark_read(w->store, "bob", -5, LAPSE_NO_CLAIM),
		     LAPSE_ENOTFOUND, "id");
}

static void test_marking_many(void **state)
{
	struct world *w = *state;
	int64_t ids[3], count = 0;

	for (int i = 0; i < 3; i++)
		ids[i] = send_to(w, "bob", "x");
	assert_ok(w, lapse_message_mark_ids(w->store, "bob", ids, 2, &count));
	assert_int_equal(count, 2);
	assert_ok(w, lapse_message_mark_ids(w->store, "bob", ids, 3, &count));
	assert_int_equal(count, 1);
	assert_error(w, lapse_message_mark_ids(w->store, "bob", ids, 0, &count), LAPSE_EINVAL,
		     "count");
	assert_error(w, lapse_message_mark_ids(w->store, "bob", NULL, 3, &count), LAPSE_EINVAL,
		     "count");
	for (int i = 0; i < 1203; i++)
		send_to(w, "many", "x");
	world_pass(w, 1);
	send_to(w, "many", "later");
	assert_ok(w, lapse_message_mark_before(w->store, "many", NOW + 1, &count));
	assert_int_equal(count, 1203);
	assert_ok(w, lapse_message_list(w->store, "many", true, 0, 10, see_message, &seen));
	assert_int_equal(seen.count, 1);
	assert_ok(w, lapse_message_mark_before(w->store, "many", NOW + 1, NULL));
}

static void test_claims(void **state)
{
	struct world *w = *state;
	int64_t first = send_to(w, "bob", "1"), claim = 0, other = 0;

	send_to(w, "bob", "2");
	assert_ok(w, lapse_message_claim(w->store, "bob", 1, 30000, see_message, &seen, &claim));
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.items[0].id, first);
	assert_int_equal(seen.items[0].claim_id, claim);
	assert_ok(w, lapse_message_claim(w->store, "bob", 10, 30000, see_message, &seen, &other));
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.items[1].text, "2");
	assert_ok(w, lapse_message_claim(w->store, "bob", 10, 30000, see_message, &seen, &other));
	assert_int_equal(seen.count, 2);
	assert_int_equal(other, LAPSE_NO_CLAIM);

	world_pass(w, 30000); /* the lease has ended: somebody else gets it */
	assert_ok(w, lapse_message_claim(w->store, "bob", 1, 30000, see_message, &seen, &other));
	assert_int_equal(seen.items[2].id, first);
	assert_error(w, lapse_message_mark_read(w->store, "bob", first, claim), LAPSE_ECONFLICT,
		     "claim_id");
	assert_ok(w, lapse_message_mark_read(w->store, "bob", first, other));
	assert_error(w, lapse_message_claim(w->store, "bob", 1, 0, NULL, NULL, NULL), LAPSE_EINVAL,
		     "visibility_ms");
	assert_error(w, lapse_message_claim(w->store, "bob", 1, 43200001, NULL, NULL, NULL),
		     LAPSE_EINVAL, "visibility_ms");
	assert_error(w, lapse_message_claim(w->store, "bob", 0, 1, NULL, NULL, NULL), LAPSE_EINVAL,
		     "limit");
}

static void test_a_lease_ends_at_the_millisecond(void **state)
{
	struct world *w = *state;
	int64_t claim = 0;

	send_to(w, "bob", "1");
	assert_ok(w, lapse_message_claim(w->store, "bob", 1, 1000, NULL, NULL, NULL));
	world_pass(w, 999);
	assert_ok(w, lapse_message_claim(w->store, "bob", 1, 1000, NULL, NULL, &claim));
	assert_int_equal(claim, LAPSE_NO_CLAIM);
	world_pass(w, 1);
	assert_ok(w, lapse_message_claim(w->store, "bob", 1, 1000, NULL, NULL, &claim));
	assert_int_not_equal(claim, LAPSE_NO_CLAIM);
}

static void test_statistics(void **state)
{
	struct world *w = *state;

	send_to(w, "bob", "1");
	world_pass(w, 5);
	send_to(w, "bob", "2");
	send_read(w, "alice", "3");
	assert_ok(w, lapse_message_stats(w->store, NULL, 10, see_inbox, &seen));
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.items[0].text, "alice");
	assert_int_equal(seen.items[0].at, LAPSE_NEVER);
	assert_int_equal(seen.items[1].id, 2);
	assert_int_equal(seen.items[1].claim_id, 2);
	assert_int_equal(seen.items[1].at, NOW);
	assert_ok(w, lapse_message_stats(w->store, "alice", 10, see_inbox, &seen));
	assert_int_equal(seen.count, 3);
}

/* Callbacks that come back in are told off, and the call they belong to goes on. */

static void come_back(void *arg, const struct lapse_message *m)
{
	struct world *w = arg;
	struct lapse_draft d = { "bob", "alice", m->content, NULL, NULL };

	assert_error(w, lapse_message_send(w->store, &d, NULL), LAPSE_EINVAL, "");
	assert_error(w, lapse_tick(w->store), LAPSE_EINVAL, "");
	assert_error(w, lapse_sweep(w->store, "messages", false, NULL), LAPSE_EINVAL, "");
	assert_error(w, lapse_set_owner(w->store, "eve"), LAPSE_EINVAL, "");
	assert_error(w, lapse_message_claim(w->store, "bob", 1, 1, NULL, NULL, NULL), LAPSE_EINVAL,
		     "");
	lapse_next_us(w->store);
}

static void test_a_callback_must_not_come_back(void **state)
{
	struct world *w = *state;
	int64_t id = send_to(w, "bob", "x");

	assert_ok(w, lapse_message_get(w->store, "bob", id, come_back, w));
	assert_ok(w, lapse_message_list(w->store, "bob", false, 0, 10, come_back, w));
	assert_ok(w, lapse_message_claim(w->store, "bob", 1, 1, come_back, w, NULL));
	assert_int_equal(count_messages(w, "bob"), 1);
}

/* It may use another store. */
static void forward(void *arg, const struct lapse_message *m)
{
	send_to(arg, m->to, m->content);
}

static void test_a_callback_may_use_another_store(void **state)
{
	struct world *w = *state;
	struct world *other;

	world_setup((void **)&other);
	send_to(w, "bob", "x");
	assert_ok(w, lapse_message_list(w->store, "bob", false, 0, 10, forward, other));
	assert_int_equal(count_messages(other, "bob"), 1);
	world_teardown((void **)&other);
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD(test_a_message_comes_back_whole),
		WORLD(test_defaults_of_a_draft),
		WORLD(test_drafts_that_are_refused),
		WORLD(test_a_broadcast_goes_to_all_or_none),
		cmocka_unit_test_setup_teardown(test_a_full_inbox_stops_the_whole_broadcast,
						setup_small_inbox, world_teardown),
		WORLD(test_lists_go_newest_first_in_pages),
		WORLD(test_marking_as_read),
		WORLD(test_marking_many),
		WORLD(test_claims),
		WORLD(test_a_lease_ends_at_the_millisecond),
		WORLD(test_statistics),
		WORLD(test_a_callback_must_not_come_back),
		WORLD(test_a_callback_may_use_another_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
