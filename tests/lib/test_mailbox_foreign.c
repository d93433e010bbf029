/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory whose daemon keeps its mailboxes at a mail server, opened by the library, which talks
 * to none: it says so, and what is to be deleted there is written down and not touched, for the
 * next daemon. The rows are what such a daemon leaves, made with a tool in a store that is closed.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib.h"

#define TTL INT64_C(300000)

struct box {
	char id[LAPSE_MAILBOX_ID_SIZE], provider[32];
	struct lapse_mailbox last;
	int count;
};

static void show(void *arg, const struct lapse_mailbox *m)
{
	struct box *b = arg;

	b->count++;
	b->last = *m;
	snprintf(b->id, sizeof(b->id), "%s", m->id);
	snprintf(b->provider, sizeof(b->provider), "%s", m->provider);
}

static sqlite3 *open_tool(const struct world *w)
{
	char path[PATH_SIZE + 16];
	sqlite3 *tool;

	snprintf(path, sizeof(path), "%s/lapse.db", w->dir);
	assert_int_equal(sqlite3_open(path, &tool), SQLITE_OK);
	sqlite3_busy_timeout(tool, 2000);
	return tool;
}

/* What a row says, its columns with blanks between them; "" = there is none. */
static const char *ask(const struct world *w, const char *sql)
{
	static char text[256];
	sqlite3 *tool = open_tool(w);
	sqlite3_stmt *stmt;

	text[0] = '\0';
	assert_int_equal(sqlite3_prepare_v2(tool, sql, -1, &stmt, NULL), SQLITE_OK);
	while (sqlite3_step(stmt) == SQLITE_ROW)
		for (int i = 0; i < sqlite3_column_count(stmt); i++) {
			size_t n = strlen(text);
			snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "",
				 (const char *)sqlite3_column_text(stmt, i));
		}
	sqlite3_finalize(stmt);
	sqlite3_close(tool);
	return text;
}

static void change(const struct world *w, const char *sql)
{
	sqlite3 *tool = open_tool(w);

	assert_int_equal(sqlite3_exec(tool, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(tool);
}

/* An active mailbox, "alice", at the mail server. */
static struct box foreign(struct world *w)
{
	struct box b = { 0 };

	assert_ok(w, lapse_mailbox_create(w->store, "alice", NULL, TTL, show, &b));
	lapse_close(w->store);
	w->store = NULL;
	change(w, "UPDATE mailboxes SET provider = 'stalwart', stalwart_account = 'x7', "
		  "secret = 'sealed'");
	world_open(w);
	return b;
}

#define MAILBOX "SELECT status, stalwart_cleanup_failed, cleanup_attempts, secret FROM mailboxes"
#define INTENT "SELECT kind, target, owner, state, attempts, error FROM cleanups"

static void assert_intent(const struct world *w, const struct box *b)
{
	char wanted[128];

	snprintf(wanted, sizeof(wanted), "mailbox %s local 1 0 ", b->id);
	assert_string_equal(ask(w, INTENT), wanted);
}

/* Everything that lets time pass and deletions be tried; more often than a deletion may fail. */
static void live_on(struct world *w)
{
	for (int i = 0; i < 5; i++) {
		world_pass(w, 10 * 60 * SECOND_MS);
		tick_until_idle(w);
		const struct lapse_sweep_result *result;
		assert_ok(w, lapse_sweep(w->store, "mailboxes", false, &result));
		tick_until_idle(w);
	}
}

static void test_it_can_be_seen_and_renewed_and_says_where_it_lives(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w), got = { 0 };

	assert_ok(w, lapse_mailbox_get(w->store, b.id, show, &got));
	assert_string_equal(got.provider, "stalwart");
	assert_false(got.last.expired);
	world_pass(w, TTL);
	assert_ok(w, lapse_mailbox_renew(w->store, b.id, TTL, show, &got));
	assert_int_equal(got.last.expires_at, NOW + 2 * TTL);
	assert_string_equal(ask(w, MAILBOX), "active 0 0 sealed");
	assert_error(w, lapse_mailbox_create(w->store, "alice", NULL, TTL, NULL, NULL),
		     LAPSE_ECONFLICT, "username");
	assert_string_equal(ask(w, INTENT), "");
}

static void test_its_mail_is_elsewhere(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w), local = { 0 };
	const char *to[] = { "bob@lapse.local" }, *there[] = { "alice@lapse.local" };
	struct lapse_mail_draft d = { .to = to, .to_count = 1, .subject = "s" };

	assert_ok(w, lapse_mailbox_create(w->store, "bob", NULL, TTL, show, &local));
	assert_error(w, lapse_mail_list(w->store, b.id, NULL, NULL, 10, NULL, NULL),
		     LAPSE_EUPSTREAM, "mailbox");
	assert_non_null(strstr(lapse_error_message(w->store), "stalwart"));
	assert_error(w, lapse_mail_get(w->store, b.id, "0000000000000001", NULL, NULL),
		     LAPSE_EUPSTREAM, "mailbox");
	assert_error(w, lapse_mail_send(w->store, b.id, &d, NULL), LAPSE_EUPSTREAM, "mailbox");
	d.to = there; /* nor does mail from here reach it */
	assert_error(w, lapse_mail_send(w->store, local.id, &d, NULL), LAPSE_EINVAL, "to");
	assert_string_equal(ask(w, "SELECT count(*) FROM mailbox_messages"), "0");
	assert_string_equal(ask(w, MAILBOX " WHERE username = 'alice'"), "active 0 0 sealed");
}

static void assert_ended(struct world *w, const struct box *b)
{
	struct box got = { 0 };

	assert_string_equal(ask(w, MAILBOX), "expired 1 0 ");
	assert_intent(w, b);
	live_on(w);
	world_reopen(w);
	live_on(w);
	assert_string_equal(ask(w, MAILBOX), "expired 1 0 ");
	assert_intent(w, b);
	assert_ok(w, lapse_mailbox_get(w->store, b->id, show, &got));
	assert_true(got.last.expired);
	assert_int_equal(got.last.cleanup, LAPSE_CLEANUP_PENDING);
	assert_int_equal(got.last.cleanup_attempts, 0);
	world_pass(w, 40 * DAY_MS); /* longer than expired ones are kept */
	live_on(w);
	assert_string_equal(ask(w, MAILBOX), "expired 1 0 ");
	assert_error(w, lapse_mailbox_create(w->store, "alice", NULL, TTL, NULL, NULL),
		     LAPSE_ECONFLICT, "username"); /* its account still has the address */
}

static void test_a_look_that_ends_it_leaves_the_intent(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w);

	world_pass(w, TTL + 1);
	assert_error(w, lapse_mail_list(w->store, b.id, NULL, NULL, 10, NULL, NULL), LAPSE_EEXPIRED,
		     "mailbox");
	assert_ended(w, &b);
}

static void test_a_deadline_leaves_the_intent(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w);

	world_pass(w, TTL + 1);
	tick_until_idle(w);
	assert_ended(w, &b);
}

static void test_a_sweep_leaves_the_intent(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w);

	world_pass(w, TTL + 1);
	assert_int_equal(swept(w, "mailboxes", true), 1);
	assert_string_equal(ask(w, MAILBOX), "active 0 0 sealed");
	assert_int_equal(swept(w, "mailboxes", false), 1);
	assert_ended(w, &b);
}

static void look_and_die(struct world *w, const struct box *b)
{
	if (lapse_open(&w->options, &w->store, NULL) < 0)
		_exit(1);
	_exit(lapse_mailbox_renew(w->store, b->id, TTL, NULL, NULL) == LAPSE_EEXPIRED ? 0 : 2);
}

static void test_the_intent_survives_an_exit_without_close(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w);
	int status;

	world_pass(w, TTL + 1);
	lapse_close(w->store);
	w->store = NULL;
	pid_t pid = fork();
	if (pid == 0)
		look_and_die(w, &b);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	world_open(w);
	assert_ended(w, &b);
}

/* Its time is up, but its account still has the address. */
static void test_wanting_its_address_does_not_free_it(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w);

	world_pass(w, TTL + 1);
	assert_error(w, lapse_mailbox_create(w->store, "alice", NULL, TTL, NULL, NULL),
		     LAPSE_ECONFLICT, "username");
	tick_until_idle(w);
	assert_ended(w, &b);
}

static void test_deleting_it_leaves_the_intent(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w);

	assert_ok(w, lapse_mailbox_delete(w->store, b.id));
	assert_error(w, lapse_mailbox_get(w->store, b.id, NULL, NULL), LAPSE_ENOTFOUND, "id");
	live_on(w);
	assert_string_equal(ask(w, MAILBOX), "deleted 1 0 ");
	assert_intent(w, &b);
}

/* An account that was being made when the daemon died: nobody knows whether it is there. */
static void test_an_account_that_was_never_settled_leaves_the_intent(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w);

	lapse_close(w->store);
	w->store = NULL;
	change(w, "UPDATE mailboxes SET status = 'provisioning'");
	world_open(w);
	assert_error(w, lapse_mailbox_get(w->store, b.id, NULL, NULL), LAPSE_ENOTFOUND, "id");
	live_on(w);
	assert_string_equal(ask(w, MAILBOX), "deleted 1 0 ");
	assert_intent(w, &b);
}

/* What the daemon tried and failed, and what it gave up, stay what they are. */
static void test_failed_attempts_and_dead_letters_stay(void **state)
{
	struct world *w = *state;
	struct box b = foreign(w), got = { 0 };

	assert_ok(w, lapse_mailbox_delete(w->store, b.id));
	lapse_close(w->store);
	w->store = NULL;
	change(w, "UPDATE cleanups SET attempts = 2, next_at = 9223372036854775807; "
		  "UPDATE mailboxes SET status = 'expired', cleanup_attempts = 2");
	world_open(w);
	live_on(w);
	assert_string_equal(ask(w, "SELECT state, attempts, next_at FROM cleanups"),
			    "1 2 9223372036854775807");
	lapse_close(w->store);
	w->store = NULL;
	change(w, "UPDATE cleanups SET attempts = 3, state = -1; "
		  "UPDATE mailboxes SET stalwart_cleanup_failed = -1, cleanup_attempts = 3");
	world_open(w);
	live_on(w);
	assert_ok(w, lapse_mailbox_get(w->store, b.id, show, &got));
	assert_int_equal(got.last.cleanup, LAPSE_CLEANUP_DEAD);
	assert_int_equal(got.last.cleanup_attempts, 3);
	assert_string_equal(ask(w, "SELECT state, attempts FROM cleanups"), "-1 3");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
		T(test_it_can_be_seen_and_renewed_and_says_where_it_lives),
		T(test_its_mail_is_elsewhere),
		T(test_a_look_that_ends_it_leaves_the_intent),
		T(test_a_deadline_leaves_the_intent),
		T(test_a_sweep_leaves_the_intent),
		T(test_the_intent_survives_an_exit_without_close),
		T(test_wanting_its_address_does_not_free_it),
		T(test_deleting_it_leaves_the_intent),
		T(test_an_account_that_was_never_settled_leaves_the_intent),
		T(test_failed_attempts_and_dead_letters_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
