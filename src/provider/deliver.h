/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivery into mailboxes of the provider `local`: who has the address, and one row in its inbox.
 * Mail that mailboxes send to each other (provider/local.c) and mail that arrives by LMTP come
 * together here, so both count, announce and wake in the same way.
 */
#ifndef LAPSE_PROVIDER_DELIVER_H
#define LAPSE_PROVIDER_DELIVER_H

#include "engine/tx.h"
#include "provider/mail.h"

/* A mailbox that a mail goes to. */
struct local_target {
	int64_t mailbox;
	const char *owner, *address;
	lapse_ms expires_at;
};

/* A mail as the table has it. */
struct local_mail {
	const char *sender, *subject;
	const char *recipients, *cc; /* local_pack() */
	const char *preview;         /* local_preview() */
	const char *body, *html;     /* NULL = none */
	const char *files;           /* JSON, as GET shows it; NULL = none */
	bool truncated;              /* a body was cut */
};

/* The live mailbox with this address, in any case of letters. 1 = found, 0 = there is none. Texts
 * of *ret live in the arena. */
int local_find(struct db *db, const char *address, lapse_ms now, struct arena *arena,
	       struct local_target *ret);

/* Puts the mail into the inbox (unread, with an event, and readers are woken) or among the sent
 * ones. LAPSE_ELIMIT when the mailbox has mailbox_unread_max unread mails. */
int local_store(struct tx *tx, const struct local_target *t, enum mail_folder folder,
		const struct local_mail *m, int64_t *ret_id, struct problem *p);

/* A list of addresses as JSON. */
const char *local_pack(struct arena *arena, const struct mail_addresses *list);

/* The first characters of the text, or of the HTML without its tags, on one line. */
const char *local_preview(struct arena *arena, const char *text, const char *html);

/* What a call waits for (api/wait.h) that waits for mail in the mailbox. */
const char *local_wait_key(struct arena *arena, int64_t mailbox);

/* Wakes such calls once the transaction is durable. */
void local_wake(struct tx *tx, int64_t mailbox);

#endif
