/* SPDX-License-Identifier: Apache-2.0 */
/* Cursors of lists: what is taken can be given out again, and means the same. */
#include <assert.h>
#include <string.h>

#include "api/page.h"
#include "base/id.h"
#include "base/mem.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *CLEANUP(mem_freep) after = mem_zalloc(1, size + 1);
	struct page page = { .limit = 1, .after = after };
	const char *text = NULL, *why = NULL, *again = NULL;
	struct problem p = { 0 };
	struct arena arena;
	int64_t before = 0;

	memcpy(after, data, size);
	arena_init(&arena);
	if (page_after_text(&page, &arena, &text, &p) == LAPSE_OK) {
		assert(id_is_valid(text, &why));
		struct page next = { .limit = 1, .after = page_text_cursor(&arena, text) };
		assert(page_after_text(&next, &arena, &again, &p) == LAPSE_OK);
		assert(strcmp(again, text) == 0);
	}
	if (page_before(&page, &before, &p) == LAPSE_OK)
		assert(before >= 0);
	arena_done(&arena);
	return 0;
}
