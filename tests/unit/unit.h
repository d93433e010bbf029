/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the unit tests share: a directory that goes away, a clock the test owns, and a world, which
 * is an engine with the whole matrix on a real SQLite file in such a directory.
 *
 * A world's second connection (`side`) is for looking at the file, and for getting in the way: it
 * reaches SQLite directly, past db.h, as somebody else's tool would.
 */
#ifndef LAPSE_TESTS_UNIT_H
#define LAPSE_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sqlite3.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "message/message.h"
#include "rooms.h"

#define NOW INT64_C(1800000000000) /* 2027-01-15T08:00:00Z, where every fake clock starts */
#define TEMP_PATH_MAX 256

struct fake_clock {
	lapse_ms wall;
	lapse_us mono;
	lapse_us mono_step; /* added by every read of the monotonic clock */
	struct clock clock;
};

void fake_clock_init(struct fake_clock *f);
void fake_clock_advance(struct fake_clock *f, lapse_ms ms); /* both of its hands */
void fake_clock_to(struct fake_clock *f, lapse_ms wall);    /* the same, up to that time */

/* A fresh directory; the removal takes everything in it along. */
void temp_dir_make(char out[TEMP_PATH_MAX]);
void temp_dir_remove(const char *path);
void path_join(char out[TEMP_PATH_MAX], const char *dir, const char *name);
void file_write(const char *path, const char *text);
char *file_read(const char *path); /* the caller frees it */

struct world {
	char dir[TEMP_PATH_MAX];
	struct fake_clock time;
	struct settings settings;
	struct log log; /* into a file in memory */
	struct engine engine;
	bool open;
	sqlite3 *side;
};

int world_setup(void **state); /* *state = a struct world whose engine is open */
int world_teardown(void **state);
void world_close(struct world *w);
void world_open(struct world *w);
void world_reopen(struct world *w); /* without a goodbye, like a crash that lost nothing */

/* SQL through the side connection. The query is a printf format; its first column is the answer. */
void side_run(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t side_int(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *side_text(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same on any connection; nothing may fail. */
void sqlite_do(sqlite3 *db, const char *sql);
int64_t sqlite_ask(sqlite3 *db, const char *sql);

/* Every row of every table as text, without those tables named in `except` (NULL = none). */
char *world_dump(struct world *w, const char *except);

/* What was logged so far. The caller frees it. */
char *world_log(const struct world *w);

/* Fails unless the counters agree: counts, inboxes and the engine's states with count(*). */
void world_check_counters(struct world *w);

/* Messages, each in a transaction of its own. */
/* To m->to; fills id and timestamp. */
int send_one(struct tx *tx, const char *owner, struct message *m, struct problem *p);
int64_t send_message(struct world *w, const char *owner, const char *agent);
void read_message(struct world *w, const char *owner, const char *agent, int64_t id);
int64_t send_read_message(struct world *w, const char *owner, const char *agent);
bool message_exists(struct world *w, int64_t id);

void hold_message(struct world *w, const char *owner, int64_t id, lapse_ms until);

/* `n` read messages with this timestamp, made behind the engine's back with all counters right:
 * the engine is closed and opened again. */
void make_read_messages(struct world *w, int64_t n, lapse_ms timestamp);

/* A whole sweep, slice after slice; gives the number of slices. */
int run_sweep(struct world *w, const char *scheduler, bool dry_run, struct sweep *ret);

/* The store fails until it is back: somebody else's tool holds its write lock. */
void store_fails(struct world *w);
void store_is_back(struct world *w);

/* Ticks until the engine has nothing to do now. */
void tick_until_idle(struct world *w);

#endif
