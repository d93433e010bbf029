/* SPDX-License-Identifier: Apache-2.0 */
#include "message/rules.h"

enum message_verdict message_judge(bool read, lapse_ms timestamp, lapse_ms ttl, lapse_ms now)
{
	return read && time_sub(now, timestamp) > ttl ? MESSAGE_DUE : MESSAGE_LIVE;
}

enum claim_verdict message_judge_claim(int64_t given, int64_t current)
{
	return given == CLAIM_NONE || given == current ? CLAIM_OURS : CLAIM_LOST;
}
