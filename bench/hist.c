/* SPDX-License-Identifier: Apache-2.0 */
/* The latency histogram; see hist.h. */
#include "hist.h"

#include <assert.h>

/* Values below 2 × HIST_SUB have a bucket each; above, `shift` low bits are dropped. */
static unsigned bucket_of(uint64_t value)
{
	if (value < HIST_SUB)
		return (unsigned)value;
	const unsigned shift = 63u - (unsigned)__builtin_clzll(value) - HIST_SUB_BITS;
	return (shift + 1) * HIST_SUB + (unsigned)((value >> shift) & (HIST_SUB - 1));
}

static uint64_t upper_edge(unsigned bucket)
{
	if (bucket < HIST_SUB)
		return bucket;
	const unsigned shift = bucket / HIST_SUB - 1;
	const uint64_t low = (uint64_t)(HIST_SUB + bucket % HIST_SUB) << shift;
	return low + ((UINT64_C(1) << shift) - 1);
}

void hist_add(struct hist *h, uint64_t value)
{
	const unsigned bucket = bucket_of(value);

	assert(bucket < HIST_BUCKETS);
	h->buckets[bucket]++;
	h->count++;
	h->sum += (double)value;
	if (value > h->max)
		h->max = value;
}

uint64_t hist_quantile(const struct hist *h, double share)
{
	const double wanted = share * (double)h->count;
	uint64_t seen = 0;

	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen > 0 && (double)seen >= wanted)
			return upper_edge(i) < h->max ? upper_edge(i) : h->max;
	}
	return h->max;
}

double hist_mean(const struct hist *h)
{
	return h->count ? h->sum / (double)h->count : 0;
}
