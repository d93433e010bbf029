/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session with a PostgreSQL server: connecting, sending, waiting for answers. It knows libpq and
 * nothing of transactions; store/postgres/db.c makes a connection of it that store/db.h knows.
 *
 * The session is in libpq's pipeline mode: commands are sent without waiting, and their answers
 * come in the same order, up to a mark (a sync). Legal order: wire_connect; then rounds, each any
 * number of wire_prepare and wire_execute, then wire_mark, then as many wire_answer as there were
 * commands, then one wire_end_round; then wire_close.
 *
 * A session is lost when the server, the network or the wait for an answer fails. Then it is
 * closed, every further call returns LAPSE_ERETRY, and wire_connect() makes a new one, in which
 * nothing is prepared.
 */
#ifndef LAPSE_STORE_POSTGRES_WIRE_H
#define LAPSE_STORE_POSTGRES_WIRE_H

#include <libpq-fe.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#define WIRE_ERROR_MAX 256
#define WIRE_LOCK_MS 100    /* a row that another transaction holds: try again instead */
#define WIRE_TIMELINE_LEN 8 /* the first digits of a WAL file's name */
#define WIRE_LIFE_MAX 80    /* two times, as texts */

struct wire_config {
	const char *uri; /* borrowed */
	bool read_only;
	int64_t statement_ms; /* a statement that takes longer is ended by the server */
	int64_t idle_ms;      /* so is a session idle in a transaction; 0 = IDLE_TRANSACTION_MS */
};

struct wire {
	struct wire_config config;
	PGconn *conn;                         /* NULL = there is no session */
	int64_t session;                      /* its number; grows with each one */
	bool locked;                          /* the last failure was a lock not granted in time */
	bool warned;                          /* the server warned since wire_forget_warning() */
	char error[WIRE_ERROR_MAX];           /* the last error, for logs */
	char timeline[WIRE_TIMELINE_LEN + 1]; /* of the server; another one after a failover */
	char life[WIRE_LIFE_MAX];             /* another one after a restart or a crash */
	pthread_mutex_t cancel_lock;          /* guards `cancel`, which other threads use */
	PGcancel *cancel;

	/* Called before and after each wait for the server; may be NULL. */
	void (*pause)(void *arg);
	void (*resume)(void *arg);
	void *wait_arg;
};

void wire_init(struct wire *w, const struct wire_config *config);
void wire_done(struct wire *w);

/* Connects, checks what is at the other end, and sets the session's limits. LAPSE_EUNAVAILABLE: the
 * server cannot be reached. LAPSE_EVERSION, LAPSE_EINVAL: it is none that can be used. */
int wire_connect(struct wire *w, struct problem *p);
void wire_close(struct wire *w);

/* Takes the session of another wire; `w` has none. */
void wire_adopt(struct wire *w, struct wire *from);

static inline bool wire_is_up(const struct wire *w)
{
	return w->conn != NULL;
}

/* Sending. Nothing is waited for. Texts are copied. */
int wire_prepare(struct wire *w, const char *name, const char *sql, int params, const Oid *types);
int wire_execute(struct wire *w, const char *name, int params, const char *const *values);
int wire_mark(struct wire *w);

/* The next answer, the caller's to clear. LAPSE_ERETRY: the session is lost. What the server says
 * is in the result; wire_judge() sorts it. */
int wire_answer(struct wire *w, PGresult **ret);
int wire_end_round(struct wire *w);

/* LAPSE_OK for rows or a finished command; otherwise the error of the result, whose text is kept
 * in `error`. A command that was skipped because one before it failed is LAPSE_ERETRY. */
int wire_judge(struct wire *w, const PGresult *result);

/* Runs a script, or asks for one value (up to `size` bytes, "" for NULL), between two rounds. */
int wire_script(struct wire *w, const char *sql);
int wire_ask(struct wire *w, const char *sql, char *ret_value, size_t size);

/* From any thread: asks the server to end the statement that runs. */
void wire_interrupt(struct wire *w);

/* The error that a SQLSTATE means, for the tests too. */
int wire_sort_state(const char *state);

#endif
