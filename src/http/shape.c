/* SPDX-License-Identifier: Apache-2.0 */
#include "http/shape.h"

#include "base/json.h"

#define FIELDS(...)                                                                                \
	(const struct shape_field[])                                                               \
	{                                                                                          \
		__VA_ARGS__,                                                                       \
		{                                                                                  \
			0                                                                          \
		}                                                                                  \
	}
#define TEXT(name)                                                                                 \
	{                                                                                          \
		name, SHAPE_TEXT, 0, NULL                                                          \
	}
#define ID(name)                                                                                   \
	{                                                                                          \
		name, SHAPE_ID, 0, NULL                                                            \
	}
#define INT(name)                                                                                  \
	{                                                                                          \
		name, SHAPE_INT, 0, NULL                                                           \
	}
#define BOOL(name)                                                                                 \
	{                                                                                          \
		name, SHAPE_BOOL, 0, NULL                                                          \
	}
#define TIME(name)                                                                                 \
	{                                                                                          \
		name, SHAPE_TIME, 0, NULL                                                          \
	}
#define NULLABLE(name, kind)                                                                       \
	{                                                                                          \
		name, kind, SHAPE_NULLABLE, NULL                                                   \
	}
#define LIST(name, shape)                                                                          \
	{                                                                                          \
		name, SHAPE_LIST, 0, shape                                                         \
	}
#define PAGE(shape)                                                                                \
	LIST("data", shape),                                                                       \
	{                                                                                          \
		"pagination", SHAPE_OBJECT, 0, NULL                                                \
	}

/* clang-format off */
const struct shape SHAPE_MESSAGE = { "Message", FIELDS(
	ID("id"), TEXT("to"), TEXT("from"), TEXT("content"), TEXT("type"),
	{ "metadata", SHAPE_OBJECT, 0, NULL }, TIME("timestamp"), BOOL("read"),
	NULLABLE("read_at", SHAPE_TIME)) };
const struct shape SHAPE_MESSAGES = { "Messages", FIELDS(LIST("data", &SHAPE_MESSAGE)) };
const struct shape SHAPE_MESSAGE_PAGE = { "MessagePage", FIELDS(PAGE(&SHAPE_MESSAGE)) };
const struct shape SHAPE_COUNT = { "Count", FIELDS(INT("count")) };
const struct shape SHAPE_CLAIM = { "Claim", FIELDS(
	NULLABLE("claim_id", SHAPE_ID), LIST("data", &SHAPE_MESSAGE)) };

static const struct shape INBOX = { "Inbox", FIELDS(
	TEXT("agent_id"), INT("total"), INT("unread"),
	NULLABLE("oldest_unread_age_sec", SHAPE_INT)) };
const struct shape SHAPE_INBOX_PAGE = { "InboxPage", FIELDS(PAGE(&INBOX)) };

const struct shape SHAPE_AGENT = { "Agent", FIELDS(
	TEXT("agent_id"), TEXT("cluster_id"), TIME("first_seen"), TIME("last_seen"),
	{ "capabilities", SHAPE_TEXTS, 0, NULL }, TEXT("state")) };
const struct shape SHAPE_AGENT_PAGE = { "AgentPage", FIELDS(PAGE(&SHAPE_AGENT)) };
const struct shape SHAPE_ACCEPTED = { "Accepted", FIELDS(INT("accepted")) };
const struct shape SHAPE_DELETED = { "Deleted", FIELDS(TEXT("agent_id"), BOOL("deleted")) };
static const struct shape CAPABILITY = { "Capability", FIELDS(
	TEXT("capability"), INT("count"), { "agents", SHAPE_TEXTS, 0, NULL }) };
const struct shape SHAPE_CAPABILITY_PAGE = { "CapabilityPage", FIELDS(PAGE(&CAPABILITY)) };

const struct shape SHAPE_MAILBOX = { "Mailbox", FIELDS(
	TEXT("id"), TEXT("address"), TEXT("username"), TEXT("domain"), TEXT("status"),
	TIME("created_at"), TIME("expires_at"), { "cleanup", SHAPE_OBJECT, 0, NULL }) };
const struct shape SHAPE_MAILBOX_PAGE = { "MailboxPage", FIELDS(PAGE(&SHAPE_MAILBOX)) };
const struct shape SHAPE_MAILBOX_DELETED = { "MailboxDeleted", FIELDS(TEXT("id"), BOOL("deleted")) };
#define MAIL_HEAD                                                                                  \
	TEXT("id"), TEXT("from"), { "to", SHAPE_TEXTS, 0, NULL }, { "cc", SHAPE_TEXTS, 0, NULL },  \
	TEXT("subject"), TEXT("preview"), TIME("received_at"), BOOL("read")
static const struct shape MAIL_ITEM = { "MailItem", FIELDS(MAIL_HEAD) };
const struct shape SHAPE_MAIL_PAGE = { "MailPage", FIELDS(PAGE(&MAIL_ITEM)) };
const struct shape SHAPE_MAIL = { "Mail", FIELDS(
	MAIL_HEAD, NULLABLE("body", SHAPE_TEXT), NULLABLE("html", SHAPE_TEXT), BOOL("truncated")) };
const struct shape SHAPE_SENT = { "Sent", FIELDS(TEXT("message_id"), TEXT("status")) };
const struct shape SHAPE_ATTACHMENT = { "Attachment", FIELDS(
	TEXT("checksum"), TEXT("name"), INT("size"), BOOL("persist"),
	{ "ttl_ms", SHAPE_TTL, 0, NULL }, TIME("inserted_at"), NULLABLE("expires_at", SHAPE_TIME),
	BOOL("cached")) };
const struct shape SHAPE_ATTACHMENT_PAGE = { "AttachmentPage", FIELDS(PAGE(&SHAPE_ATTACHMENT)) };
const struct shape SHAPE_ATTACHMENT_METRICS = { "AttachmentMetrics", FIELDS(
	INT("total_count"), INT("total_bytes"), INT("persistent_count"), INT("persistent_bytes"),
	INT("expirable_count"), INT("expirable_bytes")) };
const struct shape SHAPE_CLEANED = { "Cleaned", FIELDS(INT("count"), INT("bytes")) };
const struct shape SHAPE_ATTACHMENT_DELETED = { "AttachmentDeleted", FIELDS(
	TEXT("checksum"), BOOL("deleted")) };

static const struct shape BOUND = { "Bound", FIELDS(
	TEXT("table"), TEXT("scheduler"), TEXT("bounded_by"), TEXT("due_when"),
	NULLABLE("window_ms", SHAPE_INT), { "paths", SHAPE_TEXTS, 0, NULL }, TEXT("safety_rule"),
	TEXT("action"), INT("live_rows"), INT("due_rows"), NULLABLE("oldest_due_age_ms", SHAPE_INT),
	NULLABLE("last_sweep", SHAPE_TIME), INT("pruned_total")) };
const struct shape SHAPE_MATRIX = { "Matrix", FIELDS(LIST("data", &BOUND)) };
const struct shape SHAPE_SWEEP = { "Sweep", FIELDS(
	TEXT("scheduler"), BOOL("dry_run"), INT("pruned"), { "tables", SHAPE_OBJECT, 0, NULL },
	INT("duration_ms"), { "expired", SHAPE_INT, SHAPE_OPTIONAL, NULL },
	{ "retried", SHAPE_INT, SHAPE_OPTIONAL, NULL }, { "cleaned", SHAPE_INT, SHAPE_OPTIONAL, NULL },
	{ "failed", SHAPE_INT, SHAPE_OPTIONAL, NULL },
	{ "dead_letters", SHAPE_INT, SHAPE_OPTIONAL, NULL }) };

const struct shape SHAPE_HOLD = { "Hold", FIELDS(
	TEXT("table"), TEXT("key"), TEXT("reason"), NULLABLE("until", SHAPE_TIME),
	TIME("placed_at")) };
const struct shape SHAPE_HOLD_PAGE = { "HoldPage", FIELDS(PAGE(&SHAPE_HOLD)) };
const struct shape SHAPE_RELEASED = { "Released", FIELDS(
	TEXT("table"), TEXT("key"), BOOL("released")) };

const struct shape SHAPE_TOKEN = { "Token", FIELDS(
	{ "token", SHAPE_TEXT, SHAPE_OPTIONAL, NULL }, TEXT("prefix"), TEXT("owner"), BOOL("admin"),
	TIME("created_at"), NULLABLE("expires_at", SHAPE_TIME)) };
const struct shape SHAPE_TOKEN_PAGE = { "TokenPage", FIELDS(PAGE(&SHAPE_TOKEN)) };
const struct shape SHAPE_REVOKED = { "Revoked", FIELDS(TEXT("prefix"), BOOL("revoked")) };

const struct shape SHAPE_DEAD_LETTER = { "DeadLetter", FIELDS(
	ID("id"), TEXT("kind"), TEXT("target"), TEXT("owner"), TEXT("state"), INT("attempts"),
	TEXT("error"), TIME("created_at")) };
const struct shape SHAPE_DEAD_LETTER_PAGE = { "DeadLetterPage", FIELDS(PAGE(&SHAPE_DEAD_LETTER)) };
const struct shape SHAPE_DROPPED = { "Dropped", FIELDS(ID("id"), BOOL("dropped")) };

const struct shape SHAPE_BACKUP = { "Backup", FIELDS(
	TEXT("file"), INT("bytes"), TIME("created_at")) };
const struct shape SHAPE_CLOCK = { "Clock", FIELDS(
	TIME("trusted"), TIME("wall"), TEXT("state"), INT("leap_ms"),
	NULLABLE("accepted_in_ms", SHAPE_INT)) };
const struct shape SHAPE_STATUS = { "Status", FIELDS(
	TEXT("status"), { "reasons", SHAPE_TEXTS, SHAPE_OPTIONAL, NULL }) };
/* clang-format on */

static void write_type(struct buf *out, const char *type, unsigned flags)
{
	json_key(out, "type");
	if (!(flags & SHAPE_NULLABLE)) {
		json_text(out, type);
		return;
	}
	json_begin(out, '[');
	json_text(out, type);
	json_text(out, "null");
	json_end(out, ']');
}

static void write_field(struct buf *out, const struct shape_field *f)
{
	static const char *const types[] = {
		[SHAPE_TEXT] = "string",  [SHAPE_ID] = "string",   [SHAPE_INT] = "integer",
		[SHAPE_BOOL] = "boolean", [SHAPE_TIME] = "string", [SHAPE_OBJECT] = "object",
		[SHAPE_TEXTS] = "array",  [SHAPE_LIST] = "array",
	};

	json_begin(out, '{');
	if (f->kind == SHAPE_TTL) {
		json_put_raw(out, "oneOf",
			     "[{\"type\":\"integer\"},{\"const\":\"" TTL_INFINITY "\"}]");
		json_end(out, '}');
		return;
	}
	write_type(out, types[f->kind], f->flags);
	if (f->kind == SHAPE_ID)
		json_put_text(out, "pattern", "^[0-9a-f]{16}$");
	if (f->kind == SHAPE_TIME)
		json_put_text(out, "format", "date-time");
	if (f->kind == SHAPE_TEXTS)
		json_put_raw(out, "items", "{\"type\":\"string\"}");
	if (f->kind == SHAPE_LIST) {
		json_key(out, "items");
		shape_write(out, f->of);
	}
	json_end(out, '}');
}

void shape_write(struct buf *out, const struct shape *shape)
{
	json_begin(out, '{');
	json_put_text(out, "title", shape->name);
	json_put_text(out, "type", "object");
	json_put_bool(out, "additionalProperties", false);
	json_key(out, "required");
	json_begin(out, '[');
	for (const struct shape_field *f = shape->fields; f->name; f++)
		if (!(f->flags & SHAPE_OPTIONAL))
			json_text(out, f->name);
	json_end(out, ']');
	json_key(out, "properties");
	json_begin(out, '{');
	for (const struct shape_field *f = shape->fields; f->name; f++) {
		json_key(out, f->name);
		write_field(out, f);
	}
	json_end(out, '}');
	json_end(out, '}');
}
