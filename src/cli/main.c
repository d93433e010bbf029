/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `lapse`: prepares the run, lets args.c read the command line and the command's
 * row do its work, and turns how it ended into the exit code.
 */
#include <assert.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/line/commands.h"
#include "cli/line/help.h"
#include "cli/show/show.h"

#define COLUMNS_LEAST 20 /* a terminal narrower than that shows broken lines */

static void put_safe(struct buf *out, const char *format, va_list ap)
{
	char *CLEANUP(mem_freep) text = NULL;

	if (vasprintf(&text, format, ap) < 0) {
		text = NULL;
		return;
	}
	text_escape(out, text, strlen(text));
}

static void cli_say(const struct cli *cli, const char *format, va_list ap)
{
	struct buf CLEANUP(buf_done) safe = { 0 };

	put_safe(cli->complaint ? cli->complaint : &safe, format, ap);
	if (!cli->complaint)
		fprintf(stderr, "lapse: %s\n", buf_text(&safe));
}

enum outcome cli_fail(const struct cli *cli, enum outcome how, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	cli_say(cli, format, ap);
	va_end(ap);
	return how;
}

bool cli_confirm(const struct cli *cli, const char *format, ...)
{
	struct buf CLEANUP(buf_done) question = { 0 };
	char answer[8];
	va_list ap;

	if (args_has(&cli->args, OPT_YES) || !isatty(STDIN_FILENO))
		return true;
	va_start(ap, format);
	put_safe(&question, format, ap);
	va_end(ap);
	fprintf(stderr, "%s [y/N] ", buf_text(&question));
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

enum outcome cli_usage(const struct cli *cli, const char *format, ...)
{
	struct buf CLEANUP(buf_done) synopsis = { 0 };
	va_list ap;

	va_start(ap, format);
	cli_say(cli, format, ap);
	va_end(ap);
	if (cli->complaint)
		return OUTCOME_USAGE;
	if (cli->args.command) {
		help_synopsis(&synopsis, cli->args.command);
		fprintf(stderr, "usage: %s\n", buf_text(&synopsis));
	} else {
		fputs("'lapse help' lists the commands.\n", stderr);
	}
	return OUTCOME_USAGE;
}

/* Nothing a command does needs to be undone (top and the bar of a transfer, which change the
 * terminal, have their own; what was fetched stays a part), and a blocked request must not delay
 * the end. */
static void cli_interrupt(int number)
{
	(void)number;
	_exit(OUTCOME_INTERRUPTED);
}

static bool wants_colour(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && no[0]) && term && strcmp(term, "dumb") != 0;
}

static void cli_init(struct cli *cli)
{
	struct winsize size;

	arena_init(&cli->arena);
	cli->clock = &CLOCK_SYSTEM;
	cli->now = clock_wall(cli->clock);
	cli->colour = wants_colour();
	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
		cli->columns = size.ws_col > 0 && size.ws_col < COLUMNS_LEAST ? COLUMNS_LEAST
									      : size.ws_col;
}

static void cli_done(struct cli *cli)
{
	client_done(&cli->client);
	arena_done(&cli->arena);
}

static enum outcome cli_run(struct cli *cli, int argc, char *const *argv)
{
	enum outcome r = args_parse(cli, argc, argv);

	if (r != OUTCOME_OK)
		return r;
	if (args_has(&cli->args, OPT_HELP))
		return cmd_help(cli);
	if (args_has(&cli->args, OPT_VERSION))
		return cmd_version(cli);
	assert(cli->args.command && cli->args.command->run);
	assert(cli->args.operand_count >= (size_t)cli->args.command->least);
	return cli->args.command->run(cli);
}

int main(int argc, char **argv)
{
	struct cli cli = { 0 };

	/* Widths of characters come from the locale; the output is UTF-8 in any. */
	setlocale(LC_CTYPE, "C.UTF-8");
	signal(SIGINT, cli_interrupt);
	signal(SIGPIPE, SIG_IGN);
	cli_init(&cli);
	enum outcome r = cli_run(&cli, argc - 1, argv + 1);
	cli_done(&cli);
	if ((fflush(stdout) != 0 || ferror(stdout)) && !show_is_hung_up())
		r = cli_fail(&cli, OUTCOME_REFUSED, "cannot write to standard output");
	return r == OUTCOME_OK ? cli.exit_code : (int)r;
}
