/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/usage.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"

/* The limits that are kept here. */
static const enum quota KEPT[] = { QUOTA_INBOXES, QUOTA_STORED_BYTES };

/* An owner that uses anything. */
struct usage_entry {
	struct map_node node; /* by owner */
	int64_t used[QUOTAS_NUMBER];
	char owner[];
};

static bool usage_is_kept(enum quota what)
{
	for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
		if (KEPT[i] == what)
			return true;
	return false;
}

/* The memory */

static struct usage_entry *usage_find(const struct quotas *q, const char *owner)
{
	struct map_node *n = map_find(&q->usage, owner);

	return n ? CONTAINER_OF(n, struct usage_entry, node) : NULL;
}

static struct usage_entry *usage_make(struct quotas *q, const char *owner)
{
	size_t n = strlen(owner) + 1;
	struct usage_entry *x = mem_zalloc(1, sizeof(*x) + n);

	memcpy(x->owner, owner, n);
	map_insert(&q->usage, &x->node, x->owner);
	return x;
}

static void usage_free(struct map_node *n, void *arg)
{
	(void)arg;
	free(CONTAINER_OF(n, struct usage_entry, node));
}

/* An owner that uses nothing takes no memory. */
static void usage_set(struct quotas *q, const char *owner, enum quota what, int64_t value)
{
	struct usage_entry *x = usage_find(q, owner);
	int64_t any = 0;

	assert(usage_is_kept(what));
	if (!x && value <= 0)
		return;
	x = x ? x : usage_make(q, owner);
	x->used[what] = value > 0 ? value : 0;
	for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
		any += x->used[KEPT[i]];
	if (any > 0)
		return;
	map_remove(&q->usage, &x->node);
	free(x);
}

static int64_t usage_committed(const struct quotas *q, const char *owner, enum quota what)
{
	const struct usage_entry *x = usage_find(q, owner);

	assert(usage_is_kept(what));
	return x ? x->used[what] : 0;
}

void usage_done(struct quotas *q)
{
	if (!q->usage.buckets)
		return;
	map_each(&q->usage, usage_free, NULL);
	map_done(&q->usage);
}

/* The store */

static const struct db_stmt READ_ALL = { "SELECT owner, live FROM table_counts WHERE tbl = $1" };
static const struct db_stmt READ_ONE = {
	"SELECT live FROM table_counts WHERE owner = $1 AND tbl = $2"
};
static const struct db_stmt ADD = {
	"INSERT INTO table_counts (owner, tbl, live) VALUES ($1, $2, $3) "
	"ON CONFLICT (owner, tbl) DO UPDATE SET live = table_counts.live + excluded.live"
};
static const struct db_stmt FORGET_EMPTY = {
	"DELETE FROM table_counts WHERE owner = $1 AND tbl = $2 AND live <= 0"
};

static int usage_load_one(struct engine *e, enum quota what)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &READ_ALL);
	int r;

	db_bind_text(&q, 1, QUOTA_ROWS[what].name);
	while ((r = db_step(&q)) > 0)
		usage_set(&e->quotas, db_text(&q, 0), what, db_int(&q, 1));
	return r;
}

int usage_load(struct engine *e)
{
	int r = LAPSE_OK;

	assert(!e->quotas.usage.buckets);
	map_init(&e->quotas.usage);
	for (size_t i = 0; r == LAPSE_OK && i < ARRAY_LEN(KEPT); i++)
		r = usage_load_one(e, KEPT[i]);
	return r;
}

void usage_refresh(struct engine *e, const char *owner)
{
	for (size_t i = 0; i < ARRAY_LEN(KEPT); i++) {
		struct db_query CLEANUP(db_finish) q = db_query(e->db, &READ_ONE);
		db_bind_text(&q, 1, owner);
		db_bind_text(&q, 2, QUOTA_ROWS[KEPT[i]].name);
		int r = db_step(&q);
		if (r >= 0)
			usage_set(&e->quotas, owner, KEPT[i], r > 0 ? db_int(&q, 0) : 0);
	}
}

static int usage_forget_empty(struct tx *tx, const struct usage_delta *d)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &FORGET_EMPTY);

	db_bind_text(&q, 1, d->owner);
	db_bind_text(&q, 2, QUOTA_ROWS[d->what].name);
	return db_post(&q, DB_ANY);
}

static int usage_write_one(struct tx *tx, struct usage_delta *d)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ADD);

	assert(tx_can_write(tx));
	db_bind_text(&q, 1, d->owner);
	db_bind_text(&q, 2, QUOTA_ROWS[d->what].name);
	db_bind_int(&q, 3, d->n - d->written);
	int r = db_post(&q, DB_ONE);
	d->written = d->n;
	if (r == LAPSE_OK)
		r = cluster_tell(tx, USAGE_TOPIC, d->owner);
	if (r == LAPSE_OK && usage_of(tx, d->owner, d->what) <= 0)
		r = usage_forget_empty(tx, d);
	return r;
}

int usage_write(struct tx *tx)
{
	int r = LAPSE_OK;

	for (struct usage_delta *d = tx->usage; r == LAPSE_OK && d; d = d->next)
		if (d->n != d->written)
			r = usage_write_one(tx, d);
	return r;
}

void usage_apply(const struct tx *tx)
{
	struct quotas *q = &tx->engine->quotas;

	assert(tx->state == TX_COMMITTED);
	for (const struct usage_delta *d = tx->usage; d; d = d->next) {
		assert(d->n == d->written);
		if (d->n != 0)
			usage_set(q, d->owner, d->what,
				  usage_committed(q, d->owner, d->what) + d->n);
	}
}

/* A transaction's part */

static struct usage_delta *usage_find_delta(const struct tx *tx, const char *owner, enum quota what)
{
	struct usage_delta *d = tx->usage;

	while (d && (d->what != what || strcmp(d->owner, owner) != 0))
		d = d->next;
	return d;
}

static void usage_change(struct tx *tx, const char *owner, enum quota what, int64_t n)
{
	struct usage_delta *d = usage_find_delta(tx, owner, what);

	assert(tx_can_write(tx));
	if (!d) {
		d = tx_alloc(tx, sizeof(*d));
		*d = (struct usage_delta){ .next = tx->usage,
					   .owner = arena_strdup(&tx->arena, owner),
					   .what = what };
		tx->usage = d;
	}
	d->n += n;
}

int64_t usage_of(const struct tx *tx, const char *owner, enum quota what)
{
	const struct usage_delta *d = usage_find_delta(tx, owner, what);

	return usage_committed(&tx->engine->quotas, owner, what) + (d ? d->n : 0);
}

int usage_admit(const struct tx *tx, const char *owner, enum quota what, int64_t n,
		struct problem *p)
{
	assert(n >= 0);
	if (usage_of(tx, owner, what) > quota_of(tx->engine, owner, what) - n)
		return quota_refuse(tx->engine, owner, what, p);
	return LAPSE_OK;
}

void usage_add(struct tx *tx, const char *owner, enum quota what, int64_t n)
{
	assert(n >= 0);
	usage_change(tx, owner, what, n);
}

void usage_take_off(struct tx *tx, const char *owner, enum quota what, int64_t n)
{
	int64_t used = usage_of(tx, owner, what);

	assert(n >= 0);
	n = n < used ? n : used;
	if (n > 0)
		usage_change(tx, owner, what, -n);
}

void usage_settle(struct tx *tx, const struct pruned *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].bytes > 0)
			usage_take_off(tx, rows[i].owner, QUOTA_STORED_BYTES, rows[i].bytes);
}

void usage_step_begin(struct tx *tx)
{
	for (struct usage_delta *d = tx->usage; d; d = d->next) {
		d->step_n = d->n;
		d->step_written = d->written;
	}
}

void usage_step_undo(struct tx *tx)
{
	for (struct usage_delta *d = tx->usage; d; d = d->next) {
		d->n = d->step_n;
		d->written = d->step_written;
	}
}
