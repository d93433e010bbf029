/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups: consistent copies of the whole database below the data directory's backups/. The store
 * makes them: store_backup().
 */
#ifndef LAPSE_STORE_BACKUP_H
#define LAPSE_STORE_BACKUP_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

struct backup {
	char name[64]; /* below the data directory: backups/lapse-….db */
	int64_t bytes;
	lapse_ms created_at;
};

/* Calls fn with the name (below the data directory) of each backup beyond the `keep` newest.
 * Blocks. */
typedef void backup_fn(void *arg, const char *name);
int backup_surplus(const char *data_dir, int64_t keep, backup_fn *fn, void *arg);

#endif
