/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/restored.h"

#include <inttypes.h>

#include "base/mem.h"
#include "base/secret.h"
#include "store/migrate.h"
#include "store/postgres/db.h"
#include "store/postgres/lock.h"
#include "store/postgres/uri.h"

static const struct db_stmt META_EXISTS = { "SELECT 1 WHERE to_regclass('meta') IS NOT NULL" };

static int check_is_store(struct db *db, struct problem *p)
{
	int64_t version = 0;
	int r;

	{
		struct db_query CLEANUP(db_finish) q = db_query(db, &META_EXISTS);
		r = db_step(&q);
	}
	if (r > 0)
		r = migrate_current(db, &version);
	if (r < 0)
		return problem_set(p, r, NULL, "cannot read the store: %.180s", db_error(db));
	if (version == 0)
		return problem_set(p, LAPSE_EINVAL, NULL, "the database is not one of lapse");
	if (version > migrate_newest())
		return problem_set(p, LAPSE_EVERSION, NULL,
				   "the database has schema version %" PRId64
				   ", this program knows only %d",
				   version, migrate_newest());
	return LAPSE_OK;
}

static int note_restored(struct db *db, lapse_ms *ret_at, struct problem *p)
{
	lapse_ms now = 0;
	int r = db_begin(db, &now);

	if (r == LAPSE_OK)
		r = meta_set(db, "restored_at", now);
	if (r == LAPSE_OK)
		r = db_commit(db);
	if (r < 0) {
		problem_set(p, r, NULL, "cannot mark the store: %.180s", db_error(db));
		db_rollback(db);
		return r;
	}
	*ret_at = now;
	return LAPSE_OK;
}

int store_restored(const char *store, lapse_ms *ret_at, struct problem *p)
{
	struct buf CLEANUP(secret_wipe) uri = { 0 };
	struct pg_clock time;
	struct db *db = NULL;
	int r = pg_uri_read(store, &uri, p);

	pg_clock_init(&time, &CLOCK_SYSTEM);
	const struct pg_config config = { .wire = { .uri = buf_text(&uri) },
					  .clock = &time.clock,
					  .system = &CLOCK_SYSTEM,
					  .time = &time,
					  .greet = pg_lock_take };
	if (r == LAPSE_OK)
		r = pg_open(&config, &db, p);
	if (r == LAPSE_OK)
		r = check_is_store(db, p);
	if (r == LAPSE_OK)
		r = note_restored(db, ret_at, p);
	db_close(db);
	return r;
}
