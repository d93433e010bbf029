/* SPDX-License-Identifier: Apache-2.0 */
#include "rooms.h"

#include "api/idempotency.h"
#include "api/state.h"
#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "engine/adopt.h"
#include "engine/hold.h"
#include "engine/housekeeping.h"
#include "mailbox/mailbox.h"
#include "message/message.h"
#include "optable/optable.h"
#include "presence/presence.h"
#include "presence/suspect.h"
#include "provider/local.h"
#include "webhook/post.h"

const struct bound_spec *const ROOM_BOUNDS[] = {
	&MESSAGE_BOUND,
	&AGENT_BOUND,
	&SUSPECT_BOUND,
	&MAILBOX_BOUND,
	&MAILBOX_EXPIRED_BOUND,
	&LOCAL_MESSAGE_BOUND,
	&ATTACHMENT_BOUND,
	&EVENT_BOUND,
	&IDEMPOTENCY_BOUND,
	&SWEEP_BOUND,
	&TOKEN_BOUND,
	&HOLD_BOUND,
	&CONVERSATION_LEASE_BOUND,
	&WORKSPACE_LEASE_BOUND,
	&OAUTH_LEASE_BOUND,
	&MODELS_LEASE_BOUND,
	&PRESENCE_ENTRY_BOUND,
	&CONNECTION_BOUND,
	&DEDUPE_BOUND,
	&OAUTH_PENDING_BOUND,
	&INBOX_BOUND,
	&CHANNEL_OUTBOX_BOUND,
	&OUTBOX_BOUND,
	&OUTBOX_CONSUMER_BOUND,
	&WEBHOOK_BOUND,
	&WEBHOOK_DEAD_BOUND,
	NULL,
};

const struct scheduler_def ROOM_SCHEDULERS[] = {
	{ .name = "messages",
	  .interval = "message_sweep_ms",
	  .failed = "messages.lifecycle_tick_failed" },
	{ .name = "agents",
	  .interval = "agent_sweep_ms",
	  .failed = "agents.lifecycle_tick_failed" },
	{ .name = "mailboxes",
	  .interval = "mailbox_sweep_ms",
	  .failed = "mailboxes.lifecycle_tick_failed",
	  .outside = true },
	{ .name = "attachments",
	  .interval = "attachment_sweep_ms",
	  .failed = "attachments.lifecycle_tick_failed" },
	{ .name = "housekeeping",
	  .interval = "housekeeping_sweep_ms",
	  .failed = "housekeeping.lifecycle_tick_failed" },
	{ .name = "statestore",
	  .interval = "table_sweep_ms",
	  .failed = "statestore.lifecycle_tick_failed",
	  .pruned = "statestore.lifecycle_pruned",
	  .batch = "table_sweep_batch",
	  .batches = "table_sweep_batches" },
	{ .name = "outbox",
	  .interval = "outbox_sweep_ms",
	  .failed = "outbox.lifecycle_tick_failed",
	  .pruned = "outbox.lifecycle_pruned",
	  .batch = "table_sweep_batch",
	  .batches = "table_sweep_batches" },
	{ 0 },
};

const struct cleanup_kind *const ROOM_CLEANUPS[] = {
	&CLEANUP_FILE,
	&CLEANUP_MAILBOX,
	&CLEANUP_ATTACHMENT,
	NULL,
};

/* The outbox moves first, see optable/owned.c. */
const struct owned *const ROOM_OWNED[] = {
	OPTABLE_OWNED, MESSAGE_OWNED, PRESENCE_OWNED, MAILBOX_OWNED, ATTACHMENT_OWNED,
	WEBHOOK_OWNED, ENGINE_OWNED,  API_OWNED,      NULL,
};

const struct room *const ROOMS[] = {
	&API_ROOM,        &MESSAGE_ROOM, &PRESENCE_ROOM, &MAILBOX_ROOM,
	&ATTACHMENT_ROOM, &WEBHOOK_ROOM, NULL,
};
