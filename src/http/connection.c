/* SPDX-License-Identifier: Apache-2.0 */
#include "http/connection.h"

#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "http/acked.h"
#include "http/hangup.h"
#include "http/server.h"

/* A client that was refused has so long to take its answer: a socket that is closed while a request
 * is unread resets the connection, and the answer may be lost. */
#define REFUSED_US 250000

/* Which phases may follow which. A request can end in any of them: its client left. */
#define BIT(phase) (1u << (phase))
static const unsigned FOLLOWS[] = {
	[PHASE_NEW] = BIT(PHASE_HEAD) | BIT(PHASE_REFUSED),
	[PHASE_IDLE] = BIT(PHASE_HEAD),
	[PHASE_HEAD] = BIT(PHASE_BODY) | BIT(PHASE_IDLE),
	[PHASE_BODY] = BIT(PHASE_BODY) | BIT(PHASE_WORKING) | BIT(PHASE_REPLYING) | BIT(PHASE_IDLE),
	[PHASE_REPLYING] = BIT(PHASE_IDLE),
	[PHASE_REFUSED] = BIT(PHASE_REFUSED),
	[PHASE_WORKING] = BIT(PHASE_BODY) | BIT(PHASE_REPLYING) | BIT(PHASE_IDLE),
};

int connection_fd(const struct connection *c)
{
	return MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

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

void connections_init(struct server *s)
{
	for (int i = 0; i < PHASE_WORKING; i++)
		list_init(&s->connections.phases[i]);
}

static void begin_phase(struct connection *c, enum connection_phase phase, lapse_us now)
{
	assert(phase <= PHASE_WORKING);
	c->phase = phase;
	c->since = now;
	list_remove(&c->link);
	if (phase != PHASE_WORKING)
		list_append(&c->server->connections.phases[phase], &c->link);
}

void connection_enter(struct connection *c, enum connection_phase phase, lapse_us now)
{
	assert(c->magic == CONNECTION_MAGIC);
	if (c->phase == PHASE_REFUSED)
		return;
	assert(FOLLOWS[c->phase] & BIT(phase));
	/* The time for a first head began with the connection. */
	begin_phase(c, phase, c->phase == PHASE_NEW ? c->since : now);
}

void connection_reply(struct connection *c, size_t bytes, lapse_us now)
{
	assert(c->taken >= -1);
	connection_enter(c, PHASE_REPLYING, now);
	c->taken = -1;
	c->periods = (int64_t)bytes / REPLY_PROGRESS_BYTES;
}

void connection_say(const struct connection *c, int status, const char *code, const char *message)
{
	struct buf CLEANUP(buf_done) body = { 0 }, text = { 0 };

	assert(c->magic == CONNECTION_MAGIC && status >= 400);
	if (c->server->tls)
		return;
	buf_printf(&body, "{\"error\":{\"code\":\"%s\",\"message\":", code);
	json_text(&body, message);
	buf_puts(&body, "}}");
	buf_printf(&text,
		   "HTTP/1.1 %d Refused\r\nConnection: close\r\n%s"
		   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		   status, status == 503 ? "Retry-After: 1\r\n" : "", body.len, buf_text(&body));
	send(connection_fd(c), text.data, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void connection_end(struct connection *c)
{
	assert(c->magic == CONNECTION_MAGIC);
	list_remove(&c->link);
	shutdown(connection_fd(c), SHUT_RDWR);
}

static void refuse_connection(struct connection *c)
{
	assert(c->phase == PHASE_NEW);
	connection_say(c, 503, "unavailable", "too many connections (connections_max)");
	if (c->server->tls) {
		connection_end(c);
		return;
	}
	shutdown(connection_fd(c), SHUT_WR);
	begin_phase(c, PHASE_REFUSED, c->since);
}

struct connection *connection_open(struct server *s, struct MHD_Connection *mhd)
{
	struct connection *c = mem_zalloc(1, sizeof(*c));

	c->magic = CONNECTION_MAGIC;
	c->server = s;
	c->mhd = mhd;
	c->loopback = peer_is_loopback(mhd);
	list_init(&c->link);
	begin_phase(c, PHASE_NEW, s->pumped);
	if (++s->connections.count > s->engine->settings->connections_max)
		refuse_connection(c);
	hangups_look(s);
	assert(c->phase == PHASE_NEW || c->phase == PHASE_REFUSED);
	return c;
}

void connection_close(struct connection *c)
{
	assert(c->magic == CONNECTION_MAGIC && c->server->connections.count > 0);
	c->server->connections.count--;
	list_remove(&c->link);
	c->magic = 0;
	free(c);
}

struct connection *connection_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct connection *c = info->socket_context;

	assert(c->magic == CONNECTION_MAGIC);
	return c;
}

/* Deadlines */

static lapse_us phase_limit(const struct server *s, enum connection_phase phase)
{
	const struct settings *set = s->engine->settings;
	int64_t head = set->head_timeout_ms, request = set->request_timeout_ms;

	switch (phase) {
	case PHASE_NEW:
	case PHASE_HEAD:
		return (head < request ? head : request) * 1000;
	case PHASE_IDLE:
	case PHASE_BODY:
		return request * 1000;
	case PHASE_REPLYING:
		return set->reply_timeout_ms * 1000;
	case PHASE_REFUSED:
		return REFUSED_US;
	case PHASE_WORKING:
		break;
	}
	return INT64_MAX / 2;
}

/* Nothing has been sent for a request whose head or body is not complete, so this is its whole
 * answer. Elsewhere it would be taken for the answer to the next request. */
static void end_late_one(struct connection *c)
{
	assert(c->phase != PHASE_WORKING);
	if (c->phase == PHASE_HEAD || c->phase == PHASE_BODY)
		connection_say(c, 408, "timeout", "the request was not complete in time");
	connection_end(c);
}

/* The bytes that the client's side has acknowledged since the connection began. A Unix socket does
 * not tell: its client has the time that the whole reply may take. */
static int64_t bytes_taken(struct connection *c)
{
	int64_t acked = socket_bytes_acked(connection_fd(c));

	if (acked >= 0)
		return acked;
	return c->taken + (c->periods-- > 0 ? REPLY_PROGRESS_BYTES : 0);
}

/* Whether the client goes on taking its reply: then its time begins anew. The kernel is asked for
 * the first time when the first period is over, because most replies never get that old. */
static bool takes_on(struct connection *c, lapse_us now)
{
	int64_t before = c->taken, taken = bytes_taken(c);
	bool goes_on = before < 0 || taken >= before + REPLY_PROGRESS_BYTES;

	assert(c->phase == PHASE_REPLYING);
	c->taken = taken;
	if (goes_on)
		begin_phase(c, PHASE_REPLYING, now);
	return goes_on;
}

void connections_end_late(struct server *s, lapse_us now)
{
	for (int i = 0; i < PHASE_WORKING; i++) {
		struct list *all = &s->connections.phases[i];
		lapse_us limit = now - phase_limit(s, (enum connection_phase)i);
		for (struct list *l = all->next, *next; l != all; l = next) {
			struct connection *c = CONTAINER_OF(l, struct connection, link);
			next = l->next;
			assert(c->phase == (enum connection_phase)i);
			if (c->since > limit)
				break;
			if (i != PHASE_REPLYING || !takes_on(c, now))
				end_late_one(c);
		}
	}
}

bool connections_have_deadlines(const struct server *s)
{
	for (int i = 0; i < PHASE_WORKING; i++)
		if (!list_empty(&s->connections.phases[i]))
			return true;
	return false;
}

static bool is_content_length(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n > 0 && n < 20 && text[n] == '\0'; /* 20 digits may be more than 64 bits */
}

void connections_end_malformed(struct server *s)
{
	static const enum connection_phase receiving[] = { PHASE_NEW, PHASE_HEAD };

	for (size_t i = 0; i < ARRAY_LEN(receiving); i++) {
		struct list *all = &s->connections.phases[receiving[i]];
		for (struct list *l = all->next, *next; l != all; l = next) {
			struct connection *c = CONTAINER_OF(l, struct connection, link);
			const char *length = MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND,
									 "Content-Length");
			next = l->next;
			if (!length || is_content_length(length))
				continue;
			connection_say(c, 400, "invalid_request",
				       "Content-Length must be a whole number below 2^63");
			connection_end(c);
		}
	}
}
