/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mail on its way into mailboxes.
 *
 *	PARSING   a worker takes it apart                    delivery_start()
 *	FILING    a worker writes its files, one set for each owner, durable
 *	READY     waits for a transaction                    delivery_run(), on the loop
 *	          ... the caller makes the transaction durable, and reads `results` ...
 *	RELEASING a worker removes files that no row wanted  delivery_release()
 *
 * The files are attachments of the owner and live as long as the mailbox would, when the mail
 * came. Each recipient has a result of its own: a mailbox that is full does not stop the others.
 */
#ifndef LAPSE_LMTP_DELIVERY_H
#define LAPSE_LMTP_DELIVERY_H

#include "base/list.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "lmtp/mime.h"
#include "lmtp/session.h"
#include "provider/deliver.h"
#include "store/blob.h"

#define DELIVERY_MAGIC 0x4c4d4c44u

enum delivery_state {
	DELIVERY_NEW,
	DELIVERY_PARSING,
	DELIVERY_FILING,
	DELIVERY_READY,
	DELIVERY_RELEASING
};

struct lmtp_result {
	int code;
	const char *text;
};

/* The files of the mail for one owner. */
struct delivery_owner {
	const char *owner;
	lapse_ms expires_at;       /* the latest of this owner's mailboxes */
	struct blob *blobs;        /* one for each file */
	struct lmtp_result result; /* code 0 = they are stored */
};

struct delivery {
	uint32_t magic;
	enum delivery_state state;
	struct engine *engine;
	struct list link; /* for the door */
	void *connection; /* waits for the results; NULL = it is gone */
	void (*ready)(struct delivery *d);
	void *door;

	struct buf data; /* the mail as it came, until it is parsed */
	struct arena arena;
	const char *sender;
	const char *recipients[LMTP_RECIPIENTS_MAX];
	struct lmtp_result results[LMTP_RECIPIENTS_MAX];
	size_t recipients_count;
	int64_t reserved; /* bytes of the door's memory that it holds */

	struct mime_mail mail;
	bool parsed;
	const char *files_json;
	struct delivery_owner owners[LMTP_RECIPIENTS_MAX];
	size_t owners_count;
	struct offload offload;
	int err;
	struct problem problem;
};

/* Takes the mail out of the session. */
struct delivery *delivery_new(struct engine *e, struct lmtp_session *s);

/* Calls d->ready(d) on the loop when it is READY. */
void delivery_start(struct delivery *d);

/* Stores the mail in the transaction, and sets the results. May run again. LAPSE_OK, or the error
 * that ends the transaction. */
int delivery_run(struct delivery *d, struct tx *tx);

/* Every recipient gets the same answer. */
void delivery_refuse(struct delivery *d, int code, const char *text);

/* Frees it, when the files that no row stands for are gone. */
void delivery_release(struct delivery *d);

#endif
