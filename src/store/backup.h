/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups: consistent copies of the whole database below the data directory's backups/.
 * Everything here blocks and runs on a worker thread or in the command.
 */
#ifndef LAPSE_STORE_BACKUP_H
#define LAPSE_STORE_BACKUP_H

#include <stddef.h>
#include <stdint.h>

#include "store/db.h"

struct backup {
	char name[64]; /* below the data directory: backups/lapse-….db */
	int64_t bytes;
	lapse_ms created_at;
};

/* Copies through a read-only connection of its own. The file has its name only once it is whole
 * and synced. */
int backup_make(const char *data_dir, const struct clock *clock, struct backup *ret,
		struct problem *p);

/* Calls fn with the name (below the data directory) of each backup beyond the `keep` newest. */
typedef void backup_fn(void *arg, const char *name);
int backup_surplus(const char *data_dir, int64_t keep, backup_fn *fn, void *arg);

#endif
