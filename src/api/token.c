/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, who the caller is, and adopting what another owner has. */
#include "api/engine.h"

#include <assert.h>
#include <string.h>

#include "engine/adopt.h"
#include "engine/token.h"

#define SCOPES_MAX 32 /* of one token; there are fewer */

struct token_body {
	const char *owner, *name;
	json_t *scopes;
	bool admin;
	int64_t ttl_ms;
};

const struct json_field TOKEN_BODY[] = {
	{ "owner", FIELD_ID, true, offsetof(struct token_body, owner), 0, 0,
	  "whom the token belongs to: a fleet, a tenant" },
	{ "name", FIELD_LABEL, false, offsetof(struct token_body, name), 1, TOKEN_NAME_MAX,
	  "what people call it: who uses it, and for what" },
	{ "scopes", FIELD_TEXTS, false, offsetof(struct token_body, scopes), 1, SCOPES_MAX,
	  "what it may do: read, write, ROOM:read or ROOM:write; without it, everything" },
	{ "admin", FIELD_BOOL, false, offsetof(struct token_body, admin), 0, 0,
	  "may use admin routes and act for other owners" },
	{ "ttl_ms", FIELD_INT, false, offsetof(struct token_body, ttl_ms), 1, 100 * YEAR_MS,
	  "lifetime; without it the token lives until it is revoked" },
	{ 0 },
};

static void write_scopes(struct buf *out, scope_set set)
{
	struct buf CLEANUP(buf_done) text = { 0 };

	scope_put(&text, set);
	char *CLEANUP(mem_freep) copy = mem_strdup(buf_text(&text));
	char *rest = copy;
	json_key(out, "scopes");
	json_begin(out, '[');
	for (const char *one; (one = strsep(&rest, " "));)
		if (*one)
			json_text(out, one);
	json_end(out, ']');
}

/* GET /v1/whoami */

int whoami_api_get(struct call *c)
{
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "owner", c->owner);
	json_put_bool(&c->reply, "admin", c->admin);
	json_put_bool(&c->reply, "acting", c->acting);
	write_scopes(&c->reply, c->scopes);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

static void write_token(struct buf *out, const struct token *t, const char *text)
{
	json_begin(out, '{');
	if (text)
		json_put_text(out, "token", text);
	json_put_text(out, "prefix", t->prefix);
	json_put_text(out, "owner", t->owner);
	json_put_text(out, "name", t->name[0] ? t->name : NULL);
	write_scopes(out, t->scopes);
	json_put_bool(out, "admin", t->admin);
	json_put_time(out, "created_at", t->created_at);
	json_put_time(out, "expires_at", t->expires_at);
	json_put_time(out, "last_used_at", t->last_used_at ? t->last_used_at : LAPSE_NEVER);
	json_end(out, '}');
}

/* A token can give only the scopes that it has itself. */
static int read_scopes(struct call *c, const json_t *wanted, scope_set *ret)
{
	scope_set set = wanted ? 0 : SCOPE_ALL;

	for (size_t i = 0; i < json_array_size(wanted); i++) {
		const char *text = json_string_value(json_array_get(wanted, i));
		if (!scope_add(&set, text, strlen(text)))
			return problem_set(&c->problem, LAPSE_EINVAL, "scopes",
					   "there is no scope '%.60s': it is read, write, "
					   "ROOM:read or ROOM:write",
					   text);
	}
	if (set & ~c->scopes)
		return problem_set(&c->problem, LAPSE_EFORBIDDEN, "scopes",
				   "a token can only give scopes that it has itself");
	*ret = set;
	return LAPSE_OK;
}

int token_api_create(struct call *c)
{
	struct token_body body = { .name = "" };
	char text[TOKEN_TEXT_MAX];
	struct token t = { .expires_at = LAPSE_NEVER };
	int r = call_body(c, TOKEN_BODY, &body);

	if (r == LAPSE_OK)
		r = read_scopes(c, body.scopes, &t.scopes);
	if (r < 0)
		return r;
	t.owner = body.owner;
	t.name = body.name;
	t.admin = body.admin;
	if (body.ttl_ms)
		t.expires_at = time_add(c->tx->now, body.ttl_ms);
	r = token_create(c->tx, &t, c->token, text, &c->arena, &c->problem);
	if (r < 0)
		return r;
	c->status = 201;
	write_token(&c->reply, &t, text);
	write_token(&c->kept, &t, NULL); /* a retry learns that it exists, not its secret */
	return LAPSE_OK;
}

static void add_token(void *arg, const struct token *t)
{
	struct page_writer *w = arg;

	if (page_item(w, t->id))
		write_token(w->out, t, NULL);
}

static int list_tokens(struct call *c, int64_t before, int64_t limit, struct page_writer *w)
{
	return token_list(c->tx, before, limit, add_token, w);
}

int token_api_list(struct call *c)
{
	return call_page(c, list_tokens);
}

int token_api_revoke(struct call *c)
{
	int r = token_revoke(c->tx, c->params[0], c->token, &c->problem);

	if (r == LAPSE_ENOTFOUND)
		return problem_set(&c->problem, r, "prefix", "there is no token '%.60s'",
				   c->params[0]);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "prefix", c->params[0]);
	json_put_bool(&c->reply, "revoked", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Adopting. */

#define LOCAL_OWNER "local" /* of callers without a token */

struct adopt_body {
	const char *from;
};

const struct json_field ADOPT_BODY[] = {
	{ "from", FIELD_ID, false, offsetof(struct adopt_body, from), 0, 0,
	  "the owner that has it now; local, the owner of callers without a token, by default" },
	{ 0 },
};

static void write_adoption(struct buf *out, const struct adoption *a, const char *from,
			   const char *to)
{
	json_begin(out, '{');
	json_put_text(out, "from", from);
	json_put_text(out, "owner", to);
	json_put_int(out, "rows", a->rows);
	json_key(out, "tables");
	json_begin(out, '{');
	for (size_t i = 0; a->moved[i].table; i++)
		json_put_int(out, a->moved[i].table, a->moved[i].rows);
	json_end(out, '}');
	json_end(out, '}');
}

/* Runs again, in the next turn, until everything has moved. */
int adopt_api_run(struct call *c)
{
	struct adopt_body body = { .from = LOCAL_OWNER };
	int r = call_body(c, ADOPT_BODY, &body);

	if (r < 0)
		return r;
	/* A fresh one each time: a turn that has to be run again begins from the last one's. */
	struct adoption *a = arena_alloc(&c->arena, sizeof(*a));
	*a = c->state ? *(const struct adoption *)c->state : (struct adoption){ 0 };
	r = owner_adopt(c->tx, body.from, c->owner, a, &c->problem);
	c->state = a;
	if (r != LAPSE_OK)
		return r;
	write_adoption(&c->reply, a, body.from, c->owner);
	return event_add(c->tx, c->owner, EVENT_OWNER_ADOPTED, &c->reply);
}
