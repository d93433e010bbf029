/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes: what a token may do. A scope is "read" or "write", for everything, or "ROOM:read" or
 * "ROOM:write", for one room. Writing does not include reading. Pure.
 *
 * To add a room: a row below, and its name in the rows of http/route.c.
 */
#ifndef LAPSE_ENGINE_SCOPE_H
#define LAPSE_ENGINE_SCOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define SCOPE_ROOMS(X)                                                                             \
	X(MESSAGES, "messages")                                                                    \
	X(AGENTS, "agents")                                                                        \
	X(MAILBOXES, "mailboxes")                                                                  \
	X(ATTACHMENTS, "attachments")                                                              \
	X(TABLES, "tables")                                                                        \
	X(EVENTS, "events")                                                                        \
	X(CONTRACTS, "contracts")                                                                  \
	X(ENGINE, "engine")

/* The room of a route. FREE: any caller that gets so far may use it. */
enum scope_room {
	SCOPE_FREE,
#define X(name, text) SCOPE_##name,
	SCOPE_ROOMS(X)
#undef X
		SCOPE_ROOMS_END
};

/* A set of scopes: two bits for each room. */
typedef uint32_t scope_set;
#define SCOPE_ALL ((scope_set)((UINT64_C(1) << 2 * SCOPE_ROOMS_END) - 1))

bool scope_allows(scope_set set, enum scope_room room, bool writes);

/* Adds the scope of that name; false where there is none. */
bool scope_add(scope_set *set, const char *text, size_t n);

/* "messages:read", or "read", or "write": the smallest scope that allows it. */
void scope_put_needed(struct buf *out, enum scope_room room, bool writes);

/* The set as text, scopes with a space between them, in one order: what the store keeps. */
void scope_put(struct buf *out, scope_set set);

/* Reads that text. A scope that this version does not know allows nothing. */
scope_set scope_parse(const char *text);

#endif
