/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of the command line, by the tables of options and commands. */
#include "cli/args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

const struct option OPTIONS_TABLE[OPTIONS_COUNT] = {
#define X(id, spelling, kind, value, help) { spelling, KIND_##kind, value, help },
	OPTIONS(X)
#undef X
};
_Static_assert(OPTIONS_COUNT <= 64, "the sets of options are 64 bits wide");

bool span_parse(const char *text, int64_t *ret_ms)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = {
		{ "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 }
	};
	char *end;
	int64_t ms;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	int64_t n = strtoll(text, &end, 10);
	if (errno == ERANGE)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(end, units[i].name) == 0 &&
		    !__builtin_mul_overflow(n, units[i].ms, &ms)) {
			*ret_ms = ms;
			return true;
		}
	return false;
}

static bool life_parse(const char *text, int64_t *ret)
{
	if (strcmp(text, "infinity") != 0)
		return span_parse(text, ret);
	*ret = LAPSE_NEVER;
	return true;
}

static bool whole_parse(const char *text, int64_t *ret)
{
	char *end;

	errno = 0;
	int64_t n = strtoll(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno == ERANGE || n < 1)
		return false;
	*ret = n;
	return true;
}

static bool moment_parse(const char *text, lapse_ms now, int direction, int64_t *ret)
{
	int64_t span;

	if (!span_parse(text, &span))
		return time_parse(text, ret);
	*ret = direction < 0 ? time_sub(now, span) : time_add(now, span);
	return true;
}

static enum outcome store_value(struct cli *cli, enum option_id id, const char *value)
{
	const struct option *o = &OPTIONS_TABLE[id];
	struct args *args = &cli->args;
	const char *wanted = NULL;

	args->text[id] = value;
	switch (o->kind) {
	case KIND_FLAG:
	case KIND_TEXT:
		break;
	case KIND_TEXTS:
		args->lists[id][args->times[id]++] = value;
		break;
	case KIND_WHOLE:
		if (!whole_parse(value, &args->number[id]))
			wanted = "a whole number from 1";
		break;
	case KIND_SPAN:
		if (!span_parse(value, &args->number[id]))
			wanted = "a duration like 500ms, 30s, 5m, 2h or 7d";
		break;
	case KIND_LIFE:
		if (!life_parse(value, &args->number[id]))
			wanted = "a duration like 30s, 5m, 2h or 7d, or infinity";
		break;
	case KIND_PAST:
	case KIND_FUTURE:
		if (!moment_parse(value, cli->now, o->kind == KIND_PAST ? -1 : 1,
				  &args->number[id]))
			wanted = "a time like 2026-11-15T18:33:00Z or a duration like 2h";
		break;
	}
	if (wanted)
		return cli_usage(cli, "--%s must be %s, not '%s'", o->spelling, wanted, value);
	return OUTCOME_OK;
}

/* An option by its spelling: the command's own first, then the global ones. */
static enum option_id find_option(const struct command *c, const char *spelling, size_t n)
{
	const uint64_t sets[] = { c ? c->needs | c->takes : 0, GLOBAL_OPTIONS };

	for (size_t set = 0; set < ARRAY_LEN(sets); set++)
		for (enum option_id id = 0; id < OPTIONS_COUNT; id++)
			if (sets[set] >> id & 1 && strlen(OPTIONS_TABLE[id].spelling) == n &&
			    memcmp(OPTIONS_TABLE[id].spelling, spelling, n) == 0)
				return id;
	return OPTIONS_COUNT;
}

/* The short forms are for hands that know them from other commands. */
static const char *option_long(const char *word)
{
	static const struct {
		const char *shorter, *longer;
	} forms[] = { { "-h", "--help" }, { "-o", "--output" } };

	for (size_t i = 0; i < ARRAY_LEN(forms); i++)
		if (strcmp(word, forms[i].shorter) == 0)
			return forms[i].longer;
	return word;
}

/* Takes the option argv[0], with its value from argv[1] where it needs one; `*i` moves past it. */
static enum outcome take_option(struct cli *cli, int argc, char *const *argv, int *i)
{
	struct args *args = &cli->args;
	const char *given = argv[*i], *word = option_long(given);
	size_t n = strcspn(word, "=");
	enum option_id id = OPTIONS_COUNT;

	if (n > 2 && word[1] == '-')
		id = find_option(args->command, word + 2, n - 2);
	if (id == OPTIONS_COUNT)
		return cli_usage(cli, "unknown option '%.*s'", (int)strcspn(given, "="), given);

	const struct option *o = &OPTIONS_TABLE[id];
	const char *value = word[n] == '=' ? word + n + 1 : NULL;
	if (o->kind == KIND_FLAG && value)
		return cli_usage(cli, "--%s takes no value", o->spelling);
	if (o->kind != KIND_FLAG && !value) {
		if (*i + 1 >= argc)
			return cli_usage(cli, "--%s needs a value: %s", o->spelling, o->value);
		value = argv[++*i];
	}
	if (args_has(args, id) && o->kind != KIND_TEXTS && o->kind != KIND_FLAG)
		return cli_usage(cli, "--%s is given twice", o->spelling);
	args->given |= UINT64_C(1) << id;
	if (o->kind == KIND_TEXTS && !args->lists[id])
		args->lists[id] = arena_alloc(&cli->arena, (size_t)argc * sizeof(char *));
	return store_value(cli, id, value);
}

/* A word that is no option: the command, its second word, or an operand. Where a command has the
 * name of a group (`agents` and `agents show`), the second word may make it another one. */
static enum outcome take_word(struct cli *cli, const char *word)
{
	struct args *args = &cli->args;
	const struct command *longer = NULL;

	if (args->command && args->operand_count == 0)
		longer = command_find(args->command->name, word);
	if (longer) {
		args->command = longer;
		return OUTCOME_OK;
	}
	if (args->command) {
		args->operands[args->operand_count++] = word;
		return OUTCOME_OK;
	}
	args->command = command_find(args->group, word);
	if (args->command)
		return OUTCOME_OK;
	if (args->group)
		return cli_usage(cli, "unknown command '%s %s'", args->group, word);
	if (!command_is_group(word))
		return cli_usage(cli, "unknown command '%s'", word);
	args->group = word;
	return OUTCOME_OK;
}

/* The n-th word of "AGENT [CONTENT|-]", for a message. */
static int operand_name(const char *operands, size_t n, const char **ret)
{
	for (; n > 0 && *operands; n--) {
		operands += strcspn(operands, " ");
		operands += strspn(operands, " ");
	}
	*ret = operands;
	return (int)strcspn(operands, " ");
}

static enum outcome check_complete(struct cli *cli)
{
	const struct args *args = &cli->args;
	const struct command *c = args->command;
	const char *name;

	if (args->operand_count < (size_t)c->least) {
		int n = operand_name(c->operands, args->operand_count, &name);
		return cli_usage(cli, "%.*s is missing", n, name);
	}
	if (args->operand_count > (size_t)c->most)
		return cli_usage(cli, "unexpected argument '%s'", args->operands[c->most]);
	/* `lapse agents --cluster x show a`: taken for agents, before it was agents show. */
	for (enum option_id id = 0; id < OPTIONS_COUNT; id++)
		if (args_has(args, id) && !((c->needs | c->takes | GLOBAL_OPTIONS) >> id & 1))
			return cli_usage(cli, "unknown option '--%s'", OPTIONS_TABLE[id].spelling);
	for (enum option_id id = 0; id < OPTIONS_COUNT; id++)
		if (c->needs >> id & 1 && !args_has(args, id))
			return cli_usage(cli, "--%s %s is missing", OPTIONS_TABLE[id].spelling,
					 OPTIONS_TABLE[id].value);
	return OUTCOME_OK;
}

enum outcome args_parse(struct cli *cli, int argc, char *const *argv)
{
	struct args *args = &cli->args;
	bool only_words = false;
	enum outcome r = OUTCOME_OK;

	args->operands = arena_alloc(&cli->arena, (size_t)(argc + 1) * sizeof(char *));
	for (int i = 0; i < argc && r == OUTCOME_OK; i++) {
		if (only_words || argv[i][0] != '-' || argv[i][1] == '\0')
			r = take_word(cli, argv[i]);
		else if (strcmp(argv[i], "--") == 0)
			only_words = true;
		else
			r = take_option(cli, argc, argv, &i);
	}
	if (r != OUTCOME_OK || args_has(args, OPT_HELP) || args_has(args, OPT_VERSION))
		return r;
	if (args->command)
		return check_complete(cli);
	if (args->group)
		return cli_usage(cli, "'%s' needs a second word", args->group);
	return cli_usage(cli, "a command is missing");
}
