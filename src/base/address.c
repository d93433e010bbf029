/* SPDX-License-Identifier: Apache-2.0 */
#include "base/address.h"

#include <netinet/in.h>
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

struct net4 {
	uint32_t base;
	int bits;
};

/* What is not the public Internet (IANA's special-purpose registries). */
static bool ipv4_is_public(uint32_t ip)
{
	static const struct net4 nets[] = {
		{ 0x00000000, 8 },  { 0x0a000000, 8 },  { 0x64400000, 10 }, { 0x7f000000, 8 },
		{ 0xa9fe0000, 16 }, { 0xac100000, 12 }, { 0xc0000000, 24 }, { 0xc0000200, 24 },
		{ 0xc0a80000, 16 }, { 0xc6120000, 15 }, { 0xc6336400, 24 }, { 0xcb007100, 24 },
		{ 0xe0000000, 3 },
	};

	for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++)
		if ((ip ^ nets[i].base) >> (32 - nets[i].bits) == 0)
			return false;
	return true;
}

static uint32_t read_ipv4(const uint8_t *b)
{
	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static bool ipv6_is_public(const uint8_t b[16])
{
	static const uint8_t nat64[12] = { 0, 0x64, 0xff, 0x9b };

	if (memcmp(b, nat64, sizeof(nat64)) == 0)
		return ipv4_is_public(read_ipv4(b + 12));
	if (b[0] == 0x20 && b[1] == 0x02) /* 6to4 */
		return ipv4_is_public(read_ipv4(b + 2));
	if (b[0] == 0x20 && b[1] == 0x01 && (b[2] < 2 || (b[2] == 0x0d && b[3] == 0xb8)))
		return false;         /* Teredo, protocols, documentation */
	return (b[0] & 0xe0) == 0x20; /* 2000::/3 is all there is; mapped and local ones are not */
}

bool sockaddr_is_public(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ipv4_is_public(
			ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr));
	return a->sa_family == AF_INET6 &&
	       ipv6_is_public(((const struct sockaddr_in6 *)(const void *)a)->sin6_addr.s6_addr);
}
