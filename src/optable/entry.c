/* SPDX-License-Identifier: Apache-2.0 */
/* Entries that live as long as they are refreshed: presence_entries and connections. */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/sweep.h"
#include "engine/usage.h"
#include "optable/optable.h"

#define ENTRIES_AT_ONCE 4 /* expired ones that a put removes */

/* clang-format off */
#define ENTRY_BOUND(NAME, BY, RULE)                                                                \
	{                                                                                          \
		OPTABLE_KEYED(NAME, "entries", "expires_at_ms"),                                   \
		.bounded_by = BY,                                                                  \
		.due_when = "expires_at_ms <= now",                                                \
		.safety_rule = RULE,                                                               \
		.bytes = "bytes",                                                                  \
	}
/* clang-format on */

const struct bound_spec PRESENCE_ENTRY_BOUND = ENTRY_BOUND(
	"presence_entries", "expires_at_ms; presence_entries_max per owner; stored_bytes_per_owner",
	"Presence is derived inventory; only expired rows are removed, and at the cap "
	"the least recently seen one.");
const struct bound_spec CONNECTION_BOUND =
	ENTRY_BOUND("connections", "expires_at_ms; table_max_per_owner; stored_bytes_per_owner",
		    "Active owners must keep refreshing; only expired rows are removed.");

const struct bound_spec *entry_table(const char *name)
{
	static const struct bound_spec *const tables[] = { &PRESENCE_ENTRY_BOUND,
							   &CONNECTION_BOUND };

	return optable_find(tables, ARRAY_LEN(tables), name);
}

/* Reading */

#define ENTRY_COLUMNS "id, key, data, created_at, last_seen_at, expires_at_ms, bytes"

static struct entry entry_read_row(const struct db_query *q)
{
	return (struct entry){ .id = db_int(q, 0),
			       .key = db_text(q, 1),
			       .data = db_text(q, 2),
			       .created_at = db_int(q, 3),
			       .last_seen_at = db_int(q, 4),
			       .expires_at = db_int(q, 5),
			       .bytes = db_int(q, 6) };
}

static const struct db_stmt ENTRY_FIND = { "SELECT " ENTRY_COLUMNS " FROM entries" OPTABLE_OF_KEY };

/* 1 = there is a row, whatever its time; 0 = none. */
static int entry_find(struct tx *tx, struct arena *arena, const struct bound_spec *table,
		      const char *owner, const char *key, struct entry *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ENTRY_FIND);
	int r = optable_find_key(tx, &q, table, owner, key);

	if (r <= 0)
		return r;
	*ret = entry_read_row(&q);
	ret->key = arena_strdup(arena, ret->key);
	ret->data = arena_strdup(arena, ret->data);
	return 1;
}

int entry_get(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, struct entry *ret)
{
	struct entry e = { 0 };
	int found = entry_find(tx, arena, table, owner, key, &e);
	int r = optable_live(found, e.expires_at, tx->now);

	if (r == LAPSE_OK)
		*ret = e;
	return r;
}

static const struct db_stmt ENTRY_LIST = { "SELECT " ENTRY_COLUMNS
					   " FROM entries" OPTABLE_AFTER_KEY("expires_at_ms") };

int entry_list(struct tx *tx, const struct bound_spec *table, const char *owner, const char *after,
	       int64_t limit, entry_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ENTRY_LIST);
	int r;

	optable_bind_list(tx, &q, table, owner, after, limit);
	while ((r = db_step(&q)) > 0) {
		struct entry e = entry_read_row(&q);
		if (!fn(arg, &e))
			return LAPSE_OK;
	}
	return r;
}

/* Removing on the way */

#define ENTRY_NOT_HELD                                                                             \
	"NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.tbl = $2 AND h.ref = e.id AND h.until > $3)"

static const struct db_stmt ENTRY_CLEAN = {
	"DELETE FROM entries WHERE expires_at_ms <= $3 AND id IN (SELECT id FROM entries AS e "
	"WHERE owner = $1 AND tbl = $2 AND expires_at_ms <= $3 AND " ENTRY_NOT_HELD
	" ORDER BY expires_at_ms LIMIT $4) RETURNING bytes"
};

/* Runs a statement that removes entries and returns their bytes, which the owner gets back. */
static int entry_remove_some(struct tx *tx, struct db_query *q, const struct bound_spec *table,
			     const char *owner, const char *reason)
{
	int64_t n = 0, bytes = 0;
	int r;

	assert(tx_can_write(tx));
	for (; (r = db_step(q)) > 0; n++)
		bytes += db_int(q, 0);
	if (r < 0)
		return r;
	usage_take_off(tx, owner, QUOTA_STORED_BYTES, bytes);
	return optable_removed(tx, table, owner, n, reason);
}

/* A few of the owner's entries whose time is over. */
static int entry_clean(struct tx *tx, const struct bound_spec *table, const char *owner)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ENTRY_CLEAN);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	db_bind_int(&q, 3, tx->now);
	db_bind_int(&q, 4, ENTRIES_AT_ONCE);
	return entry_remove_some(tx, &q, table, owner, "expired, found by a put");
}

static const struct db_stmt ENTRY_OLDEST = {
	"DELETE FROM entries WHERE id IN (SELECT id FROM entries AS e WHERE owner = $1 "
	"AND tbl = $2 AND " ENTRY_NOT_HELD " ORDER BY last_seen_at, id LIMIT 1) RETURNING bytes"
};

/* At the cap: the entry that was not seen for the longest time makes room. */
static int entry_make_room(struct tx *tx, const struct bound_spec *table, const char *owner)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ENTRY_OLDEST);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, table->name);
	db_bind_int(&q, 3, tx->now);
	return entry_remove_some(tx, &q, table, owner, "over presence_entries_max");
}

/* Counts one more in; presence makes room for it. */
static int entry_admit(struct tx *tx, const struct bound_spec *table, const char *owner,
		       struct problem *p)
{
	const struct settings *s = tx->engine->settings;
	bool capped = table == &PRESENCE_ENTRY_BOUND;
	int64_t max = capped ? s->presence_entries_max : s->table_max_per_owner;
	int r = optable_count_in(tx, table, owner, max, p);

	if (r != LAPSE_ELIMIT || !capped)
		return r;
	r = entry_make_room(tx, table, owner);
	return r < 0 ? r : optable_count_in(tx, table, owner, max, p);
}

/* Putting */

static const struct db_stmt ENTRY_INSERT = {
	"INSERT INTO entries (id, owner, tbl, key, data, created_at, last_seen_at, expires_at_ms, "
	"bytes) VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8) ON CONFLICT (owner, tbl, key) DO "
	"NOTHING"
};

static int entry_insert(struct tx *tx, const struct bound_spec *table, const char *owner,
			struct entry *e, struct problem *p)
{
	int r = entry_admit(tx, table, owner, p);

	assert(tx_can_write(tx));
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ENTRY_INSERT);
	e->id = id_next(&tx->engine->ids, tx->now);
	db_bind_int(&q, 1, e->id);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, table->name);
	db_bind_text(&q, 4, e->key);
	db_bind_text(&q, 5, e->data);
	db_bind_int(&q, 6, e->created_at);
	db_bind_int(&q, 7, e->expires_at);
	db_bind_int(&q, 8, e->bytes);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

static const struct db_stmt ENTRY_REFRESH = {
	"UPDATE entries SET data = $2, created_at = $3, last_seen_at = $4, expires_at_ms = $5, "
	"bytes = $6 WHERE id = $1"
};

static int entry_refresh(struct tx *tx, const struct entry *e)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ENTRY_REFRESH);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, e->id);
	db_bind_text(&q, 2, e->data);
	db_bind_int(&q, 3, e->created_at);
	db_bind_int(&q, 4, e->last_seen_at);
	db_bind_int(&q, 5, e->expires_at);
	db_bind_int(&q, 6, e->bytes);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

int entry_put(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, const char *data, lapse_ms ttl_ms, struct entry *ret,
	      bool *ret_fresh, struct problem *p)
{
	struct entry old = { 0 };
	int r = entry_find(tx, arena, table, owner, key, &old);

	if (r < 0)
		return r;
	bool exists = r > 0, live = exists && !optable_is_over(old.expires_at, tx->now);
	struct entry e = { .id = old.id,
			   .key = key,
			   .data = data   ? data
				   : live ? old.data
					  : "{}",
			   .created_at = live ? old.created_at : tx->now,
			   .last_seen_at = tx->now,
			   .expires_at = time_add(tx->now, ttl_ms) };
	e.bytes = (int64_t)(strlen(e.key) + strlen(e.data));
	if (exists) /* before the cleaning, which would take it */
		r = optable_change_bytes(tx, owner, old.bytes, e.bytes, p);
	if (r >= 0 && exists)
		r = entry_refresh(tx, &e);
	if (r == LAPSE_OK)
		r = entry_clean(tx, table, owner);
	if (r == LAPSE_OK && !exists)
		r = optable_change_bytes(tx, owner, 0, e.bytes, p);
	if (r == LAPSE_OK && !exists)
		r = entry_insert(tx, table, owner, &e, p);
	if (r < 0)
		return r;
	*ret = e;
	*ret_fresh = !live;
	return LAPSE_OK;
}

/* Deleting */

static const struct db_stmt ENTRY_DELETE = { "DELETE FROM entries WHERE id = $1" };

static int entry_remove(struct tx *tx, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ENTRY_DELETE);

	assert(tx_can_write(tx) && id > 0);
	db_bind_int(&q, 1, id);
	return db_post(&q, DB_ONE_OR(LAPSE_ERETRY));
}

int entry_delete(struct tx *tx, struct arena *arena, const struct bound_spec *table,
		 const char *owner, const char *key, struct problem *p)
{
	struct entry e = { 0 };
	bool held = false;
	int r = entry_get(tx, arena, table, owner, key, &e);

	if (r == LAPSE_OK)
		r = optable_is_held(tx, table, e.id, &held);
	if (r == LAPSE_OK && held)
		return problem_set(p, LAPSE_ECONFLICT, NULL,
				   "the entry is held: release the hold first");
	if (r == LAPSE_OK)
		r = entry_remove(tx, e.id);
	if (r < 0)
		return r;
	usage_take_off(tx, owner, QUOTA_STORED_BYTES, e.bytes);
	return optable_count_out(tx, table, owner, 1);
}
