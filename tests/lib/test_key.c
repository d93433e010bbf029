/* SPDX-License-Identifier: Apache-2.0 */
/* Idempotency keys: the first answer again, to the same call only, across restarts. */
#include <string.h>

#include "lib.h"

#define KEY "order-4711"

static int64_t send_keyed(struct world *w, const char *key, const char *content, bool replayed)
{
	struct lapse_draft d = { .to = "bob", .from = "alice", .content = content };
	int64_t id = 0;

	assert_ok(w, lapse_set_idempotency_key(w->store, key));
	assert_ok(w, lapse_message_send(w->store, &d, &id));
	assert_int_equal(lapse_was_replayed(w->store), replayed);
	return id;
}

static void test_a_message_is_sent_once(void **state)
{
	struct world *w = *state;
	int64_t id = send_keyed(w, KEY, "x", false);

	for (int i = 0; i < 3; i++) {
		assert_int_equal(send_keyed(w, KEY, "x", true), id);
		world_reopen(w);
	}
	assert_int_equal(count_messages(w, "bob"), 1);
	assert_true(send_keyed(w, "another", "x", false) != id);
	assert_int_equal(count_messages(w, "bob"), 2);
}

static void test_a_key_is_for_one_call(void **state)
{
	struct world *w = *state;
	int64_t id = send_keyed(w, KEY, "x", false);

	assert_true(send_to(w, "bob", "x") != id); /* the key is used up */
	assert_false(lapse_was_replayed(w->store));
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_ok(w, lapse_tick(w->store)); /* takes no key, and leaves it */
	assert_ok(w, lapse_set_idempotency_key(w->store, NULL));
	send_to(w, "bob", "x");
	assert_int_equal(count_messages(w, "bob"), 3);
}

static void test_other_arguments_are_refused(void **state)
{
	struct world *w = *state;
	struct lapse_draft d = { .to = "bob", .from = "alice", .content = "y" };
	int64_t untouched = 42;

	send_keyed(w, KEY, "x", false);
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_error(w, lapse_message_send(w->store, &d, &untouched), LAPSE_EUNPROCESSABLE,
		     "idempotency_key");
	assert_int_equal(untouched, 42);
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_error(w, lapse_mailbox_create(w->store, NULL, NULL, LAPSE_TTL_DEFAULT, NULL, NULL),
		     LAPSE_EUNPROCESSABLE, "idempotency_key");
	assert_int_equal(count_messages(w, "bob"), 1);
	assert_ok(w, lapse_set_owner(w->store, "other")); /* whose key it is not */
	send_keyed(w, KEY, "y", false);
}

static void test_a_failure_leaves_no_key(void **state)
{
	struct world *w = *state;
	struct lapse_draft d = { .to = "bob", .from = "a/b", .content = "x" };

	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_error(w, lapse_message_send(w->store, &d, NULL), LAPSE_EINVAL, "from");
	send_to(w, "bob", "x"); /* the failed call has used the key up */
	assert_false(lapse_was_replayed(w->store));
	send_keyed(w, KEY, "x", false);
	assert_int_equal(count_messages(w, "bob"), 2);
}

static void test_a_key_lasts_its_window(void **state)
{
	struct world *w = *state;
	int64_t id = send_keyed(w, KEY, "x", false);

	world_pass(w, DAY_MS);
	assert_int_equal(send_keyed(w, KEY, "x", true), id);
	world_pass(w, 1);
	assert_true(send_keyed(w, KEY, "x", false) != id);
}

static void test_bad_keys_are_refused(void **state)
{
	struct world *w = *state;
	char longest[130];

	memset(longest, 'k', sizeof(longest));
	longest[129] = '\0';
	assert_error(w, lapse_set_idempotency_key(w->store, ""), LAPSE_EINVAL, "key");
	assert_error(w, lapse_set_idempotency_key(w->store, "a\nb"), LAPSE_EINVAL, "key");
	assert_error(w, lapse_set_idempotency_key(w->store, longest), LAPSE_EINVAL, "key");
	longest[128] = '\0';
	send_keyed(w, longest, "x", false);
	send_keyed(w, longest, "x", true);
}

static void test_a_broadcast_has_all_its_ids_again(void **state)
{
	struct world *w = *state;
	const char *const to[] = { "a", "b", "c" };
	struct lapse_draft d = { .from = "alice", .content = "x" };
	int64_t first[3], again[3];

	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_ok(w, lapse_message_broadcast(w->store, to, 3, &d, first));
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_ok(w, lapse_message_broadcast(w->store, to, 3, &d, again));
	assert_memory_equal(first, again, sizeof(first));
	assert_int_equal(count_messages(w, "a") + count_messages(w, "c"), 2);
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_error(w, lapse_message_broadcast(w->store, to, 2, &d, again), LAPSE_EUNPROCESSABLE,
		     "idempotency_key");
}

struct made {
	char id[LAPSE_MAILBOX_ID_SIZE], address[TEXT_SIZE];
	lapse_ms created_at, expires_at;
	bool expired;
};

static void see_made(void *arg, const struct lapse_mailbox *m)
{
	struct made *x = arg;

	strncpy(x->id, m->id, sizeof(x->id) - 1);
	strncpy(x->address, m->address, sizeof(x->address) - 1);
	assert_string_equal(m->provider, "local");
	assert_true(strncmp(m->address, m->username, strlen(m->username)) == 0);
	x->created_at = m->created_at;
	x->expires_at = m->expires_at;
	x->expired = m->expired;
}

static struct made make_keyed(struct world *w, const char *key)
{
	struct made x = { 0 };

	assert_ok(w, lapse_set_idempotency_key(w->store, key));
	assert_ok(w, lapse_mailbox_create(w->store, NULL, NULL, HOUR_MS, see_made, &x));
	return x;
}

/* The random name is that of the first time. */
static void test_a_mailbox_is_made_once(void **state)
{
	struct world *w = *state;
	struct made first = make_keyed(w, KEY);

	world_pass(w, SECOND_MS);
	world_reopen(w);
	struct made again = make_keyed(w, KEY);
	assert_true(lapse_was_replayed(w->store));
	assert_memory_equal(&first, &again, sizeof(first));
	assert_string_not_equal(make_keyed(w, "another").id, first.id);
}

static void test_a_mail_is_sent_once(void **state)
{
	struct world *w = *state;
	struct made box = make_keyed(w, "box");
	const char *to[] = { box.address };
	struct lapse_mail_draft d = { .to = to, .to_count = 1, .subject = "s", .text = "t" };
	const char *id;
	char first[64];

	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_ok(w, lapse_mail_send(w->store, box.id, &d, &id));
	strncpy(first, id, sizeof(first) - 1);
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_ok(w, lapse_mail_send(w->store, box.id, &d, &id));
	assert_true(lapse_was_replayed(w->store));
	assert_string_equal(id, first);
	d.text = "other";
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_error(w, lapse_mail_send(w->store, box.id, &d, &id), LAPSE_EUNPROCESSABLE,
		     "idempotency_key");
}

/* The call that notices the expiry commits it, and still leaves no key. */
static void test_a_mail_from_an_expired_mailbox_leaves_no_key(void **state)
{
	struct world *w = *state;
	struct made box = make_keyed(w, "box"), other;
	const char *to[] = { box.address };
	struct lapse_mail_draft d = { .to = to, .to_count = 1, .subject = "s" };

	world_pass(w, HOUR_MS + 1);
	assert_ok(w, lapse_set_idempotency_key(w->store, KEY));
	assert_error(w, lapse_mail_send(w->store, box.id, &d, NULL), LAPSE_EEXPIRED, "mailbox");
	other = make_keyed(w, KEY);
	assert_false(lapse_was_replayed(w->store));
	assert_string_not_equal(other.id, box.id);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_a_message_is_sent_once),
		WORLD_TEST(test_a_key_is_for_one_call),
		WORLD_TEST(test_other_arguments_are_refused),
		WORLD_TEST(test_a_failure_leaves_no_key),
		WORLD_TEST(test_a_key_lasts_its_window),
		WORLD_TEST(test_bad_keys_are_refused),
		WORLD_TEST(test_a_broadcast_has_all_its_ids_again),
		WORLD_TEST(test_a_mailbox_is_made_once),
		WORLD_TEST(test_a_mail_is_sent_once),
		WORLD_TEST(test_a_mail_from_an_expired_mailbox_leaves_no_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
