/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/client/resolve.h"

#include <assert.h>
#include <string.h>

/* The rows that begin with what was typed. */
struct search {
	const struct resolve *what;
	const char *typed;
	struct arena *arena;
	const char *found; /* the first one */
	int count;         /* 2: at least */
};

static bool begins_with(const struct search *s, const char *id)
{
	const char *prefix = s->what->prefix;
	size_t n = strlen(s->typed);

	if (strncmp(id, s->typed, n) == 0)
		return true;
	return prefix && strncmp(id, prefix, strlen(prefix)) == 0 &&
	       strncmp(id + strlen(prefix), s->typed, n) == 0;
}

static bool search_page(void *arg, struct answer *page)
{
	struct search *s = arg;
	const json_t *row;
	size_t i;

	assert(s->count < 2); /* the search ends with the second one */
	json_array_foreach (json_object_get(page->json, "data"), i, row) {
		const char *id = json_string_value(json_object_get(row, s->what->key));
		const char *only =
			s->what->only_key
				? json_string_value(json_object_get(row, s->what->only_key))
				: NULL;
		if (!id || !begins_with(s, id))
			continue;
		if (s->what->only_key && (!only || strcmp(only, s->what->only) != 0))
			continue;
		if (strcmp(id, s->typed) == 0) {
			s->found = s->typed; /* a whole one, however many begin with it */
			s->count = 1;
			return false;
		}
		/* A page may show again what moved while we were reading. */
		if (s->found && strcmp(s->found, id) == 0)
			continue;
		if (!s->found)
			s->found = arena_strdup(s->arena, id);
		s->count++;
	}
	return s->count < 2;
}

/* Something that can be the beginning of one of our ids: hexadecimal digits after the prefix. */
static bool is_id_beginning(const struct resolve *what, const char *typed)
{
	size_t n = strlen(typed), skip = what->prefix ? strlen(what->prefix) : 0;
	size_t least = what->least ? what->least : RESOLVE_MIN;

	if (skip && strncmp(typed, what->prefix, skip) == 0)
		typed += skip;
	else
		n += skip;
	return n < what->whole && strlen(typed) >= least &&
	       strspn(typed, "0123456789abcdef") == strlen(typed);
}

void resolve_done(struct resolve *what)
{
	request_done(&what->list);
}

enum outcome resolve_id(struct cli *cli, const struct resolve *what, const char *typed,
			const char **ret)
{
	struct search s = { .what = what, .typed = typed, .arena = &cli->arena };

	assert(what->noun && what->key && what->whole > 0);
	if (!is_id_beginning(what, typed)) {
		*ret = typed;
		return OUTCOME_OK;
	}
	enum outcome r = client_pages(cli, &what->list, SIZE_MAX, search_page, &s);
	if (r != OUTCOME_OK)
		return r;
	if (s.count == 0)
		return cli_fail(cli, OUTCOME_NOT_FOUND, "no %s begins with %s", what->noun, typed);
	if (s.count > 1)
		return cli_fail(cli, OUTCOME_REFUSED,
				"more than one %s begins with %s: give more of it", what->noun,
				typed);
	*ret = s.found;
	return OUTCOME_OK;
}
