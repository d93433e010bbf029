/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mail as it arrived, taken apart: addresses, subject, text, HTML, and the files in it. MIME is
 * GMime's work; this says what may be in a mail, and makes plain UTF-8 of whatever it was.
 *
 * Blocks as long as the mail is large: for workers. What a stranger can make large is bounded
 * before GMime sees it (lines, and lines that can begin a part) or right after it (parts, depth,
 * files).
 */
#ifndef LAPSE_LMTP_MIME_H
#define LAPSE_LMTP_MIME_H

#include "base/err.h"
#include "base/mem.h"
#include "provider/mail.h"

#define MIME_BODY_MAX                                                                              \
	((size_t)256 << 10) /* bytes of text, and of HTML; more is cut and says so                 \
			     */
#define MIME_PARTS_MAX 200
#define MIME_DEPTH_MAX 20
#define MIME_FILES_MAX 50
#define MIME_DASHES_MAX 5000  /* lines that begin with --: each may begin a part */
#define MIME_LINE_BYTES 50    /* a mail of n bytes may have n / 50 lines, and ... */
#define MIME_LINES_FREE 10000 /* ... so many more */

/* One file of the mail, decoded. */
struct mime_file {
	const char *name; /* UTF-8 without controls and slashes, 1 to 255 bytes */
	const char *type; /* image/png */
	const char *bytes;
	size_t size;
};

/* Everything lives in the arena. */
struct mime_mail {
	struct arena arena;
	const char *from, *subject; /* "" = it has none */
	struct mail_addresses to, cc;
	const char *text, *html; /* NULL = none */
	bool truncated;
	struct mime_file files[MIME_FILES_MAX];
	size_t files_count;
};

/* Once per process, before any thread. */
void mime_init(void);

/* LAPSE_EINVAL when it is more than the limits above: `p` says which one, in a few words. Anything
 * else is a mail, however broken. The mail must be released in both cases. */
int mime_parse(const char *bytes, size_t n, struct mime_mail *ret, struct problem *p);
void mime_done(struct mime_mail *m);

#endif
