/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <assert.h>
#include <inttypes.h>

#include "base/mem.h"

static const struct {
	const char *name, *type, *help;
} FAMILIES[] = {
#define X(id, name, type, help) { name, type, help },
	METRICS(X)
#undef X
};

static const int64_t BOUNDS[][HISTOGRAM_BUCKETS] = {
	[HISTOGRAM_SECONDS] = { 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 100000,
				500000, 2500000, 10000000 },
	[HISTOGRAM_LAG] = { 1000, 5000, 20000, 100000, 500000, 1000000, 5000000, 15000000, 30000000,
			    60000000, 300000000, 1800000000, 7200000000, 36000000000 },
	[HISTOGRAM_REQUESTS] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192 },
};

void histogram_add_many(struct histogram *h, enum histogram_unit unit, int64_t value,
			uint64_t times)
{
	int i = 0;

	assert((size_t)unit < ARRAY_LEN(BOUNDS));
	while (i < HISTOGRAM_BUCKETS && value > BOUNDS[unit][i])
		i++;
	h->counts[i] += times;
	if (value > 0)
		h->sum += (uint64_t)value * times;
}

void histogram_add(struct histogram *h, enum histogram_unit unit, int64_t value)
{
	histogram_add_many(h, unit, value, 1);
}

void metrics_family(struct buf *out, enum metric m)
{
	assert(FAMILIES[m].name && FAMILIES[m].help && FAMILIES[m].type);
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", FAMILIES[m].name, FAMILIES[m].help,
		   FAMILIES[m].name, FAMILIES[m].type);
}

static void sample_name(struct buf *out, enum metric m, const char *suffix, const char *labels)
{
	assert(FAMILIES[m].name && labels);
	buf_printf(out, "%s%s", FAMILIES[m].name, suffix);
	if (labels[0])
		buf_printf(out, "{%s}", labels);
}

void metrics_sample(struct buf *out, enum metric m, const char *labels, int64_t value)
{
	sample_name(out, m, "", labels);
	buf_printf(out, " %" PRId64 "\n", value);
}

void metrics_sample_real(struct buf *out, enum metric m, const char *labels, double value)
{
	sample_name(out, m, "", labels);
	buf_printf(out, " %.6g\n", value);
}

void metrics_sample_exact(struct buf *out, enum metric m, const char *labels, double value)
{
	sample_name(out, m, "", labels);
	buf_printf(out, " %.3f\n", value);
}

void metrics_sum(struct buf *out, enum metric m, const char *labels, double sum, int64_t count)
{
	sample_name(out, m, "_sum", labels);
	buf_printf(out, " %.9g\n", sum);
	sample_name(out, m, "_count", labels);
	buf_printf(out, " %" PRId64 "\n", count);
}

static double scale(enum histogram_unit unit)
{
	return unit == HISTOGRAM_REQUESTS ? 1.0 : 1e-6;
}

/* Of HISTOGRAM_SECONDS: 100 µs, 1 ms, 10 ms, 500 ms. */
#define COARSE_STEP 3
#define COARSE_FIRST 2

void metrics_histogram(struct buf *out, enum metric m, const char *labels, enum histogram_unit unit,
		       const struct histogram *h, bool detail)
{
	const char *comma = labels[0] ? "," : "";
	uint64_t total = 0;

	for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		total += h->counts[i];
		if (!detail && i % COARSE_STEP != COARSE_FIRST)
			continue;
		buf_printf(out, "%s_bucket{%s%sle=\"%.6g\"} %" PRIu64 "\n", FAMILIES[m].name,
			   labels, comma, (double)BOUNDS[unit][i] * scale(unit), total);
	}
	total += h->counts[HISTOGRAM_BUCKETS];
	buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", FAMILIES[m].name, labels, comma,
		   total);
	sample_name(out, m, "_sum", labels);
	buf_printf(out, " %.9g\n", (double)h->sum * scale(unit));
	sample_name(out, m, "_count", labels);
	buf_printf(out, " %" PRIu64 "\n", total);
}
