/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <assert.h>
#include <string.h>

#include "store/sqlite/store.h"

int store_open(const struct store_config *config, struct store **ret, struct problem *p)
{
	bool sqlite = strcmp(config->settings->store, "sqlite") == 0;

	if (!sqlite && !config->postgres)
		return problem_set(p, LAPSE_EINVAL, "store",
				   "store: this program keeps its data in SQLite only");
	if (sqlite && config->settings->cluster)
		return problem_set(p, LAPSE_EINVAL, "cluster",
				   "cluster: replicas share a PostgreSQL database, and store names "
				   "none");
	int r = sqlite ? sqlite_store_open(config, ret, p) : config->postgres(config, ret, p);

	assert(r < 0 || ((*ret)->magic == STORE_MAGIC && (*ret)->lanes_count > 0));
	return r;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	assert(s->magic == STORE_MAGIC && !s->syncing);
	s->ops->close(s);
}

void store_own(struct store *s)
{
	assert(s->magic == STORE_MAGIC && !s->is_owned);
	s->owner = pthread_self();
	s->is_owned = true;
}

static void assert_mine(const struct store *s)
{
	assert(s->magic == STORE_MAGIC);
	assert(!s->is_owned || pthread_equal(s->owner, pthread_self()));
}

struct db *store_db(const struct store *s)
{
	return s->lanes[0];
}

int store_tx_begin(struct store *s, struct db *lane, enum store_mode mode, lapse_ms *ret_now)
{
	assert_mine(s);
	return s->ops->begin(s, lane, mode, ret_now);
}

int store_tx_commit(struct store *s, struct db *lane, enum store_mode mode)
{
	assert_mine(s);
	int r = s->ops->commit(s, lane, mode);

	if (r == LAPSE_OK && mode == STORE_WRITE)
		s->commits++;
	if (s->commits_are_durable)
		s->durable = s->commits;
	return r;
}

void store_tx_rollback(struct store *s, struct db *lane, enum store_mode mode)
{
	assert_mine(s);
	s->ops->rollback(s, lane, mode);
	assert(!db_in_transaction(lane));
}

int64_t store_mark(const struct store *s)
{
	return s->commits;
}

bool store_is_durable(const struct store *s, int64_t mark)
{
	assert(mark <= s->commits && s->durable <= s->commits);
	return mark <= s->durable;
}

void store_sync_blocking(struct store *s)
{
	s->ops->sync(s);
}

void store_note_durable(struct store *s, int64_t mark)
{
	assert(mark <= s->commits);
	if (s->durable < mark) /* a sync that began later may have ended earlier */
		s->durable = mark;
}

void store_sync(struct store *s)
{
	int64_t mark = s->commits;

	store_sync_blocking(s);
	store_note_durable(s, mark);
}

void store_sync_start(struct store *s, void (*done)(void *arg), void *arg)
{
	assert_mine(s);
	assert(!s->syncing);
	s->syncing = true;
	s->sync_mark = s->commits;
	s->ops->sync_start(s, done, arg);
}

void store_sync_end(struct store *s)
{
	assert_mine(s);
	assert(s->syncing);
	s->syncing = false;
	store_note_durable(s, s->sync_mark);
}

bool store_is_syncing(const struct store *s)
{
	return s->syncing;
}

struct db *store_take_reader(struct store *s)
{
	return s->ops->take_reader(s, true);
}

struct db *store_try_reader(struct store *s)
{
	return s->ops->take_reader(s, false);
}

void store_forget(struct store *s, struct db *reader, const char *sql)
{
	assert_mine(s);
	for (int i = 0; i < s->lanes_count; i++)
		db_forget(s->lanes[i], sql);
	db_forget(reader, sql);
}

void store_give_reader(struct store *s, struct db *reader)
{
	assert(!db_in_transaction(reader));
	s->ops->give_reader(s, reader);
}

int64_t store_bytes(struct store *s)
{
	return s->ops->bytes(s);
}

int store_backup(struct store *s, const struct clock *clock, struct backup *ret, struct problem *p)
{
	return s->ops->backup(s, clock, ret, p);
}

void store_write_metrics(struct store *s, struct buf *out)
{
	s->ops->write_metrics(s, out);
}
