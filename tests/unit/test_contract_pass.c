/* SPDX-License-Identifier: Apache-2.0 */
/* A pass over a user's SQLite table with the time in the test's hands: boundaries to the
 * millisecond, holds, fences, and what a slice leaves when it fails. */
#include <stdio.h>
#include <string.h>

#include "contract/pass.h"
#include "unit.h"

static const char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

struct place {
	char dir[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
	struct contract *contract;
	struct foreign *f;
	struct findings findings;
	struct rule *rule;
};

static void place_open(struct place *p, const char *schema, const char *bound)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct buf CLEANUP(buf_done) error = { 0 };
	sqlite3 *db;

	temp_dir_make(p->dir);
	path_join(p->path, p->dir, "app.db");
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, schema, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	buf_printf(&text,
		   "{contract: 1, name: a, database: 'sqlite:%s', schedulers: {s: {every: 1m}},\n"
		   "bounds: [{table: t, scheduler: s, key: id, %s}]}\n",
		   p->path, bound);
	if (contract_parse("c", buf_text(&text), text.len, no_environment, &p->contract, &error) <
	    0)
		fail_msg("%s", buf_text(&error));
	struct foreign_config config = { .target = p->path, .statement_ms = 5000, .lock_ms = 10 };
	assert_int_equal(foreign_open(&config, &p->f, &error), LAPSE_OK);
	findings_init(&p->findings);
	assert_int_equal(rule_resolve(p->f, &p->contract->bounds[0], &p->findings, &p->rule),
			 LAPSE_OK);
	assert_non_null(p->rule);
}

static void place_close(struct place *p)
{
	rule_free(p->rule);
	findings_done(&p->findings);
	foreign_close(p->f);
	contract_free(p->contract);
	temp_dir_remove(p->dir);
}

static int64_t count(struct place *p)
{
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	assert_int_equal(foreign_read(p->f, "SELECT count(*) FROM t", NULL, 0, &rows), LAPSE_OK);
	return rows_int(&rows, 0, 0);
}

/* Runs a whole pass; the number of rows it removed. */
static int64_t run(struct pass_config config)
{
	struct pass *CLEANUP(pass_freep) pass = pass_new(&config);
	int64_t n;
	bool more = true;

	while (more)
		assert_int_equal(pass_slice(pass, &n, &more), LAPSE_OK);
	return pass_tally(pass)->removed;
}

/* NOW is 2027-01-15T08:00:00.000Z. */
static const struct {
	const char *bound, *value;
	lapse_ms now;
	int64_t gone;
} BOUNDARIES[] = {
	{ "expires: e, time: ms", "1800000000000", NOW - 1, 0 },
	{ "expires: e, time: ms", "1800000000000", NOW, 1 },
	{ "expires: e, time: ms, at: '<'", "1800000000000", NOW, 0 },
	{ "expires: e, time: ms, at: '<'", "1800000000000", NOW + 1, 1 },
	{ "age: {of: e, keep: 1d}, time: ms", "1800000000000", NOW + 86400000, 0 },
	{ "age: {of: e, keep: 1d}, time: ms", "1800000000000", NOW + 86400001, 1 },
	{ "age: {of: e, keep: 1d}, time: ms, at: '<='", "1800000000000", NOW + 86400000, 1 },
	{ "expires: e, time: s", "1800000000", NOW - 1, 0 },
	{ "expires: e, time: s", "1800000000", NOW, 1 },
	{ "expires: e, time: s, at: '<'", "1800000000", NOW, 0 },
	{ "expires: e, time: s, at: '<'", "1800000000", NOW + 1, 1 },
	{ "expires: e, time: s", "1800000000.5", NOW + 499, 0 },
	{ "expires: e, time: s", "1800000000.5", NOW + 500, 1 },
	{ "expires: e, time: iso8601", "'2027-01-15T08:00:00.000Z'", NOW - 1, 0 },
	{ "expires: e, time: iso8601", "'2027-01-15T08:00:00.000Z'", NOW, 1 },
	{ "expires: e, time: iso8601", "'2027-01-15T08:00:00Z'", NOW, 1 },
	{ "expires: e, time: iso8601", "'2027-01-15T22:00:00.001+14:00'", NOW, 0 },
	{ "expires: e, time: iso8601", "'2027-01-15T22:00:00.001+14:00'", NOW + 1, 1 },
	{ "expires: e, time: iso8601", "'2027-01-14T20:00:00.001-12:00'", NOW, 0 },
	{ "expires: e, time: iso8601", "'2027-01-15 08:00:00'", NOW + 5, 0 },
	{ "expires: e, time: sqlite_datetime", "'2027-01-15 08:00:00'", NOW - 1, 0 },
	{ "expires: e, time: sqlite_datetime", "'2027-01-15 08:00:00'", NOW, 1 },
	{ "expires: e, time: sqlite_datetime", "'2027-01-15 08:00:00.250'", NOW + 249, 0 },
	{ "expires: e, time: sqlite_datetime", "'2027-01-15 08:00:00.250'", NOW + 250, 1 },
	{ "expires: e, time: sqlite_datetime", "'2027-01-15T08:00:00Z'", NOW + 5, 0 },
	{ "expires: e, time: text", "'2027-01-15 08:00:00'", NOW, 1 },
	{ "expires: e, time: text", "'2027-01-15T09:00:00+01:00'", NOW, 1 },
	{ "expires: e, time: text", "'2027-01-15T09:00:00+01:00'", NOW - 1, 0 },
};

static void boundaries_are_exact(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(BOUNDARIES); i++) {
		struct buf CLEANUP(buf_done) schema = { 0 };
		struct place p = { 0 };
		buf_printf(&schema,
			   "CREATE TABLE t (id INTEGER PRIMARY KEY, e); "
			   "CREATE INDEX i ON t (e); INSERT INTO t VALUES (1, %s)",
			   BOUNDARIES[i].value);
		place_open(&p, buf_text(&schema), BOUNDARIES[i].bound);
		int64_t gone = run(
			(struct pass_config){ .f = p.f, .rule = p.rule, .now = BOUNDARIES[i].now });
		if (gone != BOUNDARIES[i].gone)
			fail_msg("%s with %s: %d gone", BOUNDARIES[i].bound, BOUNDARIES[i].value,
				 (int)gone);
		assert_int_equal(count(&p), 1 - gone);
		place_close(&p);
	}
}

#define ROWS                                                                                       \
	"CREATE TABLE t (id INTEGER PRIMARY KEY, e INTEGER); CREATE INDEX i ON t (e); "            \
	"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000) "          \
	"INSERT INTO t SELECT x, 5 FROM n"

static bool is_even(void *arg, const char *key)
{
	(void)arg;
	if (!key)
		return true; /* some row is */
	return strtol(key, NULL, 10) % 2 == 0;
}

static void held_rows_stay_and_are_passed_by_once(void **state)
{
	struct place p = { 0 };

	(void)state;
	place_open(&p, ROWS, "expires: e, time: ms");
	struct pass_config config = { .f = p.f, .rule = p.rule, .now = NOW, .held = is_even };
	assert_int_equal(run(config), 500);
	assert_int_equal(count(&p), 500);
	assert_int_equal(run(config), 0);
	place_close(&p);
}

static int refuse_fence(void *arg, struct foreign *f)
{
	(void)f;
	return ++*(int *)arg > 2 ? LAPSE_EPRECONDITION : LAPSE_OK;
}

static void a_lost_lease_removes_nothing_more(void **state)
{
	struct place p = { 0 };
	int64_t n, told = 0;
	bool more = true;
	int calls = 0, err = LAPSE_OK;

	(void)state;
	place_open(&p, ROWS, "expires: e, time: ms");
	struct pass_config config = {
		.f = p.f, .rule = p.rule, .now = NOW, .fence = refuse_fence, .arg = &calls
	};
	struct pass *CLEANUP(pass_freep) pass = pass_new(&config);
	while (more && err == LAPSE_OK) {
		int64_t limit = pass_limit(pass);
		err = pass_slice(pass, &n, &more);
		assert_true(n <= limit);
		told += n;
	}
	assert_int_equal(err, LAPSE_EPRECONDITION);
	assert_true(told > 0 && told < 1000);
	assert_int_equal(count(&p), 1000 - told);
	place_close(&p);
}

static void a_dry_pass_removes_nothing(void **state)
{
	struct place p = { 0 };

	(void)state;
	place_open(&p, ROWS, "expires: e, time: ms");
	assert_int_equal(
		run((struct pass_config){ .f = p.f, .rule = p.rule, .now = NOW, .dry = true }),
		1000);
	assert_int_equal(count(&p), 1000);
	place_close(&p);
}

/* Ten slices in a row without the lock fail the pass; until then the same page is tried again. */
static void a_lock_that_is_never_granted_fails(void **state)
{
	struct place p = { 0 };
	sqlite3 *other;
	int64_t n;
	bool more = true;
	int slices = 0, err = LAPSE_OK;

	(void)state;
	place_open(&p, ROWS, "expires: e, time: ms");
	sqlite3_open(p.path, &other);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	struct pass_config config = { .f = p.f, .rule = p.rule, .now = NOW };
	struct pass *CLEANUP(pass_freep) pass = pass_new(&config);
	for (; more && err == LAPSE_OK; slices++)
		err = pass_slice(pass, &n, &more);
	assert_int_equal(err, LAPSE_ERETRY);
	assert_int_equal(slices, PASS_LOCKS_MAX);
	sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL);
	sqlite3_close(other);
	assert_int_equal(count(&p), 1000);
	assert_int_equal(run(config), 1000);
	place_close(&p);
}

/* More rows of one time than a slice removes: a range of times cannot end among them. */
static void many_rows_of_one_time_go(void **state)
{
	static const char schema[] =
		"CREATE TABLE t (id INTEGER PRIMARY KEY, e); CREATE INDEX i ON t (e);"
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
		"INSERT INTO t SELECT i, CASE WHEN i < 500 THEN i WHEN i < 4500 THEN 1000 "
		"WHEN i < 4900 THEN i ELSE 1800000000001 END FROM n";
	struct place p = { 0 };

	(void)state;
	place_open(&p, schema, "expires: e, time: ms");
	struct pass_config config = { .f = p.f, .rule = p.rule, .now = NOW };
	struct pass *CLEANUP(pass_freep) pass = pass_new(&config);
	int64_t n, told = 0;
	for (bool more = true; more; told += n) {
		int64_t limit = pass_limit(pass);
		assert_int_equal(pass_slice(pass, &n, &more), LAPSE_OK);
		assert_true(n <= limit);
	}
	assert_int_equal(told, 4899);
	assert_int_equal(pass_tally(pass)->removed, 4899);
	assert_int_equal(pass_tally(pass)->oldest, 1);
	assert_int_equal(pass_tally(pass)->newest, 4899);
	assert_int_equal(count(&p), 101);
	place_close(&p);
}

static void remove_nothing(struct place *p, bool met)
{
	assert_int_equal(foreign_begin_removal(p->f, 0, true), LAPSE_OK);
	assert_int_equal(p->f->met_writer, met);
	assert_int_equal(foreign_commit(p->f), LAPSE_OK);
}

static void another_writer_is_noticed(void **state)
{
	struct place p = { 0 };
	sqlite3 *other;

	(void)state;
	place_open(&p, "PRAGMA journal_mode = wal;" ROWS, "expires: e, time: ms");
	sqlite3_open(p.path, &other);
	remove_nothing(&p, false);
	remove_nothing(&p, false);
	assert_int_equal(sqlite3_exec(other, "DELETE FROM t WHERE id = 1", NULL, NULL, NULL),
			 SQLITE_OK);
	remove_nothing(&p, true);
	remove_nothing(&p, false);
	assert_int_equal(foreign_flush(p.f), LAPSE_OK);
	sqlite3_close(other);
	place_close(&p);
}

static void keys_of_holds_have_one_form(void **state)
{
	static const struct {
		size_t columns;
		const char *given, *form; /* NULL = refused */
	} table[] = {
		{ 1, "a b", "a b" },
		{ 1, "[1]", "[1]" },
		{ 2, "[\"a\", 1]", "[\"a\",\"1\"]" },
		{ 2, "[\"a\",\"1\"]", "[\"a\",\"1\"]" },
		{ 2, "[\"a\"]", NULL },
		{ 2, "a", NULL },
		{ 2, "[\"a\", null]", NULL },
		{ 2, "[\"a\", 1.5]", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		struct contract_bound b = { .key.count = table[i].columns };
		struct rule rule = { .bound = &b };
		struct buf CLEANUP(buf_done) out = { 0 };
		struct problem p = { 0 };
		int r = pass_key_parse(&rule, table[i].given, &out, &p);
		assert_int_equal(r, table[i].form ? LAPSE_OK : LAPSE_EINVAL);
		if (table[i].form)
			assert_string_equal(buf_text(&out), table[i].form);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boundaries_are_exact),
		cmocka_unit_test(held_rows_stay_and_are_passed_by_once),
		cmocka_unit_test(a_lost_lease_removes_nothing_more),
		cmocka_unit_test(a_dry_pass_removes_nothing),
		cmocka_unit_test(a_lock_that_is_never_granted_fails),
		cmocka_unit_test(many_rows_of_one_time_go),
		cmocka_unit_test(another_writer_is_noticed),
		cmocka_unit_test(keys_of_holds_have_one_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
