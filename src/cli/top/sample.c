/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/sample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/json.h"

#define OWN_REQUESTS 4 /* of sample_read(), and one more in a cluster */
#define ANSWER_MS 5000 /* a frame is not worth more; the next one asks again */

/* Figures that are sums of samples, and figures that are histograms. */
static const struct {
	const char *family;
	size_t offset;
} SUMS[] = {
	{ "lapse_agents_tracked", offsetof(struct figures, agents) },
	{ "lapse_agents_suspect", offsetof(struct figures, suspects) },
	{ "lapse_http_requests_total", offsetof(struct figures, requests) },
	{ "lapse_dead_letters", offsetof(struct figures, dead_letters) },
	{ "lapse_replicas", offsetof(struct figures, replicas) },
};

static void read_figures(const char *text, struct figures *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(SUMS); i++)
		*(double *)(void *)((char *)ret + SUMS[i].offset) =
			scrape_sum(text, SUMS[i].family);
	scrape_buckets(text, "lapse_expiry_lag_seconds", &ret->lag);
	scrape_buckets(text, "lapse_commit_seconds", &ret->commit);
}

static enum outcome get(struct cli *cli, const char *path, const char *accept, struct answer *ret)
{
	struct request request = { .method = "GET",
				   .path = path,
				   .accept = accept,
				   .any_status = strcmp(path, "/readyz") == 0,
				   .timeout_ms = ANSWER_MS };

	return client_call(cli, &request, ret);
}

static json_t *take_json(struct answer *answer)
{
	json_t *json = answer->json;

	answer->json = NULL;
	return json;
}

enum outcome sample_read(struct cli *cli, struct sample *ret)
{
	struct answer CLEANUP(answer_done) ready = { 0 };
	struct answer CLEANUP(answer_done) matrix = { 0 };
	struct answer CLEANUP(answer_done) clock = { 0 };
	struct answer CLEANUP(answer_done) metrics = { 0 };
	struct answer CLEANUP(answer_done) replicas = { 0 };

	enum outcome r = get(cli, "/readyz", NULL, &ready);
	if (r == OUTCOME_OK)
		r = get(cli, "/v1/matrix", NULL, &matrix);
	if (r == OUTCOME_OK)
		r = get(cli, "/v1/clock", NULL, &clock);
	if (r == OUTCOME_OK)
		r = get(cli, "/metrics", "text/plain", &metrics);
	if (r != OUTCOME_OK)
		return r;
	*ret = (struct sample){ .at = clock_mono(cli->clock),
				.is_ready = ready.status == 200,
				.matrix = take_json(&matrix),
				.ready = take_json(&ready),
				.clock = take_json(&clock) };
	read_figures(buf_text(&metrics.text), &ret->figures);
	if (isfinite(ret->figures.replicas) &&
	    get(cli, "/v1/replicas", NULL, &replicas) == OUTCOME_OK)
		ret->replicas = take_json(&replicas);
	return OUTCOME_OK;
}

void sample_done(struct sample *s)
{
	json_decref(s->matrix);
	json_decref(s->ready);
	json_decref(s->clock);
	json_decref(s->replicas);
	*s = (struct sample){ 0 };
}

/* A number, or null for what is not one. */
static void view_put(json_t *object, const char *key, double value)
{
	json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static void view_put_count(json_t *object, const char *key, double value)
{
	json_object_set_new(object, key,
			    isfinite(value) ? json_integer((json_int_t)value) : json_null());
}

/* Of a counter; one that went back has begun anew. */
static double rate(double now, double before, double seconds)
{
	return (now >= before ? now - before : now) / seconds;
}

/* The same for requests, without our own: those of one sample lie between two scrapes. */
static double request_rate(double now, double before, double own, double seconds)
{
	double all = now >= before ? now - before : now;

	if (isnan(all))
		return NAN;
	return (all > own ? all - own : 0) / seconds;
}

static double pruned(const json_t *row)
{
	return (double)json_integer_value(json_object_get(row, "pruned_total"));
}

static const json_t *find_table(const json_t *matrix, const json_t *row)
{
	const json_t *name = json_object_get(row, "table"), *other;
	size_t i;

	json_array_foreach (json_object_get(matrix, "data"), i, other)
		if (json_equal(json_object_get(other, "table"), name))
			return other;
	return NULL;
}

/* The rows of the matrix, each with its rate. `seconds` is not a number without a sample before. */
static json_t *make_tables(const struct sample *now, const struct sample *before, double seconds)
{
	json_t *tables = json_array();
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(now->matrix, "data"), i, row) {
		const json_t *old = find_table(before->matrix, row);
		json_t *copy = json_copy((json_t *)(uintptr_t)row);
		if (!json_is_object(copy)) {
			json_decref(copy);
			continue;
		}
		view_put(copy, "pruned_per_second",
			 old ? rate(pruned(row), pruned(old), seconds) : NAN);
		json_array_append_new(tables, copy);
	}
	return tables;
}

/* What a histogram says about the time between; and, for things that are rare, about all time. */
static json_t *make_spread(const struct buckets *now, const struct buckets *before, bool has_before)
{
	struct buckets since = { 0 };
	json_t *spread = json_object();

	if (has_before)
		buckets_since(now, before, &since);
	view_put_count(spread, "count", has_before ? buckets_total(&since) : NAN);
	view_put(spread, "p50_seconds", buckets_quantile(&since, 0.5));
	view_put(spread, "p99_seconds", buckets_quantile(&since, 0.99));
	view_put_count(spread, "count_total", buckets_total(now));
	view_put(spread, "p50_seconds_total", buckets_quantile(now, 0.5));
	view_put(spread, "p99_seconds_total", buckets_quantile(now, 0.99));
	return spread;
}

json_t *sample_view(const struct cli *cli, const struct sample *now, const struct sample *before)
{
	const struct figures *f = &now->figures, *old = &before->figures;
	bool two = before->matrix != NULL;
	assert(now->matrix);
	double seconds = two ? (double)(now->at - before->at) / 1e6 : NAN;
	double own = OWN_REQUESTS + (now->replicas ? 1 : 0);
	json_t *view = json_object();

	json_object_set_new(view, "url", json_string(cli->client.url));
	json_object_set_new(view, "is_ready", json_boolean(now->is_ready));
	json_object_set(view, "ready", now->ready);
	json_object_set(view, "clock", now->clock);
	view_put(view, "interval_seconds", seconds);
	view_put_count(view, "agents_live", f->agents);
	view_put_count(view, "agents_suspect", f->suspects);
	view_put(view, "requests_per_second",
		 two ? request_rate(f->requests, old->requests, own, seconds) : NAN);
	view_put_count(view, "dead_letters", f->dead_letters);
	if (isfinite(f->replicas))
		view_put_count(view, "replicas", f->replicas);
	if (json_object_get(now->replicas, "data"))
		json_object_set(view, "cluster", json_object_get(now->replicas, "data"));
	json_object_set_new(view, "lag", make_spread(&f->lag, &old->lag, two));
	json_object_set_new(view, "commit", make_spread(&f->commit, &old->commit, two));
	json_object_set_new(view, "tables", make_tables(now, before, seconds));
	return view;
}
