/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: follows the cursor until the last page or --limit, and makes one answer of all pages. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"

#define PAGE_MAX 100 /* rows; the most a daemon gives at once */

static enum outcome get_page(struct cli *cli, const struct request *request, const char *cursor,
			     size_t rows, struct answer *ret)
{
	struct request CLEANUP(request_done) page = *request;

	assert(rows > 0);
	page.query = (struct buf){ 0 };
	buf_puts(&page.query, buf_text(&request->query));
	request_query_int(&page, "limit", rows < PAGE_MAX ? (int64_t)rows : PAGE_MAX);
	if (cursor)
		request_query(&page, "after", cursor);
	return client_call(cli, &page, ret);
}

static size_t page_rows(const struct answer *a)
{
	return json_array_size(json_object_get(a->json, "data"));
}

static const char *next_cursor(const struct answer *a)
{
	return json_string_value(
		json_object_get(json_object_get(a->json, "pagination"), "next_cursor"));
}

/* Whether the cursors have come round. The one to compare with is taken anew after 1, 2, 4, …
 * pages, so a circle of any length is noticed before it was walked three times. */
struct circle {
	char *mark;
	size_t pages, next_mark;
};

static void circle_done(struct circle *c)
{
	free(c->mark);
}

static bool circle_is_closed(struct circle *c, const char *cursor)
{
	if (c->mark && strcmp(c->mark, cursor) == 0)
		return true;
	if (++c->pages > c->next_mark) {
		free(c->mark);
		c->mark = mem_strdup(cursor);
		c->next_mark = 2 * c->pages;
	}
	return false;
}

/* Stops at a page without rows too, which would be asked for again for ever. */
enum outcome client_pages(struct cli *cli, const struct request *request, size_t limit,
			  client_page *take, void *arg)
{
	char *CLEANUP(mem_freep) cursor = NULL;
	struct circle CLEANUP(circle_done) circle = { 0 };
	size_t rows = 0, own;

	assert(limit > 0 && !request->body);
	do {
		struct answer CLEANUP(answer_done) page = { 0 };
		enum outcome r = get_page(cli, request, cursor, limit - rows, &page);
		if (r != OUTCOME_OK)
			return r;
		own = page_rows(&page);
		rows += own;
		free(cursor);
		cursor = next_cursor(&page) ? mem_strdup(next_cursor(&page)) : NULL;
		if (cursor && own > 0 && circle_is_closed(&circle, cursor))
			return cli_fail(cli, OUTCOME_REFUSED,
					"the server repeats itself: a cursor of this list came a "
					"second time");
		if (!take(arg, &page))
			break;
	} while (own > 0 && rows < limit && cursor);
	return OUTCOME_OK;
}

/* One answer of all pages; as it came when there is only one. */
struct whole {
	struct answer all;
	bool has_more;
};

static void whole_done(struct whole *w)
{
	answer_done(&w->all);
}

/* Adds the rows of `page` and takes over its pagination. */
static bool merge(void *arg, struct answer *page)
{
	struct whole *w = arg;

	assert(page->json);
	if (!w->all.json) {
		w->all = *page;
		*page = (struct answer){ 0 };
		return true;
	}
	json_array_extend(json_object_get(w->all.json, "data"),
			  json_object_get(page->json, "data"));
	json_object_set(w->all.json, "pagination", json_object_get(page->json, "pagination"));
	w->has_more = true;
	return true;
}

enum outcome client_list(struct cli *cli, const struct request *request, struct answer *ret)
{
	struct whole CLEANUP(whole_done) w = { 0 };
	size_t limit =
		args_has(&cli->args, OPT_LIMIT) ? (size_t)cli->args.number[OPT_LIMIT] : SIZE_MAX;

	enum outcome r = client_pages(cli, request, limit, merge, &w);
	if (r != OUTCOME_OK)
		return r;
	if (w.has_more) {
		char *CLEANUP(mem_freep) text = json_dumps(w.all.json, JSON_COMPACT);
		buf_done(&w.all.text);
		buf_puts(&w.all.text, text);
	}
	*ret = w.all;
	w.all = (struct answer){ 0 };
	return OUTCOME_OK;
}
