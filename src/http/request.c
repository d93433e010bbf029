/* SPDX-License-Identifier: Apache-2.0 */
#include "http/request.h"

#include <assert.h>
#include <string.h>

#include "http/auth.h"
#include "http/parse.h"
#include "http/server.h"
#include "http/stream.h"
#include "http/turn.h"
#include "http/upload.h"
#include "mcp/door.h"

/* A body that goes on after its limit is read and dropped up to here, so that the client gets its
 * 413; after that the connection is closed. */
#define DROPPED_MAX_BYTES (INT64_C(8) << 20)

/* Bodies up to these lengths are answered quickly, and parsed, as soon as they are complete. */
#define QUICK_BYTES ((size_t)64 << 10)
#define PARSE_NOW_BYTES ((size_t)8 << 10)

/* Requests kept for the next ones, with the buffers of their body and reply: large blocks are what
 * malloc is slow at, and the one used last is still in the processor's cache. */
#define SPARE_REQUESTS 64
#define SPARE_BYTES ((size_t)4096)

/* A proxy in front might read an ambiguous request in another way than we do. */
static int check_fault(struct request *r)
{
	if (!r->head.fault)
		return LAPSE_OK;
	r->close_after = true;
	return problem_set(&r->call.problem, LAPSE_EINVAL, r->head.fault_field, "%s",
			   r->head.fault);
}

/* The path, and in the absolute form the host that counts instead of the header's. */
static void read_target(struct request *r, const struct head_line *line)
{
	const char *host = NULL;
	size_t n = 0;
	const char *path = head_target_path(line->target, &host, &n);

	r->path = arena_strdup(&r->call.arena, path ? path : "");
	if (!path && !r->head.fault)
		r->head.fault = "the target is no URI of this server";
	if (host)
		r->head.host = arena_strndup(&r->call.arena, host, n);
}

static int find_caller(struct request *r, struct caller *ret)
{
	const struct head *h = &r->head;
	struct auth_request a = { .loopback = r->connection->loopback,
				  .authorization = h->authorization,
				  .owner = h->owner,
				  .host = h->host,
				  .origin = h->origin,
				  .fetch_site = h->fetch_site,
				  .forwarded = h->forwarded };

	assert(r->route && r->connection);
	return auth_check(r->server->engine, r->route, &a, ret, &r->call.problem);
}

int request_check_caller(struct request *r)
{
	struct caller caller;

	assert(r->magic == REQUEST_MAGIC && r->route);
	return r->connection ? find_caller(r, &caller) : LAPSE_EUNAUTHORIZED;
}

static int authenticate(struct request *r)
{
	struct caller caller;
	int err = find_caller(r, &caller);

	if (err < 0)
		return err;
	assert(caller.owner);
	r->call.owner = arena_strdup(&r->call.arena, caller.owner);
	r->call.admin = caller.admin;
	r->call.scopes = caller.scopes;
	r->call.acting = caller.acting;
	r->call.is_local = r->connection->loopback && !r->head.forwarded &&
			   !r->server->engine->settings->behind_tls_proxy;
	r->acting = caller.acting;
	r->unsure = caller.unsure;
	if (caller.token) {
		r->call.token = arena_strdup(&r->call.arena, caller.token->prefix);
		r->token_id = caller.token->id;
		token_used(r->server->engine, caller.token);
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

	assert(c->query_count <= CALL_QUERY_MAX);
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
	int err = field_key(key, "Idempotency-Key", &r->call.problem);
	if (err < 0)
		return err;
	assert(r->call.owner[0]);
	r->call.has_key = true;
	r->call.key.owner = r->call.owner;
	r->call.key.key = arena_strdup(&r->call.arena, key);
	return LAPSE_OK;
}

static const char *lookup(const struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

static bool is_streamed(const struct request *r)
{
	return r->route && r->route->body == BODY_STREAM;
}

/* The digits, which libmicrohttpd has checked, as a number; -1 = there are none. One too large is
 * the largest. */
static int64_t content_length(const struct request *r)
{
	const char *digits = r->head.content_length;
	int64_t n = digits ? 0 : -1;

	for (; digits && *digits >= '0' && *digits <= '9'; digits++) {
		if (n > (INT64_MAX - 9) / 10)
			return INT64_MAX;
		n = n * 10 + (*digits - '0');
	}
	return n;
}

static int check_headers_size(const struct request *r)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	return info && (int64_t)info->header_size > r->server->engine->settings->headers_max_bytes
		       ? LAPSE_EHEADERS
		       : LAPSE_OK;
}

static int check_length(struct request *r)
{
	const struct settings *s = r->server->engine->settings;

	if (is_streamed(r) || content_length(r) <= s->body_max_bytes)
		return LAPSE_OK;
	r->close_after = true;
	return problem_set(&r->call.problem, LAPSE_ETOOLARGE, "body",
			   "the body may have %lld bytes (body_max_bytes)",
			   (long long)s->body_max_bytes);
}

/* Whether a body of any length may come at all. */
static int admit_stream(struct request *r)
{
	assert(!r->upload);
	return upload_begin(r, content_length(r));
}

static void request_look_ahead(struct request *r)
{
	if (r->err == LAPSE_OK && r->route->quick && r->route->quick->ahead)
		r->route->quick->ahead(&r->call);
}

static int read_head(struct request *r, const struct head_line *line)
{
	const char *method = line->method;

	assert(!r->route && r->err == LAPSE_OK);
	head_read(r->mhd, line, &r->head);
	if (!r->connection->target_is_clean && !r->head.fault)
		r->head.fault = "the target holds a control character";
	read_target(r, line);
	if (r->head.if_match)
		r->call.if_match = arena_strdup(&r->call.arena, r->head.if_match);
	/* What follows a chunked body, its trailers, is not ours to check: nothing may come after
	 * it. */
	r->close_after = r->head.transfer_encoding != NULL;
	int err = check_headers_size(r);
	if (err == LAPSE_OK)
		err = check_fault(r);
	if (err < 0)
		return err;
	err = route_find(method, r->path, &r->call.arena, &r->route, r->call.params, r->allow,
			 sizeof(r->allow));
	int length = check_length(r);
	if (length < 0)
		return length;
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
	if (err == LAPSE_OK && is_streamed(r))
		err = admit_stream(r);
	if (err == LAPSE_OK && (r->route->flags & ROUTE_CONTENT)) {
		r->call.range = lookup(r, "Range");
		r->call.if_range = lookup(r, "If-Range");
	}
	return err;
}

static struct request *take_spare(struct server *s)
{
	struct list *spare = list_shift(&s->spare);

	if (!spare)
		return mem_zalloc(1, sizeof(struct request));
	assert(s->spare_count > 0);
	s->spare_count--;
	struct request *r = CONTAINER_OF(spare, struct request, link);
	assert(r->magic == 0);
	struct buf body = r->body, reply = r->call.reply;
	memset(r, 0, offsetof(struct request, call.arena));
	memset((char *)r + offsetof(struct request, call.owner), 0,
	       sizeof(*r) - offsetof(struct request, call.owner));
	r->body = body;
	r->call.reply = reply;
	return r;
}

static void empty_spare(struct buf *b)
{
	if (b->cap > SPARE_BYTES)
		buf_done(b);
	buf_clear(b);
}

static bool keep_spare(struct server *s, struct request *r)
{
	assert(r->magic == 0);
	if (s->spare_count >= SPARE_REQUESTS)
		return false;
	empty_spare(&r->body);
	empty_spare(&r->call.reply);
	s->spare_count++;
	list_append(s->spare.next, &r->link); /* before the first */
	return true;
}

static void request_destroy(struct request *r)
{
	buf_done(&r->body);
	buf_done(&r->call.reply);
	free(r);
}

void requests_done(struct server *s)
{
	for (struct list *l = s->spare.next, *next; l != &s->spare; l = next) {
		next = l->next;
		request_destroy(CONTAINER_OF(l, struct request, link));
	}
	list_init(&s->spare);
}

struct request *request_new(struct connection *c, const struct head_line *line)
{
	struct server *s = c->server;
	struct request *r = take_spare(s);

	assert(c->magic == CONNECTION_MAGIC);
	call_init(&r->call, s->engine);
	r->magic = REQUEST_MAGIC;
	r->server = s;
	r->connection = c;
	r->mhd = c->mhd;
	r->call.status = 200;
	r->call.owner = "";
	list_init(&r->link);
	memccpy(r->method, line->method, '\0', sizeof(r->method) - 1); /* cleared, so it ends */
	r->err = read_head(r, line);
	request_look_ahead(r);
	return r;
}

/* A request that is answered early, or quickly, is never queued. One that is queued again had more
 * to do, or its turn was undone. */
#define BIT(state) (1u << (state))
static const unsigned REQUEST_FOLLOWS[] = {
	[REQUEST_RECEIVING] = BIT(REQUEST_STORING) | BIT(REQUEST_QUEUED) | BIT(REQUEST_ANSWERED),
	[REQUEST_STORING] = BIT(REQUEST_QUEUED) | BIT(REQUEST_ANSWERED),
	[REQUEST_QUEUED] = BIT(REQUEST_QUEUED) | BIT(REQUEST_WAITING) | BIT(REQUEST_ANSWERED),
	[REQUEST_WAITING] = BIT(REQUEST_QUEUED) | BIT(REQUEST_ANSWERED),
	[REQUEST_ANSWERED] = 0,
};

void request_enter(struct request *r, enum request_state state)
{
	assert(r->magic == REQUEST_MAGIC);
	assert(REQUEST_FOLLOWS[r->state] & BIT(state));
	r->state = state;
}
#undef BIT

void request_free(struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && r->state != REQUEST_WAITING);
	assert(r->state != REQUEST_STORING);
	r->magic = 0;
	stream_free(r->stream);
	if (r->upload)
		upload_drop(r->upload);
	else if (r->call.upload)
		upload_discard(r->server, r->call.upload);
	mcp_release(r);
	parse_release(r);
	struct buf reply = r->call.reply;
	r->call.reply = (struct buf){ 0 };
	call_done(&r->call);
	r->call.reply = reply;
	if (!keep_spare(r->server, r))
		request_destroy(r);
}

void request_part(struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && !r->suspended);
	assert(r->state == REQUEST_QUEUED || r->state == REQUEST_WAITING);
	r->connection = NULL;
	r->mhd = NULL;
	r->head = (struct head){ 0 };
}

bool request_answers_early(const struct request *r)
{
	if (r->err == LAPSE_ETOOLARGE || r->err == LAPSE_EHEADERS || r->head.fault)
		return true;
	if (r->err == LAPSE_OK || !is_streamed(r))
		return false;
	int64_t length = content_length(r);
	return length < 0 || length > DROPPED_MAX_BYTES || lookup(r, "Expect");
}

bool request_forget(struct request *r, size_t n)
{
	assert(r->magic == REQUEST_MAGIC);
	r->close_after = true;
	r->dropped += (int64_t)n;
	if (r->dropped <= DROPPED_MAX_BYTES)
		return true;
	if (is_streamed(r))
		server_say_error(r);
	return false;
}

bool request_receive(struct request *r, const char *data, size_t *n)
{
	int64_t max = r->server->engine->settings->body_max_bytes;
	size_t given = *n;

	assert(r->magic == REQUEST_MAGIC && r->state == REQUEST_RECEIVING);
	if (r->upload && r->err == LAPSE_OK)
		return upload_receive(r, data, n);
	*n = 0;
	if (is_streamed(r) || r->err < 0) {
		buf_done(&r->body); /* it is not read any more */
		r->dropped += (int64_t)given;
		return r->dropped <= DROPPED_MAX_BYTES || request_forget(r, 0);
	}
	if ((int64_t)(r->body.len + given) <= max) {
		request_look_ahead(r);
		buf_add(&r->body, data, given);
		return true;
	}
	if (r->err == LAPSE_OK)
		r->err = problem_set(&r->call.problem, LAPSE_ETOOLARGE, "body",
				     "the body may have %lld bytes (body_max_bytes)",
				     (long long)max);
	return request_forget(r, given);
}

static bool is_type(const char *content_type, const char *wanted)
{
	size_t n = strlen(wanted);

	if (!content_type || strncasecmp(content_type, wanted, n) != 0)
		return false;
	return strchr("; \t", content_type[n]) != NULL;
}

static bool is_mcp(const struct request *r)
{
	return r->route && r->route->handler == mcp_api_post;
}

/* Whether the body may be there, or may not, and is of a kind the route takes. */
static int check_body(struct request *r)
{
	struct problem *p = &r->call.problem;
	enum route_body kind = r->route->body;

	assert(r->route);
	if (kind == BODY_STREAM)
		return LAPSE_OK;
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
	r->call.needs_tree = is_mcp(r);
	r->call.text = r->body.data;
	r->call.text_len = r->body.len;
	return LAPSE_OK;
}

int request_parse(struct request *r)
{
	return r->call.text && !r->call.is_csv ? call_parse(&r->call) : LAPSE_OK;
}

static bool answer_quickly(struct request *r)
{
	struct call *c = &r->call;

	assert(r->state == REQUEST_RECEIVING);
	return r->route->quick && c->text && c->text_len <= QUICK_BYTES && !r->call.has_key &&
	       r->route->quick->answer(c) == LAPSE_OK;
}

/* A caller who was known by old memory only, and whose request needs more than memory. */
static int check_unsure_caller(struct request *r)
{
	struct caller caller;
	int err = find_caller(r, &caller);

	if (err < 0)
		return err;
	return caller.unsure ? auth_refuse_unsure(&r->call.problem) : LAPSE_OK;
}

void request_complete(struct request *r)
{
	r->complete = r->server->pumped;
	if (r->err == LAPSE_OK)
		r->err = check_body(r);
	if (r->err == LAPSE_OK && answer_quickly(r)) {
		request_enter(r, REQUEST_ANSWERED);
		return;
	}
	if (r->err == LAPSE_OK && r->unsure)
		r->err = check_unsure_caller(r);
	if (r->err == LAPSE_OK && !parse_is_long(r) &&
	    (is_mcp(r) || r->call.text_len <= PARSE_NOW_BYTES))
		r->err = request_parse(r);
	if (r->err == LAPSE_OK && is_mcp(r) && r->call.body)
		mcp_take(r);
	if (r->err == LAPSE_OK && r->call.has_key && !r->upload)
		idempotency_hash(&r->call.key, r->method, r->path, buf_text(&r->body), r->body.len);
}

/* What an upload says is its query and its bytes; the checksum stands for those. */
static void hash_upload(struct request *r)
{
	struct buf CLEANUP(buf_done) said = { 0 };

	assert(r->call.upload && r->call.has_key);
	for (size_t i = 0; i < r->call.query_count; i++) {
		buf_add(&said, r->call.query[i].name, strlen(r->call.query[i].name) + 1);
		buf_add(&said, r->call.query[i].value, strlen(r->call.query[i].value) + 1);
	}
	buf_puts(&said, r->call.upload->checksum);
	idempotency_hash(&r->call.key, r->method, r->path, buf_text(&said), said.len);
}

void request_stored(struct request *r)
{
	assert(r->magic == REQUEST_MAGIC && r->state == REQUEST_STORING);
	if (r->err == LAPSE_OK && is_mcp(r))
		mcp_take(r);
	if (r->err < 0) {
		turn_answer(r, r->err);
		server_kick(r->server);
		return;
	}
	if (r->call.has_key && r->call.upload)
		hash_upload(r);
	turn_enqueue(r->server, r);
}
