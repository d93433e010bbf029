/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/frames.h"

#include <assert.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"

#define FRAMES_MAGIC 0x4c504652u
#define HEADER_BYTES 24 /* of a frame; the file format of SQLite says so */
#define COMMIT_AT 4     /* where four bytes are not 0 in the last frame of a commit */

/* Held bytes are written from here on. SQLite's VFS for Unix takes less than 128 KiB at a time, and
 * a frame may have 64. */
#define HELD_BYTES (60 * 1024)

/* A log. Files of other kinds are the parent's own. */
struct frames_file {
	sqlite3_file base; /* first: SQLite's part */
	uint32_t magic;
	struct buf held;    /* the bytes that are held back; they belong at `begin` */
	sqlite3_int64 end;  /* where the last write ended, held back or not */
	bool wants_page;    /* the last of the held bytes are a header */
	bool commits;       /* that header ends a commit */
	sqlite3_file *real; /* the parent's, behind this struct */
};

static sqlite3_vfs *parent;

static struct frames_file *file_of(sqlite3_file *base)
{
	struct frames_file *f = (struct frames_file *)base;

	assert(f->magic == FRAMES_MAGIC);
	return f;
}

static int frames_flush(struct frames_file *f)
{
	const int n = (int)f->held.len;

	f->wants_page = false;
	if (n == 0)
		return SQLITE_OK;
	int rc = f->real->pMethods->xWrite(f->real, f->held.data, n, f->end - n);
	buf_clear(&f->held);
	return rc;
}

static bool ends_commit(const unsigned char *header)
{
	static const unsigned char none[4];

	return memcmp(header + COMMIT_AT, none, sizeof(none)) != 0;
}

static int frames_write(sqlite3_file *base, const void *data, int n, sqlite3_int64 at)
{
	struct frames_file *f = file_of(base);
	const bool follows = at == f->end, is_header = n == HEADER_BYTES && follows;
	const bool is_page = f->wants_page && follows && !is_header;
	int rc = SQLITE_OK;

	assert(n > 0);
	if (is_header || is_page) {
		if (is_header && f->wants_page)
			rc = frames_flush(f);
		buf_add(&f->held, data, (size_t)n);
		f->end = at + n;
		f->wants_page = is_header;
		if (is_header)
			f->commits = ends_commit(data);
		else if (f->commits || f->held.len >= HELD_BYTES)
			rc = frames_flush(f);
		return rc;
	}
	rc = frames_flush(f);
	if (rc == SQLITE_OK)
		rc = f->real->pMethods->xWrite(f->real, data, n, at);
	f->end = at + n;
	return rc;
}

static int frames_read(sqlite3_file *base, void *data, int n, sqlite3_int64 at)
{
	struct frames_file *f = file_of(base);
	int rc = frames_flush(f);

	return rc == SQLITE_OK ? f->real->pMethods->xRead(f->real, data, n, at) : rc;
}

/* What is still held back belongs to a transaction that will never commit. */
static int frames_close(sqlite3_file *base)
{
	struct frames_file *f = file_of(base);
	int rc = f->real->pMethods->xClose(f->real);

	buf_done(&f->held);
	f->magic = 0;
	return rc;
}

static int frames_truncate(sqlite3_file *base, sqlite3_int64 size)
{
	struct frames_file *f = file_of(base);
	int rc = frames_flush(f);

	f->end = -1;
	return rc == SQLITE_OK ? f->real->pMethods->xTruncate(f->real, size) : rc;
}

static int frames_sync(sqlite3_file *base, int flags)
{
	struct frames_file *f = file_of(base);
	int rc = frames_flush(f);

	return rc == SQLITE_OK ? f->real->pMethods->xSync(f->real, flags) : rc;
}

static int frames_size(sqlite3_file *base, sqlite3_int64 *ret_size)
{
	struct frames_file *f = file_of(base);
	int rc = frames_flush(f);

	return rc == SQLITE_OK ? f->real->pMethods->xFileSize(f->real, ret_size) : rc;
}

static int frames_lock(sqlite3_file *base, int level)
{
	struct frames_file *f = file_of(base);

	return f->real->pMethods->xLock(f->real, level);
}

static int frames_unlock(sqlite3_file *base, int level)
{
	struct frames_file *f = file_of(base);

	return f->real->pMethods->xUnlock(f->real, level);
}

static int frames_check_lock(sqlite3_file *base, int *ret_locked)
{
	struct frames_file *f = file_of(base);

	return f->real->pMethods->xCheckReservedLock(f->real, ret_locked);
}

static int frames_control(sqlite3_file *base, int op, void *arg)
{
	struct frames_file *f = file_of(base);

	return f->real->pMethods->xFileControl(f->real, op, arg);
}

static int frames_sector(sqlite3_file *base)
{
	struct frames_file *f = file_of(base);

	return f->real->pMethods->xSectorSize(f->real);
}

static int frames_characteristics(sqlite3_file *base)
{
	struct frames_file *f = file_of(base);

	return f->real->pMethods->xDeviceCharacteristics(f->real);
}

/* Version 1: a log is neither shared memory nor mapped. */
static const sqlite3_io_methods METHODS = {
	.iVersion = 1,
	.xClose = frames_close,
	.xRead = frames_read,
	.xWrite = frames_write,
	.xTruncate = frames_truncate,
	.xSync = frames_sync,
	.xFileSize = frames_size,
	.xLock = frames_lock,
	.xUnlock = frames_unlock,
	.xCheckReservedLock = frames_check_lock,
	.xFileControl = frames_control,
	.xSectorSize = frames_sector,
	.xDeviceCharacteristics = frames_characteristics,
};

static int frames_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags,
		       int *ret_flags)
{
	struct frames_file *f = (struct frames_file *)base;

	(void)vfs;
	if (!(flags & SQLITE_OPEN_WAL))
		return parent->xOpen(parent, path, base, flags, ret_flags);
	*f = (struct frames_file){ .end = -1, .real = (sqlite3_file *)(f + 1) };
	int rc = parent->xOpen(parent, path, f->real, flags, ret_flags);
	if (rc != SQLITE_OK)
		return rc; /* without methods, nothing of it is called */
	f->magic = FRAMES_MAGIC;
	f->base.pMethods = &METHODS;
	return SQLITE_OK;
}

static void frames_forget(void *arg)
{
	sqlite3_file *base = NULL;

	if (sqlite3_file_control(arg, NULL, SQLITE_FCNTL_JOURNAL_POINTER, &base) != SQLITE_OK ||
	    !base || base->pMethods != &METHODS)
		return;
	struct frames_file *f = file_of(base);
	buf_clear(&f->held);
	f->wants_page = false;
	f->end = -1;
}

void frames_watch(sqlite3 *handle)
{
	sqlite3_rollback_hook(handle, frames_forget, handle);
}

static sqlite3_vfs vfs_frames;

static void frames_register(void)
{
	parent = sqlite3_vfs_find(NULL);
	if (!parent)
		return;
	vfs_frames = *parent; /* what is not replaced works on any VFS of the parent's kind */
	vfs_frames.pNext = NULL;
	vfs_frames.zName = "frames";
	vfs_frames.szOsFile = (int)sizeof(struct frames_file) + parent->szOsFile;
	vfs_frames.xOpen = frames_open;
	if (sqlite3_vfs_register(&vfs_frames, 0) != SQLITE_OK)
		parent = NULL;
}

const char *frames_vfs(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, frames_register);
	return parent ? vfs_frames.zName : NULL;
}
