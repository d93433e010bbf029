/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider `local`: mailboxes whose mail lies in this store. Mail goes from one of them to
 * others at once, in the caller's transaction, to all recipients or to none; nothing goes
 * elsewhere.
 *
 * A mail is pruned like a message: read, and more than message_ttl_ms old. Unread ones are bounded
 * by refusal (mailbox_unread_max). When a mailbox is gone its mail is, too; much of it goes in
 * slices.
 */
#ifndef LAPSE_PROVIDER_LOCAL_H
#define LAPSE_PROVIDER_LOCAL_H

#include "engine/tx.h"
#include "provider/provider.h"

extern const struct provider PROVIDER_LOCAL;
extern const struct bound_spec LOCAL_MESSAGE_BOUND;

/* The mailbox is gone, and its mail with it; *ret_left = the rest is for local_purge(). */
int local_delete(struct tx *tx, int64_t mailbox, bool *ret_left);

/* Removes mail of mailboxes that are gone until `stop` (monotonic). */
int local_purge(struct tx *tx, lapse_us stop, bool *ret_more);
int local_has_gone(struct tx *tx, bool *ret);

#endif
