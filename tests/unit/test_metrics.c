/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus' text format, to the byte. */
#include <string.h>

#include "base/metrics.h"
#include "unit.h"

static void writes_families_and_samples(void **state)
{
	struct buf CLEANUP(buf_done) b = { 0 };

	(void)state;
	metrics_family(&b, METRIC_PRUNED);
	metrics_sample(&b, METRIC_PRUNED, "scheduler=\"messages\",table=\"messages\"", 0);
	metrics_sample(&b, METRIC_PRUNED, "", INT64_MAX);
	metrics_family(&b, METRIC_OLDEST_DUE);
	metrics_sample_real(&b, METRIC_OLDEST_DUE, "table=\"messages\"", 1.5);
	assert_string_equal(
		buf_text(&b),
		"# HELP lifecycle_prune_rows_total Rows removed by sweeps\n"
		"# TYPE lifecycle_prune_rows_total counter\n"
		"lifecycle_prune_rows_total{scheduler=\"messages\",table=\"messages\"} 0\n"
		"lifecycle_prune_rows_total 9223372036854775807\n"
		"# HELP lapse_oldest_due_seconds Age of the oldest due row\n"
		"# TYPE lapse_oldest_due_seconds gauge\n"
		"lapse_oldest_due_seconds{table=\"messages\"} 1.5\n");
}

static void a_value_lands_in_its_bucket(void **state)
{
	static const struct {
		enum histogram_unit unit;
		int64_t value;
		int bucket;
	} cases[] = {
		{ HISTOGRAM_REQUESTS, -1, 0 },
		{ HISTOGRAM_REQUESTS, 0, 0 },
		{ HISTOGRAM_REQUESTS, 1, 0 },
		{ HISTOGRAM_REQUESTS, 2, 1 },
		{ HISTOGRAM_REQUESTS, 3, 2 },
		{ HISTOGRAM_REQUESTS, 8192, 13 },
		{ HISTOGRAM_REQUESTS, 8193, 14 },
		{ HISTOGRAM_SECONDS, 25, 0 },
		{ HISTOGRAM_SECONDS, 26, 1 },
		{ HISTOGRAM_SECONDS, 10000000, 13 },
		{ HISTOGRAM_SECONDS, 10000001, 14 },
		{ HISTOGRAM_LAG, 1000, 0 },
		{ HISTOGRAM_LAG, INT64_C(36000000001), 14 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct histogram h = { 0 };
		histogram_add(&h, cases[i].unit, cases[i].value);
		for (int k = 0; k <= HISTOGRAM_BUCKETS; k++)
			if (h.counts[k] != (k == cases[i].bucket))
				fail_msg("case %zu, bucket %d", i, k);
		assert_int_equal(h.sum, cases[i].value > 0 ? cases[i].value : 0);
	}
}

static void writes_cumulative_histograms(void **state)
{
	struct buf CLEANUP(buf_done) b = { 0 };
	struct histogram h = { 0 };

	(void)state;
	histogram_add(&h, HISTOGRAM_REQUESTS, 1);
	histogram_add_many(&h, HISTOGRAM_REQUESTS, 3, 5);
	histogram_add(&h, HISTOGRAM_REQUESTS, 100000);
	metrics_histogram(&b, METRIC_COMMIT_BATCH, "", HISTOGRAM_REQUESTS, &h, true);
	assert_string_equal(buf_text(&b), "lapse_commit_batch_size_bucket{le=\"1\"} 1\n"
					  "lapse_commit_batch_size_bucket{le=\"2\"} 1\n"
					  "lapse_commit_batch_size_bucket{le=\"4\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"8\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"16\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"32\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"64\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"128\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"256\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"512\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"1024\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"2048\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"4096\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"8192\"} 6\n"
					  "lapse_commit_batch_size_bucket{le=\"+Inf\"} 7\n"
					  "lapse_commit_batch_size_sum 100016\n"
					  "lapse_commit_batch_size_count 7\n");
}

static void times_are_seconds(void **state)
{
	struct buf CLEANUP(buf_done) b = { 0 };
	struct histogram h = { 0 };

	(void)state;
	histogram_add(&h, HISTOGRAM_SECONDS, 1500000);
	metrics_histogram(&b, METRIC_SWEEP_SECONDS, "scheduler=\"m\"", HISTOGRAM_SECONDS, &h, true);
	assert_non_null(strstr(buf_text(&b),
			       "lapse_sweep_seconds_bucket{scheduler=\"m\",le=\"2.5e-05\"} 0\n"));
	assert_non_null(
		strstr(buf_text(&b), "lapse_sweep_seconds_bucket{scheduler=\"m\",le=\"0.5\"} 0\n"));
	assert_non_null(
		strstr(buf_text(&b), "lapse_sweep_seconds_bucket{scheduler=\"m\",le=\"2.5\"} 1\n"));
	assert_non_null(strstr(buf_text(&b), "lapse_sweep_seconds_sum{scheduler=\"m\"} 1.5\n"
					     "lapse_sweep_seconds_count{scheduler=\"m\"} 1\n"));
}

static void without_detail_a_third_of_the_buckets(void **state)
{
	struct buf CLEANUP(buf_done) b = { 0 };
	struct histogram h = { 0 };

	(void)state;
	histogram_add(&h, HISTOGRAM_SECONDS, 30);
	histogram_add(&h, HISTOGRAM_SECONDS, 700);
	histogram_add(&h, HISTOGRAM_SECONDS, 1500000);
	metrics_histogram(&b, METRIC_COMMIT_SECONDS, "", HISTOGRAM_SECONDS, &h, false);
	assert_string_equal(buf_text(&b), "lapse_commit_seconds_bucket{le=\"0.0001\"} 1\n"
					  "lapse_commit_seconds_bucket{le=\"0.001\"} 2\n"
					  "lapse_commit_seconds_bucket{le=\"0.01\"} 2\n"
					  "lapse_commit_seconds_bucket{le=\"0.5\"} 2\n"
					  "lapse_commit_seconds_bucket{le=\"+Inf\"} 3\n"
					  "lapse_commit_seconds_sum 1.50073\n"
					  "lapse_commit_seconds_count 3\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_families_and_samples),
		cmocka_unit_test(a_value_lands_in_its_bucket),
		cmocka_unit_test(writes_cumulative_histograms),
		cmocka_unit_test(times_are_seconds),
		cmocka_unit_test(without_detail_a_third_of_the_buckets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
