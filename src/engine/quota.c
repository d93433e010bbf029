/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/quota.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "engine/usage.h"

const struct quota_row QUOTA_ROWS[QUOTAS_NUMBER] = {
#define X(name, member, setting, help)                                                             \
	[QUOTA_##name] = { #member, #setting, help, offsetof(struct settings, setting) },
	QUOTAS(X)
#undef X
};

/* A quota in memory. */
struct quota_entry {
	struct map_node node; /* by quota.owner */
	struct owner_quota quota;
	char owner[];
};

static int64_t quota_setting(const struct settings *s, enum quota what)
{
	return *(const int64_t *)(const void *)((const char *)s + QUOTA_ROWS[what].offset);
}

static struct quota_entry *quota_entry_find(const struct engine *e, const char *owner)
{
	struct map_node *n = map_find(&e->quotas.by_owner, owner);

	return n ? CONTAINER_OF(n, struct quota_entry, node) : NULL;
}

int64_t quota_of(const struct engine *e, const char *owner, enum quota what)
{
	const struct quota_entry *own = quota_entry_find(e, owner);

	assert(what < QUOTAS_NUMBER);
	return own && own->quota.limits[what] ? own->quota.limits[what]
					      : quota_setting(e->settings, what);
}

int quota_refuse(const struct engine *e, const char *owner, enum quota what, struct problem *p)
{
	const struct quota_entry *own = quota_entry_find(e, owner);
	const struct quota_row *row = &QUOTA_ROWS[what];

	return problem_set(p, LAPSE_ELIMIT, NULL, "the owner %.128s may have %" PRId64 " %s (%s)",
			   owner, quota_of(e, owner, what), row->help,
			   own && own->quota.limits[what] ? "its quota" : row->setting);
}

/* Counters */

static const struct db_stmt TAKE = {
	"INSERT INTO table_counts (owner, tbl, live) VALUES ($1, $2, 1) "
	"ON CONFLICT (owner, tbl) DO UPDATE SET live = table_counts.live + 1 "
	"WHERE table_counts.live < $3"
};
static const struct db_stmt GIVE_BACK = { "UPDATE table_counts SET live = live - 1 "
					  "WHERE owner = $1 AND tbl = $2 AND live > 0" };
static const struct db_stmt FORGET_ZERO = {
	"DELETE FROM table_counts WHERE owner = $1 AND tbl = $2 AND live = 0"
};

int quota_take(struct tx *tx, const char *owner, enum quota what, struct problem *p)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &TAKE);

	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, QUOTA_ROWS[what].name);
	db_bind_int(&q, 3, quota_of(tx->engine, owner, what));
	int r = db_post(&q, DB_ONE_OR(LAPSE_ELIMIT));
	return r == LAPSE_ELIMIT ? quota_refuse(tx->engine, owner, what, p) : r;
}

int quota_give_back(struct tx *tx, const char *owner, enum quota what)
{
	struct db_query CLEANUP(db_finish) less = db_query(tx->db, &GIVE_BACK);

	db_bind_text(&less, 1, owner);
	db_bind_text(&less, 2, QUOTA_ROWS[what].name);
	int r = db_post(&less, DB_ANY);
	if (r < 0)
		return r;
	struct db_query CLEANUP(db_finish) none = db_query(tx->db, &FORGET_ZERO);
	db_bind_text(&none, 1, owner);
	db_bind_text(&none, 2, QUOTA_ROWS[what].name);
	return db_post(&none, DB_ANY);
}

/* The memory */

static void quota_forget(struct engine *e, void *owner)
{
	struct quota_entry *x = quota_entry_find(e, owner);

	if (!x)
		return;
	map_remove(&e->quotas.by_owner, &x->node);
	free(x);
}

static void quota_remember(struct engine *e, void *arg)
{
	const struct owner_quota *q = arg;
	size_t n = strlen(q->owner) + 1;
	struct quota_entry *x = mem_zalloc(1, sizeof(*x) + n);

	quota_forget(e, (void *)(uintptr_t)q->owner);
	x->quota = *q;
	x->quota.owner = memcpy(x->owner, q->owner, n);
	map_insert(&e->quotas.by_owner, &x->node, x->quota.owner);
}

static void quota_free(struct map_node *n, void *arg)
{
	(void)arg;
	free(CONTAINER_OF(n, struct quota_entry, node));
}

static void quotas_clear(struct quotas *q)
{
	if (!q->by_owner.buckets)
		return;
	map_each(&q->by_owner, quota_free, NULL);
	map_done(&q->by_owner);
}

void quotas_done(struct quotas *q)
{
	quotas_clear(q);
	usage_done(q);
}

/* The store: one row for each owner and limit. */

static const struct db_stmt ALL = { "SELECT owner, name, value FROM quotas ORDER BY owner" };
static const struct db_stmt LIST = {
	"SELECT owner, name, value FROM quotas WHERE owner IN (SELECT DISTINCT owner FROM quotas "
	"WHERE owner > $1 ORDER BY owner LIMIT $2) ORDER BY owner"
};
static const struct db_stmt GET = { "SELECT owner, name, value FROM quotas WHERE owner = $1" };
static const struct db_stmt DROP = { "DELETE FROM quotas WHERE owner = $1" };
static const struct db_stmt PUT = { "INSERT INTO quotas (owner, name, value) VALUES ($1, $2, $3)" };

static void quota_read_limit(const struct db_query *q, struct owner_quota *out)
{
	for (size_t i = 0; i < QUOTAS_NUMBER; i++)
		if (strcmp(QUOTA_ROWS[i].name, db_text(q, 1)) == 0)
			out->limits[i] = db_int(q, 2);
}

/* Rows of one owner follow each other. */
static int quota_walk(struct db_query *q, quota_fn *fn, void *arg)
{
	struct owner_quota one = { 0 };
	char *CLEANUP(mem_freep) owner = NULL;
	int r;

	while ((r = db_step(q)) > 0) {
		if (!owner || strcmp(owner, db_text(q, 0)) != 0) {
			if (owner)
				fn(arg, &one);
			free(owner);
			owner = mem_strdup(db_text(q, 0));
			one = (struct owner_quota){ .owner = owner };
		}
		quota_read_limit(q, &one);
	}
	if (r == 0 && owner)
		fn(arg, &one);
	return r;
}

static void quota_load_one(void *arg, const struct owner_quota *q)
{
	quota_remember(arg, (void *)(uintptr_t)q);
}

int quotas_load(struct engine *e)
{
	struct db_query CLEANUP(db_finish) q = db_query(e->db, &ALL);

	map_init(&e->quotas.by_owner);
	return quota_walk(&q, quota_load_one, e);
}

int quotas_reload(struct engine *e)
{
	quotas_clear(&e->quotas); /* what owners use stays as it is */
	return quotas_load(e);
}

int quota_list(struct tx *tx, const char *after, int64_t limit, quota_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &LIST);

	db_bind_text(&q, 1, after);
	db_bind_int(&q, 2, limit);
	return quota_walk(&q, fn, arg);
}

struct quota_finder {
	quota_fn *fn;
	void *arg;
	bool found;
};

static void quota_found(void *arg, const struct owner_quota *q)
{
	struct quota_finder *f = arg;

	assert(!f->found);
	f->found = true;
	f->fn(f->arg, q);
}

int quota_get(struct tx *tx, const char *owner, quota_fn *fn, void *arg)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &GET);
	struct quota_finder f = { .fn = fn, .arg = arg };

	db_bind_text(&q, 1, owner);
	int r = quota_walk(&q, quota_found, &f);
	return r < 0 || f.found ? r : LAPSE_ENOTFOUND;
}

static int quota_put_limit(struct tx *tx, const struct owner_quota *q, enum quota what)
{
	struct db_query CLEANUP(db_finish) put = db_query(tx->db, &PUT);

	db_bind_text(&put, 1, q->owner);
	db_bind_text(&put, 2, QUOTA_ROWS[what].name);
	db_bind_int(&put, 3, q->limits[what]);
	return db_post(&put, DB_ONE);
}

static int quota_drop_rows(struct tx *tx, const char *owner)
{
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &DROP);

	db_bind_text(&q, 1, owner);
	return db_post(&q, DB_ANY);
}

int quota_set(struct tx *tx, const struct owner_quota *q, struct problem *p)
{
	struct owner_quota *kept = tx_alloc(tx, sizeof(*kept));

	assert(tx->write && q->owner[0]);
	if (tx->engine->quotas.by_owner.count >= QUOTA_OWNERS_MAX &&
	    !quota_entry_find(tx->engine, q->owner))
		return problem_set(p, LAPSE_ELIMIT, NULL, "%d owners have a quota already",
				   QUOTA_OWNERS_MAX);
	int r = quota_drop_rows(tx, q->owner);
	for (unsigned i = 0; r == LAPSE_OK && i < QUOTAS_NUMBER; i++)
		if (q->limits[i])
			r = quota_put_limit(tx, q, (enum quota)i);
	*kept = *q;
	kept->owner = arena_strdup(&tx->arena, q->owner);
	tx_effect(tx, quota_remember, kept);
	return r < 0 ? r : cluster_tell(tx, "quotas", "");
}

int quota_remove(struct tx *tx, const char *owner)
{
	if (!quota_entry_find(tx->engine, owner))
		return LAPSE_ENOTFOUND;
	tx_effect(tx, quota_forget, arena_strdup(&tx->arena, owner));
	int r = quota_drop_rows(tx, owner);
	return r < 0 ? r : cluster_tell(tx, "quotas", "");
}
