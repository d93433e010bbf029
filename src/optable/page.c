/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the lists that are ordered by a text. */
#include "optable/api.h"

int text_page_begin(struct text_page *p, struct call *c)
{
	*p = (struct text_page){
		.out = &c->reply, .page.limit = LIMIT_DEFAULT, .after = "", .arena = &c->arena
	};
	int r = call_query(c, PAGE_FIELDS, &p->page);

	if (r == LAPSE_OK && p->page.after)
		r = page_after_text(&p->page, &c->arena, &p->after, &c->problem);
	if (r < 0)
		return r;
	json_begin(p->out, '{');
	json_key(p->out, "data");
	json_begin(p->out, '[');
	return LAPSE_OK;
}

bool text_page_item(struct text_page *p, const char *name)
{
	if (p->written == p->page.limit || (int64_t)p->out->len >= OPTABLE_REPLY_BYTES) {
		p->more = true;
		return false;
	}
	p->written++;
	p->last = arena_strdup(p->arena, name);
	return true;
}

void text_page_end(struct text_page *p)
{
	page_close(p->out, p->more ? page_text_cursor(p->arena, p->last) : NULL);
}
