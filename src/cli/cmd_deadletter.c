/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters: deletions outside the store that gave up, for a person to decide about. */
#include "base/json.h"
#include "cli/commands.h"
#include "cli/show.h"

enum outcome cmd_dead_letters_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "ID", "id", CELL_TEXT },           { "KIND", "kind", CELL_TEXT },
		{ "TARGET", "target", CELL_TEXT },   { "OWNER", "owner", CELL_TEXT },
		{ "SINCE", "created_at", CELL_AGE }, { "ATTEMPTS", "attempts", CELL_COUNT },
		{ "ERROR", "error", CELL_LONG },     { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/dead-letters" }, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		show_rows(cli, json_object_get(answer.json, "data"), columns, "no dead letters");
	return r;
}

/* "0123456789abcdef …" */
static void print_id(const struct cli *cli, const json_t *letter, const char *what)
{
	struct buf CLEANUP(buf_done) id = { 0 };

	show_value(cli, json_object_get(letter, "id"), CELL_TEXT, &id);
	printf("%s %s\n", buf_text(&id), what);
}

enum outcome cmd_dead_letters_retry(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/dead-letters/%/retry",
				   .segments = { cli->args.operands[0] } };

	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_id(cli, answer.json, "is tried again");
	return r;
}

enum outcome cmd_dead_letters_drop(struct cli *cli)
{
	const char *id = cli->args.operands[0];
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "DELETE",
				   .path = "/v1/dead-letters/%",
				   .segments = { id } };

	if (!cli_confirm(cli,
			 "Drop the dead letter %s? What it was to delete stays where it is, and "
			 "nobody will try again.",
			 id))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	enum outcome r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_id(cli, answer.json, "is dropped");
	return r;
}
