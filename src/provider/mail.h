/* SPDX-License-Identifier: Apache-2.0 */
/* Mail as the rooms and the providers speak of it. Plain data; the function that fills a
 * struct says how long its texts live. */
#ifndef LAPSE_PROVIDER_MAIL_H
#define LAPSE_PROVIDER_MAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

/* To add a folder: a row; the query of GET …/messages and the documentation read the names. */
#define MAIL_FOLDERS(X)                                                                            \
	X(INBOX, "inbox")                                                                          \
	X(SENT, "sent")                                                                            \
	X(DRAFTS, "drafts")                                                                        \
	X(JUNK, "junk")                                                                            \
	X(ALL, "all")

enum mail_folder {
#define X(name, text) MAIL_##name,
	MAIL_FOLDERS(X)
#undef X
};

#define MAIL_RECIPIENTS_MAX 100 /* of one mail: to, cc and bcc together */

/* A list of addresses. */
struct mail_addresses {
	const char *const *items;
	size_t count;
};

/* A mail that was received or sent. */
struct mail {
	const char *id;
	const char *from, *subject; /* "" where the mail has none */
	struct mail_addresses to, cc;
	lapse_ms received_at;
	bool read;
	const char *preview; /* the first characters of the text */
	const char *text;    /* NULL in lists, and where the mail has only HTML */
	const char *html;    /* NULL in lists, and where the mail has none */
	bool truncated;      /* a body was longer than what is given here */
	const char *files;   /* the files in it as JSON; NULL in lists, and for mail servers */
};

/* A mail to send. */
struct mail_draft {
	struct mail_addresses to, cc, bcc;
	const char *subject;
	const char *text, *html; /* NULL = none */
};

struct mail_query {
	enum mail_folder folder;
	int64_t limit;
	const char *after; /* the provider's own cursor; NULL = from the newest */
	const char *since; /* only what is newer than the mail with this id; NULL = all */
};

#endif
