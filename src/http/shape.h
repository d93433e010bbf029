/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes of answers, for the OpenAPI document. A route names its shape; each shape becomes a named
 * schema there, and the tests hold every answer they get against it.
 *
 * To add a shape: a row in shape.c, by its macros, and its name below.
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
	SHAPE_COUNTS, /* an object whose members are whole numbers */
	SHAPE_TEXTS,
	SHAPE_TTL,   /* an integer, or "infinity" */
	SHAPE_VALUE, /* a text, an integer, true or false, or null */
	SHAPE_LIST,  /* of the shape `of` */
	SHAPE_NEST,  /* an object of the shape `of` */
};

struct shape_field {
	const char *name;
	enum shape_kind kind;
	unsigned flags;
	const struct shape *of;
	const char *values; /* of a SHAPE_TEXT that has only these: "active|expired"; or NULL */
};

enum {
	SHAPE_NULLABLE = 1,
	SHAPE_OPTIONAL = 2,
	SHAPE_OLD =
		4, /* an old name of another member; it will go, and clients need not expect it */
};

struct shape {
	const char *name;                 /* in components/schemas */
	const struct shape_field *fields; /* ends with a row without a name */
};

extern const struct shape SHAPE_MESSAGE, SHAPE_BROADCAST, SHAPE_MESSAGE_PAGE, SHAPE_COUNT,
	SHAPE_CLAIM, SHAPE_INBOX_PAGE, SHAPE_MATRIX, SHAPE_SWEEP, SHAPE_HOLD, SHAPE_HOLD_PAGE,
	SHAPE_RELEASED, SHAPE_TOKEN, SHAPE_TOKEN_PAGE, SHAPE_REVOKED, SHAPE_ADOPTED, SHAPE_BACKUP,
	SHAPE_CLOCK, SHAPE_STATUS, SHAPE_AGENT, SHAPE_AGENT_PAGE, SHAPE_CAPABILITY_PAGE,
	SHAPE_ACCEPTED, SHAPE_ATTACHMENT, SHAPE_ATTACHMENT_PAGE, SHAPE_ATTACHMENT_METRICS,
	SHAPE_CLEANED, SHAPE_ATTACHMENT_DELETED, SHAPE_DELETED, SHAPE_DEAD_LETTER,
	SHAPE_DEAD_LETTER_PAGE, SHAPE_DROPPED, SHAPE_RETRIED, SHAPE_MAILBOX, SHAPE_MAILBOX_PAGE,
	SHAPE_MAILBOX_DELETED, SHAPE_MAIL, SHAPE_MAIL_PAGE, SHAPE_SENT, SHAPE_SETTINGS,
	SHAPE_CLAIMED, SHAPE_CONTRACT, SHAPE_CONTRACT_PAGE, SHAPE_PLAN, SHAPE_APPROVAL,
	SHAPE_APPROVAL_PAGE, SHAPE_WHY, SHAPE_FLEET, SHAPE_WHOAMI;

extern const struct shape SHAPE_QUOTA, SHAPE_QUOTA_PAGE, SHAPE_QUOTA_DELETED, SHAPE_REPLICAS;
extern const struct shape SHAPE_ATTACHMENT_TEXT, SHAPE_EVENT_PAGE;

extern const struct shape SHAPE_WEBHOOK, SHAPE_WEBHOOK_MADE, SHAPE_WEBHOOK_PAGE,
	SHAPE_WEBHOOK_DELETED, SHAPE_WEBHOOK_TESTED;

extern const struct shape SHAPE_LEASE, SHAPE_LEASE_PAGE, SHAPE_LEASE_RELEASED, SHAPE_ENTRY,
	SHAPE_ENTRY_PAGE, SHAPE_ENTRY_DELETED, SHAPE_DEDUPE, SHAPE_OAUTH, SHAPE_OAUTH_DATA,
	SHAPE_CACHE, SHAPE_QUEUE_STATE, SHAPE_QUEUE_ITEM, SHAPE_QUEUE_ITEMS, SHAPE_QUEUE_PAGE,
	SHAPE_QUEUE_LEASE, SHAPE_QUEUE_DEPTHS, SHAPE_OUTBOX_ADDED, SHAPE_OUTBOX,
	SHAPE_OUTBOX_CONSUMER, SHAPE_OUTBOX_CONSUMER_PAGE;

#endif
