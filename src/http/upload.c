/* SPDX-License-Identifier: Apache-2.0 */
#include "http/upload.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

#include "base/thread.h"
#include "http/request.h"
#include "http/server.h"
#include "http/turn.h"
#include "store/blob.h"

#define SMALL_BYTES ((size_t)64 << 10) /* a body up to this is stored by one job */
#define PIECE_BYTES ((size_t)256 << 10)
#define FIRST_BYTES ((size_t)4 << 10) /* a piece begins with so many and doubles */

struct piece {
	char *data;
	size_t len, cap;
};

#define UPLOAD_MAGIC 0x4c55504cu

struct upload {
	uint32_t magic;
	struct list link;   /* in transfers.uploads until it is complete */
	struct list flight; /* in transfers.flying until it is let go of */
	struct list turn;   /* in transfers.writes while its job waits */
	struct server *server;
	struct request *request; /* NULL once its client is gone */
	char *owner;
	struct transfer_place place; /* when it is `large` */
	struct blob blob;            /* the worker's while `busy` */
	struct piece pieces[2];
	int filling;   /* the piece that takes what comes; the other one is written, or empty */
	bool large;    /* it has a place among the transfers, and pieces of full size */
	bool busy;     /* a job is under way, or waits for its turn */
	bool starved;  /* both pieces are full: the connection is suspended */
	bool complete; /* the last byte has come */
	bool finished; /* the file is durable, or never will be */
	int64_t received, marked; /* bytes; at the last sign of progress */

	/* The job. */
	uv_work_t work;
	struct piece *writing;
	bool last;
	int err;
	struct problem problem;
};

static int too_many_uploads(struct problem *p)
{
	return problem_set(p, LAPSE_ELIMIT, NULL,
			   "too many uploads and downloads are under way (transfers_max)");
}

static bool take_place(struct upload *u)
{
	assert(u->magic == UPLOAD_MAGIC);
	u->large = u->large || transfers_take_place(u->server, &u->place, u->owner);
	return u->large;
}

/* What is on its way, of all and of this request's owner, its own upload included. */
static void sum_flying(struct request *r)
{
	const struct list *all = &r->server->transfers.flying;

	r->call.flying = r->call.flying_own = 0;
	for (struct list *l = all->next; l != all; l = l->next) {
		const struct upload *u = CONTAINER_OF(l, struct upload, flight);
		r->call.flying += u->received;
		if (strcmp(u->owner, r->call.owner) == 0)
			r->call.flying_own += u->received;
	}
}

static int ask_for_room(struct request *r, int64_t bytes)
{
	const struct quick *q = r->route->quick;

	assert(r->call.owner[0]);
	sum_flying(r);
	r->call.length = bytes;
	return q && q->admit ? q->admit(&r->call) : LAPSE_OK;
}

int upload_begin(struct request *r, int64_t length)
{
	struct server *s = r->server;
	const struct settings *set = s->engine->settings;
	struct upload *u;

	assert(!r->upload);
	/* First, because it is cheap: a client that keeps trying costs us little. */
	if (length > (int64_t)SMALL_BYTES && !transfers_have_place(s, r->call.owner))
		return too_many_uploads(&r->call.problem);
	int err = ask_for_room(r, length);
	if (err < 0)
		return err;
	if (length > set->attachment_max_bytes)
		return problem_set(&r->call.problem, LAPSE_ETOOLARGE, "body",
				   "an attachment may have %lld bytes (attachment_max_bytes)",
				   (long long)set->attachment_max_bytes);
	u = mem_zalloc(1, sizeof(*u));
	u->magic = UPLOAD_MAGIC;
	list_init(&u->link);
	list_init(&u->flight);
	list_init(&u->turn);
	u->server = s;
	u->request = r;
	u->owner = mem_strdup(r->call.owner);
	if (length > (int64_t)SMALL_BYTES)
		take_place(u);
	r->upload = u;
	list_append(&s->transfers.uploads, &u->link);
	list_append(&s->transfers.flying, &u->flight);
	transfers_watch(s);
	blob_init(&u->blob, set->data_dir, id_next(&s->engine->ids, clock_wall(s->engine->clock)),
		  set->attachment_max_bytes, strcmp(set->sqlite_synchronous, "off") != 0);
	return LAPSE_OK;
}

/* Letting go */

static void discard(uv_work_t *w) /* on a worker */
{
	blob_discard(&CONTAINER_OF(w, struct upload, work)->blob);
}

static void release_upload(struct upload *u)
{
	assert(u->magic == UPLOAD_MAGIC && !u->busy && !u->large);
	assert(!list_is_linked(&u->flight));
	u->magic = 0;
	free(u->owner);
	free(u);
}

static void free_upload(uv_work_t *w, int status)
{
	(void)status;
	release_upload(CONTAINER_OF(w, struct upload, work));
}

static void free_pieces(struct upload *u)
{
	assert(!u->busy);
	for (int i = 0; i < 2; i++) {
		free(u->pieces[i].data);
		u->pieces[i] = (struct piece){ 0 };
	}
	if (u->large)
		transfers_give_back(u->server, &u->place);
	u->large = false;
}

static void dispose(struct upload *u)
{
	assert(u->magic == UPLOAD_MAGIC && !u->request);
	free_pieces(u);
	if (u->blob.fd >= 0 && !u->blob.kept) {
		uv_queue_work(u->server->loop, &u->work, discard, free_upload);
		return;
	}
	blob_discard(&u->blob); /* only closes it */
	release_upload(u);
}

void upload_landed(struct upload *u)
{
	assert(u->magic == UPLOAD_MAGIC);
	list_remove(&u->flight);
}

void upload_drop(struct upload *u)
{
	assert(u->magic == UPLOAD_MAGIC && u->request);
	u->request = NULL;
	list_remove(&u->link);
	list_remove(&u->flight); /* its bytes are in a row, or about to go */
	if (list_is_linked(&u->turn))
		u->busy = false;
	list_remove(&u->turn);
	if (!u->busy) /* else its job does it at its end */
		dispose(u);
}

void upload_discard(struct server *s, struct blob *b)
{
	struct upload *u = mem_zalloc(1, sizeof(*u));

	u->magic = UPLOAD_MAGIC;
	list_init(&u->link);
	list_init(&u->flight);
	list_init(&u->turn);
	u->server = s;
	u->blob = *b;
	dispose(u);
}

/* Jobs */

static void upload_store(uv_work_t *w) /* on a worker */
{
	struct upload *u = CONTAINER_OF(w, struct upload, work);
	const struct piece *piece = u->writing;

	assert(u->magic == UPLOAD_MAGIC && u->busy);
	thread_give_way();
	u->err = blob_write(&u->blob, piece->data, piece->len, &u->problem);
	if (u->err == LAPSE_OK && u->last)
		u->err = blob_finish(&u->blob, &u->problem);
}

static void on_stored(uv_work_t *w, int status);

static void queue_job(struct upload *u)
{
	struct transfers *all = &u->server->transfers;

	assert(u->busy && !list_is_linked(&u->turn));
	all->jobs++;
	all->writers += !u->last;
	uv_queue_work(u->server->loop, &u->work, upload_store, on_stored);
}

static void start_next_job(struct transfers *all)
{
	struct list *next = all->writers < all->writers_max ? list_shift(&all->writes) : NULL;

	if (next)
		queue_job(CONTAINER_OF(next, struct upload, turn));
}

/* The last job syncs, which takes time and no processor: it does not wait for a turn. */
static void start_job(struct upload *u)
{
	assert(!u->busy && !u->finished);
	u->busy = true;
	u->writing = &u->pieces[u->filling];
	u->last = u->complete;
	u->filling = !u->filling;
	if (u->last || u->server->transfers.writers < u->server->transfers.writers_max)
		queue_job(u);
	else
		list_append(&u->server->transfers.writes, &u->turn);
}

/* The first error is the request's; what still comes of the body is read and forgotten. */
static void note_error(struct upload *u)
{
	struct request *r = u->request;

	assert(r->magic == REQUEST_MAGIC);
	if (u->err == LAPSE_OK || r->err < 0)
		return;
	r->err = u->err;
	r->call.problem = u->problem;
}

static void upload_finish(struct upload *u)
{
	struct request *r = u->request;

	assert(u->complete && !u->finished && !u->busy);
	u->finished = true;
	free_pieces(u);
	if (r->err == LAPSE_OK)
		r->call.upload = &u->blob;
	request_stored(r);
}

static void on_stored(uv_work_t *w, int status)
{
	struct upload *u = CONTAINER_OF(w, struct upload, work);

	assert(u->magic == UPLOAD_MAGIC && u->busy);
	assert(u->server->transfers.jobs > 0);
	(void)status;
	u->busy = false;
	u->server->transfers.jobs--;
	u->server->transfers.writers -= !u->last;
	start_next_job(&u->server->transfers);
	u->writing->len = 0;
	if (!u->request) {
		dispose(u);
		return;
	}
	note_error(u);
	if (u->last || (u->complete && u->err < 0))
		upload_finish(u);
	else if (u->complete)
		start_job(u);
	else if (u->starved) {
		u->starved = false;
		server_resume(u->request);
	}
}

void upload_complete(struct request *r)
{
	struct upload *u = r->upload;

	assert(u->magic == UPLOAD_MAGIC && !u->complete && !u->starved);
	u->complete = true;
	list_remove(&u->link);
	if (!u->busy)
		start_job(u);
}

/* Receiving */

static void reserve(struct piece *piece, size_t n, size_t max)
{
	assert(n <= max);
	if (piece->cap >= n)
		return;
	size_t cap = piece->cap ? piece->cap : FIRST_BYTES;
	while (cap < n)
		cap *= 2;
	piece->cap = cap < max ? cap : max;
	piece->data = mem_realloc(piece->data, piece->cap);
}

static void starve(struct upload *u)
{
	assert(!u->starved && u->busy);
	u->starved = true;
	server_suspend(u->request);
}

/* Makes room by giving the full piece to the worker. False = there is none now. */
static bool make_room(struct upload *u)
{
	struct request *r = u->request;

	if (!u->large && !take_place(u)) {
		r->err = too_many_uploads(&r->call.problem);
		return false;
	}
	if (u->pieces[u->filling].len < PIECE_BYTES)
		return true; /* it was a small one */
	r->err = ask_for_room(r, 0);
	if (r->err < 0)
		return false;
	if (u->busy) {
		starve(u);
		return false;
	}
	start_job(u);
	return true;
}

static size_t upload_fill(struct upload *u, const char *data, size_t n)
{
	struct piece *piece = &u->pieces[u->filling];
	size_t max = u->large ? PIECE_BYTES : SMALL_BYTES;
	size_t k = n < max - piece->len ? n : max - piece->len;

	if (k == 0)
		return 0;
	reserve(piece, u->large ? max : piece->len + k, max);
	assert(piece->len + k <= piece->cap);
	memcpy(piece->data + piece->len, data, k);
	piece->len += k;
	return k;
}

static void note_progress(struct upload *u)
{
	if (u->received - u->marked < UPLOAD_PROGRESS_BYTES)
		return;
	u->marked = u->received;
	server_progress(u->request);
}

bool upload_receive(struct request *r, const char *data, size_t *n)
{
	struct upload *u = r->upload;
	size_t left = *n;

	assert(u->magic == UPLOAD_MAGIC && u->request == r);
	assert(!u->starved && !u->complete);
	if (r->server->stopping)
		return false;
	while (left > 0 && r->err == LAPSE_OK) {
		size_t k = upload_fill(u, data + (*n - left), left);
		left -= k;
		u->received += (int64_t)k;
		if (u->received > u->blob.max)
			r->err = problem_set(
				&r->call.problem, LAPSE_ETOOLARGE, "body",
				"an attachment may have %lld bytes (attachment_max_bytes)",
				(long long)u->blob.max);
		else if (left > 0 && !make_room(u))
			break;
	}
	note_progress(u);
	if (r->err < 0) {
		bool go_on = request_forget(r, left);
		*n = 0;
		return go_on;
	}
	*n = left;
	return true;
}

/* libmicrohttpd takes a short read for all there is and waits for an edge that came with it: a
 * client that sent its last bytes and left would keep its memory until it is late. */
void upload_look(struct list *link)
{
	struct upload *u = CONTAINER_OF(link, struct upload, link);
	int fd = connection_fd(u->request->connection);
	char byte;

	if (!u->starved && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		shutdown(fd, SHUT_RDWR);
}
