/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of a move (store/postgres/move.h): what it looks like, copying it, checking it. It
 * knows no table by name: whatever the schema has is moved.
 */
#ifndef LAPSE_STORE_POSTGRES_MOVE_TABLE_H
#define LAPSE_STORE_POSTGRES_MOVE_TABLE_H

#include <stdbool.h>

#include "base/buf.h"
#include "store/db.h"
#include "store/postgres/move.h"
#include "store/postgres/wire.h"

#define MOVE_COLUMNS_MAX 64 /* ours have a quarter of that */

struct move_table {
	char *name;
	struct buf columns; /* their names in quotes, with commas between them */
	struct buf key;     /* those of the primary key */
	int columns_count, key_count;
	bool is_text[MOVE_COLUMNS_MAX];
	int key_columns[MOVE_COLUMNS_MAX]; /* the key's parts, as numbers of columns */
	int64_t rows;                      /* of the source */
};

void move_table_done(struct move_table *t);

/* The two sides, and who wants to know. */
struct move_sides {
	struct db *source, *target;
	struct wire *wire; /* to the target, for copies */
	const struct move_config *config;
};

/* Reads the columns, the key and the number of rows from the source. */
int move_table_describe(struct db *source, const char *name, struct move_table *t);

/* Copies what the target does not have yet. */
int move_table_copy(const struct move_sides *s, const struct move_table *t, struct problem *p);

/* Compares both sides; *ret_same = they are. */
int move_table_check(const struct move_sides *s, const struct move_table *t, bool *ret_same,
		     struct problem *p);

#endif
