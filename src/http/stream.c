/* SPDX-License-Identifier: Apache-2.0 */
#include "http/stream.h"

#include <assert.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "engine/replay.h"
#include "http/request.h"
#include "http/server.h"

#define STREAM_MAGIC 0x4c535452u
#define RETRY_MS 2000 /* the pause a client should make before it comes back */
#define ROUND_MS 100  /* a part of the streams is looked at so often, */
#define ROUND_PARTS 5 /* each of them in one of so many parts */
#define ENDING_MS 300 /* a client has so long to take the end of its stream */
#define BLOCK_BYTES ((size_t)16 << 10)

/* Each time a stream is woken costs a system call, 15 µs with what libmicrohttpd does around it:
 * more than an event itself. So the more often streams are woken, the longer one that has just
 * spoken waits before it is woken again: 10 µs for each wake of the last round, at most 50 ms. A
 * thousand streams with 50 events/s each are then woken 23 times a second each instead of 50; a few
 * streams notice nothing. */
#define PACE_US 10
#define PACE_MAX_US 50000

/* A quiet stream's cursor is moved up to this much before the present. Not closer, because trusted
 * time is stored only once a minute: after a crash and a clock set back it may go on from there. */
#define CURSOR_LAG_MS 60000

struct stream {
	uint32_t magic;
	struct list link;    /* in streams.all */
	struct list waiting; /* in streams.waiting, for a page */
	struct list paced;   /* in streams.paced, to be woken at `due` */
	lapse_us due;
	struct streams *streams;
	struct MHD_Connection *mhd;
	int fd;
	const char *owner, *token; /* of its request */
	int64_t token_id;
	bool engine_too;

	struct ring_reader reader;
	bool live;      /* it has a place in the ring */
	bool was_live;  /* its backlog is counted since */
	bool caught_up; /* it has been at the present, so its backlog is its own doing */
	bool reading;   /* a worker reads its page */
	bool suspended; /* until wake_stream() */
	bool broken;    /* it must end: it cannot go on where it was */

	struct buf text; /* to be sent before anything else, from `sent` on */
	size_t sent;

	lapse_us pulled; /* when libmicrohttpd last asked for more */
	lapse_us spoke;  /* when something was last given to it */
	int64_t given;   /* bytes, in all */
	int64_t taken;   /* the most of them that the client has ever taken */
	lapse_us stuck;  /* when that number last grew, or nothing was left to take */
};

struct streams {
	struct server *server;
	struct list all;
	int64_t count, gaps;
	uint64_t opened; /* ever */
	uv_timer_t timer;

	/* The pace. */
	struct list paced; /* earliest first */
	uv_timer_t pacer;
	lapse_us pace;
	int64_t wakes; /* in this round */
	int open_handles;

	/* Pages. */
	struct list waiting; /* longest first */
	struct replay replay;
	uv_work_t work;
	bool reading;
};

static lapse_us stream_now_us(const struct streams *all)
{
	return clock_mono(all->server->engine->clock);
}

static void wake_stream(struct stream *s)
{
	assert(s->magic == STREAM_MAGIC);
	if (!s->suspended)
		return;
	s->suspended = false;
	s->streams->wakes++;
	list_remove(&s->paced);
	MHD_resume_connection(s->mhd);
	server_kick(s->streams->server);
}

static void wake_paced(uv_timer_t *t)
{
	struct streams *all = CONTAINER_OF(t, struct streams, pacer);
	lapse_us now = stream_now_us(all);

	while (!list_empty(&all->paced)) {
		struct stream *s = CONTAINER_OF(all->paced.next, struct stream, paced);
		assert(s->suspended);
		if (s->due > now) {
			uv_timer_start(t, wake_paced, (uint64_t)(s->due - now) / 1000 + 1, 0);
			break;
		}
		wake_stream(s);
	}
}

static void wake_reader(struct ring_reader *r)
{
	struct stream *s = CONTAINER_OF(r, struct stream, reader);
	struct streams *all = s->streams;
	lapse_us now = stream_now_us(all);

	assert(s->magic == STREAM_MAGIC && s->streams);
	if (!s->suspended || list_is_linked(&s->paced))
		return;
	if (now - s->spoke >= all->pace) {
		wake_stream(s);
		return;
	}
	s->due = now + all->pace;
	list_append(&all->paced, &s->paced);
	if (!uv_is_active((uv_handle_t *)&all->pacer))
		uv_timer_start(&all->pacer, wake_paced, (uint64_t)all->pace / 1000 + 1, 0);
}

/* Whether the caller may still see what it asked for. */
static bool is_allowed(const struct stream *s)
{
	const struct engine *e = s->streams->server->engine;

	if (!s->token)
		return tokens_count(&e->tokens) == 0;
	const struct token *t = token_find(&e->tokens, s->token);
	return t && t->id == s->token_id && t->expires_at > clock_wall(e->clock);
}

static bool must_end(const struct stream *s)
{
	return s->broken || s->streams->server->stopping || !is_allowed(s);
}

/* What a stream says itself */

static void say_id(struct stream *s, int64_t seq)
{
	char id[ID_TEXT_LEN + 1];

	assert(seq >= 0);
	id_format(seq, id);
	buf_puts(&s->text, "id: ");
	buf_puts(&s->text, id);
	buf_putc(&s->text, '\n');
}

static void say_hello(struct stream *s)
{
	buf_printf(&s->text, ": lapse\nretry: %d\n", RETRY_MS);
	say_id(s, s->reader.cursor);
	buf_putc(&s->text, '\n');
}

static void say_alive(struct stream *s)
{
	struct engine *e = s->streams->server->engine;
	int64_t lately = id_floor(clock_wall(e->clock) - CURSOR_LAG_MS) - 1;

	buf_puts(&s->text, ": keep-alive\n");
	if (s->live && e->ring.held == 0 && lately > s->reader.cursor && cluster_is_current(e))
		s->reader.cursor = lately; /* nothing of that time can come any more */
	if (s->live)
		say_id(s, s->reader.cursor);
	buf_putc(&s->text, '\n');
}

/* Everything that was there when it asked has been sent. */
static void say_live(struct stream *s)
{
	s->caught_up = true;
	buf_puts(&s->text, ": live\n\n");
}

/* Events after `from`, up to and with `to`, are not going to be sent. */
static void say_gap(struct stream *s, const char *reason, int64_t from, int64_t to)
{
	s->streams->gaps++;
	say_id(s, to);
	buf_puts(&s->text, "event: gap\ndata: {");
	json_put_id(&s->text, "from", from);
	json_put_id(&s->text, "to", to);
	json_put_text(&s->text, "reason", reason);
	buf_puts(&s->text, "}\n\n");
}

/* Where the stream goes on */

/* Everything up to here is past its lifetime, swept or not. */
static int64_t due_up_to(const struct engine *e)
{
	return id_floor(time_sub(clock_wall(e->clock), e->settings->event_keep_ms)) - 1;
}

/* Events up to `lost` are gone. */
static void step_over(struct stream *s, int64_t lost)
{
	if (s->reader.cursor >= lost)
		return;
	if (s->reader.offset > 0) {
		s->broken = true; /* in the middle of an event: it comes back and hears of it */
		return;
	}
	assert(!s->broken);
	say_gap(s, "retention", s->reader.cursor, lost);
	s->reader.cursor = lost;
}

static bool is_too_far_behind(const struct stream *s)
{
	return s->caught_up && s->reader.offset == 0 &&
	       ring_backlog(&s->reader) >
		       (uint64_t)s->streams->server->engine->settings->stream_backlog_max;
}

static void read_next_page(struct streams *all);

/* Takes a place in the ring, or a place in the queue for a page. */
static void find_place(struct stream *s)
{
	struct engine *e = s->streams->server->engine;

	assert(!s->live && !s->reading && !list_is_linked(&s->waiting));
	if (is_too_far_behind(s)) {
		say_gap(s, "backlog", s->reader.cursor, s->reader.ring->newest);
		ring_skip(&s->reader);
	}
	step_over(s, e->ring.pruned);
	ring_forget(&e->ring, due_up_to(e));
	if (s->broken)
		return;
	s->live = ring_seek(&s->reader);
	s->was_live |= s->live;
	if (s->live)
		return;
	list_append(&s->streams->waiting, &s->waiting);
	read_next_page(s->streams);
}

static bool awaits_page(const struct stream *s)
{
	return s->reading || list_is_linked(&s->waiting);
}

/* Pages */

static void add_to_replay(struct streams *all, struct stream *s)
{
	struct replay_reader *r = &all->replay.readers[all->replay.count++];

	assert(s->magic == STREAM_MAGIC && !s->reading);
	*r = (struct replay_reader){ .owner = mem_strdup(s->owner),
				     .engine_too = s->engine_too,
				     .cursor = s->reader.cursor,
				     .partial = s->reader.partial,
				     .offset = s->reader.offset,
				     .tag = s };
	list_remove(&s->waiting);
	s->reading = true;
}

static void take_page(struct stream *s, struct replay_reader *page, int err)
{
	int64_t from = s->reader.cursor;

	assert(s->magic == STREAM_MAGIC && s->reading && !s->live);
	s->reading = false;
	step_over(s, s->reader.ring->pruned);
	if (err < 0 || page->lost)
		s->broken = true;
	else if (s->reader.cursor == from) { /* nothing was removed while the page was read */
		step_over(s, page->hidden);
		if (page->text.len)
			buf_add(&s->text, page->text.data, page->text.len);
		s->reader.cursor = page->cursor;
		s->reader.offset = page->offset;
		s->reader.seen += s->was_live ? page->events : 0;
	}
	if (s->text.len == 0 && !s->broken)
		find_place(s);
	if (s->text.len > 0 || s->broken || s->live)
		wake_stream(s);
}

static void run_replay(uv_work_t *w) /* on a worker */
{
	struct streams *all = CONTAINER_OF(w, struct streams, work);

	replay_run(all->server->engine, &all->replay);
}

static void on_replayed(uv_work_t *w, int status)
{
	struct streams *all = CONTAINER_OF(w, struct streams, work);
	struct replay *r = &all->replay;

	assert(all->reading && r->count > 0);
	(void)status;
	/* The first, for whom the stretch was chosen, goes to the end of the queue: the others may
	 * be much closer to the present. */
	for (size_t i = 1; i <= r->count; i++) {
		struct replay_reader *page = &r->readers[i % r->count];
		if (page->tag)
			take_page(page->tag, page, r->err);
	}
	replay_done(r);
	all->reading = false;
	read_next_page(all);
}

static void read_next_page(struct streams *all)
{
	struct list *l, *next;

	if (all->reading || list_empty(&all->waiting))
		return;
	all->reading = true;
	all->replay.from = CONTAINER_OF(all->waiting.next, struct stream, waiting)->reader.cursor;
	all->replay.due = due_up_to(all->server->engine);
	all->replay.upto = all->server->engine->ring.newest;
	for (l = all->waiting.next; l != &all->waiting && all->replay.count < REPLAY_READERS;
	     l = next) {
		struct stream *s = CONTAINER_OF(l, struct stream, waiting);
		next = l->next;
		if (s->reader.cursor >= all->replay.from)
			add_to_replay(all, s);
	}
	assert(all->replay.count > 0);
	uv_queue_work(all->server->loop, &all->work, run_replay, on_replayed);
}

/* Sending */

static size_t take_page_text(struct stream *s, char *out, size_t max)
{
	size_t left = s->text.len - s->sent, n = left < max ? left : max;

	assert(s->sent <= s->text.len);
	if (n > 0)
		memcpy(out, s->text.data + s->sent, n);
	s->sent += n;
	if (s->sent == s->text.len) {
		buf_done(&s->text);
		s->sent = 0;
	}
	return n;
}

static bool is_quiet(const struct stream *s)
{
	const struct settings *set = s->streams->server->engine->settings;

	return s->pulled - s->spoke >= set->stream_keepalive_ms * 1000;
}

static size_t stream_fill(struct stream *s, char *out, size_t max)
{
	size_t n = 0;

	for (;;) {
		assert(n <= max);
		n += take_page_text(s, out + n, max - n);
		if (n == max || s->broken)
			return n;
		if (s->live && is_too_far_behind(s))
			s->live = false;
		if (!s->live && !awaits_page(s)) {
			find_place(s);
			continue;
		}
		enum ring_state state = s->live ? ring_read(&s->reader, out, max, &n) : RING_IDLE;
		if (state == RING_BEHIND)
			s->live = false;
		else if (state == RING_IDLE && s->live && !s->caught_up)
			say_live(s);
		else if (state == RING_IDLE && n == 0 && is_quiet(s)) {
			s->spoke = s->pulled;
			say_alive(s);
		} else
			return n;
	}
}

static ssize_t stream_pull(void *arg, uint64_t pos, char *out, size_t max)
{
	struct stream *s = arg;

	(void)pos;
	assert(s->magic == STREAM_MAGIC && !s->suspended);
	s->streams->server->moved = true;
	s->pulled = stream_now_us(s->streams);
	size_t n = must_end(s) ? 0 : stream_fill(s, out, max);
	if (n > 0) {
		s->spoke = s->pulled;
		s->given += (int64_t)n;
		return (ssize_t)n;
	}
	if (must_end(s))
		return MHD_CONTENT_READER_END_OF_STREAM;
	s->suspended = true;
	MHD_suspend_connection(s->mhd);
	return 0;
}

enum MHD_Result stream_send(struct request *r)
{
	struct MHD_Response *m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
								   stream_pull, r->stream, NULL);

	assert(r->stream && r->stream->magic == STREAM_MAGIC);
	server_count_reply(r->server, r, 200);
	if (!m)
		return MHD_NO;
	MHD_add_response_header(m, "Content-Type", "text/event-stream");
	MHD_add_response_header(m, "Cache-Control", "no-store");
	MHD_add_response_header(m, "X-Accel-Buffering", "no");
	MHD_add_response_header(m, "Connection", "close");
	enum MHD_Result result = MHD_queue_response(r->mhd, 200, m);
	MHD_destroy_response(m);
	return result;
}

/* The round */

static void cut(struct stream *s)
{
	assert(s->magic == STREAM_MAGIC);
	s->broken = true;
	shutdown(s->fd, SHUT_RDWR); /* libmicrohttpd sees the end and cleans up */
	wake_stream(s);
}

static bool client_is_gone(const struct stream *s)
{
	char byte;

	return recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Whether the client has taken nothing for `ms`, although there is something for it. The kernel
 * knows better than we do: its buffers make a slow client look stuck, and one that is gone without
 * a word look healthy. What HTTP and TLS put around our bytes only makes `taken` smaller than it
 * is. */
static bool is_stream_stuck(struct stream *s, lapse_ms ms)
{
	lapse_us now = stream_now_us(s->streams);
	int unsent = 0;

	ioctl(s->fd, SIOCOUTQ, &unsent);
	if (unsent == 0 || s->given - unsent > s->taken) {
		s->taken = s->given - unsent;
		s->stuck = now;
	}
	return now - s->stuck > ms * 1000;
}

static void look_at(struct stream *s)
{
	const struct streams *all = s->streams;
	const struct settings *set = all->server->engine->settings;
	lapse_us now = stream_now_us(all);

	if (client_is_gone(s) || is_stream_stuck(s, set->request_timeout_ms) ||
	    (must_end(s) && !s->suspended && now - s->pulled > ENDING_MS * 1000))
		cut(s);
	else if (must_end(s) || now - s->spoke >= set->stream_keepalive_ms * 1000)
		wake_stream(s);
}

static void on_stream_round(uv_timer_t *t)
{
	struct streams *all = CONTAINER_OF(t, struct streams, timer);

	all->pace = all->wakes < PACE_MAX_US / PACE_US ? all->wakes * PACE_US : PACE_MAX_US;
	all->wakes = 0;
	for (int64_t n = all->count / ROUND_PARTS + 1; n > 0 && !list_empty(&all->all); n--) {
		struct list *l = list_shift(&all->all);
		list_append(&all->all, l);
		look_at(CONTAINER_OF(l, struct stream, link));
	}
}

/* Life */

struct stream_query {
	const char *after;
};

const struct json_field STREAM_QUERY[] = {
	{ "after", FIELD_TEXT, false, offsetof(struct stream_query, after), ID_TEXT_LEN,
	  ID_TEXT_LEN, "the id of the last event that was seen; Last-Event-ID comes before it" },
	{ 0 },
};

/* -1 = the caller gave none. */
static int read_cursor(struct call *c, int64_t *ret)
{
	const char *last = MHD_lookup_connection_value(request_of_call(c)->mhd, MHD_HEADER_KIND,
						       "Last-Event-ID");
	struct stream_query query = { 0 };
	int r = call_query(c, STREAM_QUERY, &query);

	*ret = -1;
	if (r < 0)
		return r;
	if (last && last[0] && !id_parse(last, ret))
		return problem_set(&c->problem, LAPSE_EINVAL, "Last-Event-ID",
				   "Last-Event-ID must be the id of an event, 16 hex digits");
	if (*ret < 0 && query.after && !id_parse(query.after, ret))
		return problem_set(&c->problem, LAPSE_EINVAL, "after",
				   "after must be the id of an event, 16 hex digits");
	return LAPSE_OK;
}

/* A cursor that this store has never given out: of another one, or of a time a restore or a power
 * loss has taken back. */
static bool is_unknown(const struct engine *e, int64_t cursor)
{
	/* A replica that has just started gives out the newest id of any kind. */
	const int64_t known = e->cluster.on ? e->ids.last : e->ring.newest;

	return cursor > e->ring.newest && cursor > known &&
	       cursor > id_floor(time_sub(clock_wall(e->clock), CURSOR_LAG_MS));
}

/* A cursor of a time that a restore has taken back is followed by everything since the restore. */
static void start_at(struct stream *s, const struct engine *e, int64_t cursor)
{
	bool unknown = cursor >= 0 && (is_unknown(e, cursor) || undone_has(e, cursor));

	if (cursor >= 0 && !unknown)
		s->reader.cursor = cursor;
	else if (unknown && undone_has(e, cursor) && e->undone.upto <= e->ring.newest)
		s->reader.cursor = e->undone.upto;
	say_hello(s);
	if (unknown)
		say_gap(s, "unknown", cursor, s->reader.cursor);
}

static struct stream *stream_new(struct request *r)
{
	struct streams *all = r->server->streams;
	struct stream *s = mem_zalloc(1, sizeof(*s));

	assert(!r->stream && r->call.owner[0]);
	s->magic = STREAM_MAGIC;
	s->streams = all;
	s->mhd = r->mhd;
	s->fd = connection_fd(r->connection);
	s->owner = r->call.owner;
	s->token = r->call.token;
	s->token_id = r->token_id;
	s->engine_too = r->call.admin && !r->acting;
	list_init(&s->waiting);
	list_init(&s->paced);
	s->pulled = s->stuck = stream_now_us(all);
	/* Streams that were opened together do not all say together that they are alive. */
	s->spoke = s->pulled - (lapse_us)(all->opened++ % 32) *
				       all->server->engine->settings->stream_keepalive_ms * 1000 /
				       64;
	s->reader.wake = wake_reader;
	ring_join(&all->server->engine->ring, &s->reader, s->owner, s->engine_too);
	if (all->count++ == 0)
		uv_timer_start(&all->timer, on_stream_round, ROUND_MS, ROUND_MS);
	list_append(&all->all, &s->link);
	return s;
}

void stream_free(struct stream *s)
{
	if (!s)
		return;
	assert(s->magic == STREAM_MAGIC && !s->suspended);
	struct streams *all = s->streams;
	for (size_t i = 0; s->reading && i < all->replay.count; i++)
		if (all->replay.readers[i].tag == s)
			all->replay.readers[i].tag = NULL;
	ring_leave(&s->reader);
	list_remove(&s->waiting);
	list_remove(&s->paced);
	list_remove(&s->link);
	assert(all->count > 0);
	if (--all->count == 0) {
		uv_timer_stop(&all->timer);
		all->pace = 0;
	}
	buf_done(&s->text);
	s->magic = 0;
	free(s);
}

/* Few enough to be counted each time one is opened. */
static int64_t streams_of(const struct streams *all, const char *owner)
{
	int64_t n = 0;

	for (const struct list *l = all->all.next; l != &all->all; l = l->next)
		n += strcmp(CONTAINER_OF(l, struct stream, link)->owner, owner) == 0;
	return n;
}

int stream_api_open(struct call *c)
{
	struct request *r = request_of_call(c);
	const struct settings *set = c->engine->settings;
	int64_t cursor;
	int err = read_cursor(c, &cursor);

	if (err < 0)
		return err;
	if (c->stopping)
		return LAPSE_EUNAVAILABLE;
	if (r->server->streams->count >= set->streams_max)
		return problem_set(&c->problem, LAPSE_ELIMIT, NULL,
				   "too many streams are open (streams_max)");
	if (streams_of(r->server->streams, c->owner) >=
	    quota_of(c->engine, c->owner, QUOTA_STREAMS))
		return quota_refuse(c->engine, c->owner, QUOTA_STREAMS, &c->problem);
	c->content_type = "text/event-stream";
	if (strcmp(r->method, "HEAD") == 0)
		return LAPSE_OK;
	if (cursor > c->engine->ring.newest && cluster_catch_up(c->engine) < 0)
		return LAPSE_EUNAVAILABLE; /* another replica may have given it out */
	r->stream = stream_new(r);
	start_at(r->stream, c->engine, cursor);
	return LAPSE_OK;
}

void streams_init(struct server *s)
{
	struct streams *all = mem_zalloc(1, sizeof(*all));

	assert(!s->streams);
	s->streams = all;
	all->server = s;
	list_init(&all->all);
	list_init(&all->waiting);
	list_init(&all->paced);
	uv_timer_init(s->loop, &all->timer);
	uv_timer_init(s->loop, &all->pacer);
	all->timer.data = all->pacer.data = all;
	all->open_handles = 2;
	/* What was written since the store was loaded is not in the ring: readers find it in the
	 * table. */
	ring_start(&s->engine->ring, s->engine->ids.last, s->engine->ring.pruned);
	ring_enable(&s->engine->ring, (size_t)s->engine->settings->event_ring_bytes);
}

void streams_end(struct server *s)
{
	for (struct list *l = s->streams->all.next; l != &s->streams->all; l = l->next)
		wake_stream(CONTAINER_OF(l, struct stream, link));
}

bool streams_are_idle(const struct server *s)
{
	return !s->streams->reading;
}

static void on_closed(uv_handle_t *h)
{
	struct streams *all = h->data;

	if (--all->open_handles == 0)
		free(all);
}

void streams_done(struct server *s)
{
	assert(s->streams->count == 0 && !s->streams->reading);
	uv_close((uv_handle_t *)&s->streams->timer, on_closed);
	uv_close((uv_handle_t *)&s->streams->pacer, on_closed);
	s->streams = NULL;
}

void streams_write_metrics(const struct server *s, struct buf *out)
{
	metrics_family(out, METRIC_STREAMS);
	metrics_sample(out, METRIC_STREAMS, "", s->streams->count);
	metrics_family(out, METRIC_STREAM_GAPS);
	metrics_sample(out, METRIC_STREAM_GAPS, "", s->streams->gaps);
}
