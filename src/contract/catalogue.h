/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user's database says about one of its tables: columns and their types, indexes, foreign
 * keys in both directions, triggers on DELETE, partitions, rights and size.
 *
 * A relation is read whole and does not change afterwards; sweeps read it again at every tick, so
 * a table that has changed is noticed.
 */
#ifndef LAPSE_CONTRACT_CATALOGUE_H
#define LAPSE_CONTRACT_CATALOGUE_H

#include "contract/foreign.h"

#define RELATION_COLUMNS_MAX 1600 /* PostgreSQL's own limit; SQLite has 2000 and is cut */
#define INDEX_COLUMNS_MAX 32

enum column_class {
	COLUMN_INT,
	COLUMN_REAL, /* and numeric */
	COLUMN_TEXT,
	COLUMN_TIMESTAMPTZ,
	COLUMN_TIMESTAMP,
	COLUMN_DATE,
	COLUMN_UUID,
	COLUMN_BOOL,
	COLUMN_OTHER,
};

struct table_column {
	const char *name;
	const char *type; /* as declared; "" where SQLite has none */
	enum column_class class;
	bool not_null;
	bool generated;
};

struct index {
	const char *name;
	const char *columns[INDEX_COLUMNS_MAX]; /* NULL for an expression */
	size_t count;
	bool unique, primary, partial;
};

enum key_action { ACTION_BLOCKS, ACTION_CASCADES, ACTION_SETS };

/* A foreign key that refers to the relation, or from it. */
struct foreign_key {
	const char *name; /* "" where the database gives none */
	const char *child_schema, *child, *parent_schema, *parent;
	const char *child_columns[INDEX_COLUMNS_MAX];
	const char *parent_columns[INDEX_COLUMNS_MAX]; /* NULL = the parent's primary key */
	size_t count;
	enum key_action action;
	const char *action_name; /* "RESTRICT" */
};

struct leaf {
	const char *schema, *table;
};

enum relation_kind { RELATION_TABLE, RELATION_PARTITIONED, RELATION_VIEW, RELATION_OTHER };

struct relation {
	struct arena arena;
	const char *schema, *table;
	enum relation_kind kind;
	bool may_select, may_delete;
	bool rewritten; /* PostgreSQL: it or a partition has rules (CREATE RULE) */
	struct table_column *columns;
	size_t columns_count;
	struct index *indexes;
	size_t indexes_count;
	struct foreign_key *referrers; /* keys of other tables, and of itself, that refer to it */
	size_t referrers_count;
	const char **triggers; /* that run on DELETE */
	size_t triggers_count;
	struct leaf *leaves; /* the tables that hold the rows: itself, or its partitions */
	size_t leaves_count;
	int64_t rows;  /* estimate; -1 = not known */
	int64_t bytes; /* with its indexes; -1 = not known */
};

/* Reads a relation; LAPSE_ENOTFOUND when there is none of that name. */
int relation_read(struct foreign *f, const char *schema, const char *table, struct relation **ret);
void relation_free(struct relation *r); /* takes NULL */
void relation_freep(struct relation **r);

const struct table_column *relation_column(const struct relation *r, const char *name);

/* Names of columns near to `name`, for a suggestion; NULL when none is. */
const char *relation_suggest(const struct relation *r, const char *name);

/* The unique index of exactly these columns in any order, or NULL. */
const struct index *relation_unique(const struct relation *r, const char *const *names,
				    size_t count);

/* schema and table of every ordinary table of the user's, sorted; columns 0 and 1. */
int catalogue_tables(struct foreign *f, struct rows *ret);

/* How many rows match a foreign key's child table, for check: at most `cap` are counted. */
int catalogue_count(struct foreign *f, const char *schema, const char *table, int64_t cap,
		    int64_t *ret);

/* The two ways to read one; relation_read() chooses. */
int relation_read_sqlite(struct foreign *f, struct relation *r);
int relation_read_postgres(struct foreign *f, struct relation *r);

/* For them: the class of a declared type. */
enum column_class column_class_of(enum foreign_engine engine, const char *type);

#endif
