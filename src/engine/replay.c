/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/replay.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/eventlog.h"

/* The readers of one owner; "" is those of the engine's events. */
struct crowd {
	struct map_node node;
	struct replay_reader *first;
};

struct run {
	struct replay *replay;
	struct map crowds;
	struct crowd nodes[REPLAY_READERS];
	size_t nodes_count;
	struct replay_reader *engine_first[REPLAY_READERS];
	size_t engine_count;
	size_t full;
	struct buf line;
};

static void replay_gather(struct run *run)
{
	assert(run->replay->count <= REPLAY_READERS);
	map_init(&run->crowds);
	for (size_t i = 0; i < run->replay->count; i++) {
		struct replay_reader *r = &run->replay->readers[i];
		struct map_node *n = map_find(&run->crowds, r->owner);
		if (!n) {
			assert(run->nodes_count < REPLAY_READERS);
			n = &run->nodes[run->nodes_count++].node;
			map_insert(&run->crowds, n, r->owner);
		}
		struct crowd *c = CONTAINER_OF(n, struct crowd, node);
		r->same = c->first;
		c->first = r;
		if (r->engine_too && r->owner[0])
			run->engine_first[run->engine_count++] = r;
	}
}

static void replay_give(struct run *run, struct replay_reader *r, int64_t seq)
{
	size_t skip = r->offset;

	assert(r->offset == 0 || r->partial > 0);
	if (r->full || seq <= r->cursor)
		return;
	if (skip > 0 && (r->partial != seq || seq <= run->replay->due)) {
		r->lost = r->full = true;
		run->full++;
		return;
	}
	assert(skip <= run->line.len);
	r->offset = 0;
	r->cursor = seq;
	if (seq <= run->replay->due) {
		r->hidden = seq;
		return;
	}
	assert(!r->full);
	buf_add(&r->text, run->line.data + skip, run->line.len - skip);
	r->events++;
	r->full = r->text.len >= REPLAY_PAGE_BYTES;
	run->full += r->full;
}

static bool replay_give_all(void *arg, const struct event_row *row)
{
	struct run *run = arg;
	struct map_node *n = map_find(&run->crowds, row->owner);
	bool is_engines = !row->owner[0];

	if (!n && (!is_engines || run->engine_count == 0))
		return true;
	run->line.len = 0;
	event_write(&run->line, row->seq, row->at, row->owner, row->kind, event_row_data(row));
	if (n)
		for (struct replay_reader *r = CONTAINER_OF(n, struct crowd, node)->first; r;
		     r = r->same)
			replay_give(run, r, row->seq);
	if (is_engines)
		for (size_t i = 0; i < run->engine_count; i++)
			replay_give(run, run->engine_first[i], row->seq);
	return run->full < run->replay->count;
}

/* Everything up to `end` was looked at. */
static void replay_conclude(struct replay *replay, int64_t end)
{
	for (size_t i = 0; i < replay->count; i++) {
		struct replay_reader *r = &replay->readers[i];
		if (r->full || r->cursor >= end)
			continue;
		r->lost = r->offset > 0 && r->partial <= end;
		r->cursor = end;
	}
}

static int replay_walk(struct run *run, const struct engine *e, struct db *db)
{
	const struct event_stretch s = { .after = run->replay->from,
					 .upto = run->replay->upto,
					 .limit = REPLAY_ROWS };
	int64_t end = s.after;
	int r = eventlog_walk(e, db, &s, replay_give_all, run, &end);

	if (r == LAPSE_OK)
		replay_conclude(run->replay, end);
	return r;
}

void replay_run(struct engine *e, struct replay *replay)
{
	struct run *run = mem_zalloc(1, sizeof(*run));

	assert(replay->count > 0);
	run->replay = replay;
	replay_gather(run);
	struct db *reader = store_take_reader(e->store);
	replay->err = replay_walk(run, e, reader);
	store_give_reader(e->store, reader);
	map_done(&run->crowds);
	buf_done(&run->line);
	free(run);
}

void replay_done(struct replay *r)
{
	for (size_t i = 0; i < r->count; i++) {
		free(r->readers[i].owner);
		buf_done(&r->readers[i].text);
	}
	r->count = 0;
}
