/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/field.h"
#include "mailbox/mailbox.h"

static int check_failed(struct problem *p, const char *name, const char *what)
{
	return problem_set(p, LAPSE_EINVAL, name, "%s %s", name, what);
}

int check_mailbox(const char *id, const char *name, struct problem *p)
{
	int64_t number;

	if (!id)
		return check_failed(p, name, "is required");
	return mailbox_id_parse(id, &number)
		       ? LAPSE_OK
		       : check_failed(p, name, "must be mbx_ and 16 hex digits");
}

int check_blame(int err, const char *name, struct problem *p)
{
	bool about_it = err == LAPSE_ENOTFOUND || err == LAPSE_EEXPIRED || err == LAPSE_ECONFLICT;

	if (about_it && !p->field[0])
		snprintf(p->field, sizeof(p->field), "%s", name);
	return err;
}

int check_text(const char *text, int64_t max, const char *name, struct problem *p)
{
	if (!text)
		return check_failed(p, name, "is required");
	size_t n = strlen(text);
	if (n > (size_t)max)
		return problem_set(p, LAPSE_ETOOLARGE, name,
				   "%s is larger than %" PRId64 " bytes (body_max_bytes)", name,
				   max);
	return utf8_is_valid(text, n, false) ? LAPSE_OK
					     : check_failed(p, name, "must be valid UTF-8");
}

int check_limit(int64_t limit, struct problem *p)
{
	return field_range(limit, 1, LAPSE_LIMIT_MAX, "limit", p);
}

/* The parser blames the body of a request. */
static int check_parse(const char *text, const char *name, json_t **ret, struct problem *p)
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
		r = check_parse(text, name, &object, p);
	if (r < 0)
		return r;
	char *CLEANUP(mem_freep) shortest = json_dumps(object, JSON_COMPACT);
	*ret = arena_strdup(arena, shortest ? shortest : "{}");
	return LAPSE_OK;
}

int check_ids(const char *const *ids, size_t count, size_t max, const char *name, struct problem *p)
{
	int r = field_count(ids ? count : 0, 1, (int64_t)max, name, p);

	return r < 0 ? r : field_ids(ids, count, name, p);
}
