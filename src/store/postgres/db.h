/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PostgreSQL behind db.h, for the PostgreSQL store. A connection outlives its session: when one is
 * lost, the next transaction has another made (store/postgres/dial.h). It waits for that a moment,
 * and while it lasts longer everything is LAPSE_EUNAVAILABLE at once.
 */
#ifndef LAPSE_STORE_POSTGRES_DB_H
#define LAPSE_STORE_POSTGRES_DB_H

#include "store/db.h"
#include "store/postgres/clock.h"
#include "store/postgres/dial.h"
#include "store/postgres/wire.h"

struct pg_config {
	struct wire_config wire;
	const struct clock *clock;  /* trusted time: what a transaction's `now` is */
	const struct clock *system; /* the machine's */
	struct pg_clock *time;      /* gets a sample at each begin; NULL = none is taken */

	/* Called with each new session before it is used, on the thread that connects; may be
	 * NULL. */
	wire_greet_fn *greet;
	void *greet_arg;

	/* Above 0: write transactions of all sessions that set it take turns, and one waits no
	 * longer than this for its turn. The order of commits is then the order of turns. */
	int64_t turn_ms;
};

/* On failure `p` says why and *ret is untouched. */
int pg_open(const struct pg_config *config, struct db **ret, struct problem *p);

/* How long a statement may take from now on, in this session and in later ones. */
int pg_limit_statements(struct db *db, int64_t ms);

/* Runs a command of the store's own, outside a transaction. */
int pg_command(struct db *db, const char *sql);

/* How often a session was lost and made anew. */
int64_t pg_reconnects(const struct db *db);

#endif
