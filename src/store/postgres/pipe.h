/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For store/postgres/db.c: one connection's statements, its session and its pipeline. Commands are
 * sent and wait as `pending`; pg_round() fetches all their answers. What a caller needs to know at
 * once ends a round.
 */
#ifndef LAPSE_STORE_POSTGRES_PIPE_H
#define LAPSE_STORE_POSTGRES_PIPE_H

#include <assert.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/driver.h"
#include "store/postgres/db.h"

#define PENDING_MAX 256 /* answers that are not fetched yet; then a round comes */
#define XID_MAX 24

struct pg_gathered;

struct pg_prepared {
	struct db_prepared head;
	struct map_node node; /* by the text it was asked for with */
	char *text;           /* that text */
	char *sql;            /* what the server gets */
	char name[24];        /* what the server knows it by */
	int64_t session;      /* in which it is prepared; 0 = in none */
	PGresult *result;     /* NULL = it has not run */
	int row;              /* of the result; the next step's */

	struct pg_gathered
		*gathered; /* rows of it that are not sent yet; NULL = it never had any */
};

struct pg_pending {
	struct pg_prepared *prepared; /* NULL = it was forgotten in the meantime */
	bool prepares;                /* it makes the statement known, instead of running it */
	bool asked;                   /* the caller waits for its result */
	int64_t rows;                 /* that must change; negative = any number */
};

enum pg_tx { PG_NONE, PG_OPEN, PG_STEP };

struct pg_db {
	struct db head;
	struct pg_config config;
	struct wire wire;
	struct map statements;
	int64_t names;     /* that were given to statements */
	struct dial *dial; /* a session that is being made; NULL = none is */
	lapse_us next_dial;
	int64_t reconnects;

	struct pg_pending pending[PENDING_MAX];
	size_t pending_count;
	struct list gathering; /* struct pg_gathered that have rows, in the order of their first */

	enum pg_tx tx;
	bool broken, refused;
	bool lost;         /* the session went in a transaction that its owner has not ended yet */
	bool awaited;      /* nothing is posted in this transaction … */
	bool await_next;   /* … nor in the next one */
	char xid[XID_MAX]; /* of the write transaction; "" = it only reads */
	int64_t changes;   /* rows, since the connection was opened; a posted write counts as one */
	int64_t changed;   /* rows, by the last statement that was waited for */
};

static inline struct pg_db *pg_of(const struct db *db)
{
	assert(db->magic == DB_MAGIC);
	return CONTAINER_OF(db, struct pg_db, head);
}

static inline struct pg_prepared *pg_prepared_of(struct db_prepared *prepared)
{
	return CONTAINER_OF(prepared, struct pg_prepared, head);
}

/* The statement with this text, made where it is new. */
struct pg_prepared *pg_find(struct pg_db *db, const char *text);
void pg_clear_result(struct pg_prepared *p);
void pg_free(struct pg_prepared *p);
void pg_free_node(struct map_node *node, void *arg); /* the same, for map_each() */

/* The first session; who opens a connection waits for it. */
int pg_connect(struct pg_db *db, struct problem *p);

/* Has a session made, unless that is under way, and waits for it up to `wait_ms`. */
int pg_redial(struct pg_db *db, int wait_ms);

/* A server that is away is asked now and then only; only the first who asks waits for the answer.
 */
int pg_need_session(struct pg_db *db);

/* What was under way in the session is gone with it. */
void pg_forget_session(struct pg_db *db);

/* Room for a statement and its preparation; may end a round. */
int pg_make_room(struct pg_db *db);

/* Sends a statement, prepared first where the session does not know it. `asked` = the caller waits
 * for its result; `rows` = how many must change. */
int pg_send(struct pg_db *db, struct pg_prepared *p, bool asked);
int pg_send_expecting(struct pg_db *db, struct pg_prepared *p, bool asked, int64_t rows);

/* Fetches every answer that is pending. The first failure counts: one that no caller asked about
 * means that the whole transaction must be tried again. */
int pg_round(struct pg_db *db);

/* A command of our own whose result is not needed. */
int pg_tell(struct pg_db *db, const char *sql);

/* A command of our own; what was pending comes with it. Its result, if it is wanted, is the
 * caller's to clear. */
int pg_ask(struct pg_db *db, const char *sql, PGresult **ret);

#endif
