/* SPDX-License-Identifier: Apache-2.0 */
#include "rooms.h"

#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "engine/hold.h"
#include "engine/housekeeping.h"
#include "engine/idempotency.h"
#include "mailbox/mailbox.h"
#include "message/message.h"
#include "presence/presence.h"
#include "provider/local.h"

const struct bound *const ROOM_BOUNDS[] = {
	&MESSAGE_BOUND,       &AGENT_BOUND,      &MAILBOX_BOUND, &MAILBOX_EXPIRED_BOUND,
	&LOCAL_MESSAGE_BOUND, &ATTACHMENT_BOUND, &EVENT_BOUND,   &IDEMPOTENCY_BOUND,
	&SWEEP_BOUND,         &TOKEN_BOUND,      &HOLD_BOUND,    NULL,
};

const struct scheduler_def ROOM_SCHEDULERS[] = {
	{ "messages", offsetof(struct settings, message_sweep_ms), EVENT_MESSAGES_TICK_FAILED,
	  false },
	{ "agents", offsetof(struct settings, agent_sweep_ms), EVENT_AGENTS_TICK_FAILED, false },
	{ "mailboxes", offsetof(struct settings, mailbox_sweep_ms), EVENT_MAILBOXES_TICK_FAILED,
	  true },
	{ "attachments", offsetof(struct settings, attachment_sweep_ms),
	  EVENT_ATTACHMENTS_TICK_FAILED, false },
	{ "housekeeping", offsetof(struct settings, housekeeping_sweep_ms),
	  EVENT_HOUSEKEEPING_TICK_FAILED, false },
	{ 0 },
};

const struct cleanup_kind *const ROOM_CLEANUPS[] = {
	&CLEANUP_FILE,
	&CLEANUP_MAILBOX,
	&CLEANUP_ATTACHMENT,
	NULL,
};
