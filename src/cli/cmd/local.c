/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that ask no daemon: restore, help, version. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/line/commands.h"
#include "cli/line/help.h"
#include "cli/show/show.h"
#include "store/restore.h"

enum outcome cmd_restore(struct cli *cli)
{
	const char *dir = cli->args.text[OPT_DATA_DIR], *file = args_operand(&cli->args, 0);
	char kept[PATH_MAX] = "";
	struct problem p = { 0 };

	if (!cli_confirm(cli, "Replace the database in %s by %s? The old one is kept.", dir, file))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	int err = store_restore(dir, file, kept, sizeof(kept), &p);
	if (err < 0)
		return cli_fail(cli, outcome_of_error(err), "%s", problem_text(&p, err));
	if (show_wants_json(cli)) {
		struct buf CLEANUP(buf_done) out = { 0 };
		json_begin(&out, '{');
		json_put_text(&out, "restored", file);
		json_put_text(&out, "data_dir", dir);
		json_put_text(&out, "kept", kept[0] ? kept : NULL);
		json_end(&out, '}');
		puts(buf_text(&out));
		return OUTCOME_OK;
	}
	printf("%s is now the database in %s\n", file, dir);
	if (kept[0])
		printf("the old one is kept as %s\n", kept);
	puts("after the start nothing is removed for one grace period");
	return OUTCOME_OK;
}

/* The command of `lapse help hold place` or `lapse hold place --help`; NULL for everything. */
static enum outcome help_topic(struct cli *cli, const struct command **ret)
{
	struct args *args = &cli->args;
	const char *first = args->operand_count > 0 ? args_operand(args, 0) : NULL;
	const char *second = args->operand_count > 1 ? args_operand(args, 1) : NULL;
	const struct command *c = args->command;

	if (!args_has(args, OPT_HELP)) {
		const struct command *noun = first ? command_find_word(first) : NULL;
		if (first && !noun)
			return args_unknown_command(cli, first);
		c = second ? command_find_verb(noun, second) : noun;
		if (second && !c)
			return args_unknown_verb(cli, noun, second);
	}
	*ret = c;
	return OUTCOME_OK;
}

enum outcome cmd_help(struct cli *cli)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	const struct command *topic = NULL;

	enum outcome r = help_topic(cli, &topic);
	if (r != OUTCOME_OK)
		return r;
	if (args_has(&cli->args, OPT_MAN))
		man_page(&out);
	else if (topic)
		help_command(&out, cli->columns, topic);
	else
		help_all(&out, cli->columns);
	fputs(buf_text(&out), stdout);
	return OUTCOME_OK;
}

enum outcome cmd_version(struct cli *cli)
{
	puts(show_wants_json(cli) ? "{\"version\":\"" LAPSE_VERSION "\"}" : "lapse " LAPSE_VERSION);
	return OUTCOME_OK;
}
