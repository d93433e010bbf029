/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file that is to be restored is a database this program could have written.
 *
 * A backup may come from anywhere, and what is restored is trusted from then on: code reads its
 * columns without asking, and starts deletions it finds there. So the schema must be exactly that
 * of its version (no trigger, no view, no table more or less), every value must be of its column's
 * type, and the columns that code relies on must hold what it would have written.
 */
#ifndef LAPSE_STORE_SQLITE_RESTORE_CHECK_H
#define LAPSE_STORE_SQLITE_RESTORE_CHECK_H

#include "store/db.h"

/* LAPSE_EINVAL or LAPSE_ECORRUPT with the table and column; `file` is its name, for the problem. */
int restore_check(struct db *db, const char *file, int64_t version, struct problem *p);

#endif
