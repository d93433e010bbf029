/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of heartbeats as CSV: every line lies inside the text, and no byte is read twice. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "presence/beats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *CLEANUP(mem_freep) text = mem_zalloc(1, size + 1);
	struct beat_line line = { 0 };
	int64_t n = 0;

	memcpy(text, data, size);
	const char *end = text + size;
	for (const char *at = text, *before; at < end;) {
		before = at;
		if (!beat_line_read(&at, end, &line))
			break;
		assert(at > before && at <= end);
		assert(line.agent >= before && line.agent + line.agent_len <= at);
		assert(line.cluster >= before && line.cluster + line.cluster_len <= at);
		assert(!memchr(line.agent, ',', line.agent_len));
	}
	struct fleet *f = fleet_new(90000, 30000, (struct breaker_rule){ .least = 1 }, 1000);
	assert(!beats_touch(f, "o", text, size, 2000, &n) || n == 0); /* it knows no agent */
	fleet_free(f);
	return 0;
}
