/* SPDX-License-Identifier: Apache-2.0 */
/* The reading half of base/json.h. */
#include "base/json.h"

#include <assert.h>

#include "base/json_quick.h"
#include "base/mem.h"

#define DEPTH_MAX 64 /* of nesting: metadata is data, not a program for our stack */

/* A longer text is read by jansson at once: the quick way may find at its end that it cannot. */
#define QUICK_BYTES_MAX ((size_t)64 << 10)

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
	json_t *CLEANUP(json_freep) j = NULL;
	bool is_shallow = false;

	if (n <= QUICK_BYTES_MAX) {
		j = json_quick_load(text, n, DEPTH_MAX - 1); /* a value is a level too */
		is_shallow = j != NULL;
	}
	if (!j)
		j = json_loadb(text, n, JSON_REJECT_DUPLICATES | flags, &e);
	if (!j)
		return problem_set(p, LAPSE_EINVAL, "body",
				   "body is not valid JSON: %.120s (line %d, column %d)", e.text,
				   e.line, e.column);
	if (json_typeof(j) != type)
		return problem_set(p, LAPSE_EINVAL, "body", "body must be a JSON %s",
				   type == JSON_ARRAY ? "array" : "object");
	if (!is_shallow && too_deep(j, 1))
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
static bool has_too_many(const char *text, size_t n, int64_t max)
{
	bool quoted = false;
	int64_t count = 0;

	assert(max > 0);
	if ((int64_t)n <= max)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else
			count += !quoted && (text[i] == ',' || text[i] == '[' || text[i] == '{');
	}
	return count > max;
}

int json_check_values(const char *text, size_t n, int64_t max, struct problem *p)
{
	if (!has_too_many(text, n, max))
		return LAPSE_OK;
	return problem_set(p, LAPSE_ETOOLARGE, "body",
			   "the body may have %lld values (body_max_values)", (long long)max);
}

int json_parse_foreign(const char *text, size_t n, json_t **ret, struct problem *p)
{
	if (has_too_many(text, n, JSON_FOREIGN_VALUES_MAX))
		return problem_set(p, LAPSE_EINVAL, "body", "body has more than %d values",
				   JSON_FOREIGN_VALUES_MAX);
	return parse(text, n, JSON_OBJECT, JSON_ALLOW_NUL, ret, p);
}

int json_parse_array(const char *text, size_t n, json_t **ret, struct problem *p)
{
	return parse(text, n, JSON_ARRAY, 0, ret, p);
}
