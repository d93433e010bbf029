/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_steps: a closed loop of sequences. bench_load repeats one request; a lease is three of them
 * that belong together, and the second needs what the first was answered.
 *
 *	bench_steps HOST:PORT CONNECTIONS SECONDS http METHOD PATH BODY [METHOD PATH BODY]…
 *	bench_steps HOST:PORT CONNECTIONS SECONDS resp COMMAND [COMMAND]…
 *
 * In paths, bodies and commands %k is the key of the sequence, which is valid base64 and different
 * for every connection and round, and %i the digits behind "ID":" in the last answer that had them.
 * A body of "" is none. One thread for each connection. Prints one JSON object.
 *
 * Exit status: 0 all answers were good; 1 one was not; 2 it could not run.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STEPS_MAX 8
#define CONNECTIONS_MAX 1024
#define TEXT_MAX 4096
#define SAMPLES_MAX (1 << 20) /* of each connection */

struct steps {
	struct sockaddr_in peer;
	const char *host;
	bool http;
	const char *parts[STEPS_MAX][3]; /* method, path, body; or a command */
	size_t count;
	double until; /* monotonic */
};

struct worker {
	const struct steps *steps;
	pthread_t thread;
	int number, fd;
	uint64_t rounds;
	uint32_t *us; /* time of each sequence */
	char id[32];
	char answer[TEXT_MAX];
	const char *problem;
};

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void expand(const struct worker *w, const char *from, char *to, size_t room)
{
	size_t n = 0;

	for (; *from && n + 64 < room; from++) {
		if (from[0] != '%' || (from[1] != 'k' && from[1] != 'i')) {
			to[n++] = *from;
			continue;
		}
		if (*++from == 'k')
			n += (size_t)snprintf(to + n, room - n, "key%05d%08llu", w->number,
					      (unsigned long long)w->rounds);
		else
			n += (size_t)snprintf(to + n, room - n, "%s", w->id);
	}
	assert(!*from);
	to[n] = '\0';
}

static size_t build_http(const struct worker *w, const char *const *part, char *out)
{
	char path[512], body[TEXT_MAX / 2];

	expand(w, part[1], path, sizeof(path));
	expand(w, part[2], body, sizeof(body));
	int n = snprintf(out, TEXT_MAX, "%s %s HTTP/1.1\r\nHost: %s\r\n", part[0], path,
			 w->steps->host);
	n += snprintf(out + n, TEXT_MAX - (size_t)n,
		      body[0] ? "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s"
			      : "\r\n",
		      strlen(body), body);
	return (size_t)n;
}

/* An inline command. */
static size_t build_resp(const struct worker *w, const char *const *part, char *out)
{
	expand(w, part[0], out, TEXT_MAX - 2);
	strcat(out, "\r\n");
	return strlen(out);
}

/* Bytes of the whole answer, once it is there; 0 = more is needed. */
static size_t http_length(const char *answer)
{
	const char *end = strstr(answer, "\r\n\r\n");
	const char *length = strcasestr(answer, "\r\ncontent-length:");

	if (!end || !length || length > end)
		return 0;
	return (size_t)(end - answer) + 4 + strtoul(length + 17, NULL, 10);
}

static size_t resp_length(const char *answer)
{
	const char *end = strstr(answer, "\r\n");

	return end ? (size_t)(end - answer) + 2 : 0;
}

static const char *receive(struct worker *w)
{
	size_t have = 0, whole = 0;

	while (!whole || have < whole) {
		ssize_t n = recv(w->fd, w->answer + have, sizeof(w->answer) - 1 - have, 0);
		if (n <= 0)
			return "the connection ended";
		have += (size_t)n;
		w->answer[have] = '\0';
		whole = w->steps->http ? http_length(w->answer) : resp_length(w->answer);
		if (have + 1 == sizeof(w->answer))
			return "the answer is too long";
	}
	if (w->steps->http)
		return strncmp(w->answer + 8, " 2", 2) == 0 ? NULL : "an answer is not 2xx";
	return w->answer[0] == '+' || strcmp(w->answer, ":1\r\n") == 0 ? NULL
								       : "an answer is no OK";
}

static void take_id(struct worker *w)
{
	const char *id = strstr(w->answer, "\"ID\":\"");

	if (id)
		snprintf(w->id, sizeof(w->id), "%.*s", (int)strspn(id + 6, "0123456789"), id + 6);
}

static const char *sequence(struct worker *w)
{
	char out[TEXT_MAX];

	for (size_t i = 0; i < w->steps->count; i++) {
		const char *const *part = w->steps->parts[i];
		size_t n = w->steps->http ? build_http(w, part, out) : build_resp(w, part, out);
		if (send(w->fd, out, n, MSG_NOSIGNAL) != (ssize_t)n)
			return "sending failed";
		const char *problem = receive(w);
		if (problem)
			return problem;
		take_id(w);
	}
	return NULL;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	int on = 1;

	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(w->fd, (const struct sockaddr *)&w->steps->peer, sizeof(w->steps->peer)) < 0)
		w->problem = "cannot connect";
	while (!w->problem && w->rounds < SAMPLES_MAX) {
		double start = seconds_now();
		if (start >= w->steps->until)
			break;
		w->problem = sequence(w);
		w->us[w->rounds++] = (uint32_t)((seconds_now() - start) * 1e6);
	}
	close(w->fd);
	return NULL;
}

static int by_size(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return (a > b) - (a < b);
}

/* Of all connections together. */
static int report(struct worker *workers, int n, double took)
{
	uint64_t total = 0, at = 0;

	for (int i = 0; i < n; i++) {
		if (workers[i].problem) {
			fprintf(stderr, "bench_steps: %s: %s\n", workers[i].problem,
				workers[i].answer);
			return 1;
		}
		total += workers[i].rounds;
	}
	uint32_t *all = calloc(total + 1, sizeof(*all));
	assert(all);
	for (int i = 0; i < n; i++) {
		memcpy(all + at, workers[i].us, workers[i].rounds * sizeof(*all));
		at += workers[i].rounds;
	}
	qsort(all, total, sizeof(*all), by_size);
	printf("{\"sequences\":%llu,\"seconds\":%.6f,\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u}\n",
	       (unsigned long long)total, took, all[total / 2], all[total * 99 / 100],
	       all[total ? total - 1 : 0]);
	free(all);
	return 0;
}

static int usage(void)
{
	fputs("usage: bench_steps HOST:PORT CONNECTIONS SECONDS http METHOD PATH BODY…\n"
	      "       bench_steps HOST:PORT CONNECTIONS SECONDS resp COMMAND…\n",
	      stderr);
	return 2;
}

static bool read_steps(struct steps *s, int argc, char **argv)
{
	char host[64];
	unsigned port;

	s->host = argv[1];
	s->http = strcmp(argv[4], "http") == 0;
	const int width = s->http ? 3 : 1, words = argc - 5;
	if (sscanf(argv[1], "%63[^:]:%u", host, &port) != 2 || words % width ||
	    words / width > STEPS_MAX)
		return false;
	s->count = (size_t)(words / width);
	for (int i = 0; i < words; i++)
		s->parts[i / width][i % width] = argv[5 + i];
	s->peer = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	return inet_pton(AF_INET, host, &s->peer.sin_addr) == 1;
}

int main(int argc, char **argv)
{
	static struct worker workers[CONNECTIONS_MAX];
	struct steps steps = { 0 };
	int n = argc > 5 ? atoi(argv[2]) : 0;

	if (n < 1 || n > CONNECTIONS_MAX || !read_steps(&steps, argc, argv))
		return usage();
	double start = seconds_now();
	steps.until = start + strtod(argv[3], NULL);
	for (int i = 0; i < n; i++) {
		workers[i] = (struct worker){ .steps = &steps, .number = i };
		workers[i].us = calloc(SAMPLES_MAX, sizeof(uint32_t)); /* touched as it is used */
		assert(workers[i].us);
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			return usage();
	}
	for (int i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
	return report(workers, n, seconds_now() - start);
}
