/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/scrape.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line `name{labels} value`; labels are without the braces. Borrowed from the text. */
struct sample_line {
	const char *labels;
	size_t labels_len;
	double value;
};

/* Where the labels at `text` end, which begins after the brace: a brace in quotes ends nothing. */
static const char *skip_labels(const char *text)
{
	bool quoted = false;

	for (; *text && *text != '\n' && (quoted || *text != '}'); text++) {
		if (*text == '\\' && quoted && text[1])
			text++;
		else if (*text == '"')
			quoted = !quoted;
	}
	return text;
}

/* Reads the line at `line` when it is a sample of exactly this name. */
static bool scrape_line(const char *line, const char *name, struct sample_line *ret)
{
	size_t n = strlen(name);
	struct sample_line s = { .labels = "" };
	char *end;

	if (strncmp(line, name, n) != 0 || (line[n] != ' ' && line[n] != '{'))
		return false;
	line += n;
	if (*line == '{') {
		const char *close = skip_labels(line + 1);
		if (*close != '}')
			return false;
		s.labels = line + 1;
		s.labels_len = (size_t)(close - s.labels);
		line = close + 1;
	}
	s.value = strtod(line, &end);
	if (end == line)
		return false;
	*ret = s;
	return true;
}

static const char *next_line(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

double scrape_sum(const char *text, const char *family)
{
	struct sample_line s;
	double sum = NAN;

	for (const char *line = text; *line; line = next_line(line))
		if (scrape_line(line, family, &s))
			sum = (isnan(sum) ? 0 : sum) + s.value;
	return sum;
}

/* The upper bound of a bucket: its label `le`, which must not be the end of another one's name. */
static double read_bound(const struct sample_line *s)
{
	static const char label[] = "le=\"";
	const char *found = s->labels, *end = s->labels + s->labels_len;

	while ((found = memmem(found, (size_t)(end - found), label, sizeof(label) - 1))) {
		if (found == s->labels || found[-1] == ',')
			return strtod(found + sizeof(label) - 1, NULL);
		found++;
	}
	return NAN;
}

/* Adds to the bucket of that bound, which is put in its place where it is new. */
static void add_bucket(struct buckets *b, double bound, double count)
{
	size_t i = 0;

	while (i < b->n && b->bounds[i] < bound)
		i++;
	if (i < b->n && b->bounds[i] == bound) {
		b->counts[i] += count;
		return;
	}
	if (b->n == BUCKETS_MAX || isnan(bound))
		return;
	assert(i <= b->n && b->n < BUCKETS_MAX);
	memmove(&b->bounds[i + 1], &b->bounds[i], (b->n - i) * sizeof(b->bounds[0]));
	memmove(&b->counts[i + 1], &b->counts[i], (b->n - i) * sizeof(b->counts[0]));
	b->bounds[i] = bound;
	b->counts[i] = count;
	b->n++;
}

void scrape_buckets(const char *text, const char *family, struct buckets *ret)
{
	struct sample_line s;
	char name[128];

	*ret = (struct buckets){ 0 };
	snprintf(name, sizeof(name), "%s_bucket", family);
	for (const char *line = text; *line; line = next_line(line))
		if (scrape_line(line, name, &s))
			add_bucket(ret, read_bound(&s), s.value);
	/* On the wire each bucket counts those below it too. */
	for (size_t i = ret->n; i-- > 1;)
		ret->counts[i] -= ret->counts[i - 1];
}

void buckets_since(const struct buckets *now, const struct buckets *before, struct buckets *ret)
{
	struct buckets since = *now;
	bool same = before->n == now->n;

	assert(now->n <= BUCKETS_MAX && before->n <= BUCKETS_MAX);
	for (size_t i = 0; same && i < now->n; i++)
		same = before->bounds[i] == now->bounds[i] && before->counts[i] <= now->counts[i];
	for (size_t i = 0; same && i < now->n; i++)
		since.counts[i] -= before->counts[i];
	*ret = since;
}

double buckets_total(const struct buckets *b)
{
	double total = 0;

	for (size_t i = 0; i < b->n; i++)
		total += b->counts[i];
	return total;
}

double buckets_quantile(const struct buckets *b, double q)
{
	double rank = q * buckets_total(b), below = 0;

	assert(q >= 0 && q <= 1 && b->n <= BUCKETS_MAX);
	if (!(rank > 0))
		return NAN;
	for (size_t i = 0; i < b->n; i++) {
		double low = i > 0 ? b->bounds[i - 1] : 0;
		if (below + b->counts[i] < rank) {
			below += b->counts[i];
			continue;
		}
		if (isinf(b->bounds[i]))
			return low;
		return low + (b->bounds[i] - low) * (rank - below) / b->counts[i];
	}
	return b->n > 0 ? b->bounds[b->n - 1] : NAN;
}
