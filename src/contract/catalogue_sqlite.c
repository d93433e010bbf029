/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite's catalogue, by its table-valued pragmas: names are parameters, never text of the SQL. */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "contract/catalogue.h"

struct sqlite_look {
	struct foreign *f;
	struct relation *r;
	struct rows rows;
	bool without_rowid;
};

static int ask_sqlite(struct sqlite_look *l, const char *sql, const char *name)
{
	struct datum param = datum_text(name);

	return foreign_run(l->f, sql, &param, 1, &l->rows);
}

static const char *keep_sqlite(struct sqlite_look *l, size_t row, size_t column)
{
	const char *text = rows_text(&l->rows, row, column);

	return text ? arena_strdup(&l->r->arena, text) : NULL;
}

static int sqlite_kind(struct sqlite_look *l)
{
	int err =
		ask_sqlite(l,
			   "SELECT type, wr, name FROM pragma_table_list WHERE schema = 'main' AND "
			   "name = ?1",
			   l->r->table);

	if (err < 0)
		return err;
	if (l->rows.count == 0)
		return foreign_fail(l->f, LAPSE_ENOTFOUND, "there is no such table");
	const char *type = rows_text(&l->rows, 0, 0);
	l->without_rowid = rows_true(&l->rows, 0, 1);
	l->r->kind = strcmp(type, "table") == 0  ? RELATION_TABLE
		     : strcmp(type, "view") == 0 ? RELATION_VIEW
						 : RELATION_OTHER;
	return LAPSE_OK;
}

/* "pk" counts the columns of the primary key from 1. The one INTEGER PRIMARY KEY is the rowid and
 * has no index of its own, so it becomes one here. */
static void add_rowid_index(struct sqlite_look *l, size_t at)
{
	size_t parts = 0, row = 0;

	for (size_t i = 0; i < l->rows.count; i++)
		if (rows_int(&l->rows, i, 3) > 0) {
			parts++;
			row = i;
		}
	if (l->without_rowid || parts != 1 ||
	    strcasecmp(rows_text(&l->rows, row, 1), "INTEGER") != 0)
		return;
	l->r->columns[row].not_null = true;
	l->r->indexes[at] = (struct index){ .name = "(rowid)",
					    .columns = { l->r->columns[row].name },
					    .count = 1,
					    .unique = true,
					    .primary = true };
	l->r->indexes_count++;
}

#define SQLITE_INDEXES_MAX 64

static int sqlite_columns(struct sqlite_look *l)
{
	struct relation *r = l->r;
	int err = ask_sqlite(
		l, "SELECT name, type, \"notnull\", pk, hidden FROM pragma_table_xinfo(?1)",
		r->table);

	if (err < 0)
		return err;
	r->columns_count = l->rows.count;
	r->columns = arena_alloc(&r->arena, (l->rows.count + 1) * sizeof(*r->columns));
	for (size_t i = 0; i < l->rows.count; i++)
		r->columns[i] = (struct table_column){
			.name = keep_sqlite(l, i, 0),
			.type = keep_sqlite(l, i, 1),
			.class = column_class_of(FOREIGN_SQLITE, rows_text(&l->rows, i, 1)),
			.not_null = rows_true(&l->rows, i, 2) ||
				    (l->without_rowid && rows_int(&l->rows, i, 3) > 0),
			.generated = rows_int(&l->rows, i, 4) > 1,
		};
	r->indexes = arena_alloc(&r->arena, SQLITE_INDEXES_MAX * sizeof(*r->indexes));
	add_rowid_index(l, 0);
	return LAPSE_OK;
}

static void add_index_column(struct relation *r, struct sqlite_look *l, size_t row)
{
	const char *name = rows_text(&l->rows, row, 0);
	struct index *last = r->indexes_count > 0 ? &r->indexes[r->indexes_count - 1] : NULL;

	assert(r->indexes && name);
	assert(!last || last->name);
	if (!last || strcmp(last->name, name) != 0) {
		if (r->indexes_count == SQLITE_INDEXES_MAX)
			return;
		last = &r->indexes[r->indexes_count++];
		*last = (struct index){ .name = keep_sqlite(l, row, 0),
					.unique = rows_true(&l->rows, row, 1),
					.primary = strcmp(rows_text(&l->rows, row, 2), "pk") == 0,
					.partial = rows_true(&l->rows, row, 3) };
	}
	if (last->count < INDEX_COLUMNS_MAX)
		last->columns[last->count++] = keep_sqlite(l, row, 4);
}

/* A key column with another collation than its own, or sorted downwards, cannot be walked as we
 * do: it counts as an expression. */
static int sqlite_indexes(struct sqlite_look *l)
{
	int err = ask_sqlite(
		l,
		"SELECT i.name, i.\"unique\", i.origin, i.partial, CASE WHEN x.\"desc\" "
		"THEN NULL ELSE x.name END FROM pragma_index_list(?1) AS i, "
		"pragma_index_xinfo(i.name) AS x WHERE x.key = 1 ORDER BY i.seq, x.seqno",
		l->r->table);

	for (size_t i = 0; err == LAPSE_OK && i < l->rows.count; i++)
		add_index_column(l->r, l, i);
	return err;
}

static enum key_action action_of(const char *name)
{
	if (strcasecmp(name, "CASCADE") == 0)
		return ACTION_CASCADES;
	return strncasecmp(name, "SET", 3) == 0 ? ACTION_SETS : ACTION_BLOCKS;
}

static void add_key_column(struct sqlite_look *l, size_t row, int64_t *last_id)
{
	struct relation *r = l->r;
	struct foreign_key *k = r->referrers_count ? &r->referrers[r->referrers_count - 1] : NULL;

	assert(r->referrers);
	if (!k || strcmp(k->child, rows_text(&l->rows, row, 0)) != 0 ||
	    *last_id != rows_int(&l->rows, row, 1)) {
		k = &r->referrers[r->referrers_count++];
		k->name = "";
		k->child = keep_sqlite(l, row, 0);
		k->child_schema = k->parent_schema = "main";
		k->parent = r->table;
		k->action_name = keep_sqlite(l, row, 4);
		k->action = action_of(k->action_name);
	}
	*last_id = rows_int(&l->rows, row, 1);
	if (k->count < INDEX_COLUMNS_MAX) {
		k->child_columns[k->count] = keep_sqlite(l, row, 2);
		k->parent_columns[k->count++] = keep_sqlite(l, row, 3);
	}
}

static int sqlite_referrers(struct sqlite_look *l)
{
	int64_t last_id = -1;
	int err = ask_sqlite(
		l,
		"SELECT m.name, k.id, k.\"from\", k.\"to\", k.on_delete FROM sqlite_schema AS m, "
		"pragma_foreign_key_list(m.name) AS k WHERE m.type = 'table' AND k.\"table\" "
		"= ?1 COLLATE NOCASE ORDER BY m.name, k.id, k.seq",
		l->r->table);

	if (err < 0)
		return err;
	l->r->referrers = arena_alloc(&l->r->arena, (l->rows.count + 1) * sizeof(*l->r->referrers));
	for (size_t i = 0; i < l->rows.count; i++)
		add_key_column(l, i, &last_id);
	return LAPSE_OK;
}

/* SQLite keeps triggers as their text; which of them run on DELETE is a word in it. */
static int sqlite_triggers(struct sqlite_look *l)
{
	struct relation *r = l->r;
	int err = ask_sqlite(
		l,
		"SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 "
		"COLLATE NOCASE AND sql LIKE '%DELETE%ON%' ORDER BY name",
		r->table);

	if (err < 0)
		return err;
	r->triggers = arena_alloc(&r->arena, (l->rows.count + 1) * sizeof(*r->triggers));
	for (size_t i = 0; i < l->rows.count; i++)
		r->triggers[r->triggers_count++] = keep_sqlite(l, i, 0);
	return LAPSE_OK;
}

/* What ANALYZE left behind, if it was ever run. */
static int sqlite_size(struct sqlite_look *l)
{
	static const char has[] = "SELECT 1 FROM sqlite_schema WHERE name = ?1 AND type = 'table'";
	int err = ask_sqlite(l, has, "sqlite_stat1");

	if (err < 0 || l->rows.count == 0)
		return err;
	err = ask_sqlite(l, "SELECT stat FROM sqlite_stat1 WHERE tbl = ?1 LIMIT 1", l->r->table);
	if (err == LAPSE_OK && l->rows.count > 0)
		l->r->rows = rows_int(&l->rows, 0, 0);
	return err;
}

int relation_read_sqlite(struct foreign *f, struct relation *r)
{
	static int (*const steps[])(struct sqlite_look *) = { sqlite_kind,     sqlite_columns,
							      sqlite_indexes,  sqlite_referrers,
							      sqlite_triggers, sqlite_size };
	struct sqlite_look l = { .f = f, .r = r };
	int err = foreign_begin(f, false);

	if (err < 0)
		return err;
	rows_init(&l.rows);
	for (size_t i = 0; err == LAPSE_OK && i < ARRAY_LEN(steps); i++)
		err = steps[i](&l);
	rows_done(&l.rows);
	foreign_rollback(f);
	if (err < 0)
		return err;
	r->may_select = true;
	r->may_delete = !f->read_only;
	r->leaves = arena_alloc(&r->arena, sizeof(*r->leaves));
	r->leaves[0] = (struct leaf){ "main", r->table };
	r->leaves_count = 1;
	return LAPSE_OK;
}
