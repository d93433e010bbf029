/* SPDX-License-Identifier: Apache-2.0 */
#include "http/auth.h"

#include <arpa/inet.h>
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

/* A page in somebody's browser can reach loopback too; its requests look like none of these. */
static int refuse_browsers(const struct auth_request *r, struct problem *p)
{
	if (r->forwarded)
		return problem_set(
			p, LAPSE_EFORBIDDEN, NULL,
			"forwarded requests need a token: make one with 'lapse token create'");
	if (r->host && !auth_host_is_local(r->host))
		return problem_set(p, LAPSE_EFORBIDDEN, "Host",
				   "without a token the Host must be a loopback name");
	if (r->origin && !origin_is_ours(r->origin, r->host))
		return problem_set(p, LAPSE_EFORBIDDEN, "Origin",
				   "pages of other origins may not call this server");
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

	if (strncasecmp(text, "Bearer ", 7) != 0)
		return problem_set(p, LAPSE_EUNAUTHORIZED, "Authorization",
				   "Authorization must be 'Bearer TOKEN'");
	const struct token *t =
		token_check(&e->tokens, text + 7 + strspn(text + 7, " "), clock_wall(e->clock));
	if (!t)
		return problem_set(p, LAPSE_EUNAUTHORIZED, "Authorization",
				   "the token is unknown, revoked or expired");
	*ret = (struct caller){ .owner = t->owner, .admin = t->admin, .token = t };
	return LAPSE_OK;
}

static int identify(const struct engine *e, const struct auth_request *r, struct caller *ret,
		    struct problem *p)
{
	if (r->authorization)
		return check_token(e, r, ret, p);
	/* Behind a proxy everybody looks like loopback. */
	if (tokens_count(&e->tokens) > 0 || !r->loopback || e->settings->behind_tls_proxy)
		return problem_set(p, LAPSE_EUNAUTHORIZED, "Authorization",
				   "send a token: 'Authorization: Bearer TOKEN'");
	int r2 = refuse_browsers(r, p);
	if (r2 < 0)
		return r2;
	*ret = (struct caller){ .owner = "local", .admin = true };
	return LAPSE_OK;
}

/* X-Lapse-Owner: an admin acts for somebody else. */
static int act_for(const struct auth_request *r, struct caller *c, struct problem *p)
{
	const char *why;

	if (!r->owner || strcmp(r->owner, c->owner) == 0)
		return LAPSE_OK;
	if (!c->admin)
		return problem_set(p, LAPSE_EFORBIDDEN, "X-Lapse-Owner",
				   "only an admin token may act for another owner");
	if (!id_is_valid(r->owner, &why))
		return problem_set(p, LAPSE_EINVAL, "X-Lapse-Owner", "X-Lapse-Owner %s", why);
	c->owner = r->owner;
	c->acting = true;
	return LAPSE_OK;
}

int auth_check(const struct engine *e, enum route_caller who, const struct auth_request *r,
	       struct caller *ret, struct problem *p)
{
	struct caller c = { .owner = "" };

	if (who == CALLER_PUBLIC || (who == CALLER_METRICS && r->loopback)) {
		*ret = c;
		return LAPSE_OK;
	}
	int err = identify(e, r, &c, p);
	if (err == LAPSE_OK)
		err = act_for(r, &c, p);
	if (err < 0)
		return err;
	if (who == CALLER_ADMIN && !c.admin)
		return problem_set(p, LAPSE_EFORBIDDEN, NULL, "this needs an admin token");
	*ret = c;
	return LAPSE_OK;
}
