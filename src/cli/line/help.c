/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of --help. */
#include "cli/line/help.h"

#include <assert.h>
#include <string.h>

#define TEXT_COLUMNS 80  /* of a wide terminal, and where there is none */
#define LEAST_COLUMNS 40 /* a narrower one wraps by itself */
#define NAME_COLUMNS 23  /* of options, commands and variables, before their help */

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
		bool needed = options_have(c->needs, id);
		if (!needed && !options_have(c->takes, id))
			continue;
		buf_puts(out, needed ? " " : " [");
		put_option(out, o);
		buf_puts(out, needed ? "" : "]");
		buf_puts(out, o->kind == KIND_TEXTS ? "..." : "");
	}
}

/* Where help goes, and how wide it may be. */
struct help {
	struct buf *out;
	size_t columns;
};

/* Text wrapped at the edge, every line but the first after `indent` spaces. */
static void put_wrapped(struct help *h, size_t at, size_t indent, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, " ");
		if (at > indent && at + 1 + n > h->columns) {
			buf_printf(h->out, "\n%*s", (int)indent, "");
			at = indent;
		} else if (at > indent) {
			buf_putc(h->out, ' ');
			at++;
		}
		buf_add(h->out, text, n);
		at += n;
		text += n;
		text += strspn(text, " ");
	}
	buf_putc(h->out, '\n');
}

static void help_put_line(struct help *h, const char *name, const char *help)
{
	const size_t indent = NAME_COLUMNS + 4;

	assert(help && help[0]); /* every row of every table has one */
	buf_printf(h->out, "  %-*s", NAME_COLUMNS, name);
	if (strlen(name) > NAME_COLUMNS)
		buf_printf(h->out, "\n%*s", (int)indent, "");
	else
		buf_puts(h->out, "  ");
	put_wrapped(h, indent, indent, help);
}

/* A set of options, one bit each as a list of flags. */
struct option_set {
	bool has[OPTIONS_COUNT];
};

static void option_set_add(struct option_set *set, const uint8_t *list)
{
	for (; list && *list != OPTIONS_COUNT; list++)
		set->has[*list] = true;
}

static void put_options(struct help *h, const char *title, const struct option_set *set)
{
	bool any = false;

	for (enum option_id id = 0; id < OPTIONS_COUNT; id++) {
		struct buf CLEANUP(buf_done) name = { 0 };
		if (!set->has[id])
			continue;
		if (!any)
			buf_printf(h->out, "\n%s:\n", title);
		any = true;
		put_option(&name, &OPTIONS_TABLE[id]);
		help_put_line(h, buf_text(&name), OPTIONS_TABLE[id].help);
	}
}

static void put_outcomes(struct help *h)
{
	buf_puts(h->out, "\nExit codes:\n");
#define X(name, number, text) help_put_line(h, #number, text);
	OUTCOMES(X)
#undef X
}

/* A command with its short form and its summary. */
static void put_command_line(struct help *h, const struct command *c)
{
	struct buf CLEANUP(buf_done) name = { 0 };
	const char *shorter = command_short(c);

	buf_puts(&name, c->name);
	if (shorter)
		buf_printf(&name, ", %s", shorter);
	help_put_line(h, buf_text(&name), c->summary);
}

static void put_verbs(struct help *h, const struct command *noun)
{
	buf_puts(h->out, "\nCommands:\n");
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (command_of_noun(&COMMANDS[i], noun))
			put_command_line(h, &COMMANDS[i]);
}

static void put_commands(struct help *h)
{
	const struct command *before = NULL;

	for (size_t i = 0; i < COMMANDS_COUNT; i++) {
		const struct command *c = &COMMANDS[i];
		bool same = before && command_of_noun(c, before);
		if (before && !same && (command_is_noun(c) || command_is_noun(before)))
			buf_putc(h->out, '\n');
		put_command_line(h, c);
		before = c;
	}
}

static void put_globals(struct help *h, const struct command *c)
{
	struct option_set globals = { 0 };

	option_set_add(&globals, GLOBAL_OPTIONS);
	/* An option of the command hides a global one with the same spelling. */
	for (enum option_id own = 0; c && own < OPTIONS_COUNT; own++)
		for (enum option_id id = 0; id < OPTIONS_COUNT; id++)
			if ((options_have(c->needs, own) || options_have(c->takes, own)) &&
			    strcmp(OPTIONS_TABLE[own].spelling, OPTIONS_TABLE[id].spelling) == 0)
				globals.has[id] = false;
	put_options(h, "Options of every command", &globals);
}

static struct help help_into(struct buf *out, int columns)
{
	bool fits = columns >= LEAST_COLUMNS && columns < TEXT_COLUMNS;

	return (struct help){ out, fits ? (size_t)columns : TEXT_COLUMNS };
}

void help_all(struct buf *out, int columns)
{
	struct help into = help_into(out, columns), *h = &into;

	buf_puts(h->out, "usage: lapse NOUN [VERB] [ARGUMENT]... [OPTION]...\n\n");
	put_wrapped(h, 0, 0,
		    "Talks to lapsed, the daemon that gives what agents leave behind a lifetime. A "
		    "noun "
		    "without a verb lists.");
	buf_puts(h->out, "\nCommands:\n");
	put_commands(h);
	put_globals(h, NULL);
	buf_puts(h->out, "\nEnvironment:\n");
	for (size_t i = 0; i < ENVIRONMENT_COUNT; i++)
		help_put_line(h, ENVIRONMENT[i].name, ENVIRONMENT[i].help);
	put_outcomes(h);
	buf_putc(h->out, '\n');
	put_wrapped(h, 0, 0,
		    "Durations are 500ms, 30s, 1h30m, 7d, 2w; times are 2026-11-15T18:33:00Z. "
		    "'lapse help NOUN' "
		    "tells more about a noun or a command, lapse(1) about everything.");
}

static void put_synopsis(struct help *h, const struct command *c)
{
	struct buf CLEANUP(buf_done) synopsis = { 0 };
	const char *shorter = command_short(c);

	help_synopsis(&synopsis, c);
	buf_puts(h->out, "usage: ");
	put_wrapped(h, strlen("usage: "), strlen("usage: "), buf_text(&synopsis));
	if (shorter)
		buf_printf(h->out, "also:  lapse %s\n", shorter);
	buf_putc(h->out, '\n');
}

void help_command(struct buf *out, int columns, const struct command *c)
{
	struct help into = help_into(out, columns), *h = &into;
	struct option_set own = { 0 };

	put_synopsis(h, c);
	/* Summaries are parts of a list; alone on a line they are a sentence. */
	size_t start = h->out->len;
	put_wrapped(h, 0, 0, c->summary);
	assert(h->out->data[start] >= 'a' && h->out->data[start] <= 'z');
	h->out->data[start] = (char)(h->out->data[start] - ('a' - 'A'));
	h->out->data[h->out->len - 1] = '.';
	buf_putc(h->out, '\n');
	if (c->details) {
		buf_putc(h->out, '\n');
		put_wrapped(h, 0, 0, c->details);
	}
	if (command_is_noun(c) && !strchr(c->name, ' '))
		put_verbs(h, c);
	option_set_add(&own, c->needs);
	option_set_add(&own, c->takes);
	put_options(h, "Options", &own);
	put_globals(h, c);
	put_outcomes(h);
}
