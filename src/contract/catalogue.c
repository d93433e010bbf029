/* SPDX-License-Identifier: Apache-2.0 */
/* What both ways of reading a catalogue share. */
#include "contract/catalogue.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

int relation_read(struct foreign *f, const char *schema, const char *table, struct relation **ret)
{
	struct relation *CLEANUP(relation_freep) r = mem_zalloc(1, sizeof(*r));

	arena_init(&r->arena);
	r->schema = arena_strdup(&r->arena, schema);
	r->table = arena_strdup(&r->arena, table);
	r->rows = r->bytes = -1;
	int err = f->engine == FOREIGN_SQLITE ? relation_read_sqlite(f, r)
					      : relation_read_postgres(f, r);
	if (err < 0)
		return err;
	assert(r->leaves_count > 0 || r->kind != RELATION_TABLE);
	*ret = r;
	r = NULL;
	return LAPSE_OK;
}

void relation_free(struct relation *r)
{
	if (!r)
		return;
	arena_done(&r->arena);
	free(r);
}

void relation_freep(struct relation **r)
{
	relation_free(*r);
}

const struct table_column *relation_column(const struct relation *r, const char *name)
{
	for (size_t i = 0; i < r->columns_count; i++)
		if (strcmp(r->columns[i].name, name) == 0)
			return &r->columns[i];
	return NULL;
}

const char *relation_suggest(const struct relation *r, const char *name)
{
	const char **CLEANUP(mem_freep) names = mem_zalloc(r->columns_count + 1, sizeof(*names));

	for (size_t i = 0; i < r->columns_count; i++)
		names[i] = r->columns[i].name;
	return suggest(name, names);
}

static bool index_has(const struct index *i, const char *name)
{
	for (size_t j = 0; j < i->count; j++)
		if (i->columns[j] && strcmp(i->columns[j], name) == 0)
			return true;
	return false;
}

static bool index_is(const struct index *i, const char *const *names, size_t count)
{
	if (!i->unique || i->partial || i->count != count)
		return false;
	for (size_t j = 0; j < count; j++)
		if (!index_has(i, names[j]))
			return false;
	return true;
}

const struct index *relation_unique(const struct relation *r, const char *const *names,
				    size_t count)
{
	for (size_t i = 0; i < r->indexes_count; i++)
		if (index_is(&r->indexes[i], names, count))
			return &r->indexes[i];
	return NULL;
}

/* By what the type begins with or holds, in order. PostgreSQL's names come from format_type();
 * SQLite's are whatever the table's author wrote. */
static const struct {
	const char *part;
	enum column_class class;
	bool anywhere;
} TYPES[] = {
	{ "timestamp with time zone", COLUMN_TIMESTAMPTZ, false },
	{ "timestamp(", COLUMN_TIMESTAMP, false },
	{ "timestamp", COLUMN_TIMESTAMP, false },
	{ "date", COLUMN_DATE, false },
	{ "uuid", COLUMN_UUID, false },
	{ "bool", COLUMN_BOOL, false },
	{ "interval", COLUMN_OTHER, false },
	{ "point", COLUMN_OTHER, false },
	{ "int", COLUMN_INT, true },
	{ "serial", COLUMN_INT, true },
	{ "char", COLUMN_TEXT, true },
	{ "text", COLUMN_TEXT, true },
	{ "clob", COLUMN_TEXT, true },
	{ "real", COLUMN_REAL, true },
	{ "floa", COLUMN_REAL, true },
	{ "doub", COLUMN_REAL, true },
	{ "numeric", COLUMN_REAL, true },
	{ "decimal", COLUMN_REAL, true },
};

static enum column_class class_by_name(const char *type)
{
	if (strcasestr(type, "timestamp") && strcasestr(type, "with time zone"))
		return COLUMN_TIMESTAMPTZ;
	for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
		if (TYPES[i].anywhere
			    ? strcasestr(type, TYPES[i].part) != NULL
			    : strncasecmp(type, TYPES[i].part, strlen(TYPES[i].part)) == 0)
			return TYPES[i].class;
	return COLUMN_OTHER;
}

/* SQLite has no type for times: a column declared as one holds what its program writes. */
enum column_class column_class_of(enum foreign_engine engine, const char *type)
{
	enum column_class class = class_by_name(type);
	bool is_time =
		class == COLUMN_TIMESTAMPTZ || class == COLUMN_TIMESTAMP || class == COLUMN_DATE;

	return engine == FOREIGN_SQLITE && is_time ? COLUMN_OTHER : class;
}

int catalogue_tables(struct foreign *f, struct rows *ret)
{
	static const char sqlite[] =
		"SELECT 'main', name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE "
		"'sqlite\\_%' ESCAPE '\\' AND name <> 'lapse_leases' ORDER BY name";
	static const char postgres[] =
		"SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = "
		"c.relnamespace WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND "
		"c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> "
		"'information_schema' AND c.relname <> 'lapse_leases' ORDER BY 1, 2";

	return foreign_read(f, f->engine == FOREIGN_SQLITE ? sqlite : postgres, NULL, 0, ret);
}

int catalogue_count(struct foreign *f, const char *schema, const char *table, int64_t cap,
		    int64_t *ret)
{
	struct buf CLEANUP(buf_done) sql = { 0 };
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	buf_puts(&sql, "SELECT count(*) FROM (SELECT 1 FROM ");
	sql_table(&sql, schema, table);
	buf_printf(&sql, " LIMIT %lld) AS sampled", (long long)cap);
	int err = foreign_read(f, buf_text(&sql), NULL, 0, &rows);
	if (err == LAPSE_OK)
		*ret = rows_int(&rows, 0, 0);
	return err;
}
