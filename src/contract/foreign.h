/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's database, as contracts see it: one connection, statements with parameters, short
 * transactions, and a catalogue (contract/catalogue.h).
 *
 * Every call blocks, so connections live on worker threads and in the command, never on the loop.
 * A connection belongs to one thread at a time; only foreign_cancel() may come from another.
 *
 *	foreign_open → { foreign_begin → foreign_run … → foreign_commit | foreign_rollback } →
 *	foreign_close
 *
 * Statements run inside a transaction only: that is where the time limits are set, because a
 * pooler may give every transaction another session. They are never prepared by name, for the same
 * reason.
 *
 * Errors come sorted: LAPSE_ERETRY (a lock was not granted; nothing happened), LAPSE_ETIMEOUT (the
 * time limit or foreign_cancel()), LAPSE_EUNAVAILABLE (the server is away), LAPSE_ENOTFOUND (no
 *such table or column), LAPSE_EFORBIDDEN (no right, or read-only), LAPSE_ECONFLICT (a constraint),
 * LAPSE_EFULL, LAPSE_EUPSTREAM (anything else). foreign_error() has the database's own words.
 */
#ifndef LAPSE_CONTRACT_FOREIGN_H
#define LAPSE_CONTRACT_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "contract/contract.h"
#include "store/sql.h"

enum datum_kind { DATUM_NULL, DATUM_INT, DATUM_REAL, DATUM_TEXT, DATUM_BLOB };

/* A value in or out. PostgreSQL gives and takes everything but NULL as text. */
struct datum {
	enum datum_kind kind;
	int64_t number;
	double real;
	const char *text; /* of texts and blobs, with a NUL behind it */
	size_t size;
};

static inline struct datum datum_int(int64_t n)
{
	return (struct datum){ .kind = DATUM_INT, .number = n };
}

struct datum datum_text(const char *text); /* borrows; NULL is SQL's NULL */

/* Appends the value as a person would write it; NULL is nothing. Two values of one column are
 * equal when their texts are. */
void datum_write(const struct datum *d, struct buf *out);
struct datum datum_copy(struct arena *arena, const struct datum *d);

/* The whole answer to a statement. */
struct rows {
	struct arena arena;
	struct datum *cells;
	size_t columns, count, room;
	int64_t changed; /* rows an INSERT, UPDATE or DELETE touched */
};

void rows_init(struct rows *r);
void rows_reset(struct rows *r);
void rows_done(struct rows *r);
const struct datum *rows_at(const struct rows *r, size_t row, size_t column);
const char *rows_text(const struct rows *r, size_t row, size_t column); /* NULL for SQL's NULL */
int64_t rows_int(const struct rows *r, size_t row, size_t column); /* 0 for what is no number */
bool rows_true(const struct rows *r, size_t row, size_t column);
struct datum *rows_add(struct rows *r); /* a new row of r->columns cells; for drivers */

#define FOREIGN_MAGIC 0x666f7265u

struct foreign {
	uint32_t magic;
	const struct foreign_driver *driver;
	enum foreign_engine engine;
	enum dialect dialect;
	bool read_only; /* nothing can be written through it */
	bool in_transaction;
	bool writes;     /* the open transaction may write */
	bool met_writer; /* another session wrote between the last two removals */
	char error[512];
};

struct foreign_config {
	enum foreign_engine engine;
	const char *target; /* a path or a URI */
	bool read_only;
	int64_t statement_ms;   /* how long a statement may take */
	int64_t lock_ms;        /* how long a lock is waited for */
	int64_t transaction_ms; /* how long a transaction may be idle before the server ends it */
};

#define FOREIGN_STATEMENT_MS 30000
#define FOREIGN_LOCK_MS 1000
#define FOREIGN_TRANSACTION_MS 15000

struct foreign_driver {
	int (*open)(const struct foreign_config *config, struct foreign **ret, struct buf *error);
	void (*close)(struct foreign *f);
	int (*begin)(struct foreign *f, bool write,
		     int64_t lock_ms); /* 0 = as long as opened for */
	int (*begin_removal)(struct foreign *f, int64_t lock_ms, bool lazy);
	void (*tidy)(struct foreign *f);
	int (*flush)(struct foreign *f);
	int (*commit)(struct foreign *f);
	void (*rollback)(struct foreign *f);
	int (*run)(struct foreign *f, const char *sql, const struct datum *params, size_t count,
		   struct rows *ret);
	int (*now)(struct foreign *f, lapse_ms *ret);
	void (*cancel)(struct foreign *f);
	void (*limit)(struct foreign *f, int64_t statement_ms);
};

extern const struct foreign_driver FOREIGN_SQLITE_DRIVER;
extern const struct foreign_driver FOREIGN_POSTGRES_DRIVER;

/* On failure `error` says why, in one line that never holds a password. */
int foreign_open(const struct foreign_config *config, struct foreign **ret, struct buf *error);
void foreign_close(struct foreign *f); /* takes NULL; undoes an open transaction */
void foreign_closep(struct foreign **f);

int foreign_begin(struct foreign *f, bool write);

/* A transaction that removes rows, and waits at most `lock_ms` for a lock (0 = as long as any
 * other; on SQLite always). `lazy`: its commit is not synced; foreign_flush() does that for all of
 * them. Says in f->met_writer whether another session has written since the last one. */
int foreign_begin_removal(struct foreign *f, int64_t lock_ms, bool lazy);

/* All that was committed so far is on disk. */
int foreign_flush(struct foreign *f);

/* Between two removals: what the database has to do because of them, if others would have to do it
 * otherwise. */
void foreign_tidy(struct foreign *f);
int foreign_commit(struct foreign *f);
void foreign_rollback(struct foreign *f); /* also when none is open */

/* Runs one statement. `ret` is reset first and may be NULL. After an error the transaction must be
 * rolled back. */
int foreign_run(struct foreign *f, const char *sql, const struct datum *params, size_t count,
		struct rows *ret);

/* The same in a read transaction of its own. */
int foreign_read(struct foreign *f, const char *sql, const struct datum *params, size_t count,
		 struct rows *ret);

/* The clock of the machine the database runs on. */
int foreign_now(struct foreign *f, lapse_ms *ret);

/* From any thread: the running statement ends with LAPSE_ETIMEOUT. */
void foreign_cancel(struct foreign *f);

/* Another time limit from the next transaction on. */
void foreign_limit(struct foreign *f, int64_t statement_ms);

const char *foreign_error(const struct foreign *f);

/* For drivers: keeps the database's words, without line breaks, and returns `err`. */
int foreign_fail(struct foreign *f, int err, const char *words);

#endif
