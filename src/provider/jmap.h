/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JMAP (RFC 8620, 8621) as far as a mailbox needs it: request bodies, and what answers mean. Pure:
 * texts in, texts out, no I/O. What is returned lives in the arena that was given.
 *
 * Answers come from a server that may say anything. What does not make sense is LAPSE_EUPSTREAM and
 * the problem says what was missing; nothing of the answer but error types is repeated in it.
 */
#ifndef LAPSE_PROVIDER_JMAP_H
#define LAPSE_PROVIDER_JMAP_H

#include "base/json.h"
#include "base/mem.h"
#include "provider/mail.h"

#define JMAP_BODY_MAX_BYTES 262144 /* of one part of a mail; more is cut, and says so */
#define JMAP_ID_MAX 255
#define JMAP_TEXT_MAX_BYTES 16777216 /* of all parts: an honest answer has no more */

/* Request bodies: {"using":[…],"methodCalls":[["Name",{…},"id"],…]} */
enum jmap_using { JMAP_MAIL, JMAP_REGISTRY };
void jmap_begin(struct buf *b, enum jmap_using using);
void jmap_begin_call(struct buf *b, const char *name);
void jmap_end_call(struct buf *b, const char *id);
void jmap_end(struct buf *b);
/* "#key": what an earlier call answered at `path`. */
void jmap_put_reference(struct buf *b, const char *key, const char *of, const char *name,
			const char *path);

/* Answers */

/* A fresh reference to the whole answer, which must have methodResponses. About mail its texts may
 * hold NUL, since senders may write it. */
int jmap_parse(const char *text, size_t n, enum jmap_using using, json_t **ret, struct problem *p);

/* The arguments of the answer with this name and call id, borrowed. A method error in its place is
 * LAPSE_EUPSTREAM; jmap_error_type() tells its type, NULL when there is none. */
int jmap_find(const json_t *answer, const char *name, const char *id, json_t **ret,
	      struct problem *p);
const char *jmap_error_type(const json_t *answer, const char *id);

/* The type of the SetError for `key` in notCreated, notDestroyed…; NULL when there is none. */
const char *jmap_set_error(const json_t *args, const char *map, const char *key);

/* Whether a server's id can be one: 1–255 of A–Z a–z 0–9 - _ */
bool jmap_id_is_valid(const char *id);

/* The path and query of a URL, absolute or not; NULL when it has none that can be used. */
const char *jmap_path(const char *url, struct arena *arena);

struct jmap_session {
	const char *api;        /* path of the API */
	const char *account;    /* for mail */
	const char *submission; /* account for sending; NULL = none */
};
int jmap_parse_session(const char *text, size_t n, struct arena *arena, struct jmap_session *ret,
		       struct problem *p);

struct jmap_folders {
	const char *ids[MAIL_ALL]; /* by enum mail_folder; NULL = there is none */
	const char *identity;      /* that may send from the address; NULL = none, or not asked */
};
/* With `identities` the identity is asked for, too. */
void jmap_build_folders(struct buf *b, const struct jmap_session *s, bool identities);
int jmap_parse_folders(const json_t *answer, const char *address, bool identities,
		       struct arena *arena, struct jmap_folders *ret, struct problem *p);

/* Reading. `folder` NULL = all. A page is asked for with one mail more than its limit: the one too
 * many says that there is another page. LAPSE_EINVAL on "after": no cursor of ours. */
int jmap_build_list(struct buf *b, const struct jmap_session *s, const char *folder,
		    const struct mail_query *q, struct problem *p);

struct jmap_list {
	struct mail *mails;
	size_t count;
	const char *next; /* the cursor; NULL = no further page */
};
int jmap_parse_list(const json_t *answer, int64_t limit, struct arena *arena, struct jmap_list *ret,
		    struct problem *p);

/* With `mark` the mail is marked read first. */
void jmap_build_get(struct buf *b, const struct jmap_session *s, const char *id, bool mark);
int jmap_parse_get(const json_t *answer, struct arena *arena, struct mail **ret, struct problem *p);

/* Sending: the draft and its submission in one request. Blind copies are in the envelope only. */
void jmap_build_send(struct buf *b, const struct jmap_session *s, const struct jmap_folders *f,
		     const char *address, const struct mail_draft *draft);

struct jmap_sent {
	const char *email;      /* id of the mail; NULL = it was not even made */
	const char *submission; /* NULL = it was not submitted */
	bool discard;           /* no recipient got it: delete the mail that was made */
	bool ask;               /* ask what became of the recipients */
};
/* `ret` is filled as far as it is known, on errors too. */
int jmap_parse_send(const json_t *answer, struct arena *arena, struct jmap_sent *ret,
		    struct problem *p);

void jmap_build_delivery(struct buf *b, const struct jmap_session *s, const char *submission);
/* LAPSE_EINVAL on "to": a recipient was refused, and `discard` tells whether all were. An answer
 * that says nothing is LAPSE_OK. */
int jmap_parse_delivery(const json_t *answer, struct jmap_sent *sent, struct problem *p);

void jmap_build_discard(struct buf *b, const struct jmap_session *s, const char *email);

#endif
