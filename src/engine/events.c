/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/events.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/housekeeping.h"
#include "engine/tx.h"

static const char *const NAMES[] = { [EVENT_NONE] = "",
#define X(name, text) [EVENT_##name] = text,
				     EVENTS(X)
#undef X
};

const char *event_name(enum event_kind kind)
{
	assert(kind < sizeof(NAMES) / sizeof(NAMES[0]) && NAMES[kind]);
	return NAMES[kind];
}

static const struct db_stmt INSERT = {
	"INSERT INTO events (seq, at, owner, kind, data) VALUES ($1, $2, $3, $4, $5)"
};

/* A line break would end the event's line. JSON has none inside a text, so a space means the same.
 */
static void event_put_line(struct buf *out, const char *json)
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
	event_put_line(out, data);
	buf_puts(out, "}\n\n");
}

struct shown {
	int64_t seq;
	const char *owner, *text; /* NULL = no reader wanted it */
	size_t n;
};

static void event_show(struct engine *e, void *arg)
{
	const struct shown *s = arg;

	ring_add(&e->ring, s->seq, s->owner, s->text, s->n);
	cluster_note_event(e, s->seq);
}

bool events_are_followed(const struct tx *tx)
{
	return ring_is_followed(&tx->engine->ring);
}

static void event_show_later(struct tx *tx, int64_t seq, const char *kind,
			     const struct event_fact *fact)
{
	struct shown *s = tx_alloc(tx, sizeof(*s));

	s->seq = seq;
	s->owner = arena_strdup(&tx->arena, fact->owner);
	if (events_are_followed(tx)) {
		struct buf CLEANUP(buf_done) text = { 0 };
		event_write(&text, seq, tx->now, fact->owner, kind, fact->data);
		s->text = arena_strndup(&tx->arena, text.data, text.len);
		s->n = text.len;
	}
	tx_effect(tx, event_show, s);
}

static int64_t event_number(struct tx *tx, const char *kind, const struct event_fact *fact)
{
	int64_t seq = id_next(&tx->engine->ids, tx->now);

	assert(tx->write && fact->owner && fact->data[0] == '{');
	cluster_tell_event(tx);
	if (ring_is_enabled(&tx->engine->ring))
		event_show_later(tx, seq, kind, fact);
	return seq;
}

void event_tell(struct tx *tx, const char *owner, enum event_kind kind, int64_t seq,
		const struct buf *data)
{
	const struct event_fact fact = { owner, buf_text(data) };

	assert(tx->write && seq > 0);
	cluster_tell_event(tx);
	if (ring_is_enabled(&tx->engine->ring))
		event_show_later(tx, seq, NAMES[kind], &fact);
}

int event_leave(struct tx *tx, const char *owner, enum event_kind kind, int64_t seq, lapse_ms at,
		const struct buf *data)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	assert(tx->write && seq > 0);
	db_bind_int(&q, 1, seq);
	db_bind_int(&q, 2, at);
	db_bind_text(&q, 3, owner);
	db_bind_text(&q, 4, NAMES[kind]);
	db_bind_text(&q, 5, buf_text(data));
	tx_count(tx, &EVENT_BOUND, 1);
	return db_post_row(&q, DB_ONE);
}

static int event_add_one(struct tx *tx, const char *kind, const struct event_fact *fact)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	db_bind_int(&q, 1, event_number(tx, kind, fact));
	db_bind_int(&q, 2, tx->now);
	db_bind_text(&q, 3, fact->owner);
	db_bind_text(&q, 4, kind);
	db_bind_text(&q, 5, fact->data);
	return db_post_row(&q, DB_ONE);
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

static int events_add_together(struct tx *tx, const char *kind, const struct event_fact *facts)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT_MANY);

	db_bind_int(&q, 1, tx->now);
	db_bind_text(&q, 2, kind);
	for (int i = 0; i < TOGETHER; i++) {
		db_bind_int(&q, 3 * i + 3, event_number(tx, kind, &facts[i]));
		db_bind_text(&q, 3 * i + 4, facts[i].owner);
		db_bind_text(&q, 3 * i + 5, facts[i].data);
	}
	return db_post(&q, DB_ROWS_OR(TOGETHER, LAPSE_EINTERNAL));
}

static int add_all(struct tx *tx, const char *kind, const struct event_fact *facts, size_t n)
{
	size_t i = 0;
	int r = LAPSE_OK;

	assert(tx_can_write(tx));
	assert(kind && *kind);
	for (; r == LAPSE_OK && n - i >= TOGETHER; i += TOGETHER)
		r = events_add_together(tx, kind, &facts[i]);
	for (; r == LAPSE_OK && i < n; i++)
		r = event_add_one(tx, kind, &facts[i]);
	tx_count(tx, &EVENT_BOUND, (int64_t)n);
	return r;
}

int events_add(struct tx *tx, enum event_kind kind, const struct event_fact *facts, size_t n)
{
	assert(kind > EVENT_NONE && kind < ARRAY_LEN(NAMES));
	return add_all(tx, NAMES[kind], facts, n);
}

int event_add(struct tx *tx, const char *owner, enum event_kind kind, const struct buf *data)
{
	assert(kind > EVENT_NONE && kind < ARRAY_LEN(NAMES));
	return event_add_named(tx, owner, NAMES[kind], data);
}

int event_add_named(struct tx *tx, const char *owner, const char *kind, const struct buf *data)
{
	const struct event_fact fact = { owner, buf_text(data) };

	return add_all(tx, kind, &fact, 1);
}
