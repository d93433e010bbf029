/* SPDX-License-Identifier: Apache-2.0 */
#include "optable/rules.h"

#include <assert.h>
#include <string.h>

enum lease_verdict lease_judge(bool exists, bool same_holder, lapse_ms expires_at, lapse_ms now)
{
	if (!exists)
		return LEASE_ACQUIRE;
	if (optable_is_over(expires_at, now))
		return LEASE_TAKE_OVER;
	return same_holder ? LEASE_RENEW : LEASE_REFUSE;
}

int64_t fencing_next(int64_t last, lapse_ms now)
{
	int64_t time = now > FENCING_TOKEN_MAX / 1000 ? FENCING_TOKEN_MAX : now * 1000;
	int64_t next = last + 1 > time ? last + 1 : time;

	assert(last >= 0 && next > 0 && next > last);
	return next;
}

static const char *const STATUS_NAMES[QUEUE_STATES] = { [QUEUE_QUEUED] = "queued",
							[QUEUE_PROCESSING] = "processing",
							[QUEUE_COMPLETED] = "completed",
							[QUEUE_FAILED] = "failed" };

const char *queue_status_name(enum queue_status s)
{
	assert(s < QUEUE_STATES);
	return STATUS_NAMES[s];
}

bool queue_status_parse(const char *name, enum queue_status *ret)
{
	for (int i = 0; i < QUEUE_STATES; i++)
		if (strcmp(name, STATUS_NAMES[i]) == 0) {
			*ret = (enum queue_status)i;
			return true;
		}
	return false;
}

enum queue_status queue_after_failure(int64_t attempt, int64_t attempts_max, bool retry)
{
	assert(attempt >= 1 && attempts_max >= 1);
	return retry && attempt < attempts_max ? QUEUE_QUEUED : QUEUE_FAILED;
}

bool queue_is_current(enum queue_status status, bool same_worker, int64_t attempt,
		      int64_t said_attempt)
{
	return status == QUEUE_PROCESSING && same_worker && attempt == said_attempt;
}
