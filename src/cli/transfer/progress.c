/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/transfer/progress.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/show/show.h"

#define PATIENCE_US 300000 /* what is done before needs no bar */
#define REDRAW_US 100000
#define WINDOW_US 3000000 /* the rate is that of one to two windows */
#define USUAL_COLUMNS 80
#define BAR_MIN 10 /* columns with the brackets; a shorter one says nothing */
#define BAR_MAX 42
#define LABEL_MAX 30
#define CLEAR "\r\033[K"

/* Signals that end the process, and what they did before the bar. */
static const int ENDINGS[] = { SIGINT, SIGTERM, SIGHUP };
static struct sigaction before[ARRAY_LEN(ENDINGS)];

static void progress_signal(int number)
{
	ssize_t ignored = write(STDERR_FILENO, "\n", 1);

	(void)ignored;
	if (number == SIGINT)
		_exit(OUTCOME_INTERRUPTED);
	signal(number, SIG_DFL);
	raise(number);
}

static void catch_endings(void)
{
	struct sigaction action = { .sa_handler = progress_signal };

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < ARRAY_LEN(ENDINGS); i++)
		sigaction(ENDINGS[i], &action, &before[i]);
}

static void release_endings(void)
{
	for (size_t i = 0; i < ARRAY_LEN(ENDINGS); i++)
		sigaction(ENDINGS[i], &before[i], NULL);
}

static bool can_draw(void)
{
	const char *term = getenv("TERM");

	return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void progress_begin(struct progress *p, const struct cli *cli, const char *label, int64_t done,
		    int64_t size)
{
	struct buf escaped = { 0 };
	struct mark start = { .at = clock_mono(cli->clock), .done = done };

	text_escape(&escaped, label, strlen(label));
	*p = (struct progress){ .clock = cli->clock,
				.is_shown = can_draw(),
				.label = buf_take(&escaped),
				.size = size,
				.now = start,
				.from = start,
				.next = start,
				.begun = start.at };
}

void progress_begin_rows(struct progress *p, const struct cli *cli, const char *label, int64_t done,
			 int64_t rows)
{
	progress_begin(p, cli, label, done, rows);
	p->is_rows = true;
}

void progress_note(struct progress *p, lapse_us at, int64_t done)
{
	struct mark now = { .at = at, .done = done };

	/* A transfer that begins again has no rate yet. */
	if (done < p->now.done)
		p->from = p->next = now;
	if (at - p->next.at >= WINDOW_US) {
		p->from = p->next;
		p->next = now;
	}
	p->now = now;
}

/* Bytes, or rows, a second. */
static double rate_of(const struct progress *p)
{
	double seconds = (double)(p->now.at - p->from.at) / 1e6;

	return seconds > 0 ? (double)(p->now.done - p->from.done) / seconds : 0;
}

static void put_amount(const struct progress *p, int64_t n, struct buf *out)
{
	if (p->is_rows)
		text_count(out, n);
	else
		text_bytes(out, n);
}

/* "54%  6.2 MiB of 11.5 MiB  3.1 MiB/s  ETA 1s", or what of it can be known. */
static void progress_put_facts(const struct progress *p, struct buf *out)
{
	double rate = rate_of(p);
	int64_t left = p->size - p->now.done;

	if (p->size > 0)
		buf_printf(out, "%3d%%  ", (int)((double)p->now.done * 100 / (double)p->size));
	put_amount(p, p->now.done, out);
	if (p->size > 0) {
		buf_puts(out, " of ");
		put_amount(p, p->size, out);
	}
	buf_puts(out, p->is_rows ? " rows  " : "  ");
	put_amount(p, (int64_t)rate, out);
	buf_puts(out, "/s");
	if (p->size < 0)
		return;
	buf_puts(out, "  ETA ");
	if (left > 0 && rate < 1)
		buf_puts(out, "-");
	else
		text_span(out, left > 0 ? (int64_t)((double)left / rate + 0.999) * 1000 : 0);
}

/* "[=====>    ]" */
static void put_bar(const struct progress *p, size_t columns, struct buf *out)
{
	assert(columns >= BAR_MIN && p->size > 0);
	size_t inner = columns - 2;
	size_t full = (size_t)((double)inner * (double)p->now.done / (double)p->size);

	buf_putc(out, '[');
	for (size_t i = 0; i < inner; i++)
		buf_puts(out, i < full ? "=" : i == full ? ">" : " ");
	buf_puts(out, "]  ");
}

void progress_line(const struct progress *p, size_t columns, struct buf *out)
{
	struct buf CLEANUP(buf_done) facts = { 0 };
	struct buf CLEANUP(buf_done) line = { 0 };

	progress_put_facts(p, &facts);
	size_t own = text_width(buf_text(&facts));
	size_t room = columns > own + 2 ? columns - own - 2 : 0;
	size_t label = room < LABEL_MAX ? room : LABEL_MAX;
	if (text_width(p->label) <= label)
		label = text_width(p->label);
	if (label > 0) {
		buf_add(&line, p->label, text_fit(p->label, label));
		buf_puts(&line, "  ");
	}
	/* What the label, the facts and their gaps leave. */
	size_t bar = room > label + 2 ? room - label - 2 : 0;
	if (p->size > 0 && bar >= BAR_MIN)
		put_bar(p, bar < BAR_MAX ? bar : BAR_MAX, &line);
	buf_puts(&line, buf_text(&facts));
	text_clip(out, buf_text(&line), line.len, columns);
}

static size_t columns_now(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
		return USUAL_COLUMNS;
	return size.ws_col;
}

/* One write, so that a signal finds all of it or nothing. The last column stays free: some
 * terminals wrap there. */
static void progress_draw(struct progress *p)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	assert(p->is_shown && p->label);
	buf_putc(&out, '\r');
	progress_line(p, columns_now() - 1, &out);
	buf_puts(&out, "\033[K");
	if (!p->is_drawn)
		catch_endings();
	p->is_drawn = true;
	p->drawn = p->now.at;
	ssize_t ignored = write(STDERR_FILENO, out.data, out.len);
	(void)ignored;
}

void progress_at(struct progress *p, int64_t done)
{
	progress_note(p, clock_mono(p->clock), done);
	if (p->is_shown && p->now.at - p->begun >= PATIENCE_US &&
	    (!p->is_drawn || p->now.at - p->drawn >= REDRAW_US))
		progress_draw(p);
}

void progress_end(struct progress *p)
{
	if (p->is_drawn) {
		ssize_t ignored = write(STDERR_FILENO, CLEAR, strlen(CLEAR));
		(void)ignored;
		release_endings();
	}
	free(p->label);
	*p = (struct progress){ 0 };
}
