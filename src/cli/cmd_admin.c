/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator decides: holds and tokens. */
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/show.h"

/* Prints "TABLE/KEY …". */
static void print_hold(const struct cli *cli, const json_t *hold, const char *what)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	show_value(cli, json_object_get(hold, "table"), CELL_TEXT, &out);
	buf_putc(&out, '/');
	show_value(cli, json_object_get(hold, "key"), CELL_TEXT, &out);
	printf("%s %s\n", buf_text(&out), what);
}

enum outcome cmd_hold_place(struct cli *cli)
{
	const struct args *args = &cli->args;
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "PUT",
				   .path = "/v1/holds/%/%",
				   .body = body,
				   .segments = { args->operands[0], args->operands[1] } };
	char until[TIME_TEXT_LEN + 1];

	enum outcome r = input_text(cli, body, "reason", OPT_REASON);
	if (args_has(args, OPT_UNTIL)) {
		time_format(args->number[OPT_UNTIL], until);
		json_object_set_new(body, "until", json_string(until));
	}
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_hold(cli, answer.json, "is held");
	return r;
}

enum outcome cmd_hold_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "TABLE", "table", CELL_TEXT },     { "KEY", "key", CELL_TEXT },
		{ "PLACED", "placed_at", CELL_AGE }, { "UNTIL", "until", CELL_AGE },
		{ "REASON", "reason", CELL_LONG },   { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(cli, &(struct request){ .method = "GET", .path = "/v1/holds" },
				     &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		show_rows(cli, json_object_get(answer.json, "data"), columns, "no holds");
	return r;
}

enum outcome cmd_hold_rm(struct cli *cli)
{
	const struct args *args = &cli->args;
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "DELETE",
				   .path = "/v1/holds/%/%",
				   .segments = { args->operands[0], args->operands[1] } };

	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_hold(cli, answer.json, "is released");
	return r;
}

/* The token alone on standard output, so that a script can keep it; the rest is for people. */
static void print_token(const struct cli *cli, const json_t *token)
{
	struct buf CLEANUP(buf_done) secret = { 0 };
	struct buf CLEANUP(buf_done) about = { 0 };
	const json_t *expires = json_object_get(token, "expires_at");

	show_value(cli, json_object_get(token, "token"), CELL_TEXT, &secret);
	puts(buf_text(&secret));
	fflush(stdout);
	buf_puts(&about, "prefix ");
	show_value(cli, json_object_get(token, "prefix"), CELL_TEXT, &about);
	buf_puts(&about, ", owner ");
	show_value(cli, json_object_get(token, "owner"), CELL_TEXT, &about);
	buf_puts(&about, json_is_true(json_object_get(token, "admin")) ? ", admin, " : ", ");
	if (json_is_string(expires)) {
		buf_puts(&about, "expires ");
		show_value(cli, expires, CELL_AGE, &about);
	} else {
		buf_puts(&about, "does not expire");
	}
	fprintf(stderr, "%s. It is shown only this once.\n", buf_text(&about));
}

enum outcome cmd_token_create(struct cli *cli)
{
	const struct args *args = &cli->args;
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	/* No Idempotency-Key: the daemon would have to keep the token itself to answer again. */
	struct request request = { .method = "POST", .path = "/v1/tokens", .body = body };

	enum outcome r = input_text(cli, body, "owner", OPT_TOKEN_OWNER);
	if (args_has(args, OPT_ADMIN))
		json_object_set_new(body, "admin", json_true());
	if (args_has(args, OPT_TTL))
		json_object_set_new(body, "ttl_ms", json_integer(args->number[OPT_TTL]));
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_token(cli, answer.json);
	return r;
}

enum outcome cmd_token_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "PREFIX", "prefix", CELL_TEXT },     { "OWNER", "owner", CELL_TEXT },
		{ "ADMIN", "admin", CELL_FLAG },       { "CREATED", "created_at", CELL_AGE },
		{ "EXPIRES", "expires_at", CELL_AGE }, { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/tokens" }, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		show_rows(cli, json_object_get(answer.json, "data"), columns, "no tokens");
	return r;
}

enum outcome cmd_token_revoke(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) prefix = { 0 };
	struct request request = { .method = "DELETE",
				   .path = "/v1/tokens/%",
				   .segments = { cli->args.operands[0] } };

	enum outcome r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "prefix"), CELL_TEXT, &prefix);
	printf("%s is revoked\n", buf_text(&prefix));
	return OUTCOME_OK;
}
