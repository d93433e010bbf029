/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eventlog.h"

#include <assert.h>

#include "base/mem.h"
#include "engine/engine.h"

static const struct db_stmt STRETCH = { "SELECT seq, at, owner, kind, data FROM events "
					"WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3" };
static const struct db_stmt STRETCH_BACK = {
	"SELECT seq, at, owner, kind, data FROM events "
	"WHERE seq > $1 AND seq <= $2 ORDER BY seq DESC LIMIT $3"
};

/* One of the tables that are merged. */
struct event_source {
	struct db_query q;
	const struct event_rows *rows;
	int state; /* of its last step: 1 = it has a row */
};

#define SOURCES_MAX (1 + ROOMS_COUNT)

struct eventlog {
	struct event_source sources[SOURCES_MAX];
	size_t count;
	struct buf scratch;
};

static void eventlog_done(struct eventlog *l)
{
	for (size_t i = 0; i < l->count; i++)
		db_finish(&l->sources[i].q);
	buf_done(&l->scratch);
}

static const struct db_stmt *stretch_of(const struct event_rows *rows, bool newest_first)
{
	if (!rows)
		return newest_first ? &STRETCH_BACK : &STRETCH;
	return newest_first ? rows->stretch_back : rows->stretch;
}

static int eventlog_add(struct eventlog *l, struct db *db, const struct event_rows *rows,
			const struct event_stretch *s)
{
	assert(l->count < SOURCES_MAX);
	struct event_source *x = &l->sources[l->count++];

	x->rows = rows;
	x->q = db_query(db, stretch_of(rows, s->newest_first));
	db_bind_int(&x->q, 1, s->after);
	db_bind_int(&x->q, 2, s->upto);
	db_bind_int(&x->q, 3, s->limit);
	x->state = db_step(&x->q);
	return x->state < 0 ? x->state : LAPSE_OK;
}

/* The source whose row comes first; NULL = there is no row left. */
static struct event_source *eventlog_next(struct eventlog *l, bool newest_first)
{
	struct event_source *first = NULL;

	for (size_t i = 0; i < l->count; i++) {
		struct event_source *x = &l->sources[i];
		if (x->state <= 0)
			continue;
		int64_t mine = db_int(&x->q, 0), best = first ? db_int(&first->q, 0) : 0;
		if (!first || (newest_first ? mine > best : mine < best))
			first = x;
	}
	return first;
}

const char *event_row_data(const struct event_row *row)
{
	if (!row->rows)
		return db_text(row->query, 4);
	buf_clear(row->scratch);
	row->rows->write_data(row->query, row->scratch);
	return buf_text(row->scratch);
}

static struct event_row eventlog_row(struct eventlog *l, const struct event_source *x)
{
	return (struct event_row){ .seq = db_int(&x->q, 0),
				   .at = db_int(&x->q, 1),
				   .owner = db_text(&x->q, 2),
				   .kind = x->rows ? event_name(x->rows->kind) : db_text(&x->q, 3),
				   .query = &x->q,
				   .rows = x->rows,
				   .scratch = &l->scratch };
}

static int eventlog_merge(struct eventlog *l, const struct event_stretch *s, event_row_fn *fn,
			  void *arg, int64_t *ret_end)
{
	struct event_source *x = NULL;
	int64_t end = s->newest_first ? s->upto : s->after, shown = 0;
	bool more = true;

	while (more && shown < s->limit && (x = eventlog_next(l, s->newest_first)) != NULL) {
		struct event_row row = eventlog_row(l, x);
		assert(row.seq > s->after && row.seq <= s->upto);
		end = row.seq;
		shown++;
		more = fn(arg, &row);
		x->state = more ? db_step(&x->q) : x->state;
		if (x->state < 0)
			return x->state;
	}
	if (more && shown < s->limit)
		end = s->newest_first ? s->after + 1 : s->upto;
	*ret_end = end;
	return LAPSE_OK;
}

static int eventlog_walk_tables(const struct engine *e, struct db *db,
				const struct event_stretch *s, event_row_fn *fn, void *arg,
				int64_t *ret_end)
{
	struct eventlog CLEANUP(eventlog_done) l = { 0 };
	int r = eventlog_add(&l, db, NULL, s);

	assert(s->limit > 0);
	for (const struct room *const *x = e->rooms; r == LAPSE_OK && *x; x++)
		if ((*x)->events)
			r = eventlog_add(&l, db, (*x)->events, s);
	return r < 0 ? r : eventlog_merge(&l, s, fn, arg, ret_end);
}

/* All tables must be read as they are at one moment. A row that goes leaves its event in another
 * table (event_leave): between two snapshots it would be in neither. A caller's read transaction is
 * one snapshot; a caller that writes is alone. */
int eventlog_walk(const struct engine *e, struct db *db, const struct event_stretch *s,
		  event_row_fn *fn, void *arg, int64_t *ret_end)
{
	lapse_ms now;

	if (db_in_transaction(db))
		return eventlog_walk_tables(e, db, s, fn, arg, ret_end);
	int r = db_begin_read(db, &now);
	if (r < 0)
		return r;
	r = eventlog_walk_tables(e, db, s, fn, arg, ret_end);
	db_rollback(db);
	return r;
}
