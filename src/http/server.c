/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/parse.h"
#include "http/reply.h"
#include "http/request.h"
#include "http/stream.h"
#include "http/turn.h"
#include "http/upload.h"

#define PUMPS_MAX 8  /* turns before timers and signals get a look in */
#define PUMP_US 2000 /* or this time, whichever is over first */
/* Memory of a connection beside the request's headers. libmicrohttpd clears all of it for every
 * request, so it is as small as the answer's own headers and a piece of body allow. */
#define HEADER_ROOM 4096
#define CROWDED_US 10000  /* a store that was used within this time is wanted again */
#define LATE_CHECK_MS 100 /* how exactly late connections, and requests set aside, are noticed */
#define ASKED_MAX 16      /* a request that is not answered by then is suspended */
#define HELD_REST_MS 1    /* libmicrohttpd rests so long when all it has are held requests */

static lapse_us server_now_us(const struct server *s)
{
	return clock_mono(s->engine->clock);
}

/* Connections */

void server_progress(struct request *r)
{
	if (r->connection->phase == PHASE_BODY)
		connection_enter(r->connection, PHASE_BODY, r->server->pumped);
}

void server_suspend(struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && !r->suspended);
	connection_enter(r->connection, PHASE_WORKING, r->server->pumped);
	MHD_suspend_connection(r->mhd);
}

void server_resume(struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && !r->suspended);
	/* The last pump may be long ago. */
	connection_enter(r->connection, PHASE_BODY, server_now_us(r->server));
	MHD_resume_connection(r->mhd);
	server_kick(r->server);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = connection_open(arg, mhd);
		return;
	}
	connection_close(*context);
	*context = NULL;
}

/* The request line is there; the rest may be long in coming. */
static void *on_request_line(void *arg, const char *line, struct MHD_Connection *mhd)
{
	struct server *s = arg;
	struct connection *c = connection_of(mhd);

	assert(s->magic == SERVER_MAGIC);
	connection_enter(c, PHASE_HEAD, s->pumped);
	c->target_len = head_target_length(line, &c->target_is_clean);
	return NULL;
}

/* An answer cannot be queued in the middle of a body: it goes to the socket directly, and the
 * connection is closed. Over TLS the client sees only that. */
void server_say_error(struct request *r)
{
	enum lapse_error err = (enum lapse_error)r->err;
	int status = http_status_of(err);

	assert(r->err < 0);
	server_count_reply(r->server, r, status);
	connection_say(r->connection, status, http_code_of(err),
		       problem_text(&r->call.problem, err));
}

/* Requests */

/* To suspend a connection and to resume it takes a system call each, and one more to see that it
 * has nothing to read. One that is held instead stays in libmicrohttpd's hands, which asks for the
 * answer each time it runs: cheaper for as long as most turns take. It also notices that the client
 * has left, so only requests whose handlers use nothing of the connection are held. */
static bool can_be_held(const struct request *r)
{
	return r->route->tx == TX_WRITE && !r->mcp && !r->upload && !parse_is_long(r);
}

static void suspend_request(struct request *r)
{
	assert(!r->suspended);
	r->suspended = true;
	MHD_suspend_connection(r->mhd);
}

static enum MHD_Result asked_for_answer(struct server *s, struct request *r)
{
	assert(r->state == REQUEST_QUEUED || r->state == REQUEST_WAITING);
	s->asked++;
	if (++r->asked >= ASKED_MAX || r->state == REQUEST_WAITING)
		suspend_request(r);
	return MHD_YES;
}

static enum MHD_Result complete_request(struct server *s, struct request *r)
{
	assert(r->state == REQUEST_RECEIVING && !r->counted);
	s->busy++;
	r->counted = true;
	request_complete(r);
	if (r->err < 0)
		request_enter(r, REQUEST_ANSWERED);
	if (r->state == REQUEST_ANSWERED)
		return request_send(r);
	connection_enter(r->connection, PHASE_WORKING, s->pumped);
	if (!can_be_held(r))
		suspend_request(r);
	if (r->upload || parse_is_long(r)) {
		request_enter(r, REQUEST_STORING);
		if (r->upload)
			upload_complete(r);
		else
			parse_start(r);
	} else {
		turn_enqueue(s, r);
	}
	return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *data_size, void **context)
{
	struct server *s = arg;
	struct request *r = *context;

	assert(s->magic == SERVER_MAGIC);
	if (r && (r->state == REQUEST_QUEUED || r->state == REQUEST_WAITING))
		return asked_for_answer(s, r);
	s->moved = true;
	if (!r) {
		struct connection *c = connection_of(mhd);
		struct head_line line = { method, url, version, c->target_len };
		if (c->phase == PHASE_REFUSED)
			return MHD_NO;
		connection_enter(c, PHASE_BODY, s->pumped);
		*context = r = request_new(c, &line);
		r->call.stopping = s->stopping;
		/* Answered at once; everything else waits for its body, so that the connection
		 * lives. */
		if (!request_answers_early(r))
			return MHD_YES;
		r->close_after = true;
		return complete_request(s, r);
	}
	assert(r->magic == REQUEST_MAGIC);
	if (*data_size > 0)
		return !pace_take(r) || request_receive(r, data, data_size) ? MHD_YES : MHD_NO;
	if (r->state == REQUEST_RECEIVING)
		return complete_request(s, r);
	assert(r->state == REQUEST_ANSWERED);
	return request_send(r);
}

void server_forget(struct request *r)
{
	struct server *s = r->server;

	assert(!r->counted || s->busy > 0);
	if (r->counted)
		s->busy--;
	request_free(r);
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct server *s = arg;
	struct request *r = *context;

	assert(s->magic == SERVER_MAGIC);
	(void)code;
	connection_enter(r ? r->connection : connection_of(mhd), PHASE_IDLE, s->pumped);
	*context = NULL;
	if (r && (r->state == REQUEST_QUEUED || r->state == REQUEST_WAITING))
		request_part(r);
	else if (r)
		server_forget(r);
}

/* We decode paths and queries ourselves: %2F must not become a separator. */
static size_t keep_escapes(void *arg, struct MHD_Connection *mhd, char *text)
{
	(void)arg;
	(void)mhd;
	return strlen(text);
}

static void on_mhd_log(void *arg, const char *format, va_list ap)
{
	struct server *s = arg;
	char text[256];

	assert(s->magic == SERVER_MAGIC);
	if (strstr(format, "Content-Length"))
		connections_end_malformed(s);
	vsnprintf(text, sizeof(text), format, ap);
	text[strcspn(text, "\n")] = '\0';
	log_message(s->engine->log, LOG_DEBUG, "http.library", "%s", text);
}

/* The pump */

static void on_server_timer(uv_timer_t *t)
{
	server_pump(CONTAINER_OF(t, struct server, timer));
}

static void on_server_again(uv_idle_t *i)
{
	server_pump(CONTAINER_OF(i, struct server, again));
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	server_pump(CONTAINER_OF(p, struct server, poll));
}

/* `worked` = the last turn has answered something, and libmicrohttpd is to send it. */
static void arm_timer(struct server *s, bool worked)
{
	MHD_UNSIGNED_LONG_LONG ms = LATE_CHECK_MS;
	MHD_UNSIGNED_LONG_LONG wanted;
	int64_t paced = pace_wait_ms(s);

	if (MHD_get_timeout(s->mhd, &wanted) == MHD_YES && wanted < ms)
		ms = wanted;
	if (ms == 0 && s->asked > 0 && !s->moved)
		ms = HELD_REST_MS;
	if (paced >= 0 && (MHD_UNSIGNED_LONG_LONG)paced < ms)
		ms = (MHD_UNSIGNED_LONG_LONG)paced;
	if (worked || (!fair_is_empty(&s->queue) && !store_is_syncing(s->engine->store)))
		ms = 0;
	if (ms == 0)
		server_kick(s);
	if (ms == 0 || (ms == LATE_CHECK_MS && list_empty(&s->aside.requests) &&
			!connections_have_deadlines(s))) {
		uv_timer_stop(&s->timer);
		return;
	}
	uv_timer_start(&s->timer, on_server_timer, ms, 0);
}

void server_pump(struct server *s)
{
	const lapse_us begun = server_now_us(s);
	bool worked = true;

	assert(s->magic == SERVER_MAGIC && !s->pumping);
	s->pumping = true;
	uv_idle_stop(&s->again);
	for (int i = 0; i < PUMPS_MAX; i++) {
		s->pumped = server_now_us(s);
		s->second = clock_wall(s->engine->system) / 1000;
		s->asked = 0;
		s->moved = false;
		pace_begin(s);
		MHD_run(s->mhd);
		pace_end(s);
		worked = turn_run(s);
		if (!worked || server_now_us(s) - begun > PUMP_US)
			break;
	}
	connections_end_late(s, s->pumped);
	s->pumping = false;
	arm_timer(s, worked);
}

void server_kick(struct server *s)
{
	/* No timer of 0 ms: libuv runs one that was started by itself again and again, and looks at
	 * nothing else meanwhile. */
	if (!s->pumping)
		uv_idle_start(&s->again, on_server_again);
}

/* Life */

static struct MHD_Daemon *start_mhd(struct server *s, const struct server_config *config)
{
	const struct settings *set = s->engine->settings;
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)config->tls_retrieve },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)config->tls_priorities },
		{ MHD_OPTION_END, 0, NULL },
	};

	if (!config->tls_retrieve)
		tls[0].option = MHD_OPTION_END;
	else
		flags |= MHD_USE_TLS;
	return MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, s,
		MHD_OPTION_LISTEN_SOCKET, config->fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
		s, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, s, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, s, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, s,
		MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)(set->connections_max + SERVER_SPARE_CONNECTIONS),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(set->headers_max_bytes + HEADER_ROOM),
		MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

int server_start(struct server *s, const struct server_config *config, struct problem *p)
{
	assert(config->engine && config->loop);
	*s = (struct server){ .magic = SERVER_MAGIC,
			      .engine = config->engine,
			      .loop = config->loop,
			      .tls = config->tls_retrieve != NULL };
	fair_init(&s->queue);
	aside_init(&s->aside);
	pace_init(&s->pace);
	list_init(&s->spare);
	connections_init(s);
	s->mhd = start_mhd(s, config);
	if (!s->mhd)
		return problem_set(p, LAPSE_EINTERNAL, NULL, "cannot start the HTTP server");
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	uv_timer_init(s->loop, &s->timer);
	uv_idle_init(s->loop, &s->again);
	turn_init(s);
	streams_init(s);
	transfers_init(s);
	uv_poll_init(s->loop, &s->poll, info->epoll_fd);
	uv_poll_start(&s->poll, UV_READABLE, on_readable);
	return LAPSE_OK;
}

void server_quiesce(struct server *s)
{
	assert(s->magic == SERVER_MAGIC && !s->stopping);
	MHD_socket fd = MHD_quiesce_daemon(s->mhd);

	if (fd != MHD_INVALID_SOCKET)
		close(fd);
	s->stopping = true;
	calls_wake_all(s->engine);
	streams_end(s);
	server_kick(s);
}

bool server_is_crowded(const struct server *s)
{
	return store_is_syncing(s->engine->store) || !fair_is_empty(&s->queue) ||
	       server_now_us(s) - s->last_turn < CROWDED_US;
}

bool server_is_idle(const struct server *s)
{
	return s->busy == 0 && s->transfers.jobs == 0 && s->parsing == 0 &&
	       !store_is_syncing(s->engine->store) && streams_are_idle(s) &&
	       fair_is_empty(&s->queue) && list_empty(&s->pace.waiting) &&
	       !calls_are_waiting(s->engine);
}

void server_stop(struct server *s)
{
	assert(s->magic == SERVER_MAGIC && s->busy == 0);
	assert(!calls_are_waiting(s->engine) && fair_is_empty(&s->queue));
	uv_poll_stop(&s->poll);
	uv_close((uv_handle_t *)&s->poll, NULL);
	uv_close((uv_handle_t *)&s->timer, NULL);
	uv_close((uv_handle_t *)&s->again, NULL);
	turn_done(s);
	MHD_stop_daemon(s->mhd); /* ends uploads that were not complete, too */
	transfers_done(s);
	if (s->ok)
		MHD_destroy_response(s->ok);
	requests_done(s);
	streams_done(s);
	s->mhd = NULL;
	s->magic = 0;
}

/* Figures */

void server_note_loop(struct server *s, lapse_us busy)
{
	assert(busy >= 0);
	histogram_add(&s->loop_stall, HISTOGRAM_SECONDS, busy);
	if (busy > s->loop_stall_max_us)
		s->loop_stall_max_us = busy;
}

void server_log_failed_turn(struct server *s, int err)
{
	assert(err < 0);
	log_message(s->engine->log, LOG_ERROR, "turn.failed",
		    "%s (%s): the turn's requests were answered 503", err_text(err),
		    db_error(s->engine->db));
}

void server_count_reply(struct server *s, const struct request *r, int status)
{
	struct route_stats *stats = &s->stats[r->route ? (size_t)(r->route - ROUTES) : ROUTES_MAX];
	int i = 0;

	assert(!r->route || (size_t)(r->route - ROUTES) < ROUTES_MAX);
	while (i < STATUS_MAX - 1 && stats->replies[i].status != 0 &&
	       stats->replies[i].status != status)
		i++;
	stats->replies[i].status = status;
	stats->replies[i].count++;
	histogram_add(&stats->seconds, HISTOGRAM_SECONDS, server_now_us(s) - r->complete);
}

static void route_label(size_t i, char *out, size_t size)
{
	if (i == ROUTES_MAX)
		snprintf(out, size, "route=\"none\"");
	else
		snprintf(out, size, "route=\"%s %s\"", ROUTES[i].method, ROUTES[i].path);
}

static void write_route_metrics(const struct server *s, enum metric family, struct buf *out)
{
	metrics_family(out, family);
	for (size_t i = 0; i <= ROUTES_MAX; i++) {
		const struct route_stats *stats = &s->stats[i];
		char route[160], labels[200];
		if (stats->replies[0].status == 0)
			continue;
		route_label(i, route, sizeof(route));
		if (family == METRIC_HTTP_SECONDS) {
			metrics_histogram(out, family, route, HISTOGRAM_SECONDS, &stats->seconds,
					  s->engine->settings->metrics_detail);
			continue;
		}
		for (int j = 0; j < STATUS_MAX && stats->replies[j].status; j++) {
			snprintf(labels, sizeof(labels), "%s,status=\"%d\"", route,
				 stats->replies[j].status);
			metrics_sample(out, family, labels, stats->replies[j].count);
		}
	}
}

void server_write_metrics(const struct server *s, struct buf *out)
{
	write_route_metrics(s, METRIC_HTTP_REQUESTS, out);
	write_route_metrics(s, METRIC_HTTP_SECONDS, out);
	metrics_family(out, METRIC_HTTP_CONNECTIONS);
	metrics_sample(out, METRIC_HTTP_CONNECTIONS, "", s->connections.count);
	metrics_family(out, METRIC_TRANSFERS);
	metrics_sample(out, METRIC_TRANSFERS, "", s->transfers.count);
	metrics_family(out, METRIC_BODIES_WAITED);
	metrics_sample(out, METRIC_BODIES_WAITED, "", s->pace.waited);
	streams_write_metrics(s, out);
	metrics_family(out, METRIC_COMMIT_BATCH);
	metrics_histogram(out, METRIC_COMMIT_BATCH, "", HISTOGRAM_REQUESTS, &s->commit_batch, true);
	metrics_family(out, METRIC_LOOP_STALL);
	metrics_histogram(out, METRIC_LOOP_STALL, "", HISTOGRAM_SECONDS, &s->loop_stall, true);
	metrics_family(out, METRIC_LOOP_STALL_MAX);
	metrics_sample_real(out, METRIC_LOOP_STALL_MAX, "", (double)s->loop_stall_max_us / 1e6);
	metrics_family(out, METRIC_BUILD_INFO);
	metrics_sample(out, METRIC_BUILD_INFO, "version=\"" LAPSE_VERSION "\"", 1);
}
