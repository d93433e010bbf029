/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers from Prometheus' text format: sums of samples, and histograms whose differences give the
 * percentiles of a stretch of time. Pure: no I/O, no clock.
 */
#ifndef LAPSE_CLI_SCRAPE_H
#define LAPSE_CLI_SCRAPE_H

#include <stdbool.h>
#include <stddef.h>

#define BUCKETS_MAX 32 /* of a histogram; more are ignored */

/* Each bucket with its own count, not the sum of those below it. */
struct buckets {
	double bounds[BUCKETS_MAX]; /* upper bounds, growing; the last may be infinite */
	double counts[BUCKETS_MAX];
	size_t n;
};

/* The sum of the family's samples. Not a number when there is none. */
double scrape_sum(const char *text, const char *family);

/* The histogram, its label sets added up; without buckets when the family is not there. */
void scrape_buckets(const char *text, const char *family, struct buckets *ret);

/* What came into `now` since `before`; all of it when a counter began anew or nothing is known. */
void buckets_since(const struct buckets *now, const struct buckets *before, struct buckets *ret);

double buckets_total(const struct buckets *b);

/* The value below which the part `q` of all lies, interpolated within its bucket; the largest
 * finite bound when it is beyond. Not a number when there is nothing. */
double buckets_quantile(const struct buckets *b, double q);

#endif
