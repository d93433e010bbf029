/* SPDX-License-Identifier: Apache-2.0 */
#include "http/auth.h"

#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "engine/token.h"

static bool is_loopback_name(const char *name, size_t n)
{
	static const char usual[] = "127.0.0.1";
	char text[64];
	struct in_addr v4;

	if (n == sizeof(usual) - 1 && memcmp(name, usual, n) == 0)
		return true;
	if (n == 0 || n >= sizeof(text))
		return false;
	memcpy(text, name, n);
	text[n] = '\0';
	if (strcasecmp(text, "localhost") == 0 || strcmp(text, "[::1]") == 0)
		return true;
	return inet_pton(AF_INET, text, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

bool auth_host_is_local(const char *host)
{
	size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

	if (n > strlen(host) || (host[n] != '\0' && host[n] != ':'))
		return false;
	return is_loopback_name(host, n);
}

/* An Origin is ours when it is the page this very server would serve. */
static bool origin_is_ours(const char *origin, const char *host)
{
	const char *rest = strstr(origin, "://");

	return rest && host && strcasecmp(rest + 3, host) == 0;
}

/* Whether the address of the caller counts for anything. Behind a proxy everyone comes from
 * loopback. */
static bool is_trusted_place(const struct engine *e, const struct auth_request *r)
{
	return r->loopback && !e->settings->behind_tls_proxy;
}

/* What a trusted place may not look like: a page in a browser can reach loopback too, by a name of
 * its own, and so can whatever forwards requests. */
static int refuse_disguises(const struct auth_request *r, struct problem *p)
{
	if (r->forwarded)
		return problem_set(
			p, LAPSE_EFORBIDDEN, NULL,
			"forwarded requests need a token: make one with 'lapse token create'");
	if (r->host && !auth_host_is_local(r->host))
		return problem_set(p, LAPSE_EFORBIDDEN, "Host",
				   "without a token the Host must be a loopback name");
	return LAPSE_OK;
}

static int refuse_origin(const struct auth_request *r, struct problem *p)
{
	if (!r->origin || origin_is_ours(r->origin, r->host))
		return LAPSE_OK;
	return problem_set(p, LAPSE_EFORBIDDEN, "Origin",
			   "pages of other origins may not call this server");
}

/* Every request without a token, on every route. */
static int refuse_browsers(const struct engine *e, const struct auth_request *r, struct problem *p)
{
	int err = is_trusted_place(e, r) ? refuse_disguises(r, p) : LAPSE_OK;

	if (err == LAPSE_OK)
		err = refuse_origin(r, p);
	if (err < 0)
		return err;
	if (r->fetch_site && strcmp(r->fetch_site, "same-origin") != 0 &&
	    strcmp(r->fetch_site, "none") != 0)
		return problem_set(p, LAPSE_EFORBIDDEN, "Sec-Fetch-Site",
				   "pages of other sites may not call this server");
	return LAPSE_OK;
}

static int check_token(const struct engine *e, const struct auth_request *r, struct caller *ret,
		       struct problem *p)
{
	const char *text = r->authorization;

	assert(r->authorization);
	if (strncasecmp(text, "Bearer ", 7) != 0)
		return problem_set(p, LAPSE_EUNAUTHORIZED, "Authorization",
				   "Authorization must be 'Bearer TOKEN'");
	const struct token *t =
		token_check(&e->tokens, text + 7 + strspn(text + 7, " "), clock_wall(e->clock));
	if (!t)
		return problem_set(p, LAPSE_EUNAUTHORIZED, "Authorization",
				   "the token is unknown, revoked or expired");
	*ret = (struct caller){
		.owner = t->owner, .scopes = t->scopes, .admin = t->admin, .token = t
	};
	return LAPSE_OK;
}

int auth_refuse_unsure(struct problem *p)
{
	return problem_set(p, LAPSE_EUNAVAILABLE, NULL,
			   "this replica cannot reach the database: ask another one");
}

/* Another replica may have revoked a token, and this one may not have heard of it. What the quick
 * way answers, a heartbeat, is worth that risk for a while. */
static int know_tokens(const struct engine *e, const struct route *route, bool *ret_unsure,
		       struct problem *p)
{
	*ret_unsure = cluster_refresh((struct engine *)(uintptr_t)e) < 0;
	if (!*ret_unsure)
		return LAPSE_OK;
	if (route->quick && route->quick->answer && cluster_takes_beats(e))
		return LAPSE_OK;
	return auth_refuse_unsure(p);
}

static int identify(const struct engine *e, const struct auth_request *r, struct caller *ret,
		    struct problem *p)
{
	if (r->authorization)
		return check_token(e, r, ret, p);
	if (tokens_count(&e->tokens) > 0 || !is_trusted_place(e, r))
		return problem_set(p, LAPSE_EUNAUTHORIZED, "Authorization",
				   "send a token: 'Authorization: Bearer TOKEN'");
	int err = refuse_browsers(e, r, p);
	if (err < 0)
		return err;
	*ret = (struct caller){ .owner = "local", .scopes = SCOPE_ALL, .admin = true };
	return LAPSE_OK;
}

/* X-Lapse-Owner: an admin acts for another owner. */
static int act_for(const struct auth_request *r, struct caller *c, struct problem *p)
{
	assert(c->owner);
	if (!r->owner || strcmp(r->owner, c->owner) == 0)
		return LAPSE_OK;
	if (!c->admin)
		return problem_set(p, LAPSE_EFORBIDDEN, "X-Lapse-Owner",
				   "only an admin token may act for another owner");
	int err = field_id(r->owner, "X-Lapse-Owner", p);
	if (err < 0)
		return err;
	c->owner = r->owner;
	c->acting = true;
	return LAPSE_OK;
}

int auth_allows(const struct route *route, bool admin, scope_set scopes, struct problem *p)
{
	struct buf CLEANUP(buf_done) needed = { 0 };

	if (route->caller == CALLER_ADMIN && !admin)
		return problem_set(p, LAPSE_EFORBIDDEN, NULL, "this needs an admin token");
	if (scope_allows(scopes, route->room, route_writes(route)))
		return LAPSE_OK;
	scope_put_needed(&needed, route->room, route_writes(route));
	return problem_set(p, LAPSE_EFORBIDDEN, "scopes", "this needs a token with the scope %s",
			   buf_text(&needed));
}

int auth_sees_files(const struct engine *e, const struct route *route, struct problem *p)
{
	if (e->files_shared || route->room != SCOPE_ATTACHMENTS)
		return LAPSE_OK;
	return problem_set(p, LAPSE_EUNAVAILABLE, NULL,
			   "this replica does not see the files of attachments: replicas must "
			   "share the directory data_dir/files");
}

int auth_check(const struct engine *e, const struct route *route, const struct auth_request *r,
	       struct caller *ret, struct problem *p)
{
	const enum route_caller who = route->caller;
	struct caller c = { .owner = "" };

	if (who == CALLER_PUBLIC || (who == CALLER_LOCAL && is_trusted_place(e, r))) {
		int refused = r->authorization ? LAPSE_OK : refuse_browsers(e, r, p);
		if (refused == LAPSE_OK)
			*ret = c;
		return refused;
	}
	bool unsure = false;
	int err = route->flags & ROUTE_ORIGIN ? refuse_origin(r, p) : LAPSE_OK;
	if (err == LAPSE_OK)
		err = know_tokens(e, route, &unsure, p);
	if (err == LAPSE_OK)
		err = identify(e, r, &c, p);
	c.unsure = unsure;
	if (err == LAPSE_OK)
		err = act_for(r, &c, p);
	if (err < 0)
		return err;
	err = auth_allows(route, c.admin, c.scopes, p);
	if (err == LAPSE_OK)
		err = auth_sees_files(e, route, p);
	if (err == LAPSE_OK)
		*ret = c;
	return err;
}
