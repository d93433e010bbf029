/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: one of libmicrohttpd's, from its accept to its end, and how long each of its phases
 * may take.
 *
 *   NEW → (HEAD →) BODY → WORKING → REPLYING → IDLE → HEAD → …
 *   REFUSED: one too many; it has been told so, and only its request is still read away
 *
 * Every phase but WORKING has a deadline, so no client holds a place for good: it must complete its
 * head within head_timeout_ms, its body and an idle connection its next request within
 * request_timeout_ms (an upload begins anew with each sign of progress, http/upload.h), and it must
 * take REPLY_PROGRESS_BYTES of a reply, or the rest, within every reply_timeout_ms, the first
 * excepted. Streams and downloads stay WORKING: they watch their clients themselves. Connections of
 * a phase are kept in the order they entered it, so looking for late ones costs nothing while there
 * are none.
 *
 * WORKING is our own time. A client that goes away meanwhile is noticed when it is answered, or
 * when connections become scarce (http/hangup.h).
 */
#ifndef LAPSE_HTTP_CONNECTION_H
#define LAPSE_HTTP_CONNECTION_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"

#define CONNECTION_MAGIC 0x4c434f4eu
#define REPLY_PROGRESS_BYTES 16384

struct server;

enum connection_phase {
	PHASE_NEW,  /* nothing of its first request is known */
	PHASE_IDLE, /* answered, and nothing of its next request is known */
	PHASE_HEAD, /* the request line has come */
	PHASE_BODY,
	PHASE_REPLYING,
	PHASE_REFUSED,
	PHASE_WORKING, /* the last: it is in no list */
};

struct connection {
	uint32_t magic;
	enum connection_phase phase;
	struct list link; /* among those of its phase */
	struct server *server;
	struct MHD_Connection *mhd;
	lapse_us since;  /* monotonic: when the phase began, or the client last took something */
	int64_t taken;   /* bytes its client had taken then; -1 = not asked yet */
	int64_t periods; /* of a Unix socket: how often its time may begin anew */
	bool loopback;   /* over the Unix socket, or from a loopback address */
	bool target_is_clean;
	size_t target_len; /* of its request line, before libmicrohttpd cuts it */
};

/* What the server keeps of them. */
struct connections {
	struct list phases[PHASE_WORKING];
	int64_t count;
	lapse_us look_next; /* monotonic: when hang-ups are worth another look (http/hangup.h) */
	int64_t since_look; /* connections that have come since the last one */
};

void connections_init(struct server *s);

/* libmicrohttpd has accepted one. Past connections_max it is told 503 and REFUSED. */
struct connection *connection_open(struct server *s, struct MHD_Connection *mhd);
void connection_close(struct connection *c);
struct connection *connection_of(struct MHD_Connection *mhd);
int connection_fd(const struct connection *c);

/* A reply of so many bytes is on its way. */
void connection_reply(struct connection *c, size_t bytes, lapse_us now);

/* Begins a phase at `now`. Asserts that the phase may follow the one before. */
void connection_enter(struct connection *c, enum connection_phase phase, lapse_us now);

/* Writes a whole answer past libmicrohttpd, for when libmicrohttpd would not, or not properly.
 * Nothing may have been sent for the request; the connection must be ended afterwards. Over TLS
 * nothing can be written. */
void connection_say(const struct connection *c, int status, const char *code, const char *message);

/* libmicrohttpd sees the end and cleans up. */
void connection_end(struct connection *c);

/* Ends the connections whose deadline has passed. */
void connections_end_late(struct server *s, lapse_us now);

/* Whether any connection has a deadline. */
bool connections_have_deadlines(const struct server *s);

/* libmicrohttpd is about to answer a Content-Length that is no number, and would send the head of
 * that answer twice: answers and ends such connections first. */
void connections_end_malformed(struct server *s);

#endif
