/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/park.h"
#include "http/reply.h"
#include "http/request.h"
#include "http/stream.h"
#include "http/turn.h"
#include "http/upload.h"

#define SPARE_CONNECTIONS 64 /* beyond ours, so that a client too many gets 503 and not silence */
#define PUMPS_MAX 8          /* turns before timers and signals get a look in */
/* Memory of a connection beside the request's headers. libmicrohttpd clears all of it for every
 * request, so it is as small as the answer's own headers and a piece of body allow. */
#define HEADER_ROOM 4096
#define CROWDED_US 10000  /* a store that was used within this time is wanted again */
#define LATE_CHECK_MS 100 /* how exactly late connections are noticed */

static lapse_us now_us(const struct server *s)
{
	return clock_mono(s->engine->clock);
}

/* Connections */

static bool peer_is_loopback(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *a = info ? info->client_addr : NULL;

	if (!a)
		return false;
	if (a->sa_family == AF_UNIX)
		return true;
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >>
			       24 ==
		       127;
	if (a->sa_family != AF_INET6)
		return false;
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static void begin_deadline(struct connection *c, lapse_us now)
{
	c->since = now;
	list_remove(&c->link);
	list_append(&c->server->connections, &c->link);
}

static void await_request(struct connection *c)
{
	c->asking = false;
	begin_deadline(c, c->server->pumped);
}

void server_progress(struct request *r)
{
	if (list_is_linked(&r->connection->link))
		begin_deadline(r->connection, r->server->pumped);
}

void server_suspend(struct request *r)
{
	list_remove(&r->connection->link);
	MHD_suspend_connection(r->mhd);
}

void server_resume(struct request *r)
{
	begin_deadline(r->connection, now_us(r->server)); /* the last pump may be long ago */
	MHD_resume_connection(r->mhd);
	server_kick(r->server);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct server *s = arg;
	struct connection *c = *context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		c = mem_zalloc(1, sizeof(*c));
		list_init(&c->link);
		c->server = s;
		c->mhd = mhd;
		c->loopback = peer_is_loopback(mhd);
		c->over_limit = ++s->connections_count > s->engine->settings->connections_max;
		*context = c;
		await_request(c);
		return;
	}
	s->connections_count--;
	list_remove(&c->link);
	free(c);
	*context = NULL;
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info->socket_context;
}

/* The request line is there; the rest may be long in coming. */
static void *on_request_line(void *arg, const char *line, struct MHD_Connection *mhd)
{
	(void)arg;
	(void)line;
	connection_of(mhd)->asking = true;
	return NULL;
}

static void say_timeout(const struct connection *c, int fd)
{
	static const char text[] = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
				   "Content-Type: application/json\r\nContent-Length: 79\r\n\r\n"
				   "{\"error\":{\"code\":\"timeout\",\"message\":\"the request was "
				   "not complete in time\"}}\n\n";

	/* Nothing has been sent on this connection for the request, so this is the whole answer. An
	 * idle one just ends: its client would take this for the answer to its next request. */
	if (c->asking && !c->server->tls)
		send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* An answer cannot be queued in the middle of a body: it goes to the socket directly, and the
 * connection is closed. Over TLS the client sees only that. */
void server_say_error(struct request *r)
{
	struct buf CLEANUP(buf_done) body = { 0 }, text = { 0 };
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	int status = http_status_of((enum lapse_error)r->err);

	server_count_reply(r->server, r, status);
	if (r->server->tls)
		return;
	http_write_error(&body, (enum lapse_error)r->err, &r->call.problem, false);
	buf_printf(&text,
		   "HTTP/1.1 %d Refused\r\nConnection: close\r\nContent-Type: application/json\r\n"
		   "Content-Length: %zu\r\n\r\n%s",
		   status, body.len, buf_text(&body));
	send(info->connect_fd, text.data, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void end_late(struct server *s)
{
	lapse_us limit = s->pumped - s->engine->settings->request_timeout_ms * 1000;

	while (!list_empty(&s->connections)) {
		struct connection *c = CONTAINER_OF(s->connections.next, struct connection, link);
		if (c->since > limit)
			break;
		list_remove(&c->link);
		const union MHD_ConnectionInfo *info =
			MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
		say_timeout(c, info->connect_fd);
		shutdown(info->connect_fd,
			 SHUT_RDWR); /* libmicrohttpd sees the end and cleans up */
	}
}

/* Requests */

static void begin_request(struct server *s, struct request *r)
{
	if (r->connection->over_limit) {
		r->close_after = true;
		r->err = problem_set(&r->call.problem, LAPSE_EUNAVAILABLE, NULL,
				     "too many connections (connections_max)");
	}
	r->call.stopping = s->stopping;
}

static enum MHD_Result complete_request(struct server *s, struct request *r)
{
	list_remove(&r->connection->link);
	s->busy++;
	r->counted = true;
	request_complete(r);
	if (r->err < 0 || r->state == REQUEST_ANSWERED) {
		r->state = REQUEST_ANSWERED;
		return request_send(r);
	}
	r->suspended = true;
	MHD_suspend_connection(r->mhd);
	if (r->upload) {
		r->state = REQUEST_STORING;
		upload_complete(r);
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

	(void)version;
	if (!r) {
		*context = r = request_new(connection_of(mhd), url, method);
		begin_request(s, r);
		/* Answered at once; everything else waits for its body, so that the connection
		 * lives. */
		if (!request_answers_early(r))
			return MHD_YES;
		r->close_after = true;
		return complete_request(s, r);
	}
	assert(r->magic == REQUEST_MAGIC);
	if (*data_size > 0) {
		return request_receive(r, data, data_size) ? MHD_YES : MHD_NO;
	}
	if (r->state == REQUEST_RECEIVING)
		return complete_request(s, r);
	return r->state == REQUEST_ANSWERED ? request_send(r) : MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct server *s = arg;
	struct request *r = *context;

	(void)mhd;
	(void)code;
	if (!r)
		return;
	if (r->counted)
		s->busy--;
	await_request(r->connection);
	request_free(r);
	*context = NULL;
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

	vsnprintf(text, sizeof(text), format, ap);
	text[strcspn(text, "\n")] = '\0';
	log_message(s->engine->log, LOG_DEBUG, "http.library", "%s", text);
}

/* The pump */

static void on_timer(uv_timer_t *t)
{
	server_pump(CONTAINER_OF(t, struct server, timer));
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	server_pump(CONTAINER_OF(p, struct server, poll));
}

static void arm_timer(struct server *s)
{
	MHD_UNSIGNED_LONG_LONG ms = LATE_CHECK_MS;
	MHD_UNSIGNED_LONG_LONG wanted;

	if (MHD_get_timeout(s->mhd, &wanted) == MHD_YES && wanted < ms)
		ms = wanted;
	if (!list_empty(&s->queue) && !s->engine->syncing)
		ms = 0;
	else if (list_empty(&s->connections) && ms == LATE_CHECK_MS) {
		uv_timer_stop(&s->timer);
		return;
	}
	uv_timer_start(&s->timer, on_timer, ms, 0);
}

void server_pump(struct server *s)
{
	s->pumping = true;
	for (int i = 0; i < PUMPS_MAX; i++) {
		s->pumped = now_us(s);
		s->second = clock_wall(s->engine->system) / 1000;
		MHD_run(s->mhd);
		if (!turn_run(s))
			break;
	}
	end_late(s);
	s->pumping = false;
	s->kicked = false;
	arm_timer(s);
}

void server_kick(struct server *s)
{
	if (s->pumping || s->kicked)
		return;
	s->kicked = true;
	uv_timer_start(&s->timer, on_timer, 0, 0);
}

/* Life */

static struct MHD_Daemon *start_mhd(struct server *s, const struct server_config *config)
{
	const struct settings *set = s->engine->settings;
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)config->tls_cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)config->tls_key },
		{ MHD_OPTION_END, 0, NULL },
	};

	if (!config->tls_cert)
		tls[0].option = MHD_OPTION_END;
	else
		flags |= MHD_USE_TLS;
	return MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, s,
		MHD_OPTION_LISTEN_SOCKET, config->fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
		s, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, s, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, s, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, s,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)(set->connections_max + SPARE_CONNECTIONS),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(set->headers_max_bytes + HEADER_ROOM),
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

int server_start(struct server *s, const struct server_config *config, struct problem *p)
{
	*s = (struct server){ .engine = config->engine,
			      .loop = config->loop,
			      .tls = config->tls_cert != NULL };
	list_init(&s->queue);
	list_init(&s->waiting);
	list_init(&s->keyed);
	list_init(&s->spare);
	list_init(&s->connections);
	s->mhd = start_mhd(s, config);
	if (!s->mhd)
		return problem_set(p, LAPSE_EINTERNAL, NULL, "cannot start the HTTP server%s",
				   s->tls ? ": are tls_cert and tls_key a matching pair in PEM?"
					  : "");
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	uv_timer_init(s->loop, &s->timer);
	turn_init(s);
	streams_init(s);
	transfers_init(s);
	uv_poll_init(s->loop, &s->poll, info->epoll_fd);
	uv_poll_start(&s->poll, UV_READABLE, on_readable);
	return LAPSE_OK;
}

void server_quiesce(struct server *s)
{
	MHD_socket fd = MHD_quiesce_daemon(s->mhd);

	if (fd != MHD_INVALID_SOCKET)
		close(fd);
	s->stopping = true;
	park_wake_all(s);
	streams_end(s);
	server_kick(s);
}

bool server_is_crowded(const struct server *s)
{
	return s->engine->syncing || !list_empty(&s->queue) ||
	       now_us(s) - s->last_turn < CROWDED_US;
}

bool server_is_idle(const struct server *s)
{
	return s->busy == 0 && s->transfers.jobs == 0 && !s->engine->syncing &&
	       streams_are_idle(s) && list_empty(&s->queue) && list_empty(&s->waiting);
}

void server_stop(struct server *s)
{
	assert(list_empty(&s->waiting) && list_empty(&s->queue));
	uv_poll_stop(&s->poll);
	uv_close((uv_handle_t *)&s->poll, NULL);
	uv_close((uv_handle_t *)&s->timer, NULL);
	turn_done(s);
	transfers_done(s);
	MHD_stop_daemon(s->mhd);
	if (s->ok)
		MHD_destroy_response(s->ok);
	requests_done(s);
	streams_done(s);
	s->mhd = NULL;
}

/* Figures */

void server_log_failed_turn(struct server *s, int err)
{
	log_message(s->engine->log, LOG_ERROR, "turn.failed",
		    "%s (%s): the turn's requests were answered 503", err_text(err),
		    db_error(s->engine->db));
}

void server_count_reply(struct server *s, const struct request *r, int status)
{
	struct route_stats *stats = &s->stats[r->route ? (size_t)(r->route - ROUTES) : ROUTES_MAX];
	int i = 0;

	while (i < STATUS_MAX - 1 && stats->replies[i].status != 0 &&
	       stats->replies[i].status != status)
		i++;
	stats->replies[i].status = status;
	stats->replies[i].count++;
	histogram_add(&stats->seconds, HISTOGRAM_SECONDS, now_us(s) - r->complete);
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
			metrics_histogram(out, family, route, HISTOGRAM_SECONDS, &stats->seconds);
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
	metrics_sample(out, METRIC_HTTP_CONNECTIONS, "", s->connections_count);
	metrics_family(out, METRIC_TRANSFERS);
	metrics_sample(out, METRIC_TRANSFERS, "", s->transfers.count);
	streams_write_metrics(s, out);
	metrics_family(out, METRIC_COMMIT_BATCH);
	metrics_histogram(out, METRIC_COMMIT_BATCH, "", HISTOGRAM_REQUESTS, &s->commit_batch);
	metrics_family(out, METRIC_BUILD_INFO);
	metrics_sample(out, METRIC_BUILD_INFO, "version=\"" LAPSE_VERSION "\"", 1);
}
