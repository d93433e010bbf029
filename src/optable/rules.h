/* SPDX-License-Identifier: Apache-2.0 */
/* Operational tables: the decisions. Pure: no clock, no store, no log. */
#ifndef LAPSE_OPTABLE_RULES_H
#define LAPSE_OPTABLE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define OPTABLE_TTL_MAX_MS (INT64_C(366) * 86400000)
#define DEDUPE_PART_MAX 512 /* bytes of each part of a key */
#define QUEUE_KEY_MAX 512
#define QUEUE_ERROR_MAX 2000
#define QUEUE_LEASE_MAX_MS 86400000
#define QUEUE_ATTEMPT_MAX 1000000
#define OUTBOX_TOPIC_MAX 256
#define FENCING_TOKEN_MAX ((INT64_C(1) << 53) - 1) /* what every JSON parser reads exactly */

/* A deadline is due at it. */
static inline bool optable_is_over(lapse_ms expires_at, lapse_ms now)
{
	return expires_at <= now;
}

/* What asking for a lease comes to. */
enum lease_verdict {
	LEASE_ACQUIRE,   /* there is none */
	LEASE_TAKE_OVER, /* there is one, and its time is over */
	LEASE_RENEW,     /* the holder asks again in time: the token stays */
	LEASE_REFUSE,    /* another holder has it */
};

enum lease_verdict lease_judge(bool exists, bool same_holder, lapse_ms expires_at, lapse_ms now);

/* The token after `last`: larger, and not smaller than trusted time in microseconds, so that tokens
 * grow even when the store was restored from an old backup. */
int64_t fencing_next(int64_t last, lapse_ms now);

/* States of a work item. */
enum queue_status { QUEUE_QUEUED, QUEUE_PROCESSING, QUEUE_COMPLETED, QUEUE_FAILED, QUEUE_STATES };

const char *queue_status_name(enum queue_status s);
bool queue_status_parse(const char *name, enum queue_status *ret);

/* What becomes of an item whose attempt did not succeed: it goes back into the queue while it has
 * attempts left. */
enum queue_status queue_after_failure(int64_t attempt, int64_t attempts_max, bool retry);

/* Whether the item is with this worker and attempt, so that what it says counts. */
bool queue_is_current(enum queue_status status, bool same_worker, int64_t attempt,
		      int64_t said_attempt);

#endif
