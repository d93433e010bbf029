/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes of answers, for the OpenAPI document. A route names its shape; the tests hold real answers
 * against them.
 */
#ifndef LAPSE_HTTP_SHAPE_H
#define LAPSE_HTTP_SHAPE_H

#include <stddef.h>

enum shape_kind {
	SHAPE_TEXT,
	SHAPE_ID, /* 16 hex digits */
	SHAPE_INT,
	SHAPE_BOOL,
	SHAPE_TIME,
	SHAPE_OBJECT, /* of any members */
	SHAPE_TEXTS,
	SHAPE_TTL,  /* an integer, or "infinity" */
	SHAPE_LIST, /* of the shape `of` */
};

struct shape_field {
	const char *name;
	enum shape_kind kind;
	unsigned flags;
	const struct shape *of;
};

enum { SHAPE_NULLABLE = 1, SHAPE_OPTIONAL = 2 };

struct shape {
	const char *name;                 /* in components/schemas */
	const struct shape_field *fields; /* ends with a row without a name */
};

extern const struct shape SHAPE_MESSAGE, SHAPE_MESSAGES, SHAPE_MESSAGE_PAGE, SHAPE_COUNT,
	SHAPE_CLAIM, SHAPE_INBOX_PAGE, SHAPE_MATRIX, SHAPE_SWEEP, SHAPE_HOLD, SHAPE_HOLD_PAGE,
	SHAPE_RELEASED, SHAPE_TOKEN, SHAPE_TOKEN_PAGE, SHAPE_REVOKED, SHAPE_BACKUP, SHAPE_CLOCK,
	SHAPE_STATUS, SHAPE_AGENT, SHAPE_AGENT_PAGE, SHAPE_CAPABILITY_PAGE, SHAPE_ACCEPTED,
	SHAPE_ATTACHMENT, SHAPE_ATTACHMENT_PAGE, SHAPE_ATTACHMENT_METRICS, SHAPE_CLEANED,
	SHAPE_ATTACHMENT_DELETED, SHAPE_DELETED, SHAPE_DEAD_LETTER, SHAPE_DEAD_LETTER_PAGE,
	SHAPE_DROPPED, SHAPE_MAILBOX, SHAPE_MAILBOX_PAGE, SHAPE_MAILBOX_DELETED, SHAPE_MAIL,
	SHAPE_MAIL_PAGE, SHAPE_SENT;

struct buf;
void shape_write(struct buf *out, const struct shape *shape); /* the JSON Schema */

#endif
