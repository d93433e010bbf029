/* SPDX-License-Identifier: Apache-2.0 */
/* Pure decisions about webhooks: what a valid one is, what a post contains, and how long to pause
 * after a failure. */
#ifndef LAPSE_WEBHOOK_RULES_H
#define LAPSE_WEBHOOK_RULES_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

#define WEBHOOK_URL_MAX 2000
#define WEBHOOK_TYPES_MAX 50
#define WEBHOOK_TYPE_MAX 64
#define WEBHOOK_SECRET_TEXT_MAX 128
#define WEBHOOK_RETRY_MAX_MS 300000 /* the longest pause between two attempts */

/* http or https, with a host and without a user. LAPSE_EINVAL. */
int webhook_check_url(const char *url, struct problem *p);

/* "*", an event's name, or the beginning of one and ".*". LAPSE_EINVAL. */
int webhook_check_type(const char *type, struct problem *p);
bool webhook_type_matches(const char *type, const char *kind);

/* whsec_ and 24 to 64 bytes in Base64 (Standard Webhooks). LAPSE_EINVAL. */
int webhook_check_secret(const char *secret, struct problem *p);
void webhook_make_secret(struct buf *out);

/* The value of the header webhook-signature. The secret must have been checked. */
void webhook_sign(const char *secret, const char *id, int64_t at_s, const char *body, size_t n,
		  struct buf *out);

/* An event, as the text of a stream has it (engine/events.h). Borrowed from that text. */
struct webhook_event {
	int64_t seq;
	const char *id, *kind, *at, *data; /* id: 16 digits, at: TIME_TEXT_LEN bytes */
	size_t kind_len, data_len;
	size_t length; /* bytes of the text it took */
};
bool webhook_parse_event(const char *text, struct webhook_event *ret);

/* The event as CloudEvents 1.0 in JSON. */
void webhook_envelope(struct buf *out, const char *owner, const struct webhook_event *e);

/* The pause after so many failed attempts (1 = the first), doubled each time; `random` moves it by
 * up to half, so that hooks that failed together do not come back together. */
lapse_ms webhook_pause(lapse_ms first_ms, int64_t attempts, uint32_t random);

#endif
