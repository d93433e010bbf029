/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of Stalwart 0.16 and later. */
#include "provider/registry.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#define FOUND_MAX                                                                                  \
	100 /* accounts of one name in one domain: one, unless the name is searched for            \
	     */

static int registry_nonsense(struct problem *p, const char *what)
{
	return problem_set(p, LAPSE_EUPSTREAM, NULL, "the mail server answered nonsense: %s", what);
}

static void put_ids(struct buf *b, const char *key, const char *id)
{
	json_key(b, key);
	json_begin(b, '[');
	json_text(b, id);
	json_end(b, ']');
}

/* Domains: the filter may be a search, so the name is looked at again. */

void registry_build_domain(struct buf *b, const char *domain)
{
	jmap_begin(b, JMAP_REGISTRY);
	jmap_begin_call(b, "x:Domain/query");
	json_key(b, "filter");
	json_begin(b, '{');
	json_put_text(b, "name", domain);
	json_end(b, '}');
	jmap_end_call(b, "q");
	jmap_begin_call(b, "x:Domain/get");
	jmap_put_reference(b, "#ids", "q", "x:Domain/query", "/ids");
	json_put_raw(b, "properties", "[\"id\",\"name\"]");
	jmap_end_call(b, "g");
	jmap_end(b);
}

int registry_parse_domain(const json_t *answer, const char *domain, struct arena *arena,
			  const char **ret_id, struct problem *p)
{
	json_t *query = NULL, *get = NULL, *entry;
	size_t i;
	int r = jmap_find(answer, "x:Domain/query", "q", &query, p);

	if (r == LAPSE_OK)
		r = jmap_find(answer, "x:Domain/get", "g", &get, p);
	if (r < 0)
		return r;
	if (!json_is_array(json_object_get(query, "ids")) ||
	    !json_is_array(json_object_get(get, "list")))
		return registry_nonsense(p, "no list of domains");
	*ret_id = NULL;
	json_array_foreach (json_object_get(get, "list"), i, entry) {
		const char *name = json_string_value(json_object_get(entry, "name"));
		const char *id = json_string_value(json_object_get(entry, "id"));
		if (name && id && strcasecmp(name, domain) == 0)
			*ret_id = arena_strdup(arena, id);
	}
	return LAPSE_OK;
}

/* Creating */

static void put_credentials(struct buf *b, const char *secret)
{
	json_key(b, "credentials");
	json_begin(b, '{');
	json_key(b, "0");
	json_begin(b, '{');
	json_put_text(b, "@type", "Password");
	json_put_text(b, "secret", secret);
	json_end(b, '}');
	json_end(b, '}');
}

void registry_build_create(struct buf *b, const char *local, const char *domain_id,
			   const char *secret, const char *mark)
{
	assert(secret[0] && mark[0]);
	jmap_begin(b, JMAP_REGISTRY);
	jmap_begin_call(b, "x:Account/set");
	json_key(b, "create");
	json_begin(b, '{');
	json_key(b, "m");
	json_begin(b, '{');
	json_put_text(b, "@type", "User");
	json_put_text(b, "name", local);
	json_put_text(b, "domainId", domain_id);
	json_put_text(b, "description", mark);
	put_credentials(b, secret);
	json_put_raw(b, "roles", "{\"@type\":\"User\"}");
	json_put_raw(b, "permissions", "{\"@type\":\"Inherit\"}");
	json_end(b, '}');
	json_end(b, '}');
	jmap_end_call(b, "s");
	jmap_end(b);
}

int registry_parse_create(const json_t *answer, struct arena *arena, const char **ret_id,
			  bool *ret_definite, struct problem *p)
{
	json_t *set;
	const char *error = jmap_error_type(answer, "s");
	int r = jmap_find(answer, "x:Account/set", "s", &set, p);

	/* After these two the server itself does not know. */
	*ret_definite = error && strcmp(error, "serverFail") != 0 &&
			strcmp(error, "serverPartialFail") != 0;
	if (r < 0)
		return r;
	error = jmap_set_error(set, "notCreated", "m");
	*ret_definite = error != NULL;
	if (error && strcmp(error, "primaryKeyViolation") == 0)
		return problem_set(p, LAPSE_ECONFLICT, NULL, "the address is taken");
	if (error)
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server did not create the account: %.60s", error);
	const json_t *made = json_object_get(json_object_get(set, "created"), "m");
	const char *id = json_string_value(json_object_get(made, "id"));
	if (!id || !jmap_id_is_valid(id))
		return registry_nonsense(p, "no id of the new account");
	*ret_id = arena_strdup(arena, id);
	return LAPSE_OK;
}

/* Finding: an id counts only together with the address. After the server was set up anew the id
 * may be another account's, and a deletion cannot be undone. */

static void put_account_properties(struct buf *b)
{
	json_put_raw(b, "properties",
		     "[\"id\",\"@type\",\"name\",\"emailAddress\",\"description\"]");
}

void registry_build_get(struct buf *b, const char *id)
{
	jmap_begin(b, JMAP_REGISTRY);
	jmap_begin_call(b, "x:Account/get");
	put_ids(b, "ids", id);
	put_account_properties(b);
	jmap_end_call(b, "g");
	jmap_end(b);
}

static void put_condition(struct buf *b, const char *key, const char *is)
{
	json_begin(b, '{');
	json_put_text(b, key, is);
	json_end(b, '}');
}

/* Conditions of one key each: of several keys in one the server takes the last. */
void registry_build_find(struct buf *b, const char *local, const char *domain_id)
{
	jmap_begin(b, JMAP_REGISTRY);
	jmap_begin_call(b, "x:Account/query");
	json_key(b, "filter");
	json_begin(b, '{');
	json_put_text(b, "operator", "AND");
	json_key(b, "conditions");
	json_begin(b, '[');
	put_condition(b, "name", local);
	put_condition(b, "domainId", domain_id);
	json_end(b, ']');
	json_end(b, '}');
	json_put_int(b, "limit", FOUND_MAX);
	json_put_bool(b, "calculateTotal", true);
	jmap_end_call(b, "q");
	jmap_begin_call(b, "x:Account/get");
	jmap_put_reference(b, "#ids", "q", "x:Account/query", "/ids");
	put_account_properties(b);
	jmap_end_call(b, "g");
	jmap_end(b);
}

/* Whether all that were found are in the list: only then can one be missed. The server's total is
 * of what it looked at, so a list as long as the limit tells nothing. */
static bool is_whole(const json_t *query, const json_t *list)
{
	const json_t *ids = json_object_get(query, "ids"), *total = json_object_get(query, "total");
	const size_t n = json_array_size(ids);

	return json_is_array(ids) && json_array_size(list) >= n && n < FOUND_MAX &&
	       (!total || (json_is_integer(total) && json_integer_value(total) <= (json_int_t)n));
}

int account_not_ours(struct problem *p)
{
	return problem_set(p, LAPSE_EUPSTREAM, NULL,
			   "the address has an account that lapse did not make, and which stays: "
			   "drop the dead letter");
}

static bool has_mark(const json_t *account, const char *mark)
{
	const char *is = json_string_value(json_object_get(account, "description"));

	return !mark || (is && strcmp(is, mark) == 0);
}

int registry_parse_found(const json_t *answer, bool is_find, const char *address, const char *mark,
			 struct arena *arena, const char **ret_id, struct problem *p)
{
	json_t *query = NULL, *get = NULL, *entry;
	size_t i;
	int r = is_find ? jmap_find(answer, "x:Account/query", "q", &query, p) : LAPSE_OK;

	if (r == LAPSE_OK)
		r = jmap_find(answer, "x:Account/get", "g", &get, p);
	if (r < 0)
		return r;
	const json_t *list = json_object_get(get, "list");
	if (!json_is_array(list))
		return registry_nonsense(p, "no list of accounts");
	json_array_foreach (list, i, entry) {
		const char *is = json_string_value(json_object_get(entry, "emailAddress"));
		const char *id = json_string_value(json_object_get(entry, "id"));
		const char *type = json_string_value(json_object_get(entry, "@type"));
		if (!is || !type || !id || !jmap_id_is_valid(id))
			return registry_nonsense(p, "an account without id, type or address");
		if (strcasecmp(is, address) != 0 || strcmp(type, "User") != 0)
			continue;
		if (!has_mark(entry, mark))
			return account_not_ours(p);
		*ret_id = arena_strdup(arena, id);
		return LAPSE_OK;
	}
	if (is_find && !is_whole(query, list))
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server did not list all accounts of that name");
	*ret_id = NULL;
	return LAPSE_OK;
}

/* Destroying */

void registry_build_destroy(struct buf *b, const char *id)
{
	assert(jmap_id_is_valid(id)); /* a deletion cannot be undone */
	jmap_begin(b, JMAP_REGISTRY);
	jmap_begin_call(b, "x:Account/set");
	put_ids(b, "destroy", id);
	jmap_end_call(b, "s");
	jmap_end(b);
}

int registry_parse_destroy(const json_t *answer, const char *id, struct problem *p)
{
	json_t *set, *gone;
	size_t i;
	int r = jmap_find(answer, "x:Account/set", "s", &set, p);

	if (r < 0)
		return r;
	json_array_foreach (json_object_get(set, "destroyed"), i, gone) {
		const char *is = json_string_value(gone);
		if (is && strcmp(is, id) == 0)
			return LAPSE_OK;
	}
	const char *error = jmap_set_error(set, "notDestroyed", id);
	if (error && strcmp(error, "notFound") == 0)
		return LAPSE_OK;
	return error ? problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server did not delete the account: %.60s", error)
		     : registry_nonsense(p, "it did not say whether the account is deleted");
}
