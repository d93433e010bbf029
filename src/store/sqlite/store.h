/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite store: one file in the data directory, one writer.
 *
 * Threads: the owner's runs the one lane. The checkpointer and the syncer have a thread each. The
 * reader belongs to the worker that has taken it.
 */
#ifndef LAPSE_STORE_SQLITE_STORE_H
#define LAPSE_STORE_SQLITE_STORE_H

#include "store/store.h"

int sqlite_store_open(const struct store_config *config, struct store **ret, struct problem *p);

/* How many checkpoints failed, and the size of the log. */
int64_t sqlite_store_checkpoint_errors(struct store *s);
int64_t sqlite_store_wal_bytes(struct store *s);

#endif
