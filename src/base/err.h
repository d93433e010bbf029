/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors. Every function that can fail returns 0 or one of these, negative.
 *
 * Codes of SQLite, libcurl, errno and the like are translated where they appear and never travel
 * further up. `struct problem` carries what a person needs beside the code: the field that is wrong
 * and a sentence that says how to mend it.
 *
 * To add an error: 1. a row below; 2. the compiler then points at http_status_of() and
 * http_code_of() in http/reply.c, which have no default.
 */
#ifndef LAPSE_BASE_ERR_H
#define LAPSE_BASE_ERR_H

#define LAPSE_ERRORS(X)                                                                            \
	X(EINVAL, 1, "invalid request")                                                            \
	X(EUNAUTHORIZED, 2, "a valid token is needed")                                             \
	X(EFORBIDDEN, 3, "not allowed")                                                            \
	X(ENOTFOUND, 4, "not found")                                                               \
	X(EMETHOD, 5, "method not allowed")                                                        \
	X(ETIMEOUT, 6, "timed out")                                                                \
	X(ECONFLICT, 7, "conflict")                                                                \
	X(EEXPIRED, 8, "expired")                                                                  \
	X(ETOOLARGE, 9, "too large")                                                               \
	X(EMEDIATYPE, 10, "unsupported media type")                                                \
	X(EUNPROCESSABLE, 11, "cannot be processed")                                               \
	X(ELIMIT, 12, "limit reached")                                                             \
	X(EHEADERS, 13, "headers too large")                                                       \
	X(EINTERNAL, 14, "internal error")                                                         \
	X(EUNAVAILABLE, 15, "unavailable")                                                         \
	X(EBUSY, 16, "in use by another process")                                                  \
	X(ERETRY, 17, "the store is busy, try again")                                              \
	X(EFULL, 18, "the disk is full")                                                           \
	X(EIO, 19, "input/output error")                                                           \
	X(ECORRUPT, 20, "the store is damaged")                                                    \
	X(EVERSION, 21, "the store belongs to a newer version")                                    \
	X(EPRECONDITION, 23, "the resource has changed")                                           \
	X(ESYNC, 24, "the disk lost what it was told to sync")                                     \
	X(EUNKNOWN, 22, "the outcome of the commit is unknown")

enum lapse_error {
	LAPSE_OK = 0,
#define X(name, number, text) LAPSE_##name = -(number),
	LAPSE_ERRORS(X)
#undef X
};

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

/* The message of `p`, or the error's own text where nobody wrote one. */
const char *problem_text(const struct problem *p, int err);

#endif
