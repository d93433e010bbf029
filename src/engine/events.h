/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: what happened, written in the transaction that made it true. One a fact for single
 * operations, one a batch for sweeps.
 *
 * To add an event: a row below, and event_add() in the operation that makes it true.
 */
#ifndef LAPSE_ENGINE_EVENTS_H
#define LAPSE_ENGINE_EVENTS_H

#include "base/buf.h"
#include "base/clock.h"

struct tx;

#define EVENTS(X)                                                                                  \
	X(MESSAGE_SENT, "message.sent")                                                            \
	X(MESSAGE_READ, "message.read")                                                            \
	X(MESSAGE_PRUNED, "message.pruned")                                                        \
	X(AGENT_SEEN, "agent.seen")                                                                \
	X(AGENT_EVICTED, "agent.evicted")                                                          \
	X(AGENT_SUSPECTED, "agent.suspected")                                                      \
	X(AGENT_DELETED, "agent.deleted")                                                          \
	X(BREAKER_TRIPPED, "breaker.tripped")                                                      \
	X(BREAKER_RELEASED, "breaker.released")                                                    \
	X(MAILBOX_CREATED, "mailbox.created")                                                      \
	X(MAILBOX_RECEIVED, "mailbox.received")                                                    \
	X(MAILBOX_RENEWED, "mailbox.renewed")                                                      \
	X(MAILBOX_EXPIRED, "mailbox.expired")                                                      \
	X(MAILBOX_CLEANUP_FAILED, "mailbox.cleanup_failed")                                        \
	X(MAILBOX_DEAD_LETTER, "mailbox.dead_letter")                                              \
	X(MAILBOX_DELETED, "mailbox.deleted")                                                      \
	X(ATTACHMENT_STAGED, "attachment.staged")                                                  \
	X(ATTACHMENT_CLEANED, "attachment.cleaned")                                                \
	X(WEBHOOK_DISABLED, "webhook.disabled")                                                    \
	X(HOLD_PLACED, "hold.placed")                                                              \
	X(HOLD_RELEASED, "hold.released")                                                          \
	X(LEASE_ACQUIRED, "lease.acquired")                                                        \
	X(LEASE_RELEASED, "lease.released")                                                        \
	X(LEASE_EXPIRED, "lease.expired")                                                          \
	X(STATESTORE_PRUNED, "statestore.lifecycle_pruned")                                        \
	X(OUTBOX_PRUNED, "outbox.lifecycle_pruned")                                                \
	X(STATESTORE_TICK_FAILED, "statestore.lifecycle_tick_failed")                              \
	X(OUTBOX_TICK_FAILED, "outbox.lifecycle_tick_failed")                                      \
	X(TOKEN_CREATED, "token.created")                                                          \
	X(TOKEN_REVOKED, "token.revoked")                                                          \
	X(BACKUP_MADE, "backup.made")                                                              \
	X(STORE_RESTORED, "store.restored")                                                        \
	X(SETTINGS_IN_FORCE, "settings.in_force")                                                  \
	X(CLOCK_JUMPED, "clock.jumped")                                                            \
	X(CLOCK_ACCEPTED, "clock.accepted")                                                        \
	X(OWNER_ADOPTED, "owner.adopted")                                                          \
	X(CONTRACT_LOADED, "contract.loaded")                                                      \
	X(CONTRACT_REFUSED, "contract.refused")                                                    \
	X(APPROVAL_WANTED, "approval.wanted")                                                      \
	X(APPROVAL_GIVEN, "approval.given")                                                        \
	X(REPLICA_JOINED, "replica.joined")                                                        \
	X(REPLICA_LEFT, "replica.left")                                                            \
	X(LEASE_MOVED, "lease.moved")                                                              \
	X(DEAD_LETTER, "cleanup.dead_letter")                                                      \
	X(HOUSEKEEPING_PRUNED, "housekeeping.lifecycle_pruned")                                    \
	X(AGENTS_TICK_FAILED, "agents.lifecycle_tick_failed")                                      \
	X(MAILBOXES_TICK_FAILED, "mailboxes.lifecycle_tick_failed")                                \
	X(MESSAGES_TICK_FAILED, "messages.lifecycle_tick_failed")                                  \
	X(ATTACHMENTS_TICK_FAILED, "attachments.lifecycle_tick_failed")                            \
	X(HOUSEKEEPING_TICK_FAILED, "housekeeping.lifecycle_tick_failed")

enum event_kind {
	EVENT_NONE,
#define X(name, text) EVENT_##name,
	EVENTS(X)
#undef X
};

const char *event_name(enum event_kind kind);

/* Adds the event to the transaction. `data` is a JSON object, finished by the caller. It reaches
 * the ring when the transaction is durable. */
int event_add(struct tx *tx, const char *owner, enum event_kind kind, const struct buf *data);

/* Tells of a row that is its own event (engine/eventlog.h), whose sequence is its id. `data` may be
 * empty unless events_are_followed(). */
void event_tell(struct tx *tx, const char *owner, enum event_kind kind, int64_t seq,
		const struct buf *data);
bool events_are_followed(const struct tx *tx);

/* Such a row goes before its event does: leaves the event in the table. */
int event_leave(struct tx *tx, const char *owner, enum event_kind kind, int64_t seq, lapse_ms at,
		const struct buf *data);

/* The same by the kind's name, which must live as long as the transaction: for bounds and
 * schedulers, which may come from a contract. */
int event_add_named(struct tx *tx, const char *owner, const char *kind, const struct buf *data);

/* Many of one kind, in their order, for less than as many event_add(). */
struct event_fact {
	const char *owner, *data; /* as above */
};
int events_add(struct tx *tx, enum event_kind kind, const struct event_fact *facts, size_t n);

/* An event as a stream sends it (docs/events.md): the same bytes whether it comes from the ring or
 * from the table. */
void event_write(struct buf *out, int64_t seq, lapse_ms at, const char *owner, const char *kind,
		 const char *data);

#endif
