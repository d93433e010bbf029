/* SPDX-License-Identifier: Apache-2.0 */
#include "store/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "store/datadir.h"

/* Write-back is started after so many bytes, and waited for once LAG_BYTES are behind it: the last
 * sync is short then, and one large file does not fill the memory with dirty pages that everybody
 * else's sync would have to wait for. */
#define WINDOW_BYTES (INT64_C(8) << 20)
#define LAG_BYTES (INT64_C(128) << 20)

int blob_explain(int error, const char *what, struct problem *p)
{
	if (error == ENOSPC || error == EDQUOT)
		return problem_set(p, LAPSE_EFULL, NULL,
				   "the disk that holds the attachments is full: free some space, "
				   "or delete attachments");
	return problem_set(p, LAPSE_EIO, NULL, "cannot %s: %s", what, strerror(error));
}

bool blob_is_checksum(const char *text)
{
	return strlen(text) == BLOB_CHECKSUM_LEN &&
	       strspn(text, "0123456789abcdef") == BLOB_CHECKSUM_LEN;
}

void blob_path(const char *checksum, int64_t id, char out[BLOB_PATH_MAX])
{
	char text[ID_TEXT_LEN + 1];

	id_format(id, text);
	snprintf(out, BLOB_PATH_MAX, BLOB_DIR "/%.2s/%.64s-%.16s", checksum, checksum, text);
}

bool blob_parse_name(const char *name, char ret_checksum[BLOB_CHECKSUM_LEN + 1], int64_t *ret_id)
{
	char checksum[BLOB_CHECKSUM_LEN + 1];

	if (strlen(name) != BLOB_NAME_LEN || name[BLOB_CHECKSUM_LEN] != '-')
		return false;
	memcpy(checksum, name, BLOB_CHECKSUM_LEN);
	checksum[BLOB_CHECKSUM_LEN] = '\0';
	if (!blob_is_checksum(checksum) || !id_parse(name + BLOB_CHECKSUM_LEN + 1, ret_id))
		return false;
	memcpy(ret_checksum, checksum, sizeof(checksum));
	return true;
}

static int full_path(const char *data_dir, const char *checksum, int64_t id,
		     char out[DATADIR_PATH_MAX])
{
	char path[BLOB_PATH_MAX];

	blob_path(checksum, id, path);
	return datadir_file(data_dir, path, out);
}

/* The name of a blob that has one before its checksum is known. */
static int temporary_path(const struct blob *b, char out[DATADIR_PATH_MAX])
{
	char name[64], id[ID_TEXT_LEN + 1];

	id_format(b->id, id);
	snprintf(name, sizeof(name), BLOB_DIR "/new-%s", id);
	return datadir_file(b->data_dir, name, out);
}

int blob_prepare(const char *data_dir, struct problem *p)
{
	char path[DATADIR_PATH_MAX];

	if (datadir_file(data_dir, BLOB_DIR, path) < 0)
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	if (mkdir(path, 0700) < 0)
		return errno == EEXIST ? LAPSE_OK : blob_explain(errno, "make files/", p);
	return datadir_sync(data_dir);
}

#define MARKER BLOB_DIR "/lapse.store"

int blob_set_marker(const char *data_dir, int64_t id)
{
	char path[DATADIR_PATH_MAX], text[ID_TEXT_LEN + 2];
	struct problem p = { 0 };

	if (blob_prepare(data_dir, &p) < 0 || datadir_file(data_dir, MARKER, path) < 0)
		return LAPSE_EIO;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return LAPSE_EIO;
	id_format(id, text);
	text[ID_TEXT_LEN] = '\n';
	bool written = write(fd, text, ID_TEXT_LEN + 1) == ID_TEXT_LEN + 1 && fsync(fd) == 0;
	close(fd);
	return written && datadir_file(data_dir, BLOB_DIR, path) == LAPSE_OK ? datadir_sync(path)
									     : LAPSE_EIO;
}

int blob_get_marker(const char *data_dir, int64_t *ret)
{
	char path[DATADIR_PATH_MAX], text[ID_TEXT_LEN + 1] = { 0 };
	int fd = datadir_file(data_dir, MARKER, path) < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return LAPSE_ENOTFOUND;
	ssize_t n = read(fd, text, ID_TEXT_LEN);
	close(fd);
	return n == ID_TEXT_LEN && id_parse(text, ret) ? LAPSE_OK : LAPSE_ENOTFOUND;
}

bool blob_any(const char *data_dir)
{
	char path[DATADIR_PATH_MAX];
	DIR *dir = datadir_file(data_dir, BLOB_DIR, path) < 0 ? NULL : opendir(path);
	bool found = false;

	for (struct dirent *d; dir && !found && (d = readdir(dir));)
		found = d->d_name[0] != '.' && strlen(d->d_name) == 2;
	if (dir)
		closedir(dir);
	return found;
}

void blob_init(struct blob *b, const char *data_dir, int64_t id, int64_t max, bool durable)
{
	*b = (struct blob){
		.data_dir = data_dir, .id = id, .max = max, .durable = durable, .fd = -1
	};
}

static int open_unnamed(struct blob *b)
{
	char path[DATADIR_PATH_MAX];

	if (datadir_file(b->data_dir, BLOB_DIR, path) < 0)
		return ENAMETOOLONG;
	b->fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (b->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
		return b->fd >= 0 ? 0 : errno;
	if (temporary_path(b, path) < 0)
		return ENAMETOOLONG;
	b->fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	b->named = b->fd >= 0;
	return b->fd >= 0 ? 0 : errno;
}

int blob_start(struct blob *b, struct problem *p)
{
	if (b->fd >= 0)
		return LAPSE_OK;
	int error = open_unnamed(b);
	if (error == ENOENT) { /* the directory was removed */
		int r = blob_prepare(b->data_dir, p);
		if (r < 0)
			return r;
		error = open_unnamed(b);
	}
	if (error)
		return blob_explain(error, "make a file for the attachment", p);
	b->hash = EVP_MD_CTX_new();
	if (!b->hash || !EVP_DigestInit_ex(b->hash, EVP_sha256(), NULL))
		abort(); /* out of memory */
	return LAPSE_OK;
}

void blob_hash(struct blob *b, const void *bytes, size_t n)
{
	if (!EVP_DigestUpdate(b->hash, bytes, n))
		abort(); /* SHA-256 itself cannot fail */
}

static void write_back(struct blob *b)
{
	if (!b->durable || b->size - b->started < WINDOW_BYTES)
		return;
	sync_file_range(b->fd, b->started, b->size - b->started, SYNC_FILE_RANGE_WRITE);
	if (b->started >= LAG_BYTES)
		sync_file_range(b->fd, b->started - LAG_BYTES, WINDOW_BYTES,
				SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					SYNC_FILE_RANGE_WAIT_AFTER);
	b->started = b->size;
}

int blob_put(struct blob *b, const void *bytes, size_t n, struct problem *p)
{
	const char *from = bytes;

	while (n > 0) {
		ssize_t done = pwrite(b->fd, from, n, b->size);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return blob_explain(done < 0 ? errno : EIO, "write the attachment", p);
		from += done;
		n -= (size_t)done;
		b->size += done;
	}
	write_back(b);
	return LAPSE_OK;
}

int blob_write(struct blob *b, const void *bytes, size_t n, struct problem *p)
{
	int r = blob_start(b, p);

	if (r < 0)
		return r;
	if ((int64_t)n > b->max - b->size)
		return problem_set(p, LAPSE_ETOOLARGE, "body",
				   "an attachment may have %lld bytes (attachment_max_bytes)",
				   (long long)b->max);
	blob_hash(b, bytes, n);
	return blob_put(b, bytes, n, p);
}

/* One of the 256; a new one must itself survive. */
static int make_directory(const struct blob *b, const char *path)
{
	char dir[DATADIR_PATH_MAX];

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return errno;
	if (datadir_file(b->data_dir, BLOB_DIR, dir) < 0)
		return ENAMETOOLONG;
	return b->durable && datadir_sync(dir) < 0 ? errno : 0; /* as its fsync left it */
}

static int name_it(const struct blob *b, const char *to)
{
	char from[DATADIR_PATH_MAX];

	if (b->named) {
		if (temporary_path(b, from) < 0)
			return ENAMETOOLONG;
		return rename(from, to) < 0 ? errno : 0;
	}
	snprintf(from, sizeof(from), "/proc/self/fd/%d", b->fd);
	return linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) < 0 ? errno : 0;
}

/* The name comes before the sync: a name without a row is nothing, and one sync of the file then
 * carries both on most file systems. */
static int link_and_sync(struct blob *b, const char *dir, const char *path)
{
	int error = name_it(b, path);

	if (error == ENOENT) {
		error = make_directory(b, dir);
		if (!error)
			error = name_it(b, path);
	}
	if (error)
		return error;
	b->linked = true;
	if (b->durable && fsync(b->fd) < 0)
		return errno;
	return b->durable && datadir_sync(dir) < 0 ? errno : 0; /* as its fsync left it */
}

static void finish_hash(struct blob *b)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	if (!EVP_DigestFinal_ex(b->hash, digest, &n))
		abort();
	hex_encode(digest, n, b->checksum);
}

int blob_finish(struct blob *b, struct problem *p)
{
	char path[DATADIR_PATH_MAX], dir[DATADIR_PATH_MAX], name[16];
	int r = blob_start(b, p); /* an empty one */

	if (r < 0)
		return r;
	finish_hash(b);
	snprintf(name, sizeof(name), BLOB_DIR "/%.2s", b->checksum);
	if (full_path(b->data_dir, b->checksum, b->id, path) < 0 ||
	    datadir_file(b->data_dir, name, dir) < 0)
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	int error = link_and_sync(b, dir, path);
	return error ? blob_explain(error, "store the attachment", p) : LAPSE_OK;
}

static void remove_name(const struct blob *b)
{
	char path[DATADIR_PATH_MAX];

	if (!b->linked && !b->named)
		return;
	int r = b->linked ? full_path(b->data_dir, b->checksum, b->id, path)
			  : temporary_path(b, path);
	if (r == LAPSE_OK)
		unlink(path);
}

void blob_discard(struct blob *b)
{
	if (!b->kept)
		remove_name(b);
	if (b->fd >= 0)
		close(b->fd);
	EVP_MD_CTX_free(b->hash);
	*b = (struct blob){ .fd = -1 };
}

int blob_open(const char *data_dir, const char *checksum, int64_t id, int *ret_fd,
	      struct problem *p)
{
	char path[DATADIR_PATH_MAX];
	struct stat st;

	if (full_path(data_dir, checksum, id, path) < 0)
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) /* ELOOP: a symlink is no file of ours; ENXIO: neither is a socket */
		return errno == ENOENT || errno == ELOOP || errno == ENXIO
			       ? LAPSE_ENOTFOUND
			       : blob_explain(errno, "open the attachment's file", p);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return LAPSE_ENOTFOUND;
	}
	*ret_fd = fd;
	return LAPSE_OK;
}

int blob_stat(const char *data_dir, const char *checksum, int64_t id, int64_t *ret_size)
{
	char path[DATADIR_PATH_MAX];
	struct stat st;

	if (full_path(data_dir, checksum, id, path) < 0)
		return LAPSE_EINVAL;
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? LAPSE_ENOTFOUND : LAPSE_EIO;
	if (!S_ISREG(st.st_mode))
		return LAPSE_ENOTFOUND;
	*ret_size = st.st_size;
	return LAPSE_OK;
}
