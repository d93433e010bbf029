/* SPDX-License-Identifier: Apache-2.0 */
/* PostgreSQL's catalogue, by its system tables: names are parameters, never text of the SQL. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "contract/catalogue.h"

struct postgres_look {
	struct foreign *f;
	struct relation *r;
	struct rows rows;
	char oid[24];
};

static int ask_postgres(struct postgres_look *l, const char *sql)
{
	struct datum oid = datum_text(l->oid);

	return foreign_run(l->f, sql, &oid, 1, &l->rows);
}

static const char *keep_postgres(struct postgres_look *l, size_t row, size_t column)
{
	const char *text = rows_text(&l->rows, row, column);

	return text ? arena_strdup(&l->r->arena, text) : NULL;
}

static enum relation_kind relation_kind_of(char kind)
{
	switch (kind) {
	case 'r':
		return RELATION_TABLE;
	case 'p':
		return RELATION_PARTITIONED;
	case 'v':
	case 'm':
		return RELATION_VIEW;
	default:
		return RELATION_OTHER;
	}
}

static int postgres_class(struct postgres_look *l)
{
	static const char sql[] =
		"SELECT c.oid, c.relkind, c.reltuples::bigint, CASE WHEN c.relkind = 'p' THEN NULL "
		"ELSE pg_total_relation_size(c.oid) END, has_table_privilege(c.oid, 'SELECT'), "
		"has_table_privilege(c.oid, 'DELETE'), pg_is_in_recovery() OR "
		"current_setting('default_transaction_read_only') = 'on', EXISTS (SELECT 1 FROM "
		"pg_rewrite w WHERE w.ev_class = c.oid OR w.ev_class IN (SELECT relid FROM "
		"pg_partition_tree(c.oid))) "
		"FROM pg_class c JOIN "
		"pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
	struct datum names[] = { datum_text(l->r->schema), datum_text(l->r->table) };
	int err = foreign_run(l->f, sql, names, 2, &l->rows);

	if (err < 0)
		return err;
	if (l->rows.count == 0)
		return foreign_fail(l->f, LAPSE_ENOTFOUND, "there is no such table");
	snprintf(l->oid, sizeof(l->oid), "%s", rows_text(&l->rows, 0, 0));
	l->r->kind = relation_kind_of(rows_text(&l->rows, 0, 1)[0]);
	l->r->rows = rows_int(&l->rows, 0, 2);
	l->r->bytes = rows_text(&l->rows, 0, 3) ? rows_int(&l->rows, 0, 3) : -1;
	l->r->may_select = rows_true(&l->rows, 0, 4);
	l->f->read_only = rows_true(&l->rows, 0, 6); /* a standby may have been promoted */
	l->r->may_delete = rows_true(&l->rows, 0, 5) && !l->f->read_only;
	l->r->rewritten = rows_true(&l->rows, 0, 7);
	return LAPSE_OK;
}

/* A domain counts as the type below it. */
static int postgres_columns(struct postgres_look *l)
{
	struct relation *r = l->r;
	int err = ask_postgres(
		l, "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
		   "a.attgenerated <> '', format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype "
		   "ELSE t.oid END, NULL) FROM pg_attribute a JOIN pg_type t ON t.oid = "
		   "a.atttypid WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT "
		   "a.attisdropped ORDER BY a.attnum");

	if (err < 0)
		return err;
	r->columns_count = l->rows.count;
	r->columns = arena_alloc(&r->arena, (l->rows.count + 1) * sizeof(*r->columns));
	for (size_t i = 0; i < l->rows.count; i++)
		r->columns[i] = (struct table_column){
			.name = keep_postgres(l, i, 0),
			.type = keep_postgres(l, i, 1),
			.class = column_class_of(FOREIGN_POSTGRES, rows_text(&l->rows, i, 4)),
			.not_null = rows_true(&l->rows, i, 2),
			.generated = rows_true(&l->rows, i, 3),
		};
	return LAPSE_OK;
}

/* Columns sorted downwards, with another collation, or in another kind of index than a B-tree
 * cannot be walked as we do: they count as expressions. */
static int postgres_indexes(struct postgres_look *l)
{
	struct relation *r = l->r;
	int err = ask_postgres(
		l, "SELECT ic.relname, i.indisunique AND i.indimmediate, i.indisprimary, "
		   "i.indpred IS NOT NULL, CASE WHEN am.amname = 'btree' AND "
		   "(i.indoption[k.ord - 1] & 1) = 0 THEN a.attname END FROM pg_index i JOIN "
		   "pg_class ic ON ic.oid = i.indexrelid JOIN pg_am am ON am.oid = ic.relam "
		   "CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, ord) "
		   "LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
		   "AND k.attnum > 0 WHERE i.indrelid = $1::oid AND i.indisvalid AND k.ord <= "
		   "i.indnkeyatts ORDER BY i.indisprimary DESC, ic.relname, k.ord");

	if (err < 0)
		return err;
	r->indexes = arena_alloc(&r->arena, (l->rows.count + 1) * sizeof(*r->indexes));
	assert(r->indexes);
	for (size_t i = 0; i < l->rows.count; i++) {
		struct index *last = r->indexes_count ? &r->indexes[r->indexes_count - 1] : NULL;
		if (!last || strcmp(last->name, rows_text(&l->rows, i, 0)) != 0) {
			last = &r->indexes[r->indexes_count++];
			last->name = keep_postgres(l, i, 0);
			last->unique = rows_true(&l->rows, i, 1);
			last->primary = rows_true(&l->rows, i, 2);
			last->partial = rows_true(&l->rows, i, 3);
		}
		if (last->count < INDEX_COLUMNS_MAX)
			last->columns[last->count++] = keep_postgres(l, i, 4);
	}
	return LAPSE_OK;
}

static void read_action(struct foreign_key *k, char action)
{
	k->action_name = action == 'c'   ? "CASCADE"
			 : action == 'n' ? "SET NULL"
			 : action == 'd' ? "SET DEFAULT"
			 : action == 'r' ? "RESTRICT"
					 : "NO ACTION";
	k->action = action == 'c'                    ? ACTION_CASCADES
		    : action == 'n' || action == 'd' ? ACTION_SETS
						     : ACTION_BLOCKS;
}

static int postgres_referrers(struct postgres_look *l)
{
	struct relation *r = l->r;
	int err = ask_postgres(
		l, "SELECT con.oid, con.conname, n.nspname, c.relname, con.confdeltype, "
		   "ca.attname, pa.attname FROM pg_constraint con JOIN pg_class c ON c.oid = "
		   "con.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN "
		   "LATERAL unnest(con.conkey, con.confkey) WITH ORDINALITY AS k(child, parent, "
		   "ord) JOIN pg_attribute ca ON ca.attrelid = con.conrelid AND ca.attnum = "
		   "k.child JOIN pg_attribute pa ON pa.attrelid = con.confrelid AND pa.attnum = "
		   "k.parent WHERE con.contype = 'f' AND con.confrelid = $1::oid AND "
		   "con.conparentid = 0 ORDER BY con.conname, con.oid, k.ord");
	const char *last_oid = "";

	if (err < 0)
		return err;
	r->referrers = arena_alloc(&r->arena, (l->rows.count + 1) * sizeof(*r->referrers));
	for (size_t i = 0; i < l->rows.count; i++) {
		const char *oid = rows_text(&l->rows, i, 0);
		if (strcmp(oid, last_oid) != 0) {
			struct foreign_key *k = &r->referrers[r->referrers_count++];
			k->name = keep_postgres(l, i, 1);
			k->child_schema = keep_postgres(l, i, 2);
			k->child = keep_postgres(l, i, 3);
			k->parent_schema = r->schema;
			k->parent = r->table;
			read_action(k, rows_text(&l->rows, i, 4)[0]);
		}
		last_oid = oid;
		struct foreign_key *k = &r->referrers[r->referrers_count - 1];
		k->child_columns[k->count] = keep_postgres(l, i, 5);
		k->parent_columns[k->count++] = keep_postgres(l, i, 6);
	}
	return LAPSE_OK;
}

static int postgres_triggers(struct postgres_look *l)
{
	struct relation *r = l->r;
	int err = ask_postgres(
		l, "SELECT tgname FROM pg_trigger WHERE tgrelid = $1::oid AND NOT tgisinternal "
		   "AND tgenabled <> 'D' AND tgtype & 8 <> 0 ORDER BY tgname");

	if (err < 0)
		return err;
	r->triggers = arena_alloc(&r->arena, (l->rows.count + 1) * sizeof(*r->triggers));
	for (size_t i = 0; i < l->rows.count; i++)
		r->triggers[r->triggers_count++] = keep_postgres(l, i, 0);
	return LAPSE_OK;
}

/* Rows of a partitioned table are removed from the partitions themselves: a row's place there is
 * unique. So the rights on the partitions count. */
static int postgres_leaves(struct postgres_look *l)
{
	struct relation *r = l->r;
	int err = ask_postgres(
		l, "SELECT n.nspname, c.relname, c.relkind, has_table_privilege(c.oid, 'SELECT'), "
		   "has_table_privilege(c.oid, 'DELETE'), c.reltuples::bigint, "
		   "pg_total_relation_size(c.oid) FROM pg_partition_tree($1::oid::regclass) t "
		   "JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = "
		   "c.relnamespace WHERE t.isleaf AND c.relkind IN ('r', 'f') ORDER BY 1, 2");

	if (err < 0 || r->kind != RELATION_PARTITIONED)
		return err;
	r->leaves = arena_alloc(&r->arena, (l->rows.count + 1) * sizeof(*r->leaves));
	r->rows = r->bytes = 0;
	for (size_t i = 0; i < l->rows.count; i++) {
		if (rows_text(&l->rows, i, 2)[0] != 'r')
			continue;
		r->leaves[r->leaves_count++] =
			(struct leaf){ keep_postgres(l, i, 0), keep_postgres(l, i, 1) };
		r->may_select = r->may_select && rows_true(&l->rows, i, 3);
		r->may_delete = r->may_delete && rows_true(&l->rows, i, 4);
		r->rows += rows_int(&l->rows, i, 5) > 0 ? rows_int(&l->rows, i, 5) : 0;
		r->bytes += rows_int(&l->rows, i, 6);
	}
	return LAPSE_OK;
}

int relation_read_postgres(struct foreign *f, struct relation *r)
{
	static int (*const steps[])(struct postgres_look *) = {
		postgres_class,     postgres_columns,  postgres_indexes,
		postgres_referrers, postgres_triggers, postgres_leaves
	};
	struct postgres_look l = { .f = f, .r = r };
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
	if (r->kind == RELATION_TABLE) {
		r->leaves = arena_alloc(&r->arena, sizeof(*r->leaves));
		r->leaves[0] = (struct leaf){ r->schema, r->table };
		r->leaves_count = 1;
	}
	return LAPSE_OK;
}
