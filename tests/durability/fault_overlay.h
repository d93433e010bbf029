/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file whose writes are forgotten unless they are synced.
 *
 * An overlay belongs to a path and is shared by every connection of the process, as the page cache
 * of the kernel is. It holds, in order, what was done to the file and has not reached the disk. The
 * file on disk together with this list, replayed over it, is what a reader sees; the file on disk
 * alone is what is left after a power loss, and `kill -9` of the process is exactly that. When the
 * process ends by itself the lists are written out, as the kernel would.
 *
 * Order of calls: overlay_get once an open; then any of the others with the handle of the real
 * file. The caller holds one lock around every call.
 */
#ifndef FAULT_OVERLAY_H
#define FAULT_OVERLAY_H

#include <sqlite3.h>
#include <stdbool.h>

struct overlay;

/* The overlay of a path, made when it is new; lives until the process ends. NULL: out of memory. */
struct overlay *overlay_get(const char *path);
/* The same, NULL when nobody opened that path. */
struct overlay *overlay_find(const char *path);

/* True while the real file alone is the truth. */
bool overlay_is_idle(const struct overlay *overlay);

/* These answer like the sqlite3_file methods of the same name. */
int overlay_read(const struct overlay *overlay, sqlite3_file *real, void *buf, int len,
		 sqlite3_int64 off);
int overlay_size(const struct overlay *overlay, sqlite3_file *real, sqlite3_int64 *ret_size);
int overlay_write(struct overlay *overlay, const void *buf, int len, sqlite3_int64 off);
int overlay_truncate(struct overlay *overlay, sqlite3_int64 size);

/* The size a reader sees when the file on disk is `disk_size` long. */
sqlite3_int64 overlay_size_over(const struct overlay *overlay, sqlite3_int64 disk_size);

/* Everything pending reaches the real file: what comes before a successful sync. */
int overlay_apply(struct overlay *overlay, sqlite3_file *real);

/* A sync failed: the kernel marks the pages clean, so readers still see them, but no later sync
 * will bring them to the disk. */
void overlay_lose(struct overlay *overlay);

/* How often that happened. Linux tells every open descriptor once: a handle compares. */
unsigned overlay_losses(const struct overlay *overlay);

/* The file was deleted. */
void overlay_forget(struct overlay *overlay);

/* Write out what is pending in all overlays, by path. Only when the process ends: closing these
 * descriptors drops the POSIX locks of the process. */
void overlay_flush_all(void);

#endif
