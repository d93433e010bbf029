/* SPDX-License-Identifier: Apache-2.0 */
#include "rooms.h"

#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "engine/hold.h"
#include "engine/housekeeping.h"
#include "engine/idempotency.h"
#include "message/message.h"
#include "presence/presence.h"

const struct bound *const ROOM_BOUNDS[] = {
	&MESSAGE_BOUND, &AGENT_BOUND, &ATTACHMENT_BOUND, &EVENT_BOUND, &IDEMPOTENCY_BOUND,
	&SWEEP_BOUND,   &TOKEN_BOUND, &HOLD_BOUND,       NULL,
};

const struct scheduler_def ROOM_SCHEDULERS[] = {
	{ "messages", offsetof(struct settings, message_sweep_ms), EVENT_MESSAGES_TICK_FAILED },
	{ "agents", offsetof(struct settings, agent_sweep_ms), EVENT_AGENTS_TICK_FAILED },
	{ "attachments", offsetof(struct settings, attachment_sweep_ms),
	  EVENT_ATTACHMENTS_TICK_FAILED },
	{ "housekeeping", offsetof(struct settings, housekeeping_sweep_ms),
	  EVENT_HOUSEKEEPING_TICK_FAILED },
	{ 0 },
};

const struct cleanup_kind *const ROOM_CLEANUPS[] = { &CLEANUP_FILE, &ATTACHMENT_CLEANUP, NULL };
