/* SPDX-License-Identifier: Apache-2.0 */
#include "store/migrate.h"

#include <inttypes.h>

#include "base/mem.h"
#include "store/schema.h"

const char META_TABLE[] = "CREATE TABLE IF NOT EXISTS meta "
			  "(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;\n";

static const struct db_stmt META_GET = { "SELECT value FROM meta WHERE key = $1" };
static const struct db_stmt META_SET = { "INSERT INTO meta (key, value) VALUES ($1, $2) "
					 "ON CONFLICT (key) DO UPDATE SET value = excluded.value" };

int meta_get(struct db *db, const char *key, int64_t fallback, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &META_GET);

	db_bind_text(&q, 1, key);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = r > 0 ? db_int(&q, 0) : fallback;
	return LAPSE_OK;
}

int meta_set(struct db *db, const char *key, int64_t value)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &META_SET);

	db_bind_text(&q, 1, key);
	db_bind_int(&q, 2, value);
	return db_post(&q, DB_ONE);
}

int migrate_newest(void)
{
	int newest = 0;

	for (const struct schema_step *s = SCHEMA; s->version; s++)
		newest = s->version;
	return newest;
}

int migrate_current(struct db *db, int64_t *ret)
{
	return meta_get(db, "schema_version", 0, ret);
}

/* A step that serves older programs cannot take back that one before it did not. */
static int note_served(struct db *db, const struct schema_step *step)
{
	int64_t before = 0;
	int r = meta_get(db, META_SERVES, step->serves, &before);

	if (r < 0)
		return r;
	return meta_set(db, META_SERVES, before > step->serves ? before : step->serves);
}

static int migrate_apply(struct db *db, const struct schema_step *step, struct problem *p)
{
	lapse_ms now;
	int r = db_begin(db, &now);

	if (r == LAPSE_OK)
		r = db_script(db, step->sql);
	if (r == LAPSE_OK)
		r = meta_set(db, "schema_version", step->version);
	if (r == LAPSE_OK)
		r = note_served(db, step);
	if (r == LAPSE_OK && step == SCHEMA)
		r = meta_set(db, META_CREATED_AT, now);
	if (r == LAPSE_OK)
		r = db_commit(db);
	if (r < 0) {
		problem_set(p, r, NULL, "cannot migrate to schema version %d: %.160s",
			    step->version, db_error(db));
		db_rollback(db);
	}
	return r;
}

int migrate(struct db *db, struct problem *p)
{
	return migrate_to(db, migrate_newest(), p);
}

int migrate_rolling(struct db *db, struct problem *p)
{
	int64_t current = 0, serves = 0;
	int r = db_script(db, META_TABLE);

	if (r == LAPSE_OK)
		r = migrate_current(db, &current);
	if (r == LAPSE_OK)
		r = meta_get(db, META_SERVES, current, &serves);
	if (r < 0 || current <= migrate_newest())
		return migrate(db, p);
	if (serves <= migrate_newest())
		return LAPSE_OK;
	return problem_set(p, LAPSE_EVERSION, NULL,
			   "the database has schema version %" PRId64
			   ", which serves programs that know version %" PRId64
			   " or later, and this one knows only %d: run a newer lapsed",
			   current, serves, migrate_newest());
}

int migrate_to(struct db *db, int version, struct problem *p)
{
	int64_t current = 0;
	int r = db_script(db, META_TABLE);

	if (r == LAPSE_OK)
		r = migrate_current(db, &current);
	if (r < 0)
		return problem_set(p, r, NULL, "cannot read the schema's version: %.160s",
				   db_error(db));
	if (current > migrate_newest())
		return problem_set(
			p, LAPSE_EVERSION, NULL,
			"the database has schema version %" PRId64
			" and this program knows only %d: run a newer lapsed, or restore a "
			"backup made by this version",
			current, migrate_newest());
	for (const struct schema_step *s = SCHEMA; s->version; s++) {
		if (s->version <= current || s->version > version)
			continue;
		r = migrate_apply(db, s, p);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}
