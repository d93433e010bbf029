/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "mailbox/mailbox.h"

static int wrong(struct problem *p, const char *name, const char *what)
{
	return problem_set(p, LAPSE_EINVAL, name, "%s %s", name, what);
}

int check_id(const char *text, const char *name, struct problem *p)
{
	const char *why;

	if (!text)
		return wrong(p, name, "is required");
	return id_is_valid(text, &why) ? LAPSE_OK : wrong(p, name, why);
}

int check_mailbox(const char *id, const char *name, struct problem *p)
{
	int64_t number;

	if (!id)
		return wrong(p, name, "is required");
	return mailbox_id_parse(id, &number) ? LAPSE_OK
					     : wrong(p, name, "must be mbx_ and 16 hex digits");
}

int check_blame(int err, const char *name, struct problem *p)
{
	bool about_it = err == LAPSE_ENOTFOUND || err == LAPSE_EEXPIRED || err == LAPSE_ECONFLICT;

	if (about_it && !p->field[0])
		snprintf(p->field, sizeof(p->field), "%s", name);
	return err;
}

int check_label(const char *text, int64_t max, const char *name, struct problem *p)
{
	if (!text)
		return wrong(p, name, "is required");
	size_t n = strlen(text);
	if (n < 1 || n > (size_t)max)
		return problem_set(p, LAPSE_EINVAL, name, "%s must be 1 to %" PRId64 " bytes long",
				   name, max);
	if (!utf8_is_valid(text, n, true))
		return wrong(p, name, "must be printable UTF-8, without control characters");
	return LAPSE_OK;
}

int check_text(const char *text, int64_t max, const char *name, struct problem *p)
{
	if (!text)
		return wrong(p, name, "is required");
	size_t n = strlen(text);
	if (n > (size_t)max)
		return problem_set(p, LAPSE_ETOOLARGE, name,
				   "%s is larger than %" PRId64 " bytes (body_max_bytes)", name,
				   max);
	return utf8_is_valid(text, n, false) ? LAPSE_OK : wrong(p, name, "must be valid UTF-8");
}

int check_range(int64_t value, int64_t min, int64_t max, const char *name, struct problem *p)
{
	if (value < min || value > max)
		return problem_set(p, LAPSE_EINVAL, name,
				   "%s must be between %" PRId64 " and %" PRId64, name, min, max);
	return LAPSE_OK;
}

int check_limit(int64_t limit, struct problem *p)
{
	return check_range(limit, 1, LAPSE_LIMIT_MAX, "limit", p);
}

/* The parser blames the body of a request. */
static int parse(const char *text, const char *name, json_t **ret, struct problem *p)
{
	struct problem why = { 0 };
	int r = json_parse_object(text, strlen(text), ret, &why);

	if (r < 0)
		return problem_set(p, r, name, "%s%s", name,
				   strncmp(why.message, "body", 4) == 0 ? why.message + 4
									: " is not valid JSON");
	return LAPSE_OK;
}

int check_object(const char *text, int64_t max, const char *name, struct arena *arena,
		 const char **ret, struct problem *p)
{
	json_t *CLEANUP(json_freep) object = NULL;

	if (!text) {
		*ret = "{}";
		return LAPSE_OK;
	}
	int r = check_text(text, max, name, p);
	if (r == LAPSE_OK)
		r = parse(text, name, &object, p);
	if (r < 0)
		return r;
	char *CLEANUP(mem_freep) shortest = json_dumps(object, JSON_COMPACT);
	*ret = arena_strdup(arena, shortest ? shortest : "{}");
	return LAPSE_OK;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool has_duplicate(const char *const *ids, size_t count)
{
	const char **CLEANUP(mem_freep) sorted = mem_zalloc(count, sizeof(*sorted));

	memcpy(sorted, ids, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_text);
	for (size_t i = 1; i < count; i++)
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			return true;
	return false;
}

int check_ids(const char *const *ids, size_t count, size_t max, const char *name, struct problem *p)
{
	if (!ids || count < 1 || count > max)
		return problem_set(p, LAPSE_EINVAL, name, "%s must have 1 to %zu entries", name,
				   max);
	for (size_t i = 0; i < count; i++) {
		const char *why = "is required";
		if (!ids[i] || !id_is_valid(ids[i], &why))
			return problem_set(p, LAPSE_EINVAL, name, "%s[%zu] %s", name, i, why);
	}
	if (has_duplicate(ids, count))
		return wrong(p, name, "must not name the same entry twice");
	return LAPSE_OK;
}
