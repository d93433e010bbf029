/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/input.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"

#define INPUT_MAX_BYTES (64u << 20) /* the largest body a daemon can be set to take */

enum outcome input_text(const struct cli *cli, json_t *body, const char *key, enum option_id id)
{
	if (args_has(&cli->args, id) &&
	    json_object_set_new(body, key, json_string(cli->args.text[id])) < 0)
		return cli_usage(cli, "--%s is not UTF-8 text", OPTIONS_TABLE[id].spelling);
	return OUTCOME_OK;
}

enum outcome input_texts(const struct cli *cli, json_t *array, enum option_id id)
{
	for (size_t i = 0; i < cli->args.times[id]; i++)
		if (json_array_append_new(array, json_string(cli->args.lists[id][i])) < 0)
			return cli_usage(cli, "--%s is not UTF-8 text", OPTIONS_TABLE[id].spelling);
	return OUTCOME_OK;
}

static enum outcome read_all(const struct cli *cli, FILE *f, const char *what, struct buf *out)
{
	char chunk[65536];
	size_t n;

	while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0) {
		buf_add(out, chunk, n);
		if (out->len > INPUT_MAX_BYTES)
			return cli_fail(cli, OUTCOME_USAGE, "%s is larger than any daemon takes",
					what);
	}
	if (ferror(f))
		return cli_fail(cli, OUTCOME_USAGE, "cannot read %s: %s", what, strerror(errno));
	return OUTCOME_OK;
}

static void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

enum outcome input_file(const struct cli *cli, const char *path, const char *what, struct buf *out)
{
	FILE *CLEANUP(fclosep) f = NULL;

	if (strcmp(path, "-") == 0)
		return read_all(cli, stdin, what, out);
	f = fopen(path, "re");
	if (!f)
		return cli_fail(cli, OUTCOME_USAGE, "cannot read %s: %s", what, strerror(errno));
	return read_all(cli, f, what, out);
}

void input_number(const struct cli *cli, json_t *body, const char *key, enum option_id id)
{
	assert(OPTIONS_TABLE[id].kind == KIND_WHOLE || OPTIONS_TABLE[id].kind == KIND_SPAN);
	if (args_has(&cli->args, id))
		json_object_set_new(body, key, json_integer(cli->args.number[id]));
}

enum outcome input_object(const struct cli *cli, json_t *body, const char *key, size_t operand,
			  const char *name)
{
	const struct args *args = &cli->args;
	const char *typed = operand < args->operand_count ? args_operand(args, operand) : NULL;
	struct buf CLEANUP(buf_done) text = { 0 };
	struct problem p = { 0 };
	json_t *object = NULL;

	if (!typed && isatty(STDIN_FILENO))
		return cli_usage(cli, "%s is missing; - reads it from the terminal", name);
	if (typed && strcmp(typed, "-") != 0) {
		buf_puts(&text, typed);
	} else {
		enum outcome r = input_file(cli, "-", name, &text);
		if (r != OUTCOME_OK)
			return r;
	}
	if (json_parse_object(buf_text(&text), text.len, &object, &p) < 0)
		return cli_fail(cli, OUTCOME_USAGE, "%s must be a JSON object", name);
	json_object_set_new(body, key, object);
	return OUTCOME_OK;
}
