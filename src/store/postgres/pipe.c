/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/pipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/postgres/gather.h"
#include "store/sql.h"

#define RECONNECT_US INT64_C(500000) /* between two attempts to reach a server that is away */
#define RECONNECT_WAIT_MS 500        /* for one of them, once: the loop may be waiting */
#define OID_INT8 20

/* Statements */

/* The largest n of a parameter $n outside quotes. */
static int count_params(const char *sql)
{
	int most = 0;

	for (const char *c = sql; *c; c++) {
		if (*c == '\'') {
			c = strchr(c + 1, '\'');
			assert(c); /* our own SQL closes its quotes */
		} else if (*c == '$') {
			int n = atoi(c + 1);
			most = n > most ? n : most;
		}
	}
	return most;
}

static char *pg_dialect(const char *sql)
{
	struct buf out = { 0 };

	sql_for_postgres(&out, sql);
	return buf_take(&out);
}

struct pg_prepared *pg_find(struct pg_db *db, const char *text)
{
	struct map_node *node = map_find(&db->statements, text);

	if (node)
		return CONTAINER_OF(node, struct pg_prepared, node);
	struct pg_prepared *p = mem_zalloc(1, sizeof(*p));
	p->text = mem_strdup(text);
	p->sql = pg_dialect(text);
	snprintf(p->name, sizeof(p->name), "s%" PRId64, ++db->names);
	p->head.params = count_params(text);
	assert(p->head.params <= DB_PARAMS_MAX);
	p->head.values = mem_zalloc((size_t)p->head.params + 1, sizeof(*p->head.values));
	map_insert(&db->statements, &p->node, p->text);
	return p;
}

void pg_clear_result(struct pg_prepared *p)
{
	PQclear(p->result); /* takes NULL */
	p->result = NULL;
	p->row = 0;
}

void pg_free(struct pg_prepared *p)
{
	assert(!p->head.open);
	pg_clear_result(p);
	gather_free(p->gathered);
	free(p->head.values);
	free(p->text);
	free(p->sql);
	free(p);
}

void pg_free_node(struct map_node *node, void *arg)
{
	(void)arg;
	pg_free(CONTAINER_OF(node, struct pg_prepared, node));
}

/* Sessions */

void pg_forget_session(struct pg_db *db)
{
	assert(!wire_is_up(&db->wire));
	db->pending_count = 0;
	gather_drop(db);
	db->lost |= db->tx != PG_NONE;
	db->tx = PG_NONE;
	db->broken = db->refused = false;
}

int pg_connect(struct pg_db *db, struct problem *p)
{
	int r = wire_connect(&db->wire, p);

	if (r == LAPSE_OK && db->config.greet)
		r = db->config.greet(db->config.greet_arg, &db->wire, p);
	if (r < 0)
		wire_close(&db->wire);
	return r;
}

/* Takes the session that was made, or the reason why there is none. */
static int end_dial(struct pg_db *db)
{
	struct problem p = { 0 };
	int r = dial_take(db->dial, &db->wire, &p);

	db->dial = NULL;
	if (r == LAPSE_OK)
		return LAPSE_OK;
	db->next_dial = clock_mono(db->config.system) + RECONNECT_US;
	if (p.message[0])
		snprintf(db->wire.error, sizeof(db->wire.error), "%s", p.message);
	return LAPSE_EUNAVAILABLE;
}

int pg_redial(struct pg_db *db, int wait_ms)
{
	assert(!wire_is_up(&db->wire));
	if (!db->dial) {
		db->dial = dial_start(&db->wire.config, db->config.greet, db->config.greet_arg);
		db->reconnects++;
	}
	return db->dial && dial_is_over(db->dial, wait_ms) ? end_dial(db) : LAPSE_EUNAVAILABLE;
}

int pg_need_session(struct pg_db *db)
{
	if (wire_is_up(&db->wire))
		return LAPSE_OK;
	pg_forget_session(db);
	if (!db->dial && clock_mono(db->config.system) < db->next_dial)
		return LAPSE_EUNAVAILABLE;
	return pg_redial(db, db->dial ? 0 : RECONNECT_WAIT_MS);
}

/* Rounds */

static int note_pending(struct pg_db *db, struct pg_pending pending)
{
	assert(db->pending_count < PENDING_MAX);
	db->pending[db->pending_count++] = pending;
	return LAPSE_OK;
}

/* Integers have one type; the server finds the type of everything else by itself. */
static int send_prepare(struct pg_db *db, struct pg_prepared *p, bool asked)
{
	Oid types[DB_PARAMS_MAX];

	for (int i = 0; i < p->head.params; i++)
		types[i] = p->head.values[i].kind == DB_INT ? OID_INT8 : 0;
	int r = wire_prepare(&db->wire, p->name, p->sql, p->head.params, types);
	if (r < 0)
		return r;
	p->session = db->wire.session;
	return note_pending(
		db,
		(struct pg_pending){ .prepared = p, .prepares = true, .asked = asked, .rows = -1 });
}

static int send_execute(struct pg_db *db, struct pg_prepared *p, bool asked, int64_t rows)
{
	char numbers[DB_PARAMS_MAX][24];
	const char *values[DB_PARAMS_MAX];

	for (int i = 0; i < p->head.params; i++) {
		const struct db_value *v = &p->head.values[i];
		values[i] = v->kind == DB_TEXT ? v->text : NULL;
		if (v->kind == DB_INT) {
			snprintf(numbers[i], sizeof(numbers[i]), "%" PRId64, v->number);
			values[i] = numbers[i];
		}
	}
	int r = wire_execute(&db->wire, p->name, p->head.params, values);
	if (r < 0)
		return r;
	return note_pending(db, (struct pg_pending){ .prepared = p, .asked = asked, .rows = rows });
}

int pg_send_expecting(struct pg_db *db, struct pg_prepared *p, bool asked, int64_t rows)
{
	int r = LAPSE_OK;

	assert(db->pending_count + 2 <= PENDING_MAX);
	if (p->session != db->wire.session)
		r = send_prepare(db, p, asked);
	return r < 0 ? r : send_execute(db, p, asked, rows);
}

int pg_send(struct pg_db *db, struct pg_prepared *p, bool asked)
{
	return pg_send_expecting(db, p, asked, -1);
}

static int64_t rows_changed(const PGresult *result)
{
	const char *tag = PQcmdStatus((PGresult *)(uintptr_t)result);
	bool writes = strncmp(tag, "INSERT", 6) == 0 || strncmp(tag, "UPDATE", 6) == 0 ||
		      strncmp(tag, "DELETE", 6) == 0;

	return writes ? strtoll(PQcmdTuples((PGresult *)(uintptr_t)result), NULL, 10) : 0;
}

/* Takes the answer to one command. */
static int settle_pending(struct pg_db *db, const struct pg_pending *x, PGresult *result)
{
	int r = wire_judge(&db->wire, result);

	if (r < 0) {
		db->broken = db->tx != PG_NONE;
		if (x->prepares && x->prepared)
			x->prepared->session = 0;
	} else if (!x->prepares) {
		int64_t n = rows_changed(result);
		if (x->asked) {
			assert(x->prepared);
			db->changed = n;
			db->changes += n;
			x->prepared->result = result;
			return LAPSE_OK;
		}
		if (x->rows >= 0 && x->rows != n)
			r = LAPSE_ERETRY;
	}
	PQclear(result);
	if (r < 0 && !x->asked)
		db->refused = db->await_next = true;
	return r;
}

int pg_round(struct pg_db *db)
{
	size_t n = db->pending_count;
	int first = LAPSE_OK;
	int r = wire_mark(&db->wire);

	db->wire.locked = false;
	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		PGresult *result;
		r = wire_answer(&db->wire, &result);
		if (r < 0)
			break;
		int err = settle_pending(db, &db->pending[i], result);
		if (first == LAPSE_OK && err < 0) {
			bool asked = db->pending[i].asked;
			first = asked ? err : LAPSE_ERETRY;
			if (db->wire.locked)
				db->head.lock_met = asked ? DB_LOCK_HERE : DB_LOCK_EARLIER;
		}
	}
	db->pending_count = 0;
	if (r == LAPSE_OK)
		r = wire_end_round(&db->wire);
	if (r < 0)
		pg_forget_session(db);
	return r < 0 ? r : first;
}

int pg_make_room(struct pg_db *db)
{
	return db->pending_count + 2 > PENDING_MAX ? pg_round(db) : LAPSE_OK;
}

int pg_tell(struct pg_db *db, const char *sql)
{
	int r = gather_send(db);

	if (r == LAPSE_OK)
		r = pg_make_room(db);
	return r < 0 ? r : pg_send(db, pg_find(db, sql), false);
}

int pg_ask(struct pg_db *db, const char *sql, PGresult **ret)
{
	struct pg_prepared *p = pg_find(db, sql);
	int r = gather_send(db);

	assert(p->head.params == 0);
	if (r == LAPSE_OK)
		r = pg_make_room(db);
	if (r == LAPSE_OK)
		r = pg_send(db, p, true);
	if (r == LAPSE_OK)
		r = pg_round(db);
	if (r == LAPSE_OK && ret) {
		*ret = p->result;
		p->result = NULL;
	}
	pg_clear_result(p);
	return r;
}
