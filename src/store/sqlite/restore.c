/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order matters: the new database is made whole beside the old one (checked, marked, synced);
 * the old one's log is folded into it, so that none is left to be replayed into the new one; the
 * old one gets a second name; then the new one takes the first in one rename. Whenever it stops,
 * lapse.db is the whole old one or the whole new one.
 */
#include "store/restore.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/datadir.h"
#include "store/db.h"
#include "store/migrate.h"
#include "store/sqlite/db.h"
#include "store/sqlite/restore_check.h"

static int check_version(struct db *db, const char *file, int64_t *ret_version, struct problem *p)
{
	int64_t version = 0;

	if (migrate_current(db, &version) < 0 || version == 0)
		return problem_set(p, LAPSE_EINVAL, "file", "%.120s is not a database of lapse",
				   file);
	if (version > migrate_newest())
		return problem_set(p, LAPSE_EVERSION, "file",
				   "%.120s has schema version %" PRId64
				   ", this program knows only %d",
				   file, version, migrate_newest());
	*ret_version = version;
	return LAPSE_OK;
}

/* Opens the backup read-only, checks it, and copies it to `to`. */
static int copy_checked(const char *file, const char *to, struct problem *p)
{
	struct db_config config = { .path = file,
				    .clock = &CLOCK_SYSTEM,
				    .read_only = true,
				    .durable = true,
				    .busy_timeout_ms = 1000 };
	char fault[120] = "";
	struct db *db = NULL;
	int64_t version = 0;
	int r = db_open(&config, &db, p);

	if (r < 0)
		return r;
	r = check_version(db, file, &version, p);
	if (r == LAPSE_OK)
		r = sqlite_check(db, fault, sizeof(fault));
	if (r == LAPSE_OK && fault[0])
		r = problem_set(p, LAPSE_ECORRUPT, "file", "%.100s is damaged: %s", file, fault);
	if (r == LAPSE_OK)
		r = restore_check(db, file, version, p);
	if (r == LAPSE_OK) {
		r = sqlite_copy_to(db, to);
		if (r < 0)
			problem_set(p, r, NULL, "the copy failed: %.180s", db_error(db));
	}
	if (r < 0 && !p->message[0])
		problem_set(p, r, "file", "%.100s is damaged: %.120s", file, db_error(db));
	db_close(db);
	return r;
}

/* Notes the time of the restore in the copy and brings everything into its one file. */
static int mark_restored(const char *path, struct problem *p)
{
	struct db_config config = {
		.path = path, .clock = &CLOCK_SYSTEM, .durable = true, .busy_timeout_ms = 1000
	};
	struct db *db = NULL;
	lapse_ms now;
	int r = db_open(&config, &db, p);

	if (r < 0)
		return r;
	r = db_begin(db, &now);
	if (r == LAPSE_OK)
		r = meta_set(db, "restored_at", now);
	if (r == LAPSE_OK)
		r = db_commit(db);
	if (r == LAPSE_OK)
		r = db_script(db, "PRAGMA journal_mode=DELETE");
	if (r < 0)
		problem_set(p, r, NULL, "cannot mark the restored database: %.160s", db_error(db));
	db_close(db);
	return r;
}

/* Brings the old database's log into its file. One that cannot be opened any more keeps its log
 * under the name it is kept by. */
static void restore_fold_log(const char *database, const char *kept)
{
	static const char *const suffixes[] = { "-wal", "-shm" };
	struct db_config config = {
		.path = database, .clock = &CLOCK_SYSTEM, .durable = true, .busy_timeout_ms = 1000
	};
	struct problem ignored = { 0 };
	struct db *db = NULL;

	if (db_open(&config, &db, &ignored) == LAPSE_OK)
		db_script(db, "PRAGMA journal_mode=DELETE");
	db_close(db);
	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		char from[DATADIR_PATH_MAX + 8], to[DATADIR_PATH_MAX + 8];
		snprintf(from, sizeof(from), "%s%s", database, suffixes[i]);
		snprintf(to, sizeof(to), "%s%s", kept, suffixes[i]);
		rename(from, to);
	}
}

static int restore_swap(const char *data_dir, const char *database, const char *fresh,
			const char *kept, struct problem *p)
{
	if (access(database, F_OK) == 0) {
		restore_fold_log(database, kept);
		if (link(database, kept) < 0)
			return problem_set(p, LAPSE_EIO, NULL, "cannot keep the old database: %s",
					   strerror(errno));
	}
	if (rename(fresh, database) < 0)
		return problem_set(p, LAPSE_EIO, NULL, "cannot put the new database in place: %s",
				   strerror(errno));
	return datadir_sync(data_dir);
}

static int restore_locked(const char *data_dir, const char *file, char *ret_kept, size_t kept_size,
			  struct problem *p)
{
	char database[DATADIR_PATH_MAX], fresh[DATADIR_PATH_MAX], kept[DATADIR_PATH_MAX];
	char kept_name[64];

	snprintf(kept_name, sizeof(kept_name), DATADIR_DATABASE ".before-restore-%" PRId64,
		 clock_wall(&CLOCK_SYSTEM));
	if (datadir_file(data_dir, DATADIR_DATABASE, database) < 0 ||
	    datadir_file(data_dir, DATADIR_DATABASE ".restored", fresh) < 0 ||
	    datadir_file(data_dir, kept_name, kept) < 0)
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	bool had_one = access(database, F_OK) == 0;
	unlink(fresh);
	int r = copy_checked(file, fresh, p);
	if (r == LAPSE_OK)
		r = mark_restored(fresh, p);
	if (r == LAPSE_OK)
		r = restore_swap(data_dir, database, fresh, kept, p);
	if (r < 0) {
		unlink(fresh);
		return r;
	}
	snprintf(ret_kept, kept_size, "%s", had_one ? kept : "");
	return LAPSE_OK;
}

int store_restore(const char *data_dir, const char *file, char *ret_kept, size_t kept_size,
		  struct problem *p)
{
	struct datadir dir;
	int fd = -1;
	int r = file_open(file, 0, &fd, p); /* a pipe would be waited for */

	if (r < 0)
		return r;
	close(fd);
	r = datadir_lock(&dir, data_dir, p);
	if (r < 0)
		return r;
	r = restore_locked(data_dir, file, ret_kept, kept_size, p);
	datadir_unlock(&dir);
	return r;
}
