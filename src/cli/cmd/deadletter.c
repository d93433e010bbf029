/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters: deletions outside the store that gave up, for a person to decide about. */
#include "base/json.h"
#include "cli/client/resolve.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define DEAD_LETTER_ID_DIGITS 16

enum outcome cmd_dead_letters_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },           { "KIND", "kind", CELL_TEXT },
		{ "TARGET", "target", CELL_TEXT },   { "OWNER", "owner", CELL_TEXT },
		{ "SINCE", "created_at", CELL_AGE }, { "ATTEMPTS", "attempts", CELL_COUNT },
		{ "ERROR", "error", CELL_TEXT },     { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/dead-letters" }, &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no dead letters") : r;
}

static enum outcome dead_letter_resolve(struct cli *cli, const char **ret)
{
	return resolve_id(
		cli,
		&(struct resolve){ .noun = "dead letter",
				   .key = "id",
				   .whole = DEAD_LETTER_ID_DIGITS,
				   .list = { .method = "GET", .path = "/v1/dead-letters" } },
		args_operand(&cli->args, 0), ret);
}

/* "0123456789abcdef …" */
static void print_id(const struct cli *cli, const json_t *letter, const char *what)
{
	struct buf CLEANUP(buf_done) id = { 0 };

	show_value(cli, json_object_get(letter, "id"), CELL_TEXT, &id);
	printf("%s %s\n", buf_text(&id), what);
}

/* All of them, or the ones that --kind and --older-than name. */
static enum outcome retry_many(struct cli *cli)
{
	const struct args *args = &cli->args;
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/dead-letters/retry",
				   .body = body };

	if (args_has(args, OPT_KIND))
		json_object_set_new(body, "kind", json_string(args->text[OPT_KIND]));
	if (args_has(args, OPT_OLDER_THAN)) {
		struct buf CLEANUP(buf_done) before = { 0 };
		lapse_ms now = clock_wall(cli->clock);
		json_time(&before, time_sub(now, args->number[OPT_OLDER_THAN]));
		json_object_set_new(body, "before",
				    json_loads(buf_text(&before), JSON_DECODE_ANY, NULL));
	}
	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer)) {
		struct buf CLEANUP(buf_done) n = { 0 };
		show_value(cli, json_object_get(answer.json, "retried"), CELL_COUNT, &n);
		printf("%s dead letters are tried again\n", buf_text(&n));
	}
	return r;
}

enum outcome cmd_dead_letters_retry(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	const bool many = args_has(&cli->args, OPT_ALL_LETTERS) || args_has(&cli->args, OPT_KIND) ||
			  args_has(&cli->args, OPT_OLDER_THAN);

	if (many == (cli->args.operand_count > 0))
		return cli_fail(cli, OUTCOME_USAGE, "give an ID, or --all, --kind or --older-than");
	if (many)
		return retry_many(cli);
	struct request request = { .method = "POST", .path = "/v1/dead-letters/%/retry" };

	enum outcome r = dead_letter_resolve(cli, &request.segments[0]);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_id(cli, answer.json, "is tried again");
	return r;
}

enum outcome cmd_dead_letters_drop(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "DELETE", .path = "/v1/dead-letters/%" };

	enum outcome r = dead_letter_resolve(cli, &request.segments[0]);
	if (r != OUTCOME_OK)
		return r;
	if (!cli_confirm(cli,
			 "Drop the dead letter %s? The file or account stays where it is, and "
			 "lapse will not try again.",
			 request.segments[0]))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_id(cli, answer.json, "is dropped");
	return r;
}
