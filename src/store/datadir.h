/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data directory: its lock, its file names, and putting a backup in the database's place.
 *
 * The opener of the store holds the lock for as long as it runs. A second opener, daemon or
 * library, gets LAPSE_EBUSY and the number of the process that has it.
 */
#ifndef LAPSE_STORE_DATADIR_H
#define LAPSE_STORE_DATADIR_H

#include "base/err.h"

#define DATADIR_DATABASE "lapse.db"
#define DATADIR_BACKUPS "backups"
#define DATADIR_PATH_MAX 1400

struct datadir {
	const char *path; /* borrowed */
	int lock_fd;
};

/* Makes the directory (0700) where it is missing and takes its lock. */
int datadir_lock(struct datadir *d, const char *path, struct problem *p);
void datadir_unlock(struct datadir *d);

/* path/name into `out`; LAPSE_EINVAL when it does not fit. */
int datadir_file(const char *path, const char *name, char out[DATADIR_PATH_MAX]);

/* fsync of a directory, so that a new name in it survives a power loss. */
int datadir_sync(const char *path);

#endif
