/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema's version and the facts about the store as a whole (table `meta`).
 *
 * Steps are numbered files in schema/; each runs in a transaction of its own together with the
 * note that it ran. A step that has been released is never edited: add the next number.
 */
#ifndef LAPSE_STORE_MIGRATE_H
#define LAPSE_STORE_MIGRATE_H

#include "store/db.h"

extern const char META_TABLE[]; /* comes before the first step */

/* Brings the schema up to this program's version. A database of a newer version is
 * LAPSE_EVERSION and is not touched. */
int migrate(struct db *db, struct problem *p);

/* The same for a replica of a cluster: a newer schema is taken as it is if it serves this program,
 * so that replicas can be upgraded one after the other (store/schema.h). */
int migrate_rolling(struct db *db, struct problem *p);

/* The same up to an older version, to know what its schema looks like. */
int migrate_to(struct db *db, int version, struct problem *p);

/* The version this program knows, and the one the database has (0 = empty). */
int migrate_newest(void);
int migrate_current(struct db *db, int64_t *ret);

#define META_SERVES "schema_serves"  /* programs that know this version, or a later one */
#define META_CREATED_AT "created_at" /* when the store was made; old ones do not know */

/* Whole numbers by name. meta_get gives `fallback` where there is none. */
int meta_get(struct db *db, const char *key, int64_t fallback, int64_t *ret);
int meta_set(struct db *db, const char *key, int64_t value);

#endif
