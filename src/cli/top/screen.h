/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal as a screen that is drawn again in place: the alternate screen, keys one by one, and
 * the signals that belong to it. All escape sequences but colours are here.
 *
 *	if (screen_open()) {
 *		do
 *			screen_draw(text);
 *		while (screen_wait(clock, until) != SCREEN_QUIT);
 *		screen_close();
 *	}
 *
 * While it is open, Ctrl-C, SIGTERM, SIGHUP, SIGQUIT and SIGABRT put the terminal back before they
 * end the process; Ctrl-Z does so before it stops it. There is one screen, because there is one
 * terminal and signals have no argument.
 */
#ifndef LAPSE_CLI_SCREEN_H
#define LAPSE_CLI_SCREEN_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"

enum screen_event {
	SCREEN_TIME,   /* `until` is over */
	SCREEN_SIZED,  /* the terminal has another size, or everything must be drawn anew */
	SCREEN_QUIT,   /* the key q, or the terminal is gone */
	SCREEN_PAUSE,  /* the space bar, or p */
	SCREEN_FASTER, /* + */
	SCREEN_SLOWER, /* - */
};

/* False, and nothing changed, when standard output is no terminal that can do it. */
bool screen_open(void);
void screen_close(void);

/* 80 by 24 where the terminal does not say. */
void screen_size(int *ret_columns, int *ret_lines);

/* Draws lines of text; what does not fit is cut, lines below the edge are counted instead. */
bool screen_draw(const struct buf *text);

/* Waits for a key, another size, or the monotonic time `until`. */
enum screen_event screen_wait(const struct clock *clock, lapse_us until);

#endif
