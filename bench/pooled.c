/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of `postgres-post`: POST /v1/agents/{agent}/messages as one would write it first. A pool
 *of threads of libmicrohttpd, each with a connection to PostgreSQL of its own; prepared statements;
 *one transaction per message, with the statements that lapse runs for it, each waited for. Tables
 *and indexes are lapse's, as far as a message touches them.
 *
 *	bench_pooled URI CONNECTIONS [bare]
 *
 * `bare` leaves out the two counters that all messages of an owner share, which make the commits of
 * such a client wait for each other. Prints "ready on 127.0.0.1:PORT" and runs until SIGTERM.
 */
#include <jansson.h>
#include <libpq-fe.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BODY_MAX 65536
#define NUMBER_MAX 24
#define STORED_BYTES 100 /* of a message beside its content, as lapse counts them */
#define PATH_START "/v1/agents/"
#define PATH_END "/messages"

static const char SCHEMA[] =
	"CREATE TABLE messages (id bigint PRIMARY KEY, read bigint NOT NULL, read_at bigint, "
	"claim_id bigint, claimed_until bigint, event bigint NOT NULL, timestamp bigint NOT NULL, "
	"owner text COLLATE \"C\" NOT NULL, agent text COLLATE \"C\" NOT NULL, "
	"sender text COLLATE \"C\" NOT NULL, type text COLLATE \"C\" NOT NULL, "
	"metadata text COLLATE \"C\" NOT NULL, content text COLLATE \"C\" NOT NULL, "
	"bytes bigint NOT NULL DEFAULT 0);"
	"CREATE INDEX messages_seen ON messages (owner, agent) WHERE read = 1;"
	"CREATE INDEX messages_due ON messages (timestamp) WHERE read = 1;"
	"CREATE TABLE messages_unread (owner text COLLATE \"C\" NOT NULL, "
	"agent text COLLATE \"C\" NOT NULL, id bigint NOT NULL, PRIMARY KEY (owner, agent, id));"
	"CREATE TABLE inboxes (owner text COLLATE \"C\" NOT NULL, agent text COLLATE \"C\" NOT "
	"NULL, "
	"total bigint NOT NULL, unread bigint NOT NULL, PRIMARY KEY (owner, agent));"
	"CREATE TABLE counts (tbl text PRIMARY KEY, live bigint NOT NULL);"
	"CREATE TABLE table_counts (owner text, tbl text, live bigint NOT NULL, "
	"PRIMARY KEY (owner, tbl));"
	"INSERT INTO counts VALUES ('messages', 0);"
	"INSERT INTO table_counts VALUES ('bench', 'stored_bytes', 0)";

static const struct {
	const char *name, *sql;
	int params;
} STATEMENTS[] = {
	{ "begin", "BEGIN", 0 },
	{ "commit", "COMMIT", 0 },
	{ "rollback", "ROLLBACK", 0 },
	{ "count",
	  "INSERT INTO inboxes (owner, agent, total, unread) VALUES ($1, $2, 1, 1) "
	  "ON CONFLICT (owner, agent) DO UPDATE SET total = inboxes.total + 1, "
	  "unread = inboxes.unread + 1 WHERE inboxes.unread < $3 RETURNING total",
	  3 },
	{ "message",
	  "INSERT INTO messages (id, read, event, timestamp, owner, agent, sender, type, metadata, "
	  "content, bytes) VALUES ($1, 0, 1, $2, $3, $4, $5, $6, $7, $8, $9)",
	  9 },
	{ "unread", "INSERT INTO messages_unread (owner, agent, id) VALUES ($1, $2, $3)", 3 },
	{ "live", "UPDATE counts SET live = live + 1 WHERE tbl = 'messages'", 0 },
	{ "usage",
	  "UPDATE table_counts SET live = live + $2 WHERE owner = $1 AND tbl = 'stored_bytes'", 2 },
};

#define OWNER "bench"
#define UNREAD_MAX "1000000000"

static const char *uri;
static bool counts_all = true;
static atomic_llong last_id;
static _Thread_local PGconn *session;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "bench_pooled: %s: %s\n", what, why);
	exit(1);
}

static PGconn *connect_session(void)
{
	PGconn *made = PQconnectdb(uri);

	if (PQstatus(made) != CONNECTION_OK)
		die("cannot connect", PQerrorMessage(made));
	return made;
}

/* The session of this thread, with everything prepared. */
static PGconn *own_session(void)
{
	if (session)
		return session;
	session = connect_session();
	for (size_t i = 0; i < sizeof(STATEMENTS) / sizeof(STATEMENTS[0]); i++) {
		PGresult *result = PQprepare(session, STATEMENTS[i].name, STATEMENTS[i].sql,
					     STATEMENTS[i].params, NULL);
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die(STATEMENTS[i].name, PQerrorMessage(session));
		PQclear(result);
	}
	return session;
}

static bool run(const char *name, int params, const char *const *values)
{
	PGresult *result = PQexecPrepared(own_session(), name, params, values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		fprintf(stderr, "bench_pooled: %s: %s", name, PQerrorMessage(session));
	PQclear(result);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct letter {
	const char *agent, *from, *content;
	long long id;
};

static bool store_rows(const struct letter *l)
{
	char id[NUMBER_MAX], at[NUMBER_MAX], bytes[NUMBER_MAX];

	snprintf(id, sizeof(id), "%lld", l->id);
	snprintf(at, sizeof(at), "%lld", now_ms());
	snprintf(bytes, sizeof(bytes), "%zu", STORED_BYTES + strlen(l->content) + 2);
	const char *const count[] = { OWNER, l->agent, UNREAD_MAX };
	const char *const message[] = { id,     at,   OWNER,      l->agent, l->from,
					"text", "{}", l->content, bytes };
	const char *const unread[] = { OWNER, l->agent, id };
	const char *const usage[] = { OWNER, bytes };
	return run("count", 3, count) && run("message", 9, message) && run("unread", 3, unread) &&
	       (!counts_all || (run("live", 0, NULL) && run("usage", 2, usage)));
}

static bool store_letter(const struct letter *l)
{
	if (!run("begin", 0, NULL))
		return false;
	if (store_rows(l))
		return run("commit", 0, NULL);
	run("rollback", 0, NULL);
	return false;
}

struct upload {
	size_t n;
	char body[BODY_MAX];
};

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, char *text)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);

	MHD_add_response_header(r, "Content-Type", "application/json");
	enum MHD_Result done = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return done;
}

static enum MHD_Result take_letter(struct MHD_Connection *c, const char *agent,
				   const struct upload *u)
{
	json_t *body = json_loadb(u->body, u->n, 0, NULL);
	struct letter l = { .agent = agent,
			    .from = json_string_value(json_object_get(body, "from")),
			    .content = json_string_value(json_object_get(body, "content")) };
	char text[512];
	unsigned status = MHD_HTTP_BAD_REQUEST;

	snprintf(text, sizeof(text), "{\"error\":\"not stored\"}");
	if (l.from && l.content) {
		l.id = atomic_fetch_add(&last_id, 1) + 1;
		status = store_letter(&l) ? MHD_HTTP_CREATED : MHD_HTTP_SERVICE_UNAVAILABLE;
		if (status == MHD_HTTP_CREATED)
			snprintf(
				text, sizeof(text),
				"{\"id\":\"%lld\",\"from\":\"%s\",\"to\":\"%s\",\"type\":\"text\"}",
				l.id, l.from, l.agent);
	}
	json_decref(body);
	return answer(c, status, strdup(text));
}

/* The agent of the path, in `ret`; false = another path. */
static bool agent_of(const char *path, char *ret, size_t size)
{
	size_t start = strlen(PATH_START), end = strlen(PATH_END), n = strlen(path);

	if (n <= start + end || n - start - end >= size || strncmp(path, PATH_START, start) != 0 ||
	    strcmp(path + n - end, PATH_END) != 0)
		return false;
	snprintf(ret, size, "%.*s", (int)(n - start - end), path + start);
	return true;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *path,
			      const char *method, const char *version, const char *data, size_t *n,
			      void **state)
{
	struct upload *u = *state;
	char agent[256];

	(void)arg;
	(void)version;
	if (!u) {
		*state = calloc(1, sizeof(*u));
		return *state ? MHD_YES : MHD_NO;
	}
	if (*n > 0) {
		if (*n > sizeof(u->body) - u->n)
			return MHD_NO;
		memcpy(u->body + u->n, data, *n);
		u->n += *n;
		*n = 0;
		return MHD_YES;
	}
	if (strcmp(method, "POST") != 0 || !agent_of(path, agent, sizeof(agent)))
		return answer(c, MHD_HTTP_NOT_FOUND, strdup("{}"));
	return take_letter(c, agent, u);
}

static void end_upload(void *arg, struct MHD_Connection *c, void **state,
		       enum MHD_RequestTerminationCode how)
{
	(void)arg;
	(void)c;
	(void)how;
	free(*state);
	*state = NULL;
}

static void make_tables(void)
{
	PGconn *made = connect_session();
	PGresult *result = PQexec(made, SCHEMA);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die("cannot make the tables", PQerrorMessage(made));
	PQclear(result);
	PQfinish(made);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	sigset_t end;
	int signal_number;

	if (argc < 3)
		die("usage", "bench_pooled URI CONNECTIONS [bare]");
	uri = argv[1];
	counts_all = argc < 4;
	last_id = now_ms() << 21;
	make_tables();
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &end, NULL);
	struct MHD_Daemon *daemon = MHD_start_daemon(
		MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR,
		&address, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)atoi(argv[2]),
		MHD_OPTION_NOTIFY_COMPLETED, end_upload, NULL, MHD_OPTION_END);
	if (!daemon)
		die("libmicrohttpd", "did not start");
	printf("ready on 127.0.0.1:%u\n",
	       MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
	fflush(stdout);
	sigwait(&end, &signal_number);
	MHD_stop_daemon(daemon);
	return 0;
}
