/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int file_open(const char *path, int flags, int *ret_fd, struct problem *p)
{
	struct stat st;
	/* O_NONBLOCK: a pipe under this name must not hold the start up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);

	if (fd < 0 && errno == ELOOP)
		return problem_set(p, LAPSE_EFORBIDDEN, NULL,
				   "%.160s is a symbolic link: put the file itself there", path);
	if (fd < 0)
		return problem_set(p, errno == ENOENT ? LAPSE_ENOTFOUND : LAPSE_EIO, NULL,
				   "cannot read %.160s: %s", path, strerror(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return problem_set(p, LAPSE_EFORBIDDEN, NULL, "%.160s is not a regular file", path);
	}
	assert((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	*ret_fd = fd;
	return LAPSE_OK;
}

int file_load_fd(const char *path, int fd, size_t max, struct buf *out, struct problem *p)
{
	const size_t before = out->len;

	assert(fd >= 0 && max < SIZE_MAX - before);
	buf_reserve(out, max + 1);
	for (;;) {
		ssize_t n = read(fd, out->data + out->len, max + 1 - (out->len - before));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return problem_set(p, LAPSE_EIO, NULL, "cannot read %.160s: %s", path,
					   strerror(errno));
		out->len += (size_t)n;
		out->data[out->len] = '\0';
		if (out->len - before > max)
			return problem_set(
				p, LAPSE_ECORRUPT, NULL,
				"%.160s is longer than %zu bytes: it is not what belongs "
				"there",
				path, max);
		if (n == 0)
			return LAPSE_OK;
	}
}

int file_load(const char *path, size_t max, struct buf *out, struct problem *p)
{
	int fd = -1;
	int r = file_open(path, 0, &fd, p);

	if (r < 0)
		return r;
	r = file_load_fd(path, fd, max, out, p);
	close(fd);
	return r;
}

int file_open_beneath(const char *dir, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					   RESOLVE_NO_MAGICLINKS };
	assert((flags & O_CREAT) == 0); /* openat2() would want a mode */
	int top = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (top < 0)
		return -errno;
	long fd = syscall(SYS_openat2, top, path, &how, sizeof(how));
	int error = errno;
	close(top);
	return fd < 0 ? -error : (int)fd;
}

int file_unlink_beneath(const char *dir, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	char parent[1024];

	if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EXDEV;
	if ((size_t)(name - path) >= sizeof(parent))
		return -ENAMETOOLONG;
	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1,
		 slash ? path : ".");
	int fd = file_open_beneath(dir, slash == path ? "/" : parent, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return fd;
	int error = unlinkat(fd, name, 0) < 0 ? -errno : 0;
	close(fd);
	return error;
}
