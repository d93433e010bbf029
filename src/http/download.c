/* SPDX-License-Identifier: Apache-2.0 */
#include "http/download.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/request.h"
#include "http/server.h"

#define DOWNLOAD_MAGIC 0x4c444f57u
#define PIECE_BYTES ((size_t)256 << 10)
#define BLOCK_BYTES ((size_t)64 << 10) /* what libmicrohttpd takes at once */

struct piece {
	char *data;
	size_t len, sent;
};

struct download {
	uint32_t magic;
	struct list link; /* in transfers.downloads */
	struct server *server;
	char *owner;
	struct transfer_place place;
	struct MHD_Connection *mhd; /* NULL once the reply is over */
	int socket, fd;
	int64_t offset, left; /* what is not read yet */
	struct piece pieces[2];
	int sending;    /* the piece that is sent; the other one is read, or empty */
	bool busy;      /* a worker reads */
	bool suspended; /* until it has */
	uv_work_t work;
	int error; /* errno of a read that failed */

	int64_t given,
		taken; /* bytes: to libmicrohttpd; by the client, at the last sign of progress */
	lapse_us progress; /* when that was */
};

/* Reading */

static void read_file_piece(uv_work_t *w) /* on a worker */
{
	struct download *d = CONTAINER_OF(w, struct download, work);
	struct piece *piece = &d->pieces[!d->sending];
	size_t n = d->left < (int64_t)PIECE_BYTES ? (size_t)d->left : PIECE_BYTES;

	assert(d->magic == DOWNLOAD_MAGIC && d->busy && piece->data);
	while (piece->len < n) {
		ssize_t got = pread(d->fd, piece->data + piece->len, n - piece->len,
				    d->offset + (int64_t)piece->len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			d->error =
				got < 0 ? errno : EIO; /* the file is shorter than its row says */
			return;
		}
		piece->len += (size_t)got;
	}
}

static void release(struct download *d)
{
	assert(d->magic == DOWNLOAD_MAGIC && !d->busy && !d->mhd);
	list_remove(&d->link);
	transfers_give_back(d->server, &d->place);
	free(d->owner);
	close(d->fd);
	free(d->pieces[0].data);
	free(d->pieces[1].data);
	d->magic = 0;
	free(d);
}

static void wake_download(struct download *d)
{
	if (!d->suspended)
		return;
	d->suspended = false;
	MHD_resume_connection(d->mhd);
	server_kick(d->server);
}

static void on_read(uv_work_t *w, int status)
{
	struct download *d = CONTAINER_OF(w, struct download, work);
	size_t n = d->pieces[!d->sending].len;

	assert(d->magic == DOWNLOAD_MAGIC && d->busy);
	assert(d->server->transfers.jobs > 0);
	(void)status;
	d->busy = false;
	d->server->transfers.jobs--;
	d->offset += (int64_t)n;
	d->left -= (int64_t)n;
	assert(d->left >= 0);
	if (!d->mhd)
		release(d);
	else
		wake_download(d);
}

static void read_on(struct download *d)
{
	struct piece *piece = &d->pieces[!d->sending];

	if (d->busy || d->left == 0 || d->error || piece->len > 0)
		return;
	if (!piece->data)
		piece->data =
			mem_alloc(d->left < (int64_t)PIECE_BYTES ? (size_t)d->left : PIECE_BYTES);
	assert(piece->len == 0 && piece->sent == 0);
	d->busy = true;
	d->server->transfers.jobs++;
	uv_queue_work(d->server->loop, &d->work, read_file_piece, on_read);
}

/* Sending */

/* Whether there is something to send. Pieces change their parts only while no worker reads. */
static bool next_piece(struct download *d)
{
	struct piece *piece = &d->pieces[d->sending];

	assert(piece->sent <= piece->len);
	if (piece->sent < piece->len || d->busy)
		return piece->sent < piece->len;
	piece->len = piece->sent = 0;
	d->sending = !d->sending;
	return d->pieces[d->sending].len > 0;
}

static ssize_t download_pull(void *arg, uint64_t pos, char *out, size_t max)
{
	struct download *d = arg;

	(void)pos;
	assert(d->magic == DOWNLOAD_MAGIC && !d->suspended);
	d->server->moved = true;
	bool ready = next_piece(d);
	read_on(d);
	if (ready) {
		struct piece *piece = &d->pieces[d->sending];
		size_t left = piece->len - piece->sent, n = left < max ? left : max;
		memcpy(out, piece->data + piece->sent, n);
		piece->sent += n;
		d->given += (int64_t)n;
		return (ssize_t)n;
	}
	if (!d->busy) /* nothing could be read */
		return MHD_CONTENT_READER_END_WITH_ERROR;
	d->suspended = true;
	MHD_suspend_connection(d->mhd);
	return 0;
}

static void reply_is_over(void *arg)
{
	struct download *d = arg;

	assert(d->magic == DOWNLOAD_MAGIC && !d->suspended);
	d->mhd = NULL;
	if (!d->busy) /* else its job does it at its end */
		release(d);
}

/* Clients that take nothing: see http/stream.c, where the kernel is asked in the same way. */

static bool is_download_stuck(struct download *d, lapse_us now)
{
	int unsent = 0;

	ioctl(d->socket, SIOCOUTQ, &unsent);
	if (d->given - unsent >= d->taken + DOWNLOAD_PROGRESS_BYTES || d->suspended) {
		d->taken = d->given - unsent;
		d->progress = now;
	}
	return now - d->progress > d->server->engine->settings->request_timeout_ms * 1000;
}

void download_look(struct list *link, lapse_us now)
{
	struct download *d = CONTAINER_OF(link, struct download, link);

	if (d->mhd && is_download_stuck(d, now))
		shutdown(d->socket, SHUT_RDWR); /* libmicrohttpd sees the end */
}

struct MHD_Response *download_new(struct request *r)
{
	struct server *s = r->server;
	struct call *c = &r->call;

	assert(c->has_file && c->file_fd >= 0 && c->file_length >= 0);
	if (!transfers_have_place(s, c->owner))
		return NULL;
	struct download *d = mem_zalloc(1, sizeof(*d));
	d->magic = DOWNLOAD_MAGIC;
	d->server = s;
	d->owner = mem_strdup(c->owner);
	d->mhd = r->mhd;
	d->socket = connection_fd(r->connection);
	d->fd = c->file_fd;
	d->offset = c->file_offset;
	d->left = c->file_length;
	d->progress = clock_mono(s->engine->clock);
	list_init(&d->link);
	struct MHD_Response *m = MHD_create_response_from_callback(
		(uint64_t)c->file_length, BLOCK_BYTES, download_pull, d, reply_is_over);
	if (!m) {
		free(d->owner);
		free(d);
		return NULL;
	}
	bool taken = transfers_take_place(s, &d->place, d->owner);
	assert(taken);
	(void)taken;
	c->has_file = false; /* the descriptor is the download's now */
	list_append(&s->transfers.downloads, &d->link);
	transfers_watch(s);
	return m;
}
