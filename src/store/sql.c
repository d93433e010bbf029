/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sql.h"

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

static void put_doubled(struct buf *out, const char *text, const char *doubled)
{
	for (; *text; text++) {
		if (strchr(doubled, *text))
			buf_putc(out, *text);
		buf_putc(out, *text);
	}
}

void sql_name(struct buf *out, const char *name)
{
	assert(name && *name);
	buf_putc(out, '"');
	put_doubled(out, name, "\"");
	buf_putc(out, '"');
}

void sql_table(struct buf *out, const char *schema, const char *table)
{
	if (schema) {
		sql_name(out, schema);
		buf_putc(out, '.');
	}
	sql_name(out, table);
}

void sql_column(struct buf *out, const char *alias, const char *column)
{
	assert(alias && *alias);
	buf_puts(out, alias);
	buf_putc(out, '.');
	sql_name(out, column);
}

void sql_text(struct buf *out, enum dialect dialect, const char *text)
{
	bool escaped = dialect == DIALECT_POSTGRES && strchr(text, '\\');

	assert(text);
	buf_puts(out, escaped ? "E'" : "'");
	put_doubled(out, text, escaped ? "'\\" : "'");
	buf_putc(out, '\'');
}

void sql_array_item(struct buf *out, const char *text)
{
	assert(text);
	buf_putc(out, '"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_putc(out, '\\');
		buf_putc(out, *text);
	}
	buf_putc(out, '"');
}

void sql_for_postgres(struct buf *out, const char *sql)
{
	static const struct {
		const char *ours, *theirs;
	} marks[] = {
		{ SQL_CHOOSE, "= ANY (ARRAY(" },
		{ SQL_SKIP_LOCKED, " FOR UPDATE SKIP LOCKED))" },
		{ SQL_KEY_SHARE, " FOR KEY SHARE" },
		{ SQL_FOR_UPDATE, " FOR UPDATE" },
	};

	while (*sql) {
		size_t i = 0;
		while (i < ARRAY_LEN(marks) &&
		       strncmp(sql, marks[i].ours, strlen(marks[i].ours)) != 0)
			i++;
		if (i < ARRAY_LEN(marks)) {
			buf_puts(out, marks[i].theirs);
			sql += strlen(marks[i].ours);
		} else {
			buf_putc(out, *sql++);
		}
	}
}

static void put_rows(struct buf *out, int n, const bool *numbers)
{
	buf_puts(out, " FROM unnest(");
	for (int i = 1; i <= n; i++)
		buf_printf(out, "%s$%d::%s[]", i > 1 ? ", " : "", i,
			   numbers[i - 1] ? "bigint" : "text");
	buf_puts(out, ") AS v (");
	for (int i = 1; i <= n; i++)
		buf_printf(out, "%sp%d", i > 1 ? ", " : "", i);
	buf_puts(out, ")");
}

/* Up to `end`, with the columns of the rows in the place of the parameters. */
static void put_with_columns(struct buf *out, const char *sql, const char *end)
{
	for (; sql < end; sql++)
		if (*sql == '$')
			buf_puts(out, "v.p");
		else
			buf_putc(out, *sql);
}

void sql_over_rows(struct buf *out, enum dialect dialect, const char *sql, int n,
		   const bool *numbers)
{
	static const char insert[] = " VALUES (", update[] = " WHERE ";
	const bool inserts = strncmp(sql, "INSERT", 6) == 0;
	const char *at = strstr(sql, inserts ? insert : update);
	const char *end = sql + strlen(sql);

	assert(at && (inserts || strncmp(sql, "UPDATE", 6) == 0));
	put_with_columns(out, sql, at);
	if (inserts) {
		const char *from = at + strlen(insert), *close = strchr(from, ')');
		assert(close && !memchr(from, '(', (size_t)(close - from)));
		buf_puts(out, " SELECT ");
		put_with_columns(out, from, close);
		at = close + 1;
	}
	if (dialect == DIALECT_POSTGRES)
		put_rows(out, n, numbers);
	else /* without WHERE, ON CONFLICT would be taken for the ON of a join */
		buf_puts(out, " FROM " SQL_GATHERED " AS v WHERE true");
	put_with_columns(out, at, end);
}

static const struct {
	const char *word, *postgres;
} SUBSTITUTIONS[] = {
	{ "INTEGER", "BIGINT" },
	{ "TEXT", "TEXT COLLATE \"C\"" },
	{ "WITHOUT ROWID", "" },
};

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Bytes of the comment or quoted text that begins here; 0 = there is none. */
static size_t skipped(const char *sql)
{
	const char *end = NULL;

	if (sql[0] == '-' && sql[1] == '-')
		return strcspn(sql, "\n");
	if (*sql == '\'' || *sql == '"')
		end = strchr(sql + 1, *sql);
	return end ? (size_t)(end - sql) + 1 : 0;
}

static const char *substitute(const char *sql, size_t *ret_n)
{
	for (size_t i = 0; i < sizeof(SUBSTITUTIONS) / sizeof(SUBSTITUTIONS[0]); i++) {
		size_t n = strlen(SUBSTITUTIONS[i].word);
		if (strncmp(sql, SUBSTITUTIONS[i].word, n) == 0 && !is_word(sql[n])) {
			*ret_n = n;
			return SUBSTITUTIONS[i].postgres;
		}
	}
	return NULL;
}

void sql_schema(struct buf *out, enum dialect dialect, const char *sql)
{
	bool inside = false; /* the byte before belongs to a word */

	if (dialect == DIALECT_SQLITE) {
		buf_puts(out, sql);
		return;
	}
	while (*sql) {
		size_t n = skipped(sql);
		const char *other = n || inside ? NULL : substitute(sql, &n);
		if (other)
			buf_puts(out, other);
		else
			buf_add(out, sql, n ? n : 1);
		inside = is_word(sql[n ? n - 1 : 0]);
		sql += n ? n : 1;
	}
}
