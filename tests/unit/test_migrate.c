/* SPDX-License-Identifier: Apache-2.0 */
/* Migrations: from empty, twice, from the future, and one that fails. And the table `meta`. */
#include <string.h>

#include "store/migrate.h"
#include "store/schema.h"
#include "unit.h"

struct desk {
	char dir[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
	struct fake_clock time;
	struct db *db;
	struct problem problem;
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));
	struct db_config config = { .path = d->path, .clock = &d->time.clock };

	temp_dir_make(d->dir);
	path_join(d->path, d->dir, "test.db");
	fake_clock_init(&d->time);
	assert_int_equal(db_open(&config, &d->db, &d->problem), LAPSE_OK);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	db_close(d->db);
	temp_dir_remove(d->dir);
	free(d);
	return 0;
}

/* The whole schema as text. */
static char *schema(struct db *db)
{
	static const struct db_stmt stmt = {
		"SELECT coalesce(group_concat(name || ':' || coalesce(sql, ''), ';'), '') FROM "
		"(SELECT name, sql FROM sqlite_master ORDER BY name)"
	};
	struct db_query CLEANUP(db_finish) q = db_query(db, &stmt);

	assert_int_equal(db_step(&q), 1);
	return mem_strdup(db_text(&q, 0));
}

static int64_t version(struct db *db)
{
	int64_t v = -1;

	assert_int_equal(migrate_current(db, &v), LAPSE_OK);
	return v;
}

static void migrates_an_empty_database(void **state)
{
	struct desk *d = *state;

	assert_int_equal(migrate(d->db, &d->problem), LAPSE_OK);
	assert_true(migrate_newest() >= 1);
	assert_int_equal(version(d->db), migrate_newest());
	char *CLEANUP(mem_freep) text = schema(d->db);
	assert_non_null(strstr(text, "messages:CREATE TABLE"));
	assert_non_null(strstr(text, "cleanups_target:CREATE UNIQUE INDEX"));
	assert_false(db_in_transaction(d->db));
}

static void a_second_time_changes_nothing(void **state)
{
	struct desk *d = *state;

	assert_int_equal(migrate(d->db, &d->problem), LAPSE_OK);
	assert_int_equal(db_script(d->db, "INSERT INTO counts VALUES ('x', 5)"), LAPSE_OK);
	char *CLEANUP(mem_freep) before = schema(d->db);
	int64_t changes = db_changes_total(d->db);
	assert_int_equal(migrate(d->db, &d->problem), LAPSE_OK);
	char *CLEANUP(mem_freep) after = schema(d->db);
	assert_string_equal(before, after);
	assert_int_equal(db_changes_total(d->db), changes);
	assert_int_equal(version(d->db), migrate_newest());
}

static void refuses_the_future(void **state)
{
	struct desk *d = *state;

	assert_int_equal(db_script(d->db, "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER "
					  "NOT NULL) WITHOUT ROWID;"
					  "INSERT INTO meta VALUES ('schema_version', 4711)"),
			 LAPSE_OK);
	char *CLEANUP(mem_freep) before = schema(d->db);
	int64_t changes = db_changes_total(d->db);
	assert_int_equal(migrate(d->db, &d->problem), LAPSE_EVERSION);
	assert_non_null(strstr(d->problem.message, "4711"));
	char *CLEANUP(mem_freep) after = schema(d->db);
	assert_string_equal(before, after);
	assert_int_equal(db_changes_total(d->db), changes);
	assert_int_equal(version(d->db), 4711);
}

/* A replica goes on with a newer schema that serves it, and touches nothing. */
static void a_replica_goes_on_with_what_serves_it(void **state)
{
	static const struct {
		int ahead, serves; /* of this program's version */
		int result;
	} TABLE[] = {
		{ 0, 0, LAPSE_OK },       { 1, 0, LAPSE_OK },       { 3, -2, LAPSE_OK },
		{ 1, 1, LAPSE_EVERSION }, { 2, 1, LAPSE_EVERSION }, { 2, 2, LAPSE_EVERSION },
	};
	struct desk *d = *state;
	const int newest = migrate_newest();
	int64_t serves = 0;

	assert_int_equal(migrate_rolling(d->db, &d->problem), LAPSE_OK);
	assert_int_equal(version(d->db), newest);
	assert_int_equal(meta_get(d->db, META_SERVES, 0, &serves), LAPSE_OK);
	assert_true(serves > 0 && serves <= newest);
	for (size_t i = 0; i < ARRAY_LEN(TABLE); i++) {
		meta_set(d->db, "schema_version", newest + TABLE[i].ahead);
		meta_set(d->db, META_SERVES, newest + TABLE[i].serves);
		char *CLEANUP(mem_freep) before = schema(d->db);
		assert_int_equal(migrate_rolling(d->db, &d->problem), TABLE[i].result);
		char *CLEANUP(mem_freep) after = schema(d->db);
		assert_string_equal(before, after);
		assert_int_equal(version(d->db), newest + TABLE[i].ahead);
		if (TABLE[i].ahead) /* one that has the store alone takes no newer one */
			assert_int_equal(migrate(d->db, &d->problem), LAPSE_EVERSION);
	}
	assert_non_null(strstr(d->problem.message, "schema version"));
}

/* A store whose last steps did not say whom they serve. */
static void without_a_note_only_its_own_version_is_served(void **state)
{
	struct desk *d = *state;

	assert_int_equal(migrate(d->db, &d->problem), LAPSE_OK);
	assert_int_equal(db_script(d->db, "DELETE FROM meta WHERE key = 'schema_serves'"),
			 LAPSE_OK);
	assert_int_equal(migrate_rolling(d->db, &d->problem), LAPSE_OK);
	meta_set(d->db, "schema_version", migrate_newest() + 1);
	assert_int_equal(migrate_rolling(d->db, &d->problem), LAPSE_EVERSION);
	assert_non_null(strstr(d->problem.message, "run a newer lapsed"));
}

/* Every step serves itself, or older ones. */
static void steps_serve_no_future(void **state)
{
	(void)state;
	for (const struct schema_step *s = SCHEMA; s->version; s++)
		assert_true(s->serves > 0 && s->serves <= s->version);
}

/* A table in the way makes the step fail in its middle: what came before it is gone too. */
static void a_failing_step_leaves_nothing(void **state)
{
	struct desk *d = *state;

	assert_int_equal(db_script(d->db, "CREATE TABLE tokens (mine)"), LAPSE_OK);
	assert_true(migrate(d->db, &d->problem) < 0);
	assert_non_null(strstr(d->problem.message, "schema version 1"));
	assert_non_null(strstr(d->problem.message, "tokens"));
	assert_false(db_in_transaction(d->db));
	char *CLEANUP(mem_freep) text = schema(d->db);
	assert_null(strstr(text, "events"));
	assert_null(strstr(text, "counts"));
	assert_non_null(strstr(text, "CREATE TABLE tokens (mine)"));
	assert_int_equal(version(d->db), 0);
	assert_int_equal(db_script(d->db, "DROP TABLE tokens"), LAPSE_OK);
	assert_int_equal(migrate(d->db, &d->problem), LAPSE_OK);
	assert_int_equal(version(d->db), migrate_newest());
}

static int64_t number(struct db *db, const struct db_stmt *stmt)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, stmt);

	assert_int_equal(db_step(&q), 1);
	return db_int(&q, 0);
}

/* Messages of before they were laid out anew: each column keeps its value, unread ones are indexed,
 * and every event is still a row of its own. */
static void messages_move_whole(void **state)
{
	static const struct db_stmt whole = {
		"SELECT count(*) FROM messages WHERE (id, owner, agent, sender, content, type, "
		"metadata, timestamp, read, event) IN (VALUES (1, 'o', 'a', 's', 'c1', 't', '{}', "
		"11, "
		"0, 0), (2, 'o', 'a', 's', 'c2', 't', '{\"k\":1}', 12, 1, 0), (3, 'p', 'b', 's', "
		"'', "
		"'t', '{}', 13, 0, 0))"
	};
	static const struct db_stmt read_at = { "SELECT read_at FROM messages WHERE id = 2" };
	static const struct db_stmt claim = {
		"SELECT claim_id * 100 + claimed_until FROM messages WHERE id = 3"
	};
	static const struct db_stmt unread = {
		"SELECT count(*) FROM messages_unread WHERE (owner, agent, id) IN "
		"(VALUES ('o', 'a', 1), ('p', 'b', 3))"
	};
	static const struct db_stmt all_unread = { "SELECT count(*) FROM messages_unread" };
	struct desk *d = *state;

	assert_int_equal(migrate_to(d->db, 17, &d->problem), LAPSE_OK);
	assert_int_equal(
		db_script(d->db,
			  "INSERT INTO messages VALUES "
			  "(1, 'o', 'a', 's', 'c1', 't', '{}', 11, 0, NULL, NULL, NULL), "
			  "(2, 'o', 'a', 's', 'c2', 't', '{\"k\":1}', 12, 1, 99, NULL, NULL), "
			  "(3, 'p', 'b', 's', '', 't', '{}', 13, 0, NULL, 7, 77)"),
		LAPSE_OK);
	assert_int_equal(migrate(d->db, &d->problem), LAPSE_OK);
	assert_int_equal(number(d->db, &whole), 3);
	assert_int_equal(number(d->db, &read_at), 99);
	assert_int_equal(number(d->db, &claim), 777);
	assert_int_equal(number(d->db, &unread), 2);
	assert_int_equal(number(d->db, &all_unread), 2);
}

static void keeps_facts(void **state)
{
	struct desk *d = *state;
	int64_t value = -1;

	assert_int_equal(migrate(d->db, &d->problem), LAPSE_OK);
	assert_int_equal(meta_get(d->db, "nothing", 42, &value), LAPSE_OK);
	assert_int_equal(value, 42);
	assert_int_equal(meta_set(d->db, "k", INT64_MAX), LAPSE_OK);
	assert_int_equal(meta_get(d->db, "k", 42, &value), LAPSE_OK);
	assert_int_equal(value, INT64_MAX);
	assert_int_equal(meta_set(d->db, "k", -1), LAPSE_OK);
	assert_int_equal(meta_get(d->db, "k", 42, &value), LAPSE_OK);
	assert_int_equal(value, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(migrates_an_empty_database, setup, teardown),
		cmocka_unit_test_setup_teardown(a_second_time_changes_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(refuses_the_future, setup, teardown),
		cmocka_unit_test_setup_teardown(a_replica_goes_on_with_what_serves_it, setup,
						teardown),
		cmocka_unit_test_setup_teardown(without_a_note_only_its_own_version_is_served,
						setup, teardown),
		cmocka_unit_test(steps_serve_no_future),
		cmocka_unit_test_setup_teardown(a_failing_step_leaves_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(messages_move_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(keeps_facts, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
