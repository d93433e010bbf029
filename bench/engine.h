/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load itself: one thread, one epoll, `connections` sockets with at most one request under way
 * on each.
 *
 * Closed loop (rate 0): a connection sends its next request as soon as the last is answered.
 * Open loop: request k is due at start + k / rate, whatever the server does. When no connection is
 * free it waits for one, and its latency counts from the moment it was due, so a server that stalls
 * cannot hide the requests that the stall kept from being sent.
 *
 * SIGINT or SIGTERM ends the sending early; what is under way is still awaited and counted.
 */
#ifndef BENCH_ENGINE_H
#define BENCH_ENGINE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "hist.h"
#include "protocol.h"

#define ENGINE_CONNECTIONS_MAX 4096
/* A load that fails this often has nothing more to tell. */
#define ENGINE_ERRORS_MAX 1000

struct load {
	const struct protocol *protocol;
	struct sockaddr_in address;
	struct request request;
	struct numbers numbers;
	uint32_t connections;
	uint64_t requests_max; /* UINT64_MAX: as many as the time allows */
	uint64_t duration_ns;
	uint64_t drain_ns; /* how long to await the last answers */
	uint64_t rate;     /* requests a second; 0: closed loop */
	bool allow_errors; /* go on past ENGINE_ERRORS_MAX */
};

struct result {
	struct hist latency_ns; /* of every request, unfinished ones with their age at the end */
	uint64_t answered;
	uint64_t errors;     /* of the answered: REPLY_ERROR */
	uint64_t unfinished; /* due, but not answered when the drain ended */
	uint64_t bytes_sent;
	uint64_t bytes_received;
	double elapsed_s;  /* first send to last answer */
	double send_lag_s; /* open loop: the furthest that sending fell behind its schedule */
};

/* Runs the load to its end. Dies when the server cannot be reached, hangs up or talks nonsense. */
void engine_run(struct load *load, struct result *ret);

#endif
