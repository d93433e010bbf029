/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools: the operations of the HTTP API as agents see them. A tool is a row that names a route; its
 * arguments are the route's path, query and body fields in one flat object, its result is the
 * route's answer. So a tool has no logic of its own, and its schemas are the route's.
 *
 * To add a tool: a row in tools.c.
 */
#ifndef LAPSE_MCP_TOOLS_H
#define LAPSE_MCP_TOOLS_H

#include "api/call.h"
#include "http/route.h"

enum tool_hint {
	TOOL_READS = 1,     /* changes nothing */
	TOOL_DESTROYS = 2,  /* removes something that a person may miss */
	TOOL_IDEMPOTENT = 4 /* calling it again with the same arguments changes nothing more */
};

/* An argument under another name than the route's field. */
struct tool_alias {
	const char *argument; /* NULL ends a list */
	const char *field;    /* NULL: it is taken and means nothing */
	const char *help;
};

/* A field that the caller does not give. */
struct tool_fixed {
	const char *field; /* NULL ends a list */
	const char *value;
};

struct tool {
	const char *name, *title;
	const char *description; /* for a model: when to use it, what it means, an example */
	const char *operation;   /* the route's id */
	unsigned hints;
	const struct tool_alias *aliases; /* not NULL: only these arguments, and no others */
	const struct tool_fixed *fixed;   /* may be NULL */
};

extern const struct tool TOOLS[];
extern const size_t TOOLS_COUNT;

const struct tool *tool_find(const char *name);
const struct route *tool_route(const struct tool *t);

/* Gives the arguments (an object, or NULL) to the call as the route wants them: parameters of the
 * path, query, body. LAPSE_EINVAL names the argument. */
int tool_bind(const struct tool *t, const json_t *arguments, struct call *c);

/* Appends the array of tools that this caller may use. */
void tools_write(struct buf *out, bool admin, scope_set scopes);

#endif
