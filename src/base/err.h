/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. Every function that can fail returns 0 or one of these, negative.
 *
 * Codes of SQLite, libcurl, errno and the like are translated where they appear and never travel
 * further up. `struct problem` carries what a person needs beside the code: the field that is wrong
 * and a sentence that says how to mend it.
 *
 * The list itself is part of the library's contract: LAPSE_ERRORS in include/lapse.h.
 */
#ifndef LAPSE_BASE_ERR_H
#define LAPSE_BASE_ERR_H

#include "lapse.h" /* LAPSE_ERRORS, enum lapse_error */

struct problem {
	char field[64];    /* empty when no single field is to blame */
	char message[256]; /* one sentence for a person; empty = the error's own text */
};

/* The name ("EINVAL") and text of an error; "unknown error" for numbers not in the list. */
const char *err_name(int err);
const char *err_text(int err);

/* Fills `p` and returns `err`, so that a check is one line: return problem_set(p, LAPSE_E…, …). */
int problem_set(struct problem *p, int err, const char *field, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The message of `p`, or the error's own text where it has none. */
const char *problem_text(const struct problem *p, int err);

#endif
