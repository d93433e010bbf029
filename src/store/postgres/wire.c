/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/wire.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define VERSION_WANTED 15
#define IDLE_TRANSACTION_MS 10000 /* a daemon that was stopped lets go of its rows */
#define CONNECT_S "5"             /* per host of the URI */
#define USER_TIMEOUT_MS "5000"    /* unanswered data ends the connection */
#define WAIT_MARGIN_MS 5000       /* beyond statement_ms: then the server is as good as gone */

#define LOCK_NOT_AVAILABLE "55P03"

/* By SQLSTATE: a whole code, or the two characters of its class. The first that fits counts. */
static const struct {
	const char *state;
	int err;
} WIRE_STATES[] = {
	{ "40", LAPSE_ERETRY }, /* serialization failures, deadlocks */
	{ LOCK_NOT_AVAILABLE, LAPSE_ERETRY },
	{ "08", LAPSE_ERETRY },       /* connection exceptions */
	{ "57P", LAPSE_ERETRY },      /* shutdowns */
	{ "25P03", LAPSE_ERETRY },    /* idle_in_transaction_session_timeout */
	{ "25006", LAPSE_ERETRY },    /* read_only_sql_transaction: it is a standby now */
	{ "57014", LAPSE_ETIMEOUT },  /* query_canceled */
	{ "23", LAPSE_ECONFLICT },    /* constraints */
	{ "53100", LAPSE_EFULL },     /* disk_full */
	{ "53", LAPSE_EUNAVAILABLE }, /* out of memory, of connections */
	{ "54", LAPSE_ETOOLARGE },    /* program limits, the size of an index entry for one */
	{ "58", LAPSE_EIO },          /* system errors of the server */
	{ "XX001", LAPSE_ECORRUPT },  /* data_corrupted */
	{ "XX002", LAPSE_ECORRUPT },  /* index_corrupted */
};

int wire_sort_state(const char *state)
{
	for (size_t i = 0; i < ARRAY_LEN(WIRE_STATES); i++)
		if (strncmp(state, WIRE_STATES[i].state, strlen(WIRE_STATES[i].state)) == 0)
			return WIRE_STATES[i].err;
	return LAPSE_EINTERNAL;
}

/* One line, without libpq's line breaks. libpq repeats hosts and users, never passwords. */
static void keep_words(struct wire *w, const char *words)
{
	if (words != w->error) /* what was kept before may be told again */
		snprintf(w->error, sizeof(w->error), "%s", words);
	w->error[strcspn(w->error, "\n")] = '\0';
}

void wire_init(struct wire *w, const struct wire_config *config)
{
	*w = (struct wire){ .config = *config };
	pthread_mutex_init(&w->cancel_lock, NULL);
}

void wire_done(struct wire *w)
{
	wire_close(w);
	pthread_mutex_destroy(&w->cancel_lock);
}

static void set_cancel(struct wire *w, PGcancel *cancel)
{
	pthread_mutex_lock(&w->cancel_lock);
	PQfreeCancel(w->cancel);
	w->cancel = cancel;
	pthread_mutex_unlock(&w->cancel_lock);
}

void wire_interrupt(struct wire *w)
{
	char words[256];

	pthread_mutex_lock(&w->cancel_lock);
	if (w->cancel)
		PQcancel(w->cancel, words, sizeof(words));
	pthread_mutex_unlock(&w->cancel_lock);
}

void wire_close(struct wire *w)
{
	set_cancel(w, NULL);
	PQfinish(w->conn); /* takes NULL */
	w->conn = NULL;
}

static int lose(struct wire *w, const char *words)
{
	keep_words(w, words);
	wire_close(w);
	return LAPSE_ERETRY;
}

static void note_notice(void *arg, const PGresult *result)
{
	struct wire *w = arg;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	w->warned = w->warned || (severity && strcmp(severity, "WARNING") == 0);
}

/* Connecting */

static int refuse(struct wire *w, struct problem *p, int err, const char *words)
{
	keep_words(w, words);
	wire_close(w);
	return problem_set(p, err, "store", "cannot use the database: %.200s", w->error);
}

static PGconn *connect_to(const char *uri)
{
	/* What stands behind the URI (dbname) wins over it, what stands before gives way. */
	static const char *const names[] = { "connect_timeout",
					     "tcp_user_timeout",
					     "fallback_application_name",
					     "dbname",
					     "client_encoding",
					     "target_session_attrs",
					     NULL };
	const char *const values[] = { CONNECT_S, USER_TIMEOUT_MS, "lapsed", uri,
				       "UTF8",    "read-write",    NULL };

	return PQconnectdbParams(names, values, 1);
}

static int set_limits(struct wire *w)
{
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "SET statement_timeout = %lld; SET lock_timeout = %d; "
		 "SET idle_in_transaction_session_timeout = %lld; SET client_min_messages = "
		 "warning; "
		 "SET default_transaction_read_only = %s",
		 (long long)w->config.statement_ms, WIRE_LOCK_MS,
		 (long long)(w->config.idle_ms ? w->config.idle_ms : IDLE_TRANSACTION_MS),
		 w->config.read_only ? "on" : "off");
	return wire_script(w, sql);
}

/* An answered write must survive: a role or a database that turned synchronous commits off does
 * not know what it stores. Other values (local, remote_apply …) are the operator's choice. */
static int insist_on_sync(struct wire *w)
{
	return wire_script(w, "SELECT set_config('synchronous_commit', 'on', false) "
			      "WHERE current_setting('synchronous_commit') = 'off'");
}

/* A pooler answers for the server with a process number of its own. */
static int check_direct(struct wire *w, struct problem *p)
{
	char pid[32] = "";
	int r = wire_ask(w, "SELECT pg_backend_pid()", pid, sizeof(pid));

	if (r < 0)
		return problem_set(p, LAPSE_EUNAVAILABLE, "store", "%.200s", w->error);
	if (atoi(pid) != PQbackendPID(w->conn))
		return refuse(
			w, p, LAPSE_EINVAL,
			"a connection pooler stands between lapsed and PostgreSQL, and lapsed "
			"needs sessions of its own: name the server itself");
	return LAPSE_OK;
}

static int check_server_version(struct wire *w, struct problem *p)
{
	char words[128];
	int major = PQserverVersion(w->conn) / 10000;

	if (major == VERSION_WANTED)
		return LAPSE_OK;
	snprintf(words, sizeof(words), "it is PostgreSQL %d, and lapsed is tested with %d only",
		 major, VERSION_WANTED);
	return refuse(w, p, LAPSE_EVERSION, words);
}

/* A server that has recovered from a crash starts its statistics anew, even where its first process
 * has survived. */
static const char SERVER_TIMELINE[] = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)";
static const char SERVER_LIFE[] = "SELECT concat(pg_postmaster_start_time(), ' ', stats_reset) "
				  "FROM pg_stat_bgwriter";

static int learn_history(struct wire *w)
{
	int r = wire_ask(w, SERVER_TIMELINE, w->timeline, sizeof(w->timeline));

	return r < 0 ? r : wire_ask(w, SERVER_LIFE, w->life, sizeof(w->life));
}

static int prepare_session(struct wire *w, struct problem *p)
{
	int r = check_server_version(w, p);

	if (r == LAPSE_OK)
		r = check_direct(w, p);
	if (r < 0)
		return r;
	if (set_limits(w) < 0 || insist_on_sync(w) < 0 || learn_history(w) < 0)
		return refuse(w, p, LAPSE_EUNAVAILABLE, w->error);
	return LAPSE_OK;
}

int wire_connect(struct wire *w, struct problem *p)
{
	assert(!w->conn);
	w->conn = connect_to(w->config.uri);
	if (PQstatus(w->conn) != CONNECTION_OK)
		return refuse(w, p, LAPSE_EUNAVAILABLE, PQerrorMessage(w->conn));
	PQsetNoticeReceiver(w->conn, note_notice, w);
	PQsetnonblocking(w->conn, 1);
	set_cancel(w, PQgetCancel(w->conn));
	w->session++;
	int r = prepare_session(w, p);
	if (r == LAPSE_OK && !PQenterPipelineMode(w->conn))
		r = refuse(w, p, LAPSE_EUNAVAILABLE, PQerrorMessage(w->conn));
	if (r < 0)
		wire_close(w);
	return r;
}

void wire_adopt(struct wire *w, struct wire *from)
{
	assert(!w->conn && from->conn);
	w->conn = from->conn;
	from->conn = NULL;
	PQsetNoticeReceiver(w->conn, note_notice, w);
	set_cancel(w, PQgetCancel(w->conn));
	set_cancel(from, NULL);
	memcpy(w->timeline, from->timeline, sizeof(w->timeline));
	memcpy(w->life, from->life, sizeof(w->life));
	w->session++;
}

/* Waiting */

/* Until there is something to read, or room to write: false = that lasted too long, or failed. */
static bool wait_for_socket(const struct wire *w, bool write, int ms)
{
	struct pollfd fd = { .fd = PQsocket(w->conn),
			     .events = (short)(POLLIN | (write ? POLLOUT : 0)) };
	int n;

	do
		n = poll(&fd, 1, ms);
	while (n < 0 && errno == EINTR);
	return n > 0;
}

/* Waits until libpq has a whole answer. The server ends a statement by itself after its time; one
 * that is silent for longer is gone. */
static bool wait_for_answer(const struct wire *w)
{
	int64_t ms = w->config.statement_ms + WAIT_MARGIN_MS;
	int unsent = PQflush(w->conn);

	while (unsent >= 0 && PQisBusy(w->conn)) {
		if (!wait_for_socket(w, unsent > 0, w->config.statement_ms ? (int)ms : -1) ||
		    !PQconsumeInput(w->conn))
			return false;
		unsent = PQflush(w->conn);
	}
	return unsent >= 0;
}

/* The next result, or NULL at the end of a command's. */
static int wire_next(struct wire *w, PGresult **ret)
{
	if (PQisBusy(w->conn)) {
		if (w->pause)
			w->pause(w->wait_arg);
		bool came = wait_for_answer(w);
		if (w->resume)
			w->resume(w->wait_arg);
		if (!came)
			return lose(w, PQstatus(w->conn) == CONNECTION_OK
					       ? "the server did not answer in time"
					       : PQerrorMessage(w->conn));
	}
	PGresult *result = PQgetResult(w->conn);
	if (PQstatus(w->conn) != CONNECTION_OK) {
		PQclear(result);
		return lose(w, PQerrorMessage(w->conn));
	}
	*ret = result;
	return LAPSE_OK;
}

/* Rounds */

int wire_prepare(struct wire *w, const char *name, const char *sql, int params, const Oid *types)
{
	if (!w->conn)
		return LAPSE_ERETRY;
	return PQsendPrepare(w->conn, name, sql, params, types) ? LAPSE_OK
								: lose(w, PQerrorMessage(w->conn));
}

int wire_execute(struct wire *w, const char *name, int params, const char *const *values)
{
	if (!w->conn)
		return LAPSE_ERETRY;
	return PQsendQueryPrepared(w->conn, name, params, values, NULL, NULL, 0)
		       ? LAPSE_OK
		       : lose(w, PQerrorMessage(w->conn));
}

int wire_mark(struct wire *w)
{
	if (!w->conn)
		return LAPSE_ERETRY;
	return PQpipelineSync(w->conn) ? LAPSE_OK : lose(w, PQerrorMessage(w->conn));
}

/* An answer that belongs to no command: the server's last words, when it shuts down or ends the
 * session. What follows cannot be told apart any more. */
static int lose_step(struct wire *w, PGresult *result)
{
	char words[WIRE_ERROR_MAX];
	const char *said = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	snprintf(words, sizeof(words), "%s", said ? said : "an answer without a question");
	PQclear(result);
	return lose(w, words);
}

int wire_answer(struct wire *w, PGresult **ret)
{
	PGresult *result = NULL, *end = NULL;
	int r = w->conn ? wire_next(w, &result) : LAPSE_ERETRY;

	if (r < 0)
		return r;
	if (!result || PQresultStatus(result) == PGRES_PIPELINE_SYNC)
		return lose_step(w, result);
	r = wire_next(w, &end);
	if (r == LAPSE_OK && end)
		r = lose_step(w, end);
	if (r < 0) {
		PQclear(result);
		return r;
	}
	*ret = result;
	return LAPSE_OK;
}

int wire_end_round(struct wire *w)
{
	PGresult *result = NULL;
	int r = w->conn ? wire_next(w, &result) : LAPSE_ERETRY;

	if (r < 0)
		return r;
	if (PQresultStatus(result) != PGRES_PIPELINE_SYNC)
		return lose_step(w, result);
	PQclear(result);
	return LAPSE_OK;
}

static int judge_failure(struct wire *w, const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	keep_words(w, words ? words : PQresultErrorMessage(result));
	w->locked = state && strcmp(state, LOCK_NOT_AVAILABLE) == 0;
	return state ? wire_sort_state(state) : LAPSE_EINTERNAL;
}

int wire_judge(struct wire *w, const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return LAPSE_OK;
	return status == PGRES_PIPELINE_ABORTED ? LAPSE_ERETRY : judge_failure(w, result);
}

/* Between two rounds */

/* Runs SQL outside the pipeline, blocking; the last result is the caller's to clear. */
static int wire_run(struct wire *w, const char *sql, PGresult **ret)
{
	bool piped = w->conn && PQpipelineStatus(w->conn) != PQ_PIPELINE_OFF;

	if (!w->conn)
		return LAPSE_ERETRY;
	if (piped && !PQexitPipelineMode(w->conn))
		return lose(w, PQerrorMessage(w->conn));
	PGresult *result = PQexec(w->conn, sql);
	if (PQstatus(w->conn) != CONNECTION_OK) {
		PQclear(result);
		return lose(w, PQerrorMessage(w->conn));
	}
	if (piped && !PQenterPipelineMode(w->conn)) {
		PQclear(result);
		return lose(w, PQerrorMessage(w->conn));
	}
	*ret = result;
	return LAPSE_OK;
}

int wire_script(struct wire *w, const char *sql)
{
	return wire_ask(w, sql, NULL, 0);
}

int wire_ask(struct wire *w, const char *sql, char *ret_value, size_t size)
{
	PGresult *result = NULL;
	int r = wire_run(w, sql, &result);

	if (r < 0)
		return r;
	r = wire_judge(w, result);
	if (r == LAPSE_OK && ret_value)
		snprintf(ret_value, size, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
	PQclear(result);
	return r;
}
