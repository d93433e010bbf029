/* SPDX-License-Identifier: Apache-2.0 */
/* Reading contracts: what a good file means, and the exact message for every bad one. */
#include <string.h>

#include "contract/contract.h"
#include "unit.h"

static const char *environment(const char *name)
{
	if (strcmp(name, "APP_DATABASE_URL") == 0)
		return "postgresql://app@db/shop";
	return strcmp(name, "DIR") == 0 ? "/srv" : NULL;
}

static int parse(const char *text, struct contract **ret, struct buf *error)
{
	return contract_parse("shop.yaml", text, strlen(text), environment, ret, error);
}

static struct contract *parsed(const char *text)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	struct contract *c = NULL;
	int err = parse(text, &c, &error);

	if (err < 0)
		fail_msg("%s", buf_text(&error));
	return c;
}

#define HEAD                                                                                       \
	"contract: 1\n"                                                                            \
	"name: shop\n"                                                                             \
	"database: sqlite:/srv/app.db\n"                                                           \
	"schedulers:\n"                                                                            \
	"  statestore: { every: 5m }\n"                                                            \
	"bounds:\n"

/* The example of docs/contracts.md, whole. */
static const char EXAMPLE[] =
	"contract: 1\n"
	"name: shop\n"
	"database: ${APP_DATABASE_URL}\n"
	"schedulers:\n"
	"  statestore: { every: 5m }\n"
	"  outbox:     { every: 90s }\n"
	"bounds:\n"
	"  - table: connections\n"
	"    scheduler: statestore\n"
	"    key: [tenant_id, connection_id]\n"
	"    expires: expires_at_ms\n"
	"  - name: channel_inbox.completed\n"
	"    table: channel_inbox\n"
	"    scheduler: statestore\n"
	"    key: [inbox_id]\n"
	"    age: { of: received_at_ms, keep: 7d }\n"
	"    only: { status: completed, kind: [a, 'b', 3], gone: null, owner: { not: x } }\n"
	"    unless_referenced: { by: channel_outbox, on: { inbox: inbox_id } }\n"
	"  - table: outbox\n"
	"    scheduler: outbox\n"
	"    key: id\n"
	"    age: { of: created_at, keep: 24h }\n"
	"    grows_with_key: true\n"
	"    at: \"<=\"\n"
	"    rows_per_second: 0\n"
	"  - table: conversations\n"
	"    schema: app\n"
	"    scheduler: statestore\n"
	"    key: [tenant_id, conversation_id]\n"
	"    age: { of: updated_at, keep: 30d }\n"
	"    time: timestamptz\n"
	"    together_with:\n"
	"      - { table: reports, on: { tenant: tenant_id, conversation: conversation_id } }\n"
	"    keep_newest: { count: 20, per: [tenant_id] }\n"
	"    at_most: { count: 5000, per: [tenant_id] }\n"
	"defaults: { slice_ms: 20, rows_per_second: 100, ask_above: 10%, replica_lag_max: 3s }\n";

static void the_example_is_read_whole(void **state)
{
	struct contract *CLEANUP(contract_freep) c = parsed(EXAMPLE);

	(void)state;
	assert_string_equal(c->name, "shop");
	assert_int_equal(c->engine, FOREIGN_POSTGRES);
	assert_string_equal(c->database, "postgresql://app@db/shop");
	assert_int_equal(c->schedulers_count, 2);
	assert_string_equal(c->schedulers[1].full_name, "shop:outbox");
	assert_int_equal(c->schedulers[1].every, 90000);
	assert_int_equal(c->bounds_count, 4);
}

static void a_deadline_is_due_at_it_and_a_window_when_it_is_over(void **state)
{
	struct contract *CLEANUP(contract_freep) c = parsed(EXAMPLE);
	const struct contract_bound *deadline = contract_find(c, "shop:connections");
	const struct contract_bound *window = contract_find(c, "shop:channel_inbox.completed");
	const struct contract_bound *other = contract_find(c, "shop:outbox");

	(void)state;
	assert_true(!deadline->is_age && deadline->inclusive && deadline->keep == 0);
	assert_true(window->is_age && !window->inclusive);
	assert_int_equal(window->keep, INT64_C(7) * 86400000);
	assert_true(other->is_age && other->inclusive);
	assert_null(contract_find(c, "shop:nothing"));
}

static void conditions_keep_how_they_were_written(void **state)
{
	struct contract *CLEANUP(contract_freep) c = parsed(EXAMPLE);
	const struct contract_bound *b = contract_find(c, "shop:channel_inbox.completed");

	(void)state;
	assert_int_equal(b->only_count, 4);
	assert_int_equal(b->only[0].values[0].kind, GIVEN_WORD);
	assert_int_equal(b->only[1].count, 3);
	assert_int_equal(b->only[1].values[1].kind, GIVEN_TEXT);
	assert_string_equal(b->only[1].values[2].text, "3");
	assert_int_equal(b->only[2].values[0].kind, GIVEN_NULL);
	assert_true(b->only[3].negated);
	assert_string_equal(b->unless[0].table, "channel_outbox");
	assert_string_equal(b->unless[0].schema, "public");
	assert_string_equal(b->unless[0].theirs.names[0], "inbox");
	assert_string_equal(b->unless[0].ours.names[0], "inbox_id");
}

static void defaults_hold_unless_a_bound_says_otherwise(void **state)
{
	struct contract *CLEANUP(contract_freep) c = parsed(EXAMPLE);
	const struct contract_bound *b = contract_find(c, "shop:conversations");

	(void)state;
	assert_int_equal(b->pace.slice_ms, 20);
	assert_int_equal(b->pace.rows_per_second, 100);
	assert_int_equal(b->pace.ask_above_percent, 10);
	assert_int_equal(b->pace.ask_min_rows, 1000);
	assert_int_equal(b->pace.replica_lag_max_ms, 3000);
	assert_int_equal(contract_find(c, "shop:outbox")->pace.rows_per_second, 0);
	assert_string_equal(b->schema, "app");
	assert_string_equal(b->together[0].schema, "app");
	assert_int_equal(b->together[0].ours.count, 2);
	assert_int_equal(b->keep_newest.count, 20);
	assert_int_equal(b->at_most.per.count, 1);
	assert_int_equal(b->unit, TIME_TIMESTAMPTZ);
}

static void a_changed_rule_changes_the_hash_and_a_changed_pace_does_not(void **state)
{
	static const char *texts[] = {
		HEAD "  - {table: t, scheduler: statestore, key: id, expires: e}\n",
		HEAD "  - {table: t, scheduler: statestore, key: id, expires: e, slice_ms: 7}\n",
		HEAD "  - {table: t, scheduler: statestore, key: id, expires: f}\n",
	};
	uint64_t hashes[3];

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct contract *CLEANUP(contract_freep) c = parsed(texts[i]);
		hashes[i] = contract_bound_hash(c, &c->bounds[0]);
	}
	assert_true(hashes[0] == hashes[1]);
	assert_true(hashes[0] != hashes[2]);
}

#define BOUND HEAD "  - {table: t, scheduler: statestore, key: id, expires: e"

static const struct {
	const char *text, *message;
} BAD[] = {
	{ "", "1:1: the file is empty" },
	{ "a: [1", "2:1: did not find expected ',' or ']'" },
	{ "- 1\n", "1:1: a contract must be a mapping" },
	{ "a: \xff\n", "1:1: the file is not valid UTF-8 text" },
	{ "contract: 1\ncontract: 1\n", "2:1: duplicate key 'contract': it is already on line 1" },
	{ "contract: &x 1\n", "1:11: anchors are not allowed" },
	{ "contract: !!int 1\n", "1:11: tags are not allowed" },
	{ "contract: *x\n", "1:11: aliases are not allowed" },
	{ "contract: !a [1]\n", "1:11: tags are not allowed" },
	{ "contract: &a {}\n", "1:11: anchors are not allowed" },
	{ "? [a]\n: 1\n", "1:3: a key must be a text" },
	{ "a: [[[[[[[[[1]]]]]]]]]\n", "1:11: nested too deeply" },
	{ "contract: 1\n---\ncontract: 1\n", "2:1: a file holds one contract only" },
	{ "contract: \"1\\0\"\n", "1:11: a text must not hold NUL" },
	{ "contrat: 1\n", "1:1: unknown field 'contrat' in a contract; did you mean 'contract'?" },
	{ "zebra: 1\n", "1:1: unknown field 'zebra' in a contract" },
	{ "contract: 1\n", "1:1: a contract needs the field 'name'" },
	{ "contract: 2\nname: a\ndatabase: sqlite:x\nschedulers: {}\nbounds: []\n",
	  "1:11: this version of lapse reads 'contract: 1'" },
	{ "name: Shop\n", "1:7: the name 'Shop' may only have a-z 0-9 _ -" },
	{ "name: [a]\n", "1:7: 'name' must be a single value" },
	{ "name: a12345678901234567890123456789012\n",
	  "1:7: the name 'a12345678901234567890123456789012' is too long: 32 bytes at most" },
	{ "contract: 1\nname: a\ndatabase: mysql://x\nschedulers: {}\nbounds: []\n",
	  "3:11: 'database' must be sqlite:/path/to/file or postgresql://…" },
	{ "contract: 1\nname: a\ndatabase: ${NOPE}\nschedulers: {}\nbounds: []\n",
	  "3:11: the environment variable NOPE is not set" },
	{ "contract: 1\nname: a\ndatabase: ${NOPE\nschedulers: {}\nbounds: []\n",
	  "3:11: '${' without a name and '}'" },
	{ "contract: 1\nname: a\ndatabase: sqlite:x\nschedulers: {}\nbounds: []\n",
	  "4:13: 'schedulers' must be a mapping of 1 to 16 schedulers" },
	{ "contract: 1\nname: a\ndatabase: sqlite:x\nschedulers: { s: { every: 0 } }\nbounds: []\n",
	  "4:27: 'every' must be a duration such as 90s, 5m, 24h or 7d, above zero and at most "
	  "36500d" },
	{ "contract: 1\nname: a\ndatabase: sqlite:x\nschedulers: { s: { evry: 1s } }\nbounds: []\n",
	  "4:20: unknown field 'evry' in a scheduler; did you mean 'every'?" },
	{ HEAD "  []\n", "7:3: 'bounds' must be a list of 1 to 256 bounds" },
	{ HEAD "  - table: t\n    scheduler: statestore\n    key: id\n",
	  "7:5: a bound needs either 'expires' or 'age'" },
	{ BOUND ", age: {of: a, keep: 1d}}\n", "7:5: a bound needs either 'expires' or 'age'" },
	{ HEAD "  - {table: t, scheduler: statstore, key: id, expires: e}\n",
	  "7:27: there is no scheduler 'statstore'; did you mean 'statestore'?" },
	{ HEAD "  - {table: t, scheduler: other, key: id, expires: e}\n",
	  "7:27: there is no scheduler 'other' in 'schedulers'" },
	{ HEAD "  - {table: t, scheduler: statestore, key: [a, a], expires: e}\n",
	  "7:48: the column 'a' is named twice" },
	{ HEAD "  - {table: t, scheduler: statestore, key: [], expires: e}\n",
	  "7:44: 'key' must be a list of 1 to 8 columns" },
	{ HEAD "  - {table: t, scheduler: statestore, key: id, age: {of: a, keep: -1d}}\n",
	  "7:67: 'keep' must be a duration such as 90s, 5m, 24h or 7d, above zero and at most "
	  "36500d" },
	{ HEAD "  - {table: t, scheduler: statestore, key: id, age: {of: a, keep: 99999999999d}}\n",
	  "7:67: 'keep' must be a duration such as 90s, 5m, 24h or 7d, above zero and at most "
	  "36500d" },
	{ HEAD "  - {table: t, scheduler: statestore, key: id, age: {of: a}}\n",
	  "7:53: 'age' needs the field 'keep'" },
	{ BOUND ", unles_referenced: {by: x, on: {a: b}}}\n",
	  "7:60: unknown field 'unles_referenced' in a bound; did you mean 'unless_referenced'?" },
	{ BOUND ", unless_referenced: {table: x, on: {a: b}}}\n",
	  "7:80: unknown field 'table' in unless_referenced" },
	{ BOUND ", unless_referenced: {by: x, on: {}}}\n",
	  "7:91: 'on' must be a mapping of 1 to 8 columns: theirs, then ours" },
	{ BOUND ", only: {}}\n", "7:66: 'only' must be a mapping of 1 to 8 columns" },
	{ BOUND ", only: {a: [x, null]}}\n",
	  "7:74: null cannot be one of several values; write a bound of its own for it" },
	{ BOUND ", only: {a: {nott: x}}}\n",
	  "7:71: unknown field 'nott' in a condition; did you mean 'not'?" },
	{ BOUND ", only: {a: {not: [x]}}}\n",
	  "7:76: a value of 'only' must be a text, a number, true, false or null" },
	{ BOUND ", time: iso8610}\n",
	  "7:66: 'time' must be ms, s, iso8601, sqlite_datetime, timestamptz or text; did you "
	  "mean 'iso8601'?" },
	{ BOUND ", at: \">\"}\n", "7:64: 'at' must be \"<\" or \"<=\"" },
	{ BOUND ", grows_with_key: yes}\n", "7:76: 'grows_with_key' must be true or false" },
	{ BOUND ", grows_with_key: true}\n",
	  "7:76: 'grows_with_key' goes with 'age', not with 'expires'" },
	{ BOUND ", at_most: {count: 0}}\n",
	  "7:77: 'count' must be a whole number from 1 to 1000000000" },
	{ BOUND ", keep_newest: {count: 9}, at_most: {count: 8}}\n",
	  "7:73: 'keep_newest' keeps 9 rows, more than the 8 of 'at_most'" },
	{ BOUND ", time: text, at_most: {count: 8}}\n",
	  "7:66: 'keep_newest' and 'at_most' need times that sort as they are: not text" },
	{ BOUND ", ask_above: 50}\n", "7:71: 'ask_above' must be a percentage such as 50%" },
	{ BOUND ", ask_above: 101%}\n", "7:71: 'ask_above' must be from 0% to 100%" },
	{ BOUND ", slice_ms: 0}\n", "7:70: 'slice_ms' must be a whole number from 1 to 10000" },
	{ BOUND "}\n  - {table: t, scheduler: statestore, key: id, expires: e}\n",
	  "8:5: two bounds are called 't': give one of them another 'name'" },
	{ BOUND ", table: u}\n", "7:60: duplicate key 'table': it is already on line 7" },
	{ HEAD "  - {table: ~, scheduler: statestore, key: id, expires: e}\n",
	  "7:13: a name of the database is expected here" },
};

static void bad_files_are_refused_with_their_place(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
		struct buf CLEANUP(buf_done) error = { 0 };
		struct buf CLEANUP(buf_done) wanted = { 0 };
		struct contract *c = NULL;
		buf_printf(&wanted, "shop.yaml:%s", BAD[i].message);
		assert_int_equal(parse(BAD[i].text, &c, &error), LAPSE_EINVAL);
		assert_null(c);
		assert_string_equal(buf_text(&error), buf_text(&wanted));
	}
}

/* Nothing of a URI reaches a message: it may hold a password. */
static void a_refused_database_is_not_repeated(void **state)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	struct contract *c = NULL;

	(void)state;
	assert_int_equal(parse("contract: 1\nname: a\ndatabase: 'mysql://u:secret@h'\n"
			       "schedulers: {}\nbounds: []\n",
			       &c, &error),
			 LAPSE_EINVAL);
	assert_null(strstr(buf_text(&error), "secret"));
}

static void durations_have_units_and_ends(void **state)
{
	static const struct {
		const char *text;
		lapse_ms ms; /* 0 = refused */
	} table[] = {
		{ "1", 1 },
		{ "250ms", 250 },
		{ "90s", 90000 },
		{ "5m", 300000 },
		{ "24h", 86400000 },
		{ "7d", 604800000 },
		{ "0", 0 },
		{ "0d", 0 },
		{ "-5s", 0 },
		{ "+5s", 0 },
		{ " 5s", 0 },
		{ "5 s", 0 },
		{ "5w", 0 },
		{ "", 0 },
		{ "d", 0 },
		{ "1.5h", 0 },
		{ "36501d", 0 },
		{ "9223372036854775807", 0 },
		{ "9223372036854775808", 0 },
		{ "99999999999999999999d", 0 },
		{ "36500d", CONTRACT_DURATION_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		lapse_ms ms = 0;
		assert_int_equal(contract_duration(table[i].text, &ms), table[i].ms != 0);
		assert_int_equal(ms, table[i].ms);
	}
}

static void a_file_of_many_values_is_refused(void **state)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct buf CLEANUP(buf_done) error = { 0 };
	struct contract *c = NULL;

	(void)state;
	buf_puts(&text, "a: [");
	for (int i = 0; i < DOCUMENT_NODES_MAX; i++)
		buf_puts(&text, "1,");
	buf_puts(&text, "]\n");
	assert_int_equal(parse(buf_text(&text), &c, &error), LAPSE_EINVAL);
	assert_non_null(strstr(buf_text(&error), "the file has too many values"));
}

static void a_missing_file_is_named(void **state)
{
	struct buf CLEANUP(buf_done) error = { 0 };
	struct contract *c = NULL;

	(void)state;
	assert_true(contract_read("/nonexistent/shop.yaml", environment, &c, &error) < 0);
	assert_non_null(strstr(buf_text(&error), "/nonexistent/shop.yaml"));
	assert_null(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_example_is_read_whole),
		cmocka_unit_test(a_deadline_is_due_at_it_and_a_window_when_it_is_over),
		cmocka_unit_test(conditions_keep_how_they_were_written),
		cmocka_unit_test(defaults_hold_unless_a_bound_says_otherwise),
		cmocka_unit_test(a_changed_rule_changes_the_hash_and_a_changed_pace_does_not),
		cmocka_unit_test(bad_files_are_refused_with_their_place),
		cmocka_unit_test(a_refused_database_is_not_repeated),
		cmocka_unit_test(durations_have_units_and_ends),
		cmocka_unit_test(a_file_of_many_values_is_refused),
		cmocka_unit_test(a_missing_file_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
