/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: those in force in the daemon, or those it would have if it were started here. */
#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/settings.h"
#include "cli/line/commands.h"
#include "cli/line/suggest.h"
#include "cli/show/show.h"

/* What lapsed would use here: the file, then the environment over it. */
static enum outcome config_here(const struct cli *cli, struct answer *ret)
{
	struct settings CLEANUP(settings_done) own;
	const char *file = cli->args.text[OPT_CONFIG];
	char flag[] = "--config";
	char *argv[] = { flag, (char *)(uintptr_t)file };
	struct problem p = { 0 };

	settings_init(&own);
	int err = settings_load(&own, file ? 2 : 0, argv, environ, &p);
	if (err < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s", problem_text(&p, err));
	settings_write_json(&own, &ret->text);
	ret->json = json_loadb(buf_text(&ret->text), ret->text.len, 0, NULL);
	assert(ret->json);
	return OUTCOME_OK;
}

static json_t *config_find(const json_t *rows, const char *name)
{
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		const char *own = json_string_value(json_object_get(row, "name"));
		if (own && setting_is(own, name, strlen(name)))
			return row;
	}
	return NULL;
}

static enum outcome config_unknown(const struct cli *cli, const json_t *rows, const char *name)
{
	struct suggestion s;
	const json_t *row;
	size_t i;

	suggestion_init(&s, name, "");
	json_array_foreach (rows, i, row) {
		const char *own = json_string_value(json_object_get(row, "name"));
		if (own)
			suggestion_offer(&s, own);
	}
	return cli_fail(cli, OUTCOME_NOT_FOUND, "there is no setting '%s'%s", name,
			suggestion_text(&s));
}

/* Keeps the rows that were named, in the order they were named. */
static enum outcome config_pick(const struct cli *cli, struct answer *answer)
{
	json_t *rows = json_object_get(answer->json, "data");
	json_t *CLEANUP(json_freep) picked = json_array();

	if (cli->args.operand_count == 0)
		return OUTCOME_OK;
	for (size_t i = 0; i < cli->args.operand_count; i++) {
		json_t *row = config_find(rows, cli->args.operands[i]);
		if (!row)
			return config_unknown(cli, rows, cli->args.operands[i]);
		json_array_append(picked, row);
	}
	json_object_set(answer->json, "data", picked);
	char *CLEANUP(mem_freep) text = json_dumps(answer->json, JSON_COMPACT);
	buf_done(&answer->text);
	buf_puts(&answer->text, text);
	return OUTCOME_OK;
}

/* A number with its unit as people write it; the value itself where there is none. */
static json_t *config_readable(const struct cli *cli, const json_t *row, const char *key)
{
	const char *unit = json_string_value(json_object_get(row, "unit"));
	const json_t *value = json_object_get(row, key);
	struct buf CLEANUP(buf_done) text = { 0 };
	enum cell_kind kind = CELL_TEXT;

	if (json_is_integer(value) && unit && strcmp(unit, "ms") == 0)
		kind = CELL_SPAN;
	else if (json_is_integer(value) && unit && strcmp(unit, "bytes") == 0)
		kind = CELL_BYTES;
	show_value(cli, value, kind, &text);
	return json_stringn(buf_text(&text), text.len);
}

/* The rows as people read them. */
static json_t *config_rows(const struct cli *cli, const json_t *rows)
{
	static const char *const keys[] = { "value", "default", "min", "max" };
	json_t *all = json_array(), *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		json_t *copy = json_copy(row);
		for (size_t k = 0; k < ARRAY_LEN(keys) && json_is_object(copy); k++)
			if (json_object_get(row, keys[k]))
				json_object_set_new(copy, keys[k],
						    config_readable(cli, row, keys[k]));
		json_array_append_new(all, copy);
	}
	return all;
}

enum outcome cmd_config(struct cli *cli)
{
	static const struct column table[] = {
		{ "SETTING", "name", CELL_TEXT },
		{ "VALUE", "value", CELL_TEXT },
		{ "FROM", "source", CELL_TEXT },
		{ "HELP", "help", CELL_LONG },
		{ 0 },
	};
	static const struct column fields[] = {
		{ "setting", "name", CELL_TEXT },
		{ "value", "value", CELL_TEXT },
		{ "from", "source", CELL_TEXT },
		{ "default", "default", CELL_TEXT },
		{ "least", "min", CELL_TEXT },
		{ "most", "max", CELL_TEXT },
		{ "unit", "unit", CELL_TEXT },
		{ "help", "help", CELL_TEXT },
		{ 0 },
	};
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "GET", .path = "/v1/settings" };
	bool here = args_has(&cli->args, OPT_OFFLINE) || args_has(&cli->args, OPT_CONFIG);

	enum outcome r = here ? config_here(cli, &answer) : client_call(cli, &request, &answer);
	if (r == OUTCOME_UNREACHABLE)
		fputs("'lapse config --offline' shows what lapsed would use if it were started "
		      "here.\n",
		      stderr);
	if (r == OUTCOME_OK)
		r = config_pick(cli, &answer);
	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	json_t *CLEANUP(json_freep) rows = config_rows(cli, json_object_get(answer.json, "data"));
	if (cli->args.operand_count == 1)
		return show_fields(cli, json_array_get(rows, 0), fields);
	return show_rows(cli, rows, table, "no settings");
}
