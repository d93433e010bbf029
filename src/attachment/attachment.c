/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/attachment.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "attachment/depot.h"
#include "base/json.h"
#include "engine/engine.h"

#define COLUMNS                                                                                    \
	"id, owner, checksum, name, size, persist, ttl_ms, inserted_at, due_at, cached, "          \
	"EXISTS (SELECT 1 FROM holds AS h WHERE h.tbl = 'attachments' AND h.ref = attachments.id " \
	"AND h.until > $1)"

#define HELD_COLUMN 10

static struct attachment read_attachment_row(const struct db_query *q)
{
	return (struct attachment){ .id = db_int(q, 0),
				    .owner = db_text(q, 1),
				    .checksum = db_text(q, 2),
				    .name = db_text(q, 3),
				    .size = db_int(q, 4),
				    .terms = { db_int(q, 5) != 0, db_int(q, 6) },
				    .inserted_at = db_int(q, 7),
				    .due_at = db_is_null(q, 8) ? LAPSE_NEVER : db_int(q, 8),
				    .cached = db_int(q, 9) != 0 };
}

static void bind_due(struct db_query *q, int n, lapse_ms due_at)
{
	if (due_at == LAPSE_NEVER)
		db_bind_text(q, n, NULL);
	else
		db_bind_int(q, n, due_at);
}

/* A copy that outlives its query. */
static struct attachment keep(struct tx *tx, const struct attachment *a)
{
	struct attachment copy = *a;

	copy.owner = arena_strdup(&tx->arena, a->owner);
	copy.checksum = arena_strdup(&tx->arena, a->checksum);
	copy.name = arena_strdup(&tx->arena, a->name);
	return copy;
}

static const struct db_stmt FIND = { "SELECT " COLUMNS
				     " FROM attachments WHERE owner = $2 AND checksum = $3" };
static const struct db_stmt FIND_ID = { "SELECT " COLUMNS " FROM attachments WHERE id = $2" };

/* 1 = found, 0 = not there. */
static int take_found(struct tx *tx, struct db_query *q, struct attachment *ret, bool *ret_held)
{
	int r = db_step(q);

	if (r <= 0)
		return r;
	struct attachment a = read_attachment_row(q);
	*ret = keep(tx, &a);
	*ret_held = db_int(q, HELD_COLUMN) != 0;
	return 1;
}

static int find_attachment(struct tx *tx, const char *owner, const char *checksum,
			   struct attachment *ret, bool *ret_held)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FIND);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, tx->now);
	db_bind_text(&q, 2, owner);
	db_bind_text(&q, 3, checksum);
	return take_found(tx, &q, ret, ret_held);
}

static int find_id(struct tx *tx, int64_t id, struct attachment *ret, bool *ret_held)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FIND_ID);

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, tx->now);
	db_bind_int(&q, 2, id);
	return take_found(tx, &q, ret, ret_held);
}

/* Figures */

static const struct db_stmt COUNT = {
	"INSERT INTO attachment_totals (owner, total_count, total_bytes, persistent_count, "
	"persistent_bytes) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (owner) DO UPDATE SET "
	"total_count = attachment_totals.total_count + excluded.total_count, "
	"total_bytes = attachment_totals.total_bytes + excluded.total_bytes, "
	"persistent_count = attachment_totals.persistent_count + excluded.persistent_count, "
	"persistent_bytes = attachment_totals.persistent_bytes + excluded.persistent_bytes"
};
static const struct db_stmt DROP_EMPTY = {
	"DELETE FROM attachment_totals WHERE owner = $1 AND total_count = 0"
};

static int count(struct tx *tx, const char *owner, const struct attachment_metrics *m)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &COUNT);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	db_bind_int(&q, 2, m->total_count);
	db_bind_int(&q, 3, m->total_bytes);
	db_bind_int(&q, 4, m->persistent_count);
	db_bind_int(&q, 5, m->persistent_bytes);
	return db_post(&q, DB_ANY);
}

static int drop_empty(struct tx *tx, const char *owner)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP_EMPTY);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	return db_post(&q, DB_ANY);
}

int attachment_count(struct tx *tx, const char *owner, const struct attachment_metrics *delta)
{
	int r = count(tx, owner, delta);

	if (r == LAPSE_OK)
		r = count(tx, "", delta);
	if (r == LAPSE_OK && delta->total_count < 0)
		r = drop_empty(tx, owner);
	return r;
}

/* What `sign` attachments like this one add to the figures. */
static struct attachment_metrics share(const struct attachment *a, int64_t sign)
{
	int64_t persistent = a->terms.persist ? sign : 0;

	return (struct attachment_metrics){ sign, sign * a->size, persistent,
					    persistent * a->size };
}

static const struct db_stmt METRICS = {
	"SELECT total_count, total_bytes, persistent_count, persistent_bytes "
	"FROM attachment_totals WHERE owner = $1"
};

int attachment_metrics(struct db *db, const char *owner, struct attachment_metrics *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &METRICS);

	db_bind_text(&q, 1, owner);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = (struct attachment_metrics){ 0 };
	if (r > 0)
		*ret = (struct attachment_metrics){ db_int(&q, 0), db_int(&q, 1), db_int(&q, 2),
						    db_int(&q, 3) };
	return LAPSE_OK;
}

static void write_family(struct buf *out, enum metric family, int64_t total, int64_t persistent)
{
	metrics_family(out, family);
	metrics_sample(out, family, "kind=\"total\"", total);
	metrics_sample(out, family, "kind=\"persistent\"", persistent);
	metrics_sample(out, family, "kind=\"expirable\"", total - persistent);
}

void attachment_write_metrics(const struct engine *e, struct buf *out)
{
	struct attachment_metrics m = { 0 };

	attachment_metrics(e->db, "", &m);
	write_family(out, METRIC_ATTACHMENTS, m.total_count, m.persistent_count);
	write_family(out, METRIC_ATTACHMENT_BYTES, m.total_bytes, m.persistent_bytes);
}

/* Removing */

int attachment_announce_cleaned(struct tx *tx, const struct attachment *a, const char *reason)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_int(&data, "count", 1);
	json_put_int(&data, "bytes", a->size);
	json_put_text(&data, "checksum", a->checksum);
	json_put_text(&data, "name", a->name);
	json_put_ttl(&data, "ttl_ms", a->terms.ttl_ms);
	json_put_text(&data, "reason", reason);
	json_end(&data, '}');
	return event_add(tx, a->owner, EVENT_ATTACHMENT_CLEANED, &data);
}

int attachment_doom(struct tx *tx, const struct attachment *a)
{
	char path[BLOB_PATH_MAX];

	blob_path(a->checksum, a->id, path);
	return cleanup_add(tx, a->owner, &CLEANUP_ATTACHMENT, path);
}

static const struct db_stmt DELETE_ID = { "DELETE FROM attachments WHERE id = $1" };

static int delete_attachment_row(struct tx *tx, int64_t id)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DELETE_ID);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, id);
	return db_post(&q, DB_ANY);
}

static int remove_one(struct tx *tx, const struct attachment *a, const char *reason)
{
	struct attachment_metrics gone = share(a, -1);
	int r = delete_attachment_row(tx, a->id);

	if (r == LAPSE_OK)
		r = attachment_count(tx, a->owner, &gone);
	if (r == LAPSE_OK)
		r = attachment_doom(tx, a);
	if (r == LAPSE_OK)
		r = attachment_announce_cleaned(tx, a, reason);
	tx_count(tx, &ATTACHMENT_BOUND, -1);
	return r;
}

static const struct db_stmt OWN_DUE = {
	"SELECT " COLUMNS " FROM attachments WHERE owner = $2 AND persist = 0 AND due_at <= $1 "
	"ORDER BY due_at LIMIT $3"
};

static int read_own_due(struct tx *tx, const char *owner, int64_t limit, struct attachment *out,
			int64_t *ret_n)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &OWN_DUE);
	int64_t n = 0;
	int r = LAPSE_OK;

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, tx->now);
	db_bind_text(&q, 2, owner);
	db_bind_int(&q, 3, limit + tx->engine->settings->holds_max);
	while (n < limit && (r = db_step(&q)) > 0) {
		struct attachment a = read_attachment_row(&q);
		if (!db_int(&q, HELD_COLUMN))
			out[n++] = keep(tx, &a);
	}
	*ret_n = n;
	return n == limit ? LAPSE_OK : r;
}

int attachment_clean_owner(struct tx *tx, const char *owner, int64_t limit,
			   struct attachment_metrics *ret_gone)
{
	struct attachment *due = tx_alloc(tx, (size_t)limit * sizeof(*due));
	int64_t n = 0, bytes = 0;
	int r = guard_in_grace(tx->engine->restored_at, 0, tx->now)
			? LAPSE_OK
			: read_own_due(tx, owner, limit, due, &n);

	for (int64_t i = 0; r == LAPSE_OK && i < n; i++) {
		assert(attachment_is_due(due[i].due_at, tx->now) && !due[i].terms.persist);
		r = remove_one(tx, &due[i], "expired");
		bytes += due[i].size;
	}
	if (r == LAPSE_OK)
		*ret_gone = (struct attachment_metrics){ .total_count = n, .total_bytes = bytes };
	return r;
}

static const struct db_stmt FILES_UNTRIED = {
	"SELECT 1 FROM cleanups WHERE state = 1 AND kind = 'attachment' AND attempts = 0 "
	"AND id <= $1 AND ($2 = '' OR owner = $2) LIMIT 1"
};
static const struct db_stmt FILES_LEFT = {
	"SELECT count(*) FROM cleanups WHERE kind = 'attachment' AND id <= $1 "
	"AND ($2 = '' OR owner = $2)"
};

int attachment_files_untried(struct db *db, const char *owner, int64_t mark, bool *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &FILES_UNTRIED);

	db_bind_int(&q, 1, mark);
	db_bind_text(&q, 2, owner);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = r > 0;
	return LAPSE_OK;
}

int attachment_files_left(struct db *db, const char *owner, int64_t mark, int64_t *ret)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &FILES_LEFT);

	db_bind_int(&q, 1, mark);
	db_bind_text(&q, 2, owner);
	int r = db_step(&q);
	if (r < 0)
		return r;
	*ret = db_int(&q, 0);
	return LAPSE_OK;
}

int attachment_delete(struct tx *tx, const char *owner, const char *checksum)
{
	struct attachment a;
	bool held = false;
	int r = find_attachment(tx, owner, checksum, &a, &held);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	return held ? LAPSE_ECONFLICT : remove_one(tx, &a, "deleted");
}

int attachment_delete_broken(struct tx *tx, int64_t id, bool *ret_held)
{
	struct attachment a;
	int r = find_id(tx, id, &a, ret_held);

	if (r <= 0 || *ret_held)
		return r < 0 ? r : 0;
	r = remove_one(tx, &a, "file missing");
	return r < 0 ? r : 1;
}

/* Staging */

static const struct db_stmt ROOM = {
	"UPDATE attachment_totals SET total_bytes = total_bytes WHERE owner = $3 "
	"AND total_bytes + $1 <= $2"
};
static const struct db_stmt TOTALS_BEGIN = {
	"INSERT INTO attachment_totals (owner, total_count, total_bytes, persistent_count, "
	"persistent_bytes) VALUES ($1, 0, 0, 0, 0) ON CONFLICT (owner) DO NOTHING"
};
static const struct db_stmt INSERT = {
	"INSERT INTO attachments (id, owner, checksum, name, size, persist, ttl_ms, inserted_at, "
	"due_at, cached) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0)"
};
static const struct db_stmt REFRESH = {
	"UPDATE attachments SET persist = $2, ttl_ms = $3, inserted_at = $4, due_at = $5, "
	"cached = 1 WHERE id = $1"
};

static int announce_staged(struct tx *tx, const struct attachment *a)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_int(&data, "size_bytes", a->size);
	json_put_text(&data, "checksum", a->checksum);
	json_put_text(&data, "name", a->name);
	json_put_bool(&data, "persist", a->terms.persist);
	json_put_ttl(&data, "ttl_ms", a->terms.ttl_ms);
	json_put_bool(&data, "cached", a->cached);
	json_end(&data, '}');
	return event_add(tx, a->owner, EVENT_ATTACHMENT_STAGED, &data);
}

/* `owner` '' = all together. */
static int check_room_of(struct tx *tx, const char *owner, int64_t size, int64_t max)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ROOM);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, size);
	db_bind_int(&q, 2, max);
	db_bind_text(&q, 3, owner);
	return db_post(&q, DB_ONE_OR(LAPSE_ELIMIT));
}

static int begin_totals(struct tx *tx, const char *owner)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &TOTALS_BEGIN);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, owner);
	return db_post(&q, DB_ANY);
}

static int check_owner_room(struct tx *tx, const char *owner, int64_t size, struct problem *p)
{
	const struct settings *set = tx->engine->settings;
	int r = begin_totals(tx, owner);

	if (r == LAPSE_OK)
		r = check_room_of(tx, owner, size,
				  quota_of(tx->engine, owner, QUOTA_ATTACHMENT_BYTES));
	if (r == LAPSE_ELIMIT)
		return quota_refuse(tx->engine, owner, QUOTA_ATTACHMENT_BYTES, p);
	if (r == LAPSE_OK)
		r = check_room_of(tx, "", size, set->attachment_total_bytes);
	if (r == LAPSE_ELIMIT)
		return problem_set(p, r, NULL,
				   "there is no room for %" PRId64 " more bytes: all attachments "
				   "together may have %" PRId64 " (attachment_total_bytes)",
				   size, set->attachment_total_bytes);
	return r;
}

static int insert_attachment_row(struct tx *tx, const struct attachment *a)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, a->id);
	db_bind_text(&q, 2, a->owner);
	db_bind_text(&q, 3, a->checksum);
	db_bind_text(&q, 4, a->name);
	db_bind_int(&q, 5, a->size);
	db_bind_int(&q, 6, a->terms.persist);
	db_bind_int(&q, 7, a->terms.ttl_ms);
	db_bind_int(&q, 8, a->inserted_at);
	bind_due(&q, 9, a->due_at);
	return db_post(&q, DB_ONE);
}

static void keep_blob(struct engine *e, void *blob)
{
	(void)e;
	((struct blob *)blob)->kept = true;
}

static int insert_attachment(struct tx *tx, const struct attachment *a, struct blob *b,
			     struct problem *p)
{
	struct attachment_metrics more = share(a, 1);
	int r = check_owner_room(tx, a->owner, a->size, p);

	if (r == LAPSE_OK)
		r = insert_attachment_row(tx, a);
	if (r == LAPSE_OK)
		r = attachment_count(tx, a->owner, &more);
	if (r < 0)
		return r;
	tx_count(tx, &ATTACHMENT_BOUND, 1);
	tx_effect(tx, keep_blob, b);
	return LAPSE_OK;
}

static int refresh_row(struct tx *tx, const struct attachment *a)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &REFRESH);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, a->id);
	db_bind_int(&q, 2, a->terms.persist);
	db_bind_int(&q, 3, a->terms.ttl_ms);
	db_bind_int(&q, 4, a->inserted_at);
	bind_due(&q, 5, a->due_at);
	return db_post(&q, DB_ANY);
}

static int refresh(struct tx *tx, struct attachment *a, const struct attachment_terms *wanted)
{
	bool upgraded = wanted->persist && !a->terms.persist;
	struct attachment_metrics more = { .persistent_count = 1, .persistent_bytes = a->size };

	a->terms = attachment_merge(&a->terms, wanted);
	a->inserted_at = tx->now;
	a->due_at = attachment_due_at(&a->terms, tx->now);
	a->cached = true;
	int r = refresh_row(tx, a);
	if (r == LAPSE_OK && upgraded)
		r = attachment_count(tx, a->owner, &more);
	return r;
}

static const struct db_stmt HEAL = { "UPDATE attachments SET id = $2, cached = 0 WHERE id = $1" };
static const struct db_stmt MOVE_HOLD = {
	"UPDATE holds SET ref = $2 WHERE tbl = 'attachments' AND ref = $1"
};

static int renumber(struct tx *tx, const struct db_stmt *stmt, int64_t from, int64_t to)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, stmt);

	assert(tx_can_write(tx));
	db_bind_int(&q, 1, from);
	db_bind_int(&q, 2, to);
	return db_post(&q, DB_ANY);
}

/* The row's file was gone, or cut: the new one takes its place, and a hold stays. */
static int heal(struct tx *tx, struct attachment *a, struct blob *b)
{
	int r = attachment_doom(tx, a);

	if (r == LAPSE_OK)
		r = renumber(tx, &HEAL, a->id, b->id);
	if (r == LAPSE_OK)
		r = renumber(tx, &MOVE_HOLD, a->id, b->id);
	a->id = b->id;
	a->cached = false;
	tx_effect(tx, keep_blob, b);
	return r;
}

static struct attachment draft(struct tx *tx, const char *owner, const struct blob *b,
			       const struct attachment_draft *d)
{
	return (struct attachment){ .id = b->id,
				    .owner = owner,
				    .checksum = b->checksum,
				    .name = d->name,
				    .size = b->size,
				    .terms = d->terms,
				    .inserted_at = tx->now,
				    .due_at = attachment_due_at(&d->terms, tx->now) };
}

int attachment_stage(struct tx *tx, const char *owner, struct blob *b,
		     const struct attachment_draft *d, attachment_fn *fn, void *arg,
		     struct problem *p)
{
	struct attachment a;
	bool held = false;
	int found = find_attachment(tx, owner, b->checksum, &a, &held), r = LAPSE_OK;

	if (found < 0)
		return found;
	if (found && !held && attachment_is_due(a.due_at, tx->now)) {
		r = remove_one(tx, &a, "expired");
		found = 0;
	}
	if (r == LAPSE_OK && found)
		r = refresh(tx, &a, &d->terms);
	if (r == LAPSE_OK && found && a.id == d->broken)
		r = heal(tx, &a, b);
	if (r == LAPSE_OK && !found) {
		a = draft(tx, owner, b, d);
		r = insert_attachment(tx, &a, b, p);
	}
	if (r == LAPSE_OK)
		r = announce_staged(tx, &a);
	if (r == LAPSE_OK)
		fn(arg, &a);
	return r;
}

int attachment_restage(struct tx *tx, const char *owner, const char *checksum,
		       const struct attachment_draft *d, attachment_fn *fn, void *arg)
{
	struct attachment a;
	bool held = false;
	int found = find_attachment(tx, owner, checksum, &a, &held);

	if (found < 0)
		return found;
	if (!found || a.id == d->broken || (!held && attachment_is_due(a.due_at, tx->now)))
		return LAPSE_ENOTFOUND;
	int r = refresh(tx, &a, &d->terms);
	if (r == LAPSE_OK)
		r = announce_staged(tx, &a);
	if (r < 0)
		return r;
	assert(a.cached && a.inserted_at == tx->now);
	fn(arg, &a);
	return LAPSE_OK;
}

int attachment_peek(struct tx *tx, const char *owner, const char *checksum, int64_t *ret_id,
		    int64_t *ret_size)
{
	struct attachment a;
	bool held = false;
	int r = find_attachment(tx, owner, checksum, &a, &held);

	*ret_id = 0;
	if (r > 0 && (held || !attachment_is_due(a.due_at, tx->now))) {
		*ret_id = a.id;
		*ret_size = a.size;
	}
	return r < 0 ? r : LAPSE_OK;
}

/* Reading */

int attachment_get(struct tx *tx, const char *owner, const char *checksum, attachment_fn *fn,
		   void *arg)
{
	struct attachment a;
	bool held = false;
	int r = find_attachment(tx, owner, checksum, &a, &held);

	if (r <= 0)
		return r < 0 ? r : LAPSE_ENOTFOUND;
	if (attachment_is_due(a.due_at, tx->now))
		return LAPSE_EEXPIRED;
	fn(arg, &a);
	return LAPSE_OK;
}

static const struct db_stmt LIST = { "SELECT " COLUMNS
				     " FROM attachments WHERE owner = $2 AND id < $3 AND "
				     "(due_at IS NULL OR due_at > $1) ORDER BY id DESC LIMIT $4" };

int attachment_list(struct tx *tx, const char *owner, int64_t before, int64_t limit,
		    attachment_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);
	int r;

	assert(tx_is_open(tx));
	db_bind_int(&q, 1, tx->now);
	db_bind_text(&q, 2, owner);
	db_bind_int(&q, 3, before);
	db_bind_int(&q, 4, limit);
	while ((r = db_step(&q)) > 0) {
		struct attachment a = read_attachment_row(&q);
		fn(arg, &a);
	}
	return r;
}
