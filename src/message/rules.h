/* SPDX-License-Identifier: Apache-2.0 */
/* What the life of a message is, and at what pace messages are filed: pure decisions, no clock and
 * no store. */
#ifndef LAPSE_MESSAGE_RULES_H
#define LAPSE_MESSAGE_RULES_H

#include <stdbool.h>

#include "base/clock.h"

/* Limits of what callers give, whichever way they come. */
#define MESSAGE_TYPE_MAX 64                /* bytes */
#define MESSAGE_RECIPIENTS_MAX 1000        /* of a broadcast */
#define MESSAGE_IDS_MAX 1000               /* marked as read by name */
#define MESSAGE_VISIBILITY_MAX_MS 43200000 /* of a claim: 12 h */
#define MESSAGE_PAGE_MAX_BYTES (1 << 20)   /* contents of a page, or of a claim */
#define MESSAGE_MARK_US 5000               /* time that marking may take in one transaction */
#define MESSAGE_MARK_A_TURN 500            /* rows marked as read in one transaction */

enum message_verdict { MESSAGE_LIVE, MESSAGE_DUE };

/* Due = read, and more than `ttl` old. An unread message is live at any age. */
enum message_verdict message_judge(bool read, lapse_ms timestamp, lapse_ms ttl, lapse_ms now);

enum claim_verdict { CLAIM_OURS, CLAIM_LOST };

#define CLAIM_NONE ((int64_t)-1)

/* Whether the holder of claim `given` may mark a message that now carries claim `current` as read.
 * Without a claim the owner of the inbox always may. */
enum claim_verdict message_judge_claim(int64_t given, int64_t current);

/* Filing while requests want the store: how long a slice may take, and how long it rests after. */
struct filing_pace {
	lapse_us slice_us, rest_us;
};

/* Slices are short while the tail has room, and get longer with shorter rests as it fills. */
struct filing_pace message_filing_pace(int64_t count, int64_t max);

#endif
