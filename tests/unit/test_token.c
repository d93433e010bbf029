/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens: made, checked, revoked, expired; memory and store say the same. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

struct made {
	char text[TOKEN_TEXT_MAX], prefix[16];
};

static int create(struct world *w, struct tx *tx, const char *owner, bool admin, lapse_ms expires,
		  struct made *ret)
{
	struct token t = { .owner = owner,
			   .name = "",
			   .scopes = SCOPE_ALL,
			   .admin = admin,
			   .expires_at = expires };
	struct problem p = { 0 };
	struct arena arena;

	(void)w;
	arena_init(&arena);
	int r = token_create(tx, &t, NULL, ret->text, &arena, &p);
	if (r == LAPSE_OK)
		snprintf(ret->prefix, sizeof(ret->prefix), "%s", t.prefix);
	arena_done(&arena);
	return r;
}

static int create_one(struct world *w, const char *owner, bool admin, lapse_ms expires,
		      struct made *ret)
{
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	int r = create(w, &tx, owner, admin, expires, ret);
	if (r < 0)
		tx_rollback(&tx);
	else
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return r;
}

static int revoke(struct world *w, const char *prefix)
{
	struct problem p = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	int r = token_revoke(&tx, prefix, NULL, &p);
	if (r < 0)
		tx_rollback(&tx);
	else
		assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return r;
}

static const struct token *check(struct world *w, const char *text)
{
	return token_check(&w->engine.tokens, text, w->time.wall);
}

static void a_token_is_checked(void **state)
{
	struct world *w = *state;
	struct made admin, plain;

	assert_int_equal(create_one(w, "fleet", true, LAPSE_NEVER, &admin), LAPSE_OK);
	assert_int_equal(create_one(w, "tenant", false, LAPSE_NEVER, &plain), LAPSE_OK);
	assert_string_equal(check(w, admin.text)->owner, "fleet");
	assert_true(check(w, admin.text)->admin);
	assert_string_equal(check(w, plain.text)->owner, "tenant");
	assert_false(check(w, plain.text)->admin);
	assert_int_equal(check(w, plain.text)->created_at, NOW);
	assert_string_equal(check(w, plain.text)->prefix, plain.prefix);
	assert_int_equal(tokens_count(&w->engine.tokens), 2);
	world_reopen(w);
	assert_true(check(w, admin.text)->admin);
	assert_string_equal(check(w, plain.text)->owner, "tenant");
	world_check_counters(w);
}

static void the_secret_is_nowhere(void **state)
{
	struct world *w = *state;
	struct made t;

	assert_int_equal(create_one(w, "fleet", true, LAPSE_NEVER, &t), LAPSE_OK);
	assert_int_equal(strncmp(t.text, "lapse_", 6), 0);
	assert_int_equal(strlen(t.text), 6 + 12 + 1 + 64);
	assert_memory_equal(t.text + 6, t.prefix, 12);
	char *CLEANUP(mem_freep) dump = world_dump(w, NULL);
	assert_null(strstr(dump, t.text + 19)); /* the secret */
	assert_non_null(strstr(dump, t.prefix));
}

static void what_is_no_token_is_refused(void **state)
{
	struct world *w = *state;
	char changed[TOKEN_TEXT_MAX + 8];
	struct made t;

	assert_int_equal(create_one(w, "fleet", true, LAPSE_NEVER, &t), LAPSE_OK);
	for (size_t i = 0; t.text[i]; i++) {
		snprintf(changed, sizeof(changed), "%s", t.text);
		changed[i] = (char)(changed[i] == '0' ? '1' : '0');
		if (check(w, changed))
			fail_msg("byte %zu does not matter", i);
		changed[i] = '\0';
		assert_null(check(w, changed));
	}
	snprintf(changed, sizeof(changed), "%sx", t.text);
	assert_null(check(w, changed));
	snprintf(changed, sizeof(changed), " %s", t.text);
	assert_null(check(w, changed));
	assert_null(check(w, ""));
	assert_null(check(w, "lapse_"));
	assert_null(check(w, "lapse_\xff"));
	assert_non_null(check(w, t.text));
}

static void a_revoked_token_is_gone(void **state)
{
	struct world *w = *state;
	struct made admin, t;

	create_one(w, "fleet", true, LAPSE_NEVER, &admin);
	create_one(w, "tenant", false, LAPSE_NEVER, &t);
	assert_int_equal(revoke(w, t.prefix), LAPSE_OK);
	assert_null(check(w, t.text));
	assert_non_null(check(w, admin.text));
	assert_int_equal(revoke(w, t.prefix), LAPSE_ENOTFOUND);
	assert_int_equal(revoke(w, "nothing"), LAPSE_ENOTFOUND);
	world_check_counters(w);
	world_reopen(w);
	assert_null(check(w, t.text));
}

static void a_rollback_changes_nobody(void **state)
{
	struct world *w = *state;
	struct problem p = { 0 };
	struct made kept, dropped;
	struct tx tx;

	create_one(w, "fleet", true, LAPSE_NEVER, &kept);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(create(w, &tx, "x", true, LAPSE_NEVER, &dropped), LAPSE_OK);
	assert_int_equal(token_revoke(&tx, kept.prefix, NULL, &p), LAPSE_OK);
	assert_null(check(w, dropped.text)); /* not before the commit */
	assert_non_null(check(w, kept.text));
	tx_rollback(&tx);
	assert_null(check(w, dropped.text));
	assert_non_null(check(w, kept.text));
	world_check_counters(w);
}

static void an_expired_token_is_refused_and_swept(void **state)
{
	struct world *w = *state;
	struct made admin, t;
	struct sweep sweep;

	create_one(w, "fleet", true, LAPSE_NEVER, &admin);
	create_one(w, "tenant", false, NOW + 1000, &t);
	fake_clock_to(&w->time, NOW + 999);
	assert_non_null(check(w, t.text));
	fake_clock_to(&w->time, NOW + 1000);
	assert_null(check(w, t.text));
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(tokens_count(&w->engine.tokens), 2);
	fake_clock_to(&w->time, NOW + 1001);
	run_sweep(w, "housekeeping", true, &sweep);
	assert_int_equal(tokens_count(&w->engine.tokens), 2); /* a dry run forgets nobody */
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(sweep.total, 1);
	assert_int_equal(tokens_count(&w->engine.tokens), 1);
	assert_non_null(check(w, admin.text));
	world_check_counters(w);
}

static void there_is_always_an_admin(void **state)
{
	struct world *w = *state;
	struct made admin, second, plain;

	assert_int_equal(create_one(w, "tenant", false, LAPSE_NEVER, &plain), LAPSE_ECONFLICT);
	assert_int_equal(create_one(w, "fleet", true, LAPSE_NEVER, &admin), LAPSE_OK);
	assert_int_equal(create_one(w, "tenant", false, LAPSE_NEVER, &plain), LAPSE_OK);
	assert_int_equal(revoke(w, admin.prefix), LAPSE_ECONFLICT);
	assert_int_equal(create_one(w, "fleet", true, LAPSE_NEVER, &second), LAPSE_OK);
	assert_int_equal(revoke(w, admin.prefix), LAPSE_OK);
	assert_int_equal(revoke(w, second.prefix), LAPSE_ECONFLICT);
	assert_int_equal(revoke(w, plain.prefix), LAPSE_OK);
	assert_int_equal(revoke(w, second.prefix), LAPSE_OK);
	assert_int_equal(tokens_count(&w->engine.tokens), 0);
}

static void the_number_of_tokens_is_bounded(void **state)
{
	struct world *w = *state;
	struct made t;

	w->settings.tokens_max = 2;
	assert_int_equal(create_one(w, "a", true, LAPSE_NEVER, &t), LAPSE_OK);
	assert_int_equal(create_one(w, "b", true, LAPSE_NEVER, &t), LAPSE_OK);
	assert_int_equal(create_one(w, "c", true, LAPSE_NEVER, &t), LAPSE_ELIMIT);
	assert_int_equal(revoke(w, t.prefix), LAPSE_OK);
	assert_int_equal(create_one(w, "c", true, LAPSE_NEVER, &t), LAPSE_OK);
}

/* Requests of one turn share a transaction; the bound holds among them too. */
static void the_bound_holds_within_a_transaction(void **state)
{
	struct world *w = *state;
	struct made t;
	struct tx tx;

	w->settings.tokens_max = 2;
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(create(w, &tx, "a", true, LAPSE_NEVER, &t), LAPSE_OK);
	assert_int_equal(create(w, &tx, "b", true, LAPSE_NEVER, &t), LAPSE_OK);
	int third = create(w, &tx, "c", true, LAPSE_NEVER, &t);
	tx_rollback(&tx);
	assert_int_equal(third, LAPSE_ELIMIT);
}

/* The same of the last admin: two revocations in one turn must not both pass. */
static void the_last_admin_stays_within_a_transaction(void **state)
{
	struct world *w = *state;
	struct made first, second, plain;
	struct problem p = { 0 };
	struct tx tx;

	create_one(w, "fleet", true, LAPSE_NEVER, &first);
	create_one(w, "fleet", true, LAPSE_NEVER, &second);
	create_one(w, "tenant", false, LAPSE_NEVER, &plain);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(token_revoke(&tx, first.prefix, NULL, &p), LAPSE_OK);
	int r = token_revoke(&tx, second.prefix, NULL, &p);
	tx_rollback(&tx);
	assert_int_equal(r, LAPSE_ECONFLICT);
}

static void note_token(void *arg, const struct token *t)
{
	struct buf *out = arg;

	buf_printf(out, "%s ", t->owner);
}

static char *list(struct world *w, int64_t before, int64_t limit)
{
	struct buf out = { 0 };
	struct tx tx;

	assert_int_equal(tx_begin_read(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(token_list(&tx, before, limit, note_token, &out), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return buf_take(&out);
}

static void lists_live_ones_newest_first(void **state)
{
	struct world *w = *state;
	struct made t;

	create_one(w, "a", true, LAPSE_NEVER, &t);
	create_one(w, "b", true, NOW + 5, &t);
	create_one(w, "c", true, LAPSE_NEVER, &t);
	char *CLEANUP(mem_freep) all = list(w, INT64_MAX, 10);
	assert_string_equal(all, "c b a ");
	char *CLEANUP(mem_freep) two = list(w, INT64_MAX, 2);
	assert_string_equal(two, "c b ");
	char *CLEANUP(mem_freep) rest =
		list(w, side_int(w, "SELECT id FROM tokens WHERE owner = 'b'"), 10);
	assert_string_equal(rest, "a ");
	fake_clock_to(&w->time, NOW + 5);
	char *CLEANUP(mem_freep) later = list(w, INT64_MAX, 10);
	assert_string_equal(later, "c a ");
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(a_token_is_checked),
		WORLD_TEST(the_secret_is_nowhere),
		WORLD_TEST(what_is_no_token_is_refused),
		WORLD_TEST(a_revoked_token_is_gone),
		WORLD_TEST(a_rollback_changes_nobody),
		WORLD_TEST(an_expired_token_is_refused_and_swept),
		WORLD_TEST(there_is_always_an_admin),
		WORLD_TEST(the_number_of_tokens_is_bounded),
		WORLD_TEST(the_bound_holds_within_a_transaction),
		WORLD_TEST(the_last_admin_stays_within_a_transaction),
		WORLD_TEST(lists_live_ones_newest_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
