/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves a store from SQLite to PostgreSQL, offline, for `lapse migrate`.
 *
 * Start. The source's data directory is locked, so no lapsed runs on it; its file is checked as a
 * backup would be before it is restored. The target must be empty, or hold an earlier attempt at
 * moving the same source.
 *
 * Work. The target gets the table `lapse_move`, whose one row says what comes from where and how
 * far it is; while that table is there, no lapsed starts on the database. Then the schema, in the
 * source's version. Then every table, in the order of its primary key, in copies of a few MiB. Each
 * is a transaction, so what the target has is always the beginning of a table: an attempt that was
 * interrupted goes on after the largest key that is there.
 *
 * Check. Every table is read from both sides, counted and hashed (SHA-256 of the rows as COPY
 * writes them). A table that differs is copied again once: the source may have changed between two
 * attempts.
 *
 * End. The state `checked` is noted, lapse.db is renamed, the schema is brought up to date,
 * lapse_move goes. Whenever it stops, another run goes on from there.
 *
 * Files of attachments and lapse.key stay in the data directory, which lapsed goes on using.
 */
#ifndef LAPSE_STORE_POSTGRES_MOVE_H
#define LAPSE_STORE_POSTGRES_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/datadir.h"
#include "store/db.h"

#define MOVE_CHECKSUM_LEN 64 /* SHA-256, lower-case hex */

enum move_phase { MOVE_COPYING, MOVE_CHECKING, MOVE_CHECKED };

/* How far it is. At least once per table and phase. */
struct move_step {
	enum move_phase phase;
	const char *table;
	int64_t done, total;  /* rows of the table */
	const char *checksum; /* MOVE_CHECKED: of both sides; NULL otherwise */
};

struct move_config {
	const char *data_dir; /* the source */
	const char *store;    /* the target: a URI, or @PATH of a file with one */
	void (*tell)(void *arg, const struct move_step *step);
	void *arg;
};

struct move_result {
	bool resumed;                /* an earlier attempt had begun */
	int64_t tables, rows;        /* that were checked */
	char kept[DATADIR_PATH_MAX]; /* where the old database is now */
};

/* LAPSE_EBUSY: a lapsed uses the source, or the target. LAPSE_ECONFLICT: the target has other data.
 * After any error both sides are as they were, or another call goes on. */
int store_move(const struct move_config *config, struct move_result *ret, struct problem *p);

/* Whether the database holds a move that was not finished. */
int move_is_unfinished(struct db *target, bool *ret);

#endif
