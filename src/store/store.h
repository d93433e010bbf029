/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: the database behind the engine, with everything that keeps it running. The engine
 * opens one; engine/tx.h runs transactions on it; nothing above this folder knows which kind it is.
 *
 * A store has lanes. A lane is a connection that runs one transaction at a time. The SQLite store
 * has one lane, which the owner of the loop runs inline; it also owns the reader, the checkpointer
 * and the syncer. So has the PostgreSQL store for now; several lanes, each with a thread, are to
 * come.
 *
 * Legal order: store_open; then per lane any number of store_tx_begin, followed by store_tx_commit
 * or store_tx_rollback (a begin that failed needs neither, a commit that failed needs the
 * rollback); then store_close.
 *
 * Durability. Write transactions are numbered as they commit: store_mark() is the number of the
 * last one. A commit is only visible at first; it is durable once a sync that began after it has
 * ended. An answer, or a deletion outside, waits for that. PostgreSQL answers a COMMIT once it is
 * durable (`commits_are_durable`).
 *
 * To add a kind of store: a folder beside sqlite/ with a table of struct store_ops and a driver
 * (store/driver.h), and one line in store_open(). Test doubles take an open store over by
 * exchanging its `ops`.
 */
#ifndef LAPSE_STORE_STORE_H
#define LAPSE_STORE_STORE_H

#include <pthread.h>

#include "base/buf.h"
#include "base/settings.h"
#include "store/backup.h"
#include "store/db.h"
#include "store/sql.h"

#define STORE_MAGIC 0x4c505354u
#define STORE_LANES_MAX 8

enum store_mode { STORE_READ, STORE_WRITE };

struct store;

struct store_ops {
	int (*begin)(struct store *s, struct db *lane, enum store_mode mode, lapse_ms *ret_now);
	int (*commit)(struct store *s, struct db *lane, enum store_mode mode);
	void (*rollback)(struct store *s, struct db *lane, enum store_mode mode);

	/* Makes every commit so far durable. `sync` blocks and may run on any thread; `sync_start`
	 * comes back at once and calls done(arg) later, on a thread of the store's own, one at a
	 * time. A sync cannot fail: where the disk does, the process ends. */
	void (*sync)(struct store *s);
	void (*sync_start)(struct store *s, void (*done)(void *arg), void *arg);

	/* A connection for long reads on a worker; waits until it is free, or gives NULL. */
	struct db *(*take_reader)(struct store *s, bool wait);
	void (*give_reader)(struct store *s, struct db *reader);

	/* The size of the database. Blocks; any thread. */
	int64_t (*bytes)(struct store *s);

	/* Blocks; any thread. */
	int (*backup)(struct store *s, const struct clock *clock, struct backup *ret,
		      struct problem *p);
	void (*write_metrics)(struct store *s, struct buf *out);
	void (*close)(struct store *s);
};

/* What all kinds have in common. Fields are for store.c, the kinds and their doubles. */
struct store {
	uint32_t magic;
	const struct store_ops *ops;
	enum dialect dialect;              /* of the SQL that it wants */
	const struct clock *clock;         /* the wall clock it brings; NULL = the machine's */
	struct db *lanes[STORE_LANES_MAX]; /* the first is the loop's own */
	int lanes_count;
	bool commits_are_durable; /* there is nothing left to sync */
	int steps_max;            /* of one transaction; 0 = any number */
	int64_t commits;          /* write transactions so far */
	int64_t durable;          /* the first so many of them are synced */
	bool syncing;             /* between store_sync_start() and store_sync_end() */
	int64_t sync_mark;        /* what that sync makes durable */
	bool is_owned;            /* `owner` is the only thread that may run transactions */
	pthread_t owner;
};

/* On failure `p` says why and *ret is untouched. */
struct store_config;
typedef int store_opener(const struct store_config *config, struct store **ret, struct problem *p);

struct store_config {
	const struct settings *settings;
	const struct clock *clock;  /* trusted time, for the lanes */
	const struct clock *system; /* the machine's own clocks */
	store_opener *postgres;     /* of the PostgreSQL store; NULL = this program has none */
};

/* Opens the store the settings name and brings its schema up to date. */
store_opener store_open;
void store_close(struct store *s); /* takes NULL */

/* From now on only the calling thread runs transactions. */
void store_own(struct store *s);

/* The loop's own lane; outside a transaction it serves short reads. */
struct db *store_db(const struct store *s);

int store_tx_begin(struct store *s, struct db *lane, enum store_mode mode, lapse_ms *ret_now);
int store_tx_commit(struct store *s, struct db *lane, enum store_mode mode);
void store_tx_rollback(struct store *s, struct db *lane, enum store_mode mode);

/* The number of the last commit, and whether a commit is durable. */
int64_t store_mark(const struct store *s);
bool store_is_durable(const struct store *s, int64_t mark);

/* Makes everything committed so far durable; blocks. */
void store_sync(struct store *s);

/* The same without waiting: done(arg) is called on another thread; then the owner calls
 * store_sync_end(). One at a time. */
void store_sync_start(struct store *s, void (*done)(void *arg), void *arg);
void store_sync_end(struct store *s);
bool store_is_syncing(const struct store *s);

/* The same on a worker of the caller's: the owner takes the mark, a worker calls
 * store_sync_blocking(), then the owner tells with store_note_durable(). */
void store_sync_blocking(struct store *s);
void store_note_durable(struct store *s, int64_t mark);

/* Long reads, for a worker: blocks until the reader is free. store_try_reader() does not block and
 * gives NULL when a worker has it. */
struct db *store_take_reader(struct store *s);
struct db *store_try_reader(struct store *s);
void store_give_reader(struct store *s, struct db *reader);

/* Forgets a statement on every lane and on the reader, which the caller has taken: see
 * db_forget(). */
void store_forget(struct store *s, struct db *reader, const char *sql);

/* The size of the database, in bytes; blocks, any thread. */
int64_t store_bytes(struct store *s);

/* Makes a backup below the data directory; blocks, any thread. */
int store_backup(struct store *s, const struct clock *clock, struct backup *ret, struct problem *p);

void store_write_metrics(struct store *s, struct buf *out);

#endif
