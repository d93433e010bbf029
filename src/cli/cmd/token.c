/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, and whose data they see. */
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "cli/client/resolve.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define TOKEN_PREFIX_DIGITS 12
#define LOCAL_OWNER "local"     /* of callers without a token */
#define ADOPT_TIMEOUT_MS 600000 /* it is one transaction, however many rows there are */

/* The first token changes whose data a caller sees: until then everything belonged to `local`. */
static void print_local_hint(const struct cli *cli, const char *owner)
{
	if (cli->client.token || !owner || strcmp(owner, LOCAL_OWNER) == 0)
		return;
	fprintf(stderr,
		"From now on every request needs a token. What was made without one belongs to the "
		"owner local, which this token does not see. ");
	fprintf(stderr, "To move it to %s: LAPSE_TOKEN=... lapse token adopt %s\n", owner, owner);
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
	if (!args_has(&cli->args, OPT_ADOPT_LOCAL))
		print_local_hint(cli, json_string_value(json_object_get(token, "owner")));
}

/* Asks the daemon to give everything of `from` to `owner`. */
static enum outcome call_adopt(struct cli *cli, const char *from, const char *owner,
			       struct answer *ret)
{
	json_t *CLEANUP(json_freep) body = json_pack("{s:s}", "from", from);
	/* Moving nothing a second time is harmless. */
	struct request request = { .method = "POST",
				   .path = "/v1/adopt",
				   .body = body,
				   .repeatable = true,
				   .timeout_ms = ADOPT_TIMEOUT_MS };

	request.headers[0].name = "X-Lapse-Owner";
	request.headers[0].value = owner;
	return client_call(cli, &request, ret);
}

/* "moved 12 rows of local to ops: messages 8, agents 4". */
static void print_adopted(const struct cli *cli, const json_t *adopted, FILE *out)
{
	struct buf CLEANUP(buf_done) line = { 0 };
	const char *table, *sign = ": ";
	json_t *rows;

	buf_puts(&line, "moved ");
	show_value(cli, json_object_get(adopted, "rows"), CELL_COUNT, &line);
	buf_puts(&line, json_integer_value(json_object_get(adopted, "rows")) == 1 ? " row of "
										  : " rows of ");
	show_value(cli, json_object_get(adopted, "from"), CELL_TEXT, &line);
	buf_puts(&line, " to ");
	show_value(cli, json_object_get(adopted, "owner"), CELL_TEXT, &line);
	json_object_foreach (json_object_get(adopted, "tables"), table, rows) {
		buf_puts(&line, sign);
		text_escape(&line, table, strlen(table));
		buf_putc(&line, ' ');
		show_value(cli, rows, CELL_COUNT, &line);
		sign = ", ";
	}
	fprintf(out, "%s\n", buf_text(&line));
}

/* With the token that the command was given or, for the first one, with the token just made. */
static enum outcome adopt_local(struct cli *cli, const json_t *token, struct answer *ret)
{
	const char *text = json_string_value(json_object_get(token, "token"));
	const char *owner = json_string_value(json_object_get(token, "owner"));

	if (!text || !owner)
		return cli_fail(cli, OUTCOME_REFUSED, "the daemon's answer has no token");
	if (!cli->client.token)
		cli->client.token = mem_strdup(text);
	return call_adopt(cli, LOCAL_OWNER, owner, ret);
}

/* The token is printed first: whatever happens then, it exists. */
static enum outcome create_and_adopt(struct cli *cli, struct answer *made)
{
	struct answer CLEANUP(answer_done) adopted = { 0 };
	bool is_json = args_has(&cli->args, OPT_JSON) || args_has(&cli->args, OPT_JSONL);

	if (!is_json)
		print_token(cli, made->json);
	enum outcome r = adopt_local(cli, made->json, &adopted);
	if (!is_json) {
		if (r == OUTCOME_OK)
			print_adopted(cli, adopted.json, stderr);
		return r;
	}
	if (r == OUTCOME_OK)
		json_object_set(made->json, "adopted", adopted.json);
	show_made_json(cli, made->json);
	return r;
}

enum outcome cmd_token_create(struct cli *cli)
{
	const struct args *args = &cli->args;
	json_t *CLEANUP(json_freep) body = json_object();
	json_t *scopes = json_array();
	struct answer CLEANUP(answer_done) answer = { 0 };
	/* No Idempotency-Key: the daemon would have to keep the token itself to answer again. */
	struct request request = { .method = "POST", .path = "/v1/tokens", .body = body };

	enum outcome r = input_texts(cli, scopes, OPT_SCOPE);
	json_object_set_new(body, "scopes", scopes);
	if (json_array_size(scopes) == 0)
		json_object_del(body, "scopes");
	if (r == OUTCOME_OK)
		r = input_text(cli, body, "owner", OPT_TOKEN_OWNER);
	if (r == OUTCOME_OK)
		r = input_text(cli, body, "name", OPT_TOKEN_NAME);
	if (args_has(args, OPT_ADMIN))
		json_object_set_new(body, "admin", json_true());
	if (args_has(args, OPT_TTL))
		json_object_set_new(body, "ttl_ms", json_integer(args->number[OPT_TTL]));
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK)
		return r;
	if (args_has(args, OPT_ADOPT_LOCAL))
		return create_and_adopt(cli, &answer);
	if (!show_json(cli, &answer))
		print_token(cli, answer.json);
	return OUTCOME_OK;
}

enum outcome cmd_token_adopt(struct cli *cli)
{
	const struct args *args = &cli->args;
	const char *from =
		args_has(args, OPT_ADOPT_FROM) ? args->text[OPT_ADOPT_FROM] : LOCAL_OWNER;
	struct answer CLEANUP(answer_done) answer = { 0 };
	const char *why;

	if (!id_is_valid(args_operand(args, 0), &why))
		return cli_usage(cli, "OWNER %s", why);
	enum outcome r = call_adopt(cli, from, args_operand(args, 0), &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_adopted(cli, answer.json, stdout);
	return r;
}

enum outcome cmd_token_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "PREFIX", "prefix", CELL_TEXT },
		{ "OWNER", "owner", CELL_TEXT },
		{ "NAME", "name", CELL_TEXT },
		{ "SCOPES", "scopes", CELL_TEXTS },
		{ "ADMIN", "admin", CELL_FLAG },
		{ "CREATED", "created_at", CELL_AGE },
		{ "EXPIRES", "expires_at", CELL_AGE },
		{ "USED", "last_used_at", CELL_AGE },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/tokens" }, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no tokens") : r;
}

enum outcome cmd_token_revoke(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) prefix = { 0 };
	struct request request = { .method = "DELETE", .path = "/v1/tokens/%" };
	const struct resolve what = { .noun = "token",
				      .key = "prefix",
				      .whole = TOKEN_PREFIX_DIGITS,
				      .list = { .method = "GET", .path = "/v1/tokens" } };

	enum outcome r = resolve_id(cli, &what, args_operand(&cli->args, 0), &request.segments[0]);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "prefix"), CELL_TEXT, &prefix);
	printf("%s is revoked\n", buf_text(&prefix));
	return OUTCOME_OK;
}
