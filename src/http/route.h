/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: a route is a row. Dispatch, who may call, the body's kind, the transaction, the metrics'
 * label, the OpenAPI document and the 405 answer read it.
 *
 * To add a route: a row in route.c.
 */
#ifndef LAPSE_HTTP_ROUTE_H
#define LAPSE_HTTP_ROUTE_H

#include "api/call.h"
#include "engine/scope.h"
#include "http/shape.h"

enum route_caller {
	CALLER_ANY,    /* a token, or any caller on loopback while there is none */
	CALLER_ADMIN,  /* an admin */
	CALLER_LOCAL,  /* anyone on loopback, elsewhere a caller with a token */
	CALLER_PUBLIC, /* anyone */
};

enum route_body {
	BODY_NONE,     /* a body is an error */
	BODY_JSON,     /* an object is required */
	BODY_OPTIONAL, /* an object, or nothing */
	BODY_MANY,     /* an array of objects, or lines of CSV */
	BODY_STREAM,   /* bytes of any kind, stored as they come (http/upload.h) */
};

enum route_tx { TX_NONE, TX_READ, TX_WRITE };

enum {
	ROUTE_CREATES = 1,    /* honours Idempotency-Key */
	ROUTE_ETAG = 2,       /* answers one mutable resource */
	ROUTE_STREAM = 8,     /* answers server-sent events */
	ROUTE_CONTENT = 16,   /* answers bytes, or the part of them that Range asks for */
	ROUTE_SAYS_OK = 32,   /* creates, and yet answers 200 */
	ROUTE_ASIDE = 64,     /* a door of its own: the description of the API leaves it out */
	ROUTE_MAKES = 128,    /* answers 201 when it made something, 200 when it was there */
	ROUTE_LOOKS = 16384,  /* a POST that changes nothing: its caller only reads */
	ROUTE_ORIGIN = 32768, /* refuses a foreign Origin even with a token, as MCP demands */
	ROUTE_CLEAN = 4,      /* fails only before its first write: needs no savepoint */

	/* Errors that the rest of a row does not tell of (http/answers.c); only documentation. */
	FAILS_CONFLICT = 256,  /* 409 */
	FAILS_EXPIRED = 512,   /* 410 */
	FAILS_MATCH = 1024,    /* 412: it honours If-Match */
	FAILS_LIMIT = 2048,    /* 429 */
	FAILS_UPSTREAM = 4096, /* 502 */
	FAILS_MISSING = 8192   /* 404, though its path names nothing */
};

struct route {
	const char *method, *path;
	enum scope_room room; /* what a scope of a token must name; see route_writes() */
	enum route_caller caller;
	enum route_body body;
	enum route_tx tx;
	unsigned flags;
	call_fn *handler;
	const struct json_field *query;  /* NULL = takes none */
	const struct json_field *fields; /* of the body */
	const struct shape *reply;       /* NULL = not JSON, or described elsewhere */
	const char *id;                  /* operationId: what generated clients call it */
	const char *summary;

	const struct quick *quick; /* tried first; NULL = there is no such way */
};

/* Whether a caller needs the scope to write. A GET changes nothing, ROUTE_LOOKS neither. */
bool route_writes(const struct route *r);

extern const struct route ROUTES[];
extern const size_t ROUTES_COUNT;
#define ROUTES_MAX 128 /* rows the metrics have room for */

/* Finds the row for method and path (not decoded; HEAD counts as GET) and copies the decoded
 * parameters into the arena. LAPSE_ENOTFOUND; LAPSE_EMETHOD with the methods that exist in `allow`;
 * LAPSE_EINVAL for a parameter that is not properly encoded. */
int route_find(const char *method, const char *path, struct arena *arena,
	       const struct route **ret_route, const char *ret_params[CALL_PARAMS_MAX], char *allow,
	       size_t allow_size);

/* Decodes %XX in place of `n` bytes; NULL when a sequence is broken or stands for NUL. */
char *percent_decode(struct arena *arena, const char *text, size_t n);

#endif
