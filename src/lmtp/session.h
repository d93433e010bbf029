/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation by LMTP (RFC 2033), as bytes in and bytes out: no socket, no store, no clock.
 *
 *	START → LHLO → READY → MAIL → DATA → (the last line) → BUSY
 *	BUSY → lmtp_answer() for every recipient, then lmtp_continue() → READY
 *	any → QUIT, or too many errors → CLOSING
 *
 * Only CRLF ends a line, and only CRLF . CRLF the mail, so that a server between the sender and us
 * cannot see another end than we do. Everything a client can grow has a limit: the mail, its lines,
 * its recipients, a command's line, and the errors of one connection.
 */
#ifndef LAPSE_LMTP_SESSION_H
#define LAPSE_LMTP_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define LMTP_RECIPIENTS_MAX 50           /* of one mail; Postfix sends the others next */
#define LMTP_COMMAND_MAX 2048            /* bytes of a command's line */
#define LMTP_LINE_MAX ((size_t)64 << 10) /* bytes of a mail's line; RFC 5322 says 998 */
#define LMTP_ERRORS_MAX 20
#define LMTP_ADDRESS_MAX 320

enum lmtp_state { LMTP_START, LMTP_READY, LMTP_MAIL, LMTP_DATA, LMTP_BUSY, LMTP_CLOSING };

/* Where in a mail's line the next byte is. */
enum lmtp_place { AT_START, IN_LINE, AFTER_CR, AFTER_DOT, AFTER_DOT_CR };

struct lmtp_session;

/* What the door knows. */
struct lmtp_host {
	/* Whether the address receives: 250, or the code of a refusal with its text. */
	int (*recipient)(struct lmtp_session *s, const char *address, const char **ret_why);

	/* Whether there is memory for so many more bytes of the mail; the door takes all of it
	 * back itself. */
	bool (*reserve)(struct lmtp_session *s, int64_t bytes);
	int64_t mail_max_bytes;
};

#define LMTP_MAGIC 0x4c4d5450u

struct lmtp_session {
	uint32_t magic;
	enum lmtp_state state;
	const struct lmtp_host *host;
	struct buf out;     /* replies to be sent; the door empties it */
	struct buf command; /* a line that has not ended yet */
	int errors;

	/* The mail. */
	char sender[LMTP_ADDRESS_MAX + 1];
	char recipients[LMTP_RECIPIENTS_MAX][LMTP_ADDRESS_MAX + 1];
	size_t recipients_count;
	int64_t size; /* as announced, or the most it may have */
	int64_t room; /* bytes reserved for it so far */
	struct buf data;
	enum lmtp_place place;
	size_t line_bytes;
	const char *too_much; /* why the mail is refused as a whole; NULL = it is not */
	int too_much_code;
};

/* Says hello into `out`. The session's memory is the caller's, zeroed. */
void lmtp_start(struct lmtp_session *s, const struct lmtp_host *host);
void lmtp_done(struct lmtp_session *s);

/* Takes bytes until the mail is complete (BUSY) or the talk is over (CLOSING). Returns how many. */
size_t lmtp_feed(struct lmtp_session *s, const char *bytes, size_t n);

/* The reply for the next recipient, in their order; then the end of the mail. */
void lmtp_answer(struct lmtp_session *s, int code, const char *text);
void lmtp_continue(struct lmtp_session *s);

/* The daemon, or the door's patience, ends: says so. */
void lmtp_close(struct lmtp_session *s, const char *why);

#endif
