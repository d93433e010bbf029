/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds as values: their statements, the indexes these use, and a matrix that changes. */
#include "unit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/hold.h"

#define DAY INT64_C(86400000)

static struct bound_sql compile(const struct bound_spec *spec, enum dialect dialect)
{
	struct bound_sql sql = { 0 };
	struct problem p = { 0 };

	if (bound_compile(spec, dialect, &sql, &p) < 0)
		fail_msg("%s", p.message);
	return sql;
}

/* Plans */

static void add_plan(struct world *w, const char *sql, struct buf *out)
{
	struct buf CLEANUP(buf_done) explain = { 0 };
	sqlite3_stmt *s = NULL;

	buf_printf(&explain, "EXPLAIN QUERY PLAN %s", sql);
	assert_int_equal(sqlite3_prepare_v2(w->side, buf_text(&explain), -1, &s, NULL), SQLITE_OK);
	while (sqlite3_step(s) == SQLITE_ROW)
		buf_printf(out, "%s\n", (const char *)sqlite3_column_text(s, 3));
	sqlite3_finalize(s);
}

static const struct {
	const char *bound, *index;
} INDEXES[] = {
	{ "messages", "INDEX messages_due " },
	{ "suspects", "INDEX suspects_due " },
	{ "mailboxes", "INDEX idx_mailboxes_expiry " },
	{ "mailboxes_expired", "INDEX idx_mailboxes_expiry " },
	{ "mailbox_messages", "INDEX mailbox_messages_due " },
	{ "attachments", "INDEX attachments_due " },
	{ "events", "INTEGER PRIMARY KEY " },
	{ "idempotency_keys", "INDEX idempotency_created " },
	{ "sweeps", "INDEX sweeps_ended " },
	{ "tokens", "INDEX tokens_expires " },
	{ "holds", "INDEX holds_until " },
	{ "conversation_leases", "INDEX leases_due " },
	{ "presence_entries", "INDEX entries_due " },
	{ "connections", "INDEX entries_due " },
	{ "channel_inbound_dedupe", "INDEX dedupe_due " },
	{ "oauth_pending", "INDEX oauth_due " },
	{ "channel_inbox", "INDEX queue_finished " },
	{ "channel_outbox", "INDEX queue_finished " },
	{ "outbox", "INTEGER PRIMARY KEY " },
	{ "outbox_consumers", "INDEX outbox_consumers_due " },
	{ "workspace_leases", "INDEX leases_due " },
	{ "oauth_refresh_leases", "INDEX leases_due " },
	{ "models_dev_refresh_leases", "INDEX leases_due " },
	{ "webhooks", "INDEX webhooks_disabled " },
	{ "webhook_dead_letters", "INDEX webhook_dead_letters_at " },
};

static const char *index_of(const char *bound)
{
	for (size_t i = 0; i < ARRAY_LEN(INDEXES); i++)
		if (strcmp(INDEXES[i].bound, bound) == 0)
			return INDEXES[i].index;
	fail_msg("%s: say which index serves it", bound);
	return NULL;
}

static void check_plan(struct world *w, const struct bound *b, const char *sql, const char *what)
{
	struct buf CLEANUP(buf_done) plan = { 0 };
	const char *index = index_of(b->spec->name);

	add_plan(w, sql, &plan);
	if (!strstr(buf_text(&plan), index) || strstr(buf_text(&plan), "SCAN t") ||
	    strstr(buf_text(&plan), "TEMP B-TREE"))
		fail_msg("%s of %s does not walk %s:\n%s%s", what, b->spec->name, index,
			 buf_text(&plan), sql);
}

/* A look at one row, by whatever name, must not walk a table. */
static void check_look(struct world *w, const struct bound *b, const char *sql)
{
	struct buf CLEANUP(buf_done) plan = { 0 };

	if (!sql)
		return;
	add_plan(w, sql, &plan);
	if (strstr(buf_text(&plan), "SCAN t") || strstr(buf_text(&plan), "(owner=?)"))
		fail_msg("%s walks a table:\n%s%s", b->spec->name, buf_text(&plan), sql);
}

static void every_look_uses_an_index(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < w->engine.matrix.count; i++) {
		const struct bound *b = w->engine.matrix.bounds[i];
		check_look(w, b, b->sql.look.sql);
		check_look(w, b, b->sql.look_by.sql);
		check_look(w, b, b->sql.held.sql);
	}
}

static void every_bound_walks_its_index(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < w->engine.matrix.count; i++) {
		const struct bound *b = w->engine.matrix.bounds[i];
		if (b->spec->walk == WALK_MEMORY)
			continue;
		check_plan(w, b, b->sql.due.sql, "the count");
		check_plan(w, b, b->sql.prune.sql, "the removal");
	}
}

/* Texts */

static void tests_say_what_they_mean(void **state)
{
	static const struct bound_value number[] = { { VALUE_INT, -7, NULL }, { 0 } };
	static const struct bound_value list[] = {
		{ VALUE_TEXT, 0, "it's" }, { VALUE_NULL, 0, NULL }, { VALUE_INT, 3, NULL }, { 0 }
	};
	static const struct bound_value null[] = { { VALUE_NULL, 0, NULL }, { 0 } };
	static const struct {
		struct bound_test test;
		const char *sql;
	} rows[] = {
		{ { "n", false, number }, " AND t.\"n\" = -7" },
		{ { "n", true, number }, " AND (t.\"n\" <> -7 AND t.\"n\" IS NOT NULL)" },
		{ { "a\"b", false, list },
		  " AND (t.\"a\"\"b\" IN ('it''s', 3) OR t.\"a\"\"b\" IS NULL)" },
		{ { "n", true, list },
		  " AND (t.\"n\" NOT IN ('it''s', 3) AND t.\"n\" IS NOT NULL)" },
		{ { "n", false, null }, " AND t.\"n\" IS NULL" },
		{ { "n", true, null }, " AND t.\"n\" IS NOT NULL" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf CLEANUP(buf_done) out = { 0 };
		const struct bound_test tests[] = { rows[i].test, { 0 } };
		bound_put_tests(&out, DIALECT_SQLITE, tests);
		assert_string_equal(buf_text(&out), rows[i].sql);
	}
}

/* The shape of PostgreSQL's statements; a server prepares them in tests/postgres. */
static void postgres_locks_before_it_deletes(void **state)
{
	struct bound_sql sql = compile(&MESSAGE_BOUND, DIALECT_POSTGRES);

	(void)state;
	assert_non_null(strstr(sql.lock.sql, "LIMIT $2 FOR UPDATE OF t SKIP LOCKED"));
	assert_non_null(strstr(sql.prune.sql, "IN (SELECT * FROM unnest($2::bigint[]))"));
	assert_non_null(strstr(sql.prune.sql, "h.until > $3"));
	assert_non_null(strstr(sql.find.sql, "FOR KEY SHARE"));
	bound_sql_done(&sql);
	sql = compile(&MESSAGE_BOUND, DIALECT_SQLITE);
	assert_null(sql.lock.sql);
	bound_sql_done(&sql);
}

static void a_spec_that_makes_no_sense_is_refused(void **state)
{
	const struct bound_spec good = { .name = "x",
					 .key = BOUND_KEY({ "a", BOUND_TEXT }, { "b", BOUND_INT }),
					 .time = "at" };
	struct bound_spec bad[] = { good, good, good, good, good, good, good };
	struct bound_sql sql;

	(void)state;
	bad[0].time = NULL;
	bad[1].key_is_id = true;
	bad[2].held_as = "x";
	bad[3].holdable = true;
	bad[4].unit = UNIT_TEXT;
	bad[5].at_most.count = 1;
	bad[6].key = BOUND_KEY({ 0 });
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct problem p = { 0 };
		assert_int_equal(bound_compile(&bad[i], DIALECT_SQLITE, &sql, &p), LAPSE_EINVAL);
		assert_non_null(strstr(p.message, "the bound x: "));
	}
	sql = compile(&good, DIALECT_SQLITE);
	bound_sql_done(&sql);
}

/* Holds: where the statements once disagreed */

static int64_t count_due(struct world *w, const char *name)
{
	struct arena CLEANUP(arena_done) arena;
	int64_t rows = -1;

	arena_init(&arena);
	struct due_counts *c = matrix_count_begin(&w->engine, &arena, NULL, w->time.wall);
	assert_int_equal(engine_count_due(&w->engine, c), LAPSE_OK);
	for (size_t i = 0; i < c->n; i++)
		if (strcmp(c->rows[i].bound->spec->name, name) == 0)
			rows = c->rows[i].rows;
	matrix_count_end(&w->engine);
	return rows;
}

static void a_hold_that_has_ended_does_not_hide_what_is_due(void **state)
{
	struct world *w = *state;
	int64_t id = send_read_message(w, "o", "a");

	send_read_message(w, "o", "a");
	hold_message(w, "o", id, NOW + 2 * DAY);
	fake_clock_to(&w->time, NOW + DAY + 1);
	assert_int_equal(count_due(w, "messages"), 1);
	fake_clock_to(&w->time, NOW + 2 * DAY - 1);
	assert_int_equal(count_due(w, "messages"), 1);
	fake_clock_to(&w->time, NOW + 2 * DAY); /* the hold has ended, and was not swept yet */
	assert_int_equal(count_due(w, "messages"), 2);
}

static void make_mail(struct world *w, int64_t id, int64_t mailbox)
{
	side_run(
		w,
		"INSERT INTO mailbox_messages (id, owner, mailbox, folder, sender, recipients, cc, "
		"subject, preview, received_at, read, read_at) VALUES (%" PRId64 ", 'o', %" PRId64
		", 'inbox', 's', '[]', '[]', '', '', %" PRId64 ", 1, %" PRId64 ");"
		"UPDATE counts SET live = live + 1 WHERE tbl = 'mailbox_messages'",
		id, mailbox, NOW, NOW);
}

static void held_mail_goes_when_its_mailboxs_hold_has_ended(void **state)
{
	struct world *w = *state;
	struct sweep sweep;

	make_mail(w, 1, 77);
	make_mail(w, 2, 78);
	side_run(w,
		 "INSERT INTO holds VALUES (1, 'o', 'mailboxes', 'k', 77, 'r', %" PRId64 ", 0);"
		 "UPDATE counts SET live = 1 WHERE tbl = 'holds'",
		 NOW + 2 * DAY);
	world_reopen(w);
	fake_clock_to(&w->time, NOW + DAY + 1);
	assert_int_equal(count_due(w, "mailbox_messages"), 1);
	run_sweep(w, "mailboxes", false, &sweep);
	assert_int_equal(side_int(w, "SELECT min(id) FROM mailbox_messages"), 1);
	fake_clock_to(&w->time, NOW + 2 * DAY);
	assert_int_equal(count_due(w, "mailbox_messages"), 1);
	run_sweep(w, "mailboxes", false, &sweep);
	assert_int_equal(side_int(w, "SELECT count(*) FROM mailbox_messages"), 0);
	world_check_counters(w);
}

/* Bounds that come and go */

static struct bound *add_bound(struct world *w, const struct bound_spec *spec)
{
	struct problem p = { 0 };
	struct bound *b = NULL;
	struct tx tx;

	if (matrix_add(&w->engine, spec, &b, &p) < 0)
		fail_msg("%s", p.message);
	assert_int_equal(tx_begin(&tx, &w->engine), LAPSE_OK);
	assert_int_equal(matrix_load(&w->engine, b), LAPSE_OK);
	assert_int_equal(tx_commit(&tx), LAPSE_OK);
	return b;
}

static const struct bound_spec VISITS = {
	.name = "visits",
	.scheduler = "housekeeping",
	.paths = PATH_SWEEP,
	.table = "vis\"its",
	.key = BOUND_KEY({ "tenant", BOUND_TEXT }, { "visit", BOUND_INT }),
	.time = "at",
	.window_ms = 1000,
	.unless_referenced =
		(const struct bound_reference[]){
			{ NULL, "notes",
			  (const struct bound_pair[]){ { "of", "visit" }, { NULL, NULL } } },
			{ 0 } },
};

static void make_visits(struct world *w)
{
	side_run(w,
		 "CREATE TABLE \"vis\"\"its\" (tenant TEXT, visit INTEGER, at INTEGER NOT NULL, "
		 "kind TEXT, PRIMARY KEY (tenant, visit)) WITHOUT ROWID;"
		 "CREATE INDEX visits_at ON \"vis\"\"its\" (at, tenant, visit);"
		 "CREATE TABLE notes (of INTEGER);"
		 "WITH RECURSIVE k (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 999) "
		 "INSERT INTO \"vis\"\"its\" SELECT 't' || (i %% 7), i, %" PRId64
		 " - i / 100 * 60000, CASE i %% 2 WHEN 0 THEN 'even' ELSE 'odd' END FROM k;"
		 "INSERT INTO notes VALUES (500), (999)",
		 NOW);
}

/* 50 rows at a time, several of which share their time: the walk goes on by the whole key. */
static void keys_have_any_type_and_number_of_columns(void **state)
{
	struct world *w = *state;
	static struct bound_spec spec;
	struct sweep dry, real;

	make_visits(w);
	spec = VISITS;
	spec.window_ms = 200000; /* three minutes and a bit: visits from 400 on are due */
	add_bound(w, &spec);
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 2000;
	assert_true(run_sweep(w, "housekeeping", true, &dry) > 5);
	assert_int_equal(dry.total, 598);
	run_sweep(w, "housekeeping", false, &real);
	assert_int_equal(real.total, 598);
	assert_int_equal(side_int(w, "SELECT count(*) FROM \"vis\"\"its\""), 402);
	assert_int_equal(side_int(w, "SELECT count(*) FROM \"vis\"\"its\" WHERE visit >= 400"), 2);
}

static const struct bound_test IS_ODD[] = { IS_TEXT("kind", "odd"), { 0 } };
static const struct bound_test IS_NEITHER[] = { IS_TEXT("kind", "neither"), { 0 } };

/* The same name, the same place in the matrix, another rule: only the new one runs. */
static void a_replaced_bound_runs_its_new_statements(void **state)
{
	struct world *w = *state;
	static struct bound_spec odd, none; /* they live as long as the bound */
	struct problem p = { 0 };
	struct bound *b;
	struct sweep sweep;

	make_visits(w);
	odd = none = VISITS;
	odd.only = IS_ODD;
	none.only = IS_NEITHER;
	none.window_ms = 1;
	fake_clock_advance(&w->time, 5000);
	b = add_bound(w, &none);
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(sweep.total, 0);
	char *CLEANUP(mem_freep) old = mem_strdup(b->sql.prune.sql);
	assert_int_equal(matrix_replace(&w->engine, b, &odd, &b, &p), LAPSE_OK);
	assert_false(db_forget(w->engine.db, old)); /* that was done */
	run_sweep(w, "housekeeping", false, &sweep);
	assert_int_equal(sweep.total, 499); /* 999 is referenced */
	assert_int_equal(side_int(w, "SELECT count(*) FROM \"vis\"\"its\" WHERE kind = 'even'"),
			 500);

	none.scheduler = "nothing";
	assert_int_equal(matrix_replace(&w->engine, b, &none, &b, &p), LAPSE_EINVAL);
	assert_ptr_equal(matrix_find(&w->engine, "visits"), b);
	none = VISITS;
	none.window = "no_such_setting";
	assert_int_equal(matrix_replace(&w->engine, b, &none, &b, &p), LAPSE_EINVAL);
	none = VISITS;
	none.name = "messages";
	assert_int_equal(matrix_replace(&w->engine, b, &none, &b, &p), LAPSE_ECONFLICT);
}

static int released;

static void note_release(const struct bound_spec *spec)
{
	(void)spec;
	released++;
}

static void a_bound_can_leave_in_the_middle_of_its_sweep(void **state)
{
	struct world *w = *state;
	static struct bound_spec spec;
	struct scheduler *s = schedule_find(&w->engine, "housekeeping");
	size_t count = w->engine.matrix.count;
	bool more = false;

	released = 0;
	spec = VISITS;
	spec.release = note_release;
	make_visits(w);
	struct bound *b = add_bound(w, &spec);
	fake_clock_advance(&w->time, 5000);
	w->settings.sweep_budget_ms = 1;
	w->time.mono_step = 2000;
	sweep_init(&s->sweep, &w->engine, s, false);
	s->running = true;
	for (int i = 0; s->sweep.bound != b && i < 100; i++)
		assert_int_equal(sweep_slice(&s->sweep, &more), LAPSE_OK);
	assert_int_equal(sweep_slice(&s->sweep, &more), LAPSE_OK);
	assert_ptr_equal(s->sweep.bound, b);
	assert_non_null(s->sweep.after.text[0]);
	matrix_remove(&w->engine, b);
	assert_int_equal(released, 1);
	assert_int_equal(w->engine.matrix.count, count);
	assert_null(matrix_find(&w->engine, "visits"));
	assert_null(s->sweep.bound);
	assert_int_equal(sweep_slice(&s->sweep, &more), LAPSE_OK);
	assert_false(more);
	s->running = false;
	assert_true(side_int(w, "SELECT count(*) FROM \"vis\"\"its\"") > 800);
}

/* A worker may be counting it: its end waits. */
static void a_bound_that_is_being_counted_outlives_its_removal(void **state)
{
	struct world *w = *state;
	static struct bound_spec spec;
	struct arena CLEANUP(arena_done) arena;
	struct buf CLEANUP(buf_done) json = { 0 };

	released = 0;
	spec = VISITS;
	spec.release = note_release;
	arena_init(&arena);
	make_visits(w);
	struct bound *b = add_bound(w, &spec);
	struct due_counts *c = matrix_count_begin(&w->engine, &arena, NULL, w->time.wall);
	matrix_remove(&w->engine, b);
	assert_int_equal(released, 0);
	assert_int_equal(engine_count_due(&w->engine, c), LAPSE_OK);
	matrix_write_json(&w->engine, c, &json);
	assert_null(strstr(buf_text(&json), "visits"));
	matrix_count_end(&w->engine);
	assert_int_equal(released, 1);
}

/* Statements are found by their text: the place of one that was freed may hold another. */
static void a_statement_at_a_reused_address_is_another_one(void **state)
{
	struct world *w = *state;
	char text[] = "SELECT 1";
	const struct db_stmt stmt = { text };

	for (char digit = '1'; digit <= '9'; digit++) {
		text[7] = digit;
		struct db_query CLEANUP(db_finish) q = db_query(w->engine.db, &stmt);
		assert_int_equal(db_step(&q), 1);
		assert_int_equal(db_int(&q, 0), digit - '0');
	}
	assert_true(db_forget(w->engine.db, text));
	assert_false(db_forget(w->engine.db, text));
}

/* Whatever is forgotten, the others are found: open addressing has no holes. */
static void forgetting_leaves_the_others(void **state)
{
	struct world *w = *state;
	static char texts[400][32];
	struct db_stmt stmts[400];

	for (int i = 0; i < 400; i++) {
		snprintf(texts[i], sizeof(texts[i]), "SELECT %d", i);
		stmts[i] = (struct db_stmt){ texts[i] };
		struct db_query CLEANUP(db_finish) q = db_query(w->engine.db, &stmts[i]);
		assert_int_equal(db_step(&q), 1);
	}
	for (int i = 0; i < 400; i += 3)
		assert_true(db_forget(w->engine.db, texts[i]));
	for (int i = 0; i < 400; i++) {
		struct db_query CLEANUP(db_finish) q = db_query(w->engine.db, &stmts[i]);
		assert_int_equal(db_step(&q), 1);
		assert_int_equal(db_int(&q, 0), i);
	}
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(every_bound_walks_its_index),
		WORLD_TEST(every_look_uses_an_index),
		cmocka_unit_test(tests_say_what_they_mean),
		cmocka_unit_test(postgres_locks_before_it_deletes),
		cmocka_unit_test(a_spec_that_makes_no_sense_is_refused),
		WORLD_TEST(a_hold_that_has_ended_does_not_hide_what_is_due),
		WORLD_TEST(held_mail_goes_when_its_mailboxs_hold_has_ended),
		WORLD_TEST(keys_have_any_type_and_number_of_columns),
		WORLD_TEST(a_replaced_bound_runs_its_new_statements),
		WORLD_TEST(a_bound_can_leave_in_the_middle_of_its_sweep),
		WORLD_TEST(a_bound_that_is_being_counted_outlives_its_removal),
		WORLD_TEST(a_statement_at_a_reused_address_is_another_one),
		WORLD_TEST(forgetting_leaves_the_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
