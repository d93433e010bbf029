/* SPDX-License-Identifier: Apache-2.0 */
#include "base/uri.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define HIDDEN "***"

/* The last @ before the query ends the password: one with an unescaped @ is hidden whole. */
static const char *end_of_credentials(const char *from, const char *query)
{
	const char *at = NULL;

	for (const char *c = from; c < query; c++)
		if (*c == '@')
			at = c;
	return at;
}

/* SCHEME://user: */
static const char *put_user(struct buf *out, const char *uri, const char *query)
{
	const char *scheme = strstr(uri, "://");
	const char *from = scheme && scheme < query ? scheme + 3 : uri;
	const char *at = end_of_credentials(from, query);
	const char *colon = at ? memchr(from, ':', (size_t)(at - from)) : NULL;

	if (!colon)
		return uri;
	buf_add(out, uri, (size_t)(colon + 1 - uri));
	buf_puts(out, HIDDEN);
	return at;
}

/* One parameter of the query, with its name before `equals`. */
static bool is_secret(const char *name, size_t n)
{
	static const char *const names[] = { "password", "sslpassword" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == n && strncasecmp(names[i], name, n) == 0)
			return true;
	return false;
}

void uri_put_public(struct buf *out, const char *uri)
{
	const char *query = uri + strcspn(uri, "?");
	const char *rest = put_user(out, uri, query);

	buf_add(out, rest, (size_t)(query - rest));
	while (*query) {
		size_t n = 1 + strcspn(query + 1, "&");
		size_t name = 1 + strcspn(query + 1, "=&");
		bool hide = query[name] == '=' && is_secret(query + 1, name - 1);
		buf_add(out, query, hide ? name + 1 : n);
		buf_puts(out, hide ? HIDDEN : "");
		query += n;
	}
}

bool uri_has_password(const char *uri)
{
	struct buf CLEANUP(buf_done) shown = { 0 };

	uri_put_public(&shown, uri);
	return strcmp(buf_text(&shown), uri) != 0;
}
