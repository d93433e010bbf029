/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that ask no daemon: config, restore, help, version. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/settings.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/show.h"
#include "store/restore.h"

/* A setting's text as the JSON value of its kind. */
static json_t *typed(const struct setting *row, const char *text)
{
	switch (row->kind) {
	case SETTING_INT:
		return json_integer(strtoll(text, NULL, 10));
	case SETTING_FLAG:
		return json_boolean(strcmp(text, "true") == 0);
	case SETTING_TEXT:
	case SETTING_SECRET:
		return json_string(text);
	}
	return json_null();
}

/* One setting as an object: what --json prints and the table shows. */
static json_t *setting_row(const struct settings *own, const struct settings *defaults,
			   const struct setting *row)
{
	struct buf CLEANUP(buf_done) value = { 0 };
	struct buf CLEANUP(buf_done) def = { 0 };
	json_t *j = json_object();

	setting_value(own, row, &value);
	setting_value(defaults, row, &def);
	json_object_set_new(j, "name", json_string(row->name));
	json_object_set_new(j, "value", typed(row, buf_text(&value)));
	json_object_set_new(j, "default", typed(row, buf_text(&def)));
	if (row->kind == SETTING_INT) {
		json_object_set_new(j, "min", json_integer(row->min));
		json_object_set_new(j, "max", json_integer(row->max));
	}
	json_object_set_new(j, "unit", json_string(row->unit));
	json_object_set_new(j, "help", json_string(row->help));
	return j;
}

static int load_settings(const struct cli *cli, struct settings *s, struct problem *p)
{
	const char *file = cli->args.text[OPT_CONFIG];
	char flag[] = "--config";
	char *argv[] = { flag, (char *)(uintptr_t)file };

	return settings_load(s, file ? 2 : 0, argv, environ, p);
}

static void print_settings(struct cli *cli, const json_t *all)
{
	static const struct column columns[] = {
		{ "SETTING", "name", CELL_TEXT },    { "VALUE", "value", CELL_TEXT },
		{ "DEFAULT", "default", CELL_TEXT }, { "UNIT", "unit", CELL_TEXT },
		{ "HELP", "help", CELL_TEXT },       { 0 },
	};

	if (args_has(&cli->args, OPT_JSON)) {
		char *CLEANUP(mem_freep) text = json_dumps(all, JSON_COMPACT);
		puts(text);
	} else {
		show_rows(cli, json_object_get(all, "data"), columns, "no settings");
	}
}

enum outcome cmd_config(struct cli *cli)
{
	struct settings CLEANUP(settings_done) own;
	struct settings CLEANUP(settings_done) defaults;
	json_t *CLEANUP(json_freep) all = json_object();
	json_t *rows = json_array();
	struct problem p = { 0 };

	json_object_set_new(all, "data", rows);
	settings_init(&own);
	settings_init(&defaults);
	int err = load_settings(cli, &own, &p);
	if (err < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", problem_text(&p, err));
	for (size_t i = 0; i < SETTINGS_COUNT; i++)
		json_array_append_new(rows, setting_row(&own, &defaults, &SETTINGS_TABLE[i]));
	print_settings(cli, all);
	return OUTCOME_OK;
}

enum outcome cmd_restore(struct cli *cli)
{
	const char *dir = cli->args.text[OPT_DATA_DIR], *file = cli->args.operands[0];
	char kept[PATH_MAX] = "";
	struct problem p = { 0 };

	if (!cli_confirm(cli, "Replace the database in %s by %s? The old one is kept.", dir, file))
		return cli_fail(cli, OUTCOME_REFUSED, "nothing was changed");
	int err = store_restore(dir, file, kept, sizeof(kept), &p);
	if (err < 0)
		return cli_fail(cli, outcome_of_error(err), "%s", problem_text(&p, err));
	if (args_has(&cli->args, OPT_JSON)) {
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

/* `lapse help hold place`, `lapse hold place --help`, and both for a group. */
static enum outcome find_topic(struct cli *cli)
{
	struct args *args = &cli->args;

	if (args_has(args, OPT_HELP))
		return OUTCOME_OK;
	const char *first = args->operand_count > 0 ? args->operands[0] : NULL;
	const char *second = args->operand_count > 1 ? args->operands[1] : NULL;
	args->command = NULL;
	if (!first)
		return OUTCOME_OK;
	if (command_is_group(first))
		args->group = first;
	args->command = command_find(second ? first : NULL, second ? second : first);
	if (!args->command && (!args->group || second))
		return cli_usage(cli, "unknown command '%s%s%s'", first, second ? " " : "",
				 second ? second : "");
	return OUTCOME_OK;
}

enum outcome cmd_help(struct cli *cli)
{
	struct buf CLEANUP(buf_done) out = { 0 };
	const struct args *args = &cli->args;

	enum outcome r = find_topic(cli);
	if (r != OUTCOME_OK)
		return r;
	if (args_has(args, OPT_MAN))
		man_page(&out);
	else if (args->command)
		help_command(&out, args->command);
	else if (args->group)
		help_group(&out, args->group);
	else
		help_all(&out);
	fputs(buf_text(&out), stdout);
	return OUTCOME_OK;
}

enum outcome cmd_version(struct cli *cli)
{
	puts(args_has(&cli->args, OPT_JSON) ? "{\"version\":\"" LAPSE_VERSION "\"}"
					    : "lapse " LAPSE_VERSION);
	return OUTCOME_OK;
}
