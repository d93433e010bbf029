/* SPDX-License-Identifier: Apache-2.0 */
/* Holds: rows that stay, whatever their lifetime says. */
#include <string.h>

#include "base/json.h"
#include "cli/client/resolve.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define CHECKSUM_DIGITS 64

/* Prints "TABLE/KEY …". */
static void print_hold(const struct cli *cli, const json_t *hold, const char *what)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	show_value(cli, json_object_get(hold, "table"), CELL_TEXT, &out);
	buf_putc(&out, '/');
	show_value(cli, json_object_get(hold, "key"), CELL_TEXT, &out);
	printf("%s %s\n", buf_text(&out), what);
}

/* The key of a hold, or the beginning of a key that is an id or a checksum. */
static enum outcome hold_resolve(struct cli *cli, const char **ret)
{
	return resolve_id(cli,
			  &(struct resolve){ .noun = "held key",
					     .key = "key",
					     .prefix = "mbx_",
					     .whole = CHECKSUM_DIGITS,
					     .only_key = "table",
					     .only = args_operand(&cli->args, 0),
					     .list = { .method = "GET", .path = "/v1/holds" } },
			  args_operand(&cli->args, 1), ret);
}

/* The tables whose keys have no meaning to people: there the beginning is enough. */
static const struct {
	const char *table;
	struct resolve what;
} HOLDABLE[] = {
	{ "attachments",
	  { .noun = "attachment",
	    .key = "checksum",
	    .whole = CHECKSUM_DIGITS,
	    .least = 8,
	    .list = { .method = "GET", .path = "/v1/attachments" } } },
	{ "mailboxes",
	  { .noun = "mailbox",
	    .key = "id",
	    .prefix = "mbx_",
	    .whole = 20,
	    .list = { .method = "GET", .path = "/v1/mailboxes" } } },
};

static enum outcome held_row_resolve(struct cli *cli, const char **ret)
{
	const struct args *args = &cli->args;

	for (size_t i = 0; i < ARRAY_LEN(HOLDABLE); i++)
		if (strcmp(HOLDABLE[i].table, args_operand(args, 0)) == 0)
			return resolve_id(cli, &HOLDABLE[i].what, args_operand(args, 1), ret);
	*ret = args_operand(args, 1);
	return OUTCOME_OK;
}

enum outcome cmd_hold_place(struct cli *cli)
{
	const struct args *args = &cli->args;
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "PUT",
				   .path = "/v1/holds/%/%",
				   .body = body,
				   .segments = { args_operand(args, 0) } };
	char until[TIME_TEXT_LEN + 1];

	enum outcome r = input_text(cli, body, "reason", OPT_REASON);
	if (args_has(args, OPT_UNTIL)) {
		time_format(args->number[OPT_UNTIL], until);
		json_object_set_new(body, "until", json_string(until));
	}
	if (r == OUTCOME_OK)
		r = held_row_resolve(cli, &request.segments[1]);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_hold(cli, answer.json, "is held");
	return r;
}

enum outcome cmd_hold_ls(struct cli *cli)
{
	static const struct column columns[] = {
		{ "TABLE", "table", CELL_TEXT },      { "KEY", "key", CELL_TEXT },
		{ "PLACED", "created_at", CELL_AGE }, { "UNTIL", "until", CELL_AGE },
		{ "REASON", "reason", CELL_LONG },    { 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_list(cli, &(struct request){ .method = "GET", .path = "/v1/holds" },
				     &answer);
	return r == OUTCOME_OK ? show_list(cli, &answer, columns, "no holds") : r;
}

enum outcome cmd_hold_rm(struct cli *cli)
{
	const struct args *args = &cli->args;
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "DELETE",
				   .path = "/v1/holds/%/%",
				   .segments = { args_operand(args, 0) } };

	enum outcome r = hold_resolve(cli, &request.segments[1]);
	if (r == OUTCOME_OK)
		r = client_call(cli, &request, &answer);
	if (r == OUTCOME_OK && !show_json(cli, &answer))
		print_hold(cli, answer.json, "is released");
	return r;
}
