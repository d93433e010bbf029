/* SPDX-License-Identifier: Apache-2.0 */
/* What all of JMAP shares: requests, answers, the session, folders. */
#include "provider/jmap.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#define MAIL_CAPABILITY "urn:ietf:params:jmap:mail"
#define SUBMISSION_CAPABILITY "urn:ietf:params:jmap:submission"

/* Requests */

void jmap_begin(struct buf *b, enum jmap_using using)
{
	assert(b->len == 0); /* one request, and nothing before it */
	json_begin(b, '{');
	json_key(b, "using");
	json_begin(b, '[');
	json_text(b, "urn:ietf:params:jmap:core");
	if (using == JMAP_MAIL) {
		json_text(b, MAIL_CAPABILITY);
		json_text(b, SUBMISSION_CAPABILITY);
	} else {
		json_text(b, "urn:stalwart:jmap");
	}
	json_end(b, ']');
	json_key(b, "methodCalls");
	json_begin(b, '[');
}

void jmap_begin_call(struct buf *b, const char *name)
{
	assert(b->len > 0); /* after jmap_begin() */
	json_begin(b, '[');
	json_text(b, name);
	json_begin(b, '{');
}

void jmap_end_call(struct buf *b, const char *id)
{
	json_end(b, '}');
	json_text(b, id);
	json_end(b, ']');
}

void jmap_end(struct buf *b)
{
	json_end(b, ']');
	json_end(b, '}');
}

void jmap_put_reference(struct buf *b, const char *key, const char *of, const char *name,
			const char *path)
{
	json_key(b, key);
	json_begin(b, '{');
	json_put_text(b, "resultOf", of);
	json_put_text(b, "name", name);
	json_put_text(b, "path", path);
	json_end(b, '}');
}

/* Answers */

static int jmap_nonsense(struct problem *p, const char *what)
{
	return problem_set(p, LAPSE_EUPSTREAM, NULL, "the mail server answered nonsense: %s", what);
}

int jmap_parse(const char *text, size_t n, enum jmap_using using, json_t **ret, struct problem *p)
{
	json_t *answer = NULL;
	int r = using == JMAP_MAIL ? json_parse_foreign(text, n, &answer, p)
				   : json_parse_object(text, n, &answer, p);

	if (r < 0)
		return jmap_nonsense(p, "no JSON object");
	if (!json_is_array(json_object_get(answer, "methodResponses"))) {
		json_decref(answer);
		return jmap_nonsense(p, "no methodResponses");
	}
	assert(answer);
	*ret = answer;
	return LAPSE_OK;
}

/* The arguments of ["name", {…}, "id"]; NULL when there is no such answer. */
static json_t *find_response(const json_t *answer, const char *name, const char *id)
{
	json_t *r;
	size_t i;

	json_array_foreach (json_object_get(answer, "methodResponses"), i, r) {
		const char *n = json_string_value(json_array_get(r, 0));
		const char *c = json_string_value(json_array_get(r, 2));
		if (n && c && strcmp(n, name) == 0 && strcmp(c, id) == 0)
			return json_array_get(r, 1);
	}
	return NULL;
}

const char *jmap_error_type(const json_t *answer, const char *id)
{
	const json_t *e = find_response(answer, "error", id);
	const char *type = json_string_value(json_object_get(e, "type"));

	return e && !type ? "unknown" : type;
}

int jmap_find(const json_t *answer, const char *name, const char *id, json_t **ret,
	      struct problem *p)
{
	json_t *args = find_response(answer, name, id);
	const char *error = jmap_error_type(answer, id);

	if (error)
		return problem_set(p, LAPSE_EUPSTREAM, NULL, "the mail server refused %s: %.60s",
				   name, error);
	if (!json_is_object(args))
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server answered nonsense: nothing about %s", name);
	*ret = args;
	return LAPSE_OK;
}

const char *jmap_set_error(const json_t *args, const char *map, const char *key)
{
	const json_t *e = json_object_get(json_object_get(args, map), key);
	const char *type = json_string_value(json_object_get(e, "type"));

	return e && !type ? "unknown" : type;
}

bool jmap_id_is_valid(const char *id)
{
	size_t n = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_");

	return n > 0 && n <= JMAP_ID_MAX && id[n] == '\0';
}

/* Only what can stand in a request line: the host in front of it is ours and stays ours. */
const char *jmap_path(const char *url, struct arena *arena)
{
	const char *scheme = strstr(url, "://");
	const char *path = url;

	if (scheme && scheme < url + strcspn(url, "/"))
		path = scheme + 3 + strcspn(scheme + 3, "/?#");
	else if (strncmp(url, "//", 2) == 0)
		path = url + 2 + strcspn(url + 2, "/?#");
	size_t n = strcspn(path, "#");
	if (path[0] != '/')
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (path[i] <= ' ' || path[i] > '~' || strchr("\"<>\\^`{|}", path[i]))
			return NULL;
	return arena_strndup(arena, path, n);
}

static const char *primary_account(const json_t *session, const char *capability,
				   struct arena *arena)
{
	const json_t *all = json_object_get(session, "primaryAccounts");
	const char *id = json_string_value(json_object_get(all, capability));

	return id && id[0] ? arena_strdup(arena, id) : NULL;
}

int jmap_parse_session(const char *text, size_t n, struct arena *arena, struct jmap_session *ret,
		       struct problem *p)
{
	json_t *CLEANUP(json_freep) session = NULL;

	if (json_parse_object(text, n, &session, p) < 0)
		return jmap_nonsense(p, "the session is no JSON object");
	const char *api = json_string_value(json_object_get(session, "apiUrl"));
	struct jmap_session s = { .api = api ? jmap_path(api, arena) : NULL,
				  .account = primary_account(session, MAIL_CAPABILITY, arena),
				  .submission =
					  primary_account(session, SUBMISSION_CAPABILITY, arena) };
	if (!s.api)
		return jmap_nonsense(p, "the session has no apiUrl");
	if (!s.account)
		return problem_set(
			p, LAPSE_EUPSTREAM, NULL,
			"the mail server gave the mailbox no account for mail: it did not "
			"accept its password, or the account may not use JMAP");
	assert(s.api[0] == '/');
	*ret = s;
	return LAPSE_OK;
}

/* Folders */

static void put_get_all(struct buf *b, const char *account, const char *property)
{
	json_put_text(b, "accountId", account);
	json_put_raw(b, "ids", NULL);
	json_key(b, "properties");
	json_begin(b, '[');
	json_text(b, "id");
	json_text(b, property);
	json_end(b, ']');
}

void jmap_build_folders(struct buf *b, const struct jmap_session *s, bool identities)
{
	assert(s->account);
	jmap_begin(b, JMAP_MAIL);
	jmap_begin_call(b, "Mailbox/get");
	put_get_all(b, s->account, "role");
	jmap_end_call(b, "m");
	if (identities) {
		jmap_begin_call(b, "Identity/get");
		put_get_all(b, s->submission ? s->submission : s->account, "email");
		jmap_end_call(b, "i");
	}
	jmap_end(b);
}

static void take_roles(const json_t *list, struct arena *arena, struct jmap_folders *f)
{
	static const char *const roles[MAIL_ALL] = {
		[MAIL_INBOX] = "inbox",
		[MAIL_SENT] = "sent",
		[MAIL_DRAFTS] = "drafts",
		[MAIL_JUNK] = "junk",
	};
	json_t *m;
	size_t i;

	json_array_foreach (list, i, m) {
		const char *id = json_string_value(json_object_get(m, "id"));
		const char *role = json_string_value(json_object_get(m, "role"));
		for (size_t r = 0; id && role && r < MAIL_ALL; r++)
			if (!f->ids[r] && strcmp(role, roles[r]) == 0)
				f->ids[r] = arena_strdup(arena, id);
	}
}

/* The identity of the address itself, else one for its whole domain ("*@example.org"). */
static const char *choose_identity(const json_t *list, const char *address, struct arena *arena)
{
	const char *at = strrchr(address, '@'), *any = NULL;
	json_t *m;
	size_t i;

	json_array_foreach (list, i, m) {
		const char *id = json_string_value(json_object_get(m, "id"));
		const char *email = json_string_value(json_object_get(m, "email"));
		if (!id || !email)
			continue;
		if (strcasecmp(email, address) == 0)
			return arena_strdup(arena, id);
		if (!any && at && email[0] == '*' && strcasecmp(email + 1, at) == 0)
			any = arena_strdup(arena, id);
	}
	return any;
}

int jmap_parse_folders(const json_t *answer, const char *address, bool identities,
		       struct arena *arena, struct jmap_folders *ret, struct problem *p)
{
	struct jmap_folders f = { 0 };
	json_t *mailboxes = NULL, *found = NULL;
	int r = jmap_find(answer, "Mailbox/get", "m", &mailboxes, p);

	if (r == LAPSE_OK && identities)
		r = jmap_find(answer, "Identity/get", "i", &found, p);
	if (r < 0)
		return r;
	take_roles(json_object_get(mailboxes, "list"), arena, &f);
	f.identity = choose_identity(json_object_get(found, "list"), address, arena);
	*ret = f;
	return LAPSE_OK;
}
