/* SPDX-License-Identifier: Apache-2.0 */
#include "http/openapi.h"

#include <string.h>

#include "http/reply.h"
#include "http/route.h"

#define RANGE_MAX 200 /* bytes, for the description */

static void write_schema(struct buf *out, const struct json_field *f)
{
	json_begin(out, '{');
	switch (f->kind) {
	case FIELD_TEXT:
	case FIELD_LABEL:
		json_put_text(out, "type", "string");
		json_put_int(out, "minLength", f->min);
		json_put_int(out, "maxLength", f->max);
		break;
	case FIELD_ID:
		json_put_text(out, "type", "string");
		json_put_int(out, "minLength", 1);
		json_put_int(out, "maxLength", ID_MAX_BYTES);
		break;
	case FIELD_INT:
		json_put_text(out, "type", "integer");
		json_put_int(out, "minimum", f->min);
		json_put_int(out, "maximum", f->max);
		break;
	case FIELD_BOOL:
		json_put_text(out, "type", "boolean");
		break;
	case FIELD_TTL:
		json_key(out, "oneOf");
		json_begin(out, '[');
		json_begin(out, '{');
		json_put_text(out, "type", "integer");
		json_put_int(out, "minimum", f->min);
		json_put_int(out, "maximum", f->max);
		json_end(out, '}');
		json_raw(out, "{\"const\":\"" TTL_INFINITY "\"}");
		json_end(out, ']');
		break;
	case FIELD_TIME:
		json_put_text(out, "type", "string");
		json_put_text(out, "format", "date-time");
		break;
	case FIELD_OBJECT:
		json_put_text(out, "type", "object");
		break;
	case FIELD_TEXTS:
		json_put_raw(out, "oneOf",
			     "[{\"type\":\"string\"},"
			     "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]");
		break;
	case FIELD_IDS:
	case FIELD_HEXES:
		json_put_text(out, "type", "array");
		json_put_raw(out, "items", "{\"type\":\"string\"}");
		json_put_int(out, "minItems", f->min);
		json_put_int(out, "maxItems", f->max);
		json_put_bool(out, "uniqueItems", true);
		break;
	}
	json_put_text(out, "description", f->help);
	json_end(out, '}');
}

static void write_parameter(struct buf *out, const char *name, size_t n, const char *in,
			    const struct json_field *f)
{
	char text[64] = { 0 };

	memcpy(text, name, n < sizeof(text) ? n : sizeof(text) - 1);
	json_begin(out, '{');
	json_put_text(out, "name", text);
	json_put_text(out, "in", in);
	json_put_bool(out, "required", !f);
	json_key(out, "schema");
	if (f)
		write_schema(out, f);
	else
		json_raw(out, "{\"type\":\"string\"}");
	json_end(out, '}');
}

static void write_parameters(struct buf *out, const struct route *r)
{
	json_key(out, "parameters");
	json_begin(out, '[');
	for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{'))
		write_parameter(out, p + 1, strcspn(p + 1, "}"), "path", NULL);
	for (const struct json_field *f = r->query; f && f->name; f++)
		write_parameter(out, f->name, strlen(f->name), "query", f);
	if (r->flags & ROUTE_CREATES) {
		static const struct json_field key = {
			"Idempotency-Key",
			FIELD_ID,
			false,
			0,
			1,
			ID_MAX_BYTES,
			"the same key and body give the first answer again"
		};
		write_parameter(out, key.name, strlen(key.name), "header", &key);
	}
	if (r->flags & ROUTE_CONTENT) {
		static const struct json_field range = {
			"Range",
			FIELD_TEXT,
			false,
			0,
			0,
			RANGE_MAX,
			"bytes=FROM-TO, bytes=FROM- or bytes=-LAST: one part of it"
		};
		write_parameter(out, range.name, strlen(range.name), "header", &range);
	}
	if (r->flags & ROUTE_STREAM) {
		static const struct json_field last = {
			"Last-Event-ID",         FIELD_TEXT, false, 0, ID_TEXT_LEN, ID_TEXT_LEN,
			"go on after this event"
		};
		write_parameter(out, last.name, strlen(last.name), "header", &last);
	}
	json_end(out, ']');
}

static void write_object(struct buf *out, const struct route *r)
{
	json_begin(out, '{');
	json_put_text(out, "type", "object");
	json_put_bool(out, "additionalProperties", false);
	json_key(out, "required");
	json_begin(out, '[');
	for (const struct json_field *f = r->fields; f->name; f++)
		if (f->required)
			json_text(out, f->name);
	json_end(out, ']');
	json_key(out, "properties");
	json_begin(out, '{');
	for (const struct json_field *f = r->fields; f->name; f++) {
		json_key(out, f->name);
		write_schema(out, f);
	}
	json_end(out, '}');
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
	if (r->body == BODY_STREAM) {
		json_put_raw(out, "application/octet-stream",
			     "{\"schema\":{\"type\":\"string\",\"format\":\"binary\"}}");
		json_end(out, '}');
		json_end(out, '}');
		return;
	}
	if (r->body == BODY_MANY)
		json_put_raw(out, "text/csv", "{\"schema\":{\"type\":\"string\"}}");
	json_key(out, "application/json");
	json_begin(out, '{');
	json_key(out, "schema");
	if (r->body == BODY_MANY) {
		json_begin(out, '{');
		json_put_text(out, "type", "array");
		json_key(out, "items");
	}
	write_object(out, r);
	for (int i = r->body == BODY_MANY ? -1 : 0; i < 3; i++)
		json_end(out, '}');
}

static void write_responses(struct buf *out, const struct route *r)
{
	bool created = r->flags & ROUTE_CREATES;

	json_key(out, "responses");
	json_begin(out, '{');
	json_key(out, created ? "201" : "200");
	json_begin(out, '{');
	json_put_text(out, "description", "done");
	if (r->flags & ROUTE_STREAM)
		json_put_raw(out, "content",
			     "{\"text/event-stream\":{\"schema\":{\"type\":\"string\"}}}");
	if (r->flags & ROUTE_CONTENT)
		json_put_raw(out, "content",
			     "{\"application/octet-stream\":{\"schema\":{\"type\":\"string\","
			     "\"format\":\"binary\"}}}");
	if (r->reply) {
		json_key(out, "content");
		json_begin(out, '{');
		json_key(out, "application/json");
		json_begin(out, '{');
		json_key(out, "schema");
		shape_write(out, r->reply);
		json_end(out, '}');
		json_end(out, '}');
	}
	json_end(out, '}');
	if (r->flags & ROUTE_CONTENT)
		json_put_raw(out, "206",
			     "{\"description\":\"the part that Range asked for\",\"content\":{"
			     "\"application/octet-stream\":{\"schema\":{\"type\":\"string\","
			     "\"format\":\"binary\"}}}}");
	json_key(out, "default");
	json_raw(out, "{\"description\":\"an error\",\"content\":{\"application/json\":{\"schema\":"
		      "{\"$ref\":\"#/components/schemas/Error\"}}}}");
	json_end(out, '}');
}

static void write_operation(struct buf *out, const struct route *r)
{
	char method[8] = { 0 };

	for (size_t i = 0; r->method[i] && i < sizeof(method) - 1; i++)
		method[i] = (char)(r->method[i] - 'A' + 'a');
	json_key(out, method);
	json_begin(out, '{');
	json_put_text(out, "summary", r->summary);
	if (r->caller == CALLER_ADMIN)
		json_put_text(out, "description", "Needs an admin token.");
	if (r->caller == CALLER_PUBLIC)
		json_put_raw(out, "security", "[]");
	write_parameters(out, r);
	write_body(out, r);
	write_responses(out, r);
	json_end(out, '}');
}

static bool path_was_written(size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (strcmp(ROUTES[j].path, ROUTES[i].path) == 0)
			return true;
	return false;
}

static void write_paths(struct buf *out)
{
	json_key(out, "paths");
	json_begin(out, '{');
	for (size_t i = 0; i < ROUTES_COUNT; i++) {
		if (path_was_written(i))
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

static const enum lapse_error ALL_ERRORS[] = {
#define X(name, number, text) LAPSE_##name,
	LAPSE_ERRORS(X)
#undef X
};

static bool code_was_written(size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (strcmp(http_code_of(ALL_ERRORS[j]), http_code_of(ALL_ERRORS[i])) == 0)
			return true;
	return false;
}

static void write_error_schema(struct buf *out)
{
	json_key(out, "Error");
	json_raw(out, "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":"
		      "{\"type\":\"object\",\"required\":[\"code\",\"message\"],\"properties\":{"
		      "\"field\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"},"
		      "\"code\":{\"type\":\"string\",\"enum\":[");
	for (size_t i = 0; i < ARRAY_LEN(ALL_ERRORS); i++)
		if (!code_was_written(i))
			json_text(out, http_code_of(ALL_ERRORS[i]));
	buf_puts(out, "]}}}}}");
}

void openapi_write(struct buf *out)
{
	json_begin(out, '{');
	json_put_text(out, "openapi", "3.1.0");
	json_key(out, "info");
	json_begin(out, '{');
	json_put_text(out, "title", "lapse");
	json_put_text(out, "description", "Lifetimes for everything an agent fleet leaves behind.");
	json_put_text(out, "version", LAPSE_VERSION);
	json_end(out, '}');
	json_put_raw(out, "security", "[{},{\"token\":[]}]");
	write_paths(out);
	json_key(out, "components");
	json_begin(out, '{');
	json_put_raw(out, "securitySchemes",
		     "{\"token\":{\"type\":\"http\",\"scheme\":\"bearer\"}}");
	json_key(out, "schemas");
	json_begin(out, '{');
	write_error_schema(out);
	for (int i = 0; i < 3; i++)
		json_end(out, '}');
}

int openapi_api_get(struct call *c)
{
	openapi_write(&c->reply);
	return LAPSE_OK;
}
