/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bar on standard error while a long transfer runs:
 *
 *	report.pdf  [==========>         ]  54%  6.2 MiB of 11.5 MiB  3.1 MiB/s  ETA 1s
 *
 *	struct progress p;
 *	progress_begin(&p, cli, "report.pdf", done, size);
 *	progress_at(&p, done); // as often as one likes
 *	progress_end(&p);      // before anything else is printed
 *
 * Nothing is drawn where standard error is no terminal, nor for what is done in a moment. Until
 * progress_end() Ctrl-C, SIGTERM and SIGHUP move the cursor below the bar before they end the
 *process. There is one bar at a time, because there is one terminal and signals have no argument.
 */
#ifndef LAPSE_CLI_PROGRESS_H
#define LAPSE_CLI_PROGRESS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"

struct cli;

/* Bytes that were done at a time. */
struct mark {
	lapse_us at;
	int64_t done;
};

struct progress {
	const struct clock *clock;
	bool is_shown;    /* standard error is a terminal that can do it */
	bool is_drawn;    /* the bar is on the screen */
	char *label;      /* owned; escaped */
	int64_t size;     /* -1: not known */
	bool is_rows;     /* it counts rows, not bytes */
	struct mark now;  /* the latest */
	struct mark from; /* the rate is that since `from`, ... */
	struct mark next; /* ... which becomes `next` from time to time: a few seconds, not all */
	lapse_us drawn;   /* when */
	lapse_us begun;
};

/* `done` bytes of `size` (-1: not known) are there already. */
void progress_begin(struct progress *p, const struct cli *cli, const char *label, int64_t done,
		    int64_t size);
/* The same for rows. */
void progress_begin_rows(struct progress *p, const struct cli *cli, const char *label, int64_t done,
			 int64_t rows);
void progress_at(struct progress *p, int64_t done);
void progress_end(struct progress *p);

/* Takes note of a number; the pure half of progress_at(). */
void progress_note(struct progress *p, lapse_us at, int64_t done);

/* The bar as text of at most `columns`. */
void progress_line(const struct progress *p, size_t columns, struct buf *out);

#endif
