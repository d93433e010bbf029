/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only SQLite has: its write-ahead log, copies of the whole file, the integrity check. For the
 * SQLite store and its helpers; connections come from db_open() and belong to SQLite.
 */
#ifndef LAPSE_STORE_SQLITE_DB_H
#define LAPSE_STORE_SQLITE_DB_H

#include "store/db.h"

/* An answer of SQLite's as one of ours. */
int sqlite_translate(int rc);

/* The hook runs after each commit with the size of the log. Checkpoints are made on a connection of
 * their own, off the loop. A hard checkpoint makes writers wait for the little that is left and
 * lets the log start over.
 *
 * LAPSE_ESYNC from a checkpoint means that pages copied from the log may be lost although the log
 * says they were copied. Only a restart that replays the whole log is safe then, before anything
 * overwrites it and without a clean close, which would checkpoint again. */
typedef void sqlite_wal_fn(void *arg, int64_t wal_bytes);
void sqlite_on_wal(struct db *db, sqlite_wal_fn *fn, void *arg);
int sqlite_checkpoint(struct db *db, bool hard, int64_t *ret_left); /* bytes of log not copied */

/* Makes durable what checkpoints have copied so far. LAPSE_ESYNC as above. */
int sqlite_sync(struct db *db);

/* Writes a consistent copy of the whole database to a new file. */
int sqlite_copy_to(struct db *db, const char *path);

/* Checks the file. An empty text means it is sound; otherwise the text says what is wrong. */
int sqlite_check(struct db *db, char *ret_text, size_t size);

#endif
