/* SPDX-License-Identifier: Apache-2.0 */
/* Operational tables through the library: leases, entries, dedupe keys, queues, sign-ins, the log.
 */
#include <stdio.h>
#include <string.h>

#include "lib.h"

#define LEASES "workspace_leases"
#define KEEP_MS (7 * DAY_MS)

static struct seen seen;

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return world_setup(state);
}

static void see_text(const char *text, int64_t id, lapse_ms at)
{
	assert_true(seen.count < SEEN_MAX);
	snprintf(seen.items[seen.count].text, TEXT_SIZE, "%s", text);
	seen.items[seen.count].id = id;
	seen.items[seen.count++].at = at;
}

/* Leases */

static void see_lease(void *arg, const struct lapse_lease *l)
{
	char text[TEXT_SIZE];

	(void)arg;
	snprintf(text, sizeof(text), "%s/%s %s", l->table, l->key, l->holder);
	see_text(text, l->fencing_token, l->expires_at);
}

static int64_t acquire(struct world *w, const char *key, const char *holder, lapse_ms ttl_ms)
{
	assert_ok(w, lapse_lease_acquire(w->store, LEASES, key, holder, ttl_ms, see_lease, NULL));
	return seen.items[seen.count - 1].id;
}

static void test_one_holder_at_a_time(void **state)
{
	struct world *w = *state;
	int64_t token = acquire(w, "repo", "a", 1000);

	assert_string_equal(seen.items[0].text, LEASES "/repo a");
	assert_int_equal(seen.items[0].at, NOW + 1000);
	world_pass(w, 400);
	assert_int_equal(acquire(w, "repo", "a", 1000), token); /* renewed */
	assert_error(w, lapse_lease_acquire(w->store, LEASES, "repo", "b", 1000, NULL, NULL),
		     LAPSE_ECONFLICT, "holder");
	assert_non_null(strstr(lapse_error_message(w->store), "a holds it"));
	world_pass(w, 999);
	assert_error(w, lapse_lease_acquire(w->store, LEASES, "repo", "b", 1000, NULL, NULL),
		     LAPSE_ECONFLICT, "holder");
	world_pass(w, 1); /* at its end it is free */
	assert_error(w, lapse_lease_get(w->store, LEASES, "repo", NULL, NULL), LAPSE_ENOTFOUND,
		     "key");
	assert_true(acquire(w, "repo", "b", 1000) > token);
}

static void test_a_lease_is_given_back(void **state)
{
	struct world *w = *state;
	int64_t token = acquire(w, "repo", "a", 1000);

	assert_error(w, lapse_lease_release(w->store, LEASES, "repo", "b", 0), LAPSE_ECONFLICT,
		     "holder");
	assert_error(w, lapse_lease_release(w->store, LEASES, "repo", "a", token + 1),
		     LAPSE_ECONFLICT, "fencing_token");
	assert_ok(w, lapse_lease_release(w->store, LEASES, "repo", "a", token));
	assert_error(w, lapse_lease_release(w->store, LEASES, "repo", "a", 0), LAPSE_ENOTFOUND,
		     "key");
	world_reopen(w); /* tokens grow over restarts */
	assert_true(acquire(w, "repo", "a", 1000) > token);
}

static void test_leases_are_listed_and_swept(void **state)
{
	struct world *w = *state;

	acquire(w, "b", "x", 5000);
	acquire(w, "a", "x", 1000);
	acquire(w, "c", "x", 5000);
	seen.count = 0;
	assert_ok(w, lapse_lease_list(w->store, LEASES, NULL, 2, see_lease, NULL));
	assert_int_equal(seen.count, 2);
	assert_string_equal(seen.items[0].text, LEASES "/a x");
	assert_ok(w, lapse_lease_list(w->store, LEASES, "b", 2, see_lease, NULL));
	assert_int_equal(seen.count, 3);
	world_pass(w, 999);
	assert_int_equal(swept(w, "statestore", false), 0);
	world_pass(w, 1);
	seen.count = 0;
	assert_ok(w, lapse_lease_list(w->store, LEASES, NULL, 10, see_lease, NULL));
	assert_int_equal(seen.count, 2); /* swept or not */
	assert_int_equal(swept(w, "statestore", true), 1);
	assert_int_equal(swept(w, "statestore", false), 1);
}

static void test_what_leases_refuse(void **state)
{
	struct world *w = *state;

	assert_error(w, lapse_lease_acquire(w->store, "connections", "k", "h", 1, NULL, NULL),
		     LAPSE_ENOTFOUND, "table");
	assert_error(w, lapse_lease_acquire(w->store, NULL, "k", "h", 1, NULL, NULL),
		     LAPSE_ENOTFOUND, "table");
	assert_error(w, lapse_lease_acquire(w->store, LEASES, "a/b", "h", 1, NULL, NULL),
		     LAPSE_EINVAL, "key");
	assert_error(w, lapse_lease_acquire(w->store, LEASES, "k", NULL, 1, NULL, NULL),
		     LAPSE_EINVAL, "holder");
	assert_error(w, lapse_lease_acquire(w->store, LEASES, "k", "h", 0, NULL, NULL),
		     LAPSE_EINVAL, "ttl_ms");
	assert_error(w, lapse_lease_list(w->store, LEASES, NULL, 0, NULL, NULL), LAPSE_EINVAL,
		     "limit");
	assert_error(w, lapse_lease_release(w->store, LEASES, "k", "h", -1), LAPSE_EINVAL,
		     "fencing_token");
}

/* Entries */

static void see_entry(void *arg, const struct lapse_entry *e)
{
	char text[TEXT_SIZE];

	(void)arg;
	snprintf(text, sizeof(text), "%s %s", e->key, e->data);
	see_text(text, e->created_at, e->expires_at);
}

static void test_an_entry_lives_while_it_is_put(void **state)
{
	struct world *w = *state;
	const char *t = "connections";

	assert_ok(w, lapse_entry_put(w->store, t, "e", "{\"n\": 1}", 1000, see_entry, NULL));
	assert_string_equal(seen.items[0].text, "e {\"n\":1}");
	world_pass(w, 999);
	assert_ok(w, lapse_entry_put(w->store, t, "e", NULL, 1000, see_entry, NULL));
	assert_string_equal(seen.items[1].text, "e {\"n\":1}"); /* as it was */
	assert_int_equal(seen.items[1].id, NOW);
	assert_int_equal(seen.items[1].at, NOW + 1999);
	world_pass(w, 999);
	assert_ok(w, lapse_entry_get(w->store, t, "e", NULL, NULL));
	world_pass(w, 1);
	assert_error(w, lapse_entry_get(w->store, t, "e", NULL, NULL), LAPSE_ENOTFOUND, "key");
	assert_ok(w, lapse_entry_put(w->store, t, "e", NULL, 1000, see_entry, NULL));
	assert_string_equal(seen.items[2].text, "e {}"); /* a new one */
	assert_ok(w, lapse_entry_list(w->store, t, NULL, 10, see_entry, NULL));
	assert_int_equal(seen.count, 4);
	assert_ok(w, lapse_entry_remove(w->store, t, "e"));
	assert_error(w, lapse_entry_remove(w->store, t, "e"), LAPSE_ENOTFOUND, "key");
}

static void test_presence_has_its_cap(void **state)
{
	struct world *w = *state;
	char key[16];

	for (int i = 0; i < 501; i++) {
		snprintf(key, sizeof(key), "p%03d", i);
		assert_ok(w, lapse_entry_put(w->store, "presence_entries", key, NULL, HOUR_MS, NULL,
					     NULL));
		world_pass(w, 1);
	}
	assert_error(w, lapse_entry_get(w->store, "presence_entries", "p000", NULL, NULL),
		     LAPSE_ENOTFOUND, "key");
	assert_ok(w, lapse_entry_get(w->store, "presence_entries", "p001", NULL, NULL));
	assert_ok(w, lapse_entry_get(w->store, "presence_entries", "p500", NULL, NULL));
}

static void test_what_entries_refuse(void **state)
{
	struct world *w = *state;

	assert_error(w, lapse_entry_put(w->store, LEASES, "k", NULL, 1, NULL, NULL),
		     LAPSE_ENOTFOUND, "table");
	assert_error(w, lapse_entry_put(w->store, "connections", "k", "[]", 1, NULL, NULL),
		     LAPSE_EINVAL, "data");
	assert_error(w, lapse_entry_put(w->store, "connections", "", NULL, 1, NULL, NULL),
		     LAPSE_EINVAL, "key");
	assert_error(w, lapse_entry_put(w->store, "connections", "k", NULL, -1, NULL, NULL),
		     LAPSE_EINVAL, "ttl_ms");
	assert_ok(w, lapse_set_owner(w->store, "one"));
	assert_ok(w, lapse_entry_put(w->store, "connections", "k", NULL, 1000, NULL, NULL));
	assert_ok(w, lapse_set_owner(w->store, "two"));
	assert_error(w, lapse_entry_get(w->store, "connections", "k", NULL, NULL), LAPSE_ENOTFOUND,
		     "key");
}

/* Dedupe keys */

static void test_fresh_once_inside_the_window(void **state)
{
	struct world *w = *state;
	struct lapse_dedupe_key key = { "mail", "a", "c", "m1" };
	lapse_ms until = 0;
	bool fresh = false;

	assert_ok(w, lapse_dedupe_claim(w->store, &key, 1000, &fresh, &until));
	assert_true(fresh);
	assert_int_equal(until, NOW + 1000);
	world_pass(w, 999);
	assert_ok(w, lapse_dedupe_claim(w->store, &key, 1000, &fresh, &until));
	assert_false(fresh);
	assert_int_equal(until, NOW + 1000); /* not longer */
	world_pass(w, 1);
	assert_ok(w, lapse_dedupe_claim(w->store, &key, LAPSE_TTL_DEFAULT, &fresh, &until));
	assert_true(fresh);
	assert_int_equal(until, NOW + 1000 + DAY_MS);
	key.message_id = "m2";
	assert_ok(w, lapse_dedupe_claim(w->store, &key, 1000, NULL, NULL));
	key.container_id = NULL;
	assert_error(w, lapse_dedupe_claim(w->store, &key, 1000, &fresh, NULL), LAPSE_EINVAL,
		     "container_id");
	key.container_id = "c";
	assert_error(w, lapse_dedupe_claim(w->store, &key, 0, &fresh, NULL), LAPSE_EINVAL,
		     "window_ms");
	assert_true(fresh); /* untouched by failures */
}

/* Queues */

static void see_item(void *arg, const struct lapse_queue_item *item)
{
	char text[TEXT_SIZE];

	(void)arg;
	snprintf(text, sizeof(text), "%s %d #%d %s %s", item->payload, (int)item->status,
		 (int)item->attempt, item->worker, item->error);
	see_text(text, item->id, item->lease_expires_at);
	seen.items[seen.count - 1].read_at = item->finished_at;
	seen.items[seen.count - 1].claim_id = item->inbox_id;
}

static int64_t queued(struct world *w, const char *table, const char *payload, int64_t inbox_id)
{
	struct lapse_queue_draft draft = { .payload = payload, .inbox_id = inbox_id };
	int64_t id = 0;
	bool added = false;

	assert_ok(w, lapse_queue_add(w->store, table, &draft, &id, &added));
	assert_true(added && id > 0);
	return id;
}

static void test_an_item_is_worked_on(void **state)
{
	struct world *w = *state;
	const char *t = "channel_inbox";
	enum lapse_queue_status status = LAPSE_QUEUE_ANY;
	lapse_ms until = 0;
	int64_t count = -1, id = queued(w, t, "{\"n\": 1}", 0);

	assert_ok(w, lapse_queue_claim(w->store, t, "w1", 10, 1000, see_item, NULL, &count));
	assert_int_equal(count, 1);
	assert_string_equal(seen.items[0].text, "{\"n\":1} 1 #1 w1 ");
	assert_int_equal(seen.items[0].at, NOW + 1000);
	assert_ok(w, lapse_queue_claim(w->store, t, "w2", 10, 1000, see_item, NULL, &count));
	assert_int_equal(count, 0);
	assert_error(w, lapse_queue_complete(w->store, t, id, "w2", 1), LAPSE_ECONFLICT, "attempt");
	assert_ok(w, lapse_queue_extend(w->store, t, id, "w1", 1, 2000, &until));
	assert_int_equal(until, NOW + 2000);
	assert_ok(w, lapse_queue_fail(w->store, t, id, "w1", 1, "no luck", true, &status));
	assert_int_equal(status, LAPSE_QUEUE_QUEUED);
	assert_ok(w, lapse_queue_claim(w->store, t, "w2", 1, 1000, NULL, NULL, NULL));
	assert_ok(w, lapse_queue_complete(w->store, t, id, "w2", 2));
	assert_ok(w, lapse_queue_get(w->store, t, id, see_item, NULL));
	assert_string_equal(seen.items[1].text, "{\"n\":1} 2 #2 w2 no luck");
	assert_int_equal(seen.items[1].read_at, NOW);
}

static void test_a_lease_that_ends_offers_the_item_again(void **state)
{
	struct world *w = *state;
	const char *t = "channel_inbox";
	int64_t count = 0, id = queued(w, t, NULL, 0);

	for (int attempt = 1; attempt <= 10; attempt++) {
		assert_ok(w, lapse_queue_claim(w->store, t, "w", 1, 1000, NULL, NULL, &count));
		assert_int_equal(count, 1);
		world_pass(w, 1000);
	}
	assert_ok(w, lapse_queue_claim(w->store, t, "w", 1, 1000, NULL, NULL, &count));
	assert_int_equal(count, 0); /* its attempts are used up */
	assert_error(w, lapse_queue_complete(w->store, t, id, "w", 10), LAPSE_ECONFLICT, "attempt");
	assert_ok(w, lapse_queue_list(w->store, t, LAPSE_QUEUE_FAILED, 0, 10, see_item, NULL));
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.items[0].id, id);
}

/* A completed inbox item waits for its outbox item; a completed outbox item is gone at once. */
static void test_items_go_when_they_may(void **state)
{
	struct world *w = *state;
	int64_t in = queued(w, "channel_inbox", NULL, 0),
		out = queued(w, "channel_outbox", NULL, in);

	assert_ok(w, lapse_queue_claim(w->store, "channel_inbox", "w", 1, 1000, NULL, NULL, NULL));
	assert_ok(w, lapse_queue_complete(w->store, "channel_inbox", in, "w", 1));
	world_pass(w, KEEP_MS + 1);
	assert_int_equal(swept(w, "statestore", false), 0);
	assert_ok(w, lapse_queue_get(w->store, "channel_outbox", out, see_item, NULL));
	assert_int_equal(seen.items[0].claim_id, in);
	assert_ok(w, lapse_queue_claim(w->store, "channel_outbox", "w", 1, 1000, NULL, NULL, NULL));
	assert_ok(w, lapse_queue_complete(w->store, "channel_outbox", out, "w", 1));
	assert_error(w, lapse_queue_get(w->store, "channel_outbox", out, NULL, NULL),
		     LAPSE_ENOTFOUND, "id");
	assert_int_equal(swept(w, "statestore", false), 1);
	assert_error(w, lapse_queue_get(w->store, "channel_inbox", in, NULL, NULL), LAPSE_ENOTFOUND,
		     "id");
}

static void test_an_item_is_added_once(void **state)
{
	struct world *w = *state;
	struct lapse_queue_draft draft = { .dedupe_key = "d", .key = "room" };
	int64_t first = 0, second = 0, third = 0;
	bool added = false;

	assert_ok(w, lapse_queue_add(w->store, "channel_inbox", &draft, &first, &added));
	assert_true(added);
	assert_ok(w, lapse_queue_add(w->store, "channel_inbox", &draft, &second, &added));
	assert_false(added);
	assert_int_equal(first, second);
	draft.dedupe_key = NULL;
	for (int i = 0; i < 2; i++) {
		assert_ok(w, lapse_set_idempotency_key(w->store, "once"));
		assert_ok(w, lapse_queue_add(w->store, "channel_inbox", &draft,
					     i == 0 ? &second : &third, &added));
		assert_true(added);
		assert_int_equal(lapse_was_replayed(w->store), i == 1);
	}
	assert_int_equal(second, third);
	draft.key = "other";
	assert_ok(w, lapse_set_idempotency_key(w->store, "once"));
	assert_error(w, lapse_queue_add(w->store, "channel_inbox", &draft, NULL, NULL),
		     LAPSE_EUNPROCESSABLE, "idempotency_key");
}

static void test_what_queues_refuse(void **state)
{
	struct world *w = *state;
	struct lapse_queue_draft draft = { .inbox_id = 4711 };
	const char *in = "channel_inbox", *out = "channel_outbox";

	assert_error(w, lapse_queue_add(w->store, "outbox", &draft, NULL, NULL), LAPSE_ENOTFOUND,
		     "table");
	assert_error(w, lapse_queue_add(w->store, out, &draft, NULL, NULL), LAPSE_EINVAL,
		     "inbox_id");
	assert_error(w, lapse_queue_add(w->store, in, &draft, NULL, NULL), LAPSE_EINVAL,
		     "inbox_id");
	draft = (struct lapse_queue_draft){ .payload = "7" };
	assert_error(w, lapse_queue_add(w->store, in, &draft, NULL, NULL), LAPSE_EINVAL, "payload");
	assert_error(w, lapse_queue_claim(w->store, in, "w", 0, 1, NULL, NULL, NULL), LAPSE_EINVAL,
		     "limit");
	assert_error(w, lapse_queue_claim(w->store, in, "w", 1, 0, NULL, NULL, NULL), LAPSE_EINVAL,
		     "lease_ms");
	assert_error(w, lapse_queue_complete(w->store, in, 4711, "w", 1), LAPSE_ENOTFOUND, "id");
	assert_error(w, lapse_queue_fail(w->store, in, 4711, "w", 1, NULL, false, NULL),
		     LAPSE_EINVAL, "error");
	assert_error(w,
		     lapse_queue_list(w->store, in, (enum lapse_queue_status)9, 0, 1, NULL, NULL),
		     LAPSE_EINVAL, "status");
}

/* Sign-ins and the cache */

static void see_data(void *arg, const char *data)
{
	(void)arg;
	see_text(data, 0, 0);
}

static void test_a_state_is_consumed_once(void **state)
{
	struct world *w = *state;
	lapse_ms until = 0;

	assert_ok(w, lapse_oauth_put(w->store, "s", "{\"v\": \"x\"}", 1000, &until));
	assert_int_equal(until, NOW + 1000);
	world_pass(w, 999);
	assert_ok(w, lapse_oauth_consume(w->store, "s", see_data, NULL));
	assert_string_equal(seen.items[0].text, "{\"v\":\"x\"}");
	assert_error(w, lapse_oauth_consume(w->store, "s", see_data, NULL), LAPSE_ENOTFOUND,
		     "state");
	assert_ok(w, lapse_oauth_put(w->store, "s", NULL, 1000, NULL));
	world_pass(w, 1000);
	assert_error(w, lapse_oauth_consume(w->store, "s", see_data, NULL), LAPSE_EEXPIRED,
		     "state");
	assert_int_equal(seen.count, 1);
}

static void test_the_cache_is_one_row(void **state)
{
	struct world *w = *state;

	assert_int_equal(lapse_models_cache_get(w->store, see_data, NULL), LAPSE_ENOTFOUND);
	assert_ok(w, lapse_models_cache_put(w->store, "{\"a\": 1}"));
	assert_ok(w, lapse_models_cache_put(w->store, "{\"a\": 2}"));
	world_pass(w, 400 * DAY_MS);
	assert_int_equal(swept(w, "statestore", false), 0);
	assert_ok(w, lapse_models_cache_get(w->store, see_data, NULL));
	assert_string_equal(seen.items[0].text, "{\"a\":2}");
}

/* The log */

static void see_row(void *arg, const struct lapse_outbox_row *row)
{
	char text[TEXT_SIZE];

	(void)arg;
	snprintf(text, sizeof(text), "%s %s", row->topic, row->payload);
	see_text(text, row->id, row->created_at);
}

static void see_consumer(void *arg, const struct lapse_outbox_consumer *c)
{
	(void)arg;
	see_text(c->name, c->position, c->updated_at);
	seen.items[seen.count - 1].claim_id = c->lag;
}

static void test_the_log_is_read_in_order(void **state)
{
	struct world *w = *state;
	int64_t ids[4], position = 0;
	bool gap = true;

	for (int i = 0; i < 4; i++) {
		assert_ok(w, lapse_outbox_add(w->store, i % 2 ? "b" : "a", "{}", &ids[i]));
		world_pass(w, HOUR_MS);
	}
	assert_ok(w, lapse_outbox_read(w->store, 0, NULL, 10, see_row, NULL, &gap));
	assert_int_equal(seen.count, 4);
	assert_int_equal(seen.items[3].id, ids[3]);
	assert_false(gap);
	assert_ok(w, lapse_outbox_read(w->store, ids[1], "a", 10, see_row, NULL, NULL));
	assert_int_equal(seen.items[4].id, ids[2]);
	assert_ok(w, lapse_outbox_commit(w->store, "c", ids[1], false));
	assert_error(w, lapse_outbox_commit(w->store, "c", ids[0], false), LAPSE_ECONFLICT,
		     "position");
	assert_ok(w, lapse_outbox_commit(w->store, "c", ids[0], true));
	assert_ok(w, lapse_outbox_position(w->store, "c", &position));
	assert_int_equal(position, ids[0]);
	seen.count = 0;
	assert_ok(w, lapse_outbox_consumers(w->store, NULL, 10, see_consumer, NULL));
	assert_string_equal(seen.items[0].text, "c");
	assert_int_equal(seen.items[0].claim_id, 3);
	world_pass(w, 23 * HOUR_MS); /* the first rows are over */
	assert_ok(w, lapse_outbox_read(w->store, ids[0], NULL, 10, NULL, NULL, &gap));
	assert_true(gap);
	assert_true(swept(w, "outbox", false) >= 3);
	assert_ok(w, lapse_outbox_position(w->store, "c", &position));
	world_pass(w, 2 * HOUR_MS); /* it has stopped advancing */
	assert_error(w, lapse_outbox_position(w->store, "c", &position), LAPSE_ENOTFOUND,
		     "consumer");
}

static void test_a_row_is_added_once(void **state)
{
	struct world *w = *state;
	int64_t first = 0, second = 0;

	assert_ok(w, lapse_set_idempotency_key(w->store, "k"));
	assert_ok(w, lapse_outbox_add(w->store, "t", "{}", &first));
	world_reopen(w);
	assert_ok(w, lapse_set_idempotency_key(w->store, "k"));
	assert_ok(w, lapse_outbox_add(w->store, "t", "{}", &second));
	assert_true(lapse_was_replayed(w->store));
	assert_int_equal(first, second);
	assert_error(w, lapse_outbox_add(w->store, "", "{}", NULL), LAPSE_EINVAL, "topic");
	assert_error(w, lapse_outbox_add(w->store, "t", "x", NULL), LAPSE_EINVAL, "payload");
	assert_error(w, lapse_outbox_read(w->store, -1, NULL, 1, NULL, NULL, NULL), LAPSE_EINVAL,
		     "after");
	assert_error(w, lapse_outbox_commit(w->store, "a/b", 1, false), LAPSE_EINVAL, "consumer");
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD(test_one_holder_at_a_time),
		WORLD(test_a_lease_is_given_back),
		WORLD(test_leases_are_listed_and_swept),
		WORLD(test_what_leases_refuse),
		WORLD(test_an_entry_lives_while_it_is_put),
		WORLD(test_presence_has_its_cap),
		WORLD(test_what_entries_refuse),
		WORLD(test_fresh_once_inside_the_window),
		WORLD(test_an_item_is_worked_on),
		WORLD(test_a_lease_that_ends_offers_the_item_again),
		WORLD(test_items_go_when_they_may),
		WORLD(test_an_item_is_added_once),
		WORLD(test_what_queues_refuse),
		WORLD(test_a_state_is_consumed_once),
		WORLD(test_the_cache_is_one_row),
		WORLD(test_the_log_is_read_in_order),
		WORLD(test_a_row_is_added_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
