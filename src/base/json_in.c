/* SPDX-License-Identifier: Apache-2.0 */
/* The reading half of base/json.h. */
#include <inttypes.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"

#define DEPTH_MAX 64 /* of nesting: metadata is data, not a program for our stack */

static bool too_deep(const json_t *j, int depth)
{
	const char *key;
	size_t i;
	json_t *v;

	if (depth > DEPTH_MAX)
		return true;
	json_object_foreach ((json_t *)j, key, v)
		if (too_deep(v, depth + 1))
			return true;
	json_array_foreach (j, i, v)
		if (too_deep(v, depth + 1))
			return true;
	return false;
}

static int parse(const char *text, size_t n, json_type type, size_t flags, json_t **ret,
		 struct problem *p)
{
	json_error_t e;
	json_t *CLEANUP(json_freep) j = json_loadb(text, n, JSON_REJECT_DUPLICATES | flags, &e);

	if (!j)
		return problem_set(p, LAPSE_EINVAL, "body",
				   "body is not valid JSON: %.120s (line %d, column %d)", e.text,
				   e.line, e.column);
	if (json_typeof(j) != type)
		return problem_set(p, LAPSE_EINVAL, "body", "body must be a JSON %s",
				   type == JSON_ARRAY ? "array" : "object");
	if (too_deep(j, 1))
		return problem_set(p, LAPSE_EINVAL, "body", "body is nested deeper than %d levels",
				   DEPTH_MAX);
	*ret = j;
	j = NULL;
	return LAPSE_OK;
}

int json_parse_object(const char *text, size_t n, json_t **ret, struct problem *p)
{
	return parse(text, n, JSON_OBJECT, 0, ret, p);
}

/* Counts what begins a value or separates two, outside of texts. */
static bool has_too_many(const char *text, size_t n)
{
	bool quoted = false;
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else
			count += !quoted && (text[i] == ',' || text[i] == '[' || text[i] == '{');
	}
	return count > JSON_FOREIGN_VALUES_MAX;
}

int json_parse_foreign(const char *text, size_t n, json_t **ret, struct problem *p)
{
	if (n > JSON_FOREIGN_VALUES_MAX && has_too_many(text, n))
		return problem_set(p, LAPSE_EINVAL, "body", "body has more than %d values",
				   JSON_FOREIGN_VALUES_MAX);
	return parse(text, n, JSON_OBJECT, JSON_ALLOW_NUL, ret, p);
}

int json_parse_array(const char *text, size_t n, json_t **ret, struct problem *p)
{
	return parse(text, n, JSON_ARRAY, 0, ret, p);
}

static int wrong(struct problem *p, const struct json_field *f, const char *what)
{
	return problem_set(p, LAPSE_EINVAL, f->name, "%s %s", f->name, what);
}

static int decode_text(const json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	if (!json_is_string(v))
		return wrong(p, f, "must be a string");
	const char *s = json_string_value(v);
	const char *why;
	size_t n = json_string_length(v);
	if (f->kind == FIELD_ID) {
		if (!id_is_valid(s, &why))
			return wrong(p, f, why);
	} else if ((int64_t)n < f->min || (int64_t)n > f->max) {
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must be %" PRId64 " to %" PRId64 " bytes long", f->name,
				   f->min, f->max);
	} else if (f->kind == FIELD_LABEL && !utf8_is_valid(s, n, true)) {
		return wrong(p, f, "must be printable, without control characters");
	}
	*(const char **)member = s;
	return LAPSE_OK;
}

static int decode_int(const json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	int64_t n = json_integer_value(v);

	if (!json_is_integer(v))
		return wrong(p, f, "must be an integer");
	if (n < f->min || n > f->max)
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must be between %" PRId64 " and %" PRId64, f->name, f->min,
				   f->max);
	*(int64_t *)member = n;
	return LAPSE_OK;
}

static int decode_ttl(const json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	if (json_is_string(v) && strcmp(json_string_value(v), TTL_INFINITY) == 0) {
		*(lapse_ms *)member = LAPSE_NEVER;
		return LAPSE_OK;
	}
	if (!json_is_integer(v))
		return wrong(p, f, "must be an integer, or \"" TTL_INFINITY "\"");
	return decode_int(v, f, member, p);
}

static int decode_time(const json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	if (!json_is_string(v) || !time_parse(json_string_value(v), member))
		return wrong(p, f, "must be an ISO 8601 time like 2026-11-15T18:33:00.123Z");
	return LAPSE_OK;
}

/* Whether the i-th text of the array stands before it already. Quadratic only for short arrays;
 * long ones go through a set. */
static bool has_duplicate(const json_t *array)
{
	json_t *CLEANUP(json_freep) seen = json_object();
	size_t i;
	json_t *v;

	json_array_foreach (array, i, v) {
		if (json_object_get(seen, json_string_value(v)))
			return true;
		json_object_set_new(seen, json_string_value(v), json_true());
	}
	return false;
}

static int decode_array(json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	const char *why = "must be 16 hex digits";
	size_t i;
	int64_t id;
	json_t *item;

	if (!json_is_array(v))
		return wrong(p, f, "must be an array of strings");
	if ((int64_t)json_array_size(v) < f->min || (int64_t)json_array_size(v) > f->max)
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must have %" PRId64 " to %" PRId64 " entries", f->name,
				   f->min, f->max);
	json_array_foreach (v, i, item) {
		const char *s = json_string_value(item);
		if (!s)
			return problem_set(p, LAPSE_EINVAL, f->name, "%s[%zu] must be a string",
					   f->name, i);
		if (f->kind == FIELD_IDS ? !id_is_valid(s, &why) : !id_parse(s, &id))
			return problem_set(p, LAPSE_EINVAL, f->name, "%s[%zu] %s", f->name, i, why);
	}
	if (has_duplicate(v))
		return wrong(p, f, "must not name the same entry twice");
	*(json_t **)member = v;
	return LAPSE_OK;
}

static int decode_texts(json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	size_t n = json_is_string(v) ? 1 : json_array_size(v), i;
	json_t *item;

	if (!json_is_string(v) && !json_is_array(v))
		return wrong(p, f, "must be a string or an array of strings");
	if ((int64_t)n < f->min || (int64_t)n > f->max)
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must have %" PRId64 " to %" PRId64 " entries", f->name,
				   f->min, f->max);
	json_array_foreach (v, i, item)
		if (!json_is_string(item))
			return problem_set(p, LAPSE_EINVAL, f->name, "%s[%zu] must be a string",
					   f->name, i);
	*(json_t **)member = v;
	return LAPSE_OK;
}

static int decode_field(json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	switch (f->kind) {
	case FIELD_TEXT:
	case FIELD_LABEL:
	case FIELD_ID:
		return decode_text(v, f, member, p);
	case FIELD_INT:
		return decode_int(v, f, member, p);
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			return wrong(p, f, "must be true or false");
		*(bool *)member = json_is_true(v);
		return LAPSE_OK;
	case FIELD_TTL:
		return decode_ttl(v, f, member, p);
	case FIELD_TIME:
		return decode_time(v, f, member, p);
	case FIELD_OBJECT:
		if (!json_is_object(v))
			return wrong(p, f, "must be an object");
		*(json_t **)member = v;
		return LAPSE_OK;
	case FIELD_TEXTS:
		return decode_texts(v, f, member, p);
	case FIELD_IDS:
	case FIELD_HEXES:
		return decode_array(v, f, member, p);
	}
	return LAPSE_EINTERNAL;
}

static const struct json_field *find_field(const struct json_field *fields, const char *name)
{
	for (; fields->name; fields++)
		if (strcmp(fields->name, name) == 0)
			return fields;
	return NULL;
}

static int name_the_unknown(const json_t *object, const struct json_field *fields,
			    struct problem *p)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)object, key, v)
		if (!find_field(fields, key))
			return problem_set(p, LAPSE_EINVAL, key, "unknown field '%.60s'", key);
	return LAPSE_EINTERNAL;
}

int json_decode(const json_t *object, const struct json_field *fields, void *out, struct problem *p)
{
	size_t known = 0;

	for (const struct json_field *f = fields; f->name; f++) {
		json_t *v = json_object_get(object, f->name);
		if (!v) {
			if (f->required)
				return wrong(p, f, "is required");
			continue;
		}
		known++;
		int r = decode_field(v, f, (char *)out + f->offset, p);
		if (r < 0)
			return r;
	}
	if (object && known != json_object_size(object))
		return name_the_unknown(object, fields, p);
	return LAPSE_OK;
}
