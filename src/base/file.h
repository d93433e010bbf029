/* SPDX-License-Identifier: Apache-2.0 */
/* Small files, read whole at the start. */
#ifndef LAPSE_BASE_FILE_H
#define LAPSE_BASE_FILE_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends the bytes of a regular file, at most `max`; links are followed. LAPSE_ENOTFOUND: there is
 * none. LAPSE_EFORBIDDEN: it is no regular file. LAPSE_ECORRUPT: it is longer. LAPSE_EIO otherwise.
 * The problem names the path. */
int file_load(const char *path, size_t max, struct buf *out, struct problem *p);

/* Its parts, for a caller who looks at the file in between. Opening never waits, whatever lies
 * under the name; `flags` are added to open()'s. Memory for `max` is reserved before anything is
 * read. */
int file_open(const char *path, int flags, int *ret_fd, struct problem *p);
int file_load_fd(const char *path, int fd, size_t max, struct buf *out, struct problem *p);

#endif
