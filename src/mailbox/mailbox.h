/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disposable mailboxes: the operations and their SQL. Seed 002.
 *
 * A row is `provisioning` while its account is made outside, `active` until its deadline, `expired`
 * after it, and `deleted` when its owner deleted it or when it is unknown whether its account was
 * made. The transaction that ends the mailbox also notes the deletion of its account as a cleanup
 * (engine/cleanup.h); the mail of the provider `local`, which lies in this store, goes in that
 * transaction itself. Every operation runs inside the caller's transaction.
 *
 * A mailbox expires when the first of these notices: a look at it, its deadline, a sweep. All of
 * them end in mailbox_expire(), which checks again and does nothing the second time.
 */
#ifndef LAPSE_MAILBOX_MAILBOX_H
#define LAPSE_MAILBOX_MAILBOX_H

#include <assert.h>

#include "base/id.h"
#include "base/list.h"
#include "base/seal.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "mailbox/rules.h"
#include "provider/provider.h"

/* Mail that came by LMTP, counted for each recipient. */
enum mail_arrival { MAIL_DELIVERED, MAIL_REFUSED, MAIL_DELAYED, MAIL_ARRIVALS };

#define MAILBOX_TOPIC "mailbox" /* news: a mailbox expires at this time */

/* What the room keeps in memory. */
#define MAILBOXES_MAGIC 0x4c4d4258u

struct mailboxes {
	uint32_t magic;
	lapse_ms earliest;       /* no active mailbox that may go expires before it */
	struct list provisioned; /* struct provisioning: accounts being made now */
	bool purging;            /* there is mail of mailboxes that are gone */
	lapse_us purge_next;     /* monotonic: when the next slice of it goes */
	struct seal key;         /* for the passwords of accounts */
	bool has_key;
	int64_t arrived[MAIL_ARRIVALS];
	struct provider *provider; /* where accounts live; NULL = in the store itself */
};

static inline struct mailboxes *mailboxes_of(const struct engine *e)
{
	struct mailboxes *m = engine_room(e, ROOM_MAILBOX);

	assert(m && m->magic == MAILBOXES_MAGIC);
	return m;
}

struct mailbox {
	int64_t id;
	const char *owner, *address, *username, *domain;
	enum mailbox_status status;
	lapse_ms created_at, expires_at;
	const char *provider;
	const char *stalwart_name, *stalwart_account;
	const char *secret; /* sealed */
	int64_t cleanup_failed, cleanup_attempts;
};

/* "mbx_" and 16 hex digits. */
#define MAILBOX_ID_LEN (4 + ID_TEXT_LEN)
void mailbox_id_format(int64_t id, char out[MAILBOX_ID_LEN + 1]);
bool mailbox_id_parse(const char *text, int64_t *ret);

/* A mailbox as its owner sees it. One whose time is up says so, whatever the row says. */
void mailbox_write(struct buf *out, const struct mailbox *m, lapse_ms now);

/* What a caller asks for; NULL and 0 = nothing in particular. */
struct mailbox_wish {
	const char *username, *domain;
	int64_t ttl_ms;
	int64_t id;         /* made by the caller, who has sealed the secret for it */
	const char *secret; /* sealed */
};

/* Whether a lifetime may be asked for; 0 becomes the default. */
int mailbox_check_ttl(const struct settings *s, int64_t *ttl_ms, struct problem *p);

/* Makes the row, `active` where the account lives in the store, else `provisioning`. LAPSE_EINVAL,
 * LAPSE_ECONFLICT (the name is taken), LAPSE_ELIMIT. Texts of *ret live in the arena. */
int mailbox_create(struct tx *tx, const char *owner, const struct mailbox_wish *wish,
		   struct arena *arena, struct mailbox *ret, struct problem *p);

/* The account was made: the mailbox is active from now on. LAPSE_EUNAVAILABLE when the row is not
 * `provisioning` any more. */
int mailbox_activate(struct tx *tx, struct mailbox *m);

/* No account was made: the row goes. */
int mailbox_forget(struct tx *tx, const struct mailbox *m);

/* It is unknown whether the account was made: the mailbox stays hidden, and its account is deleted.
 */
int mailbox_disown(struct tx *tx, const struct mailbox *m);

/* Finds it for its owner and decides. LAPSE_OK with *ret; LAPSE_ENOTFOUND; LAPSE_EEXPIRED for one
 * that was to be used; TX_NEEDS_WRITE in a read transaction that cannot let it expire; TX_AGAIN
 * when it has expired by this look and the caller, who gets an error, must not undo that. Texts of
 * *ret live in the arena. */
int mailbox_look(struct tx *tx, const char *owner, const char *id, enum mailbox_use use,
		 struct arena *arena, struct mailbox *ret, struct problem *p);

/* 1 = it has expired now; 0 = it is not due (any more), held, or in the grace after a restore. */
int mailbox_expire(struct tx *tx, const struct mailbox *m);

/* Lets those of the owner expire that are due, some of them. TX_NEEDS_WRITE as above. */
int mailbox_expire_owned(struct tx *tx, const char *owner);

typedef void mailbox_fn(void *arg, const struct mailbox *m);
int mailbox_list(struct tx *tx, const char *owner, bool include_expired, int64_t before,
		 int64_t limit, mailbox_fn *fn, void *arg);

/* The new deadline is now + ttl; `m` from mailbox_look() in this transaction. */
int mailbox_renew(struct tx *tx, struct mailbox *m, int64_t ttl_ms);

/* LAPSE_ENOTFOUND, LAPSE_ECONFLICT while it is held. */
int mailbox_delete(struct tx *tx, const char *owner, const char *id, struct problem *p);

/* For the rest of the room. */
#define MAILBOX_COLUMNS                                                                            \
	"id, owner, address, username, domain, status, created_at, expires_at, provider, "         \
	"stalwart_name, stalwart_account, secret, stalwart_cleanup_failed, cleanup_attempts"
struct mailbox mailbox_read_row(const struct db_query *q);
struct mailbox mailbox_copy(struct arena *arena, const struct mailbox *m);

/* 1 = found, 0 = there is none. */
int mailbox_get(struct db *db, int64_t id, struct arena *arena, struct mailbox *ret);

/* The provider the mailbox lives with; NULL = it is not configured. */
struct provider *mailbox_provider_of(const struct engine *e, const struct mailbox *m);

int mailbox_announce(struct tx *tx, enum event_kind kind, const struct mailbox *m);
void mailbox_note_deadline(struct tx *tx, lapse_ms expires_at); /* one that may be the earliest */

/* Removes the row: of a mailbox that lives, or may come to live, and of one that is over. */
int mailbox_drop_live(struct tx *tx, const struct mailbox *m);
int mailbox_drop_ended(struct tx *tx, int64_t id);
int mailbox_settled(struct tx *tx, const struct cleanup_outcome *o);

extern const struct cleanup_kind CLEANUP_MAILBOX;
extern const struct room MAILBOX_ROOM;
extern const struct bound_spec MAILBOX_BOUND;
extern const struct bound_spec MAILBOX_EXPIRED_BOUND;

#endif
