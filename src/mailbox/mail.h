/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mail of a mailbox: what may be asked for, and asking for it. With a provider in the store the
 * answer is there at once; with one outside the caller has to ask it (mailbox/outside.h).
 */
#ifndef LAPSE_MAILBOX_MAIL_H
#define LAPSE_MAILBOX_MAIL_H

#include "mailbox/mailbox.h"

#define MAIL_ID_MAX 256      /* bytes of a provider's id of a mail */
#define MAIL_SUBJECT_MAX 998 /* bytes: what a header line may have */

/* "inbox" and the others of MAIL_FOLDERS; LAPSE_EINVAL. */
int mail_folder_parse(const char *name, enum mail_folder *ret, struct problem *p);

/* Addresses, how many there are, and the subject: LAPSE_EINVAL. One without any body gets an empty
 * text. */
int mail_draft_check(struct mail_draft *d, struct problem *p);

/* What an error of a provider is called. */
int mail_explain(enum provider_verb verb, int err, struct problem *p);

/*
 * Asks for mail, in a mailbox that must live: everything mailbox_look() returns, and
 *   LAPSE_OK    the answer is in `op`
 *   negative    the error, which is in op->err as well when it is the provider's
 *   MAIL_IS_OUTSIDE  its provider is outside, or not set up: nothing was asked
 * *ret is the mailbox where it lives, also on an error of the provider. Its texts live in the
 * arena; `op`, from provider_op_init(), stays the caller's.
 */
enum { MAIL_IS_OUTSIDE = 1 };
int mailbox_mail(struct tx *tx, const char *owner, const char *id, struct arena *arena,
		 struct provider_op *op, struct mailbox *ret, struct problem *p);

#endif
