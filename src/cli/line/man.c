/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source of lapse(1), for man(7) macros: `lapse help --man > docs/man/lapse.1`. A test compares
 * the two, so the page cannot fall behind the tables.
 */
#include <assert.h>
#include <string.h>

#include "cli/line/help.h"

/* clang-format off */
static const char *const DESCRIPTION[] = {
	"lapse talks to lapsed, the daemon that gives everything an agent fleet leaves behind a "
	"lifetime: messages, agents, mailboxes, staged files, and lapse's own tables. It sends one HTTP "
	"request, or a few, and prints the answer as a table for people or, with --json, as it came for "
	"programs.",
	"Control characters and the like in what the daemon sends are shown as \\n, \\x1b or \\u202e, so "
	"a message cannot take over the terminal of the one who looks at it. With --json nothing is "
	"changed. Colours are used only on a terminal. Lists are fetched page by page until the end, "
	"or until --limit.",
	"A DURATION is a whole number and a unit: 500ms, 30s, 5m, 2h, 7d. A TIME is ISO 8601 with "
	"seconds and a zone, 2026-11-15T18:33:00Z or 2026-11-15T18:33:00+01:00, or a DURATION: that "
	"long ago for --before, that long from now for --until.",
	"Files of any size are sent and fetched without being held in memory. While that takes long, and "
	"standard error is a terminal, a bar shows how far it is; Ctrl-C ends it at any time. What was "
	"fetched by then stays in FILE.part, and a fetch of the same goes on from there.",
	"Requests that create something carry a random Idempotency-Key and are sent once more when the "
	"connection breaks before the answer: what they create exists once. The exception is token "
	"create: if its answer is lost, revoke what token ls shows and try again. Proxies of the "
	"environment are not used.",
};

static const struct {
	const char *what, *command;
} EXAMPLES[] = {
	{ "Start a daemon and look at it:", "lapsed --data-dir /tmp/lapse &\n"
	  "lapse status" },
	{ "Send a message, a file, and one message to two agents:",
	  "lapse send planner \"build is green\" --from ci\n"
	  "lapse send planner - --from ci --type log < build.log\n"
	  "lapse send planner \"pause\" --from ops --to builder" },
	{ "Wait for work, do it, and let it expire:",
	  "lapse inbox planner --unread --wait 5m\n"
	  "lapse read planner 0634a1b2c3d4e5f6" },
	{ "Mark everything older than a week read:", "lapse read planner --before 7d" },
	{ "Be an agent while the work runs, however long it takes:",
	  "while lapse heartbeat builder --cluster west --capability gpu; do sleep 30; done &\n"
	  "make work\n"
	  "kill %1" },
	{ "Who can do it?", "lapse agents --cluster west --capability gpu" },
	{ "Watch the fleet, and keep a line of it for a script:",
	  "lapse top\n"
	  "lapse top --once --json | jq .agents_live" },
	{ "Act on evictions as they happen, also across restarts:",
	  "lapse events --follow --json | jq --unbuffered 'select(.event == \"agent.evicted\")'" },
	{ "A mailbox for two hours, what came, and an answer:",
	  "lapse mailbox create --username trial --ttl 2h\n"
	  "lapse mailbox messages mbx_0634a1b2c3d4e5f6\n"
	  "lapse mailbox send mbx_0634a1b2c3d4e5f6 --to a@example.org --subject Re: --body \"Got it.\"" },
	{ "Stage the files of a run for a day, and get one back:",
	  "lapse stage build/*.tar --ttl 1d\n"
	  "lapse fetch 9f86d081 --output build.tar" },
	{ "A dump into the daemon, and out of it:",
	  "pg_dump db | lapse stage - --name db.sql --persist\n"
	  "lapse fetch 9f86d081 | psql db" },
	{ "What could not be deleted, and another try:",
	  "lapse dead-letters ls\n"
	  "lapse dead-letters retry 0634a1b2c3d4e5f6" },
	{ "What would the next sweep remove?", "lapse sweep messages --dry-run" },
	{ "Keep a message as evidence:",
	  "lapse hold place messages 0634a1b2c3d4e5f6 --reason \"incident 42\" --until 30d" },
	{ "Make an admin token, keep it in a file, use it:",
	  "(umask 077; lapse token create --owner ops --admin > ~/.lapse-token)\n"
	  "lapse --token-file ~/.lapse-token status" },
	{ "Over the Unix socket:", "lapse --url unix:/run/lapse/lapse.sock matrix" },
	{ "Try again while the daemon is away or busy:",
	  "until lapse status > /dev/null; do sleep 1; done" },
	{ "Back up, and go back:",
	  "lapse backup\n"
	  "kill $(pidof lapsed)\n"
	  "lapse restore backup.db --data-dir /var/lib/lapse --yes" },
};
/* clang-format on */

/* Escapes for roff, and sets words in capitals as arguments and --words as options. */
static void put_roff(struct buf *out, const char *text, bool markup)
{
	while (*text) {
		size_t caps = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
		size_t word = strspn(text, "-abcdefghijklmnopqrstuvwxyz");
		bool option = strncmp(text, "--", 2) == 0 && word > 2;
		size_t n = option ? word : caps > 1 ? caps : 1;

		if (markup && (option || caps > 1))
			buf_puts(out, option ? "\\fB" : "\\fI");
		for (size_t i = 0; i < n; i++) {
			if (text[i] == '-' || text[i] == '\\')
				buf_puts(out, text[i] == '-' ? "\\-" : "\\e");
			else
				buf_putc(out, text[i]);
		}
		if (markup && (option || caps > 1))
			buf_puts(out, "\\fR");
		text += n;
	}
}

/* Text on lines of its own, with nothing at the start of a line that roff would obey. */
static void man_paragraph(struct buf *out, const char *text, bool markup)
{
	if (*text == '.' || *text == '\'')
		buf_puts(out, "\\&");
	put_roff(out, text, markup);
	buf_putc(out, '\n');
}

static void man_options(struct buf *out, const uint8_t *list)
{
	for (; list && *list != OPTIONS_COUNT; list++) {
		const struct option *o = &OPTIONS_TABLE[*list];
		buf_puts(out, ".TP\n\\fB\\-\\-");
		put_roff(out, o->spelling, false);
		buf_puts(out, "\\fR");
		if (o->value)
			buf_printf(out, " \\fI%s\\fR", o->value);
		buf_putc(out, '\n');
		man_paragraph(out, o->help, true);
	}
}

static void man_synopsis(struct buf *out, const struct command *c)
{
	struct buf CLEANUP(buf_done) line = { 0 };

	help_synopsis(&line, c);
	buf_printf(out, "\\fBlapse %s\\fR", c->name);
	put_roff(out, buf_text(&line) + strlen("lapse ") + strlen(c->name), true);
	buf_putc(out, '\n');
}

static void man_command(struct buf *out, const struct command *c)
{
	buf_puts(out, ".SS ");
	man_synopsis(out, c);
	assert(c->summary[0] >= 'a' && c->summary[0] <= 'z');
	/* The summary as a sentence. */
	buf_putc(out, (char)(c->summary[0] - ('a' - 'A')));
	put_roff(out, c->summary + 1, true);
	buf_puts(out, ".\n");
	if (command_short(c))
		buf_printf(out, "The short form is \\fBlapse %s\\fR.\n", command_short(c));
	if (c->details)
		man_paragraph(out, c->details, true);
	man_options(out, c->needs);
	man_options(out, c->takes);
}

static void man_examples(struct buf *out)
{
	buf_puts(out, ".SH EXAMPLES\n");
	for (size_t i = 0; i < ARRAY_LEN(EXAMPLES); i++) {
		if (i > 0)
			buf_puts(out, ".PP\n");
		man_paragraph(out, EXAMPLES[i].what, false);
		buf_puts(out, ".RS 4\n.EX\n");
		man_paragraph(out, EXAMPLES[i].command, false);
		buf_puts(out, ".EE\n.RE\n");
	}
}

static void man_tagged(struct buf *out, const char *tag, const char *text)
{
	buf_printf(out, ".TP\n\\fB%s\\fR\n", tag);
	man_paragraph(out, text, true);
}

static void man_opening(struct buf *out)
{
	buf_puts(out, ".\\\" SPDX-License-Identifier: Apache-2.0\n"
		      ".\\\" Made by: lapse help --man\n"
		      ".TH LAPSE 1 \"\" \"lapse " LAPSE_VERSION "\" \"User Commands\"\n"
		      ".SH NAME\nlapse \\- talk to lapsed, the daemon of lifetimes\n"
		      ".SH SYNOPSIS\n.nf\n");
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		man_synopsis(out, &COMMANDS[i]);
	buf_puts(out, ".fi\n.SH DESCRIPTION\n");
	for (size_t i = 0; i < ARRAY_LEN(DESCRIPTION); i++) {
		buf_puts(out, i ? ".PP\n" : "");
		man_paragraph(out, DESCRIPTION[i], true);
	}
}

void man_page(struct buf *out)
{
	man_opening(out);
	buf_puts(out, ".SH COMMANDS\n");
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		man_command(out, &COMMANDS[i]);
	buf_puts(out, ".SH OPTIONS\nThese work with every command, before it or after it.\n");
	man_options(out, GLOBAL_OPTIONS);
	buf_puts(out, ".SH ENVIRONMENT\n");
	for (size_t i = 0; i < ENVIRONMENT_COUNT; i++)
		man_tagged(out, ENVIRONMENT[i].name, ENVIRONMENT[i].help);
	buf_puts(out, ".SH \"EXIT STATUS\"\n");
#define X(name, number, text) man_tagged(out, #number, text);
	OUTCOMES(X)
#undef X
	man_examples(out);
	buf_puts(out, ".SH \"SEE ALSO\"\n.BR lapsed (8)\n");
}
