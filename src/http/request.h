/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request: from the first header to the last byte of its answer.
 *
 * States:  RECEIVING → (STORING →) QUEUED → (WAITING → QUEUED)* → ANSWERED
 * RECEIVING belongs to libmicrohttpd; when the body is complete the request is QUEUED for the next
 * turn (http/turn.c), and its connection suspended, or held for a while (http/server.c). A handler
 * that waits makes it WAITING: parked on a key, awaiting a wake(), or on a worker thread. ANSWERED
 * resumes the connection, and libmicrohttpd takes the reply. What a route's quick handler can
 * answer goes from RECEIVING to ANSWERED at once. A streamed body (http/upload.h) makes it STORING
 * until a worker has made it durable.
 *
 * The client of a held connection can go away before the answer. Its request is done all the same;
 * it has no connection then, and is freed instead of answered.
 */
#ifndef LAPSE_HTTP_REQUEST_H
#define LAPSE_HTTP_REQUEST_H

#include <microhttpd.h>
#include <uv.h>

#include "api/call.h"
#include "base/list.h"
#include "http/head.h"
#include "http/route.h"

#define REQUEST_MAGIC 0x4c525145u

/* Where a request is; request_enter() knows which state may follow which. */
enum request_state {
	REQUEST_RECEIVING, /* its head and body */
	REQUEST_STORING,   /* its body, by a worker: a file, or a long text that is parsed */
	REQUEST_QUEUED,    /* for a turn, or in one */
	REQUEST_WAITING,   /* its handler has returned CALL_WAIT */
	REQUEST_ANSWERED
};

struct server;
struct connection;
struct mcp;

struct request {
	uint32_t magic;
	enum request_state state;
	struct call call;
	struct server *server;
	struct connection *connection; /* NULL = the client has left; `mhd` too */
	struct MHD_Connection *mhd;
	const struct route *route; /* NULL until one was found */
	struct head head;
	char method[8];
	const char *path; /* as sent, in the arena */
	char allow[64];   /* for 405 */
	bool suspended;
	uint8_t asked;        /* how often libmicrohttpd has asked for the answer */
	bool counted;         /* among the busy ones */
	bool close_after;     /* do not keep the connection alive */
	bool writes;          /* a read that has found something to write */
	bool alone;           /* could not be committed with others: makes a turn by itself */
	lapse_us aside_since; /* monotonic: when it first met a locked row; 0 = it did not */

	struct buf body;
	struct upload *upload; /* a streamed body; NULL on other routes */
	int64_t dropped;       /* bytes beyond the limit that were read and forgotten */
	int err;               /* what the reply is about; LAPSE_OK = the handler's own */
	int result;            /* of the last run of the handler */
	lapse_us complete;     /* monotonic: when it was there to be read */
	struct list link;      /* in the server's queue, or among those that wait to receive */
	uint64_t tag;          /* its place in the queue */
	uint64_t round;        /* in which it last received (http/pace.h); 0 = in none */

	/* For streams, which outlive the moment their caller was checked. */
	int64_t token_id;      /* of call.token */
	bool acting;           /* an admin who acts for another owner */
	bool unsure;           /* the caller was known by old memory only: http/auth.h */
	struct mcp *mcp;       /* what a message to /mcp is about (mcp/door.h); NULL elsewhere */
	struct stream *stream; /* the reply, when a handler has opened one (http/stream.h) */
};

static inline struct request *request_of_call(const struct call *c)
{
	struct request *r = CONTAINER_OF(c, struct request, call);

	return r->magic == REQUEST_MAGIC ? r : NULL;
}

/* Reads the request line and the headers: route, caller, limits. Errors are kept in r->err, so that
 * they are answered once the body has been read. */
struct request *request_new(struct connection *c, const struct head_line *line);
void request_free(struct request *r);

/* Its connection ends before it is answered: nothing of that may be used any more. */
void request_part(struct request *r);

void request_enter(struct request *r, enum request_state state);

/* Who calls, asked again: LAPSE_EUNAUTHORIZED when the token was revoked since, or has expired, or
 * the client has left. */
int request_check_caller(struct request *r);

/* Gives back the requests that were kept for later ones. */
void requests_done(struct server *s);

/* Whether an error that is known before the body came is answered at once. */
bool request_answers_early(const struct request *r);

/* A piece of the body; *n becomes what could not be taken yet. False = stop reading, close the
 * connection. */
bool request_receive(struct request *r, const char *data, size_t *n);

/* Counts bytes that are read only so that the client gets its answer. False = enough of it. */
bool request_forget(struct request *r, size_t n);

/* A streamed body is durable, a long one is parsed, or it failed: into the next turn, or answered.
 */
void request_stored(struct request *r);

/* Parses the body, unless that is done. Those that are not short are left to their turn, which has
 * a limit of time: all that come together would otherwise be parsed before anything else runs. Long
 * ones are for a worker (http/parse.h). */
int request_parse(struct request *r);

/* The body is complete: tries the quick way, which makes it ANSWERED, or decodes it. Errors are
 * kept in r->err. */
void request_complete(struct request *r);

/* Gives the reply to libmicrohttpd (http/send.c). */
enum MHD_Result request_send(struct request *r);

#endif
