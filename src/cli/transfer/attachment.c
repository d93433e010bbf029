/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/transfer/attachment.h"

#include <ctype.h>
#include <string.h>

#include "cli/client/resolve.h"

#define DIGITS 64
#define DIGITS_MIN 8 /* fewer would soon mean several */

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
	return resolve_id(
		cli,
		&(struct resolve){ .noun = "attachment",
				   .key = "checksum",
				   .whole = DIGITS,
				   .least = DIGITS_MIN,
				   .list = { .method = "GET", .path = "/v1/attachments" } },
		digits, ret);
}

enum outcome attachment_look_up(struct cli *cli, const char **ret_checksum, struct answer *ret)
{
	struct request request = { .method = "GET", .path = "/v1/attachments/%" };

	enum outcome r = attachment_resolve(cli, args_operand(&cli->args, 0), &request.segments[0]);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, ret);
	if (r == OUTCOME_OK)
		*ret_checksum = request.segments[0];
	return r;
}
