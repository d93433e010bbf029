/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's PostgreSQL database, through libpq. Nothing is set for the session and nothing is
 * prepared by name: a pooler may hand the session to others between two transactions. Limits are
 * set in each transaction, in the round trip that begins it.
 */
#include <assert.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "contract/foreign.h"

#define PARAMS_MAX 1400 /* of one statement: all values of `only` twice, columns, a few more */
#define CONNECT_S "10"

struct foreign_postgres {
	struct foreign base;
	PGconn *conn;
	PGcancel *cancel;
	int64_t statement_ms, lock_ms, transaction_ms;
	int64_t next_id; /* the next transaction's number, as a script last said */
	int64_t last_id; /* and at the last removal; 0 = there was none */
};

static struct foreign_postgres *foreign_postgres_of(struct foreign *f)
{
	assert(f->driver == &FOREIGN_POSTGRES_DRIVER);
	return (struct foreign_postgres *)f;
}

/* By SQLSTATE: a whole code, or the two characters of its class. */
static const struct {
	const char *state;
	int err;
} STATES[] = {
	{ "55P03", LAPSE_ERETRY },      /* lock_not_available */
	{ "40001", LAPSE_ERETRY },      /* serialization_failure */
	{ "40P01", LAPSE_ERETRY },      /* deadlock_detected */
	{ "57014", LAPSE_ETIMEOUT },    /* query_canceled */
	{ "42P01", LAPSE_ENOTFOUND },   /* undefined_table */
	{ "42703", LAPSE_ENOTFOUND },   /* undefined_column */
	{ "3F000", LAPSE_ENOTFOUND },   /* invalid_schema_name */
	{ "42501", LAPSE_EFORBIDDEN },  /* insufficient_privilege */
	{ "25006", LAPSE_EFORBIDDEN },  /* read_only_sql_transaction */
	{ "53100", LAPSE_EFULL },       /* disk_full */
	{ "23", LAPSE_ECONFLICT },      /* integrity constraints */
	{ "08", LAPSE_EUNAVAILABLE },   /* connection exceptions */
	{ "57", LAPSE_EUNAVAILABLE },   /* shutdowns */
	{ "53", LAPSE_EUNAVAILABLE },   /* out of something */
	{ "25P03", LAPSE_EUNAVAILABLE } /* idle_in_transaction_session_timeout */
};

static int sort_state(const char *state)
{
	for (size_t i = 0; state && i < ARRAY_LEN(STATES); i++)
		if (strncmp(state, STATES[i].state, strlen(STATES[i].state)) == 0)
			return STATES[i].err;
	return LAPSE_EUPSTREAM;
}

static int fail_postgres(struct foreign_postgres *s, PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	int err = sort_state(state);

	if (!state || PQstatus(s->conn) != CONNECTION_OK)
		err = LAPSE_EUNAVAILABLE;
	foreign_fail(&s->base, err, words ? words : PQerrorMessage(s->conn));
	PQclear(result);
	return err;
}

/* libpq repeats hosts and users in its messages, never passwords. */
static int explain_refused_connection(PGconn *conn, struct buf *error)
{
	struct foreign words = { 0 };

	foreign_fail(&words, LAPSE_EUNAVAILABLE, PQerrorMessage(conn));
	buf_printf(error, "cannot connect: %s", words.error);
	PQfinish(conn);
	return LAPSE_EUNAVAILABLE;
}

static void ignore_notice(void *arg, const PGresult *result)
{
	(void)arg;
	(void)result;
}

static int foreign_postgres_open(const struct foreign_config *config, struct foreign **ret,
				 struct buf *error)
{
	static const char *const names[] = { "dbname", "connect_timeout", "client_encoding",
					     "fallback_application_name", NULL };
	const char *values[] = { config->target, CONNECT_S, "UTF8", "lapse", NULL };
	PGconn *conn = PQconnectdbParams(names, values, 1);

	if (PQstatus(conn) != CONNECTION_OK)
		return explain_refused_connection(conn, error);
	if (PQserverVersion(conn) < 120000) {
		buf_puts(error, "PostgreSQL 12 or newer is needed");
		PQfinish(conn);
		return LAPSE_EVERSION;
	}
	PQsetNoticeReceiver(conn, ignore_notice, NULL);
	struct foreign_postgres *s = mem_zalloc(1, sizeof(*s));
	s->base.driver = &FOREIGN_POSTGRES_DRIVER;
	s->conn = conn;
	s->cancel = PQgetCancel(conn);
	s->statement_ms = config->statement_ms;
	s->lock_ms = config->lock_ms;
	s->transaction_ms = config->transaction_ms;
	*ret = &s->base;
	return LAPSE_OK;
}

static void foreign_postgres_close(struct foreign *f)
{
	struct foreign_postgres *s = foreign_postgres_of(f);

	PQfreeCancel(s->cancel);
	PQfinish(s->conn);
	free(s);
}

static int run_script(struct foreign_postgres *s, const char *sql)
{
	PGresult *result = PQexec(s->conn, sql);

	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		return fail_postgres(s, result);
	if (PQntuples(result) == 1)
		s->next_id = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return LAPSE_OK;
}

/* `more` is the rest of the script, in the same round trip. */
static int begin_postgres(struct foreign_postgres *s, bool write, int64_t lock_ms, const char *more)
{
	char sql[512];

	assert(s->lock_ms > 0 && s->statement_ms > 0);
	/* Not READ WRITE: a database whose transactions only read by default is left alone. */
	snprintf(sql, sizeof(sql),
		 "BEGIN ISOLATION LEVEL READ COMMITTED %s; SET LOCAL statement_timeout = %lld; "
		 "SET LOCAL lock_timeout = %lld; "
		 "SET LOCAL idle_in_transaction_session_timeout = %lld%s",
		 write ? "" : "READ ONLY", (long long)s->statement_ms,
		 (long long)(lock_ms > 0 ? lock_ms : s->lock_ms), (long long)s->transaction_ms,
		 more);
	int err = run_script(s, sql);
	if (err < 0 && PQtransactionStatus(s->conn) != PQTRANS_IDLE)
		PQclear(PQexec(s->conn, "ROLLBACK"));
	return err;
}

static int foreign_postgres_begin(struct foreign *f, bool write, int64_t lock_ms)
{
	return begin_postgres(foreign_postgres_of(f), write, lock_ms, "");
}

#define NEXT_ID_SQL "; SELECT txid_snapshot_xmax(txid_current_snapshot())"

/* Numbers are given to transactions that write. Ours took one at most. */
static int foreign_postgres_begin_removal(struct foreign *f, int64_t lock_ms, bool lazy)
{
	struct foreign_postgres *s = foreign_postgres_of(f);

	s->next_id = 0;
	int err = begin_postgres(s, true, lock_ms,
				 lazy ? "; SET LOCAL synchronous_commit = off" NEXT_ID_SQL
				      : NEXT_ID_SQL);
	if (err < 0)
		return err;
	f->met_writer = s->last_id > 0 && s->next_id - s->last_id > 1;
	s->last_id = s->next_id;
	return LAPSE_OK;
}

/* A synced commit syncs the log up to its own place, and so everything before it. One that wrote
 * nothing to the log is not synced: a message is the least that can be written. */
static int foreign_postgres_flush(struct foreign *f)
{
	int err = foreign_begin(f, true);

	if (err == LAPSE_OK)
		err = foreign_run(f, "SELECT pg_logical_emit_message(true, 'lapse', '')", NULL, 0,
				  NULL);
	if (err == LAPSE_OK)
		return foreign_commit(f);
	foreign_rollback(f);
	return err;
}

static void foreign_postgres_tidy(struct foreign *f)
{
	(void)f;
}

/* A failed transaction answers COMMIT with ROLLBACK; that is no success. */
static int foreign_postgres_commit(struct foreign *f)
{
	struct foreign_postgres *s = foreign_postgres_of(f);
	PGresult *result = PQexec(s->conn, "COMMIT");

	if (PQresultStatus(result) != PGRES_COMMAND_OK) {
		int err = fail_postgres(s, result);
		return err == LAPSE_EUNAVAILABLE ? LAPSE_EUNKNOWN : err;
	}
	bool committed = strcmp(PQcmdStatus(result), "COMMIT") == 0;
	PQclear(result);
	return committed ? LAPSE_OK
			 : foreign_fail(f, LAPSE_EUPSTREAM, "the transaction was rolled back");
}

static void foreign_postgres_rollback(struct foreign *f)
{
	PQclear(PQexec(foreign_postgres_of(f)->conn, "ROLLBACK"));
}

/* Values as libpq wants them: texts, in the rows' arena. */
static const char *param_text(struct arena *arena, const struct datum *d)
{
	switch (d->kind) {
	case DATUM_NULL:
		return NULL;
	case DATUM_INT:
		return arena_printf(arena, "%lld", (long long)d->number);
	case DATUM_REAL:
		return arena_printf(arena, "%.17g", d->real);
	case DATUM_TEXT:
		return d->text;
	case DATUM_BLOB:
		break;
	}
	assert(0 && "PostgreSQL gives no blobs, so none comes back");
	return NULL;
}

static void read_result(const PGresult *result, struct rows *ret)
{
	int rows = PQntuples(result);

	ret->columns = (size_t)PQnfields(result);
	ret->changed = strtoll(PQcmdTuples((PGresult *)(uintptr_t)result), NULL, 10);
	for (int i = 0; i < rows; i++) {
		struct datum *cells = rows_add(ret);
		for (int j = 0; j < (int)ret->columns; j++) {
			struct datum d = { .kind = DATUM_TEXT,
					   .text = PQgetvalue(result, i, j),
					   .size = (size_t)PQgetlength(result, i, j) };
			if (!PQgetisnull(result, i, j))
				cells[j] = datum_copy(&ret->arena, &d);
		}
	}
}

static int foreign_postgres_run(struct foreign *f, const char *sql, const struct datum *params,
				size_t count, struct rows *ret)
{
	struct foreign_postgres *s = foreign_postgres_of(f);
	const char *values[PARAMS_MAX];

	assert(count <= PARAMS_MAX);
	for (size_t i = 0; i < count; i++)
		values[i] = param_text(&ret->arena, &params[i]);
	PGresult *result = PQexecParams(s->conn, sql, (int)count, NULL, values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		return fail_postgres(s, result);
	read_result(result, ret);
	PQclear(result);
	return LAPSE_OK;
}

static int foreign_postgres_now(struct foreign *f, lapse_ms *ret)
{
	static const char sql[] = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	int err = foreign_read(f, sql, NULL, 0, &rows);
	if (err < 0)
		return err;
	assert(rows.count == 1);
	*ret = rows_int(&rows, 0, 0);
	return LAPSE_OK;
}

static void foreign_postgres_cancel(struct foreign *f)
{
	char words[256];

	PQcancel(foreign_postgres_of(f)->cancel, words, sizeof(words));
}

static void foreign_postgres_limit(struct foreign *f, int64_t statement_ms)
{
	foreign_postgres_of(f)->statement_ms = statement_ms;
}

const struct foreign_driver FOREIGN_POSTGRES_DRIVER = {
	.open = foreign_postgres_open,
	.close = foreign_postgres_close,
	.begin = foreign_postgres_begin,
	.begin_removal = foreign_postgres_begin_removal,
	.tidy = foreign_postgres_tidy,
	.flush = foreign_postgres_flush,
	.commit = foreign_postgres_commit,
	.rollback = foreign_postgres_rollback,
	.run = foreign_postgres_run,
	.now = foreign_postgres_now,
	.cancel = foreign_postgres_cancel,
	.limit = foreign_postgres_limit,
};
