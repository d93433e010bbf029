/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of --help. */
#include "cli/help.h"

#include <string.h>

#define TEXT_COLUMNS 80
#define NAME_COLUMNS 22 /* of options, commands and variables, before their help */

const struct variable ENVIRONMENT[] = {
	{ "LAPSE_URL", "where the daemon is, when --url is not given" },
	{ "LAPSE_TOKEN",
	  "the token, when --token-file is not given; never an argument, because the "
	  "arguments of a process are visible to everybody on the machine" },
	{ "LAPSE_CONFIG", "the daemon's settings file, for config" },
	{ "NO_COLOR", "when set and not empty, no colours even on a terminal" },
};
const size_t ENVIRONMENT_COUNT = ARRAY_LEN(ENVIRONMENT);

static void put_option(struct buf *out, const struct option *o)
{
	buf_printf(out, "--%s", o->spelling);
	if (o->value)
		buf_printf(out, " %s", o->value);
}

void help_synopsis(struct buf *out, const struct command *c)
{
	buf_printf(out, "lapse %s%s%s", c->name, c->operands[0] ? " " : "", c->operands);
	for (enum option_id id = 0; id < OPTIONS_COUNT; id++) {
		const struct option *o = &OPTIONS_TABLE[id];
		if (!((c->needs | c->takes) >> id & 1))
			continue;
		bool needed = c->needs >> id & 1;
		buf_puts(out, needed ? " " : " [");
		put_option(out, o);
		buf_puts(out, needed ? "" : "]");
		buf_puts(out, o->kind == KIND_TEXTS ? "..." : "");
	}
}

/* Text wrapped at the edge, every line but the first after `indent` spaces. */
static void put_wrapped(struct buf *out, size_t at, size_t indent, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, " ");
		if (at > indent && at + 1 + n > TEXT_COLUMNS) {
			buf_printf(out, "\n%*s", (int)indent, "");
			at = indent;
		} else if (at > indent) {
			buf_putc(out, ' ');
			at++;
		}
		buf_add(out, text, n);
		at += n;
		text += n;
		text += strspn(text, " ");
	}
	buf_putc(out, '\n');
}

static void put_line(struct buf *out, const char *name, const char *help)
{
	const size_t indent = NAME_COLUMNS + 4;

	buf_printf(out, "  %-*s", NAME_COLUMNS, name);
	if (strlen(name) > NAME_COLUMNS)
		buf_printf(out, "\n%*s", (int)indent, "");
	else
		buf_puts(out, "  ");
	put_wrapped(out, indent, indent, help);
}

static void put_options(struct buf *out, const char *title, uint64_t set)
{
	if (!set)
		return;
	buf_printf(out, "\n%s:\n", title);
	for (enum option_id id = 0; id < OPTIONS_COUNT; id++) {
		struct buf CLEANUP(buf_done) name = { 0 };
		if (!(set >> id & 1))
			continue;
		put_option(&name, &OPTIONS_TABLE[id]);
		put_line(out, buf_text(&name), OPTIONS_TABLE[id].help);
	}
}

static void put_outcomes(struct buf *out)
{
	buf_puts(out, "\nExit codes:\n");
#define X(name, number, text) put_line(out, #number, text);
	OUTCOMES(X)
#undef X
}

static void put_commands(struct buf *out, const char *group)
{
	buf_puts(out, "\nCommands:\n");
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (!group || command_in_group(&COMMANDS[i], group))
			put_line(out, COMMANDS[i].name, COMMANDS[i].summary);
}

void help_all(struct buf *out)
{
	buf_puts(out,
		 "usage: lapse COMMAND [ARGUMENT]... [OPTION]...\n\n"
		 "Talks to lapsed, the daemon that gives what agents leave behind a lifetime.\n");
	put_commands(out, NULL);
	put_options(out, "Options of every command", GLOBAL_OPTIONS);
	buf_puts(out, "\nEnvironment:\n");
	for (size_t i = 0; i < ENVIRONMENT_COUNT; i++)
		put_line(out, ENVIRONMENT[i].name, ENVIRONMENT[i].help);
	put_outcomes(out);
	buf_puts(out,
		 "\nDurations are 500ms, 30s, 5m, 2h, 7d; times are 2026-11-15T18:33:00Z.\n"
		 "'lapse COMMAND --help' tells more about a command, lapse(1) about everything.\n");
}

void help_group(struct buf *out, const char *group)
{
	buf_printf(out, "usage: lapse %s COMMAND [ARGUMENT]... [OPTION]...\n", group);
	put_commands(out, group);
	put_options(out, "Options of every command", GLOBAL_OPTIONS);
}

/* The global options that no option of the command hides by having the same spelling. */
static uint64_t visible_globals(const struct command *c)
{
	uint64_t set = GLOBAL_OPTIONS;

	for (enum option_id own = 0; own < OPTIONS_COUNT; own++)
		for (enum option_id id = 0; id < OPTIONS_COUNT; id++)
			if ((c->needs | c->takes) >> own & 1 &&
			    strcmp(OPTIONS_TABLE[own].spelling, OPTIONS_TABLE[id].spelling) == 0)
				set &= ~(UINT64_C(1) << id);
	return set;
}

void help_command(struct buf *out, const struct command *c)
{
	struct buf CLEANUP(buf_done) synopsis = { 0 };

	help_synopsis(&synopsis, c);
	buf_puts(out, "usage: ");
	put_wrapped(out, strlen("usage: "), strlen("usage: "), buf_text(&synopsis));
	buf_putc(out, '\n');
	/* Summaries are parts of a list; alone on a line they are a sentence. */
	size_t start = out->len;
	put_wrapped(out, 0, 0, c->summary);
	out->data[start] = (char)(out->data[start] - ('a' - 'A'));
	out->data[out->len - 1] = '.';
	buf_putc(out, '\n');
	if (c->details) {
		buf_putc(out, '\n');
		put_wrapped(out, 0, 0, c->details);
	}
	if (command_is_group(c->name))
		put_commands(out, c->name);
	put_options(out, "Options", c->needs | c->takes);
	put_options(out, "Options of every command", visible_globals(c));
	put_outcomes(out);
}
