/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/checkpoint.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"
#include "store/sqlite/db.h"
#include "store/sqlite/syncer.h"

/* The log is copied back whenever it has grown by this much: enough that a page written often is
 * copied once, and so little that a sync of the log does not wait long behind it at the disk. After
 * 4 MiB of filed messages it waited for 2 to 4 ms, behind pages from all over the database. */
#define COPY_BYTES (INT64_C(1) << 20)
#define RESTART_BYTES (INT64_C(32) << 20) /* from here on the log starts over */
#define PASSES_MAX 4                      /* beside the writer, before it is held back */
#define HARD_BUSY_MS 20                   /* how long writers wait for a reader of the log */
#define HARD_PAUSE_US INT64_C(1000000)    /* before that is tried again */
#define LEFT_BYTES (INT64_C(1) << 20)     /* little enough to hold the writer back for */

#define CHECKPOINTER_MAGIC 0x4c50434bu

struct checkpointer {
	uint32_t magic;
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	int64_t wal_bytes; /* after the last commit */
	int64_t copy_at;   /* the size at which the log is copied again */
	int64_t errors;
	bool wanted, stop;

	pthread_mutex_t gate; /* held by a write transaction, or by a hard checkpoint */
	struct db *db;        /* the thread's own */
	lapse_us hard_at;     /* monotonic: no hard checkpoint before */
	int64_t max_bytes;
	bool durable;
};

void checkpointer_hold(struct checkpointer *c)
{
	pthread_mutex_lock(&c->gate);
}

void checkpointer_release(struct checkpointer *c)
{
	pthread_mutex_unlock(&c->gate);
}

int64_t checkpoint_next(int64_t wal_bytes, int64_t max_bytes)
{
	if (wal_bytes >= max_bytes)
		return wal_bytes + LEFT_BYTES;
	return wal_bytes + COPY_BYTES < max_bytes ? wal_bytes + COPY_BYTES : max_bytes;
}

bool checkpoint_starts_over(int64_t wal_bytes, int64_t left, int64_t max_bytes)
{
	return wal_bytes >= max_bytes || (wal_bytes >= RESTART_BYTES && left <= LEFT_BYTES);
}

static void checkpointer_note(void *arg, int64_t wal_bytes)
{
	struct checkpointer *c = arg;

	assert(c->magic == CHECKPOINTER_MAGIC && wal_bytes >= 0);
	pthread_mutex_lock(&c->lock);
	if (wal_bytes < c->wal_bytes) /* it has started over */
		c->copy_at = checkpoint_next(0, c->max_bytes);
	c->wal_bytes = wal_bytes;
	if (wal_bytes >= c->copy_at && !c->wanted) {
		c->wanted = true;
		pthread_cond_signal(&c->wake);
	}
	pthread_mutex_unlock(&c->lock);
}

/* Beside the writer: everything that can be copied, again while much has come meanwhile. It is
 * synced at once, so that the sync that a writer waits for finds little. That SQLite is busy is no
 * failure: it says so when it reads the head of the log's index while the writer changes it. */
static int copy_beside(struct checkpointer *c, int64_t *ret_left)
{
	int64_t left = INT64_MAX;

	for (int i = 0; left > LEFT_BYTES && i < PASSES_MAX; i++) {
		int r = sqlite_checkpoint(c->db, false, &left);
		if (r == LAPSE_ERETRY)
			left = INT64_MAX;
		else if (r < 0)
			return r;
	}
	*ret_left = left;
	return c->durable ? sqlite_sync(c->db) : LAPSE_OK;
}

/* With the writer held back: the little that is left, so that the log starts over. Only beyond its
 * limit readers of the log are waited for, too. */
static int copy_rest(struct checkpointer *c, bool is_over)
{
	int64_t left;

	checkpointer_hold(c);
	int r = sqlite_checkpoint(c->db, is_over, &left);
	checkpointer_release(c);
	if (r != LAPSE_ERETRY)
		return r;
	/* A long reader needs the log: it grows until the read has ended. */
	c->hard_at = clock_mono(&CLOCK_SYSTEM) + HARD_PAUSE_US;
	return LAPSE_OK;
}

static int checkpointer_copy(struct checkpointer *c, int64_t wal_bytes)
{
	const bool is_over = wal_bytes >= c->max_bytes;
	int64_t left;
	int r = copy_beside(c, &left);

	if (r < 0 || !checkpoint_starts_over(wal_bytes, left, c->max_bytes))
		return r;
	return is_over && clock_mono(&CLOCK_SYSTEM) < c->hard_at ? LAPSE_OK : copy_rest(c, is_over);
}

static void *checkpointer_loop(void *arg)
{
	struct checkpointer *c = arg;

	assert(c->magic == CHECKPOINTER_MAGIC);
	pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		if (!c->wanted) {
			pthread_cond_wait(&c->wake, &c->lock);
			continue;
		}
		int64_t bytes = c->wal_bytes;
		pthread_mutex_unlock(&c->lock);
		int r = checkpointer_copy(c, bytes);
		if (r == LAPSE_ESYNC)
			syncer_die("database");
		pthread_mutex_lock(&c->lock);
		c->wanted = false;
		c->copy_at = checkpoint_next(c->wal_bytes, c->max_bytes);
		if (r < 0)
			c->errors++;
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

int checkpointer_start(const struct db_config *config, struct db *writer, int64_t wal_max_bytes,
		       struct checkpointer **ret, struct problem *p)
{
	struct checkpointer *c = mem_zalloc(1, sizeof(*c));
	struct db_config own = *config;
	own.busy_timeout_ms = HARD_BUSY_MS;
	int r = db_open(&own, &c->db, p);
	if (r < 0) {
		free(c);
		return r;
	}
	c->magic = CHECKPOINTER_MAGIC;
	c->durable = config->durable;
	c->max_bytes = wal_max_bytes;
	c->copy_at = checkpoint_next(0, wal_max_bytes);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->gate, NULL);
	pthread_cond_init(&c->wake, NULL);
	if (pthread_create(&c->thread, NULL, checkpointer_loop, c) != 0) {
		db_close(c->db);
		free(c);
		return problem_set(p, LAPSE_EINTERNAL, NULL, "cannot start the checkpoint thread");
	}
	sqlite_on_wal(writer, checkpointer_note, c);
	*ret = c;
	return LAPSE_OK;
}

void checkpointer_stop(struct checkpointer *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->gate);
	pthread_cond_destroy(&c->wake);
	db_close(c->db);
	free(c);
}

int64_t checkpointer_wal_bytes(struct checkpointer *c)
{
	pthread_mutex_lock(&c->lock);
	int64_t bytes = c->wal_bytes;
	pthread_mutex_unlock(&c->lock);
	return bytes;
}

int64_t checkpointer_errors(struct checkpointer *c)
{
	pthread_mutex_lock(&c->lock);
	int64_t errors = c->errors;
	pthread_mutex_unlock(&c->lock);
	return errors;
}
