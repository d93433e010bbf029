/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one owner may have, so that no owner can use up what all share. Each limit is a setting for
 * every owner, and an admin may give an owner a quota of its own, larger or smaller, which lies in
 * the store. All quotas are in memory too; the memory follows the store through effects.
 *
 * Agents and streams are counted where they live, in memory; attachments have totals of their own.
 * Inboxes and bytes are engine/usage.h. The rest is counted here, in table_counts, in the
 * transactions that change it.
 *
 * To add a limit: a row below, its setting in base/settings.h, and quota_of() where it holds.
 */
#ifndef LAPSE_ENGINE_QUOTA_H
#define LAPSE_ENGINE_QUOTA_H

#include <stdint.h>

#include "base/err.h"
#include "base/map.h"

struct engine;
struct tx;

#define QUOTAS(X)                                                                                  \
	/* name, member of the API and name of the counter, setting, help */                       \
	X(AGENTS, agents, agents_max_per_owner, "live agents")                                     \
	X(MAILBOXES, mailboxes, mailboxes_max_per_owner, "live mailboxes")                         \
	X(ATTACHMENT_BYTES, attachment_bytes, attachment_bytes_per_owner, "bytes of attachments")  \
	X(STREAMS, streams, streams_max_per_owner, "open streams of events")                       \
	X(INBOXES, inboxes, inboxes_max_per_owner, "inboxes with messages")                        \
	X(STORED_BYTES, stored_bytes, stored_bytes_per_owner,                                      \
	  "bytes of messages, mails and operational tables")

enum quota {
#define X(name, member, setting, help) QUOTA_##name,
	QUOTAS(X)
#undef X
		QUOTAS_NUMBER
};

#define QUOTA_OWNERS_MAX 10000 /* owners with a quota of their own */

struct quota_row {
	const char *name, *setting, *help;
	size_t offset; /* of the setting, in struct settings */
};
extern const struct quota_row QUOTA_ROWS[QUOTAS_NUMBER];

/* What an owner was given; a limit of 0 = none: the setting holds. */
struct owner_quota {
	const char *owner;
	int64_t limits[QUOTAS_NUMBER];
};

struct quotas {
	struct map by_owner;
	struct map usage; /* engine/usage.c */
};

int quotas_load(struct engine *e);
int quotas_reload(struct engine *e); /* the memory follows what another replica changed */
void quotas_done(struct quotas *q);

/* The limit that holds for this owner. */
int64_t quota_of(const struct engine *e, const char *owner, enum quota what);

/* LAPSE_ELIMIT, with words that name the limit and where it comes from. */
int quota_refuse(const struct engine *e, const char *owner, enum quota what, struct problem *p);

/* One more in the owner's counter, or LAPSE_ELIMIT; and one fewer. */
int quota_take(struct tx *tx, const char *owner, enum quota what, struct problem *p);
int quota_give_back(struct tx *tx, const char *owner, enum quota what);

/* Gives an owner a quota in the place of the one it had. LAPSE_ELIMIT when there are
 * QUOTA_OWNERS_MAX. */
int quota_set(struct tx *tx, const struct owner_quota *q, struct problem *p);
int quota_remove(struct tx *tx, const char *owner); /* LAPSE_ENOTFOUND */

/* Quotas of owners after `after`, by name; the row lives until fn returns. */
typedef void quota_fn(void *arg, const struct owner_quota *q);
int quota_list(struct tx *tx, const char *after, int64_t limit, quota_fn *fn, void *arg);

/* LAPSE_ENOTFOUND where an owner has none of its own. */
int quota_get(struct tx *tx, const char *owner, quota_fn *fn, void *arg);

#endif
