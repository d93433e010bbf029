/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: follows the cursor until the last page or --limit, and makes one answer of all pages. */
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"

#define PAGE_MAX 100 /* rows; the most a daemon gives at once */

static enum outcome get_page(struct cli *cli, const struct request *request, const char *cursor,
			     size_t rows, struct answer *ret)
{
	struct request CLEANUP(request_done) page = *request;

	page.query = (struct buf){ 0 };
	buf_puts(&page.query, buf_text(&request->query));
	request_query_int(&page, "limit", rows < PAGE_MAX ? (int64_t)rows : PAGE_MAX);
	if (cursor)
		request_query(&page, "after", cursor);
	return client_call(cli, &page, ret);
}

static size_t count_rows(const struct answer *a)
{
	return json_array_size(json_object_get(a->json, "data"));
}

static const char *next_cursor(const struct answer *a)
{
	return json_string_value(
		json_object_get(json_object_get(a->json, "pagination"), "next_cursor"));
}

/* Adds the rows of `page` to `all` and takes over its pagination. */
static void merge(struct answer *all, const struct answer *page)
{
	json_array_extend(json_object_get(all->json, "data"), json_object_get(page->json, "data"));
	json_object_set(all->json, "pagination", json_object_get(page->json, "pagination"));
}

/* Stops at a page without rows too, which would be asked for again for ever. */
static enum outcome get_rest(struct cli *cli, const struct request *request, size_t limit,
			     struct answer *all, bool *ret_more)
{
	const char *cursor;
	size_t before = 0;

	while (count_rows(all) > before && count_rows(all) < limit && (cursor = next_cursor(all))) {
		struct answer CLEANUP(answer_done) page = { 0 };
		before = count_rows(all);
		enum outcome r = get_page(cli, request, cursor, limit - before, &page);
		if (r != OUTCOME_OK)
			return r;
		merge(all, &page);
		*ret_more = true;
	}
	return OUTCOME_OK;
}

enum outcome client_list(struct cli *cli, const struct request *request, struct answer *ret)
{
	struct answer CLEANUP(answer_done) all = { 0 };
	size_t limit =
		args_has(&cli->args, OPT_LIMIT) ? (size_t)cli->args.number[OPT_LIMIT] : SIZE_MAX;
	bool more = false;

	enum outcome r = get_page(cli, request, NULL, limit, &all);
	if (r == OUTCOME_OK)
		r = get_rest(cli, request, limit, &all, &more);
	if (r != OUTCOME_OK)
		return r;
	if (more) {
		char *CLEANUP(mem_freep) text = json_dumps(all.json, JSON_COMPACT);
		buf_done(&all.text);
		buf_puts(&all.text, text);
	}
	*ret = all;
	all = (struct answer){ 0 };
	return OUTCOME_OK;
}
