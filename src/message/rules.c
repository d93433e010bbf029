/* SPDX-License-Identifier: Apache-2.0 */
#include "message/rules.h"

#include <assert.h>

enum message_verdict message_judge(bool read, lapse_ms timestamp, lapse_ms ttl, lapse_ms now)
{
	return read && time_sub(now, timestamp) > ttl ? MESSAGE_DUE : MESSAGE_LIVE;
}

enum claim_verdict message_judge_claim(int64_t given, int64_t current)
{
	return given == CLAIM_NONE || given == current ? CLAIM_OURS : CLAIM_LOST;
}

/* A slice takes a third longer with its commit. Relaxed ones take a twentieth of the loop's time,
 * hurried ones a quarter. */
static const struct filing_pace RELAXED = { .slice_us = 100, .rest_us = 2500 };
static const struct filing_pace HURRIED = { .slice_us = 450, .rest_us = 1350 };

/* From `a` to `b`, `part` of `whole` of the way. */
static lapse_us between(lapse_us a, lapse_us b, int64_t part, int64_t whole)
{
	return a + (b - a) * part / whole;
}

struct filing_pace message_filing_pace(int64_t count, int64_t max)
{
	const int64_t from = max - 3 * (max / 8), to = max - max / 8;

	assert(count >= 0 && max > 0);
	if (count <= from)
		return RELAXED;
	if (count >= to)
		return HURRIED;
	return (struct filing_pace){
		.slice_us = between(RELAXED.slice_us, HURRIED.slice_us, count - from, to - from),
		.rest_us = between(RELAXED.rest_us, HURRIED.rest_us, count - from, to - from),
	};
}
