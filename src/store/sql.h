/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQL as text: names and values that cannot break out of their place.
 *
 * Every statement that is put together at run time takes its names and values through these
 * functions, whether they come from our own source or from a user's contract. All of them append
 * to `out`.
 */
#ifndef LAPSE_STORE_SQL_H
#define LAPSE_STORE_SQL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum dialect { DIALECT_SQLITE, DIALECT_POSTGRES };

/* Around a subquery that chooses rows to change, after `id`:
 *
 *	"UPDATE … WHERE id " SQL_CHOOSE "SELECT id … LIMIT $1" SQL_SKIP_LOCKED " AND …"
 *
 * SQLite has one writer, and sees IN (…). PostgreSQL's driver writes = ANY (ARRAY(… FOR UPDATE SKIP
 * LOCKED)): two workers choose different rows, and the subquery runs once, where one in IN could
 * run again for each row and choose more than its limit. The statement around it must check again
 * what the subquery chose by. */
#define SQL_CHOOSE "IN (/*choose*/"
#define SQL_SKIP_LOCKED "/*skip locked*/)"

/* At the end of a SELECT: rows that this transaction only relies on, or will change. SQLite has one
 * writer, and needs neither. */
#define SQL_KEY_SHARE "/*key share*/"
#define SQL_FOR_UPDATE "/*for update*/"

/* A name in double quotes, which are doubled inside it. */
void sql_name(struct buf *out, const char *name);

/* schema.table, or the table alone where the schema is NULL. */
void sql_table(struct buf *out, const char *schema, const char *table);

/* alias.column */
void sql_column(struct buf *out, const char *alias, const char *column);

/* A text in single quotes. PostgreSQL gets E'…' for one with a backslash, which means the same
 * whatever the server's standard_conforming_strings is. */
void sql_text(struct buf *out, enum dialect dialect, const char *text);

/* An item of an array of PostgreSQL's, {…}, written as a text. */
void sql_array_item(struct buf *out, const char *text);

/* A statement's text for PostgreSQL. */
void sql_for_postgres(struct buf *out, const char *sql);

/* The text of a statement over many rows, for a statement over one: see db_post_row(). For
 * PostgreSQL each parameter is an array; `numbers` says of each of the `n` whether it is one of
 * integers. SQLite reads the rows from the virtual table SQL_GATHERED and has no parameters. */
#define SQL_GATHERED "gathered"
void sql_over_rows(struct buf *out, enum dialect dialect, const char *sql, int n,
		   const bool *numbers);

/* Our schema's text for a dialect. It is written for SQLite; PostgreSQL gets BIGINT for INTEGER,
 * nothing for WITHOUT ROWID, and texts that compare by their bytes, as SQLite's do. Words in
 * comments and quotes stay. */
void sql_schema(struct buf *out, enum dialect dialect, const char *sql);

#endif
