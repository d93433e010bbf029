/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: GET /v1/events as server-sent events (docs/events.md).
 *
 * A stream is a request whose reply does not end: stream_api_open() makes it, request_send() then
 * gives libmicrohttpd a callback instead of bytes. The callback copies from the ring
 * (engine/ring.h); with nothing to send the connection is suspended until the ring wakes it. A
 * reader that is older than the ring waits, suspended, for pages of the table, which a worker reads
 * for many streams at once (engine/replay.h).
 *
 * States of a stream:  AWAY → (a page)* → LIVE → AWAY …
 * LIVE has a place in the ring. AWAY has none: new, overtaken by the ring, or told of a gap.
 *
 * libmicrohttpd neither times out suspended connections nor notices that their client left. So a
 * round looks at every stream twice a second, a few at a time: it ends those whose token is gone,
 * whose client is gone or has read nothing for request_timeout_ms, and wakes those that have
 * nothing to tell but that they are alive.
 *
 * Shutdown: streams_end() makes all of them end their body properly; one whose client does not read
 * is cut.
 */
#ifndef LAPSE_HTTP_STREAM_H
#define LAPSE_HTTP_STREAM_H

#include <microhttpd.h>

#include "api/call.h"

struct server;
struct stream;
struct request;

extern const struct json_field STREAM_QUERY[];
call_fn stream_api_open;

/* For http/request.c. */
enum MHD_Result stream_send(struct request *r);
void stream_free(struct stream *s); /* takes NULL */

/* For http/server.c. */
void streams_init(struct server *s);
void streams_end(struct server *s);
bool streams_are_idle(const struct server *s); /* no worker reads for them */
void streams_done(struct server *s);           /* after the last one is freed */
void streams_write_metrics(const struct server *s, struct buf *out);

#endif
