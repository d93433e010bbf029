/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posted rows: those that db_post_row() gets for one INSERT become one statement over all of them,
 * which reads them from a virtual table. A third of what a small row costs is the statement around
 * it.
 *
 * Rows wait until anything else is asked of the connection: posted_run() comes before every other
 * statement, before a savepoint and its release, and before COMMIT. So nothing can tell that they
 * have waited, but that an error comes later than the row.
 */
#ifndef LAPSE_STORE_SQLITE_POSTED_H
#define LAPSE_STORE_SQLITE_POSTED_H

#include <sqlite3.h>

#include "store/driver.h"

#define POSTED_PARAMS_MAX 16

struct posted;      /* of a connection */
struct posted_stmt; /* of a statement */

/* NULL = SQLite cannot have the virtual table. */
struct posted *posted_new(sqlite3 *handle);
void posted_free(struct posted *all); /* after all of its statements; takes NULL */

/* Whether rows with these values may wait. */
bool posted_takes(const struct db_prepared *p);

/* The statement over many rows of `sql`, an INSERT over one. */
int posted_stmt_new(struct posted *all, const char *sql, int params, struct posted_stmt **ret);
void posted_stmt_free(struct posted_stmt *x); /* takes NULL */

/* Adds the row of these values; `rows` as in struct db_expect. *ret_full = no more should wait. */
void posted_add(struct posted *all, struct posted_stmt *x, const struct db_value *values,
		int64_t rows, bool *ret_full);

/* How many rows wait. */
int64_t posted_rows(const struct posted *all);

/* Runs everything that waits. LAPSE_ERETRY = the number of rows is not as expected. */
int posted_run(struct posted *all);

/* Forgets what waits: it was undone. */
void posted_drop(struct posted *all);

#endif
