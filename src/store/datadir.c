/* SPDX-License-Identifier: Apache-2.0 */
#include "store/datadir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int datadir_file(const char *path, const char *name, char out[DATADIR_PATH_MAX])
{
	int n = snprintf(out, DATADIR_PATH_MAX, "%s/%s", path, name);

	return n < 0 || n >= DATADIR_PATH_MAX ? LAPSE_EINVAL : LAPSE_OK;
}

static long holder_of(int fd)
{
	char text[32] = { 0 };

	return pread(fd, text, sizeof(text) - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

static int take_lock(int fd, const char *path, struct problem *p)
{
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return problem_set(p, LAPSE_EIO, NULL, "cannot lock %.120s: %s", path,
					   strerror(errno));
		return problem_set(p, LAPSE_EBUSY, NULL,
				   "the data directory %.120s is in use by process %ld: stop it "
				   "first, or choose another --data-dir",
				   path, holder_of(fd));
	}
	char pid[32];
	int n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		return problem_set(p, LAPSE_EIO, NULL, "cannot write the lock of %.120s: %s", path,
				   strerror(errno));
	return LAPSE_OK;
}

/* The new directory's own name must survive a power loss too. */
static int sync_parent(const char *path)
{
	char parent[DATADIR_PATH_MAX];

	return datadir_file(path, "..", parent) < 0 ? LAPSE_EINVAL : datadir_sync(parent);
}

/* What may lie in a data directory before its database does: a start that did not get far, a
 * service's own files beside it, a file system's root. */
static bool is_expected(const char *name)
{
	static const char *const names[] = { "lock", "files", "backups",    "lapse.key",
					     ".",    "..",    "lost+found", "lapse.conf" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return strncmp(name, DATADIR_DATABASE, sizeof(DATADIR_DATABASE) - 1) == 0;
}

/* A directory of other files may be a home or a project: it is not to be closed to others, and
 * not to be filled. */
static int check_ours(const char *path, struct problem *p)
{
	char database[DATADIR_PATH_MAX];
	struct dirent *entry;
	int r = LAPSE_OK;

	if (datadir_file(path, DATADIR_DATABASE, database) < 0)
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	DIR *dir = access(database, F_OK) == 0 ? NULL : opendir(path);
	if (!dir)
		return LAPSE_OK; /* it is ours, or making it will say what is wrong */
	while (r == LAPSE_OK && (entry = readdir(dir)))
		if (!is_expected(entry->d_name))
			r = problem_set(p, LAPSE_EINVAL, "data_dir",
					"the directory %.120s holds %.60s, and no database of "
					"lapse: choose a new or an empty directory",
					path, entry->d_name);
	closedir(dir);
	return r;
}

/* Ours alone: it holds messages and hashes of tokens. */
static int make_private(const char *path, struct problem *p)
{
	struct stat st;
	int r = check_ours(path, p);

	if (r < 0)
		return r;
	if (mkdir(path, 0700) < 0 ? errno != EEXIST : sync_parent(path) < 0)
		return problem_set(p, LAPSE_EIO, "data_dir", "cannot make the directory %.120s: %s",
				   path, strerror(errno));
	if (stat(path, &st) == 0 && (st.st_mode & 0077) != 0 && chmod(path, 0700) < 0)
		return problem_set(
			p, LAPSE_EIO, "data_dir",
			"the directory %.120s is open to others and cannot be closed: %s", path,
			strerror(errno));
	return LAPSE_OK;
}

int datadir_lock(struct datadir *d, const char *path, struct problem *p)
{
	char lock[DATADIR_PATH_MAX];
	int r = make_private(path, p);

	if (r < 0)
		return r;
	if (datadir_file(path, "lock", lock) < 0)
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return problem_set(p, LAPSE_EIO, "data_dir", "cannot open %.120s: %s", lock,
				   strerror(errno));
	r = take_lock(fd, path, p);
	if (r < 0) {
		close(fd);
		return r;
	}
	*d = (struct datadir){ path, fd };
	return LAPSE_OK;
}

void datadir_unlock(struct datadir *d)
{
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	d->lock_fd = -1;
}

int datadir_sync(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return LAPSE_EIO;
	int r = fsync(fd) < 0 ? LAPSE_EIO : LAPSE_OK;
	close(fd);
	return r;
}
