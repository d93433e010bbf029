/* SPDX-License-Identifier: Apache-2.0 */
/* A backup of the SQLite store. Blocks; runs on a worker thread or in the command. */
#ifndef LAPSE_STORE_SQLITE_BACKUP_H
#define LAPSE_STORE_SQLITE_BACKUP_H

#include "store/backup.h"

/* Copies through a read-only connection of its own. The file gets its name only once it is whole
 * and synced. */
int sqlite_backup_make(const char *data_dir, const struct clock *clock, struct backup *ret,
		       struct problem *p);

#endif
