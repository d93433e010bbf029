/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and filling of request templates; see template.h. */
#include "template.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH_MAX 20ul

static struct part *template_add(struct template *t, const char *whole)
{
	if (t->count == TEMPLATE_PARTS_MAX)
		die("more than %d parts in '%s'", TEMPLATE_PARTS_MAX, whole);
	return &t->parts[t->count++];
}

static void add_text(struct template *t, const char *whole, const char *text, size_t len)
{
	if (len == 0)
		return;
	*template_add(t, whole) = (struct part){ .kind = PART_TEXT, .text = text, .len = len };
}

/* `at` is just behind a percent sign; the return value just behind what belongs to it. */
static const char *add_directive(struct template *t, const char *whole, const char *at)
{
	if (*at == '%') {
		add_text(t, whole, at, 1);
		return at + 1;
	}

	char *end = (char *)at;
	unsigned long width = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
	if (width > WIDTH_MAX)
		die("a number wider than %lu digits in '%s'", WIDTH_MAX, whole);

	struct part *part = template_add(t, whole);
	*part = (struct part){ .width = (unsigned)width };
	switch (*end) {
	case 'u':
		part->kind = PART_RANDOM;
		break;
	case 'n':
		part->kind = PART_SEQUENCE;
		break;
	case 'L':
		part->kind = PART_LIST;
		break;
	default:
		die("only %%u, %%n, %%L and %%%% may follow a percent sign: '%s'", whole);
	}
	return end + 1;
}

void template_parse(struct template *t, const char *text)
{
	const char *at = text, *percent;

	t->count = 0;
	while ((percent = strchr(at, '%'))) {
		add_text(t, text, at, (size_t)(percent - at));
		at = add_directive(t, text, percent + 1);
	}
	add_text(t, text, at, strlen(at));
}

/* Items never hold a list themselves (numbers_init checks), so this ends at the second level. */
static void put_list(const struct numbers *from, struct draw draw, struct bytes *out)
{
	for (uint32_t i = 0; i < from->list; i++) {
		const uint64_t number = draw.random + (uint64_t)i * LIST_STEP;
		const uint64_t place = (uint64_t)draw.sequence * from->list + i;
		const struct draw of_item = { .random = (uint32_t)(number % from->spread),
					      .sequence = (uint32_t)(place % from->spread) };
		if (i > 0)
			bytes_puts(out, from->join);
		template_put(&from->item, from, of_item, out);
	}
}

void template_put(const struct template *t, const struct numbers *from, struct draw draw,
		  struct bytes *out)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct part *part = &t->parts[i];
		switch (part->kind) {
		case PART_TEXT:
			bytes_put(out, part->text, part->len);
			break;
		case PART_RANDOM:
			bytes_put_number(out, draw.random, part->width);
			break;
		case PART_SEQUENCE:
			bytes_put_number(out, draw.sequence, part->width);
			break;
		case PART_LIST:
			put_list(from, draw, out);
			break;
		}
	}
}

void numbers_init(struct numbers *n, uint64_t seed, uint32_t spread, uint32_t list,
		  const char *item, const char *join)
{
	*n = (struct numbers){
		.state = seed ? seed : 1, .spread = spread, .list = list, .join = join
	};
	template_parse(&n->item, item);
	for (size_t i = 0; i < n->item.count; i++)
		if (n->item.parts[i].kind == PART_LIST)
			die("an item of a list cannot be a list: '%s'", item);
	if (spread == 0)
		die("the spread must be at least 1");
	if (list > spread || (list > 1 && spread % LIST_STEP == 0))
		die("no %u distinct numbers in a spread of %u", list, spread);
}

static uint64_t xorshift(struct numbers *n)
{
	n->state ^= n->state >> 12;
	n->state ^= n->state << 25;
	n->state ^= n->state >> 27;
	return n->state * UINT64_C(2685821657736338717);
}

struct draw numbers_draw(struct numbers *n)
{
	const uint64_t high = xorshift(n) >> 32;

	return (struct draw){
		.random = (uint32_t)(high * n->spread >> 32),
		.sequence = (uint32_t)(n->sequence++ % n->spread),
	};
}
