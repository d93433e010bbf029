/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs: files below the data directory that hold what clients gave us.
 *
 * A blob is written to an unnamed file, hashed on the way, then linked under its checksum and an id
 * that is never used twice, and synced: file and directory. Until then a crash leaves nothing;
 * after it the caller makes a row of it, or discards it. So a name alone proves nothing: only a
 * row does, and what a crash leaves without one is found at the next start.
 *
 * Legal order: blob_init, then blob_write any number of times or one blob_copy, then blob_finish;
 * blob_discard or blob_done at any time. Everything here but blob_init, blob_path and
 * blob_parse_name blocks: for workers. A blob belongs to one thread at a time.
 */
#ifndef LAPSE_STORE_BLOB_H
#define LAPSE_STORE_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BLOB_DIR "files"
#define BLOB_CHECKSUM_LEN 64 /* SHA-256, lower-case hex */
#define BLOB_NAME_LEN (BLOB_CHECKSUM_LEN + 1 + 16)
#define BLOB_PATH_MAX (sizeof(BLOB_DIR) + 4 + BLOB_NAME_LEN)
#define BLOB_FANOUT 256 /* directories: 00 … ff, the first byte of the checksum */

struct blob {
	const char *data_dir; /* borrowed */
	int64_t id;
	int64_t max; /* bytes it may have */
	bool durable;

	int fd; /* -1 = not open yet */
	int64_t size;
	int64_t started; /* bytes whose write-back has been started */
	struct evp_md_ctx_st *hash;
	char checksum[BLOB_CHECKSUM_LEN + 1];
	bool linked; /* it has a name */
	bool named;  /* it had one from the start: this file system has no unnamed files */
	bool kept;   /* a row stands for it: blob_discard() leaves the file alone */
};

/* A number that says whose files these are, in a file beside them; LAPSE_ENOTFOUND = there is none.
 * And whether there is any blob at all. All block. */
int blob_set_marker(const char *data_dir, int64_t id);
int blob_get_marker(const char *data_dir, int64_t *ret);
bool blob_any(const char *data_dir);

/* `durable` false: nothing is synced, for tests that prove they notice. */
void blob_init(struct blob *b, const char *data_dir, int64_t id, int64_t max, bool durable);

/* LAPSE_ETOOLARGE beyond the maximum, LAPSE_EFULL when the disk is, LAPSE_EIO. */
int blob_write(struct blob *b, const void *bytes, size_t n, struct problem *p);

/* All of a regular file that is open: its length is what it is now. Its blocks are shared where
 * the file system can, else copied; what is hashed is the copy. LAPSE_ECONFLICT when it became
 * shorter meanwhile. */
int blob_copy(struct blob *b, int source, struct problem *p);

/* Names the file and makes it durable; `checksum` and `size` are final. */
int blob_finish(struct blob *b, struct problem *p);

/* Forgets the blob: removes its file unless a row stands for it. Takes one that never began. */
void blob_discard(struct blob *b);

/* Where it lies, below the data directory: files/ab/CHECKSUM-ID. */
void blob_path(const char *checksum, int64_t id, char out[BLOB_PATH_MAX]);

/* The other way round, for one directory's entry; false for a name that is not ours. */
bool blob_parse_name(const char *name, char ret_checksum[BLOB_CHECKSUM_LEN + 1], int64_t *ret_id);

bool blob_is_checksum(const char *text);

/* Opens a blob's file to be read. LAPSE_ENOTFOUND when it is gone, or something else is in its
 * place: nothing but a regular file is one. */
int blob_open(const char *data_dir, const char *checksum, int64_t id, int *ret_fd,
	      struct problem *p);

/* Its length; LAPSE_ENOTFOUND as above. LAPSE_EIO leaves errno. */
int blob_stat(const char *data_dir, const char *checksum, int64_t id, int64_t *ret_size);

/* Makes the directory that holds all of them. */
int blob_prepare(const char *data_dir, struct problem *p);

/* errno as one of our errors, with a sentence. */
int blob_explain(int error, const char *what, struct problem *p);

/* For store/blob_copy.c. */
int blob_start(struct blob *b, struct problem *p);                            /* opens, once */
int blob_put(struct blob *b, const void *bytes, size_t n, struct problem *p); /* without hashing */
void blob_hash(struct blob *b, const void *bytes, size_t n);

#endif
