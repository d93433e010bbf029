/* SPDX-License-Identifier: Apache-2.0 */
#include "api/field.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"

static int field_wrong(struct problem *p, const char *name, const char *what)
{
	return problem_set(p, LAPSE_EINVAL, name, "%s %s", name, what);
}

/* Rules */

int field_id(const char *text, const char *name, struct problem *p)
{
	const char *why = "is required";

	return text && id_is_valid(text, &why) ? LAPSE_OK : field_wrong(p, name, why);
}

int field_length(size_t n, int64_t min, int64_t max, const char *name, struct problem *p)
{
	assert(min <= max);
	if ((int64_t)n < min || (int64_t)n > max)
		return problem_set(p, LAPSE_EINVAL, name,
				   "%s must be %" PRId64 " to %" PRId64 " bytes long", name, min,
				   max);
	return LAPSE_OK;
}

int field_label(const char *text, int64_t min, int64_t max, const char *name, struct problem *p)
{
	if (!text)
		return field_wrong(p, name, "is required");
	int r = field_length(strlen(text), min, max, name, p);
	if (r == LAPSE_OK && !utf8_is_valid(text, strlen(text), true))
		return field_wrong(p, name, "must be printable UTF-8, without control characters");
	return r;
}

int field_range(int64_t value, int64_t min, int64_t max, const char *name, struct problem *p)
{
	assert(min <= max);
	if (value < min || value > max)
		return problem_set(p, LAPSE_EINVAL, name,
				   "%s must be between %" PRId64 " and %" PRId64, name, min, max);
	return LAPSE_OK;
}

int field_count(size_t n, int64_t min, int64_t max, const char *name, struct problem *p)
{
	assert(min <= max);
	if ((int64_t)n < min || (int64_t)n > max)
		return problem_set(p, LAPSE_EINVAL, name,
				   "%s must have %" PRId64 " to %" PRId64 " entries", name, min,
				   max);
	return LAPSE_OK;
}

static int field_by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int field_check_distinct(const char *const *texts, size_t n, const char *name,
				struct problem *p)
{
	const char **CLEANUP(mem_freep) sorted = mem_zalloc(n, sizeof(*sorted));

	memcpy(sorted, texts, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), field_by_text);
	for (size_t i = 1; i < n; i++)
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			return field_wrong(p, name, "must not name the same entry twice");
	return LAPSE_OK;
}

static int field_wrong_entry(struct problem *p, const char *name, size_t i, const char *what)
{
	return problem_set(p, LAPSE_EINVAL, name, "%s[%zu] %s", name, i, what);
}

int field_ids(const char *const *ids, size_t n, const char *name, struct problem *p)
{
	for (size_t i = 0; i < n; i++) {
		const char *why = "is required";
		if (!ids[i] || !id_is_valid(ids[i], &why))
			return field_wrong_entry(p, name, i, why);
	}
	return n > 0 ? field_check_distinct(ids, n, name, p) : LAPSE_OK;
}

static int field_hexes(const char *const *ids, size_t n, const char *name, struct problem *p)
{
	int64_t id;

	for (size_t i = 0; i < n; i++)
		if (!id_parse(ids[i], &id))
			return field_wrong_entry(p, name, i, "must be 16 hex digits");
	return n > 0 ? field_check_distinct(ids, n, name, p) : LAPSE_OK;
}

int field_key(const char *text, const char *name, struct problem *p)
{
	size_t n = text ? strlen(text) : 0;

	if (n == 0 || n > ID_MAX_BYTES || !utf8_is_valid(text, n, true))
		return problem_set(p, LAPSE_EINVAL, name,
				   "%s must be 1 to %d bytes of printable UTF-8", name,
				   ID_MAX_BYTES);
	return LAPSE_OK;
}

/* Values of a text kind, from JSON or from a query */

static int field_take_text(const struct json_field *f, const char *text, size_t n, void *member,
			   struct problem *p)
{
	int r;

	assert(f->kind == FIELD_ID || f->kind == FIELD_LABEL || f->kind == FIELD_TEXT);
	if (f->kind == FIELD_ID)
		r = field_id(text, f->name, p);
	else if (f->kind == FIELD_LABEL)
		r = field_label(text, f->min, f->max, f->name, p);
	else
		r = field_length(n, f->min, f->max, f->name, p);
	if (r == LAPSE_OK)
		*(const char **)member = text;
	return r;
}

/* From a query */

static bool field_parse_int(const struct json_field *f, const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	long long n = strtoll(text, &end, 10);
	if (text[0] == '\0' || text[0] == '+' || text[0] == ' ' || *end != '\0' ||
	    errno == ERANGE || n < f->min || n > f->max)
		return false;
	*ret = n;
	return true;
}

static int field_parse_number(const struct json_field *f, const char *text, int64_t *ret,
			      struct problem *p)
{
	bool ttl = f->kind == FIELD_TTL;

	if (ttl && strcmp(text, TTL_INFINITY) == 0)
		*ret = LAPSE_NEVER;
	else if (!field_parse_int(f, text, ret))
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must be an integer between %" PRId64 " and %" PRId64 "%s",
				   f->name, f->min, f->max, ttl ? ", or " TTL_INFINITY : "");
	return LAPSE_OK;
}

static int field_parse_bool(const struct json_field *f, const char *text, bool *ret,
			    struct problem *p)
{
	bool yes = strcmp(text, "true") == 0;

	if (!yes && strcmp(text, "false") != 0)
		return field_wrong(p, f->name, "must be true or false");
	*ret = yes;
	return LAPSE_OK;
}

int field_decode_text(const struct json_field *f, const char *text, void *member, struct problem *p)
{
	if (f->kind == FIELD_INT || f->kind == FIELD_TTL)
		return field_parse_number(f, text, member, p);
	if (f->kind == FIELD_BOOL)
		return field_parse_bool(f, text, member, p);
	return field_take_text(f, text, strlen(text), member, p);
}

/* From JSON */

static int field_decode_int(const json_t *v, const struct json_field *f, int64_t *member,
			    struct problem *p)
{
	if (f->kind == FIELD_TTL && json_is_string(v) &&
	    strcmp(json_string_value(v), TTL_INFINITY) == 0) {
		*member = LAPSE_NEVER;
		return LAPSE_OK;
	}
	if (!json_is_integer(v))
		return field_wrong(p, f->name,
				   f->kind == FIELD_TTL ? "must be an integer, or \"" TTL_INFINITY
							  "\""
							: "must be an integer");
	int r = field_range(json_integer_value(v), f->min, f->max, f->name, p);
	if (r == LAPSE_OK)
		*member = json_integer_value(v);
	return r;
}

static int field_decode_array(json_t *v, const struct json_field *f, json_t **member,
			      struct problem *p)
{
	size_t n = json_array_size(v);

	if (!json_is_array(v))
		return field_wrong(p, f->name, "must be an array of strings");
	int r = field_count(n, f->min, f->max, f->name, p);
	if (r < 0)
		return r;
	const char **CLEANUP(mem_freep) texts = mem_zalloc(n + 1, sizeof(*texts));
	for (size_t i = 0; i < n; i++) {
		texts[i] = json_string_value(json_array_get(v, i));
		if (!texts[i])
			return field_wrong_entry(p, f->name, i, "must be a string");
	}
	r = (f->kind == FIELD_IDS ? field_ids : field_hexes)(texts, n, f->name, p);
	if (r == LAPSE_OK)
		*member = v;
	return r;
}

static int field_decode_texts(json_t *v, const struct json_field *f, json_t **member,
			      struct problem *p)
{
	size_t n = json_is_string(v) ? 1 : json_array_size(v), i;
	json_t *item;

	if (!json_is_string(v) && !json_is_array(v))
		return field_wrong(p, f->name, "must be a string or an array of strings");
	int r = field_count(n, f->min, f->max, f->name, p);
	if (r < 0)
		return r;
	json_array_foreach (v, i, item)
		if (!json_is_string(item))
			return field_wrong_entry(p, f->name, i, "must be a string");
	*member = v;
	return LAPSE_OK;
}

static int field_decode(json_t *v, const struct json_field *f, void *member, struct problem *p)
{
	switch (f->kind) {
	case FIELD_TEXT:
	case FIELD_LABEL:
	case FIELD_ID:
		if (!json_is_string(v))
			return field_wrong(p, f->name, "must be a string");
		return field_take_text(f, json_string_value(v), json_string_length(v), member, p);
	case FIELD_INT:
	case FIELD_TTL:
		return field_decode_int(v, f, member, p);
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			return field_wrong(p, f->name, "must be true or false");
		*(bool *)member = json_is_true(v);
		return LAPSE_OK;
	case FIELD_TIME:
		if (!json_is_string(v) || !time_parse(json_string_value(v), member))
			return field_wrong(
				p, f->name,
				"must be an ISO 8601 time like 2026-11-15T18:33:00.123Z");
		return LAPSE_OK;
	case FIELD_OBJECT:
		if (!json_is_object(v))
			return field_wrong(p, f->name, "must be an object");
		*(json_t **)member = v;
		return LAPSE_OK;
	case FIELD_TEXTS:
		return field_decode_texts(v, f, member, p);
	case FIELD_IDS:
	case FIELD_HEXES:
		return field_decode_array(v, f, member, p);
	}
	return LAPSE_EINTERNAL;
}

const struct json_field *field_find(const struct json_field *fields, const char *name)
{
	for (; fields->name; fields++)
		if (strcmp(fields->name, name) == 0)
			return fields;
	return NULL;
}

static int fields_name_unknown(const json_t *object, const struct json_field *fields,
			       struct problem *p)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)object, key, v)
		if (!field_find(fields, key))
			return problem_set(p, LAPSE_EINVAL, key, "unknown field '%.60s'", key);
	return LAPSE_EINTERNAL;
}

int fields_decode(const json_t *object, const struct json_field *fields, void *out,
		  struct problem *p)
{
	size_t known = 0;

	assert(!object || json_is_object(object));
	for (const struct json_field *f = fields; f->name; f++) {
		json_t *v = json_object_get(object, f->name);
		if (!v) {
			if (f->required)
				return field_wrong(p, f->name, "is required");
			continue;
		}
		known++;
		int r = field_decode(v, f, (char *)out + f->offset, p);
		if (r < 0)
			return r;
	}
	if (object && known != json_object_size(object))
		return fields_name_unknown(object, fields, p);
	return LAPSE_OK;
}

/* From a flat object */

static bool field_decode_flat(const struct json_flat_member *v, const struct json_field *f,
			      void *member, struct arena *arena)
{
	struct problem ignored;

	switch (f->kind) {
	case FIELD_TEXT:
	case FIELD_LABEL:
	case FIELD_ID:
		return v->type == JSON_STRING &&
		       field_take_text(f, arena_strndup(arena, v->text, v->text_len), v->text_len,
				       member, &ignored) == LAPSE_OK;
	case FIELD_INT:
	case FIELD_TTL:
		if (v->type != JSON_INTEGER || v->number < f->min || v->number > f->max)
			return false;
		*(int64_t *)member = v->number;
		return true;
	case FIELD_BOOL:
		if (v->type != JSON_TRUE && v->type != JSON_FALSE)
			return false;
		*(bool *)member = v->type == JSON_TRUE;
		return true;
	case FIELD_TIME:
	case FIELD_OBJECT:
	case FIELD_TEXTS:
	case FIELD_IDS:
	case FIELD_HEXES:
		break;
	}
	return false;
}

bool fields_decode_flat(const struct json_flat *object, const struct json_field *fields, void *out,
			struct arena *arena)
{
	size_t known = 0;

	for (const struct json_field *f = fields; f->name; f++) {
		const struct json_flat_member *v = json_flat_find(object, f->name);
		if (!v && f->required)
			return false;
		if (v && !field_decode_flat(v, f, (char *)out + f->offset, arena))
			return false;
		known += v != NULL;
	}
	return known == object->count;
}
