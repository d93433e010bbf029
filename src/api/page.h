/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of lists: the cursor that comes in, the frame around the items, the cursor that goes out.
 */
#ifndef LAPSE_API_PAGE_H
#define LAPSE_API_PAGE_H

#include "api/field.h"
#include "base/mem.h"

#define LIMIT_DEFAULT 20
#define LIMIT_MAX 100

/* What the query of a list says. */
struct page {
	int64_t limit;
	const char *after; /* NULL = from the start */
};
extern const struct json_field PAGE_FIELDS[];

/* The cursor of lists whose order is "newest id first": all ids below it. */
int page_before(const struct page *page, int64_t *ret_before, struct problem *p);

/* The frame of a list whose cursor is an id. page_item() says whether the item belongs to this
 * page: ask the store for one more than the limit, and the one too many says that there is more. A
 * page whose items have reached PAGE_MAX_BYTES takes no further one either. */
#define PAGE_MAX_BYTES ((size_t)1 << 20)
struct page_writer {
	struct buf *out;
	size_t start; /* where the list begins in `out` */
	int64_t limit, written;
	int64_t last_id;
	bool more;
};
void page_begin(struct page_writer *w, struct buf *out, const struct page *page);
bool page_item(struct page_writer *w, int64_t id);
void page_end(struct page_writer *w);

/* Cursors of lists ordered by a text: its bytes in hex. */
const char *page_text_cursor(struct arena *arena, const char *text);
int page_after_text(const struct page *page, struct arena *arena, const char **ret,
		    struct problem *p);

/* The closing part of a list, for cursors of another kind: NULL = no further page. */
void page_close(struct buf *out, const char *next_cursor);

#endif
