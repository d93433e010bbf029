/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/attachment.h"

#include <ctype.h>
#include <string.h>

#define DIGITS 64
#define DIGITS_MIN 8 /* fewer would soon mean several */

/* The attachments that begin with some digits. */
struct search {
	const char *digits;
	char found[DIGITS + 1];
	int count; /* 2: at least */
};

static bool search_page(void *arg, struct answer *page)
{
	struct search *s = arg;
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(page->json, "data"), i, row) {
		const char *checksum = json_string_value(json_object_get(row, "checksum"));
		if (!checksum || strlen(checksum) != DIGITS ||
		    strncmp(checksum, s->digits, strlen(s->digits)) != 0)
			continue;
		/* A page may show again what moved while we were reading. */
		if (s->count == 1 && strcmp(s->found, checksum) == 0)
			continue;
		memcpy(s->found, checksum, sizeof(s->found));
		s->count++;
	}
	return s->count < 2;
}

static enum outcome search_all(struct cli *cli, const char *digits, const char **ret)
{
	struct search s = { .digits = digits };

	enum outcome r =
		client_pages(cli, &(struct request){ .method = "GET", .path = "/v1/attachments" },
			     SIZE_MAX, search_page, &s);
	if (r != OUTCOME_OK)
		return r;
	if (s.count == 0)
		return cli_fail(cli, OUTCOME_NOT_FOUND, "no attachment begins with %s", digits);
	if (s.count > 1)
		return cli_fail(cli, OUTCOME_REFUSED,
				"several attachments begin with %s: give more of its digits",
				digits);
	*ret = arena_strdup(&cli->arena, s.found);
	return OUTCOME_OK;
}

enum outcome attachment_resolve(struct cli *cli, const char *typed, const char **ret)
{
	size_t n = strlen(typed);

	if (n < DIGITS_MIN || n > DIGITS || strspn(typed, "0123456789abcdefABCDEF") != n)
		return cli_usage(cli,
				 "CHECKSUM must be the %d hexadecimal digits of a SHA-256, or the "
				 "first of them, at least %d",
				 DIGITS, DIGITS_MIN);
	char *digits = arena_strdup(&cli->arena, typed);
	for (char *c = digits; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (n < DIGITS)
		return search_all(cli, digits, ret);
	*ret = digits;
	return OUTCOME_OK;
}

enum outcome attachment_get(struct cli *cli, const char **ret_checksum, struct answer *ret)
{
	struct request request = { .method = "GET", .path = "/v1/attachments/%" };

	enum outcome r = attachment_resolve(cli, cli->args.operands[0], &request.segments[0]);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, ret);
	if (r == OUTCOME_OK)
		*ret_checksum = request.segments[0];
	return r;
}
