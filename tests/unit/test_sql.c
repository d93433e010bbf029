/* SPDX-License-Identifier: Apache-2.0 */
/* SQL as text: names, values, and one schema for two databases. */
#include "unit.h"

#include <string.h>

#include "store/sql.h"

static void names_are_quoted(void **state)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	(void)state;
	sql_name(&out, "a\"; DROP TABLE b; --");
	assert_string_equal(buf_text(&out), "\"a\"\"; DROP TABLE b; --\"");
	buf_clear(&out);
	sql_table(&out, "app", "Order");
	assert_string_equal(buf_text(&out), "\"app\".\"Order\"");
	buf_clear(&out);
	sql_table(&out, NULL, "order");
	assert_string_equal(buf_text(&out), "\"order\"");
	buf_clear(&out);
	sql_column(&out, "t", "group");
	assert_string_equal(buf_text(&out), "t.\"group\"");
}

static void texts_cannot_break_out(void **state)
{
	static const struct {
		enum dialect dialect;
		const char *text, *sql;
	} rows[] = {
		{ DIALECT_SQLITE, "", "''" },
		{ DIALECT_SQLITE, "'); DROP TABLE x; --", "'''); DROP TABLE x; --'" },
		{ DIALECT_SQLITE, "\\'", "'\\'''" },
		{ DIALECT_POSTGRES, "'", "''''" },
		{ DIALECT_POSTGRES, "\\'; DROP TABLE x", "E'\\\\''; DROP TABLE x'" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf CLEANUP(buf_done) out = { 0 };
		sql_text(&out, rows[i].dialect, rows[i].text);
		assert_string_equal(buf_text(&out), rows[i].sql);
	}
}

static void the_schema_is_substituted(void **state)
{
	static const struct {
		const char *sqlite, *postgres;
	} rows[] = {
		{ "", "" },
		{ "a INTEGER, b TEXT NOT NULL", "a BIGINT, b TEXT COLLATE \"C\" NOT NULL" },
		{ "(a TEXT PRIMARY KEY) WITHOUT ROWID;", "(a TEXT COLLATE \"C\" PRIMARY KEY) ;" },
		{ "-- TEXT, INTEGER\nx INTEGER", "-- TEXT, INTEGER\nx BIGINT" },
		{ "DEFAULT 'TEXT' \"INTEGER\"", "DEFAULT 'TEXT' \"INTEGER\"" },
		{ "CONTEXT TEXTS MY_TEXT INTEGERS", "CONTEXT TEXTS MY_TEXT INTEGERS" },
		{ "'it''s TEXT' TEXT", "'it''s TEXT' TEXT COLLATE \"C\"" },
		{ "-- ends in a comment TEXT", "-- ends in a comment TEXT" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf CLEANUP(buf_done) same = { 0 }, other = { 0 };
		sql_schema(&same, DIALECT_SQLITE, rows[i].sqlite);
		sql_schema(&other, DIALECT_POSTGRES, rows[i].sqlite);
		assert_string_equal(buf_text(&same), rows[i].sqlite);
		assert_string_equal(buf_text(&other), rows[i].postgres);
	}
}

static void choosing_rows_is_marked(void **state)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	(void)state;
	sql_for_postgres(&out, "UPDATE t SET a = 1 WHERE id " SQL_CHOOSE
			       "SELECT id FROM t LIMIT $1" SQL_SKIP_LOCKED " AND b = 2");
	assert_string_equal(buf_text(&out),
			    "UPDATE t SET a = 1 WHERE id = ANY (ARRAY(SELECT id FROM t LIMIT $1 "
			    "FOR UPDATE SKIP LOCKED)) AND b = 2");
}

static void array_items_cannot_break_out(void **state)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	(void)state;
	sql_array_item(&out, "a\"}, \\ NULL");
	assert_string_equal(buf_text(&out), "\"a\\\"}, \\\\ NULL\"");
}

static void a_statement_runs_over_many_rows(void **state)
{
	static const struct {
		const char *one, *many;
	} rows[] = {
		{ "INSERT INTO t (a, b, c) VALUES ($2, 0, $1)",
		  "INSERT INTO t (a, b, c) SELECT v.p2, 0, v.p1 FROM unnest($1::bigint[], "
		  "$2::text[]) AS v (p1, p2)" },
		{ "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO NOTHING",
		  "INSERT INTO t (a, b) SELECT v.p1, v.p2 FROM unnest($1::bigint[], $2::text[]) AS "
		  "v (p1, p2) ON CONFLICT (a) DO NOTHING" },
		{ "UPDATE t SET b = $2 WHERE a = $1 AND b < $2",
		  "UPDATE t SET b = v.p2 FROM unnest($1::bigint[], $2::text[]) AS v (p1, p2) WHERE "
		  "a = v.p1 AND b < v.p2" },
	};
	static const bool numbers[] = { true, false };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf CLEANUP(buf_done) out = { 0 };
		sql_over_rows(&out, DIALECT_POSTGRES, rows[i].one, 2, numbers);
		assert_string_equal(buf_text(&out), rows[i].many);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_quoted),
		cmocka_unit_test(texts_cannot_break_out),
		cmocka_unit_test(the_schema_is_substituted),
		cmocka_unit_test(choosing_rows_is_marked),
		cmocka_unit_test(a_statement_runs_over_many_rows),
		cmocka_unit_test(array_items_cannot_break_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
