/* SPDX-License-Identifier: Apache-2.0 */
#include "base/address.h"

#include <string.h>

#define LABEL_MAX 63
#define LOCAL_MAX 64

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool label_is_valid(const char *s, size_t n)
{
	if (n == 0 || n > LABEL_MAX || !is_alnum(s[0]) || !is_alnum(s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_alnum(s[i]) && s[i] != '-')
			return false;
	return true;
}

bool host_is_valid(const char *text, const char **ret_why)
{
	*ret_why = "must be a host name like mail.example.org";
	if (strlen(text) > HOST_MAX)
		return false;
	for (const char *s = text;; s++) {
		size_t n = strcspn(s, ".");
		if (!label_is_valid(s, n))
			return false;
		s += n;
		if (*s == '\0')
			return true;
	}
}

/* RFC 5322's dot-atom. */
static bool local_is_valid(const char *s, size_t n)
{
	if (n == 0 || n > LOCAL_MAX || s[0] == '.' || s[n - 1] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_alnum(s[i]) && !(s[i] == '.' && s[i + 1] != '.') &&
		    (s[i] == '.' || !strchr("!#$%&'*+-/=?^_`{|}~", s[i])))
			return false;
	return true;
}

bool address_is_valid(const char *text, const char **ret_why)
{
	const char *at = strrchr(text, '@');
	const char *host_why;

	*ret_why = "must be an address like name@example.org";
	return at && strlen(text) <= ADDRESS_MAX && local_is_valid(text, (size_t)(at - text)) &&
	       host_is_valid(at + 1, &host_why);
}

void ascii_lower(char *text)
{
	for (; *text; text++)
		if (*text >= 'A' && *text <= 'Z')
			*text = (char)(*text - 'A' + 'a');
}
