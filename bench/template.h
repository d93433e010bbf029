/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts with numbers to fill in: the path, the body and the Redis arguments of a load.
 *
 *   %u  %05u   the request's random number below `spread`, the same one in all its texts
 *   %n  %05n   the request's place in the sequence, modulo `spread`
 *   %L         `list` items with `join` between them: the item template with `list` distinct
 *              numbers; its %n goes on from item to item and from list to list
 *   %%         a percent sign
 *
 * Call order: template_parse once, then for each request numbers_draw and template_put.
 */
#ifndef BENCH_TEMPLATE_H
#define BENCH_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "bytes.h"

#define TEMPLATE_PARTS_MAX 32
/* Numbers of a list are this far apart (modulo the spread), so that neighbours in a list are not
 * neighbours in a server's index. Prime, hence distinct unless the spread is a multiple of it. */
#define LIST_STEP 7919u

enum part_kind { PART_TEXT, PART_RANDOM, PART_SEQUENCE, PART_LIST };

struct part {
	enum part_kind kind;
	unsigned width;   /* digits at least, for the two numbers */
	const char *text; /* borrowed from the command line */
	size_t len;
};

struct template
{
	struct part parts[TEMPLATE_PARTS_MAX];
	size_t count;
};

/* Where numbers come from. Seeded, so two runs send the same requests in the same order. */
struct numbers {
	uint64_t state;    /* of xorshift64*, never 0 */
	uint64_t sequence; /* requests drawn so far */
	uint32_t spread;   /* numbers are 0 … spread - 1 */
	uint32_t list;     /* items in a list, at most spread */
	struct template item;
	const char *join; /* between two items, borrowed from the command line */
};

/* The numbers of one request. */
struct draw {
	uint32_t random;
	uint32_t sequence;
};

/* Dies on a bad `%`; `text` must outlive the template. */
void template_parse(struct template *t, const char *text);
void template_put(const struct template *t, const struct numbers *from, struct draw draw,
		  struct bytes *out);

void numbers_init(struct numbers *n, uint64_t seed, uint32_t spread, uint32_t list,
		  const char *item, const char *join);
struct draw numbers_draw(struct numbers *n);

#endif
