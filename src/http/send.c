/* SPDX-License-Identifier: Apache-2.0 */
/* The reply of a request that is ANSWERED, on its way to libmicrohttpd. */
#include <assert.h>
#include <string.h>

#include "api/etag.h"
#include "http/download.h"
#include "http/reply.h"
#include "http/request.h"
#include "http/server.h"
#include "http/stream.h"
#include "http/upload.h"
#include "mcp/door.h"

/* A limit is reached until something is read, expires or is removed: no use to ask each second. */
#define LIMIT_RETRY_S "10"

static bool wants_problem(const struct request *r)
{
	const char *accept = r->head.accept;

	return accept && strstr(accept, "application/problem+json");
}

/* The error of r->err as the body; returns the status. */
static int write_error(struct request *r, const char **ret_type)
{
	bool as_problem = wants_problem(r);

	assert(r->err < 0);
	buf_done(&r->call.reply);
	http_write_error(&r->call.reply, (enum lapse_error)r->err, &r->call.problem,
			 r->call.problem_more, as_problem);
	*ret_type = as_problem ? "application/problem+json" : "application/json";
	return http_status_of((enum lapse_error)r->err);
}

/* Whether the client has this very state already. */
static bool is_not_modified(const struct request *r, const char *etag)
{
	const char *known = r->head.if_none_match;

	return known && strcmp(r->route->method, "GET") == 0 &&
	       (strcmp(known, "*") == 0 || strstr(known, etag));
}

static void add_reply_headers(struct request *r, struct MHD_Response *m, int status)
{
	char text[TIME_HTTP_LEN + 1];

	if (status == 401)
		MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
	if (status == 405)
		MHD_add_response_header(m, "Allow", r->allow);
	if (status == 503 || status == 429)
		MHD_add_response_header(m, "Retry-After", status == 503 ? "1" : LIMIT_RETRY_S);
	if (status == 201 && r->call.location)
		MHD_add_response_header(m, "Location", r->call.location);
	if (r->call.replayed)
		MHD_add_response_header(m, "Idempotency-Replayed", "true");
	if (r->close_after || r->call.stopping)
		MHD_add_response_header(m, "Connection", "close");
	for (size_t i = 0; i < r->call.headers_count; i++)
		MHD_add_response_header(m, r->call.headers[i].name, r->call.headers[i].value);
	if (status < 300 && r->call.sunset) {
		time_format_http(r->call.sunset, text);
		MHD_add_response_header(m, "Sunset", text);
	}
}

static struct MHD_Response *make_ok(lapse_ms now)
{
	struct MHD_Response *m = MHD_create_response_from_buffer(
		sizeof(CALL_OK_TEXT) - 1, (void *)(uintptr_t)CALL_OK_TEXT, MHD_RESPMEM_PERSISTENT);
	char date[TIME_HTTP_LEN + 1];

	if (!m)
		return NULL;
	time_format_http(now, date);
	MHD_add_response_header(m, "Date", date);
	MHD_add_response_header(m, "Content-Type", "application/json");
	return m;
}

/* One response for all of a second: nothing is allocated for it, and its Date is written once.
 * libmicrohttpd would break the time down into a date for each. */
static enum MHD_Result send_ok(struct request *r)
{
	struct server *s = r->server;

	if (s->ok && s->ok_second != s->second) {
		MHD_destroy_response(s->ok); /* replies under way keep their reference */
		s->ok = NULL;
	}
	if (!s->ok) {
		s->ok = make_ok(s->second * 1000);
		s->ok_second = s->second;
	}
	if (!s->ok)
		return MHD_NO;
	server_count_reply(s, r, 200);
	connection_reply(r->connection, sizeof(CALL_OK_TEXT), s->pumped);
	return MHD_queue_response(r->mhd, 200, s->ok);
}

/* JSON ends with a newline, so that the prompt of a terminal does not follow it; its ETag is
 * without. */
static size_t end_line(struct buf *reply)
{
	size_t n = reply->len;

	if (n > 0 && reply->data[n - 1] == '}')
		buf_putc(reply, '\n');
	return n;
}

/* *status becomes 304, without a body, when the client has it already. The reply stays the
 * request's, which lives until libmicrohttpd has sent it. */
static struct MHD_Response *text_response(struct request *r, size_t json, int *status)
{
	bool tagged = *status < 300 && r->route && (r->route->flags & ROUTE_ETAG);
	char etag[ETAG_LEN + 1];

	if (tagged) {
		etag_make(buf_text(&r->call.reply), json, etag);
		if (is_not_modified(r, etag)) {
			*status = 304;
			buf_clear(&r->call.reply);
		}
	}
	struct MHD_Response *m = MHD_create_response_from_buffer(
		r->call.reply.len, r->call.reply.data, MHD_RESPMEM_PERSISTENT);
	if (m && tagged)
		MHD_add_response_header(m, "ETag", etag);
	return m;
}

enum MHD_Result request_send(struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && r->state == REQUEST_ANSWERED && !r->suspended);
	if (r->upload)
		upload_landed(r->upload);
	if (r->stream && r->err == LAPSE_OK)
		return stream_send(r);
	mcp_frame(r);
	if (r->call.plain_ok && r->err == LAPSE_OK) {
		if (!r->close_after && !r->call.stopping)
			return send_ok(r);
		buf_puts(&r->call.reply, CALL_OK_TEXT);
	}
	struct MHD_Response *m = NULL;
	if (r->call.has_file && r->err == LAPSE_OK) {
		m = download_new(r);
		if (!m)
			r->err = problem_set(
				&r->call.problem, LAPSE_ELIMIT, NULL,
				"too many uploads and downloads are under way (transfers_max)");
	}
	const char *type = r->call.content_type ? r->call.content_type : "application/json";
	int status = r->err < 0 ? write_error(r, &type) : r->call.status;
	if (!m) {
		size_t json = end_line(&r->call.reply);
		connection_reply(r->connection, r->call.reply.len, r->server->pumped);
		m = text_response(r, json, &status);
	}
	assert(status >= 200 && status < 600);
	server_count_reply(r->server, r, status);
	if (!m)
		return MHD_NO;
	if (status != 304)
		MHD_add_response_header(m, "Content-Type", type);
	add_reply_headers(r, m, status);
	enum MHD_Result result = MHD_queue_response(r->mhd, (unsigned)status, m);
	MHD_destroy_response(m);
	return result;
}
