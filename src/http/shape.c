/* SPDX-License-Identifier: Apache-2.0 */
#include "http/shape.h"

/* clang-format off */
#define FIELDS(...) (const struct shape_field[]) { __VA_ARGS__, { 0 } }
#define ROW(name, kind, flags, of, values) { name, kind, flags, of, values }
#define TEXT(name) ROW(name, SHAPE_TEXT, 0, NULL, NULL)
#define TEXTS(name) ROW(name, SHAPE_TEXTS, 0, NULL, NULL)
#define ID(name) ROW(name, SHAPE_ID, 0, NULL, NULL)
#define INT(name) ROW(name, SHAPE_INT, 0, NULL, NULL)
#define BOOL(name) ROW(name, SHAPE_BOOL, 0, NULL, NULL)
#define TIME(name) ROW(name, SHAPE_TIME, 0, NULL, NULL)
#define TTL(name) ROW(name, SHAPE_TTL, 0, NULL, NULL)
#define VALUE(name) ROW(name, SHAPE_VALUE, 0, NULL, NULL)
#define OBJECT(name) ROW(name, SHAPE_OBJECT, 0, NULL, NULL)
#define COUNTS(name) ROW(name, SHAPE_COUNTS, 0, NULL, NULL)
#define NULLABLE(name, kind) ROW(name, kind, SHAPE_NULLABLE, NULL, NULL)
#define OPTIONAL(name, kind) ROW(name, kind, SHAPE_OPTIONAL, NULL, NULL)
#define ONE_OF(name, values) ROW(name, SHAPE_TEXT, 0, NULL, values)
#define LIST(name, shape) ROW(name, SHAPE_LIST, 0, shape, NULL)
#define NEST(name, shape) ROW(name, SHAPE_NEST, 0, shape, NULL)
#define PAGE(shape) LIST("data", shape), NEST("pagination", &PAGINATION)

static const struct shape PAGINATION = { "Pagination", FIELDS(
	NULLABLE("next_cursor", SHAPE_TEXT), BOOL("has_more")) };

const struct shape SHAPE_MESSAGE = { "Message", FIELDS(
	ID("id"), TEXT("to"), TEXT("from"), TEXT("content"), TEXT("type"),
	OBJECT("metadata"), TIME("timestamp"), BOOL("read"),
	NULLABLE("read_at", SHAPE_TIME), OPTIONAL("claimed_until", SHAPE_TIME)) };
static const struct shape SHAPE_COPY = { "Copy", FIELDS(ID("id"), TEXT("to")) };
const struct shape SHAPE_BROADCAST = { "Broadcast", FIELDS(
	LIST("data", &SHAPE_COPY), TIME("timestamp")) };
const struct shape SHAPE_MESSAGE_PAGE = { "MessagePage", FIELDS(PAGE(&SHAPE_MESSAGE)) };
const struct shape SHAPE_COUNT = { "Count", FIELDS(INT("count")) };
const struct shape SHAPE_CLAIM = { "Claim", FIELDS(
	NULLABLE("claim_id", SHAPE_ID), LIST("data", &SHAPE_MESSAGE)) };

const struct shape SHAPE_CLAIMED = { "Claimed", FIELDS(
	ID("id"), ID("claim_id"), TIME("claimed_until")) };

static const struct shape INBOX = { "Inbox", FIELDS(
	TEXT("agent_id"), INT("total"), INT("unread"),
	NULLABLE("oldest_unread_age_sec", SHAPE_INT)) };
const struct shape SHAPE_INBOX_PAGE = { "InboxPage", FIELDS(PAGE(&INBOX)) };

const struct shape SHAPE_AGENT = { "Agent", FIELDS(
	TEXT("agent_id"), TEXT("cluster_id"), TIME("first_seen"), TIME("last_seen"),
	TEXTS("capabilities"), ONE_OF("state", "live|suspect")) };
const struct shape SHAPE_AGENT_PAGE = { "AgentPage", FIELDS(PAGE(&SHAPE_AGENT)) };
const struct shape SHAPE_ACCEPTED = { "Accepted", FIELDS(INT("accepted")) };
const struct shape SHAPE_DELETED = { "Deleted", FIELDS(TEXT("agent_id"), BOOL("deleted")) };
static const struct shape CAPABILITY = { "Capability", FIELDS(
	TEXT("capability"), INT("count"), TEXTS("agents")) };
const struct shape SHAPE_CAPABILITY_PAGE = { "CapabilityPage", FIELDS(PAGE(&CAPABILITY)) };

static const struct shape MAILBOX_CLEANUP = { "MailboxCleanup", FIELDS(
	ONE_OF("state", "clean|pending|dead_letter"), INT("attempts")) };
const struct shape SHAPE_MAILBOX = { "Mailbox", FIELDS(
	TEXT("id"), TEXT("address"), TEXT("username"), TEXT("domain"), ONE_OF("status", "active|expired"),
	TIME("created_at"), TIME("expires_at"), NEST("cleanup", &MAILBOX_CLEANUP)) };
const struct shape SHAPE_MAILBOX_PAGE = { "MailboxPage", FIELDS(PAGE(&SHAPE_MAILBOX)) };
const struct shape SHAPE_MAILBOX_DELETED = { "MailboxDeleted", FIELDS(TEXT("id"), BOOL("deleted")) };
#define MAIL_HEAD \
	TEXT("id"), TEXT("from"), TEXTS("to"), TEXTS("cc"), \
	TEXT("subject"), TEXT("preview"), TIME("received_at"), BOOL("read")
static const struct shape MAIL_ITEM = { "MailItem", FIELDS(MAIL_HEAD) };
const struct shape SHAPE_MAIL_PAGE = { "MailPage", FIELDS(PAGE(&MAIL_ITEM)) };
static const struct shape MAIL_FILE = { "MailFile", FIELDS(
	TEXT("checksum"), TEXT("name"), INT("size"), TEXT("type")) };
const struct shape SHAPE_MAIL = { "Mail", FIELDS(
	MAIL_HEAD, NULLABLE("body", SHAPE_TEXT), NULLABLE("html", SHAPE_TEXT), BOOL("truncated"),
	ROW("attachments", SHAPE_LIST, SHAPE_OPTIONAL, &MAIL_FILE, NULL)) };
const struct shape SHAPE_SENT = { "Sent", FIELDS(TEXT("message_id"), TEXT("status")) };
const struct shape SHAPE_ATTACHMENT = { "Attachment", FIELDS(
	TEXT("checksum"), TEXT("name"), INT("size"), BOOL("persist"),
	TTL("ttl_ms"), TIME("inserted_at"), NULLABLE("expires_at", SHAPE_TIME),
	BOOL("cached"), OPTIONAL("path", SHAPE_TEXT)) };
const struct shape SHAPE_ATTACHMENT_TEXT = { "AttachmentText", FIELDS(
	TEXT("checksum"), TEXT("name"), INT("size"), TEXT("text"), NULLABLE("next_offset", SHAPE_INT)) };
static const struct shape EVENT_ITEM = { "Event", FIELDS(
	ID("id"), TEXT("type"), TIME("at"), TEXT("owner"), OBJECT("data")) };
const struct shape SHAPE_EVENT_PAGE = { "EventPage", FIELDS(
	LIST("data", &EVENT_ITEM), ID("next_cursor"), BOOL("has_more")) };
const struct shape SHAPE_ATTACHMENT_PAGE = { "AttachmentPage", FIELDS(PAGE(&SHAPE_ATTACHMENT)) };
const struct shape SHAPE_ATTACHMENT_METRICS = { "AttachmentMetrics", FIELDS(
	INT("total_count"), INT("total_bytes"), INT("persistent_count"), INT("persistent_bytes"),
	INT("expirable_count"), INT("expirable_bytes")) };
const struct shape SHAPE_CLEANED = { "Cleaned", FIELDS(
	INT("count"), INT("bytes"), INT("remaining")) };
const struct shape SHAPE_ATTACHMENT_DELETED = { "AttachmentDeleted", FIELDS(
	TEXT("checksum"), BOOL("deleted")) };

#define WEBHOOK_FIELDS \
	TEXT("id"), TEXT("url"), TEXTS("types"), ONE_OF("state", "active|disabled"), TIME("created_at"), \
	NULLABLE("disabled_at", SHAPE_TIME), ID("cursor"), INT("attempts"), \
	NULLABLE("next_attempt_at", SHAPE_TIME), NULLABLE("failing_since", SHAPE_TIME), \
	NULLABLE("last_attempt_at", SHAPE_TIME), INT("last_status"), TEXT("last_error"), INT("dead_letters")
const struct shape SHAPE_WEBHOOK = { "Webhook", FIELDS(WEBHOOK_FIELDS) };
const struct shape SHAPE_WEBHOOK_MADE = { "WebhookMade", FIELDS(
	WEBHOOK_FIELDS, OPTIONAL("secret", SHAPE_TEXT)) };
const struct shape SHAPE_WEBHOOK_PAGE = { "WebhookPage", FIELDS(PAGE(&SHAPE_WEBHOOK)) };
const struct shape SHAPE_WEBHOOK_DELETED = { "WebhookDeleted", FIELDS(TEXT("id"), BOOL("deleted")) };
const struct shape SHAPE_WEBHOOK_TESTED = { "WebhookTested", FIELDS(
	BOOL("delivered"), INT("status"), TEXT("error")) };

const struct shape SHAPE_LEASE = { "Lease", FIELDS(
	TEXT("table"), TEXT("key"), TEXT("holder"), INT("fencing_token"), TIME("acquired_at"),
	TIME("expires_at")) };
const struct shape SHAPE_LEASE_PAGE = { "LeasePage", FIELDS(PAGE(&SHAPE_LEASE)) };
const struct shape SHAPE_LEASE_RELEASED = { "LeaseReleased", FIELDS(
	TEXT("table"), TEXT("key"), BOOL("released")) };

const struct shape SHAPE_ENTRY = { "Entry", FIELDS(
	TEXT("key"), OBJECT("data"), TIME("created_at"), TIME("last_seen_at"), TIME("expires_at")) };
const struct shape SHAPE_ENTRY_PAGE = { "EntryPage", FIELDS(PAGE(&SHAPE_ENTRY)) };
const struct shape SHAPE_ENTRY_DELETED = { "EntryDeleted", FIELDS(TEXT("key"), BOOL("deleted")) };
const struct shape SHAPE_DEDUPE = { "Dedupe", FIELDS(BOOL("fresh"), TIME("expires_at")) };
const struct shape SHAPE_OAUTH = { "OauthState", FIELDS(
	TEXT("state"), TIME("created_at"), TIME("expires_at")) };
const struct shape SHAPE_OAUTH_DATA = { "OauthData", FIELDS(OBJECT("data")) };
const struct shape SHAPE_CACHE = { "Cache", FIELDS(OBJECT("data"), TIME("updated_at")) };
#define QUEUE_STATES "queued|processing|completed|failed"
const struct shape SHAPE_QUEUE_STATE = { "QueueState", FIELDS(
	ID("id"), ONE_OF("status", QUEUE_STATES)) };
static const struct shape QUEUE_DEPTH = { "QueueDepth", FIELDS(
	TEXT("table"), INT("queued"), INT("processing"), INT("completed"), INT("failed"),
	NULLABLE("oldest_queued_at", SHAPE_TIME), NULLABLE("oldest_failed_at", SHAPE_TIME)) };
const struct shape SHAPE_QUEUE_DEPTHS = { "QueueDepths", FIELDS(LIST("data", &QUEUE_DEPTH)) };
const struct shape SHAPE_QUEUE_LEASE = { "QueueLease", FIELDS(
	ID("id"), ONE_OF("status", QUEUE_STATES), TIME("lease_expires_at")) };
const struct shape SHAPE_QUEUE_ITEM = { "QueueItem", FIELDS(
	ID("id"), NULLABLE("key", SHAPE_TEXT), OBJECT("payload"),
	NULLABLE("inbox_id", SHAPE_ID), ONE_OF("status", QUEUE_STATES), INT("attempt"), NULLABLE("worker", SHAPE_TEXT),
	NULLABLE("lease_expires_at", SHAPE_TIME), NULLABLE("error", SHAPE_TEXT), TIME("created_at"),
	NULLABLE("finished_at", SHAPE_TIME)) };
const struct shape SHAPE_QUEUE_ITEMS = { "QueueItems", FIELDS(LIST("data", &SHAPE_QUEUE_ITEM)) };
const struct shape SHAPE_QUEUE_PAGE = { "QueuePage", FIELDS(PAGE(&SHAPE_QUEUE_ITEM)) };
const struct shape SHAPE_OUTBOX_ADDED = { "OutboxAdded", FIELDS(ID("id")) };
static const struct shape OUTBOX_ROW = { "OutboxRow", FIELDS(
	ID("id"), TEXT("cursor"), TEXT("topic"), OBJECT("payload"), TIME("created_at")) };
const struct shape SHAPE_OUTBOX = { "Outbox", FIELDS(
	LIST("data", &OUTBOX_ROW), TEXT("next_cursor"), BOOL("gap")) };
const struct shape SHAPE_OUTBOX_CONSUMER = { "OutboxConsumer", FIELDS(
	TEXT("name"), TEXT("cursor"), TIME("updated_at"), OPTIONAL("lag", SHAPE_INT)) };
const struct shape SHAPE_OUTBOX_CONSUMER_PAGE = { "OutboxConsumerPage", FIELDS(
	PAGE(&SHAPE_OUTBOX_CONSUMER)) };

static const struct shape BOUND = { "Bound", FIELDS(
	TEXT("table"), TEXT("scheduler"), TEXT("bounded_by"), TEXT("due_when"),
	NULLABLE("window_ms", SHAPE_INT), TEXTS("paths"), TEXT("safety_rule"),
	TEXT("action"), NULLABLE("live_rows", SHAPE_INT), NULLABLE("due_rows", SHAPE_INT), NULLABLE("oldest_due_age_ms", SHAPE_INT),
	INT("interval_ms"), TIME("next_sweep_at"), NULLABLE("last_sweep_at", SHAPE_TIME),
	ROW("last_sweep", SHAPE_TIME, SHAPE_NULLABLE | SHAPE_OLD, NULL, NULL),
	NULLABLE("last_sweep_rows", SHAPE_INT), INT("last_sweep_ms"), NULLABLE("pruned_total", SHAPE_INT),
	OPTIONAL("undeletable_rows", SHAPE_INT), OPTIONAL("undeletable", SHAPE_COUNTS),
	ROW("last_success_at", SHAPE_TIME, SHAPE_OPTIONAL | SHAPE_NULLABLE, NULL, NULL),
	ROW("rows_per_second", SHAPE_INT, SHAPE_OPTIONAL | SHAPE_NULLABLE, NULL, NULL),
	ROW("clears_in_ms", SHAPE_INT, SHAPE_OPTIONAL | SHAPE_NULLABLE, NULL, NULL),
	OPTIONAL("contract", SHAPE_TEXT),
	OPTIONAL("waits_for_approval", SHAPE_BOOL),
	ROW("problem", SHAPE_TEXT, SHAPE_OPTIONAL | SHAPE_NULLABLE, NULL, NULL)) };
static const struct shape KEPT_BOUND = { "KeptBound", FIELDS(
	TEXT("bound"), TEXT("table"), TEXT("scheduler"), INT("pruned_total"), BOOL("waits_for_approval"),
	NULLABLE("problem", SHAPE_TEXT), COUNTS("undeletable")) };
static const struct shape KEPT_LEASE = { "KeptLease", FIELDS(
	TEXT("scheduler"), INT("fencing_token"), BOOL("sweeping")) };
const struct shape SHAPE_CONTRACT = { "Contract", FIELDS(
	TEXT("name"), TEXT("database"), NULLABLE("refused", SHAPE_TEXT), LIST("bounds", &KEPT_BOUND),
	LIST("leases", &KEPT_LEASE)) };
const struct shape SHAPE_CONTRACT_PAGE = { "ContractPage", FIELDS(PAGE(&SHAPE_CONTRACT)) };
static const struct shape PLANNED = { "PlannedBound", FIELDS(
	TEXT("bound"), NULLABLE("error", SHAPE_TEXT), INT("rows"), BOOL("exact"),
	NULLABLE("table_rows", SHAPE_INT), NULLABLE("share_percent", SHAPE_INT),
	NULLABLE("bytes", SHAPE_INT), NULLABLE("oldest", SHAPE_TIME), NULLABLE("newest", SHAPE_TIME),
	TEXTS("sample"), INT("protected"), INT("unreadable"),
	NULLABLE("dependents", SHAPE_INT), NULLABLE("duration_ms", SHAPE_INT), BOOL("asks")) };
const struct shape SHAPE_PLAN = { "Plan", FIELDS(TEXT("contract"), LIST("data", &PLANNED)) };
const struct shape SHAPE_APPROVAL = { "Approval", FIELDS(
	TEXT("bound"), INT("due_rows"), NULLABLE("table_rows", SHAPE_INT), TIME("wanted_at"),
	NULLABLE("given_at", SHAPE_TIME)) };
const struct shape SHAPE_APPROVAL_PAGE = { "ApprovalPage", FIELDS(PAGE(&SHAPE_APPROVAL)) };
static const struct shape WHY_HOLD = { "ThingHold", FIELDS(
	TEXT("reason"), NULLABLE("until", SHAPE_TIME), TIME("placed_at")) };
static const struct shape THING = { "Thing", FIELDS(
	TEXT("table"), TEXT("key"), ONE_OF("state", "live|due|held|protected|referenced|kept"), TIME("created_at"),
	NULLABLE("goes_at", SHAPE_TIME), TEXT("why"), TEXT("rule"), TEXT("safety_rule"), TEXT("scheduler"),
	TIME("next_sweep_at"), ROW("hold", SHAPE_NEST, SHAPE_OPTIONAL, &WHY_HOLD, NULL), OBJECT("row")) };
static const struct shape THING_EVENT = { "ThingEvent", FIELDS(
	ID("id"), TIME("at"), TEXT("type"), OBJECT("data"), BOOL("inferred")) };
const struct shape SHAPE_WHOAMI = { "Caller", FIELDS(TEXT("owner"), BOOL("admin"), BOOL("acting"), TEXTS("scopes")) };
static const struct shape BREAKER = { "Breaker", FIELDS(
	ONE_OF("state", "closed|open"), NULLABLE("opened_at", SHAPE_TIME), INT("suspected")) };
static const struct shape CLUSTER = { "Cluster", FIELDS(
	TEXT("cluster_id"), INT("agents"), INT("silent")) };
static const struct shape QUIET_AGENT = { "QuietAgent", FIELDS(
	TEXT("agent_id"), TEXT("cluster_id"), TIME("last_seen"), TIME("expires_at"), BOOL("silent")) };
const struct shape SHAPE_FLEET = { "Fleet", FIELDS(
	INT("agents"), INT("silent"), INT("silent_after_ms"), INT("evict_after_ms"),
	ROW("breaker", SHAPE_NEST, 0, &BREAKER, NULL), LIST("clusters", &CLUSTER),
	LIST("quietest", &QUIET_AGENT), BOOL("complete")) };
const struct shape SHAPE_WHY = { "Why", FIELDS(
	TEXT("query"), LIST("things", &THING), LIST("timeline", &THING_EVENT),
	NULLABLE("events_from", SHAPE_TIME), BOOL("more_events")) };
const struct shape SHAPE_MATRIX = { "Matrix", FIELDS(LIST("data", &BOUND)) };
const struct shape SHAPE_SWEEP = { "Sweep", FIELDS(
	TEXT("scheduler"), BOOL("dry_run"), INT("pruned"), COUNTS("tables"),
	INT("duration_ms"), OPTIONAL("expired", SHAPE_INT),
	OPTIONAL("retried", SHAPE_INT), OPTIONAL("cleaned", SHAPE_INT),
	OPTIONAL("failed", SHAPE_INT),
	OPTIONAL("dead_letters", SHAPE_INT)) };

const struct shape SHAPE_HOLD = { "Hold", FIELDS(
	TEXT("table"), TEXT("key"), TEXT("reason"), NULLABLE("until", SHAPE_TIME),
	TIME("created_at"), ROW("placed_at", SHAPE_TIME, SHAPE_OLD, NULL, NULL)) };
const struct shape SHAPE_HOLD_PAGE = { "HoldPage", FIELDS(PAGE(&SHAPE_HOLD)) };
const struct shape SHAPE_RELEASED = { "Released", FIELDS(
	TEXT("table"), TEXT("key"), BOOL("released")) };

const struct shape SHAPE_TOKEN = { "Token", FIELDS(
	OPTIONAL("token", SHAPE_TEXT), TEXT("prefix"), TEXT("owner"), NULLABLE("name", SHAPE_TEXT),
	TEXTS("scopes"), BOOL("admin"), TIME("created_at"), NULLABLE("expires_at", SHAPE_TIME),
	NULLABLE("last_used_at", SHAPE_TIME)) };
const struct shape SHAPE_TOKEN_PAGE = { "TokenPage", FIELDS(PAGE(&SHAPE_TOKEN)) };
const struct shape SHAPE_REVOKED = { "Revoked", FIELDS(TEXT("prefix"), BOOL("revoked")) };

const struct shape SHAPE_ADOPTED = { "Adopted", FIELDS(
	TEXT("from"), TEXT("owner"), INT("rows"), COUNTS("tables")) };
const struct shape SHAPE_QUOTA = { "Quota", FIELDS(
	TEXT("owner"), NULLABLE("agents", SHAPE_INT), NULLABLE("mailboxes", SHAPE_INT),
	NULLABLE("attachment_bytes", SHAPE_INT), NULLABLE("streams", SHAPE_INT), NULLABLE("inboxes", SHAPE_INT),
	NULLABLE("stored_bytes", SHAPE_INT)) };
const struct shape SHAPE_QUOTA_PAGE = { "QuotaPage", FIELDS(PAGE(&SHAPE_QUOTA)) };
const struct shape SHAPE_QUOTA_DELETED = { "QuotaDeleted", FIELDS(TEXT("owner"), BOOL("deleted")) };

const struct shape SHAPE_DEAD_LETTER = { "DeadLetter", FIELDS(
	ID("id"), TEXT("kind"), TEXT("target"), TEXT("owner"), ONE_OF("state", "dead_letter|pending"), INT("attempts"),
	TEXT("error"), TIME("created_at")) };
const struct shape SHAPE_DEAD_LETTER_PAGE = { "DeadLetterPage", FIELDS(PAGE(&SHAPE_DEAD_LETTER)) };
const struct shape SHAPE_RETRIED = { "Retried", FIELDS(INT("retried")) };
const struct shape SHAPE_DROPPED = { "Dropped", FIELDS(ID("id"), BOOL("dropped")) };

const struct shape SHAPE_BACKUP = { "Backup", FIELDS(
	TEXT("file"), INT("bytes"), TIME("created_at")) };
const struct shape SHAPE_CLOCK = { "Clock", FIELDS(
	TIME("trusted"), TIME("wall"), ONE_OF("state", "trusted|jumped"), INT("leap_ms"),
	NULLABLE("accepted_in_ms", SHAPE_INT)) };
static const struct shape REPLICA = { "Replica", FIELDS(
	INT("number"), ONE_OF("state", "live|stopped|expelled"), BOOL("self"), TEXT("name"), TEXT("listen"),
	TEXT("version"), BOOL("files"), TIME("started_at"), TIME("lease_until"), TIME("flushed_through"),
	INT("lag_ms"), TEXTS("schedulers")) };
const struct shape SHAPE_REPLICAS = { "Replicas", FIELDS(BOOL("cluster"), LIST("data", &REPLICA)) };
static const struct shape SETTING = { "Setting", FIELDS(
	TEXT("name"), VALUE("value"), VALUE("default"), TEXT("source"), OPTIONAL("min", SHAPE_INT),
	OPTIONAL("max", SHAPE_INT), TEXT("unit"), TEXT("help")) };
const struct shape SHAPE_SETTINGS = { "Settings", FIELDS(LIST("data", &SETTING)) };
const struct shape SHAPE_STATUS = { "Status", FIELDS(
	TEXT("status"), OPTIONAL("reasons", SHAPE_TEXTS), OPTIONAL("warnings", SHAPE_TEXTS)) };
/* clang-format on */
