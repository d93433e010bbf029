/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/move.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/secret.h"
#include "store/migrate.h"
#include "store/postgres/db.h"
#include "store/postgres/lock.h"
#include "store/postgres/move_table.h"
#include "store/postgres/uri.h"
#include "store/sql.h"
#include "store/sqlite/db.h"
#include "store/sqlite/restore_check.h"

#define MOVE_TABLES_MAX 128 /* the schema has a quarter of that */
#define SOURCE_BUSY_MS 1000

/* How far the target is, in lapse_move. */
enum move_state {
	MOVE_NONE = 0,   /* it is empty */
	MOVE_SCHEMA = 1, /* it gets its tables */
	MOVE_ROWS = 2,   /* it gets its rows */
	MOVE_SAME = 3,   /* both sides were compared: what is left is to make it the store */
};

struct move {
	const struct move_config *config;
	struct datadir dir;
	char database[DATADIR_PATH_MAX];
	struct buf uri; /* may hold a password */
	struct pg_clock time;
	struct wire wire; /* to the target, for copies */
	struct move_sides sides;

	int64_t source_id; /* what tells one store from another: when it was made */
	int64_t version;   /* of its schema */
	enum move_state state;
	struct move_table tables[MOVE_TABLES_MAX];
	size_t tables_count;
};

static void move_done(struct move *m)
{
	for (size_t i = 0; i < m->tables_count; i++)
		move_table_done(&m->tables[i]);
	wire_done(&m->wire);
	db_close(m->sides.target);
	db_close(m->sides.source);
	datadir_unlock(&m->dir);
	secret_wipe(&m->uri);
}

static int target_failed(const struct move *m, int err, struct problem *p)
{
	return problem_set(p, err, NULL, "the target does not do it: %.200s",
			   db_error(m->sides.target));
}

/* The source */

static int check_source(struct move *m, struct problem *p)
{
	struct db *db = m->sides.source;
	char fault[120] = "";
	int r = migrate_current(db, &m->version);

	if (r < 0 || m->version == 0)
		return problem_set(p, LAPSE_EINVAL, NULL, "%.120s is not a database of lapse",
				   m->database);
	if (m->version > migrate_newest())
		return problem_set(p, LAPSE_EVERSION, NULL,
				   "%.120s has schema version %" PRId64
				   ", this program knows only %d",
				   m->database, m->version, migrate_newest());
	r = sqlite_check(db, fault, sizeof(fault));
	if (r == LAPSE_OK && fault[0])
		return problem_set(p, LAPSE_ECORRUPT, NULL, "%.100s is damaged: %s", m->database,
				   fault);
	if (r == LAPSE_OK)
		r = restore_check(db, m->database, m->version, p);
	if (r == LAPSE_OK)
		r = meta_get(db, META_CREATED_AT, 0, &m->source_id);
	if (r < 0 && !p->message[0])
		problem_set(p, r, NULL, "cannot read %.100s: %.120s", m->database, db_error(db));
	return r;
}

static int open_move_source(struct move *m, struct problem *p)
{
	struct db_config config = { .path = m->database,
				    .clock = &CLOCK_SYSTEM,
				    .durable = true,
				    .busy_timeout_ms = SOURCE_BUSY_MS };
	int r = db_open(&config, &m->sides.source, p);

	return r < 0 ? r : check_source(m, p);
}

static int list_tables(struct move *m, struct problem *p)
{
	static const struct db_stmt all = {
		"SELECT name FROM sqlite_schema WHERE type = 'table' "
		"AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
	};
	struct db_query CLEANUP(db_finish) q = db_query(m->sides.source, &all);
	int r;

	while ((r = db_step(&q)) > 0) {
		assert(m->tables_count < MOVE_TABLES_MAX);
		r = move_table_describe(m->sides.source, db_text(&q, 0),
					&m->tables[m->tables_count++]);
		if (r < 0)
			break;
	}
	if (r < 0)
		problem_set(p, r, NULL, "cannot read %.100s: %.120s", m->database,
			    db_error(m->sides.source));
	return r;
}

/* The target */

static const struct db_stmt MOVE_EXISTS = {
	"SELECT 1 WHERE to_regclass('lapse_move') IS NOT NULL"
};
static const struct db_stmt MOVE_GET = { "SELECT state, source FROM lapse_move" };
static const struct db_stmt MOVE_SET = { "UPDATE lapse_move SET state = $1" };
static const struct db_stmt MOVE_BEGIN = {
	"INSERT INTO lapse_move (state, source, schema_version) VALUES ($1, $2, $3)"
};

/* Anything that is nobody's but a user's. */
static const struct db_stmt OTHER_DATA = {
	"SELECT n.nspname || '.' || c.relname FROM pg_class AS c "
	"JOIN pg_namespace AS n ON n.oid = c.relnamespace "
	"WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') "
	"AND n.nspname NOT IN ('pg_catalog', 'information_schema') "
	"AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1 LIMIT 1"
};

int move_is_unfinished(struct db *target, bool *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(target, &MOVE_EXISTS);
	int r = db_step(&q);

	if (r >= 0)
		*ret = r > 0;
	return r < 0 ? r : LAPSE_OK;
}

static int refuse_other_data(struct move *m, struct problem *p)
{
	struct db_query CLEANUP(db_finish) q = db_query(m->sides.target, &OTHER_DATA);
	int r = db_step(&q);

	if (r > 0)
		return problem_set(p, LAPSE_ECONFLICT, NULL,
				   "the target has data already (%.100s, for one): make an empty "
				   "database and name it",
				   db_text(&q, 0));
	return r < 0 ? target_failed(m, r, p) : LAPSE_OK;
}

static int read_move_state(struct move *m, struct problem *p)
{
	struct db_query CLEANUP(db_finish) q = db_query(m->sides.target, &MOVE_GET);
	int r = db_step(&q);

	if (r <= 0)
		return r < 0 ? target_failed(m, r, p)
			     : problem_set(p, LAPSE_ECORRUPT, NULL,
					   "the target's table lapse_move is empty: make an empty "
					   "database and name it");
	if (m->sides.source && db_int(&q, 1) != m->source_id)
		return problem_set(p, LAPSE_ECONFLICT, NULL,
				   "the target has a part of another store, whose move was not "
				   "finished: make an empty database and name it");
	m->state = (enum move_state)db_int(&q, 0);
	return LAPSE_OK;
}

static int find_move_state(struct move *m, struct problem *p)
{
	bool begun = false;
	int r = move_is_unfinished(m->sides.target, &begun);

	if (r < 0)
		return target_failed(m, r, p);
	return begun ? read_move_state(m, p) : refuse_other_data(m, p);
}

static int open_move_target(struct move *m, struct problem *p)
{
	int r = pg_uri_read(m->config->store, &m->uri, p);
	struct pg_config config = { .wire = { .uri = buf_text(&m->uri) },
				    .clock = &m->time.clock,
				    .system = &CLOCK_SYSTEM,
				    .time = &m->time,
				    .greet = pg_lock_take };

	if (r == LAPSE_OK)
		r = pg_open(&config, &m->sides.target, p);
	if (r < 0)
		return r;
	m->wire.config = config.wire;
	r = wire_connect(&m->wire, p);
	return r < 0 ? r : find_move_state(m, p);
}

/* Runs `work`, then notes the state, in one transaction. */
static int move_to_state(struct move *m, enum move_state state, int (*work)(struct move *m),
			 struct problem *p)
{
	struct db *db = m->sides.target;
	lapse_ms now;
	int r = db_begin(db, &now);

	assert(state > m->state);
	if (r == LAPSE_OK && work)
		r = work(m);
	if (r == LAPSE_OK && state != MOVE_SCHEMA) {
		struct db_query CLEANUP(db_finish) q = db_query(db, &MOVE_SET);
		db_bind_int(&q, 1, state);
		r = db_post(&q, DB_ONE);
	}
	if (r == LAPSE_OK)
		r = db_commit(db);
	if (r < 0) {
		target_failed(m, r, p);
		db_rollback(db);
		return r;
	}
	m->state = state;
	return LAPSE_OK;
}

static int note_source(struct move *m)
{
	int r = db_script(m->sides.target,
			  "CREATE TABLE lapse_move (state INTEGER NOT NULL, source INTEGER NOT "
			  "NULL, schema_version INTEGER NOT NULL)");

	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(m->sides.target, &MOVE_BEGIN);
	db_bind_int(&q, 1, MOVE_SCHEMA);
	db_bind_int(&q, 2, m->source_id);
	db_bind_int(&q, 3, m->version);
	return db_post(&q, DB_ONE);
}

/* The schema's steps bring rows of their own, which the source has, too. */
static int empty_tables(struct move *m)
{
	struct buf CLEANUP(buf_done) sql = { 0 };

	buf_puts(&sql, "TRUNCATE ");
	for (size_t i = 0; i < m->tables_count; i++) {
		buf_puts(&sql, i ? ", " : "");
		sql_name(&sql, m->tables[i].name);
	}
	return db_script(m->sides.target, buf_text(&sql));
}

static int make_schema(struct move *m, struct problem *p)
{
	int r = LAPSE_OK;

	if (m->state == MOVE_NONE)
		r = move_to_state(m, MOVE_SCHEMA, note_source, p);
	if (r == LAPSE_OK && m->state == MOVE_SCHEMA) {
		r = migrate_to(m->sides.target, (int)m->version, p);
		if (r == LAPSE_OK)
			r = move_to_state(m, MOVE_ROWS, empty_tables, p);
	}
	return r;
}

/* Rows */

static int copy_again(struct move *m, const struct move_table *t, bool *ret_same, struct problem *p)
{
	struct buf CLEANUP(buf_done) sql = { 0 };

	buf_puts(&sql, "TRUNCATE ");
	sql_name(&sql, t->name);
	int r = db_script(m->sides.target, buf_text(&sql));
	if (r < 0)
		return target_failed(m, r, p);
	r = move_table_copy(&m->sides, t, p);
	return r < 0 ? r : move_table_check(&m->sides, t, ret_same, p);
}

static int check_table_moved(struct move *m, const struct move_table *t, struct problem *p)
{
	bool same = false;
	int r = move_table_check(&m->sides, t, &same, p);

	if (r == LAPSE_OK && !same)
		r = copy_again(m, t, &same, p);
	if (r == LAPSE_OK && !same)
		r = problem_set(p, LAPSE_ECORRUPT, NULL,
				"the table %.60s is not the same on both sides after it was copied "
				"twice: nothing was changed in the source",
				t->name);
	return r;
}

static int move_rows(struct move *m, struct problem *p)
{
	int r = LAPSE_OK;

	assert(m->state >= MOVE_ROWS);
	for (size_t i = 0; r == LAPSE_OK && i < m->tables_count; i++)
		r = move_table_copy(&m->sides, &m->tables[i], p);
	for (size_t i = 0; r == LAPSE_OK && i < m->tables_count; i++)
		r = check_table_moved(m, &m->tables[i], p);
	if (r == LAPSE_OK && m->state == MOVE_ROWS)
		r = move_to_state(m, MOVE_SAME, NULL, p);
	return r;
}

/* The end */

/* Brings the source's log into its file, closes it and gives it another name. */
static int retire_source(struct move *m, struct move_result *ret, struct problem *p)
{
	char name[64];
	int r = db_script(m->sides.source, "PRAGMA journal_mode=DELETE");

	db_close(m->sides.source);
	m->sides.source = NULL;
	snprintf(name, sizeof(name), DATADIR_DATABASE ".moved-%" PRId64, clock_wall(&CLOCK_SYSTEM));
	if (r == LAPSE_OK)
		r = datadir_file(m->config->data_dir, name, ret->kept);
	if (r == LAPSE_OK && rename(m->database, ret->kept) < 0)
		r = LAPSE_EIO;
	if (r == LAPSE_OK)
		r = datadir_sync(m->config->data_dir);
	if (r < 0)
		problem_set(p, r, NULL, "the copy is complete, but %.100s cannot be renamed: %m",
			    m->database);
	return r;
}

static int finish_target(struct move *m, struct problem *p)
{
	int r = migrate(m->sides.target, p);

	assert(m->state == MOVE_SAME);
	if (r == LAPSE_OK) {
		r = db_script(m->sides.target, "DROP TABLE lapse_move");
		if (r < 0)
			target_failed(m, r, p);
	}
	return r;
}

static int move_opened(struct move *m, struct move_result *ret, struct problem *p)
{
	int r = list_tables(m, p);

	ret->resumed = m->state != MOVE_NONE;
	if (r == LAPSE_OK)
		r = make_schema(m, p);
	if (r == LAPSE_OK)
		r = move_rows(m, p);
	if (r == LAPSE_OK)
		r = retire_source(m, ret, p);
	if (r == LAPSE_OK)
		r = finish_target(m, p);
	for (size_t i = 0; i < m->tables_count; i++)
		ret->rows += m->tables[i].rows;
	ret->tables = (int64_t)m->tables_count;
	return r;
}

/* The source has its new name already: only the last step is left. */
static int move_last_step(struct move *m, struct move_result *ret, struct problem *p)
{
	int r = open_move_target(m, p);

	if (r == LAPSE_ECONFLICT || (r == LAPSE_OK && m->state != MOVE_SAME))
		r = problem_set(p, LAPSE_ENOTFOUND, NULL, "there is no database %.120s",
				m->database);
	ret->resumed = true;
	return r < 0 ? r : finish_target(m, p);
}

static int move_both(struct move *m, struct move_result *ret, struct problem *p)
{
	if (access(m->database, F_OK) != 0)
		return move_last_step(m, ret, p);
	int r = open_move_source(m, p);
	if (r == LAPSE_OK)
		r = open_move_target(m, p);
	return r < 0 ? r : move_opened(m, ret, p);
}

int store_move(const struct move_config *config, struct move_result *ret, struct problem *p)
{
	struct move CLEANUP(move_done)
		m = { .config = config, .dir = { .lock_fd = -1 }, .sides = { .config = config } };
	struct move_result result = { 0 };

	wire_init(&m.wire, &(struct wire_config){ 0 });
	m.sides.wire = &m.wire;
	pg_clock_init(&m.time, &CLOCK_SYSTEM);
	if (datadir_file(config->data_dir, DATADIR_DATABASE, m.database) < 0)
		return problem_set(p, LAPSE_EINVAL, NULL, "the data directory's name is too long");
	if (access(config->data_dir, F_OK) != 0) /* locking it would make it */
		return problem_set(p, LAPSE_ENOTFOUND, NULL, "there is no directory %.120s",
				   config->data_dir);
	int r = datadir_lock(&m.dir, config->data_dir, p);
	if (r == LAPSE_OK)
		r = move_both(&m, &result, p);
	if (r == LAPSE_OK)
		*ret = result;
	return r;
}
