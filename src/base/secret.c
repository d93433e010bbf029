/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static int refuse_file(const char *path, int fd, struct problem *p)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || (st.st_uid != geteuid() && st.st_uid != 0))
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

int secret_read_file(const char *path, enum secret_link link, size_t max, struct buf *out,
		     struct problem *p)
{
	int fd = -1;
	int r = file_open(path, link == SECRET_NO_LINK ? O_NOFOLLOW : 0, &fd, p);

	if (r < 0)
		return r;
	r = refuse_file(path, fd, p);
	if (r == LAPSE_OK)
		r = file_load_fd(path, fd, max, out, p);
	close(fd);
	return r;
}

void secret_wipe(struct buf *b)
{
	if (b->data)
		OPENSSL_cleanse(b->data, b->cap);
	buf_done(b);
}
