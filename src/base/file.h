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

/* Paths below a directory that nothing leads out of: no "..", no symbolic link, nothing of /proc.
 * file_open_beneath gives a descriptor or a negative errno, file_unlink_beneath 0 or a negative
 * errno; both are EXDEV or ELOOP for a path that would lead out. */
int file_open_beneath(const char *dir, const char *path, int flags);
int file_unlink_beneath(const char *dir, const char *path);

#endif
