/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adopting: everything of one owner becomes another's. It is for the moment at which the first
 * token is made: what was made without one belongs to the owner `local`, which no token of another
 * owner sees.
 *
 * Rooms give their tables as rows of `struct owned`, and rooms.c lists them all. Events keep the
 * owner they happened to.
 *
 * Tables that grow large move in slices: each step moves a few rows together with their counters,
 * so that both owners are consistent after every commit, and other requests are answered between
 * two transactions. The rest moves in the last transaction. An adoption that was interrupted is
 * continued by the next one, which moves what is left.
 */
#ifndef LAPSE_ENGINE_ADOPT_H
#define LAPSE_ENGINE_ADOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/db.h"

struct tx;
struct buf;

/* One statement of a slice: $1 is the owner that has the rows, $2 how many rows are chosen, $3 the
 * owner that gets them. All statements of a slice choose the same rows, the last one moves them. */
struct owned_step {
	const struct db_stmt *stmt; /* NULL ends a list */
	const char
		*counts; /* the table whose rows it moves; NULL = it moves counters or an index */
};

struct adoption;

/* A table with an owner: `slice`, `run` or `move`. */
struct owned {
	const char *table;
	const struct db_stmt
		*clash; /* $1 has, $2 gets: a key that both have; NULL = there cannot be one */

	const struct owned_step *slice;
	int64_t slice_rows; /* $2 of its statements */

	/* A slice that takes more than statements. Counts what it has moved, nothing when no row is
	 * left. */
	int (*run)(struct tx *tx, const char *from, const char *to, struct adoption *a);

	const struct db_stmt *move; /* $1 has, $2 gets: all rows at once */
	const struct db_stmt *drop; /* of counters, which `move` adds to those of $2: removes those
				     * of $1; NULL = `move` leaves none behind */
};

extern const struct owned ENGINE_OWNED[], API_OWNED[], MESSAGE_OWNED[], PRESENCE_OWNED[],
	MAILBOX_OWNED[], ATTACHMENT_OWNED[], OPTABLE_OWNED[],
	WEBHOOK_OWNED[]; /* each in the owned.c of its folder */

#define ADOPTION_TABLES_MAX 32

/* How far an adoption has come; zeroed at its start. A plain value: copy it to run a step again. */
struct adoption {
	bool checked;    /* no key is on both sides */
	size_t list, at; /* the table that is being sliced */
	int64_t rows;    /* moved so far, without counters */
	struct {
		const char *table;
		int64_t rows;
	} moved[ADOPTION_TABLES_MAX]; /* the first NULL ends it */
};

/* So many rows of the table have moved: for `run`. */
void adoption_count(struct adoption *a, const char *table, int64_t n);

/* One transaction's part of moving everything from one owner to another. LAPSE_OK: all of it has
 * moved. TX_AGAIN: there is more. LAPSE_ECONFLICT: while no token exists, while `from` has one of
 * its own, when both have something with the same key, and when a room cannot move now. Before the
 * first slice nothing has moved then; later, what had moved stays where it is. */
int owner_adopt(struct tx *tx, const char *from, const char *to, struct adoption *a,
		struct problem *p);

#endif
