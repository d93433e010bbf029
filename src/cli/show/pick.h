/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person would copy out of a mail: the code they are asked for, or the link they are to
 * follow. Guesses, made from texts that a stranger wrote: what they give is text, never followed
 * and never run. Pure functions.
 */
#ifndef LAPSE_CLI_PICK_H
#define LAPSE_CLI_PICK_H

#include <stdbool.h>

#include "base/buf.h"

/* A mail; NULL = it has no such part. */
struct pick_mail {
	const char *subject, *text, *html;
};

/* The code, without blanks inside: 4 to 10 digits, or capitals and digits, that stand near a word
 * like "code", or alone on their line. False = there is none. */
bool pick_code(const struct pick_mail *m, struct buf *out);

/* The first http or https link; one that looks like a confirmation before any other. */
bool pick_link(const struct pick_mail *m, struct buf *out);

#endif
