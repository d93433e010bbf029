/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SQLite VFS that loses power, tears sectors, runs out of space and fails, on request.
 *
 * Linked into a test-only copy of the daemon: a constructor registers it as the default VFS, on top
 * of the platform's own, before main() runs, so the product's code is the same in both.
 * fault_plan.h says how a test steers it, fault_overlay.h how a file forgets what was not synced.
 *
 * One lock guards plan and overlays. The real fsync runs outside of it: its data has been handed
 * over by then, and readers need not wait for a disk.
 *
 * Not modelled: the directory (a created, deleted or renamed file is so at once) and the shared
 * memory of the WAL index, which SQLite rebuilds when it recovers.
 */
#include "fault_overlay.h"
#include "fault_plan.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SECTOR_BYTES 512

struct fault_file {
	sqlite3_file base;
	enum file_role role;
	struct overlay *overlay; /* NULL when role is ROLE_OTHER */
	sqlite3_file *real;      /* lies behind this struct */
	unsigned losses;         /* failed syncs of the file this handle knows of */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sqlite3_vfs *real_vfs;
static sqlite3_vfs fault_vfs;

static struct fault_file *self(sqlite3_file *file)
{
	return (struct fault_file *)(void *)file;
}

static const sqlite3_io_methods *methods(const struct fault_file *file)
{
	return file->real->pMethods;
}

/* Writes */

/* Torn mode: some sectors of this write are on the disk before anybody asked for it. The whole
 * write is in the overlay too, so readers and the next sync see all of it. */
static void tear(const struct fault_file *file, const uint8_t *buf, sqlite3_int64 len,
		 sqlite3_int64 off)
{
	if (!plan_tears_write())
		return;
	for (sqlite3_int64 at = off, end; at < off + len; at = end) {
		end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
		if (end > off + len)
			end = off + len;
		if (plan_tears_sector())
			methods(file)->xWrite(file->real, buf + (at - off), (int)(end - at), at);
	}
}

static int write_through(struct fault_file *file, const void *buf, int len, sqlite3_int64 off)
{
	const enum loss_mode loss = plan_refresh();

	if (!file->overlay || (loss == LOSS_NONE && overlay_is_idle(file->overlay)))
		return methods(file)->xWrite(file->real, buf, len, off);
	const int rc = overlay_write(file->overlay, buf, len, off);
	if (rc != SQLITE_OK)
		return rc;
	if (loss == LOSS_TORN)
		tear(file, buf, len, off);
	return loss == LOSS_NONE ? overlay_apply(file->overlay, file->real) : SQLITE_OK;
}

/* How this write fails, or SQLITE_OK. */
static int write_fault(struct fault_file *file, int len, sqlite3_int64 off)
{
	sqlite3_int64 size;

	plan_refresh();
	if (!file->overlay)
		return SQLITE_OK;
	const int rc = overlay_size(file->overlay, file->real, &size);
	if (rc != SQLITE_OK)
		return rc;
	if (off + len > size && plan_strikes(FAULT_FULL, file->role))
		return SQLITE_FULL;
	return plan_strikes(FAULT_WRITE, file->role) ? SQLITE_IOERR_WRITE : SQLITE_OK;
}

static int fault_write(sqlite3_file *base, const void *buf, int len, sqlite3_int64 off)
{
	struct fault_file *file = self(base);

	pthread_mutex_lock(&lock);
	int rc = write_fault(file, len, off);
	if (rc == SQLITE_OK)
		rc = write_through(file, buf, len, off);
	else if (len > 1) /* as a disk that fills up: half of it is there */
		write_through(file, buf, len / 2, off);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int truncate_through(struct fault_file *file, sqlite3_int64 size)
{
	const enum loss_mode loss = plan_refresh();

	if (plan_strikes(FAULT_WRITE, file->role))
		return SQLITE_IOERR_TRUNCATE;
	if (!file->overlay || (loss == LOSS_NONE && overlay_is_idle(file->overlay)))
		return methods(file)->xTruncate(file->real, size);
	const int rc = overlay_truncate(file->overlay, size);
	if (rc != SQLITE_OK)
		return rc;
	if (loss == LOSS_TORN && plan_tears_write())
		methods(file)->xTruncate(file->real, size);
	return loss == LOSS_NONE ? overlay_apply(file->overlay, file->real) : SQLITE_OK;
}

static int fault_truncate(sqlite3_file *base, sqlite3_int64 size)
{
	pthread_mutex_lock(&lock);
	const int rc = truncate_through(self(base), size);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int sync_handover(struct fault_file *file)
{
	int rc = SQLITE_OK;

	plan_refresh();
	if (!file->overlay)
		return SQLITE_OK;
	if (plan_strikes(FAULT_SYNC, file->role))
		overlay_lose(file->overlay);
	else
		rc = overlay_apply(file->overlay, file->real);
	if (rc == SQLITE_OK && file->losses != overlay_losses(file->overlay))
		rc = SQLITE_IOERR_FSYNC;
	file->losses = overlay_losses(file->overlay);
	return rc;
}

static int fault_sync(sqlite3_file *base, int flags)
{
	struct fault_file *file = self(base);

	pthread_mutex_lock(&lock);
	const int rc = sync_handover(file);
	pthread_mutex_unlock(&lock);
	return rc == SQLITE_OK ? methods(file)->xSync(file->real, flags) : rc;
}

/* Reads */

static int fault_read(sqlite3_file *base, void *buf, int len, sqlite3_int64 off)
{
	struct fault_file *file = self(base);
	int rc;

	pthread_mutex_lock(&lock);
	plan_refresh();
	if (plan_strikes(FAULT_READ, file->role))
		rc = SQLITE_IOERR_READ;
	else if (!file->overlay || overlay_is_idle(file->overlay))
		rc = methods(file)->xRead(file->real, buf, len, off);
	else
		rc = overlay_read(file->overlay, file->real, buf, len, off);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int fault_file_size(sqlite3_file *base, sqlite3_int64 *ret_size)
{
	struct fault_file *file = self(base);

	pthread_mutex_lock(&lock);
	const int rc = file->overlay ? overlay_size(file->overlay, file->real, ret_size)
				     : methods(file)->xFileSize(file->real, ret_size);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* No mapping, ever: a mapped page would not show the overlay. */
static int fault_fetch(sqlite3_file *base, sqlite3_int64 off, int len, void **ret_page)
{
	(void)base, (void)off, (void)len;
	*ret_page = NULL;
	return SQLITE_OK;
}

static int fault_unfetch(sqlite3_file *base, sqlite3_int64 off, void *page)
{
	(void)base, (void)off, (void)page;
	return SQLITE_OK;
}

/* What would change the real file past the overlay is swallowed; the rest is not our business. */
static int fault_control(sqlite3_file *base, int op, void *arg)
{
	struct fault_file *file = self(base);

	if (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE)
		return SQLITE_OK;
	if (op == SQLITE_FCNTL_MMAP_SIZE)
		return SQLITE_NOTFOUND;
	return methods(file)->xFileControl(file->real, op, arg);
}

static int fault_characteristics(sqlite3_file *base)
{
	struct fault_file *file = self(base);

	return methods(file)->xDeviceCharacteristics(file->real) & ~SQLITE_IOCAP_BATCH_ATOMIC;
}

/* Passed through as they are */

static int fault_close(sqlite3_file *base)
{
	struct fault_file *file = self(base);

	return methods(file)->xClose(file->real);
}

static int fault_lock(sqlite3_file *base, int level)
{
	struct fault_file *file = self(base);

	return methods(file)->xLock(file->real, level);
}

static int fault_unlock(sqlite3_file *base, int level)
{
	struct fault_file *file = self(base);

	return methods(file)->xUnlock(file->real, level);
}

static int fault_check_reserved(sqlite3_file *base, int *ret_reserved)
{
	struct fault_file *file = self(base);

	return methods(file)->xCheckReservedLock(file->real, ret_reserved);
}

static int fault_sector_size(sqlite3_file *base)
{
	struct fault_file *file = self(base);

	return methods(file)->xSectorSize(file->real);
}

static int fault_shm_map(sqlite3_file *base, int page, int page_len, int extend,
			 void volatile **ret_map)
{
	struct fault_file *file = self(base);

	return methods(file)->xShmMap(file->real, page, page_len, extend, ret_map);
}

static int fault_shm_lock(sqlite3_file *base, int off, int count, int flags)
{
	struct fault_file *file = self(base);

	return methods(file)->xShmLock(file->real, off, count, flags);
}

static void fault_shm_barrier(sqlite3_file *base)
{
	struct fault_file *file = self(base);

	methods(file)->xShmBarrier(file->real);
}

static int fault_shm_unmap(sqlite3_file *base, int delete_it)
{
	struct fault_file *file = self(base);

	return methods(file)->xShmUnmap(file->real, delete_it);
}

static const sqlite3_io_methods FAULT_METHODS = {
	.iVersion = 3,
	.xClose = fault_close,
	.xRead = fault_read,
	.xWrite = fault_write,
	.xTruncate = fault_truncate,
	.xSync = fault_sync,
	.xFileSize = fault_file_size,
	.xLock = fault_lock,
	.xUnlock = fault_unlock,
	.xCheckReservedLock = fault_check_reserved,
	.xFileControl = fault_control,
	.xSectorSize = fault_sector_size,
	.xDeviceCharacteristics = fault_characteristics,
	.xShmMap = fault_shm_map,
	.xShmLock = fault_shm_lock,
	.xShmBarrier = fault_shm_barrier,
	.xShmUnmap = fault_shm_unmap,
	.xFetch = fault_fetch,
	.xUnfetch = fault_unfetch,
};

/* The VFS itself */

static enum file_role role_of(const char *path, int flags)
{
	if (!path)
		return ROLE_OTHER;
	if (flags & SQLITE_OPEN_MAIN_DB)
		return ROLE_DB;
	if (flags & SQLITE_OPEN_WAL)
		return ROLE_WAL;
	return flags & SQLITE_OPEN_MAIN_JOURNAL ? ROLE_JOURNAL : ROLE_OTHER;
}

static int attach_overlay(struct fault_file *file, const char *path)
{
	if (file->role == ROLE_OTHER)
		return SQLITE_OK;
	pthread_mutex_lock(&lock);
	file->overlay = overlay_get(path);
	if (file->overlay)
		file->losses = overlay_losses(file->overlay);
	pthread_mutex_unlock(&lock);
	return file->overlay ? SQLITE_OK : SQLITE_NOMEM;
}

static int fault_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags,
		      int *ret_flags)
{
	struct fault_file *file = self(base);

	(void)vfs;
	*file = (struct fault_file){ .role = role_of(path, flags),
				     .real = (sqlite3_file *)(void *)(file + 1) };
	file->real->pMethods = NULL;
	int rc = attach_overlay(file, path);
	if (rc != SQLITE_OK)
		return rc;
	rc = real_vfs->xOpen(real_vfs, path, file->real, flags, ret_flags);
	/* SQLite closes a file whose open failed when it has methods: then ours must be there as
	 * well. */
	file->base.pMethods = file->real->pMethods ? &FAULT_METHODS : NULL;
	return rc;
}

static int fault_delete(sqlite3_vfs *vfs, const char *path, int sync_dir)
{
	(void)vfs;
	pthread_mutex_lock(&lock);
	struct overlay *overlay = overlay_find(path);
	if (overlay)
		overlay_forget(overlay);
	const int rc = real_vfs->xDelete(real_vfs, path, sync_dir);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* The platform's VFS calls an empty file absent, so the overlay decides about a file it knows. */
static int fault_access(sqlite3_vfs *vfs, const char *path, int flags, int *ret_yes)
{
	struct stat st;

	(void)vfs;
	const int rc = real_vfs->xAccess(real_vfs, path, flags, ret_yes);
	if (rc != SQLITE_OK || flags != SQLITE_ACCESS_EXISTS || stat(path, &st) != 0)
		return rc;
	pthread_mutex_lock(&lock);
	struct overlay *overlay = overlay_find(path);
	if (overlay && !overlay_is_idle(overlay))
		*ret_yes = overlay_size_over(overlay, st.st_size) > 0;
	pthread_mutex_unlock(&lock);
	return SQLITE_OK;
}

__attribute__((constructor)) static void fault_vfs_install(void)
{
	real_vfs = sqlite3_vfs_find(NULL);
	if (!real_vfs)
		abort();
	/* What is not replaced here (paths, randomness, time) works on any sqlite3_vfs of the
	 * platform. */
	fault_vfs = *real_vfs;
	fault_vfs.pNext = NULL;
	fault_vfs.zName = "fault";
	fault_vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
	fault_vfs.xOpen = fault_open;
	fault_vfs.xDelete = fault_delete;
	fault_vfs.xAccess = fault_access;
	if (sqlite3_vfs_register(&fault_vfs, 1) != SQLITE_OK)
		abort();
}

/* A process that ends by itself is no power loss: the kernel would write its pages out. */
__attribute__((destructor)) static void fault_vfs_leave(void)
{
	pthread_mutex_lock(&lock);
	overlay_flush_all();
	pthread_mutex_unlock(&lock);
}
