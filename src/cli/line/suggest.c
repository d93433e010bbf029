/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/line/suggest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 40 /* longer words are no commands; they are not compared */

void suggestion_init(struct suggestion *s, const char *typed, const char *prefix)
{
	assert(typed && prefix);
	*s = (struct suggestion){ .typed = typed, .prefix = prefix, .distance = WORD_MAX };
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t suggestion_distance(const char *a, const char *b)
{
	/* Three rows of the usual table: the swap of neighbours looks two rows back. */
	size_t rows[3][WORD_MAX + 1] = { 0 };
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MAX || m > WORD_MAX)
		return WORD_MAX;
	for (size_t y = 0; y <= m; y++)
		rows[0][y] = y;
	for (size_t x = 1; x <= n; x++) {
		size_t *now = rows[x % 3], *before = rows[(x + 2) % 3], *older = rows[(x + 1) % 3];
		now[0] = x;
		for (size_t y = 1; y <= m; y++) {
			now[y] = least(least(now[y - 1], before[y]) + 1,
				       before[y - 1] + (a[x - 1] != b[y - 1]));
			if (x > 1 && y > 1 && a[x - 1] == b[y - 2] && a[x - 2] == b[y - 1])
				now[y] = least(now[y], older[y - 2] + 1);
		}
	}
	return rows[n % 3][m];
}

/* A third of the word may be wrong; of short words one letter. A beginning of the word is near too.
 */
void suggestion_offer(struct suggestion *s, const char *word)
{
	size_t n = strlen(s->typed);
	size_t limit = n < 6 ? 1 : n / 3;
	assert(word[0]);
	size_t d = suggestion_distance(s->typed, word);

	if (d > limit && n >= 2 && strncmp(s->typed, word, n) == 0)
		d = limit;
	if (d > limit || d >= s->distance)
		return;
	s->best = word;
	s->distance = d;
}

const char *suggestion_text(struct suggestion *s)
{
	assert(!s->best || strlen(s->best) <= WORD_MAX);
	if (!s->best)
		return "";
	snprintf(s->text, sizeof(s->text), "; did you mean '%s%s'?", s->prefix, s->best);
	return s->text;
}
