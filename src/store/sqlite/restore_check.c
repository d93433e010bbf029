/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/restore_check.h"

#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "store/blob.h"
#include "store/migrate.h"

#define COLUMNS_MAX 64      /* of a table; ours have a quarter of that */
#define TEXT_MAX_BYTES 1024 /* of a text that is a name, an address or a state */

/* The schema */

static const struct db_stmt OBJECTS = { "SELECT type, name, sql FROM sqlite_schema "
					"WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
					"ORDER BY type, name" };

/* The statement without comments, and with one space where there was white space. */
static void normalize(const char *sql, struct buf *out)
{
	bool gap = false;

	buf_clear(out);
	for (const char *c = sql ? sql : ""; *c; c++) {
		if (c[0] == '-' && c[1] == '-')
			c += strcspn(c, "\n");
		if (*c == '\0')
			break;
		if (strchr(" \t\r\n", *c)) {
			gap = true;
			continue;
		}
		if (gap && out->len > 0)
			buf_putc(out, ' ');
		gap = false;
		buf_putc(out, *c);
	}
}

static bool is_same_object(const struct db_query *a, const struct db_query *b)
{
	struct buf CLEANUP(buf_done) left = { 0 }, right = { 0 };

	normalize(db_text(a, 2), &left);
	normalize(db_text(b, 2), &right);
	return strcmp(db_text(a, 0), db_text(b, 0)) == 0 &&
	       strcmp(db_text(a, 1), db_text(b, 1)) == 0 &&
	       strcmp(buf_text(&left), buf_text(&right)) == 0;
}

static int compare_schemas(struct db *db, struct db *expected, const char *file, struct problem *p)
{
	struct db_query CLEANUP(db_finish) found = db_query(db, &OBJECTS);
	struct db_query CLEANUP(db_finish) wanted = db_query(expected, &OBJECTS);

	for (;;) {
		int f = db_step(&found), w = db_step(&wanted);
		if (f < 0 || w < 0)
			return f < 0 ? f : w;
		if (f == 0 && w == 0)
			return LAPSE_OK;
		if (f == w && is_same_object(&found, &wanted))
			continue;
		const struct db_query *q = f > 0 ? &found : &wanted;
		return problem_set(p, LAPSE_EINVAL, "file",
				   "%.100s is no database of lapse: its schema differs at %.20s "
				   "%.60s",
				   file, db_text(q, 0), db_text(q, 1));
	}
}

static int check_schema(struct db *db, const char *file, int64_t version, struct problem *p)
{
	struct db_config config = { .path = ":memory:", .clock = &CLOCK_SYSTEM };
	struct db *expected = NULL;
	int r = db_open(&config, &expected, p);

	if (r == LAPSE_OK)
		r = migrate_to(expected, (int)version, p);
	if (r == LAPSE_OK)
		r = compare_schemas(db, expected, file, p);
	db_close(expected);
	return r;
}

/* The rows */

static bool is_short(const char *text)
{
	return strlen(text) <= TEXT_MAX_BYTES;
}

static bool is_owner(const char *text)
{
	return strlen(text) <= ID_MAX_BYTES; /* '' = everyone's */
}

static bool is_name(const char *text)
{
	const char *why;

	return id_is_valid(text, &why);
}

static bool is_json_object(const char *text)
{
	json_error_t error;
	json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	bool good = json_is_object(value);

	json_decref(value);
	return good;
}

static bool is_json_texts(const char *text)
{
	json_error_t error;
	json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, &error), *one;
	bool good = json_is_array(all);
	size_t i;

	json_array_foreach (all, i, one) {
		good = good && json_is_string(one);
	}
	json_decref(all);
	return good;
}

/* What is deleted outside: a path below the data directory, or the name of an account. */
static bool is_target(const char *text)
{
	size_t n = strlen(text);

	return is_short(text) && text[0] != '/' && text[0] != '\0' && !strstr(text, "../") &&
	       !(n >= 2 && strcmp(text + n - 2, "..") == 0);
}

/* What code relies on beyond the type. No table = that column of every table.
 * To add a column: a row, unless it is a number or a text of any content. */
static const struct column_rule {
	const char *table, *column;
	bool (*is_good)(const char *text);
} RULES[] = {
	{ NULL, "owner", is_owner },
	{ NULL, "agent", is_name },
	{ NULL, "status", is_short },
	{ NULL, "name", is_short },
	{ NULL, "kind", is_short },
	{ NULL, "tbl", is_short },
	{ "agents", "cluster_id", is_name },
	{ "agents", "capabilities", is_json_texts },
	{ "agents", "metadata", is_json_object },
	{ "capabilities", "name", is_name },
	{ "capability_counts", "name", is_name },
	{ "messages", "sender", is_name },
	{ "messages", "type", is_short },
	{ "messages", "metadata", is_json_object },
	{ "mailboxes", "address", is_short },
	{ "mailboxes", "username", is_short },
	{ "mailboxes", "domain", is_short },
	{ "mailboxes", "provider", is_short },
	{ "mailbox_messages", "folder", is_short },
	{ "mailbox_messages", "recipients", is_json_texts },
	{ "mailbox_messages", "cc", is_json_texts },
	{ "attachments", "checksum", blob_is_checksum },
	{ "cleanups", "target", is_target },
	{ "events", "data", is_json_object },
	{ "tokens", "prefix", is_name },
	{ "tokens", "scopes", is_short },
	{ "tokens", "hash", blob_is_checksum }, /* both are SHA-256 */
};

static bool obeys_rules(const char *table, const char *column, const char *text)
{
	if (!utf8_is_valid(text, strlen(text), false))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(RULES); i++) {
		const struct column_rule *r = &RULES[i];
		if (strcmp(r->column, column) == 0 && (!r->table || strcmp(r->table, table) == 0) &&
		    !r->is_good(text))
			return false;
	}
	return true;
}

/* A table's columns, and the statement that reads its texts and finds values of a wrong type. */
struct table_check {
	char *texts[COLUMNS_MAX];
	size_t texts_count;
	struct buf sql;
};

static void table_check_done(struct table_check *t)
{
	for (size_t i = 0; i < t->texts_count; i++)
		free(t->texts[i]);
	buf_done(&t->sql);
}

static const struct db_stmt COLUMNS = {
	"SELECT name, type, \"notnull\" OR pk > 0 FROM pragma_table_info($1) ORDER BY cid"
};

static int describe_table(struct db *db, const char *table, struct table_check *t)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &COLUMNS);
	struct buf CLEANUP(buf_done) names = { 0 };
	int r;

	db_bind_text(&q, 1, table);
	buf_puts(&t->sql, "SELECT CASE");
	while ((r = db_step(&q)) > 0) {
		const char *name = db_text(&q, 0), *type = db_text(&q, 1);
		bool is_text = strcmp(type, "TEXT") == 0;
		assert(is_text || strcmp(type, "INTEGER") == 0); /* the schema is ours */
		buf_printf(&t->sql, " WHEN typeof(\"%s\") NOT IN ('%s'%s)", name,
			   is_text ? "text" : "integer", db_int(&q, 2) ? "" : ", 'null'");
		if (is_text)
			buf_printf(&t->sql, " OR instr(CAST(\"%s\" AS BLOB), x'00') > 0", name);
		buf_printf(&t->sql, " THEN '%s'", name);
		if (is_text && t->texts_count < COLUMNS_MAX) {
			t->texts[t->texts_count++] = mem_strdup(name);
			buf_printf(&names, ", \"%s\"", name);
		}
	}
	buf_printf(&t->sql, " ELSE '' END%s FROM \"%s\"", buf_text(&names), table);
	return r;
}

/* The column of the row that is not as it should be; NULL = the row is fine. */
static const char *bad_column(const struct db_query *q, const struct table_check *t,
			      const char *table)
{
	if (db_text(q, 0)[0])
		return db_text(q, 0);
	for (size_t i = 0; i < t->texts_count; i++) {
		const char *text = db_text(q, (int)i + 1);
		if (text && !obeys_rules(table, t->texts[i], text))
			return t->texts[i];
	}
	return NULL;
}

static int check_rows(struct db *db, const char *table, const struct table_check *t,
		      const char *file, struct problem *p)
{
	struct db_stmt all = { buf_text(&t->sql) };
	struct db_query CLEANUP(db_finish) q = db_query(db, &all);
	int r;

	while ((r = db_step(&q)) > 0) {
		const char *column = bad_column(&q, t, table);
		if (column)
			return problem_set(p, LAPSE_ECORRUPT, "file",
					   "%.100s is no database of lapse: a row of %.60s has a "
					   "value in %.60s that lapse would not have written",
					   file, table, column);
	}
	return r;
}

static int check_table(struct db *db, const char *table, const char *file, struct problem *p)
{
	struct table_check CLEANUP(table_check_done) t = { 0 };
	int r = describe_table(db, table, &t);

	if (r == LAPSE_OK)
		r = check_rows(db, table, &t, file, p);
	db_forget(db, buf_text(&t.sql));
	return r;
}

static int check_tables(struct db *db, const char *file, struct problem *p)
{
	static const struct db_stmt TABLES = {
		"SELECT name FROM sqlite_schema WHERE type = 'table' "
		"AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
	};
	struct db_query CLEANUP(db_finish) q = db_query(db, &TABLES);
	int r;

	while ((r = db_step(&q)) > 0) {
		r = check_table(db, db_text(&q, 0), file, p);
		if (r < 0)
			break;
	}
	return r;
}

int restore_check(struct db *db, const char *file, int64_t version, struct problem *p)
{
	int r = check_schema(db, file, version, p);

	if (r == LAPSE_OK)
		r = check_tables(db, file, p);
	if (r < 0 && !p->message[0])
		problem_set(p, r, "file", "cannot check %.100s: %.120s", file, db_error(db));
	return r;
}
