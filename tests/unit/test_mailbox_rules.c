/* SPDX-License-Identifier: Apache-2.0 */
/* The pure rules of mailboxes: seed 002's decision tables, the flag, and what a name may be. */
#include <string.h>

#include "base/address.h"
#include "mailbox/rules.h"
#include "unit.h"

/* The lazy check, the corrected table by endpoint type and the truth table are one table: status,
 * expires_at and what is wanted decide the answer, and whether this look lets it expire. At the
 * very millisecond of expires_at it lives. */
static void the_decision_tables(void **state)
{
	enum { PAST = -1, AT = 0, FUTURE = 1 };
	static const struct {
		enum mailbox_status status;
		int expires;
		enum mailbox_use use;
		bool expire;
		enum mailbox_answer answer;
	} rows[] = {
		{ MAILBOX_ACTIVE, FUTURE, MAILBOX_INFO, false, MAILBOX_SHOW_ACTIVE },
		{ MAILBOX_ACTIVE, AT, MAILBOX_INFO, false, MAILBOX_SHOW_ACTIVE },
		{ MAILBOX_ACTIVE, PAST, MAILBOX_INFO, true, MAILBOX_SHOW_EXPIRED },
		{ MAILBOX_ACTIVE, FUTURE, MAILBOX_OPERATE, false, MAILBOX_SHOW_ACTIVE },
		{ MAILBOX_ACTIVE, AT, MAILBOX_OPERATE, false, MAILBOX_SHOW_ACTIVE },
		{ MAILBOX_ACTIVE, PAST, MAILBOX_OPERATE, true, MAILBOX_REFUSE },
		{ MAILBOX_EXPIRED, FUTURE, MAILBOX_INFO, false, MAILBOX_SHOW_EXPIRED },
		{ MAILBOX_EXPIRED, PAST, MAILBOX_INFO, false, MAILBOX_SHOW_EXPIRED },
		{ MAILBOX_EXPIRED, FUTURE, MAILBOX_OPERATE, false, MAILBOX_REFUSE },
		{ MAILBOX_EXPIRED, PAST, MAILBOX_OPERATE, false, MAILBOX_REFUSE },
		{ MAILBOX_DELETED, FUTURE, MAILBOX_INFO, false, MAILBOX_HIDE },
		{ MAILBOX_DELETED, PAST, MAILBOX_OPERATE, false, MAILBOX_HIDE },
		{ MAILBOX_PROVISIONING, FUTURE, MAILBOX_INFO, false, MAILBOX_HIDE },
		{ MAILBOX_PROVISIONING, PAST, MAILBOX_INFO, false, MAILBOX_HIDE },
		{ MAILBOX_PROVISIONING, PAST, MAILBOX_OPERATE, false, MAILBOX_HIDE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct mailbox_verdict v =
			mailbox_judge(rows[i].status, NOW + rows[i].expires, rows[i].use, NOW);
		assert_int_equal(v.answer, rows[i].answer);
		assert_int_equal(v.expire, rows[i].expire);
	}
}

static void the_deadline_is_the_first_due_moment(void **state)
{
	(void)state;
	assert_int_equal(mailbox_deadline(NOW), NOW + 1);
	assert_true(mailbox_is_due(NOW, mailbox_deadline(NOW)));
	assert_false(mailbox_is_due(NOW, mailbox_deadline(NOW) - 1));
	assert_int_equal(mailbox_deadline(LAPSE_NEVER), LAPSE_NEVER);
	assert_false(mailbox_is_due(LAPSE_NEVER, LAPSE_NEVER));
}

static void the_flag_has_three_values(void **state)
{
	(void)state;
	assert_int_equal(mailbox_cleanup_flag(CLEANUP_DONE), 0);
	assert_int_equal(mailbox_cleanup_flag(CLEANUP_PENDING), 1);
	assert_int_equal(mailbox_cleanup_flag(CLEANUP_DEAD), -1);
	assert_int_equal(mailbox_cleanup_flag(CLEANUP_DROPPED), 0);
}

/* What an owner is told about a mailbox, at and after its deadline. */
static void what_is_shown(void **state)
{
	static const struct {
		enum mailbox_status status;
		int64_t cleanup_failed;
		lapse_ms now;
		bool live;
		enum mailbox_account account;
	} rows[] = {
		{ MAILBOX_ACTIVE, 0, 999, true, ACCOUNT_CLEAN },
		{ MAILBOX_ACTIVE, 0, 1000, true, ACCOUNT_CLEAN },
		{ MAILBOX_ACTIVE, 0, 1001, false, ACCOUNT_PENDING },
		{ MAILBOX_EXPIRED, 1, 1001, false, ACCOUNT_PENDING },
		{ MAILBOX_EXPIRED, 0, 1001, false, ACCOUNT_CLEAN },
		{ MAILBOX_EXPIRED, -1, 1001, false, ACCOUNT_DEAD_LETTER },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(mailbox_is_live(rows[i].status, 1000, rows[i].now), rows[i].live);
		assert_int_equal(
			mailbox_account(rows[i].status, 1000, rows[i].cleanup_failed, rows[i].now),
			rows[i].account);
	}
	assert_string_equal(mailbox_account_name(ACCOUNT_CLEAN), "clean");
	assert_string_equal(mailbox_account_name(ACCOUNT_PENDING), "pending");
	assert_string_equal(mailbox_account_name(ACCOUNT_DEAD_LETTER), "dead_letter");
}

static void statuses_have_names(void **state)
{
	(void)state;
	for (enum mailbox_status s = MAILBOX_PROVISIONING; s <= MAILBOX_DELETED; s++)
		assert_int_equal(mailbox_status_parse(mailbox_status_name(s)), s);
	assert_int_equal(mailbox_status_parse("nonsense"), MAILBOX_DELETED);
}

static void usernames(void **state)
{
	static const struct {
		const char *text;
		bool valid;
	} rows[] = {
		{ "abc", true },
		{ "a-b", true },
		{ "a.b", true },
		{ "0.9", true },
		{ "abcdefghijklmnopqrstuvwxyz012345", true },   /* 32 */
		{ "abcdefghijklmnopqrstuvwxyz0123456", false }, /* 33 */
		{ "ab", false },
		{ "", false },
		{ ".ab", false },
		{ "ab.", false },
		{ "-ab", false },
		{ "ab-", false },
		{ "a..b", false },
		{ "a.-b", false },
		{ "a--b", false },
		{ "Abc", false }, /* lower case comes first */
		{ "a_b", false },
		{ "a b", false },
		{ "a@b", false },
		{ "a\nb", false },
		{ "\303\244bc", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(username_is_valid(rows[i].text), rows[i].valid);
}

static void random_usernames_are_valid_and_differ(void **state)
{
	unsigned char bytes[USERNAME_RANDOM_BYTES] = { 0 };
	char low[USERNAME_MAX + 1], high[USERNAME_MAX + 1], last[USERNAME_MAX + 1] = "";

	(void)state;
	username_make(bytes, low);
	memset(bytes, 0xff, sizeof(bytes));
	username_make(bytes, high);
	assert_true(username_is_valid(low) && username_is_valid(high));
	assert_string_not_equal(low, high);
	for (int i = 0; i < 1000; i++) {
		char name[USERNAME_MAX + 1];
		random_bytes(bytes, sizeof(bytes));
		username_make(bytes, name);
		assert_true(username_is_valid(name));
		assert_string_not_equal(name, last);
		memcpy(last, name, sizeof(last));
	}
}

static void addresses_and_hosts(void **state)
{
	static const struct {
		const char *text;
		bool valid;
	} rows[] = {
		{ "a@b", true },
		{ "first.last+tag@mail.example.org", true },
		{ "a@b-c.d", true },
		{ "!#$%&'*+-/=?^_`{|}~@x.y", true },
		{ "", false },
		{ "@", false },
		{ "a@", false },
		{ "@b", false },
		{ "a", false },
		{ "a@b@c", false },
		{ ".a@b", false },
		{ "a.@b", false },
		{ "a..b@c", false },
		{ "a b@c", false },
		{ "a@b\r\nBcc: x@y", false },
		{ "a\r\n@b", false },
		{ "\"a b\"@c", false },
		{ "<a@b>", false },
		{ "Name <a@b>", false },
		{ "a@b,c@d", false },
		{ "a@-b", false },
		{ "a@b-", false },
		{ "a@b..c", false },
		{ "a@b.", false },
		{ "a@[127.0.0.1]", false },
		{ "\303\274@b", false },
	};
	char local[ADDRESS_MAX + 8];
	const char *why;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(address_is_valid(rows[i].text, &why), rows[i].valid);
	memset(local, 'a', sizeof(local));
	memcpy(local + 64, "@b", 3);
	assert_true(address_is_valid(local, &why));
	memcpy(local + 65, "@b", 3);
	local[64] = 'a';
	assert_false(address_is_valid(local, &why));
	char host[66];
	memset(host, 'a', 63);
	host[63] = '\0';
	assert_true(host_is_valid(host, &why));
	host[63] = 'a';
	host[64] = '\0';
	assert_false(host_is_valid(host, &why));
	assert_non_null(why);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_decision_tables),
		cmocka_unit_test(the_deadline_is_the_first_due_moment),
		cmocka_unit_test(the_flag_has_three_values),
		cmocka_unit_test(what_is_shown),
		cmocka_unit_test(statuses_have_names),
		cmocka_unit_test(usernames),
		cmocka_unit_test(random_usernames_are_valid_and_differ),
		cmocka_unit_test(addresses_and_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
