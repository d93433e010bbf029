/* SPDX-License-Identifier: Apache-2.0 */
#include "lmtp/door.h"

#include <assert.h>
#include <string.h>

#include "base/address.h"
#include "base/mem.h"
#include "engine/durable.h"
#include "lmtp/delivery.h"
#include "lmtp/mime.h"
#include "mailbox/mailbox.h"

#define BACKLOG 128
#define READ_BYTES ((size_t)64 << 10)

#define LMTP_CONNECTION_MAGIC 0x4c4d5443u

struct lmtp_connection {
	uint32_t magic;
	struct list link;
	struct lmtp *door;
	struct lmtp_session session;
	union {
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	uv_timer_t timer;
	struct delivery *delivery; /* NULL = none is under way */
	int64_t reserved;
	struct buf rest; /* what came behind the mail that is under way */
	bool closing;
	int handles; /* that are not closed yet */
};

struct lmtp_write {
	uv_write_t request;
	char *bytes;
};

static void lmtp_pump(struct lmtp *l);
static void lmtp_take_input(struct lmtp_connection *c, const char *bytes, size_t n);

/* Closing */

static void lmtp_connection_closed(uv_handle_t *h)
{
	struct lmtp_connection *c = h->data;

	assert(c->magic == LMTP_CONNECTION_MAGIC && c->handles > 0);
	if (--c->handles > 0)
		return;
	list_remove(&c->link);
	c->door->connections_count--;
	lmtp_done(&c->session);
	buf_done(&c->rest);
	c->magic = 0;
	free(c);
}

static void lmtp_connection_close(struct lmtp_connection *c)
{
	if (c->closing)
		return;
	c->closing = true;
	if (c->delivery)
		c->delivery->connection = NULL;
	c->delivery = NULL;
	c->door->reserved -= c->reserved;
	c->reserved = 0;
	uv_close((uv_handle_t *)&c->io.stream, lmtp_connection_closed);
	uv_close((uv_handle_t *)&c->timer, lmtp_connection_closed);
}

static void lmtp_on_written(uv_write_t *w, int status)
{
	struct lmtp_write *x = CONTAINER_OF(w, struct lmtp_write, request);
	struct lmtp_connection *c = w->data;
	bool over = status < 0 || c->session.state == LMTP_CLOSING;

	free(x->bytes);
	free(x);
	if (over)
		lmtp_connection_close(c);
}

/* Sends what the session has to say. */
static void lmtp_flush(struct lmtp_connection *c)
{
	struct buf *out = &c->session.out;
	struct lmtp_write *x = mem_zalloc(1, sizeof(*x));
	uv_buf_t bytes;

	if (out->len == 0 || c->closing) {
		free(x);
		return;
	}
	bytes = uv_buf_init(NULL, (unsigned)out->len);
	x->bytes = bytes.base = buf_take(out);
	x->request.data = c;
	if (uv_write(&x->request, &c->io.stream, &bytes, 1, lmtp_on_written) < 0) {
		free(x->bytes);
		free(x);
		lmtp_connection_close(c);
	}
}

static void lmtp_on_timer(uv_timer_t *t)
{
	struct lmtp_connection *c = t->data;

	if (c->delivery)
		return; /* it waits for us */
	lmtp_close(&c->session, "4.4.2 nothing came for too long");
	lmtp_flush(c);
}

/* What the session asks for */

static struct lmtp_connection *lmtp_connection_of(struct lmtp_session *s)
{
	struct lmtp_connection *c = CONTAINER_OF(s, struct lmtp_connection, session);

	assert(c->magic == LMTP_CONNECTION_MAGIC);
	return c;
}

static int lmtp_check_recipient(struct lmtp_session *s, const char *address, const char **ret_why)
{
	struct engine *e = lmtp_connection_of(s)->door->engine;
	struct arena CLEANUP(arena_done) arena;
	struct local_target t;
	const char *why;

	arena_init(&arena);
	int r = address_is_valid(address, &why)
			? local_find(e->db, address, clock_wall(e->clock), &arena, &t)
			: 0;
	if (r > 0)
		return 250;
	mailboxes_of(e)->arrived[MAIL_REFUSED] += r == 0;
	*ret_why = r == 0 ? "5.1.1 no live mailbox has this address"
			  : "4.3.0 the store does not answer, try again";
	return r == 0 ? 550 : 451;
}

static bool lmtp_reserve(struct lmtp_session *s, int64_t bytes)
{
	struct lmtp_connection *c = lmtp_connection_of(s);
	struct lmtp *l = c->door;
	int64_t max = l->host.mail_max_bytes > LMTP_MEMORY_MIN_BYTES ? l->host.mail_max_bytes
								     : LMTP_MEMORY_MIN_BYTES;

	assert(bytes > 0 && c->reserved >= 0);
	if (l->stopping || l->reserved + bytes > max)
		return false;
	c->reserved += bytes;
	l->reserved += bytes;
	return true;
}

/* A mail is complete */

static void lmtp_delivery_ready(struct delivery *d)
{
	struct lmtp *l = d->door;

	assert(l->magic == LMTP_DOOR_MAGIC && l->parsing > 0);
	l->parsing--;
	list_append(&l->ready, &d->link);
	lmtp_pump(l);
}

/* A mail that was too much never becomes a delivery. */
static void lmtp_refuse_mail(struct lmtp_connection *c)
{
	for (size_t i = 0; i < c->session.recipients_count; i++)
		lmtp_answer(&c->session, c->session.too_much_code, c->session.too_much);
	mailboxes_of(c->door->engine)
		->arrived[c->session.too_much_code >= 500 ? MAIL_REFUSED : MAIL_DELAYED] +=
		(int64_t)c->session.recipients_count;
	c->door->reserved -= c->reserved;
	c->reserved = 0;
	lmtp_continue(&c->session);
}

static void lmtp_take_mail(struct lmtp_connection *c)
{
	struct lmtp *l = c->door;
	struct delivery *d;

	if (c->session.too_much) {
		lmtp_refuse_mail(c);
		return;
	}
	d = delivery_new(l->engine, &c->session);
	d->connection = c;
	d->door = l;
	d->ready = lmtp_delivery_ready;
	d->reserved = c->reserved;
	c->reserved = 0;
	c->delivery = d;
	uv_read_stop(&c->io.stream);
	list_append(&l->waiting, &d->link);
	lmtp_pump(l);
}

static void lmtp_take_input(struct lmtp_connection *c, const char *bytes, size_t n)
{
	while (n > 0 && !c->closing && !c->delivery && c->session.state != LMTP_CLOSING) {
		size_t used = lmtp_feed(&c->session, bytes, n);
		bytes += used;
		n -= used;
		if (c->session.state == LMTP_BUSY)
			lmtp_take_mail(c);
	}
	if (c->delivery && n > 0)
		buf_add(&c->rest, bytes, n);
	lmtp_flush(c);
}

/* The results of a mail, and what the client has said meanwhile. */
static void lmtp_reply(struct lmtp_connection *c, const struct delivery *d);

/* Transactions */

static void lmtp_start_parsing(struct lmtp *l)
{
	while (l->parsing < LMTP_PARSING_MAX && !list_empty(&l->waiting)) {
		struct delivery *d = CONTAINER_OF(list_shift(&l->waiting), struct delivery, link);
		l->parsing++;
		delivery_start(d);
	}
}

static int lmtp_run_batch(struct job *j, struct tx *tx)
{
	struct lmtp *l = CONTAINER_OF(j, struct lmtp, job);
	int r = LAPSE_OK;

	for (struct list *k = l->running.next; r == LAPSE_OK && k != &l->running; k = k->next)
		r = delivery_run(CONTAINER_OF(k, struct delivery, link), tx);
	return r;
}

static void lmtp_count(struct lmtp *l, const struct delivery *d)
{
	int64_t *arrived = mailboxes_of(l->engine)->arrived;

	for (size_t i = 0; i < d->recipients_count; i++) {
		int code = d->results[i].code;
		arrived[code == 250 ? MAIL_DELIVERED : code >= 500 ? MAIL_REFUSED : MAIL_DELAYED]++;
	}
}

/* Answers every mail of the batch, and lets go of it. */
static void lmtp_end_batch(struct lmtp *l)
{
	struct list done, *k;

	list_init(&done);
	list_move_all(&done, &l->running);
	while ((k = list_shift(&done))) {
		struct delivery *d = CONTAINER_OF(k, struct delivery, link);
		struct lmtp_connection *c = d->connection;
		lmtp_count(l, d);
		l->reserved -= d->reserved;
		if (c)
			lmtp_reply(c, d);
		delivery_release(d);
	}
}

static void lmtp_start_batch(struct lmtp *l)
{
	size_t recipients = 0;

	while (!list_empty(&l->ready) && recipients < LMTP_BATCH_MAX) {
		struct list *k = list_shift(&l->ready);
		recipients += CONTAINER_OF(k, struct delivery, link)->recipients_count;
		list_append(&l->running, k);
	}
	int r = job_run(&l->job, l->engine, l->engine->db, STORE_WRITE);
	if (r == LAPSE_OK) {
		l->mark = store_mark(l->engine->store);
		return;
	}
	for (struct list *k = l->running.next; k != &l->running; k = k->next)
		delivery_refuse(CONTAINER_OF(k, struct delivery, link), 451,
				"4.3.0 the mail could not be stored, try again");
	lmtp_end_batch(l);
}

/* Moves everything on that can move. */
static void lmtp_pump(struct lmtp *l)
{
	lmtp_start_parsing(l);
	if (l->job.state == JOB_COMMITTED && durable_want(l->engine, l->mark)) {
		job_finish(&l->job);
		lmtp_end_batch(l);
	}
	/* While a turn is being synced its requests come first: a batch that began now would only
	 * wait behind it. */
	if (l->job.state == JOB_IDLE && !list_empty(&l->ready) &&
	    !store_is_syncing(l->engine->store))
		lmtp_start_batch(l);
}

static void lmtp_on_prepare(uv_prepare_t *p)
{
	lmtp_pump(p->data);
}

/* Connections */

static void lmtp_on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *ret)
{
	(void)h;
	(void)suggested;
	*ret = uv_buf_init(mem_alloc(READ_BYTES), READ_BYTES);
}

static void lmtp_on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *bytes)
{
	struct lmtp_connection *c = s->data;

	if (n > 0) {
		uv_timer_again(&c->timer);
		lmtp_take_input(c, bytes->base, (size_t)n);
	} else if (n < 0) {
		lmtp_connection_close(c);
	}
	free(bytes->base);
}

static void lmtp_reply(struct lmtp_connection *c, const struct delivery *d)
{
	struct buf CLEANUP(buf_done) rest = c->rest;

	assert(c->delivery == d);
	c->rest = (struct buf){ 0 };
	c->delivery = NULL;
	for (size_t i = 0; i < d->recipients_count; i++)
		lmtp_answer(&c->session, d->results[i].code, d->results[i].text);
	lmtp_continue(&c->session);
	if (c->door->stopping)
		lmtp_close(&c->session, "4.3.2 the daemon stops");
	uv_timer_again(&c->timer);
	lmtp_take_input(c, rest.data, rest.len);
	if (!c->delivery && !c->closing)
		uv_read_start(&c->io.stream, lmtp_on_alloc, lmtp_on_read);
}

static void lmtp_handle_init(struct lmtp *l, struct lmtp_connection *c)
{
	if (l->is_unix)
		uv_pipe_init(l->loop, &c->io.pipe, 0);
	else
		uv_tcp_init(l->loop, &c->io.tcp);
	uv_timer_init(l->loop, &c->timer);
	c->io.stream.data = c->timer.data = c;
	c->handles = 2;
}

static void lmtp_on_connection(uv_stream_t *server, int status)
{
	struct lmtp *l = server->data;

	if (status < 0)
		return;
	struct lmtp_connection *c = mem_zalloc(1, sizeof(*c));
	c->magic = LMTP_CONNECTION_MAGIC;
	c->door = l;
	list_init(&c->link);
	list_append(&l->connections, &c->link);
	l->connections_count++;
	lmtp_handle_init(l, c);
	lmtp_start(&c->session, &l->host);
	if (uv_accept(server, &c->io.stream) < 0) {
		lmtp_connection_close(c);
		return;
	}
	if (l->stopping || l->connections_count > l->engine->settings->lmtp_connections_max) {
		buf_clear(&c->session.out);
		lmtp_close(&c->session, "4.3.2 too many connections, try again");
	}
	uv_timer_start(&c->timer, lmtp_on_timer, LMTP_IDLE_MS, LMTP_IDLE_MS);
	lmtp_flush(c);
	if (c->session.state != LMTP_CLOSING)
		uv_read_start(&c->io.stream, lmtp_on_alloc, lmtp_on_read);
}

/* The door */

void lmtp_open(struct lmtp *l, struct engine *e, uv_loop_t *loop, int fd, bool is_unix)
{
	assert(l->magic == 0 && fd >= 0);
	*l = (struct lmtp){ .magic = LMTP_DOOR_MAGIC,
			    .engine = e,
			    .loop = loop,
			    .is_unix = is_unix,
			    .host = { lmtp_check_recipient, lmtp_reserve,
				      e->settings->lmtp_mail_max_bytes },
			    .job = { .magic = JOB_MAGIC, .run = lmtp_run_batch } };
	list_init(&l->connections);
	list_init(&l->waiting);
	list_init(&l->ready);
	list_init(&l->running);
	mime_init();
	if (is_unix) {
		uv_pipe_init(loop, &l->listener.pipe, 0);
		uv_pipe_open(&l->listener.pipe, fd);
	} else {
		uv_tcp_init(loop, &l->listener.tcp);
		uv_tcp_open(&l->listener.tcp, fd);
	}
	l->listener.stream.data = l;
	uv_listen(&l->listener.stream, BACKLOG, lmtp_on_connection);
	uv_prepare_init(loop, &l->prepare);
	l->prepare.data = l;
	uv_prepare_start(&l->prepare, lmtp_on_prepare);
}

void lmtp_quiesce(struct lmtp *l)
{
	if (l->magic == 0)
		return;
	l->stopping = true;
	for (struct list *k = l->connections.next; k != &l->connections; k = k->next) {
		struct lmtp_connection *c = CONTAINER_OF(k, struct lmtp_connection, link);
		if (!c->delivery)
			lmtp_close(&c->session, "4.3.2 the daemon stops");
		lmtp_flush(c);
	}
}

bool lmtp_is_idle(const struct lmtp *l)
{
	return l->magic == 0 || (l->parsing == 0 && list_empty(&l->waiting) &&
				 list_empty(&l->ready) && list_empty(&l->running));
}

void lmtp_shut(struct lmtp *l)
{
	if (l->magic == 0)
		return;
	assert(lmtp_is_idle(l) && l->job.state == JOB_IDLE);
	for (struct list *k = l->connections.next, *next; k != &l->connections; k = next) {
		next = k->next;
		lmtp_connection_close(CONTAINER_OF(k, struct lmtp_connection, link));
	}
	uv_close((uv_handle_t *)&l->listener.stream, NULL);
	uv_close((uv_handle_t *)&l->prepare, NULL);
}
