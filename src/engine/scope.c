/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/scope.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

static const char *const ROOM_NAMES[SCOPE_ROOMS_END] = {
#define X(name, text) [SCOPE_##name] = text,
	SCOPE_ROOMS(X)
#undef X
};

static const char *const VERBS[] = { "read", "write" };

_Static_assert(2 * SCOPE_ROOMS_END <= 32, "a scope_set has a bit for each room and verb");

static scope_set scope_bit(unsigned room, unsigned verb)
{
	assert(room < SCOPE_ROOMS_END && verb < ARRAY_LEN(VERBS));
	return (scope_set)1 << (2 * room + verb);
}

/* "read" or "write": every room, and what belongs to none. */
static scope_set scope_everywhere(unsigned verb)
{
	scope_set all = 0;

	for (unsigned room = 0; room < SCOPE_ROOMS_END; room++)
		all |= scope_bit(room, verb);
	return all;
}

bool scope_allows(scope_set set, enum scope_room room, bool writes)
{
	assert((unsigned)room < SCOPE_ROOMS_END);
	return room == SCOPE_FREE || (set & scope_bit(room, writes)) != 0;
}

static bool scope_is(const char *text, size_t n, const char *name)
{
	return strlen(name) == n && memcmp(text, name, n) == 0;
}

bool scope_add(scope_set *set, const char *text, size_t n)
{
	const char *colon = memchr(text, ':', n);
	const char *verb = colon ? colon + 1 : text;
	size_t verb_n = n - (size_t)(verb - text);

	for (unsigned v = 0; v < ARRAY_LEN(VERBS); v++) {
		if (!scope_is(verb, verb_n, VERBS[v]))
			continue;
		if (!colon) {
			*set |= scope_everywhere(v);
			return true;
		}
		for (unsigned room = SCOPE_FREE + 1; room < SCOPE_ROOMS_END; room++)
			if (scope_is(text, (size_t)(colon - text), ROOM_NAMES[room])) {
				*set |= scope_bit(room, v);
				return true;
			}
	}
	return false;
}

void scope_put_needed(struct buf *out, enum scope_room room, bool writes)
{
	assert((unsigned)room < SCOPE_ROOMS_END);
	if (room != SCOPE_FREE)
		buf_printf(out, "%s:", ROOM_NAMES[room]);
	buf_puts(out, VERBS[writes]);
}

static void scope_put_one(struct buf *out, enum scope_room room, bool writes, size_t start)
{
	if (out->len > start)
		buf_putc(out, ' ');
	scope_put_needed(out, room, writes);
}

void scope_put(struct buf *out, scope_set set)
{
	const size_t start = out->len;

	for (unsigned v = 0; v < ARRAY_LEN(VERBS); v++) {
		const scope_set all = scope_everywhere(v);
		if ((set & all) == all) {
			scope_put_one(out, SCOPE_FREE, v, start);
			continue;
		}
		for (unsigned room = SCOPE_FREE + 1; room < SCOPE_ROOMS_END; room++)
			if (set & scope_bit(room, v))
				scope_put_one(out, (enum scope_room)room, v, start);
	}
}

scope_set scope_parse(const char *text)
{
	scope_set set = 0;

	while (*text) {
		size_t n = strcspn(text, " ");
		scope_add(&set, text, n);
		text += n + strspn(text + n, " ");
	}
	return set;
}
