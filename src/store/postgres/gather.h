/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathering: the rows that db_post_row() gets for one statement become arrays, and one statement
 * over all of them. Half of what a small row costs the server is the statement around it.
 *
 * Rows wait while writes are posted. gather_send() comes before everything whose result, or whose
 * place among the others, matters: a statement that is waited for, a savepoint and its release, the
 * commit. So what is gathered at any time belongs to the step that runs.
 */
#ifndef LAPSE_STORE_POSTGRES_GATHER_H
#define LAPSE_STORE_POSTGRES_GATHER_H

#include "store/postgres/pipe.h"

/* Whether the values bound now have the types of the rows before: NULL has the type of a text. */
bool gather_takes(const struct pg_prepared *p);

/* Adds the row of the values bound now; `rows` as in struct db_expect, the same for all rows. */
int gather_add(struct pg_db *db, struct pg_prepared *p, int64_t rows);

/* Sends everything that is gathered; only a round that was due can fail. */
int gather_send(struct pg_db *db);

/* Forgets what is gathered: it was undone. */
void gather_drop(struct pg_db *db);

bool gather_has_rows(const struct pg_prepared *p);
void gather_free(struct pg_gathered *g); /* takes NULL */

#endif
