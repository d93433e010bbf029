/* SPDX-License-Identifier: Apache-2.0 */
/* The epoll loop of the load generator; see engine.h. */
#include "engine.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
/* The loop looks at its clock and at the stop signal this often even when nothing happens. */
#define WAIT_MAX_NS (NS_PER_S / 20)
#define CONNECT_MAX_S 5
#define EVENTS_MAX 256
#define READ_BYTES ((size_t)64 << 10)
#define SHOWN_OF_ERROR 512

struct connection {
	int fd;
	bool busy;         /* a request is under way */
	bool awaits_space; /* EPOLLOUT is armed */
	uint64_t since_ns; /* when the request was due */
	uint64_t turns;    /* requests so far */
	struct bytes out;
	size_t sent;
	struct parser parser;
};

struct engine {
	struct load *load;
	struct result *result;
	struct connection *connections;
	struct connection **idle; /* a circle: the one idle longest is used next, so that none is
				   * idle for so long that the server closes it */
	uint32_t idle_first, idle_count;
	int epoll;
	uint64_t start_ns;
	uint64_t end_ns;  /* nothing is due from here on */
	uint64_t last_ns; /* latest answer */
	uint64_t launched;
	char *input; /* READ_BYTES, shared: a parser keeps what it needs */
};

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
	(void)number;
	stop_asked = 1;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* When the next request is due. In a closed loop that is always now. */
static uint64_t due_ns(const struct engine *e, uint64_t now)
{
	const uint64_t rate = e->load->rate;

	if (rate == 0)
		return now;
	return e->start_ns + e->launched / rate * NS_PER_S + e->launched % rate * NS_PER_S / rate;
}

static bool has_more(const struct engine *e, uint64_t now)
{
	return e->launched < e->load->requests_max && due_ns(e, now) < e->end_ns;
}

static bool is_over(const struct engine *e, uint64_t now)
{
	const bool all_idle = e->idle_count == e->load->connections;

	return (all_idle && !has_more(e, now)) || now >= e->end_ns + e->load->drain_ns;
}

static void idle_put(struct engine *e, struct connection *c)
{
	assert(e->idle_count < e->load->connections);
	e->idle[(e->idle_first + e->idle_count++) % e->load->connections] = c;
}

static struct connection *idle_take(struct engine *e)
{
	struct connection *c = e->idle[e->idle_first];

	assert(e->idle_count > 0);
	e->idle_first = (e->idle_first + 1) % e->load->connections;
	e->idle_count--;
	return c;
}

/* Arms or disarms EPOLLOUT; EPOLLIN stays armed always, to see a server hang up. */
static void watch(struct engine *e, struct connection *c, int operation, bool space)
{
	struct epoll_event event = { .events = EPOLLIN | (space ? EPOLLOUT : 0u), .data.ptr = c };

	if (epoll_ctl(e->epoll, operation, c->fd, &event) < 0)
		die("epoll_ctl: %s", strerror(errno));
	c->awaits_space = space;
}

static void connection_open(struct engine *e, struct connection *c)
{
	const struct timeval limit = { .tv_sec = CONNECT_MAX_S };
	const int yes = 1;

	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		die("socket: %s", strerror(errno));
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(c->fd, (struct sockaddr *)&e->load->address, sizeof(e->load->address)) < 0)
		die("connect: %s", strerror(errno));
	if (e->load->protocol->greet)
		e->load->protocol->greet(c->fd);
	watch(e, c, EPOLL_CTL_ADD, false);
	idle_put(e, c);
}

static void connection_send(struct engine *e, struct connection *c)
{
	while (c->sent < c->out.len) {
		const ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent,
				       MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			die("send: %s", strerror(errno));
		if (n < 0)
			break;
		c->sent += (size_t)n;
		e->result->bytes_sent += (uint64_t)n;
	}
	const bool space = c->sent < c->out.len;
	if (space != c->awaits_space)
		watch(e, c, EPOLL_CTL_MOD, space);
}

static void launch(struct engine *e, uint64_t due)
{
	struct connection *c = idle_take(e);

	assert(!c->busy);
	c->busy = true;
	c->since_ns = due;
	c->sent = 0;
	c->parser = (struct parser){ .turn = ++c->turns };
	bytes_reset(&c->out);
	e->load->protocol->render(&e->load->request, &e->load->numbers,
				  numbers_draw(&e->load->numbers), &c->out);
	e->launched++;
	connection_send(e, c);
}

static void launch_due(struct engine *e)
{
	while (e->idle_count > 0) {
		const uint64_t now = now_ns(), due = due_ns(e, now);
		if (due > now || !has_more(e, now))
			return;
		const double lag = (double)(now - due) / (double)NS_PER_S;
		if (lag > e->result->send_lag_s)
			e->result->send_lag_s = lag;
		launch(e, due);
	}
}

/* What the server said, as text: AMQP has its words between bytes that are none. */
static const char *legible(const char *data, size_t len)
{
	static char text[SHOWN_OF_ERROR + 1];
	size_t i;

	for (i = 0; i < len && i < SHOWN_OF_ERROR; i++) {
		const unsigned char byte = (unsigned char)data[i];
		text[i] = isprint(byte) || isspace(byte) ? data[i] : '.';
	}
	text[i] = '\0';
	return text;
}

/* The first error is shown in the server's own words, at least the end of them. */
static void count_error(struct engine *e, const char *data, size_t len)
{
	if (e->result->errors++ == 0)
		fprintf(stderr, "bench_load: first error reply: %s\n", legible(data, len));
	if (e->result->errors == ENGINE_ERRORS_MAX && !e->load->allow_errors)
		stop_asked = 1;
}

static void complete(struct engine *e, struct connection *c)
{
	e->last_ns = now_ns();
	hist_add(&e->result->latency_ns, e->last_ns - c->since_ns);
	e->result->answered++;
	c->busy = false;
	idle_put(e, c);
}

static void connection_receive(struct engine *e, struct connection *c)
{
	size_t used = 0;
	const ssize_t n = recv(c->fd, e->input, READ_BYTES, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		die("the server hung up: %s", n < 0 ? strerror(errno) : "end of file");
	if (!c->busy)
		die("the server sent bytes nobody asked for");
	e->result->bytes_received += (uint64_t)n;

	const enum reply_state state =
		protocol_feed(e->load->protocol, &c->parser, e->input, (size_t)n, &used);
	if (state == REPLY_MORE)
		return;
	if (state == REPLY_BROKEN || used != (size_t)n || c->sent < c->out.len)
		die("the reply is not %s: %s", e->load->protocol->name,
		    legible(e->input, (size_t)n));
	if (state == REPLY_ERROR)
		count_error(e, e->input, (size_t)n);
	complete(e, c);
}

/* Sleeps until something happens, the next request is due, or WAIT_MAX_NS have passed. */
static void wait_and_serve(struct engine *e)
{
	struct epoll_event events[EVENTS_MAX];
	const uint64_t now = now_ns();
	uint64_t wait = WAIT_MAX_NS;

	if (e->idle_count > 0 && has_more(e, now)) {
		const uint64_t due = due_ns(e, now);
		wait = due <= now ? 0 : due - now < wait ? due - now : wait;
	}
	const struct timespec timeout = { .tv_nsec = (long)wait };
	const int n = epoll_pwait2(e->epoll, events, EVENTS_MAX, &timeout, NULL);
	if (n < 0 && errno != EINTR)
		die("epoll_pwait2: %s", strerror(errno));
	for (int i = 0; i < n; i++) {
		struct connection *c = events[i].data.ptr;
		if (events[i].events & EPOLLOUT)
			connection_send(e, c);
		if (events[i].events & ~(uint32_t)EPOLLOUT)
			connection_receive(e, c);
	}
}

/* Requests that were due and never answered count with the age they have: leaving them out would
 * make the worst run look best. */
static void count_unfinished(struct engine *e, uint64_t now)
{
	for (uint32_t i = 0; i < e->load->connections; i++) {
		if (!e->connections[i].busy)
			continue;
		hist_add(&e->result->latency_ns, now - e->connections[i].since_ns);
		e->result->unfinished++;
	}
	for (; e->load->rate > 0 && has_more(e, now); e->launched++) {
		hist_add(&e->result->latency_ns, now - due_ns(e, now));
		e->result->unfinished++;
	}
}

static void engine_open(struct engine *e)
{
	const uint32_t count = e->load->connections;
	const struct sigaction action = { .sa_handler = on_signal };

	e->connections = calloc(count, sizeof(*e->connections));
	e->idle = calloc(count, sizeof(*e->idle));
	e->input = malloc(READ_BYTES);
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!e->connections || !e->idle || !e->input || e->epoll < 0)
		die("no memory or no epoll");
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* An open loop wakes up when a request is due, not 50 µs later. */
	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	for (uint32_t i = 0; i < count; i++)
		connection_open(e, &e->connections[i]);
}

static void engine_close(struct engine *e)
{
	for (uint32_t i = 0; i < e->load->connections; i++) {
		close(e->connections[i].fd);
		bytes_done(&e->connections[i].out);
	}
	close(e->epoll);
	free(e->connections);
	free(e->idle);
	free(e->input);
}

void engine_run(struct load *load, struct result *ret)
{
	struct engine e = { .load = load, .result = ret };
	uint64_t now;

	engine_open(&e);
	e.start_ns = e.last_ns = now_ns();
	e.end_ns = e.start_ns + load->duration_ns;
	while (now = now_ns(), !is_over(&e, now)) {
		if (stop_asked && e.end_ns > now)
			e.end_ns = now;
		launch_due(&e);
		wait_and_serve(&e);
	}
	count_unfinished(&e, now);
	ret->elapsed_s = (double)(e.last_ns - e.start_ns) / (double)NS_PER_S;
	engine_close(&e);
}
