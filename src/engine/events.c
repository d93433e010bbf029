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

static void show_later(struct tx *tx, int64_t seq, enum event_kind kind,
		       const struct event_fact *fact)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct shown *s = tx_alloc(tx, sizeof(*s));

	event_write(&text, seq, tx->now, fact->owner, NAMES[kind], fact->data);
	s->seq = seq;
	s->owner = arena_strdup(&tx->arena, fact->owner);
	s->text = arena_strndup(&tx->arena, text.data, text.len);
	s->n = text.len;
	tx_effect(tx, show, s);
}

static int64_t number(struct tx *tx, enum event_kind kind, const struct event_fact *fact)
{
	int64_t seq = id_next(&tx->engine->ids, tx->now);

	if (ring_is_enabled(&tx->engine->ring))
		show_later(tx, seq, kind, fact);
	return seq;
}

static int add_one(struct tx *tx, enum event_kind kind, const struct event_fact *fact)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	db_bind_int(&q, 1, number(tx, kind, fact));
	db_bind_int(&q, 2, tx->now);
	db_bind_text(&q, 3, fact->owner);
	db_bind_text(&q, 4, NAMES[kind]);
	db_bind_text(&q, 5, fact->data);
	return db_run(&q);
}

/* Rows of one statement: the fewer statements, the less is paid around each row. */
#define TOGETHER 16
#define ROW(seq, owner, data) "($" #seq ", $1, $" #owner ", $2, $" #data ")"
/* clang-format off */
static const struct db_stmt INSERT_MANY = {
	"INSERT INTO events (seq, at, owner, kind, data) VALUES "
	ROW(3, 4, 5) ", " ROW(6, 7, 8) ", " ROW(9, 10, 11) ", " ROW(12, 13, 14) ", "
	ROW(15, 16, 17) ", " ROW(18, 19, 20) ", " ROW(21, 22, 23) ", " ROW(24, 25, 26) ", "
	ROW(27, 28, 29) ", " ROW(30, 31, 32) ", " ROW(33, 34, 35) ", " ROW(36, 37, 38) ", "
	ROW(39, 40, 41) ", " ROW(42, 43, 44) ", " ROW(45, 46, 47) ", " ROW(48, 49, 50)
};
/* clang-format on */
#undef ROW

static int add_together(struct tx *tx, enum event_kind kind, const struct event_fact *facts)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT_MANY);

	db_bind_int(&q, 1, tx->now);
	db_bind_text(&q, 2, NAMES[kind]);
	for (int i = 0; i < TOGETHER; i++) {
		db_bind_int(&q, 3 * i + 3, number(tx, kind, &facts[i]));
		db_bind_text(&q, 3 * i + 4, facts[i].owner);
		db_bind_text(&q, 3 * i + 5, facts[i].data);
	}
	return db_run(&q);
}

int events_add(struct tx *tx, enum event_kind kind, const struct event_fact *facts, size_t n)
{
	size_t i = 0;
	int r = LAPSE_OK;

	assert(kind != EVENT_NONE);
	for (; r == LAPSE_OK && n - i >= TOGETHER; i += TOGETHER)
		r = add_together(tx, kind, &facts[i]);
	for (; r == LAPSE_OK && i < n; i++)
		r = add_one(tx, kind, &facts[i]);
	tx_count(tx, "events", (int64_t)n);
	return r;
}

int event_add(struct tx *tx, const char *owner, enum event_kind kind, const struct buf *data)
{
	const struct event_fact fact = { owner, buf_text(data) };

	return events_add(tx, kind, &fact, 1);
}
