/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a backup in the place of a stopped daemon's database.
 */
#ifndef LAPSE_STORE_RESTORE_H
#define LAPSE_STORE_RESTORE_H

#include <stddef.h>

#include "base/err.h"

/* Takes the data directory's lock, checks the file (integrity, schema version), copies it into
 * place and keeps the old database beside it; its path goes to ret_kept, empty when there was
 * none. The copy is marked, so that every bound gets one grace period before anything is removed.
 * On any failure the old database is where it was. */
int store_restore(const char *data_dir, const char *file, char *ret_kept, size_t kept_size,
		  struct problem *p);

#endif
