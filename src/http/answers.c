/* SPDX-License-Identifier: Apache-2.0 */
#include "http/answers.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "http/example.h"
#include "http/reply.h"
#include "http/schema.h"

static const struct error_row {
	enum lapse_error err;
	const char *name; /* in components/responses */
	const char *when;
} ERRORS[] = {
	{ LAPSE_EINVAL, "InvalidRequest",
	  "A field, a parameter or the path is not valid; `field` names it. Nothing was changed." },
	{ LAPSE_EUNAUTHORIZED, "Unauthorized",
	  "A valid token is needed: `Authorization: Bearer TOKEN`." },
	{ LAPSE_EFORBIDDEN, "Forbidden",
	  "The caller may not do this: the route needs an admin or a scope, or a browser page of "
	  "another origin asks." },
	{ LAPSE_ENOTFOUND, "NotFound", "It does not exist, or it belongs to another owner." },
	{ LAPSE_EMETHOD, "MethodNotAllowed", "The path has other methods; `Allow` lists them." },
	{ LAPSE_ETIMEOUT, "Timeout",
	  "The request was not complete within `request_timeout_ms`. Send it again." },
	{ LAPSE_ECONFLICT, "Conflict",
	  "It cannot be done in the present state, or another request with this Idempotency-Key is "
	  "still under way." },
	{ LAPSE_EEXPIRED, "Expired", "It existed, and its lifetime is over." },
	{ LAPSE_EPRECONDITION, "PreconditionFailed",
	  "If-Match names another state: get it again, then decide." },
	{ LAPSE_ETOOLARGE, "TooLarge", "The body is larger than the daemon accepts." },
	{ LAPSE_EMEDIATYPE, "UnsupportedMediaType",
	  "The Content-Type is not one of those listed." },
	{ LAPSE_ERANGE, "RangeNotSatisfiable", "The range begins after the last byte." },
	{ LAPSE_EUNPROCESSABLE, "Unprocessable",
	  "The Idempotency-Key was used with another request." },
	{ LAPSE_ELIMIT, "LimitReached",
	  "A limit is reached; the message names the setting. Nothing was changed." },
	{ LAPSE_EHEADERS, "HeadersTooLarge", "The headers are larger than `headers_max_bytes`." },
	{ LAPSE_EINTERNAL, "Internal", "A fault of the daemon; its log says more." },
	{ LAPSE_EUPSTREAM, "UpstreamError", "The mail server failed or refused." },
	{ LAPSE_EUNAVAILABLE, "Unavailable",
	  "The daemon cannot do it now. Wait `Retry-After` seconds and send it again." },
};

static bool route_fails(const struct route *r, enum lapse_error err)
{
	bool has_body = r->body != BODY_NONE;

	switch ((int)err) {
	case LAPSE_EINVAL:
	case LAPSE_EFORBIDDEN:
	case LAPSE_ETIMEOUT:
	case LAPSE_EHEADERS:
	case LAPSE_EINTERNAL:
	case LAPSE_EUNAVAILABLE:
	case LAPSE_ETOOLARGE:
		return true;
	case LAPSE_EUNAUTHORIZED:
		return r->caller != CALLER_PUBLIC;
	case LAPSE_ENOTFOUND:
		return strchr(r->path, '{') || r->body == BODY_JSON || r->flags & FAILS_MISSING;
	case LAPSE_ECONFLICT:
		return r->flags & (ROUTE_CREATES | FAILS_CONFLICT);
	case LAPSE_EEXPIRED:
		return r->flags & FAILS_EXPIRED;
	case LAPSE_EPRECONDITION:
		return r->flags & FAILS_MATCH;
	case LAPSE_EMEDIATYPE:
		return has_body && r->body != BODY_STREAM;
	case LAPSE_ERANGE:
		return r->flags & ROUTE_CONTENT;
	case LAPSE_EUNPROCESSABLE:
		return r->flags & ROUTE_CREATES;
	case LAPSE_ELIMIT:
		return r->flags & FAILS_LIMIT;
	case LAPSE_EUPSTREAM:
		return r->flags & FAILS_UPSTREAM;
	default:
		return false;
	}
}

static void put_response_ref(struct buf *out, const struct error_row *row)
{
	struct buf CLEANUP(buf_done) path = { 0 };
	char status[8];

	snprintf(status, sizeof(status), "%d", http_status_of(row->err));
	buf_printf(&path, "#/components/responses/%s", row->name);
	json_key(out, status);
	json_begin(out, '{');
	json_put_text(out, "$ref", buf_text(&path));
	json_end(out, '}');
}

static const struct {
	const char *name, *help, *schema;
} HEADERS[] = {
	{ "Accept-Ranges", "always bytes: a part can be asked for with Range",
	  "{\"type\":\"string\",\"examples\":[\"bytes\"]}" },
	{ "Allow", "the methods that the path has",
	  "{\"type\":\"string\",\"examples\":[\"GET, HEAD, POST\"]}" },
	{ "Content-Range", "which bytes these are, and of how many",
	  "{\"type\":\"string\",\"examples\":[\"bytes 0-1023/4096\"]}" },
	{ "ETag", "the state of the resource, for If-Match and If-None-Match",
	  "{\"type\":\"string\",\"examples\":[\"\\\"8f14e45fceea167a\\\"\"]}" },
	{ "Idempotency-Replayed", "true when this is the first answer again",
	  "{\"type\":\"string\",\"examples\":[\"true\"]}" },
	{ "Location", "the path of what was made",
	  "{\"type\":\"string\",\"examples\":[\"/v1/mailboxes/mbx_00f1e2d3c4b5a697\"]}" },
	{ "Retry-After", "seconds to wait before the next attempt",
	  "{\"type\":\"integer\",\"examples\":[1]}" },
	{ "Sunset", "when the resource will expire (RFC 8594)",
	  "{\"type\":\"string\",\"examples\":[\"Mon, 16 Nov 2026 10:15:00 GMT\"]}" },
	{ "WWW-Authenticate", "always Bearer", "{\"type\":\"string\",\"examples\":[\"Bearer\"]}" },
};

static void put_header_ref(struct buf *out, const char *name)
{
	struct buf CLEANUP(buf_done) path = { 0 };

	buf_printf(&path, "#/components/headers/%s", name);
	json_key(out, name);
	json_begin(out, '{');
	json_put_text(out, "$ref", buf_text(&path));
	json_end(out, '}');
}

/* A resource with a deadline says it in a header, too. */
static bool has_sunset(const struct route *r)
{
	if (r->flags & ROUTE_CONTENT)
		return true;
	if (!r->reply || !(r->flags & (ROUTE_ETAG | ROUTE_CREATES)))
		return false;
	for (const struct shape_field *f = r->reply->fields; f->name; f++)
		if (strcmp(f->name, "expires_at") == 0 || strcmp(f->name, "last_seen") == 0 ||
		    strcmp(f->name, "read_at") == 0)
			return true;
	return false;
}

static void put_headers(struct buf *out, const struct route *r, bool is_part)
{
	json_key(out, "headers");
	json_begin(out, '{');
	if (r->flags & (ROUTE_ETAG | ROUTE_CONTENT))
		put_header_ref(out, "ETag");
	if (has_sunset(r))
		put_header_ref(out, "Sunset");
	if (r->flags & ROUTE_CREATES) {
		put_header_ref(out, "Idempotency-Replayed");
		put_header_ref(out, "Location");
	}
	if (r->flags & ROUTE_CONTENT)
		put_header_ref(out, "Accept-Ranges");
	if (is_part)
		put_header_ref(out, "Content-Range");
	json_end(out, '}');
}

static void put_json(struct buf *out, const struct shape *shape)
{
	json_key(out, "content");
	json_begin(out, '{');
	json_key(out, "application/json");
	json_begin(out, '{');
	json_key(out, "schema");
	schema_ref(out, shape->name);
	json_end(out, '}');
	json_end(out, '}');
}

#define BYTES                                                                                      \
	"{\"application/octet-stream\":{\"schema\":{\"type\":\"string\",\"format\":\"binary\"}}}"

static void put_content(struct buf *out, const struct route *r)
{
	if (r->flags & ROUTE_STREAM)
		json_put_raw(out, "content",
			     "{\"text/event-stream\":{\"schema\":{\"type\":\"string\"},"
			     "\"example\":\"id: 0198f3a2b4c5d6e7\\nevent: message.sent\\ndata: "
			     "{\\\"to\\\":\\\"bob\\\"}\\n\\n\"}}");
	else if (r->flags & ROUTE_CONTENT)
		json_put_raw(out, "content", BYTES);
	else if (r->reply)
		put_json(out, r->reply);
	else if (strcmp(r->path, "/metrics") == 0)
		json_put_raw(out, "content",
			     "{\"text/plain\":{\"schema\":{\"type\":\"string\"},"
			     "\"example\":\"lapse_clock_trusted 1\\n\"}}");
	else
		json_put_raw(out, "content",
			     "{\"application/json\":{\"schema\":{\"type\":\"object\","
			     "\"additionalProperties\":true}}}");
}

static void put_whole(struct buf *out, const struct route *r, const char *status)
{
	json_key(out, status);
	json_begin(out, '{');
	json_put_text(out, "description", r->summary);
	put_headers(out, r, false);
	put_content(out, r);
	json_end(out, '}');
}

static void put_success(struct buf *out, const struct route *r)
{
	bool is_created = r->flags & ROUTE_CREATES && !(r->flags & ROUTE_SAYS_OK);

	if (!is_created || r->flags & ROUTE_MAKES)
		put_whole(out, r, "200");
	if (is_created || r->flags & ROUTE_MAKES)
		put_whole(out, r, "201");
	if (!(r->flags & ROUTE_CONTENT))
		return;
	json_key(out, "206");
	json_begin(out, '{');
	json_put_text(out, "description", "The part that Range asked for");
	put_headers(out, r, true);
	json_put_raw(out, "content", BYTES);
	json_end(out, '}');
}

/* /readyz says why not in the shape of its success. */
static bool refuses_in_its_own_shape(const struct route *r, enum lapse_error err)
{
	return err == LAPSE_EUNAVAILABLE && strcmp(r->path, "/readyz") == 0;
}

static void put_refusal(struct buf *out, const struct route *r)
{
	json_key(out, "503");
	json_begin(out, '{');
	json_put_text(out, "description", "It cannot do its work; `reasons` says why");
	json_key(out, "headers");
	json_begin(out, '{');
	put_header_ref(out, "Retry-After");
	json_end(out, '}');
	put_json(out, r->reply);
	json_end(out, '}');
}

static void put_unchanged(struct buf *out)
{
	json_key(out, "304");
	json_begin(out, '{');
	json_put_text(out, "description", "It is as If-None-Match says; there is no body");
	json_key(out, "headers");
	json_begin(out, '{');
	put_header_ref(out, "ETag");
	json_end(out, '}');
	json_end(out, '}');
}

void answers_of_route(struct buf *out, const struct route *r)
{
	assert(r->id && r->summary);
	json_key(out, "responses");
	json_begin(out, '{');
	put_success(out, r);
	if ((r->flags & ROUTE_ETAG) && strcmp(r->method, "GET") == 0)
		put_unchanged(out);
	for (size_t i = 0; i < ARRAY_LEN(ERRORS); i++) {
		if (refuses_in_its_own_shape(r, ERRORS[i].err))
			put_refusal(out, r);
		else if (route_fails(r, ERRORS[i].err))
			put_response_ref(out, &ERRORS[i]);
	}
	json_end(out, '}');
}

static void put_error_headers(struct buf *out, enum lapse_error err)
{
	const char *name = err == LAPSE_EUNAUTHORIZED  ? "WWW-Authenticate"
			   : err == LAPSE_EMETHOD      ? "Allow"
			   : err == LAPSE_EUNAVAILABLE ? "Retry-After"
			   : err == LAPSE_ELIMIT       ? "Retry-After"
			   : err == LAPSE_ERANGE       ? "Content-Range"
						       : NULL;

	if (!name)
		return;
	json_key(out, "headers");
	json_begin(out, '{');
	put_header_ref(out, name);
	json_end(out, '}');
}

static void put_error_content(struct buf *out, enum lapse_error err, bool as_problem)
{
	struct problem none = { 0 };

	json_key(out, as_problem ? "application/problem+json" : "application/json");
	json_begin(out, '{');
	json_key(out, "schema");
	schema_ref(out, as_problem ? "Problem" : "Error");
	json_key(out, "example");
	http_write_error(out, err, &none, NULL, as_problem);
	json_end(out, '}');
}

static void put_error(struct buf *out, const struct error_row *row)
{
	json_key(out, row->name);
	json_begin(out, '{');
	json_put_text(out, "description", row->when);
	put_error_headers(out, row->err);
	json_key(out, "content");
	json_begin(out, '{');
	put_error_content(out, row->err, false);
	put_error_content(out, row->err, true);
	json_end(out, '}');
	json_end(out, '}');
}

void answers_components(struct buf *out)
{
	json_key(out, "responses");
	json_begin(out, '{');
	for (size_t i = 0; i < ARRAY_LEN(ERRORS); i++)
		put_error(out, &ERRORS[i]);
	json_end(out, '}');
	json_key(out, "headers");
	json_begin(out, '{');
	for (size_t i = 0; i < ARRAY_LEN(HEADERS); i++) {
		json_key(out, HEADERS[i].name);
		json_begin(out, '{');
		json_put_text(out, "description", HEADERS[i].help);
		json_put_raw(out, "schema", HEADERS[i].schema);
		json_end(out, '}');
	}
	json_end(out, '}');
}

static void put_codes(struct buf *out)
{
	json_key(out, "code");
	json_begin(out, '{');
	json_put_text(out, "type", "string");
	json_put_text(out, "description", "from a closed list; see docs/errors.md");
	json_key(out, "enum");
	json_begin(out, '[');
	for (size_t i = 0; i < ARRAY_LEN(ERRORS); i++)
		json_text(out, http_code_of(ERRORS[i].err));
	json_end(out, ']');
	json_end(out, '}');
}

#define FIELD_MEMBER                                                                               \
	"{\"type\":\"string\",\"description\":\"the field or parameter that is wrong, when it is " \
	"one\"}"

/* What a refused lease says besides. */
#define LEASE_MEMBER                                                                               \
	"{\"type\":\"object\",\"description\":\"the lease that another holder has, when it is "    \
	"why\",\"required\":[\"holder\",\"expires_at\"],\"properties\":{\"holder\":{\"type\":"     \
	"\"string\"},\"expires_at\":{\"type\":\"string\",\"format\":\"date-time\"}}}"

static void put_error_schema(struct buf *out)
{
	json_key(out, "Error");
	json_raw(out, "{\"type\":\"object\",\"required\":[\"error\"],\"description\":\"The body of "
		      "every error\",\"properties\":{\"error\":{\"type\":\"object\",\"required\":["
		      "\"code\",\"message\"],\"properties\":{");
	put_codes(out);
	json_put_raw(out, "message", "{\"type\":\"string\",\"description\":\"for people\"}");
	json_put_raw(out, "field", FIELD_MEMBER);
	json_end(out, '}');
	json_end(out, '}');
	json_put_raw(out, "lease", LEASE_MEMBER);
	json_end(out, '}');
	json_end(out, '}');
}

static void put_problem_schema(struct buf *out)
{
	json_key(out, "Problem");
	json_raw(out, "{\"type\":\"object\",\"required\":[\"type\",\"title\",\"status\",\"detail\","
		      "\"code\"],\"description\":\"The body of an error (RFC 9457) when Accept "
		      "asks for application/problem+json\",\"properties\":{");
	json_put_raw(out, "type", "{\"type\":\"string\",\"description\":\"always about:blank\"}");
	json_put_raw(out, "title", "{\"type\":\"string\"}");
	json_put_raw(out, "status", "{\"type\":\"integer\"}");
	json_put_raw(out, "detail", "{\"type\":\"string\"}");
	put_codes(out);
	json_put_raw(out, "field", FIELD_MEMBER);
	json_put_raw(out, "lease", LEASE_MEMBER);
	json_end(out, '}');
	json_end(out, '}');
}

void answers_error_schemas(struct buf *out)
{
	put_error_schema(out);
	put_problem_schema(out);
}
