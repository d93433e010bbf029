/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who calls: tokens, and while there is none, trust in loopback that a browser cannot abuse.
 */
#ifndef LAPSE_HTTP_AUTH_H
#define LAPSE_HTTP_AUTH_H

#include <stdbool.h>

#include "engine/engine.h"
#include "http/route.h"

/* What auth looks at; NULL = the header is not there. */
struct auth_request {
	bool loopback; /* over the Unix socket, or from a loopback address */
	const char *authorization, *owner;
	const char *host, *origin, *fetch_site;
	bool forwarded; /* any Forwarded or X-Forwarded-… header */
};

struct caller {
	const char *owner; /* borrowed from the token or the request */
	scope_set scopes;
	bool admin;
	bool acting;               /* an admin who acts for another owner */
	bool unsure;               /* by memory that may be old: good for the quick way only */
	const struct token *token; /* borrowed; NULL = trusted without one */
};

/* Whether the caller may use the route. On success *ret is who it is; the caller of a
 * public route may be anonymous (owner ""). */
int auth_check(const struct engine *e, const struct route *route, const struct auth_request *r,
	       struct caller *ret, struct problem *p);

/* The error of a caller who is `unsure` where more than memory is needed. */
int auth_refuse_unsure(struct problem *p);

/* Whether an identified caller may use another route as well: admin and scopes. */
int auth_allows(const struct route *route, bool admin, scope_set scopes, struct problem *p);

/* LAPSE_EUNAVAILABLE: it is about attachments, and this replica of a cluster has not their files.
 */
int auth_sees_files(const struct engine *e, const struct route *route, struct problem *p);

/* Whether a Host header names this machine by a loopback name, with or without a port. */
bool auth_host_is_local(const char *host);

#endif
