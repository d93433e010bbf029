/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/replay.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/events.h"

static const struct db_stmt STRETCH = { "SELECT seq, at, owner, kind, data FROM events "
					"WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3" };

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

static void gather(struct run *run)
{
	map_init(&run->crowds);
	for (size_t i = 0; i < run->replay->count; i++) {
		struct replay_reader *r = &run->replay->readers[i];
		struct map_node *n = map_find(&run->crowds, r->owner);
		if (!n) {
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

static void give(struct run *run, struct replay_reader *r, int64_t seq)
{
	size_t skip = r->offset;

	if (r->full || seq <= r->cursor)
		return;
	if (skip > 0 && (r->partial != seq || seq <= run->replay->due)) {
		r->lost = r->full = true;
		run->full++;
		return;
	}
	r->offset = 0;
	r->cursor = seq;
	if (seq <= run->replay->due) {
		r->hidden = seq;
		return;
	}
	buf_add(&r->text, run->line.data + skip, run->line.len - skip);
	r->events++;
	r->full = r->text.len >= REPLAY_PAGE_BYTES;
	run->full += r->full;
}

static void give_all(struct run *run, const struct db_query *q)
{
	const char *owner = db_text(q, 2);
	struct map_node *n = map_find(&run->crowds, owner);
	int64_t seq = db_int(q, 0);

	if (!n && (owner[0] || run->engine_count == 0))
		return;
	run->line.len = 0;
	event_write(&run->line, seq, db_int(q, 1), owner, db_text(q, 3), db_text(q, 4));
	if (n)
		for (struct replay_reader *r = CONTAINER_OF(n, struct crowd, node)->first; r;
		     r = r->same)
			give(run, r, seq);
	if (!owner[0])
		for (size_t i = 0; i < run->engine_count; i++)
			give(run, run->engine_first[i], seq);
}

/* Everything up to `end` was looked at. */
static void conclude(struct replay *replay, int64_t end)
{
	for (size_t i = 0; i < replay->count; i++) {
		struct replay_reader *r = &replay->readers[i];
		if (r->full || r->cursor >= end)
			continue;
		r->lost = r->offset > 0 && r->partial <= end;
		r->cursor = end;
	}
}

static int walk(struct run *run, struct db *db)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &STRETCH);
	int64_t rows = 0, end = run->replay->from;
	int r;

	db_bind_int(&q, 1, run->replay->from);
	db_bind_int(&q, 2, run->replay->upto);
	db_bind_int(&q, 3, REPLAY_ROWS);
	while ((r = db_step(&q)) > 0) {
		end = db_int(&q, 0);
		rows++;
		give_all(run, &q);
		if (run->full == run->replay->count)
			break;
	}
	if (r < 0)
		return r;
	conclude(run->replay, r == 0 && rows < REPLAY_ROWS ? run->replay->upto : end);
	return LAPSE_OK;
}

void replay_run(struct engine *e, struct replay *replay)
{
	struct run *run = mem_zalloc(1, sizeof(*run));

	run->replay = replay;
	gather(run);
	pthread_mutex_lock(&e->reader_lock);
	replay->err = walk(run, e->reader);
	pthread_mutex_unlock(&e->reader_lock);
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
