/* SPDX-License-Identifier: Apache-2.0 */
#include "http/schema.h"

#include <assert.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"
#include "http/example.h"

#define HEX_PATTERN "^[0-9a-f]{16}$"

void schema_ref(struct buf *out, const char *name)
{
	struct buf CLEANUP(buf_done) path = { 0 };

	assert(name);
	buf_printf(&path, "#/components/schemas/%s", name);
	json_begin(out, '{');
	json_put_text(out, "$ref", buf_text(&path));
	json_end(out, '}');
}

static void put_lengths(struct buf *out, int64_t min, int64_t max)
{
	json_put_text(out, "type", "string");
	json_put_int(out, "minLength", min);
	json_put_int(out, "maxLength", max);
}

static void put_integer(struct buf *out, const struct json_field *f)
{
	json_put_text(out, "type", "integer");
	json_put_int(out, "minimum", f->min);
	json_put_int(out, "maximum", f->max);
}

static void put_ttl(struct buf *out, const struct json_field *f)
{
	json_key(out, "oneOf");
	json_begin(out, '[');
	json_begin(out, '{');
	put_integer(out, f);
	json_end(out, '}');
	json_raw(out, "{\"type\":\"string\",\"const\":\"" TTL_INFINITY "\"}");
	json_end(out, ']');
}

static void put_array(struct buf *out, const struct json_field *f)
{
	json_put_text(out, "type", "array");
	json_put_raw(out, "items",
		     f->kind == FIELD_HEXES ? "{\"type\":\"string\",\"pattern\":\"" HEX_PATTERN
					      "\"}"
					    : "{\"type\":\"string\"}");
	json_put_int(out, "minItems", f->min);
	json_put_int(out, "maxItems", f->max);
	json_put_bool(out, "uniqueItems", true);
}

static void put_kind(struct buf *out, const struct json_field *f)
{
	switch (f->kind) {
	case FIELD_TEXT:
	case FIELD_LABEL:
		put_lengths(out, f->min, f->max);
		break;
	case FIELD_ID:
		put_lengths(out, 1, ID_MAX_BYTES);
		break;
	case FIELD_INT:
		put_integer(out, f);
		break;
	case FIELD_BOOL:
		json_put_text(out, "type", "boolean");
		break;
	case FIELD_TTL:
		put_ttl(out, f);
		break;
	case FIELD_TIME:
		json_put_text(out, "type", "string");
		json_put_text(out, "format", "date-time");
		break;
	case FIELD_OBJECT:
		json_put_text(out, "type", "object");
		json_put_bool(out, "additionalProperties", true);
		break;
	case FIELD_TEXTS:
		json_put_raw(out, "oneOf",
			     "[{\"type\":\"string\"},"
			     "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]");
		break;
	case FIELD_IDS:
	case FIELD_HEXES:
		put_array(out, f);
		break;
	}
}

void schema_of_field(struct buf *out, const struct json_field *f)
{
	assert(f->name && f->help);
	json_begin(out, '{');
	put_kind(out, f);
	json_put_text(out, "description", f->help);
	json_key(out, "examples");
	json_begin(out, '[');
	example_of_field(out, f);
	json_end(out, ']');
	json_end(out, '}');
}

void schema_of_fields(struct buf *out, const struct json_field *fields)
{
	assert(fields);
	json_begin(out, '{');
	json_put_text(out, "type", "object");
	json_put_bool(out, "additionalProperties", false);
	json_key(out, "required");
	json_begin(out, '[');
	for (const struct json_field *f = fields; f->name; f++)
		if (f->required)
			json_text(out, f->name);
	json_end(out, ']');
	json_key(out, "properties");
	json_begin(out, '{');
	for (const struct json_field *f = fields; f->name; f++) {
		json_key(out, f->name);
		schema_of_field(out, f);
	}
	json_end(out, '}');
	json_end(out, '}');
}

static void put_type(struct buf *out, const char *type, unsigned flags)
{
	json_key(out, "type");
	if (!(flags & SHAPE_NULLABLE)) {
		json_text(out, type);
		return;
	}
	json_begin(out, '[');
	json_text(out, type);
	json_text(out, "null");
	json_end(out, ']');
}

static void put_values(struct buf *out, const char *values)
{
	json_key(out, "enum");
	json_begin(out, '[');
	for (const char *v = values; v; v = strchr(v, '|') ? strchr(v, '|') + 1 : NULL) {
		struct buf CLEANUP(buf_done) one = { 0 };
		buf_printf(&one, "%.*s", (int)strcspn(v, "|"), v);
		json_text(out, buf_text(&one));
	}
	json_end(out, ']');
}

static void schema_of_nested(struct buf *out, const struct shape *shape, bool whole);

/* What a kind has beside its type. */
static void put_details(struct buf *out, const struct shape_field *f, bool whole)
{
	if (f->values)
		put_values(out, f->values);
	if (f->flags & SHAPE_OLD)
		json_put_bool(out, "deprecated", true);
	if (f->kind == SHAPE_ID)
		json_put_text(out, "pattern", HEX_PATTERN);
	if (f->kind == SHAPE_TIME)
		json_put_text(out, "format", "date-time");
	if (f->kind == SHAPE_OBJECT)
		json_put_bool(out, "additionalProperties", true);
	if (f->kind == SHAPE_COUNTS)
		json_put_raw(out, "additionalProperties", "{\"type\":\"integer\"}");
	if (f->kind == SHAPE_TEXTS)
		json_put_raw(out, "items", "{\"type\":\"string\"}");
	if (f->kind == SHAPE_LIST) {
		json_key(out, "items");
		schema_of_nested(out, f->of, whole);
	}
}

static void schema_of_member(struct buf *out, const struct shape_field *f, bool whole)
{
	static const char *const types[] = {
		[SHAPE_TEXT] = "string",   [SHAPE_ID] = "string",   [SHAPE_INT] = "integer",
		[SHAPE_BOOL] = "boolean",  [SHAPE_TIME] = "string", [SHAPE_OBJECT] = "object",
		[SHAPE_COUNTS] = "object", [SHAPE_TEXTS] = "array", [SHAPE_LIST] = "array",
	};

	if (f->kind == SHAPE_NEST) {
		schema_of_nested(out, f->of, whole);
		return;
	}
	json_begin(out, '{');
	if (f->kind == SHAPE_TTL) {
		json_put_raw(out, "oneOf",
			     "[{\"type\":\"integer\"},"
			     "{\"type\":\"string\",\"const\":\"" TTL_INFINITY "\"}]");
	} else if (f->kind == SHAPE_VALUE) {
		json_put_raw(out, "type", "[\"string\",\"integer\",\"boolean\",\"null\"]");
	} else {
		assert((size_t)f->kind < ARRAY_LEN(types) && types[f->kind]);
		put_type(out, types[f->kind], f->flags);
		put_details(out, f, whole);
	}
	json_end(out, '}');
}

static void schema_put_members(struct buf *out, const struct shape *shape, bool whole)
{
	assert(shape && shape->fields);
	json_put_text(out, "type", "object");
	json_key(out, "required");
	json_begin(out, '[');
	for (const struct shape_field *f = shape->fields; f->name; f++)
		if (!(f->flags & (SHAPE_OPTIONAL | SHAPE_OLD)))
			json_text(out, f->name);
	json_end(out, ']');
	json_key(out, "properties");
	json_begin(out, '{');
	for (const struct shape_field *f = shape->fields; f->name; f++) {
		json_key(out, f->name);
		schema_of_member(out, f, whole);
	}
	json_end(out, '}');
}

static void schema_of_nested(struct buf *out, const struct shape *shape, bool whole)
{
	if (!whole) {
		schema_ref(out, shape->name);
		return;
	}
	json_begin(out, '{');
	schema_put_members(out, shape, true);
	json_end(out, '}');
}

void schema_of_shape_whole(struct buf *out, const struct shape *shape)
{
	schema_of_nested(out, shape, true);
}

void schema_of_shape(struct buf *out, const struct shape *shape)
{
	json_begin(out, '{');
	schema_put_members(out, shape, false);
	json_key(out, "examples");
	json_begin(out, '[');
	example_of_shape(out, shape);
	json_end(out, ']');
	json_end(out, '}');
}
