/* SPDX-License-Identifier: Apache-2.0 */
#include "http/request.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "http/auth.h"
#include "http/reply.h"
#include "http/server.h"
#include "http/stream.h"

/* A body that goes on after its limit is read and dropped up to here, so that the client gets its
 * 413; after that the connection is closed. */
#define DROPPED_MAX_BYTES (INT64_C(8) << 20)

/* Requests kept for the next ones, with the buffer of their body: large blocks are what malloc is
 * slow at, and the one used last is still in the processor's cache. */
#define SPARE_REQUESTS 64
#define SPARE_BODY_BYTES ((size_t)4096)

/* A proxy in front might read an ambiguous request in another way than we do. */
static int check_framing(struct request *r)
{
	if (r->head.hosts <= 1 && r->head.framings <= 1)
		return LAPSE_OK;
	r->close_after = true;
	return problem_set(&r->call.problem, LAPSE_EINVAL, NULL,
			   "Host, Content-Length or Transfer-Encoding is given more than once");
}

static int authenticate(struct request *r)
{
	const struct head *h = &r->head;
	struct auth_request a = { .loopback = r->connection->loopback,
				  .authorization = h->authorization,
				  .owner = h->owner,
				  .host = h->host,
				  .origin = h->origin,
				  .fetch_site = h->fetch_site,
				  .forwarded = h->forwarded };
	struct caller caller;
	int err = auth_check(r->server->engine, r->route->caller, &a, &caller, &r->call.problem);
	if (err < 0)
		return err;
	r->call.owner = arena_strdup(&r->call.arena, caller.owner);
	r->call.admin = caller.admin;
	r->acting = caller.acting;
	if (caller.token) {
		r->token = arena_strdup(&r->call.arena, caller.token->prefix);
		r->token_id = caller.token->id;
	}
	return LAPSE_OK;
}

struct query_reader {
	struct request *request;
	int err;
};

static enum MHD_Result add_arg(void *arg, enum MHD_ValueKind kind, const char *key,
			       const char *value)
{
	struct query_reader *q = arg;
	struct call *c = &q->request->call;

	(void)kind;
	if (c->query_count == CALL_QUERY_MAX) {
		q->err = problem_set(&c->problem, LAPSE_EINVAL, NULL, "too many query parameters");
		return MHD_NO;
	}
	const char *name = percent_decode(&c->arena, key, strlen(key));
	const char *text = percent_decode(&c->arena, value ? value : "", value ? strlen(value) : 0);
	if (!name || !text || !utf8_is_valid(text, strlen(text), false) ||
	    !utf8_is_valid(name, strlen(name), false)) {
		q->err = problem_set(&c->problem, LAPSE_EINVAL, NULL,
				     "the query is not properly encoded UTF-8");
		return MHD_NO;
	}
	c->query[c->query_count++] = (struct call_arg){ name, text };
	return MHD_YES;
}

static int read_query(struct request *r)
{
	struct query_reader q = { .request = r };

	if (!r->head.has_query)
		return LAPSE_OK;
	MHD_get_connection_values(r->mhd, MHD_GET_ARGUMENT_KIND, add_arg, &q);
	if (q.err == LAPSE_OK && !r->route->query && r->call.query_count > 0)
		return problem_set(&r->call.problem, LAPSE_EINVAL, r->call.query[0].name,
				   "unknown query parameter '%.60s'", r->call.query[0].name);
	return q.err;
}

static int read_idempotency_key(struct request *r)
{
	const char *key = r->head.idempotency_key;

	if (!key || !(r->route->flags & ROUTE_CREATES))
		return LAPSE_OK;
	size_t n = strlen(key);
	if (n == 0 || n > ID_MAX_BYTES || !utf8_is_valid(key, n, true))
		return problem_set(&r->call.problem, LAPSE_EINVAL, "Idempotency-Key",
				   "Idempotency-Key must be 1 to %d bytes of printable UTF-8",
				   ID_MAX_BYTES);
	r->has_key = true;
	r->idempotency.owner = r->call.owner;
	r->idempotency.key = arena_strdup(&r->call.arena, key);
	return LAPSE_OK;
}

/* Whether the digits, which libmicrohttpd has checked, are a number above the limit. */
static bool is_above(const char *digits, int64_t limit)
{
	int64_t n = 0;

	for (; *digits >= '0' && *digits <= '9' && n <= limit; digits++)
		n = n * 10 + (*digits - '0');
	return n > limit;
}

static int check_sizes(struct request *r)
{
	const struct settings *s = r->server->engine->settings;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	const char *length = r->head.content_length;

	if (info && (int64_t)info->header_size > s->headers_max_bytes)
		return LAPSE_EHEADERS;
	if (length && is_above(length, s->body_max_bytes)) {
		r->close_after = true;
		return problem_set(&r->call.problem, LAPSE_ETOOLARGE, "body",
				   "the body may have %lld bytes (body_max_bytes)",
				   (long long)s->body_max_bytes);
	}
	return LAPSE_OK;
}

static void look_ahead(struct request *r)
{
	if (r->err == LAPSE_OK && r->route->quick && r->route->quick->ahead)
		r->route->quick->ahead(&r->call);
}

static int read_head(struct request *r, const char *method)
{
	head_read(r->mhd, &r->head);
	r->call.if_match = r->head.if_match;
	int err = check_sizes(r);
	if (err == LAPSE_OK)
		err = check_framing(r);
	if (err < 0)
		return err;
	err = route_find(method, r->path, &r->call.arena, &r->route, r->call.params, r->allow,
			 sizeof(r->allow));
	if (err == LAPSE_ENOTFOUND)
		return problem_set(&r->call.problem, err, NULL, "there is no route %.8s %.160s",
				   method, r->path);
	if (err == LAPSE_EINVAL)
		return problem_set(&r->call.problem, err, NULL,
				   "the path is not properly percent-encoded");
	if (err == LAPSE_OK)
		err = authenticate(r);
	if (err == LAPSE_OK)
		err = read_query(r);
	if (err == LAPSE_OK)
		err = read_idempotency_key(r);
	return err;
}

static struct request *take_spare(struct server *s)
{
	struct list *spare = list_shift(&s->spare);

	if (!spare)
		return mem_zalloc(1, sizeof(struct request));
	s->spare_count--;
	struct request *r = CONTAINER_OF(spare, struct request, link);
	struct buf body = r->body;
	memset(r, 0, offsetof(struct request, call.arena));
	memset((char *)r + offsetof(struct request, call.owner), 0,
	       sizeof(*r) - offsetof(struct request, call.owner));
	r->body = body;
	return r;
}

static bool keep_spare(struct server *s, struct request *r)
{
	if (s->spare_count >= SPARE_REQUESTS)
		return false;
	if (r->body.cap > SPARE_BODY_BYTES)
		buf_done(&r->body);
	buf_clear(&r->body);
	s->spare_count++;
	list_append(s->spare.next, &r->link); /* before the first */
	return true;
}

static void request_destroy(struct request *r)
{
	buf_done(&r->body);
	free(r);
}

void requests_done(struct server *s)
{
	struct list *l;

	while ((l = list_shift(&s->spare)))
		request_destroy(CONTAINER_OF(l, struct request, link));
}

struct request *request_new(struct connection *c, const char *url, const char *method)
{
	struct server *s = c->server;
	struct request *r = take_spare(s);

	arena_init(&r->call.arena);
	r->magic = REQUEST_MAGIC;
	r->server = s;
	r->connection = c;
	r->mhd = c->mhd;
	r->call.engine = s->engine;
	r->call.status = 200;
	r->call.owner = "";
	list_init(&r->link);
	list_init(&r->waiter.link);
	memccpy(r->method, method, '\0', sizeof(r->method) - 1); /* cleared above, so it ends */
	r->path = arena_strdup(&r->call.arena, url);
	r->err = read_head(r, method);
	look_ahead(r);
	return r;
}

void request_free(struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && r->state != REQUEST_WAITING);
	r->magic = 0;
	stream_free(r->stream);
	json_decref(r->call.body);
	buf_done(&r->call.reply);
	buf_done(&r->call.kept);
	arena_done(&r->call.arena);
	if (!keep_spare(r->server, r))
		request_destroy(r);
}

bool request_receive(struct request *r, const char *data, size_t n)
{
	int64_t max = r->server->engine->settings->body_max_bytes;

	if ((int64_t)(r->body.len + n) <= max) {
		look_ahead(r);
		buf_add(&r->body, data, n);
		return true;
	}
	if (r->err == LAPSE_OK)
		r->err = problem_set(&r->call.problem, LAPSE_ETOOLARGE, "body",
				     "the body may have %lld bytes (body_max_bytes)",
				     (long long)max);
	r->close_after = true;
	r->dropped += (int64_t)n;
	return r->dropped <= DROPPED_MAX_BYTES;
}

static bool is_type(const char *content_type, const char *wanted)
{
	size_t n = strlen(wanted);

	if (!content_type || strncasecmp(content_type, wanted, n) != 0)
		return false;
	return strchr("; \t", content_type[n]) != NULL;
}

/* Whether the body may be there, or may not, and is of a kind the route takes. */
static int check_body(struct request *r)
{
	struct problem *p = &r->call.problem;
	enum route_body kind = r->route->body;

	if (r->body.len == 0)
		return kind == BODY_JSON || kind == BODY_MANY
			       ? problem_set(p, LAPSE_EINVAL, "body", "%s is required",
					     kind == BODY_JSON ? "a JSON object"
							       : "a JSON array, or CSV,")
			       : LAPSE_OK;
	if (kind == BODY_NONE)
		return problem_set(p, LAPSE_EINVAL, "body", "this route takes no body");
	const char *type = r->head.content_type;
	r->call.is_csv = kind == BODY_MANY && is_type(type, "text/csv");
	if (!r->call.is_csv && !is_type(type, "application/json"))
		return problem_set(p, LAPSE_EMEDIATYPE, "Content-Type",
				   "Content-Type must be application/json%s",
				   kind == BODY_MANY ? " or text/csv" : "");
	r->call.is_array = kind == BODY_MANY;
	r->call.text = r->body.data;
	r->call.text_len = r->body.len;
	return LAPSE_OK;
}

static bool answer_quickly(struct request *r)
{
	struct call *c = &r->call;

	return r->route->quick && c->text && !r->has_key && r->route->quick->answer(c) == LAPSE_OK;
}

void request_complete(struct request *r)
{
	r->complete = clock_mono(r->server->engine->clock);
	if (r->err == LAPSE_OK)
		r->err = check_body(r);
	if (r->err == LAPSE_OK && answer_quickly(r)) {
		r->state = REQUEST_ANSWERED;
		return;
	}
	if (r->err == LAPSE_OK && r->call.text && !r->call.is_csv)
		r->err = call_parse(&r->call);
	if (r->err == LAPSE_OK && r->has_key)
		idempotency_hash(&r->idempotency, r->method, r->path, buf_text(&r->body),
				 r->body.len);
}

static bool wants_problem(const struct request *r)
{
	const char *accept = r->head.accept;

	return accept && strstr(accept, "application/problem+json");
}

/* The error of r->err as the body; returns the status. */
static int write_error(struct request *r, const char **ret_type)
{
	bool as_problem = wants_problem(r);

	buf_done(&r->call.reply);
	http_write_error(&r->call.reply, (enum lapse_error)r->err, &r->call.problem, as_problem);
	*ret_type = as_problem ? "application/problem+json" : "application/json";
	return http_status_of((enum lapse_error)r->err);
}

static void add_etag(struct MHD_Response *m, const char *body, size_t n)
{
	char etag[ETAG_LEN + 1];

	call_etag(body, n, etag);
	MHD_add_response_header(m, "ETag", etag);
}

static void add_headers(struct request *r, struct MHD_Response *m, int status)
{
	char text[TIME_HTTP_LEN + 1];

	if (status == 401)
		MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
	if (status == 405)
		MHD_add_response_header(m, "Allow", r->allow);
	if (status == 503)
		MHD_add_response_header(m, "Retry-After", "1");
	if (r->replayed)
		MHD_add_response_header(m, "Idempotency-Replayed", "true");
	if (r->close_after || r->call.stopping)
		MHD_add_response_header(m, "Connection", "close");
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
		MHD_destroy_response(s->ok); /* whoever still sends it keeps it */
		s->ok = NULL;
	}
	if (!s->ok) {
		s->ok = make_ok(s->second * 1000);
		s->ok_second = s->second;
	}
	if (!s->ok)
		return MHD_NO;
	server_count_reply(s, r, 200);
	return MHD_queue_response(r->mhd, 200, s->ok);
}

enum MHD_Result request_send(struct request *r)
{
	if (r->stream && r->err == LAPSE_OK)
		return stream_send(r);
	if (r->call.plain_ok && r->err == LAPSE_OK) {
		if (!r->close_after && !r->call.stopping)
			return send_ok(r);
		buf_puts(&r->call.reply, CALL_OK_TEXT);
	}
	const char *type = r->call.content_type ? r->call.content_type : "application/json";
	int status = r->err < 0 ? write_error(r, &type) : r->call.status;
	size_t n = r->call.reply.len;
	char *data = buf_take(&r->call.reply);
	struct MHD_Response *m = MHD_create_response_from_buffer(n, data, MHD_RESPMEM_MUST_FREE);

	server_count_reply(r->server, r, status);
	if (!m) {
		free(data);
		return MHD_NO;
	}
	MHD_add_response_header(m, "Content-Type", type);
	if (status < 300 && r->route && (r->route->flags & ROUTE_ETAG))
		add_etag(m, data, n);
	add_headers(r, m, status);
	enum MHD_Result result = MHD_queue_response(r->mhd, (unsigned)status, m);
	MHD_destroy_response(m);
	return result;
}
