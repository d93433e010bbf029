/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying a file into a blob: reading, writing and hashing at the same time. The caller's thread
 * reads pieces and writes them, a second one hashes them, and the kernel writes back what was
 * started before (blob_put). A reflink saves the writing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "store/blob.h"

#define PIECE_BYTES ((size_t)1 << 20)
#define PIECES 4

/* Pieces go round: filled and written by the copier, then hashed, then free again. */
struct pipe {
	struct blob *blob;
	char *pieces[PIECES];
	size_t sizes[PIECES];
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	uint64_t filled, hashed; /* pieces, ever */
	bool ended;
};

static void *hash_pieces(void *arg)
{
	struct pipe *x = arg;

	pthread_mutex_lock(&x->lock);
	for (;;) {
		while (x->hashed == x->filled && !x->ended)
			pthread_cond_wait(&x->changed, &x->lock);
		if (x->hashed == x->filled)
			break;
		size_t i = x->hashed % PIECES;
		pthread_mutex_unlock(&x->lock);
		blob_hash(x->blob, x->pieces[i], x->sizes[i]);
		pthread_mutex_lock(&x->lock);
		x->hashed++;
		pthread_cond_signal(&x->changed);
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

/* The next free piece, once the hasher is done with it. */
static char *free_piece(struct pipe *x)
{
	pthread_mutex_lock(&x->lock);
	while (x->filled - x->hashed == PIECES)
		pthread_cond_wait(&x->changed, &x->lock);
	char *piece = x->pieces[x->filled % PIECES];
	pthread_mutex_unlock(&x->lock);
	return piece;
}

static void hand_over(struct pipe *x, size_t n)
{
	pthread_mutex_lock(&x->lock);
	x->sizes[x->filled % PIECES] = n;
	x->filled++;
	pthread_cond_signal(&x->changed);
	pthread_mutex_unlock(&x->lock);
}

static void end(struct pipe *x)
{
	pthread_mutex_lock(&x->lock);
	x->ended = true;
	pthread_cond_signal(&x->changed);
	pthread_mutex_unlock(&x->lock);
}

/* Exactly `n` bytes, unless the file has become shorter. */
static int read_source_piece(int fd, char *to, size_t n, int64_t at, struct problem *p)
{
	while (n > 0) {
		ssize_t got = pread(fd, to, n, at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return blob_explain(errno, "read the file", p);
		if (got == 0)
			return problem_set(p, LAPSE_ECONFLICT, "path",
					   "the file became shorter while it was staged");
		to += got;
		at += got;
		n -= (size_t)got;
	}
	return LAPSE_OK;
}

static int copy_pieces(struct pipe *x, int from, int64_t size, bool write, struct problem *p)
{
	for (int64_t at = 0; at < size;) {
		size_t n = size - at < (int64_t)PIECE_BYTES ? (size_t)(size - at) : PIECE_BYTES;
		char *piece = free_piece(x);
		int r = read_source_piece(from, piece, n, at, p);
		if (r < 0)
			return r;
		hand_over(x, n);
		r = write ? blob_put(x->blob, piece, n, p) : LAPSE_OK;
		if (r < 0)
			return r;
		at += (int64_t)n;
	}
	return LAPSE_OK;
}

/* Signals are the program's business, not this thread's. */
static int start_hasher(pthread_t *ret, struct pipe *x)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(ret, NULL, hash_pieces, x);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static int run_pipe(struct blob *b, int from, int64_t size, bool write, struct problem *p)
{
	struct pipe x = { .blob = b };
	pthread_t hasher;

	for (int i = 0; i < PIECES; i++)
		x.pieces[i] = mem_alloc(PIECE_BYTES);
	pthread_mutex_init(&x.lock, NULL);
	pthread_cond_init(&x.changed, NULL);
	bool started = start_hasher(&hasher, &x) == 0;
	int r = started ? copy_pieces(&x, from, size, write, p)
			: problem_set(p, LAPSE_EUNAVAILABLE, NULL, "cannot start a thread");
	end(&x);
	if (started)
		pthread_join(hasher, NULL);
	pthread_cond_destroy(&x.changed);
	pthread_mutex_destroy(&x.lock);
	for (int i = 0; i < PIECES; i++)
		free(x.pieces[i]);
	return r;
}

/* Small ones are not worth a thread. */
static int copy_small(struct blob *b, int source, int64_t size, struct problem *p)
{
	char *CLEANUP(mem_freep) piece = mem_alloc((size_t)size + 1);
	int r = read_source_piece(source, piece, (size_t)size, 0, p);

	return r < 0 ? r : blob_write(b, piece, (size_t)size, p);
}

static int check_copy_size(const struct blob *b, int fd, int64_t *ret, struct problem *p)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return blob_explain(errno, "read the file", p);
	if (st.st_size > b->max)
		return problem_set(p, LAPSE_ETOOLARGE, "path",
				   "an attachment may have %lld bytes (attachment_max_bytes)",
				   (long long)b->max);
	*ret = st.st_size;
	return LAPSE_OK;
}

int blob_copy(struct blob *b, int source, struct problem *p)
{
	int64_t size = 0;
	int r = blob_start(b, p);

	if (r == LAPSE_OK)
		r = check_copy_size(b, source, &size, p);
	if (r < 0)
		return r;
	if (size <= (int64_t)PIECE_BYTES)
		return copy_small(b, source, size, p);
	posix_fadvise(source, 0, 0, POSIX_FADV_SEQUENTIAL);
	if (ioctl(b->fd, FICLONE, source) < 0)
		return run_pipe(b, source, size, true, p);
	r = check_copy_size(b, b->fd, &b->size, p); /* it may have grown since we looked */
	return r < 0 ? r : run_pipe(b, b->fd, b->size, false, p);
}
