/* SPDX-License-Identifier: Apache-2.0 */
/* The write-ahead log as a file of its own, for the syncer. */
#include "store/sqlite/log.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

struct sqlite_log {
	const char *name; /* SQLite's form of a file name, with its parameters behind it */
	sqlite3_file *file;
	bool durable;
};

int sqlite_log_open(const char *database, bool durable, struct sqlite_log **ret, struct problem *p)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	struct sqlite_log *log = mem_zalloc(1, sizeof(*log));
	char path[4096], full[4096];

	/* Through SQLite's own file layer, so that whatever stands below SQLite sees the sync. */
	snprintf(path, sizeof(path), "%s-wal", database);
	log->file = mem_zalloc(1, (size_t)vfs->szOsFile);
	log->durable = durable;
	int rc = vfs->xFullPathname(vfs, path, sizeof(full), full);
	if (rc == SQLITE_OK) {
		log->name = sqlite3_create_filename(full, "", "", 0, NULL);
		rc = vfs->xOpen(vfs, log->name, log->file,
				SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_WAL, NULL);
	}
	if (rc != SQLITE_OK) {
		sqlite_log_close(log);
		return problem_set(p, LAPSE_EIO, NULL, "cannot open the log %.160s", path);
	}
	*ret = log;
	return LAPSE_OK;
}

int sqlite_log_sync(struct sqlite_log *log)
{
	if (!log->durable)
		return LAPSE_OK;
	int rc = log->file->pMethods->xSync(log->file, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
	return rc == SQLITE_OK ? LAPSE_OK : LAPSE_ESYNC;
}

void sqlite_log_close(struct sqlite_log *log)
{
	if (!log)
		return;
	if (log->file->pMethods)
		log->file->pMethods->xClose(log->file);
	sqlite3_free_filename((char *)(uintptr_t)log->name);
	free(log->file);
	free(log);
}
