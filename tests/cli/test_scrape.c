/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers from a page of metrics, and percentiles from the difference of two histograms. */
#include "cli/top/scrape.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/metrics.h"

static const char PAGE[] =
	"# HELP lapse_requests_total Answers\n"
	"# TYPE lapse_requests_total counter\n"
	"lapse_requests_total{route=\"/a\",status=\"200\"} 3\n"
	"lapse_requests_total{route=\"/b}\\\"{\",status=\"404\"} 4.5 1700000000000\n"
	"lapse_requests_total_more 100\n"
	"lapse_plain 1e3\n"
	"lapse_broken{state=\"live\" 1\n"
	"lapse_empty{} \n"
	"lapse_last 9";

static void samples_are_added_up(void **state)
{
	(void)state;
	assert_true(scrape_sum(PAGE, "lapse_requests_total") == 7.5);
	assert_true(scrape_sum(PAGE, "lapse_plain") == 1000);
	assert_true(scrape_sum(PAGE, "lapse_last") == 9);
}

static void what_is_not_there_is_not_a_number(void **state)
{
	static const char *const names[] = { "lapse_request", "lapse",       "",
					     "lapse_broken",  "lapse_empty", "# HELP",
					     "lapse_last9" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_true(isnan(scrape_sum(PAGE, names[i])));
	assert_true(isnan(scrape_sum("", "x")));
}

/* As the daemon writes it, so that the two halves fit. */
static void read_back(const struct histogram *a, const struct histogram *b, struct buckets *ret)
{
	struct buf text = { 0 };

	metrics_family(&text, METRIC_SWEEP_SECONDS);
	metrics_histogram(&text, METRIC_SWEEP_SECONDS, "scheduler=\"a\"", HISTOGRAM_SECONDS, a,
			  true);
	if (b)
		metrics_histogram(&text, METRIC_SWEEP_SECONDS, "scheduler=\"b\"", HISTOGRAM_SECONDS,
				  b, true);
	scrape_buckets(buf_text(&text), "lapse_sweep_seconds", ret);
	buf_done(&text);
}

static void a_histogram_is_read_back(void **state)
{
	struct histogram a = { 0 }, b = { 0 };
	struct buckets got;

	(void)state;
	histogram_add_many(&a, HISTOGRAM_SECONDS, 20, 3);
	histogram_add(&b, HISTOGRAM_SECONDS, 20);
	histogram_add_many(&b, HISTOGRAM_SECONDS, 100000000, 2);
	read_back(&a, &b, &got);
	assert_int_equal(got.n, HISTOGRAM_BUCKETS + 1);
	assert_true(got.counts[0] == 4 && got.bounds[0] == 25e-6);
	assert_true(got.counts[got.n - 1] == 2 && isinf(got.bounds[got.n - 1]));
	assert_true(buckets_total(&got) == 6);
	scrape_buckets("nothing 1\n", "lapse_sweep_seconds", &got);
	assert_int_equal(got.n, 0);
}

static void too_many_buckets_are_ignored(void **state)
{
	char text[8192];
	struct buckets got;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 100; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "h_bucket{le=\"%d\"} %d\n", i, i);
	scrape_buckets(text, "h", &got);
	assert_int_equal(got.n, BUCKETS_MAX);
	scrape_buckets("h_bucket{le=\"NaN\"} 1\nh_bucket{role=\"1\"} 2\n", "h", &got);
	assert_int_equal(got.n, 0);
	scrape_buckets("h_bucket{role=\"1\",le=\"2\"} 3\n", "h", &got);
	assert_true(got.n == 1 && got.bounds[0] == 2 && got.counts[0] == 3);
}

static void percentiles_are_those_of_the_time_between(void **state)
{
	struct histogram h = { 0 };
	struct buckets before, now, since;

	(void)state;
	histogram_add_many(&h, HISTOGRAM_SECONDS, 9000000, 1000); /* long ago and slow */
	read_back(&h, NULL, &before);
	histogram_add_many(&h, HISTOGRAM_SECONDS, 900, 98); /* 0.5 ms … 1 ms */
	histogram_add_many(&h, HISTOGRAM_SECONDS, 4000, 2); /* 2.5 ms … 5 ms */
	read_back(&h, NULL, &now);
	buckets_since(&now, &before, &since);
	assert_true(buckets_total(&since) == 100);
	assert_true(fabs(buckets_quantile(&since, 0.5) - 0.000755) < 0.00001);
	assert_true(fabs(buckets_quantile(&since, 0.99) - 0.00375) < 0.00001);
	buckets_since(&now, &now, &since);
	assert_true(isnan(buckets_quantile(&since, 0.5)));
}

static void a_counter_that_began_anew_counts_from_zero(void **state)
{
	struct histogram old = { 0 }, young = { 0 };
	struct buckets before, now, since;

	(void)state;
	histogram_add_many(&old, HISTOGRAM_SECONDS, 900, 50);
	histogram_add_many(&young, HISTOGRAM_SECONDS, 900, 3);
	read_back(&old, NULL, &before);
	read_back(&young, NULL, &now);
	buckets_since(&now, &before, &since);
	assert_true(buckets_total(&since) == 3);
	before.n = 0;
	buckets_since(&now, &before, &since);
	assert_true(buckets_total(&since) == 3);
}

static void beyond_the_last_bound_is_the_last_bound(void **state)
{
	struct buckets b = { .bounds = { 1, 2, INFINITY }, .counts = { 0, 0, 5 }, .n = 3 };

	(void)state;
	assert_true(buckets_quantile(&b, 0.99) == 2);
	b = (struct buckets){ .bounds = { INFINITY }, .counts = { 1 }, .n = 1 };
	assert_true(buckets_quantile(&b, 0.5) == 0);
	b = (struct buckets){ .bounds = { 1, 2 }, .counts = { 1, 1 }, .n = 2 };
	assert_true(buckets_quantile(&b, 1) == 2 && buckets_quantile(&b, 0.5) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_are_added_up),
		cmocka_unit_test(what_is_not_there_is_not_a_number),
		cmocka_unit_test(a_histogram_is_read_back),
		cmocka_unit_test(too_many_buckets_are_ignored),
		cmocka_unit_test(percentiles_are_those_of_the_time_between),
		cmocka_unit_test(a_counter_that_began_anew_counts_from_zero),
		cmocka_unit_test(beyond_the_last_bound_is_the_last_bound),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
