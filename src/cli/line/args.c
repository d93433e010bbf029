/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of the command line, by the tables of options and commands. */
#include "cli/line/args.h"

#include <assert.h>
#include <string.h>

#include "cli/line/commands.h"
#include "cli/line/suggest.h"

const struct option OPTIONS_TABLE[OPTIONS_COUNT] = {
#define X(id, spelling, kind, value, help) { spelling, KIND_##kind, value, help },
	OPTIONS(X)
#undef X
};

const uint8_t GLOBAL_OPTIONS[] = { OPT_URL,  OPT_TOKEN_FILE, OPT_CA_FILE,  OPT_OWNER,
				   OPT_WIDE, OPT_COLUMNS,    OPT_JSON,     OPT_JSONL,
				   OPT_HELP, OPT_VERSION,    OPTIONS_COUNT };

bool options_have(const uint8_t *list, enum option_id id)
{
	assert(id < OPTIONS_COUNT);
	for (; list && *list != OPTIONS_COUNT; list++)
		if (*list == id)
			return true;
	return false;
}

/* Whether the command knows the option: rank 0 its own, rank 1 the global ones. */
static bool option_ranks(const struct command *c, enum option_id id, int rank)
{
	if (rank == 1)
		return options_have(GLOBAL_OPTIONS, id);
	return c && (options_have(c->needs, id) || options_have(c->takes, id));
}

/* An option by its spelling: the command's own first, then the global ones. */
static enum option_id option_find(const struct command *c, const char *spelling, size_t n)
{
	for (int rank = 0; rank < 2; rank++)
		for (enum option_id id = 0; id < OPTIONS_COUNT; id++)
			if (option_ranks(c, id, rank) && strlen(OPTIONS_TABLE[id].spelling) == n &&
			    memcmp(OPTIONS_TABLE[id].spelling, spelling, n) == 0)
				return id;
	return OPTIONS_COUNT;
}

static enum outcome option_unknown(const struct cli *cli, const char *given)
{
	int n = (int)strcspn(given, "=");
	struct buf CLEANUP(buf_done) typed = { 0 };
	struct suggestion s;

	buf_add(&typed, given, (size_t)n);
	suggestion_init(&s, buf_text(&typed) + strspn(buf_text(&typed), "-"), "--");
	for (enum option_id id = 0; id < OPTIONS_COUNT; id++)
		if (option_ranks(cli->args.command, id, 0) ||
		    option_ranks(cli->args.command, id, 1))
			suggestion_offer(&s, OPTIONS_TABLE[id].spelling);
	return cli_usage(cli, "unknown option '%.*s'%s", n, given, suggestion_text(&s));
}

/* The short forms are for hands that know them from other commands. */
static const char *option_long(const char *word)
{
	static const struct {
		const char *shorter, *longer;
	} forms[] = { { "-h", "--help" }, { "-o", "--output" }, { "-f", "--follow" } };

	for (size_t i = 0; i < ARRAY_LEN(forms); i++)
		if (strcmp(word, forms[i].shorter) == 0)
			return forms[i].longer;
	return word;
}

/* Takes the option argv[*i], with its value from the next word where it needs one; `*i` moves past
 * it. */
static enum outcome option_take(struct cli *cli, int argc, char *const *argv, int *i)
{
	struct args *args = &cli->args;
	const char *given = argv[*i], *word = option_long(given);
	size_t n = strcspn(word, "=");
	enum option_id id = OPTIONS_COUNT;

	if (n > 2 && word[1] == '-')
		id = option_find(args->command, word + 2, n - 2);
	if (id == OPTIONS_COUNT)
		return option_unknown(cli, given);

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
	args->given[id] = true;
	if (o->kind == KIND_TEXTS && !args->lists[id])
		args->lists[id] = arena_alloc(&cli->arena, (size_t)argc * sizeof(char *));
	return args_take_value(cli, id, value);
}

enum outcome args_unknown_command(const struct cli *cli, const char *word)
{
	struct suggestion s;

	suggestion_init(&s, word, "");
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (!strchr(COMMANDS[i].name, ' '))
			suggestion_offer(&s, COMMANDS[i].name);
	for (size_t i = 0; i < ALIASES_COUNT; i++)
		suggestion_offer(&s, ALIASES[i].word);
	return cli_usage(cli, "unknown command '%s'%s", word, suggestion_text(&s));
}

enum outcome args_unknown_verb(const struct cli *cli, const struct command *noun, const char *word)
{
	struct suggestion s;
	struct buf CLEANUP(buf_done) prefix = { 0 };

	buf_printf(&prefix, "%s ", noun->name);
	suggestion_init(&s, word, buf_text(&prefix));
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (command_of_noun(&COMMANDS[i], noun) && strchr(COMMANDS[i].name, ' '))
			suggestion_offer(&s, strchr(COMMANDS[i].name, ' ') + 1);
	return cli_usage(cli, "unknown command '%s %s'%s", noun->name, word, suggestion_text(&s));
}

/* A word that is no option: the command, its verb, or an operand. */
static enum outcome word_take(struct cli *cli, const char *word)
{
	struct args *args = &cli->args;

	if (!args->command) {
		args->command = command_find_word(word);
		if (!args->command)
			return args_unknown_command(cli, word);
		args->has_verb = strchr(args->command->name, ' ') || command_word_is_short(word);
		return OUTCOME_OK;
	}
	const struct command *verb = NULL;
	if (!args->has_verb && args->operand_count == 0)
		verb = command_find_verb(args->command, word);
	if (verb) {
		args->command = verb;
		args->has_verb = true;
		return OUTCOME_OK;
	}
	args->operands[args->operand_count++] = word;
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

static enum outcome check_operands(const struct cli *cli)
{
	const struct args *args = &cli->args;
	const struct command *c = args->command;
	const char *name;

	if (args->operand_count < (size_t)c->least) {
		int n = operand_name(c->operands, args->operand_count, &name);
		return cli_usage(cli, "%.*s is missing", n, name);
	}
	if (args->operand_count <= (size_t)c->most)
		return OUTCOME_OK;
	if (!args->has_verb && command_is_noun(c))
		return args_unknown_verb(cli, c, args->operands[0]);
	return cli_usage(cli, "unexpected argument '%s'", args->operands[c->most]);
}

static enum outcome check_complete(const struct cli *cli)
{
	const struct args *args = &cli->args;
	const struct command *c = args->command;

	enum outcome r = check_operands(cli);
	/* `lapse agent --cluster x show a`: --cluster was taken for the bare noun. */
	for (enum option_id id = 0; id < OPTIONS_COUNT && r == OUTCOME_OK; id++)
		if (args_has(args, id) && !option_ranks(c, id, 0) && !option_ranks(c, id, 1))
			r = cli_usage(cli, "unknown option '--%s'", OPTIONS_TABLE[id].spelling);
	for (enum option_id id = 0; id < OPTIONS_COUNT && r == OUTCOME_OK; id++)
		if (options_have(c->needs, id) && !args_has(args, id))
			r = cli_usage(cli, "--%s %s is missing", OPTIONS_TABLE[id].spelling,
				      OPTIONS_TABLE[id].value);
	return r;
}

/* Whether the words from here on belong to the program that the command runs. */
static bool has_program(const struct args *args)
{
	const char *name;
	size_t i = 0;

	if (!args->command || !strstr(args->command->operands, "PROGRAM"))
		return false;
	while (operand_name(args->command->operands, i, &name) != strlen("PROGRAM") ||
	       strncmp(name, "PROGRAM", strlen("PROGRAM")) != 0)
		i++;
	return args->operand_count > i;
}

enum outcome args_parse(struct cli *cli, int argc, char *const *argv)
{
	struct args *args = &cli->args;
	bool only_words = false;
	enum outcome r = OUTCOME_OK;

	assert(!args->command && args->operand_count == 0);
	args->operands = arena_alloc(&cli->arena, (size_t)(argc + 1) * sizeof(char *));
	for (int i = 0; i < argc && r == OUTCOME_OK; i++) {
		only_words |= has_program(args);
		if (only_words || argv[i][0] != '-' || argv[i][1] == '\0')
			r = word_take(cli, argv[i]);
		else if (strcmp(argv[i], "--") == 0)
			only_words = true;
		else
			r = option_take(cli, argc, argv, &i);
	}
	if (r != OUTCOME_OK || args_has(args, OPT_HELP) || args_has(args, OPT_VERSION))
		return r;
	if (args->command)
		return check_complete(cli);
	return cli_usage(cli, "a command is missing");
}
