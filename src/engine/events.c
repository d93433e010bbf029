/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/events.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

static const char *const NAMES[] = { [EVENT_NONE] = "",
#define X(name, text) [EVENT_##name] = text,
				     EVENTS(X)
#undef X
};

const char *event_name(enum event_kind kind)
{
	return NAMES[kind];
}

static const struct db_stmt INSERT = {
	"INSERT INTO events (seq, at, owner, kind, data) VALUES ($1, $2, $3, $4, $5)"
};

/* A line break would end the event's line. JSON has none inside a text, so a space means the same.
 */
static void put_line(struct buf *out, const char *json)
{
	size_t start = out->len;

	buf_puts(out, json);
	for (char *p = out->data + start; (p = strpbrk(p, "\r\n")) != NULL;)
		*p = ' ';
}

void event_write(struct buf *out, int64_t seq, lapse_ms at, const char *owner, const char *kind,
		 const char *data)
{
	char id[ID_TEXT_LEN + 1];

	id_format(seq, id);
	buf_reserve(out, strlen(data) + strlen(owner) + 160);
	buf_puts(out, "id: ");
	buf_add(out, id, ID_TEXT_LEN);
	buf_puts(out, "\nevent: ");
	buf_puts(out, kind);
	buf_puts(out, "\ndata: {");
	json_put_time(out, "at", at);
	json_put_text(out, "owner", owner);
	json_key(out, "data");
	put_line(out, data);
	buf_puts(out, "}\n\n");
}

struct shown {
	int64_t seq;
	const char *owner, *text;
	size_t n;
};

static void show(struct engine *e, void *arg)
{
	const struct shown *s = arg;

	ring_add(&e->ring, s->seq, s->owner, s->text, s->n);
}

static void show_later(struct tx *tx, int64_t seq, const char *owner, enum event_kind kind,
		       const struct buf *data)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct shown *s = tx_alloc(tx, sizeof(*s));

	event_write(&text, seq, tx->now, owner, NAMES[kind], buf_text(data));
	s->seq = seq;
	s->owner = arena_strdup(&tx->arena, owner);
	s->text = arena_strndup(&tx->arena, text.data, text.len);
	s->n = text.len;
	tx_effect(tx, show, s);
}

int event_add(struct tx *tx, const char *owner, enum event_kind kind, const struct buf *data)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);
	int64_t seq = id_next(&tx->engine->ids, tx->now);

	assert(kind != EVENT_NONE);
	if (ring_is_enabled(&tx->engine->ring))
		show_later(tx, seq, owner, kind, data);
	db_bind_int(&q, 1, seq);
	db_bind_int(&q, 2, tx->now);
	db_bind_text(&q, 3, owner);
	db_bind_text(&q, 4, NAMES[kind]);
	db_bind_text(&q, 5, buf_text(data));
	tx_count(tx, "events", 1);
	return db_run(&q);
}
