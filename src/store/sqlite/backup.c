/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "store/datadir.h"
#include "store/sqlite/db.h"

#define NAME_PREFIX "lapse-"
#define NAME_SUFFIX ".db"

static int backup_copy(const char *data_dir, const struct clock *clock, const char *to,
		       struct problem *p)
{
	char database[DATADIR_PATH_MAX];
	struct db *db = NULL;
	int r = datadir_file(data_dir, DATADIR_DATABASE, database);

	if (r < 0)
		return r;
	struct db_config config = { .path = database,
				    .clock = clock,
				    .read_only = true,
				    .durable = true,
				    .busy_timeout_ms = 5000 };
	r = db_open(&config, &db, p);
	if (r < 0)
		return r;
	r = sqlite_copy_to(db, to);
	if (r < 0)
		problem_set(p, r, NULL, "the copy failed: %.180s", db_error(db));
	db_close(db);
	return r;
}

/* fsync of a finished file, and its size. */
static int backup_sync_file(const char *path, int64_t *ret_bytes)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return LAPSE_EIO;
	int r = fsync(fd) < 0 || fstat(fd, &st) < 0 ? LAPSE_EIO : LAPSE_OK;
	close(fd);
	if (r == LAPSE_OK)
		*ret_bytes = st.st_size;
	return r;
}

int sqlite_backup_make(const char *data_dir, const struct clock *clock, struct backup *ret,
		       struct problem *p)
{
	char dir[DATADIR_PATH_MAX], part[DATADIR_PATH_MAX], final[DATADIR_PATH_MAX];
	char id[ID_TEXT_LEN + 1];
	struct backup b = { .created_at = clock_wall(clock) };

	/* Names sort by time; the random tail keeps two of one millisecond apart. */
	id_format(id_floor(b.created_at) | (id_random() & 0x1fffff), id);
	snprintf(b.name, sizeof(b.name), DATADIR_BACKUPS "/" NAME_PREFIX "%s" NAME_SUFFIX, id);
	if (datadir_file(data_dir, DATADIR_BACKUPS, dir) < 0 ||
	    datadir_file(data_dir, b.name, final) < 0 ||
	    snprintf(part, sizeof(part), "%s.part", final) >= (int)sizeof(part))
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	if (mkdir(dir, 0700) < 0 ? errno != EEXIST : datadir_sync(data_dir) < 0)
		return problem_set(p, LAPSE_EIO, NULL, "cannot make backups/: %s", strerror(errno));
	int r = backup_copy(data_dir, clock, part, p);
	if (r == LAPSE_OK) {
		chmod(part, 0600);
		r = backup_sync_file(part, &b.bytes);
	}
	if (r == LAPSE_OK && rename(part, final) < 0)
		r = LAPSE_EIO;
	if (r == LAPSE_OK)
		r = datadir_sync(dir);
	if (r < 0) {
		unlink(part);
		return r;
	}
	*ret = b;
	return LAPSE_OK;
}

static int is_backup(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n == strlen(NAME_PREFIX) + ID_TEXT_LEN + strlen(NAME_SUFFIX) &&
	       strncmp(e->d_name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0 &&
	       strcmp(e->d_name + n - strlen(NAME_SUFFIX), NAME_SUFFIX) == 0;
}

int backup_surplus(const char *data_dir, int64_t keep, backup_fn *fn, void *arg)
{
	char dir[DATADIR_PATH_MAX];
	struct dirent **entries;
	int r = datadir_file(data_dir, DATADIR_BACKUPS, dir);

	if (r < 0)
		return r;
	int n = scandir(dir, &entries, is_backup, alphasort);
	if (n < 0)
		return LAPSE_EIO;
	for (int i = 0; i < n; i++) {
		if (i < n - keep) {
			char name[sizeof(DATADIR_BACKUPS) + 256];
			snprintf(name, sizeof(name), DATADIR_BACKUPS "/%s", entries[i]->d_name);
			fn(arg, name);
		}
		free(entries[i]);
	}
	free(entries);
	return LAPSE_OK;
}
