/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse_file(const char *path, int fd, struct problem *p)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return problem_set(p, LAPSE_EFORBIDDEN, NULL, "%.160s is not a regular file", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return problem_set(
			p, LAPSE_EFORBIDDEN, NULL,
			"%.160s belongs to another user: give it to the one who runs this", path);
	if ((st.st_mode & (st.st_uid == geteuid() ? 0077 : 0027)) != 0)
		return problem_set(p, LAPSE_EFORBIDDEN, NULL,
				   "%.160s can be read by others: chmod 600 it, and change the "
				   "secret in it if they are not to know it",
				   path);
	return LAPSE_OK;
}

static int read_all(const char *path, int fd, size_t max, struct buf *out, struct problem *p)
{
	const size_t before = out->len;

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

int secret_read_file(const char *path, enum secret_link link, size_t max, struct buf *out,
		     struct problem *p)
{
	/* O_NONBLOCK: a pipe under this name must not hold the start up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK |
				    (link == SECRET_NO_LINK ? O_NOFOLLOW : 0));

	if (fd < 0 && errno == ELOOP)
		return problem_set(p, LAPSE_EFORBIDDEN, NULL,
				   "%.160s is a symbolic link: put the file itself there", path);
	if (fd < 0)
		return problem_set(p, errno == ENOENT ? LAPSE_ENOTFOUND : LAPSE_EIO, NULL,
				   "cannot read %.160s: %s", path, strerror(errno));
	int r = refuse_file(path, fd, p);
	if (r == LAPSE_OK)
		r = read_all(path, fd, max, out, p);
	close(fd);
	return r;
}

void secret_wipe(struct buf *b)
{
	if (b->data)
		OPENSSL_cleanse(b->data, b->cap);
	buf_done(b);
}
