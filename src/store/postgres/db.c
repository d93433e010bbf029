/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: transactions and queries, on the pipeline of store/postgres/pipe.h. A savepoint ends
 * no round.
 *
 * A transaction is in one of these states. `broken` = a statement failed, and PostgreSQL refuses
 * everything until the step, or the transaction, is undone.
 *
 * A posted write waits among the pending ones, with what is expected of it. When it comes out
 * otherwise, the transaction is `refused`: it cannot commit, LAPSE_ERETRY asks for another run, and
 * that one is `awaited`: every write is waited for, so that the error reaches the request it
 * belongs to.
 *
 *	NONE → begin → OPEN ⇄ (savepoint, release) STEP
 *	OPEN, STEP → a statement fails → broken;  STEP broken → rollback_step → OPEN
 *	OPEN → commit → NONE;  all → rollback, the session is lost → NONE
 */
#include "store/postgres/db.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/postgres/gather.h"
#include "store/postgres/pipe.h"
#include "store/sql.h"

#define OUTCOME_TRIES 30     /* questions about a commit whose answer was lost … */
#define OUTCOME_PAUSE_MS 100 /* … and the time from one to the next */
#define OID_BOOL 16

static const struct db_driver PG_DRIVER;

/* Transactions */

/* The time, and the number by which the outcome of a lost COMMIT can be asked for. */
#define NOW_SQL "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
static const char SAMPLE_READ[] = "SELECT " NOW_SQL ", ''";
static const char SAMPLE_WRITE[] = "SELECT " NOW_SQL ", pg_current_xact_id()";
static const char PG_BEGIN_READ[] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
static const char PG_BEGIN_WRITE[] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/* The lock of the turn. The server gives it to those who wait in their order, and frees it when the
 * commit can be seen. */
#define TURN_KEY "7881706990341218406"
static const char TURN_TAKE[] = "SELECT pg_advisory_xact_lock(" TURN_KEY ")";

static int limit_locks(struct pg_db *db, int64_t ms)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "SET LOCAL lock_timeout = %" PRId64, ms);
	return pg_tell(db, sql);
}

/* In a round of its own: what follows must see everything that the turn before has committed, and
 * the sample of the clock must not take the wait for travel. */
static int take_turn(struct pg_db *db)
{
	int r = limit_locks(db, db->config.turn_ms);

	if (r == LAPSE_OK)
		r = pg_ask(db, TURN_TAKE, NULL);
	return r < 0 ? r : limit_locks(db, db->head.lock_ms ? db->head.lock_ms : WIRE_LOCK_MS);
}

/* The answer to a sample that was asked for after `before`. */
static void take_sample(struct pg_db *db, lapse_us before, PGresult *result)
{
	lapse_us after = clock_mono(db->config.system);

	if (db->config.time)
		pg_clock_sample(db->config.time, before,
				strtoll(PQgetvalue(result, 0, 0), NULL, 10), after);
	snprintf(db->xid, sizeof(db->xid), "%s", PQgetvalue(result, 0, 1));
	PQclear(result);
}

static int pg_begin_once(struct pg_db *db, bool write)
{
	PGresult *result = NULL;
	int r = pg_tell(db, write ? PG_BEGIN_WRITE : PG_BEGIN_READ);

	if (r == LAPSE_OK && write && db->config.turn_ms > 0)
		r = take_turn(db);
	else if (r == LAPSE_OK && write && db->head.lock_ms)
		r = limit_locks(db, db->head.lock_ms);
	lapse_us before = clock_mono(db->config.system);
	if (r == LAPSE_OK)
		r = pg_ask(db, write ? SAMPLE_WRITE : SAMPLE_READ, &result);
	if (r == LAPSE_OK)
		take_sample(db, before, result);
	return r;
}

/* A session that died while it was idle shows it only now. */
static int pg_begin(struct db *head, bool write)
{
	struct pg_db *db = pg_of(head);
	int r = pg_need_session(db);

	assert(db->tx == PG_NONE && !db->broken);
	head->lock_met = DB_LOCK_NONE;
	db->lost = false;
	if (r == LAPSE_OK)
		r = pg_begin_once(db, write);
	if (r < 0 && !wire_is_up(&db->wire)) {
		r = pg_need_session(db);
		if (r == LAPSE_OK)
			r = pg_begin_once(db, write);
	}
	if (r < 0 && wire_is_up(&db->wire)) { /* whatever it is, a new session does not have it */
		wire_close(&db->wire);
		pg_forget_session(db);
	}
	db->awaited = db->await_next;
	db->await_next = db->refused = false;
	if (r == LAPSE_OK)
		db->tx = PG_OPEN;
	return r == LAPSE_ERETRY ? LAPSE_EUNAVAILABLE : r;
}

/* The server that a COMMIT was sent to. */
struct commit_place {
	char timeline[WIRE_TIMELINE_LEN + 1];
	char life[WIRE_LIFE_MAX];
};

static struct commit_place where_committed(const struct wire *w)
{
	struct commit_place p;

	memcpy(p.timeline, w->timeline, sizeof(p.timeline));
	memcpy(p.life, w->life, sizeof(p.life));
	return p;
}

/* One question about a commit; LAPSE_EBUSY = it is still under way. The numbers of transactions
 * mean something only to the server, and the history, that gave them. A server that crashed gives
 * numbers out again that it has not written down: then "committed" may be said of another one. */
static int ask_outcome(struct pg_db *db, const struct commit_place *place)
{
	char sql[96], status[32] = "";
	int r = wire_is_up(&db->wire) ? LAPSE_OK : pg_redial(db, OUTCOME_PAUSE_MS);

	if (r < 0)
		return LAPSE_EBUSY;
	if (strcmp(db->wire.timeline, place->timeline) != 0)
		return LAPSE_EUNKNOWN;
	snprintf(sql, sizeof(sql), "SELECT pg_xact_status('%s'::xid8)", db->xid);
	r = wire_ask(&db->wire, sql, status, sizeof(status));
	if (r < 0 || strcmp(status, "in progress") == 0)
		return LAPSE_EBUSY;
	if (strcmp(status, "committed") == 0)
		return strcmp(db->wire.life, place->life) == 0 ? LAPSE_OK : LAPSE_EUNKNOWN;
	return strcmp(status, "aborted") == 0 ? LAPSE_ERETRY : LAPSE_EUNKNOWN;
}

/* The session was lost before COMMIT was answered. */
static int find_outcome(struct pg_db *db)
{
	const struct commit_place place = where_committed(&db->wire);
	int r = LAPSE_EBUSY;

	if (!db->xid[0]) /* it wrote nothing */
		return LAPSE_ERETRY;
	for (int i = 0; r == LAPSE_EBUSY && i < OUTCOME_TRIES; i++) {
		if (i > 0 && !db->dial) /* otherwise ask_outcome() waits */
			usleep(OUTCOME_PAUSE_MS * 1000);
		r = ask_outcome(db, &place);
	}
	return r == LAPSE_EBUSY ? LAPSE_EUNKNOWN : r;
}

/* COMMIT of a failed transaction answers ROLLBACK, which is no success. A warning means that a
 * synchronous standby was not waited for to the end. */
static int judge_commit(struct pg_db *db, PGresult *result)
{
	bool committed = strcmp(PQcmdStatus(result), "COMMIT") == 0;

	PQclear(result);
	if (!committed)
		return LAPSE_ERETRY;
	if (!db->wire.warned)
		return LAPSE_OK;
	snprintf(db->wire.error, sizeof(db->wire.error),
		 "committed here, but maybe not on the standby");
	return LAPSE_EUNKNOWN;
}

static int pg_commit(struct db *head)
{
	struct pg_db *db = pg_of(head);
	PGresult *result = NULL;
	int r = db->lost ? LAPSE_ERETRY : gather_send(db);

	if (r == LAPSE_OK && db->pending_count)
		r = pg_round(db);
	if (r == LAPSE_OK && (db->refused || db->lost))
		r = LAPSE_ERETRY;
	if (r < 0)
		return r;
	assert(db->tx == PG_OPEN);
	db->wire.warned = false;
	r = pg_ask(db, "COMMIT", &result);
	if (r < 0 && !wire_is_up(&db->wire)) {
		db->lost = false;
		return find_outcome(db);
	}
	db->tx = PG_NONE;
	db->broken = false;
	return r < 0 ? r : judge_commit(db, result);
}

static bool pg_in_transaction(const struct db *head)
{
	const struct pg_db *db = pg_of(head);

	return db->tx != PG_NONE && (!db->broken || db->tx == PG_STEP);
}

static void pg_rollback(struct db *head)
{
	struct pg_db *db = pg_of(head);

	db->lost = false;
	if (db->tx == PG_NONE)
		return;
	gather_drop(db);
	if (db->pending_count)
		pg_round(db);
	db->lost = false;
	if (wire_is_up(&db->wire) && pg_ask(db, "ROLLBACK", NULL) < 0)
		wire_close(&db->wire);
	db->tx = PG_NONE;
	db->broken = false;
}

static int pg_savepoint(struct db *head)
{
	struct pg_db *db = pg_of(head);
	int r = pg_tell(db, "SAVEPOINT step");

	assert(r < 0 || db->tx == PG_OPEN);
	if (r == LAPSE_OK)
		db->tx = PG_STEP;
	return r;
}

static int pg_release(struct db *head)
{
	struct pg_db *db = pg_of(head);
	int r = pg_tell(db, "RELEASE step");

	assert(r < 0 || db->tx == PG_STEP);
	if (r == LAPSE_OK)
		db->tx = PG_OPEN;
	return r;
}

static int pg_rollback_step(struct db *head)
{
	struct pg_db *db = pg_of(head);

	gather_drop(db); /* what was gathered before the step is sent */
	int r = db->pending_count ? pg_round(db) : LAPSE_OK;
	if (r < 0)
		return r;
	assert(db->tx == PG_STEP);
	db->broken = false;
	r = pg_tell(db, "ROLLBACK TO step");
	if (r == LAPSE_OK)
		r = pg_ask(db, "RELEASE step", NULL);
	if (r == LAPSE_OK)
		db->tx = PG_OPEN;
	return r;
}

static int pg_script(struct db *head, const char *sql)
{
	struct pg_db *db = pg_of(head);
	struct buf CLEANUP(buf_done) text = { 0 };

	assert(db->pending_count == 0 && list_empty(&db->gathering));
	sql_schema(&text, DIALECT_POSTGRES, sql);
	int r = wire_script(&db->wire, buf_text(&text));
	if (!wire_is_up(&db->wire))
		pg_forget_session(db);
	else if (r < 0)
		db->broken = db->tx != PG_NONE;
	return r;
}

/* Queries */

static int pg_prepare(struct db *head, const struct db_stmt *stmt, struct db_prepared **ret)
{
	*ret = &pg_find(pg_of(head), stmt->sql)->head;
	return LAPSE_OK;
}

/* The server's copy of it goes with the session. */
static bool pg_forget(struct db *head, const char *sql)
{
	struct pg_db *db = pg_of(head);
	struct map_node *node = map_find(&db->statements, sql);

	if (!node)
		return false;
	for (size_t i = 0; i < db->pending_count; i++)
		if (db->pending[i].prepared == CONTAINER_OF(node, struct pg_prepared, node))
			db->pending[i].prepared = NULL;
	assert(!gather_has_rows(CONTAINER_OF(node, struct pg_prepared, node)));
	map_remove(&db->statements, node);
	pg_free_node(node, NULL);
	return true;
}

static int pg_bind(struct db *head, struct db_prepared *prepared)
{
	(void)head;
	(void)prepared; /* the values stay where they are until they are sent */
	return LAPSE_OK;
}

static int run_asked(struct pg_db *db, struct pg_prepared *p)
{
	int r = gather_send(db);

	if (r == LAPSE_OK)
		r = pg_make_room(db);
	if (r == LAPSE_OK)
		r = pg_send(db, p, true);
	return r < 0 ? r : pg_round(db);
}

/* A statement outside a transaction brings the time with it. */
static int run_alone(struct pg_db *db, struct pg_prepared *p)
{
	struct pg_prepared *sample = pg_find(db, SAMPLE_READ);
	lapse_us before = clock_mono(db->config.system);
	int r = db->config.time ? pg_send(db, sample, true) : LAPSE_OK;

	if (r == LAPSE_OK)
		r = run_asked(db, p);
	if (sample->result) {
		take_sample(db, before, sample->result);
		sample->result = NULL;
	}
	return r;
}

/* Outside a transaction a read may simply be tried again. What belongs to a transaction whose
 * session went must not: it would run by itself, and stay. */
static int run_statement(struct pg_db *db, struct pg_prepared *p)
{
	bool alone = db->tx == PG_NONE;

	if (db->lost)
		return LAPSE_ERETRY;
	int r = alone ? pg_need_session(db) : LAPSE_OK;
	if (r == LAPSE_OK)
		r = alone ? run_alone(db, p) : run_asked(db, p);
	if (r == LAPSE_ERETRY && alone && !wire_is_up(&db->wire)) {
		r = pg_need_session(db);
		if (r == LAPSE_OK)
			r = run_alone(db, p);
	}
	return r;
}

static int run_expecting(struct pg_db *db, struct pg_prepared *p, struct db_expect expect)
{
	int r = run_statement(db, p);

	if (r < 0 || expect.rows < 0 || db->changed == expect.rows)
		return r;
	return expect.otherwise;
}

static bool may_post(const struct pg_db *db)
{
	return db->tx != PG_NONE && !db->awaited;
}

static int pg_post(struct db *head, struct db_prepared *prepared, struct db_expect expect)
{
	struct pg_db *db = pg_of(head);
	struct pg_prepared *p = pg_prepared_of(prepared);

	if (!may_post(db))
		return run_expecting(db, p, expect);
	int r = pg_make_room(db);
	if (r == LAPSE_OK)
		r = pg_send_expecting(db, p, false, expect.rows);
	db->changes++; /* now: its answer comes while something else runs */
	return r;
}

static int pg_post_row(struct db *head, struct db_prepared *prepared, struct db_expect expect)
{
	struct pg_db *db = pg_of(head);
	struct pg_prepared *p = pg_prepared_of(prepared);

	if (!may_post(db))
		return run_expecting(db, p, expect);
	if (!gather_takes(p))
		return pg_post(head, prepared, expect);
	db->changes++;
	return gather_add(db, p, expect.rows);
}

static int pg_flush(struct db *head)
{
	return gather_send(pg_of(head));
}

static int pg_step(struct db *head, struct db_prepared *prepared)
{
	struct pg_prepared *p = pg_prepared_of(prepared);

	if (p->result) {
		p->row++;
	} else {
		int r = run_statement(pg_of(head), p);
		if (r < 0)
			return r;
		p->row = 0;
	}
	return p->row < PQntuples(p->result);
}

static void pg_reset(struct db *head, struct db_prepared *prepared)
{
	(void)head;
	pg_clear_result(pg_prepared_of(prepared));
}

static int64_t pg_changed(const struct db *head)
{
	return pg_of(head)->changed;
}

static int64_t pg_changes_total(const struct db *head)
{
	return pg_of(head)->changes;
}

static int64_t pg_number(struct db_prepared *prepared, int column)
{
	const struct pg_prepared *p = pg_prepared_of(prepared);
	const char *text = PQgetvalue(p->result, p->row, column);

	assert(column < PQnfields(p->result));
	if (PQftype(p->result, column) == OID_BOOL)
		return text[0] == 't';
	return strtoll(text, NULL, 10);
}

static bool pg_is_null(struct db_prepared *prepared, int column)
{
	const struct pg_prepared *p = pg_prepared_of(prepared);

	assert(column < PQnfields(p->result));
	return PQgetisnull(p->result, p->row, column);
}

static const char *pg_text(struct db_prepared *prepared, int column)
{
	const struct pg_prepared *p = pg_prepared_of(prepared);

	return pg_is_null(prepared, column) ? NULL : PQgetvalue(p->result, p->row, column);
}

/* The connection */

static const char *pg_error(const struct db *head)
{
	return pg_of(head)->wire.error;
}

static void pg_interrupt(struct db *head)
{
	wire_interrupt(&pg_of(head)->wire);
}

static void pg_close(struct db *head)
{
	struct pg_db *db = pg_of(head);

	dial_abandon(db->dial);
	wire_done(&db->wire);
	map_each(&db->statements, pg_free_node, NULL);
	map_done(&db->statements);
	head->magic = 0;
	free(db);
}

static const struct db_driver PG_DRIVER = {
	.close = pg_close,
	.error = pg_error,
	.interrupt = pg_interrupt,
	.begin = pg_begin,
	.commit = pg_commit,
	.rollback = pg_rollback,
	.in_transaction = pg_in_transaction,
	.changes_total = pg_changes_total,
	.savepoint = pg_savepoint,
	.release = pg_release,
	.rollback_step = pg_rollback_step,
	.script = pg_script,
	.prepare = pg_prepare,
	.forget = pg_forget,
	.bind = pg_bind,
	.step = pg_step,
	.reset = pg_reset,
	.changed = pg_changed,
	.post = pg_post,
	.post_row = pg_post_row,
	.flush = pg_flush,
	.number = pg_number,
	.text = pg_text,
	.is_null = pg_is_null,
};

int pg_open(const struct pg_config *config, struct db **ret, struct problem *p)
{
	struct pg_db *db = mem_zalloc(1, sizeof(*db));

	assert(config->system && config->clock && config->wire.uri);
	db->head = (struct db){ .magic = DB_MAGIC, .driver = &PG_DRIVER, .clock = config->clock };
	db->config = *config;
	wire_init(&db->wire, &config->wire);
	map_init(&db->statements);
	list_init(&db->gathering);
	int r = pg_connect(db, p);
	if (r < 0) {
		pg_close(&db->head);
		return r;
	}
	*ret = &db->head;
	return LAPSE_OK;
}

int pg_limit_statements(struct db *head, int64_t ms)
{
	struct pg_db *db = pg_of(head);
	char sql[96];

	assert(db->tx == PG_NONE && ms >= 0);
	db->wire.config.statement_ms = ms;
	snprintf(sql, sizeof(sql), "SET statement_timeout = %" PRId64 "; SET lock_timeout = %d", ms,
		 WIRE_LOCK_MS);
	return wire_script(&db->wire, sql);
}

int pg_command(struct db *head, const char *sql)
{
	struct pg_db *db = pg_of(head);

	assert(db->tx == PG_NONE && db->pending_count == 0 && list_empty(&db->gathering));
	return wire_script(&db->wire, sql);
}

int64_t pg_reconnects(const struct db *head)
{
	return pg_of(head)->reconnects;
}
