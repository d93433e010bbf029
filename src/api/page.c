/* SPDX-License-Identifier: Apache-2.0 */
#include "api/page.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/id.h"

#define CURSOR_MAX 400 /* bytes: an id in hex, or a key of 128 bytes escaped */

const struct json_field PAGE_FIELDS[] = {
	{ "limit", FIELD_INT, false, offsetof(struct page, limit), 1, LIMIT_MAX,
	  "items per page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct page, after), 1, CURSOR_MAX,
	  "next_cursor of the page before" },
	{ 0 },
};

static int bad_cursor(struct problem *p)
{
	return problem_set(p, LAPSE_EINVAL, "after",
			   "after is not a cursor: use next_cursor of the page before");
}

const char *page_text_cursor(struct arena *arena, const char *text)
{
	char *out = arena_alloc(arena, 2 * strlen(text) + 1);

	hex_encode(text, strlen(text), out);
	return out;
}

int page_after_text(const struct page *page, struct arena *arena, const char **ret,
		    struct problem *p)
{
	char *text = arena_alloc(arena, strlen(page->after) / 2 + 1);
	const char *why;

	if (!hex_decode(page->after, text) || !id_is_valid(text, &why))
		return bad_cursor(p);
	*ret = text;
	return LAPSE_OK;
}

int page_before(const struct page *page, int64_t *ret_before, struct problem *p)
{
	*ret_before = INT64_MAX;
	if (page->after && !id_parse(page->after, ret_before))
		return bad_cursor(p);
	return LAPSE_OK;
}

void page_begin(struct page_writer *w, struct buf *out, const struct page *page)
{
	assert(page->limit > 0);
	*w = (struct page_writer){ .out = out, .limit = page->limit, .start = out->len };
	json_begin(out, '{');
	json_key(out, "data");
	json_begin(out, '[');
}

bool page_item(struct page_writer *w, int64_t id)
{
	if (w->written == w->limit ||
	    (w->written > 0 && w->out->len - w->start >= PAGE_MAX_BYTES)) {
		w->more = true;
		return false;
	}
	assert(w->written < w->limit);
	w->written++;
	w->last_id = id;
	return true;
}

void page_close(struct buf *out, const char *next_cursor)
{
	json_end(out, ']');
	json_key(out, "pagination");
	json_begin(out, '{');
	json_put_text(out, "next_cursor", next_cursor);
	json_put_bool(out, "has_more", next_cursor != NULL);
	json_end(out, '}');
	json_end(out, '}');
}

void page_end(struct page_writer *w)
{
	char cursor[ID_TEXT_LEN + 1];

	assert(w->written <= w->limit && (!w->more || w->written > 0));
	id_format(w->last_id, cursor);
	page_close(w->out, w->more ? cursor : NULL);
}
