/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A latency histogram with logarithmic buckets: 64 to each power of two, so any quantile is known
 * to 1.6 %, every uint64_t has a bucket, and adding a value is a shift and an increment.
 */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 6
#define HIST_SUB (1u << HIST_SUB_BITS)
#define HIST_BUCKETS ((64 - HIST_SUB_BITS + 1) * HIST_SUB)

struct hist {
	uint64_t buckets[HIST_BUCKETS];
	uint64_t count;
	uint64_t max;
	double sum;
};

void hist_add(struct hist *h, uint64_t value);
/* The value that `share` (0 … 1) of all values do not exceed: the upper edge of its bucket, never
 * more than the largest value added. 0 when empty. */
uint64_t hist_quantile(const struct hist *h, double share);
double hist_mean(const struct hist *h);

#endif
