/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Did you mean": the word of a list that is nearest to what the user typed. Offer every word, then
 *ask.
 *
 *	struct suggestion s = suggestion_for(typed);
 *	suggestion_offer(&s, "status");
 *	cli_usage(cli, "unknown command '%s'%s", typed, suggestion_text(&s, text));
 */
#ifndef LAPSE_CLI_SUGGEST_H
#define LAPSE_CLI_SUGGEST_H

#include <stddef.h>

#define SUGGESTION_BYTES 96

struct suggestion {
	const char *typed;
	const char *prefix; /* put before the word, "--" for options */
	const char *best;   /* borrowed; NULL while nothing is near */
	size_t distance;    /* of `best` */
	char text[SUGGESTION_BYTES];
};

void suggestion_init(struct suggestion *s, const char *typed, const char *prefix);
void suggestion_offer(struct suggestion *s, const char *word);

/* "; did you mean 'status'?", or "" when no word is near enough. Lives as long as `s`. */
const char *suggestion_text(struct suggestion *s);

/* Edits (a letter more, less or other, or two neighbours swapped) that make one word of the other.
 */
size_t suggestion_distance(const char *a, const char *b);

#endif
