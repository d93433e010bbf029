/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"

#include <stdio.h>
#include <string.h>

#include "api/engine.h"
#include "api/events.h"
#include "api/quota.h"
#include "attachment/api.h"
#include "contract/api.h"
#include "http/openapi.h"
#include "http/probe.h"
#include "http/stream.h"
#include "http/web.h"
#include "mailbox/api.h"
#include "mcp/door.h"
#include "message/api.h"
#include "optable/api.h"
#include "presence/api.h"
#include "webhook/api.h"

/* clang-format off */
const struct route ROUTES[] = {
	/* method, path, room, who, body, transaction, flags, handler, query, body fields, reply, operation id, summary, quick */
	{ "POST", "/v1/agents/{agent}/heartbeat", SCOPE_AGENTS, CALLER_ANY, BODY_JSON, TX_WRITE, FAILS_LIMIT,
	  presence_api_beat, NULL, PRESENCE_BEAT_BODY, &SHAPE_STATUS,
	  "sendHeartbeat", "Say that an agent is alive", &PRESENCE_BEAT_QUICK },
	{ "POST", "/v1/heartbeats", SCOPE_AGENTS, CALLER_ANY, BODY_MANY, TX_WRITE, FAILS_LIMIT,
	  presence_api_beats, NULL, PRESENCE_BEATS_ENTRY, &SHAPE_ACCEPTED,
	  "sendHeartbeats", "Say that many agents are alive, all or none", &PRESENCE_BEATS_QUICK },
	{ "GET", "/v1/agents", SCOPE_AGENTS, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  presence_api_list, PRESENCE_LIST_QUERY, NULL, &SHAPE_AGENT_PAGE,
	  "listAgents", "List the live agents, by name", NULL },
	{ "GET", "/v1/agents/{agent}", SCOPE_AGENTS, CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG,
	  presence_api_get, PRESENCE_GET_QUERY, NULL, &SHAPE_AGENT,
	  "getAgent", "Get an agent", NULL },
	{ "GET", "/v1/fleet", SCOPE_AGENTS, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  fleet_api_get, NULL, NULL, &SHAPE_FLEET,
	  "getFleet", "Count the agents by cluster, and name the most silent ones", NULL },
	{ "DELETE", "/v1/agents/{agent}", SCOPE_AGENTS, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  presence_api_delete, NULL, NULL, &SHAPE_DELETED,
	  "deleteAgent", "Remove an agent and its capabilities", NULL },
	{ "PUT", "/v1/agents/{agent}/capabilities", SCOPE_AGENTS, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_ETAG,
	  presence_api_set_capabilities, NULL, PRESENCE_CAPABILITIES_BODY, &SHAPE_AGENT,
	  "setCapabilities", "Replace the capabilities of an agent", NULL },
	{ "GET", "/v1/capabilities", SCOPE_AGENTS, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  presence_api_capabilities, PAGE_FIELDS, NULL, &SHAPE_CAPABILITY_PAGE,
	  "listCapabilities", "List every capability with its agents", NULL },
	{ "GET", "/v1/capabilities/{name}", SCOPE_AGENTS, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  presence_api_capability, PAGE_FIELDS, NULL, &SHAPE_AGENT_PAGE,
	  "listAgentsWithCapability", "List the agents that have a capability", NULL },

	{ "POST", "/v1/agents/{agent}/messages", SCOPE_MESSAGES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | ROUTE_CLEAN | FAILS_LIMIT,
	  message_api_send, NULL, MESSAGE_SEND_BODY, &SHAPE_MESSAGE,
	  "sendMessage", "Send a message to an agent", NULL },
	{ "GET", "/v1/agents/{agent}/messages", SCOPE_MESSAGES, CALLER_ANY, BODY_NONE, TX_READ, FAILS_LIMIT,
	  message_api_list, MESSAGE_LIST_QUERY, NULL, &SHAPE_MESSAGE_PAGE,
	  "listMessages", "List an agent's messages, newest first", NULL },
	{ "POST", "/v1/agents/{agent}/messages/read", SCOPE_MESSAGES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CLEAN,
	  message_api_read_many, NULL, MESSAGE_READ_MANY_BODY, &SHAPE_COUNT,
	  "markMessagesRead", "Mark messages as read", NULL },
	{ "POST", "/v1/agents/{agent}/messages/claim", SCOPE_MESSAGES, CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_CLEAN | FAILS_LIMIT,
	  message_api_claim, NULL, MESSAGE_CLAIM_BODY, &SHAPE_CLAIM,
	  "claimMessages", "Lease unread messages, oldest first", NULL },
	{ "POST", "/v1/agents/{agent}/messages/{id}/extend", SCOPE_MESSAGES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CLEAN | FAILS_CONFLICT,
	  message_api_extend, NULL, MESSAGE_EXTEND_BODY, &SHAPE_CLAIMED,
	  "extendClaim", "Extend the claim of a message", NULL },
	{ "GET", "/v1/agents/{agent}/messages/{id}", SCOPE_MESSAGES, CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG | FAILS_EXPIRED,
	  message_api_get, NULL, NULL, &SHAPE_MESSAGE,
	  "getMessage", "Get a message", NULL },
	{ "POST", "/v1/agents/{agent}/messages/{id}/read", SCOPE_MESSAGES, CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_ETAG | ROUTE_CLEAN | FAILS_CONFLICT,
	  message_api_read, NULL, MESSAGE_READ_BODY, &SHAPE_MESSAGE,
	  "markMessageRead", "Mark a message as read", NULL },
	{ "POST", "/v1/messages", SCOPE_MESSAGES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | FAILS_LIMIT,
	  message_api_broadcast, NULL, MESSAGE_BROADCAST_BODY, &SHAPE_BROADCAST,
	  "broadcastMessage", "Send a message to many agents, all or none", NULL },
	{ "GET", "/v1/messages/stats", SCOPE_MESSAGES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  message_api_stats, PAGE_FIELDS, NULL, &SHAPE_INBOX_PAGE,
	  "listInboxes", "Count the messages of every inbox", NULL },

	{ "POST", "/v1/webhooks", SCOPE_EVENTS, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | FAILS_LIMIT,
	  webhook_api_create, NULL, WEBHOOK_CREATE_BODY, &SHAPE_WEBHOOK_MADE,
	  "createWebhook", "Post events to a URL from now on, signed", NULL },
	{ "GET", "/v1/webhooks", SCOPE_EVENTS, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  webhook_api_list, PAGE_FIELDS, NULL, &SHAPE_WEBHOOK_PAGE,
	  "listWebhooks", "List webhooks, newest first", NULL },
	{ "GET", "/v1/webhooks/{id}", SCOPE_EVENTS, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  webhook_api_get, NULL, NULL, &SHAPE_WEBHOOK,
	  "getWebhook", "Get a webhook and how its deliveries stand", NULL },
	{ "PATCH", "/v1/webhooks/{id}", SCOPE_EVENTS, CALLER_ANY, BODY_JSON, TX_WRITE, 0,
	  webhook_api_change, NULL, WEBHOOK_CHANGE_BODY, &SHAPE_WEBHOOK,
	  "changeWebhook", "Change a webhook, pause it, or let it go on", NULL },
	{ "DELETE", "/v1/webhooks/{id}", SCOPE_EVENTS, CALLER_ANY, BODY_NONE, TX_WRITE, 0,
	  webhook_api_delete, NULL, NULL, &SHAPE_WEBHOOK_DELETED,
	  "deleteWebhook", "Delete a webhook and its dead letters", NULL },
	{ "POST", "/v1/webhooks/{id}/test", SCOPE_EVENTS, CALLER_ANY, BODY_NONE, TX_WRITE, 0,
	  webhook_api_test, NULL, NULL, &SHAPE_WEBHOOK_TESTED,
	  "testWebhook", "Post an event of type webhook.test now and tell what came back", NULL },
	{ "POST", "/v1/webhooks/{id}/replay", SCOPE_EVENTS, CALLER_ANY, BODY_OPTIONAL, TX_WRITE, 0,
	  webhook_api_replay, NULL, WEBHOOK_REPLAY_BODY, &SHAPE_WEBHOOK,
	  "replayWebhook", "Post events again, from a cursor on", NULL },
	{ "POST", "/v1/mailboxes", SCOPE_MAILBOXES, CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_CREATES | ROUTE_ETAG | FAILS_LIMIT | FAILS_UPSTREAM,
	  mailbox_api_create, NULL, MAILBOX_CREATE_BODY, &SHAPE_MAILBOX,
	  "createMailbox", "Create a mailbox with a lifetime", NULL },
	{ "GET", "/v1/mailboxes", SCOPE_MAILBOXES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  mailbox_api_list, MAILBOX_LIST_QUERY, NULL, &SHAPE_MAILBOX_PAGE,
	  "listMailboxes", "List mailboxes, newest first", NULL },
	{ "GET", "/v1/mailboxes/{id}", SCOPE_MAILBOXES, CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG,
	  mailbox_api_get, NULL, NULL, &SHAPE_MAILBOX,
	  "getMailbox", "Get a mailbox, expired or not", NULL },
	{ "DELETE", "/v1/mailboxes/{id}", SCOPE_MAILBOXES, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_CONFLICT | FAILS_UPSTREAM,
	  mailbox_api_delete, NULL, NULL, &SHAPE_MAILBOX_DELETED,
	  "deleteMailbox", "Delete a mailbox and its mail", NULL },
	{ "POST", "/v1/mailboxes/{id}/renew", SCOPE_MAILBOXES, CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_ETAG | FAILS_EXPIRED | FAILS_MATCH,
	  mailbox_api_renew, NULL, MAILBOX_RENEW_BODY, &SHAPE_MAILBOX,
	  "renewMailbox", "Give a mailbox a new lifetime, counted from now", NULL },
	{ "GET", "/v1/mailboxes/{id}/messages", SCOPE_MAILBOXES, CALLER_ANY, BODY_NONE, TX_READ, FAILS_EXPIRED | FAILS_UPSTREAM,
	  mailbox_api_mails, MAILBOX_MAILS_QUERY, NULL, &SHAPE_MAIL_PAGE,
	  "listMails", "List the mail of a mailbox, newest first", NULL },
	{ "GET", "/v1/mailboxes/{id}/messages/{msg}", SCOPE_MAILBOXES, CALLER_ANY, BODY_NONE, TX_READ, FAILS_EXPIRED | FAILS_UPSTREAM,
	  mailbox_api_mail, NULL, NULL, &SHAPE_MAIL,
	  "getMail", "Get a mail; it stays unread", NULL },
	{ "POST", "/v1/mailboxes/{id}/messages/{msg}/read", SCOPE_MAILBOXES, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_EXPIRED | FAILS_UPSTREAM,
	  mailbox_api_read_mail, NULL, NULL, &SHAPE_MAIL,
	  "readMail", "Mark a mail as read", NULL },
	{ "POST", "/v1/mailboxes/{id}/send", SCOPE_MAILBOXES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | FAILS_EXPIRED | FAILS_LIMIT | FAILS_UPSTREAM | ROUTE_SAYS_OK,
	  mailbox_api_send, NULL, MAILBOX_SEND_BODY, &SHAPE_SENT,
	  "sendMail", "Send a mail from a mailbox", NULL },
	{ "POST", "/v1/attachments", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_STREAM, TX_WRITE, ROUTE_CREATES | FAILS_LIMIT,
	  attachment_api_upload, ATTACHMENT_UPLOAD_QUERY, NULL, &SHAPE_ATTACHMENT,
	  "uploadAttachment", "Stage the bytes of the body", &ATTACHMENT_UPLOAD_QUICK },
	{ "POST", "/v1/attachments/text", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | FAILS_LIMIT,
	  attachment_api_stage_text, NULL, ATTACHMENT_TEXT_BODY, &SHAPE_ATTACHMENT,
	  "stageText", "Stage a text as an attachment", NULL },
	{ "GET", "/v1/attachments/{checksum}/text", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_NONE, TX_READ, FAILS_EXPIRED | FAILS_CONFLICT,
	  attachment_api_read_text, ATTACHMENT_TEXT_QUERY, NULL, &SHAPE_ATTACHMENT_TEXT,
	  "readText", "Get an attachment that is a text, up to 256 KiB of it", NULL },
	{ "POST", "/v1/attachments/stage", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | FAILS_LIMIT,
	  attachment_api_stage, NULL, ATTACHMENT_STAGE_BODY, &SHAPE_ATTACHMENT,
	  "stageAttachment", "Stage a file of this host", NULL },
	{ "POST", "/v1/attachments/{checksum}/stage", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_CREATES,
	  attachment_api_restage, NULL, ATTACHMENT_RESTAGE_BODY, &SHAPE_ATTACHMENT,
	  "stageAttachmentAgain", "Stage again bytes that are here, without sending them", NULL },
	{ "GET", "/v1/attachments", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  attachment_api_list, PAGE_FIELDS, NULL, &SHAPE_ATTACHMENT_PAGE,
	  "listAttachments", "List attachments, newest first", NULL },
	{ "GET", "/v1/attachments/metrics", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  attachment_api_metrics, NULL, NULL, &SHAPE_ATTACHMENT_METRICS,
	  "getAttachmentTotals", "Count the attachments and their bytes", NULL },
	{ "POST", "/v1/attachments/cleanup", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_NONE, TX_WRITE, 0,
	  attachment_api_cleanup, NULL, NULL, &SHAPE_CLEANED,
	  "cleanUpAttachments", "Remove expired attachments now: an admin all, a fleet its own", NULL },
	{ "GET", "/v1/attachments/{checksum}", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG | FAILS_EXPIRED,
	  attachment_api_get, NULL, NULL, &SHAPE_ATTACHMENT,
	  "getAttachment", "Describe an attachment", NULL },
	{ "GET", "/v1/attachments/{checksum}/content", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_NONE, TX_READ, ROUTE_CONTENT | FAILS_EXPIRED | FAILS_LIMIT,
	  attachment_api_content, NULL, NULL, NULL,
	  "downloadAttachment", "Download an attachment, or a part of it", NULL },
	{ "DELETE", "/v1/attachments/{checksum}", SCOPE_ATTACHMENTS, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  attachment_api_delete, NULL, NULL, &SHAPE_ATTACHMENT_DELETED,
	  "deleteAttachment", "Delete an attachment", NULL },

	{ "PUT", "/v1/leases/{table}/{key}", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, FAILS_CONFLICT | FAILS_LIMIT,
	  lease_api_take, NULL, LEASE_BODY, &SHAPE_LEASE,
	  "acquireLease", "Acquire a lease, or renew the one you hold", NULL },
	{ "GET", "/v1/leases/{table}/{key}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  lease_api_get, NULL, NULL, &SHAPE_LEASE,
	  "getLease", "Get a lease", NULL },
	{ "DELETE", "/v1/leases/{table}/{key}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  lease_api_release, LEASE_RELEASE_QUERY, NULL, &SHAPE_LEASE_RELEASED,
	  "releaseLease", "Release a lease", NULL },
	{ "GET", "/v1/leases/{table}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  lease_api_list, PAGE_FIELDS, NULL, &SHAPE_LEASE_PAGE,
	  "listLeases", "List the leases of a table, by key", NULL },

	{ "PUT", "/v1/tables/{table}/{key}", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_MAKES | FAILS_LIMIT,
	  entry_api_put, NULL, ENTRY_BODY, &SHAPE_ENTRY,
	  "putEntry", "Put an entry, or refresh it", NULL },
	{ "GET", "/v1/tables/{table}/{key}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  entry_api_get, NULL, NULL, &SHAPE_ENTRY,
	  "getEntry", "Get an entry", NULL },
	{ "DELETE", "/v1/tables/{table}/{key}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  entry_api_delete, NULL, NULL, &SHAPE_ENTRY_DELETED,
	  "deleteEntry", "Delete an entry", NULL },
	{ "GET", "/v1/tables/{table}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  entry_api_list, PAGE_FIELDS, NULL, &SHAPE_ENTRY_PAGE,
	  "listEntries", "List the entries of a table, by key", NULL },
	{ "POST", "/v1/dedupe", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, FAILS_LIMIT,
	  dedupe_api_claim, NULL, DEDUPE_BODY, &SHAPE_DEDUPE,
	  "claimDedupeKey", "Claim a key: exactly one caller is fresh", NULL },
	{ "PUT", "/v1/oauth/{state}", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_MAKES | FAILS_LIMIT,
	  oauth_api_put, NULL, OAUTH_BODY, &SHAPE_OAUTH,
	  "putOauthState", "Keep what a sign-in under way needs", NULL },
	{ "POST", "/v1/oauth/{state}/consume", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_EXPIRED,
	  oauth_api_consume, NULL, NULL, &SHAPE_OAUTH_DATA,
	  "consumeOauthState", "Take it out again, once", NULL },
	{ "POST", "/v1/queues/{table}", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | ROUTE_MAKES | FAILS_LIMIT,
	  queue_api_add, NULL, QUEUE_BODY, &SHAPE_QUEUE_STATE,
	  "addQueueItem", "Put an item into a queue", NULL },
	{ "GET", "/v1/queues/{table}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  queue_api_list, QUEUE_LIST_QUERY, NULL, &SHAPE_QUEUE_PAGE,
	  "listQueueItems", "List the items of a queue, newest first", NULL },
	{ "POST", "/v1/queues/{table}/claim", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, 0,
	  queue_api_claim, NULL, QUEUE_CLAIM_BODY, &SHAPE_QUEUE_ITEMS,
	  "claimQueueItems", "Lease items, oldest first", NULL },
	{ "GET", "/v1/queues/{table}/{id}", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  queue_api_get, NULL, NULL, &SHAPE_QUEUE_ITEM,
	  "getQueueItem", "Get an item", NULL },
	{ "POST", "/v1/queues/{table}/{id}/complete", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, FAILS_CONFLICT,
	  queue_api_complete, NULL, QUEUE_COMPLETE_BODY, &SHAPE_QUEUE_STATE,
	  "completeQueueItem", "Say that an item is done", NULL },
	{ "POST", "/v1/queues/{table}/{id}/fail", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, FAILS_CONFLICT,
	  queue_api_fail, NULL, QUEUE_FAIL_BODY, &SHAPE_QUEUE_STATE,
	  "failQueueItem", "Say that an attempt failed", NULL },
	{ "POST", "/v1/queues/{table}/{id}/extend", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, FAILS_CONFLICT,
	  queue_api_extend, NULL, QUEUE_EXTEND_BODY, &SHAPE_QUEUE_LEASE,
	  "extendQueueItem", "Keep an item for longer", NULL },
	{ "POST", "/v1/queues/{table}/{id}/retry", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  queue_api_retry, NULL, NULL, &SHAPE_QUEUE_STATE,
	  "retryQueueItem", "Give a failed item one more attempt", NULL },
	{ "GET", "/v1/queues", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  queue_api_depths, NULL, NULL, &SHAPE_QUEUE_DEPTHS,
	  "listQueues", "Count the items of every queue by state", NULL },
	{ "POST", "/v1/outbox", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | FAILS_LIMIT,
	  outbox_api_add, NULL, OUTBOX_BODY, &SHAPE_OUTBOX_ADDED,
	  "addOutboxRow", "Append a row to the outbox", NULL },
	{ "GET", "/v1/outbox", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  outbox_api_read, OUTBOX_QUERY, NULL, &SHAPE_OUTBOX,
	  "readOutbox", "Read the outbox in order, and wait for more", NULL },
	{ "PUT", "/v1/outbox/consumers/{name}", SCOPE_TABLES, CALLER_ANY, BODY_JSON, TX_WRITE, FAILS_CONFLICT | FAILS_LIMIT,
	  outbox_api_consumer_put, NULL, OUTBOX_CONSUMER_BODY, &SHAPE_OUTBOX_CONSUMER,
	  "putOutboxConsumer", "Say how far a consumer has read", NULL },
	{ "GET", "/v1/outbox/consumers", SCOPE_TABLES, CALLER_ANY, BODY_NONE, TX_READ, 0,
	  outbox_api_consumers, PAGE_FIELDS, NULL, &SHAPE_OUTBOX_CONSUMER_PAGE,
	  "listOutboxConsumers", "List the consumers and how far behind they are", NULL },
	{ "PUT", "/v1/cache/models_dev", SCOPE_TABLES, CALLER_ADMIN, BODY_JSON, TX_WRITE, 0,
	  models_cache_api_put, NULL, CACHE_BODY, &SHAPE_CACHE,
	  "putModelsCache", "Replace the one cache row", NULL },
	{ "GET", "/v1/cache/models_dev", SCOPE_TABLES, CALLER_ADMIN, BODY_NONE, TX_READ, FAILS_MISSING,
	  models_cache_api_get, NULL, NULL, &SHAPE_CACHE,
	  "getModelsCache", "Get the one cache row", NULL },

	{ "GET", "/v1/matrix", SCOPE_ENGINE, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  matrix_api_get, NULL, NULL, &SHAPE_MATRIX,
	  "getMatrix", "List every bound, with its rows and its last sweep", NULL },
	{ "GET", "/v1/why", SCOPE_EVENTS, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  why_api_get, WHY_QUERY, NULL, &SHAPE_WHY,
	  "explainThing", "Tell what happened to a thing, and when and why it will go", NULL },
	{ "POST", "/v1/sweep/{scheduler}", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_NONE, FAILS_CONFLICT,
	  sweep_api_run, SWEEP_QUERY, NULL, &SHAPE_SWEEP,
	  "runSweep", "Run one sweep now", NULL },
	{ "GET", "/v1/holds", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  hold_api_list, PAGE_FIELDS, NULL, &SHAPE_HOLD_PAGE,
	  "listHolds", "List holds", NULL },
	{ "PUT", "/v1/holds/{table}/{key}", SCOPE_ENGINE, CALLER_ADMIN, BODY_JSON, TX_WRITE, ROUTE_ETAG | FAILS_LIMIT,
	  hold_api_put, NULL, HOLD_BODY, &SHAPE_HOLD,
	  "placeHold", "Keep a row from being removed", NULL },
	{ "GET", "/v1/holds/{table}/{key}", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_READ, ROUTE_ETAG,
	  hold_api_get, NULL, NULL, &SHAPE_HOLD,
	  "getHold", "Get a hold", NULL },
	{ "DELETE", "/v1/holds/{table}/{key}", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_WRITE, FAILS_MATCH,
	  hold_api_delete, NULL, NULL, &SHAPE_RELEASED,
	  "releaseHold", "Release a hold", NULL },
	{ "GET", "/v1/contracts", SCOPE_CONTRACTS, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  contract_api_list, NULL, NULL, &SHAPE_CONTRACT_PAGE,
	  "listContracts", "The contracts that are kept here", NULL },
	{ "GET", "/v1/contracts/{name}", SCOPE_CONTRACTS, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  contract_api_get, NULL, NULL, &SHAPE_CONTRACT,
	  "getContract", "One contract: its bounds, their state, its leases", NULL },
	{ "POST", "/v1/contracts/{name}/plan", SCOPE_CONTRACTS, CALLER_ADMIN, BODY_NONE, TX_NONE, ROUTE_LOOKS | FAILS_UPSTREAM,
	  contract_api_plan, NULL, NULL, &SHAPE_PLAN,
	  "planContract", "What a contract would remove now", NULL },
	{ "GET", "/v1/approvals", SCOPE_CONTRACTS, CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  approval_api_list, NULL, NULL, &SHAPE_APPROVAL_PAGE,
	  "listApprovals", "Sweeps that wait for a person", NULL },
	{ "POST", "/v1/approvals/{bound}", SCOPE_CONTRACTS, CALLER_ADMIN, BODY_NONE, TX_WRITE, 0,
	  approval_api_give, NULL, NULL, &SHAPE_APPROVAL,
	  "giveApproval", "Let a sweep go on", NULL },
	{ "GET", "/v1/dead-letters", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  dead_letter_api_list, PAGE_FIELDS, NULL, &SHAPE_DEAD_LETTER_PAGE,
	  "listDeadLetters", "List the deletions outside the store that gave up, of all owners", NULL },
	{ "POST", "/v1/dead-letters/retry", SCOPE_ENGINE, CALLER_ADMIN, BODY_JSON, TX_WRITE, 0,
	  dead_letter_api_retry_many, NULL, DEAD_LETTER_RETRY_BODY, &SHAPE_RETRIED,
	  "retryDeadLetters", "Try all such deletions again, or those of a kind or an age", NULL },
	{ "POST", "/v1/dead-letters/{id}/retry", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  dead_letter_api_retry, NULL, NULL, &SHAPE_DEAD_LETTER,
	  "retryDeadLetter", "Retry a deletion that was given up", NULL },
	{ "DELETE", "/v1/dead-letters/{id}", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  dead_letter_api_drop, NULL, NULL, &SHAPE_DROPPED,
	  "dropDeadLetter", "Drop a deletion that was given up; its target stays where it is", NULL },
	{ "GET", "/v1/clock", SCOPE_ENGINE, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  clock_api_get, NULL, NULL, &SHAPE_CLOCK,
	  "getClock", "Get trusted time, and whether the wall clock has leapt", NULL },
	{ "POST", "/v1/clock/accept", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_NONE, FAILS_CONFLICT,
	  clock_api_accept, NULL, NULL, &SHAPE_CLOCK,
	  "acceptClock", "Accept the wall clock after a leap", NULL },
	{ "GET", "/v1/whoami", SCOPE_FREE, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  whoami_api_get, NULL, NULL, &SHAPE_WHOAMI,
	  "getCaller", "Tell as whom the daemon sees the caller", NULL },
	{ "GET", "/v1/settings", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_NONE, 0,
	  settings_api_get, NULL, NULL, &SHAPE_SETTINGS,
	  "listSettings", "List the settings in force, and where each came from", NULL },
	{ "GET", "/v1/tokens", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  token_api_list, PAGE_FIELDS, NULL, &SHAPE_TOKEN_PAGE,
	  "listTokens", "List tokens, without their secrets", NULL },
	{ "POST", "/v1/tokens", SCOPE_ENGINE, CALLER_ADMIN, BODY_JSON, TX_WRITE, ROUTE_CREATES | FAILS_CONFLICT | FAILS_LIMIT,
	  token_api_create, NULL, TOKEN_BODY, &SHAPE_TOKEN,
	  "createToken", "Create a token; it is shown only once", NULL },
	{ "DELETE", "/v1/tokens/{prefix}", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_WRITE, FAILS_CONFLICT,
	  token_api_revoke, NULL, NULL, &SHAPE_REVOKED,
	  "revokeToken", "Revoke a token", NULL },
	{ "POST", "/v1/adopt", SCOPE_ENGINE, CALLER_ADMIN, BODY_JSON, TX_WRITE, FAILS_CONFLICT,
	  adopt_api_run, NULL, ADOPT_BODY, &SHAPE_ADOPTED,
	  "adoptOwner", "Make everything of another owner the caller's own", NULL },
	{ "GET", "/v1/replicas", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  replicas_api_list, NULL, NULL, &SHAPE_REPLICAS,
	  "listReplicas", "List the replicas of the cluster, and which of them sweeps what", NULL },
	{ "GET", "/v1/quotas", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  quota_api_list, PAGE_FIELDS, NULL, &SHAPE_QUOTA_PAGE,
	  "listQuotas", "List the owners that have a quota of their own", NULL },
	{ "GET", "/v1/quotas/{owner}", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_READ, ROUTE_ETAG,
	  quota_api_get, NULL, NULL, &SHAPE_QUOTA,
	  "getQuota", "Get the quota of an owner", NULL },
	{ "PUT", "/v1/quotas/{owner}", SCOPE_ENGINE, CALLER_ADMIN, BODY_JSON, TX_WRITE, ROUTE_ETAG | FAILS_LIMIT,
	  quota_api_put, NULL, QUOTA_BODY, &SHAPE_QUOTA,
	  "setQuota", "Give an owner limits of its own", NULL },
	{ "DELETE", "/v1/quotas/{owner}", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_WRITE, 0,
	  quota_api_delete, NULL, NULL, &SHAPE_QUOTA_DELETED,
	  "deleteQuota", "Take the quota of an owner away: the settings hold again", NULL },
	{ "GET", "/v1/events/list", SCOPE_EVENTS, CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  events_api_list, EVENTS_LIST_QUERY, NULL, &SHAPE_EVENT_PAGE,
	  "listEvents", "List events after a cursor, oldest first", NULL },
	{ "GET", "/v1/events", SCOPE_EVENTS, CALLER_ANY, BODY_NONE, TX_NONE, ROUTE_STREAM | FAILS_LIMIT,
	  stream_api_open, STREAM_QUERY, NULL, NULL,
	  "followEvents", "Follow events as they happen (server-sent events)", NULL },
	{ "POST", "/v1/backup", SCOPE_ENGINE, CALLER_ADMIN, BODY_NONE, TX_WRITE, ROUTE_CREATES,
	  backup_api_make, NULL, NULL, &SHAPE_BACKUP,
	  "makeBackup", "Write a consistent copy of the database into backups/", NULL },

	{ "GET", "/healthz", SCOPE_FREE, CALLER_PUBLIC, BODY_NONE, TX_NONE, 0,
	  probe_api_health, NULL, NULL, &SHAPE_STATUS,
	  "getHealth", "Tell whether the process is up", NULL },
	{ "GET", "/readyz", SCOPE_FREE, CALLER_PUBLIC, BODY_NONE, TX_NONE, 0,
	  probe_api_ready, NULL, NULL, &SHAPE_STATUS,
	  "getReadiness", "Tell whether the daemon can do its work, and if not, why", NULL },
	{ "GET", "/metrics", SCOPE_FREE, CALLER_LOCAL, BODY_NONE, TX_NONE, 0,
	  probe_api_metrics, NULL, NULL, NULL,
	  "getMetrics", "Get the metrics, for Prometheus", NULL },
	{ "GET", "/openapi.json", SCOPE_FREE, CALLER_LOCAL, BODY_NONE, TX_NONE, 0,
	  openapi_api_get, NULL, NULL, NULL,
	  "getOpenApi", "Get this description", NULL },

	{ "POST", "/mcp", SCOPE_FREE, CALLER_ANY, BODY_JSON, TX_NONE, ROUTE_ASIDE | ROUTE_ORIGIN,
	  mcp_api_post, NULL, NULL, NULL,
	  "callTool", "The operations as tools for agents (Model Context Protocol)", NULL },
	{ "GET", "/", SCOPE_FREE, CALLER_PUBLIC, BODY_NONE, TX_NONE, ROUTE_ASIDE | ROUTE_ETAG,
	  web_api_page, NULL, NULL, NULL,
	  "getPage", "The page for people", NULL },
	{ "GET", "/web/{file}", SCOPE_FREE, CALLER_PUBLIC, BODY_NONE, TX_NONE, ROUTE_ASIDE | ROUTE_ETAG,
	  web_api_file, NULL, NULL, NULL,
	  "getPageFile", "A file of the page", NULL },
	{ "GET", "/web/views/{file}", SCOPE_FREE, CALLER_PUBLIC, BODY_NONE, TX_NONE, ROUTE_ASIDE | ROUTE_ETAG,
	  web_api_view, NULL, NULL, NULL,
	  "getPageView", "A view of the page", NULL },
};
/* clang-format on */
const size_t ROUTES_COUNT = ARRAY_LEN(ROUTES);
_Static_assert(ARRAY_LEN(ROUTES) <= ROUTES_MAX, "raise ROUTES_MAX");

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char *percent_decode(struct arena *arena, const char *text, size_t n)
{
	if (!memchr(text, '%', n))
		return arena_strndup(arena, text, n);
	char *out = arena_alloc(arena, n + 1);
	char *o = out;

	for (size_t i = 0; i < n; i++) {
		if (text[i] != '%') {
			*o++ = text[i];
			continue;
		}
		int high = i + 2 < n ? hex_value(text[i + 1]) : -1;
		int low = high < 0 ? -1 : hex_value(text[i + 2]);
		if (low < 0 || (high == 0 && low == 0))
			return NULL;
		*o++ = (char)(high << 4 | low);
		i += 2;
	}
	*o = '\0';
	return out;
}

/* One parameter of a path: where it stands in the request. */
struct slot {
	const char *text;
	size_t n;
};

/* {name} takes any segment, everything else itself. */
static bool matches(const char *pattern, const char *path, struct slot slots[CALL_PARAMS_MAX])
{
	int n = 0;

	for (; *pattern; pattern++) {
		if (*pattern != '{') {
			if (*pattern != *path++)
				return false;
			continue;
		}
		const char *start = path;
		path = strchrnul(path, '/');
		slots[n++] = (struct slot){ start, (size_t)(path - start) };
		pattern = strchr(pattern, '}');
	}
	if (n < CALL_PARAMS_MAX)
		slots[n].text = NULL;
	return *path == '\0';
}

static int decode_params(struct arena *arena, const struct slot slots[CALL_PARAMS_MAX],
			 const char *ret_params[CALL_PARAMS_MAX])
{
	for (int i = 0; i < CALL_PARAMS_MAX && slots[i].text; i++) {
		ret_params[i] = percent_decode(arena, slots[i].text, slots[i].n);
		if (!ret_params[i])
			return LAPSE_EINVAL;
	}
	return LAPSE_OK;
}

static void add_allowed(char *allow, size_t size, const char *method)
{
	size_t n = strlen(allow);

	if (strstr(allow, method) == NULL)
		snprintf(allow + n, size - n, "%s%s%s", n ? ", " : "", method,
			 strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

bool route_writes(const struct route *r)
{
	return strcmp(r->method, "GET") != 0 && !(r->flags & ROUTE_LOOKS);
}

int route_find(const char *method, const char *path, struct arena *arena,
	       const struct route **ret_route, const char *ret_params[CALL_PARAMS_MAX], char *allow,
	       size_t allow_size)
{
	const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
	struct slot slots[CALL_PARAMS_MAX] = { 0 };

	allow[0] = '\0';
	for (size_t i = 0; i < ROUTES_COUNT; i++) {
		const char *m = ROUTES[i].method;
		if (m[0] != wanted[0] || m[1] != wanted[1] || strcmp(m, wanted) != 0 ||
		    !matches(ROUTES[i].path, path, slots))
			continue;
		*ret_route = &ROUTES[i];
		return decode_params(arena, slots, ret_params);
	}
	for (size_t i = 0; i < ROUTES_COUNT; i++)
		if (matches(ROUTES[i].path, path, slots))
			add_allowed(allow, allow_size, ROUTES[i].method);
	return allow[0] ? LAPSE_EMETHOD : LAPSE_ENOTFOUND;
}
