/* SPDX-License-Identifier: Apache-2.0 */
#include "message/slice.h"

#include <assert.h>
#include <string.h>

#include "message/unread.h"
#include "store/migrate.h"

#define LOOK_ROWS 32 /* between two looks at the clock */

/* Whether the time is over. Rows that were gathered are written first, so that it includes what
 * they cost. */
static int slice_look(struct slice *s, struct db *db, bool *ret_over)
{
	int r = LAPSE_OK;

	if (s->written - s->flushed >= LOOK_ROWS) {
		r = db_flush(db);
		s->flushed = s->written;
	}
	*ret_over = clock_mono(s->clock) >= s->stop;
	return r;
}

/* Files what the pass wants of the inbox until the time is over: *ret_whole = it has all. */
static int file_inbox(struct slice *s, struct db *db, struct tail_inbox *i, bool *ret_whole)
{
	size_t n = 0, k = i->first;
	bool over = false;
	int r = LAPSE_OK;

	for (; k < i->count && i->entries[k].id <= s->pass.upto; k++) {
		if (i->entries[k].hidden)
			continue;
		if (n > 0 && n % LOOK_ROWS == 0)
			r = slice_look(s, db, &over);
		if (r == LAPSE_OK && !over)
			r = unread_write(db, i, i->entries[k].id);
		if (r < 0 || over)
			break;
		n++;
		s->written++;
	}
	*ret_whole = k == i->count || i->entries[k].id > s->pass.upto;
	if (r < 0 || n == 0)
		return r;
	s->parts[s->parts_count++] = (struct slice_part){ i, n };
	return unread_write_count(db, i, (int64_t)n);
}

int slice_file(struct slice *s, const struct tail *t, struct db *db, const struct clock *clock,
	       lapse_us budget)
{
	const struct tail_inbox *last = NULL;
	bool whole = true, over = false;
	int r = LAPSE_OK;

	assert(t->magic == TAIL_MAGIC && budget > 0);
	s->clock = clock;
	s->stop = clock_mono(clock) + budget;
	s->pass = t->pass;
	s->parts_count = 0;
	s->written = s->flushed = 0;
	if (!s->pass.running)
		s->pass = (struct tail_pass){ .running = true, .upto = t->newest };
	struct tail_inbox *i = tail_after(t, s->pass.after);
	while (r == LAPSE_OK && i && whole && !over && s->parts_count < SLICE_INBOXES) {
		r = file_inbox(s, db, i, &whole);
		if (r < 0 || !whole)
			break;
		last = i;
		i = i->next[0];
		r = slice_look(s, db, &over);
	}
	if (r < 0)
		return r;
	if (last)
		memcpy(s->pass.after, last->node.key, strlen(last->node.key) + 1);
	if (i)
		return LAPSE_OK;
	s->pass.running = false;
	return meta_set(db, MESSAGES_FILED, s->pass.upto);
}

void slice_settle(const struct slice *s, struct tail *t)
{
	assert(t->magic == TAIL_MAGIC);
	for (size_t k = 0; k < s->parts_count; k++)
		tail_file(t, s->parts[k].inbox, s->parts[k].n);
	t->pass = s->pass;
	t->filed += s->written;
	tail_tidy(t);
}
