/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/transfer/part.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"

#define READ_BYTES 262144

int write_all(int fd, const void *bytes, size_t n)
{
	const char *at = bytes;

	while (n > 0) {
		ssize_t done = write(fd, at, n);
		if (done < 0 && errno != EINTR)
			return errno;
		at += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}

static void part_close(struct part *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

/* Whether the open file is still the one of that name: another process may have finished it between
 * our open and our lock. */
static bool is_current(const struct part *p, const struct stat *own)
{
	struct stat named;

	return lstat(p->path, &named) == 0 && named.st_ino == own->st_ino &&
	       named.st_dev == own->st_dev;
}

static enum outcome part_explain(const struct cli *cli, const char *verb, const char *path,
				 int number)
{
	return cli_fail(cli, number == ENOENT || number == EISDIR ? OUTCOME_USAGE : OUTCOME_REFUSED,
			"cannot %s %s: %s", verb, path, strerror(number));
}

/* One try; `ret_again` when another process replaced the file meanwhile. */
static enum outcome open_once(const struct cli *cli, struct part *p, bool *ret_again)
{
	struct stat st;

	assert(p->fd < 0);
	*ret_again = false;
	p->fd = open(p->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
	if (p->fd < 0 || fstat(p->fd, &st) < 0)
		return part_explain(cli, "open", p->path, errno);
	if (!S_ISREG(st.st_mode))
		return cli_fail(cli, OUTCOME_USAGE, "%s is not a file: move it away", p->path);
	if (flock(p->fd, LOCK_EX | LOCK_NB) < 0)
		return cli_fail(cli, OUTCOME_REFUSED, "another process is writing %s", p->path);
	*ret_again = !is_current(p, &st);
	/* Another process may have written to it before we had the lock. */
	if (fstat(p->fd, &st) < 0)
		return part_explain(cli, "look at", p->path, errno);
	p->size = st.st_size;
	return OUTCOME_OK;
}

enum outcome part_open(const struct cli *cli, const char *file, struct part *ret)
{
	size_t n = strlen(file) + sizeof(".part");
	bool again = true;
	enum outcome r = OUTCOME_OK;

	*ret = (struct part){ .fd = -1, .file = file, .path = mem_alloc(n) };
	snprintf(ret->path, n, "%s.part", file);
	while (r == OUTCOME_OK && again) {
		part_close(ret);
		r = open_once(cli, ret, &again);
	}
	/* What is not ours stays as it is. */
	if (r != OUTCOME_OK)
		part_close(ret);
	return r;
}

enum outcome part_read(const struct cli *cli, struct part *p,
		       void (*take)(void *, const void *, size_t), void *arg)
{
	char *CLEANUP(mem_freep) room = mem_alloc(READ_BYTES);
	int64_t at = 0;

	assert(p->fd >= 0 && p->size >= 0);
	while (at < p->size) {
		int64_t left = p->size - at;
		ssize_t n = pread(p->fd, room, left < READ_BYTES ? (size_t)left : READ_BYTES, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return part_explain(cli, "read", p->path, errno);
		if (n == 0)
			return cli_fail(cli, OUTCOME_REFUSED, "%s has become shorter", p->path);
		take(arg, room, (size_t)n);
		at += n;
	}
	if (lseek(p->fd, p->size, SEEK_SET) < 0)
		return part_explain(cli, "read", p->path, errno);
	return OUTCOME_OK;
}

int part_add(struct part *p, const void *bytes, size_t n)
{
	int number = write_all(p->fd, bytes, n);

	assert(p->fd >= 0);
	if (number == 0)
		p->size += (int64_t)n;
	return number;
}

int part_truncate(struct part *p)
{
	if (ftruncate(p->fd, 0) < 0 || lseek(p->fd, 0, SEEK_SET) < 0)
		return errno;
	p->size = 0;
	return 0;
}

/* Gives the part its name where there is none. Not every file system can do it in one step. */
static int part_name(const struct part *p, bool replace)
{
	struct stat st;

	if (replace)
		return rename(p->path, p->file) < 0 ? errno : 0;
	if (renameat2(AT_FDCWD, p->path, AT_FDCWD, p->file, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return errno;
	if (lstat(p->file, &st) == 0)
		return EEXIST;
	return rename(p->path, p->file) < 0 ? errno : 0;
}

enum outcome part_finish(const struct cli *cli, struct part *p, bool replace)
{
	assert(p->fd >= 0); /* the lock is ours until it has its name */
	if (fsync(p->fd) < 0)
		return part_explain(cli, "write", p->path, errno);
	int number = part_name(p, replace);
	if (number == EEXIST)
		return cli_fail(cli, OUTCOME_REFUSED, "%s exists by now; what was fetched is in %s",
				p->file, p->path);
	if (number != 0)
		return part_explain(cli, "write", p->file, number);
	part_close(p);
	return OUTCOME_OK;
}

void part_done(struct part *p)
{
	if (p->fd >= 0 && p->size == 0)
		unlink(p->path);
	part_close(p);
	free(p->path);
	p->path = NULL;
}
