/* SPDX-License-Identifier: Apache-2.0 */
#include "http/openapi.h"

#include <assert.h>
#include <string.h>

#include "http/answers.h"
#include "http/example.h"
#include "http/route.h"
#include "http/schema.h"

#define RANGE_MAX 200 /* bytes, for the description */
#define SHAPES_MAX 256

/* The first row whose text is part of a path gives its tag. */
static const struct tag {
	const char *part, *name, *help;
} TAGS[] = {
	{ "/messages/{msg}", "mailboxes", NULL },
	{ "/v1/mailboxes", "mailboxes", "Disposable mail addresses with a lifetime" },
	{ "/messages", "messages", "Messages between agents: sent, read, claimed" },
	{ "/heartbeat", "agents", NULL },
	{ "/v1/agents", "agents", "Which agents are there, and what they can do" },
	{ "/v1/capabilities", "agents", NULL },
	{ "/v1/attachments", "attachments", "Files with a lifetime" },
	{ "/v1/tables", "tables", "Entries that live as long as they are refreshed" },
	{ "/v1/leases", "leases", "Leases with fencing tokens" },
	{ "/v1/dedupe", "tables", NULL },
	{ "/v1/queues", "queues", "Work items that are claimed, completed or failed" },
	{ "/v1/oauth", "tables", NULL },
	{ "/v1/outbox", "outbox", "A log that consumers follow at their own pace" },
	{ "/v1/cache", "tables", NULL },
	{ "/v1/contracts", "contracts", "Lifetimes for tables of other databases" },
	{ "/v1/approvals", "contracts", NULL },
	{ "/v1/webhooks", "events", NULL },
	{ "/v1/events", "events", "What happened, as it happens" },
	{ "/mcp", "mcp", "The operations as tools for agents" },
	{ "/v1/", "engine", "The matrix, sweeps, holds, tokens, time and backups" },
	{ "/", "probes", "Health, readiness, metrics and this document" },
};

static const struct tag *tag_of(const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(TAGS); i++)
		if (strstr(path, TAGS[i].part))
			return &TAGS[i];
	assert(0 && "every path begins with a slash");
	return NULL;
}

/* What stands in the braces of paths. Without a row: an id that a client gives. */
static const struct path_parameter {
	const char *in; /* a part of the path; NULL = of any */
	const char *name, *help, *pattern, *example;
} PATH_PARAMETERS[] = {
	{ "/v1/mailboxes", "id", "the mailbox's id", NULL, "\"mbx_0198f3a2b4c5d6e7\"" },
	{ NULL, "id", "its id", NULL, "\"0198f3a2b4c5d6e7\"" },
	{ NULL, "msg", "the mail's id", NULL, "\"0198f3a2b4c5d6e9\"" },
	{ NULL, "agent", "the agent's id", NULL, "\"bob\"" },
	{ NULL, "checksum", "SHA-256 of the bytes, in hexadecimal", "^[0-9a-fA-F]{64}$", NULL },
	{ "/v1/capabilities", "name", "the capability", NULL, "\"resize\"" },
	{ NULL, "name", "its name", NULL, "\"nightly\"" },
	{ NULL, "scheduler", "a scheduler of the matrix", NULL, NULL },
	{ NULL, "table", "a table of the matrix", NULL, NULL },
	{ NULL, "key", "the row's key", NULL, NULL },
	{ NULL, "prefix", "the token's public prefix", NULL, NULL },
};

static const struct path_parameter *find_path_parameter(const char *path, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(PATH_PARAMETERS); i++)
		if (strcmp(PATH_PARAMETERS[i].name, name) == 0 &&
		    (!PATH_PARAMETERS[i].in || strstr(path, PATH_PARAMETERS[i].in)))
			return &PATH_PARAMETERS[i];
	return NULL;
}

static void begin_parameter(struct buf *out, const char *name, const char *in, bool required,
			    const char *help)
{
	json_begin(out, '{');
	json_put_text(out, "name", name);
	json_put_text(out, "in", in);
	json_put_bool(out, "required", required);
	json_put_text(out, "description", help);
	json_key(out, "schema");
}

static void write_path_parameter(struct buf *out, const char *path, const char *brace)
{
	struct buf CLEANUP(buf_done) name = { 0 };
	const struct path_parameter *row;

	buf_printf(&name, "%.*s", (int)strcspn(brace + 1, "}"), brace + 1);
	row = find_path_parameter(path, buf_text(&name));
	begin_parameter(out, buf_text(&name), "path", true, row ? row->help : "its key");
	json_begin(out, '{');
	json_put_text(out, "type", "string");
	if (row && row->pattern)
		json_put_text(out, "pattern", row->pattern);
	json_key(out, "examples");
	json_begin(out, '[');
	if (row && row->example)
		json_raw(out, row->example);
	else
		example_of_parameter(out, buf_text(&name), "\"key-1\"");
	json_end(out, ']');
	json_end(out, '}');
	json_end(out, '}');
}

static void write_parameter(struct buf *out, const char *in, const struct json_field *f)
{
	begin_parameter(out, f->name, in, f->required, f->help);
	schema_of_field(out, f);
	json_end(out, '}');
}

/* Headers that routes with a flag honour. */
static const struct {
	unsigned flag;
	struct json_field field;
} REQUEST_HEADERS[] = {
	{ ROUTE_CREATES,
	  { "Idempotency-Key", FIELD_ID, false, 0, 1, ID_MAX_BYTES,
	    "the same key and body give the first answer again" } },
	{ FAILS_MATCH,
	  { "If-Match", FIELD_TEXT, false, 0, 1, RANGE_MAX,
	    "only when its ETag is still this one" } },
	{ ROUTE_CONTENT,
	  { "Range", FIELD_TEXT, false, 0, 0, RANGE_MAX,
	    "bytes=FROM-TO, bytes=FROM- or bytes=-LAST: one part of it" } },
	{ ROUTE_STREAM,
	  { "Last-Event-ID", FIELD_TEXT, false, 0, 1, RANGE_MAX, "go on after this event" } },
};

static void write_parameters(struct buf *out, const struct route *r)
{
	json_key(out, "parameters");
	json_begin(out, '[');
	for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{'))
		write_path_parameter(out, r->path, p);
	for (const struct json_field *f = r->query; f && f->name; f++)
		write_parameter(out, "query", f);
	for (size_t i = 0; i < ARRAY_LEN(REQUEST_HEADERS); i++)
		if (r->flags & REQUEST_HEADERS[i].flag)
			write_parameter(out, "header", &REQUEST_HEADERS[i].field);
	json_end(out, ']');
}

/* "sendMessage" has the body "SendMessageBody". */
static void put_body_name(struct buf *name, const struct route *r)
{
	assert(r->id[0] >= 'a' && r->id[0] <= 'z');
	buf_printf(name, "%c%sBody", r->id[0] - 'a' + 'A', r->id + 1);
}

static bool has_named_body(const struct route *r)
{
	return r->fields && r->body != BODY_NONE && r->body != BODY_STREAM;
}

static void write_json_body(struct buf *out, const struct route *r)
{
	struct buf CLEANUP(buf_done) name = { 0 };

	put_body_name(&name, r);
	json_key(out, "application/json");
	json_begin(out, '{');
	json_key(out, "schema");
	if (r->body == BODY_MANY) {
		json_begin(out, '{');
		json_put_text(out, "type", "array");
		json_key(out, "items");
		schema_ref(out, buf_text(&name));
		json_end(out, '}');
	} else {
		schema_ref(out, buf_text(&name));
	}
	json_key(out, "example");
	if (r->body == BODY_MANY)
		json_begin(out, '[');
	example_of_fields(out, r->fields);
	if (r->body == BODY_MANY)
		json_end(out, ']');
	json_end(out, '}');
}

static void write_body(struct buf *out, const struct route *r)
{
	if (r->body == BODY_NONE)
		return;
	json_key(out, "requestBody");
	json_begin(out, '{');
	json_put_bool(out, "required", r->body != BODY_OPTIONAL);
	json_key(out, "content");
	json_begin(out, '{');
	if (r->body == BODY_STREAM)
		json_put_raw(out, "application/octet-stream",
			     "{\"schema\":{\"type\":\"string\",\"format\":\"binary\"}}");
	if (r->body == BODY_MANY)
		json_put_raw(out, "text/csv",
			     "{\"schema\":{\"type\":\"string\"},\"example\":\"bob,eu-1\\n\"}");
	if (has_named_body(r))
		write_json_body(out, r);
	json_end(out, '}');
	json_end(out, '}');
}

static void write_description(struct buf *out, const struct route *r)
{
	static const char *const who[] = { [CALLER_ANY] = "For the caller's owner.",
					   [CALLER_ADMIN] = "Needs an admin.",
					   [CALLER_LOCAL] = "Needs no token on loopback.",
					   [CALLER_PUBLIC] = "Needs no token." };
	struct buf CLEANUP(buf_done) text = { 0 };

	assert(r->caller < ARRAY_LEN(who));
	buf_puts(&text, who[r->caller]);
	if (r->room != SCOPE_FREE) {
		buf_puts(&text, " Scope: ");
		scope_put_needed(&text, r->room, route_writes(r));
		buf_putc(&text, '.');
	}
	json_put_text(out, "description", buf_text(&text));
}

static void write_operation(struct buf *out, const struct route *r)
{
	char method[8] = { 0 };

	for (size_t i = 0; r->method[i] && i < sizeof(method) - 1; i++)
		method[i] = (char)(r->method[i] - 'A' + 'a');
	json_key(out, method);
	json_begin(out, '{');
	json_put_text(out, "operationId", r->id);
	json_key(out, "tags");
	json_begin(out, '[');
	json_text(out, tag_of(r->path)->name);
	json_end(out, ']');
	json_put_text(out, "summary", r->summary);
	write_description(out, r);
	if (r->caller == CALLER_PUBLIC)
		json_put_raw(out, "security", "[]");
	write_parameters(out, r);
	write_body(out, r);
	answers_of_route(out, r);
	json_end(out, '}');
}

static bool path_was_written(size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (strcmp(ROUTES[j].path, ROUTES[i].path) == 0)
			return true;
	return false;
}

static void write_openapi_paths(struct buf *out)
{
	json_key(out, "paths");
	json_begin(out, '{');
	for (size_t i = 0; i < ROUTES_COUNT; i++) {
		if (path_was_written(i) || (ROUTES[i].flags & ROUTE_ASIDE))
			continue;
		json_key(out, ROUTES[i].path);
		json_begin(out, '{');
		for (size_t j = i; j < ROUTES_COUNT; j++)
			if (strcmp(ROUTES[j].path, ROUTES[i].path) == 0)
				write_operation(out, &ROUTES[j]);
		json_end(out, '}');
	}
	json_end(out, '}');
}

/* Every shape that an answer has, each once, with the shapes inside it. */
struct shapes {
	const struct shape *all[SHAPES_MAX];
	size_t count;
};

static void collect_shape(struct shapes *s, const struct shape *shape)
{
	for (size_t i = 0; i < s->count; i++) {
		if (s->all[i] == shape)
			return;
		assert(strcmp(s->all[i]->name, shape->name) != 0);
	}
	assert(s->count < SHAPES_MAX);
	s->all[s->count++] = shape;
	for (const struct shape_field *f = shape->fields; f->name; f++)
		if (f->of)
			collect_shape(s, f->of);
}

static void write_schemas(struct buf *out)
{
	struct shapes shapes = { .count = 0 };

	for (size_t i = 0; i < ROUTES_COUNT; i++)
		if (ROUTES[i].reply)
			collect_shape(&shapes, ROUTES[i].reply);
	json_key(out, "schemas");
	json_begin(out, '{');
	answers_error_schemas(out);
	for (size_t i = 0; i < shapes.count; i++) {
		json_key(out, shapes.all[i]->name);
		schema_of_shape(out, shapes.all[i]);
	}
	for (size_t i = 0; i < ROUTES_COUNT; i++) {
		struct buf CLEANUP(buf_done) name = { 0 };
		if (!has_named_body(&ROUTES[i]))
			continue;
		put_body_name(&name, &ROUTES[i]);
		json_key(out, buf_text(&name));
		schema_of_fields(out, ROUTES[i].fields);
	}
	json_end(out, '}');
}

static bool tag_is_used(const struct tag *tag)
{
	for (size_t i = 0; i < ROUTES_COUNT; i++)
		if (strcmp(tag_of(ROUTES[i].path)->name, tag->name) == 0)
			return true;
	return false;
}

static void write_tags(struct buf *out)
{
	json_key(out, "tags");
	json_begin(out, '[');
	for (size_t i = 0; i < ARRAY_LEN(TAGS); i++) {
		if (!TAGS[i].help || !tag_is_used(&TAGS[i]))
			continue;
		json_begin(out, '{');
		json_put_text(out, "name", TAGS[i].name);
		json_put_text(out, "description", TAGS[i].help);
		json_end(out, '}');
	}
	json_end(out, ']');
}

#define ABOUT                                                                                      \
	"Lifetimes for what an agent fleet leaves behind. Times are ISO 8601 in UTC with "         \
	"milliseconds; durations are whole numbers of milliseconds. Every key belongs to the "     \
	"caller's owner; what belongs to another owner answers 404. Answers may get new members "  \
	"at any time; bodies with unknown members are refused. An error is application/json, or "  \
	"application/problem+json when Accept asks for it. GET routes answer HEAD, too."

static void write_info(struct buf *out)
{
	json_key(out, "info");
	json_begin(out, '{');
	json_put_text(out, "title", "lapse");
	json_put_text(out, "description", ABOUT);
	json_put_text(out, "version", LAPSE_VERSION);
	json_put_raw(out, "license",
		     "{\"name\":\"Apache License 2.0\",\"identifier\":\"Apache-2.0\"}");
	json_put_raw(out, "contact", "{\"name\":\"the lapse project\"}");
	json_end(out, '}');
}

void openapi_write(struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "openapi", "3.1.0");
	write_info(out);
	json_put_raw(out, "servers",
		     "[{\"url\":\"/\",\"description\":\"the daemon that serves this document\"}]");
	write_tags(out);
	json_put_raw(out, "security", "[{},{\"token\":[]}]");
	write_openapi_paths(out);
	json_key(out, "components");
	json_begin(out, '{');
	json_put_raw(out, "securitySchemes",
		     "{\"token\":{\"type\":\"http\",\"scheme\":\"bearer\",\"description\":"
		     "\"From `lapse token create`. While no token exists, callers on loopback need "
		     "none.\"}}");
	answers_components(out);
	write_schemas(out);
	json_end(out, '}');
	json_end(out, '}');
}

int openapi_api_get(struct call *c)
{
	openapi_write(&c->reply);
	return LAPSE_OK;
}
