/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operational tables of source document 004, by their shapes. Every operation runs inside the
 * caller's transaction, and every read checks the deadline itself.
 *
 * The names of the tables are those of the document; rows of one shape share a table of the store.
 * Each bound counts its rows for each owner too (table_counts), because every table has a limit per
 * owner.
 */
#ifndef LAPSE_OPTABLE_OPTABLE_H
#define LAPSE_OPTABLE_OPTABLE_H

#include "api/page.h"
#include "base/id.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "optable/rules.h"

/* A list, or a claim, ends when its rows have so many bytes: the rest comes with the next one. */
#define OPTABLE_REPLY_BYTES ((int64_t)PAGE_MAX_BYTES)

/* Shared by the shapes: one row more of an owner, unless it has `max` already (LAPSE_ELIMIT); and
 * `n` rows fewer. */
int optable_count_in(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t max,
		     struct problem *p);
int optable_count_out(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t n);

/* A row counts `to` bytes among its owner's stored bytes instead of `from`; LAPSE_ELIMIT when there
 * is no room for them. */
int optable_change_bytes(struct tx *tx, const char *owner, int64_t from, int64_t to,
			 struct problem *p);

/* Counts out the rows of a sweep, whose group is the name of their table. */
int optable_settle(struct tx *tx, const struct pruned *rows, size_t n);

/* The same for a table that no other one shares its rows with. */
int optable_settle_as(struct tx *tx, const struct bound_spec *table, const struct pruned *rows,
		      size_t n);

/* An operation has removed `n` rows of an owner on its way: counts and tells. */
int optable_removed(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t n,
		    const char *reason);

/* Rows that an owner names by one key: leases and entries. Each shape has one table of the store,
 * with the columns id, owner, tbl, key and a deadline; tbl is the name of the bound.
 *
 * The parameters of OPTABLE_OF_KEY are $1 owner, $2 table, $3 key; those of OPTABLE_AFTER_KEY
 * are the same, with the key after which the list goes on, then $4 now and $5 limit. */
#define OPTABLE_OF_KEY " WHERE owner = $1 AND tbl = $2 AND key = $3"
#define OPTABLE_AFTER_KEY(TIME)                                                                    \
	" WHERE owner = $1 AND tbl = $2 AND key > $3 AND " TIME " > $4 ORDER BY key LIMIT $5"

/* clang-format off */
#define OPTABLE_KEYED(NAME, STORED, TIME)                                                          \
	.name = NAME,                                                                              \
	.scheduler = "statestore",                                                                 \
	.action = "delete row",                                                                    \
	.paths = PATH_LAZY | PATH_SWEEP,                                                           \
	.table = STORED,                                                                           \
	.key = BOUND_KEY({ "id", BOUND_INT }),                                                     \
	.key_is_id = true,                                                                         \
	.time = TIME,                                                                              \
	.op = DUE_AT,                                                                              \
	.only = BOUND_ONLY(IS_TEXT("tbl", NAME)),                                                  \
	.held_as = NAME,                                                                           \
	.holdable = true,                                                                          \
	.named_by = BOUND_COLUMNS("key"),                                                          \
	.hold_only = BOUND_ONLY(IS_TEXT("tbl", NAME)),                                             \
	.owner = "owner",                                                                          \
	.group = "tbl",                                                                            \
	.counted_by_owner = true,                                                                  \
	.settle = optable_settle
/* clang-format on */

/* The table of that name; NULL = there is none. */
const struct bound_spec *optable_find(const struct bound_spec *const *tables, size_t n,
				      const char *name);

/* Steps a query of OPTABLE_OF_KEY: 1 = it stands on the row, whatever its time; 0 = none. */
int optable_find_key(struct tx *tx, struct db_query *q, const struct bound_spec *table,
		     const char *owner, const char *key);

/* What finding a row means for a caller: LAPSE_ENOTFOUND when its time is over, too. */
int optable_live(int found, lapse_ms expires_at, lapse_ms now);

/* Binds a query of OPTABLE_AFTER_KEY. */
void optable_bind_list(struct tx *tx, struct db_query *q, const struct bound_spec *table,
		       const char *owner, const char *after, int64_t limit);

/* Whether a hold keeps the row. */
int optable_is_held(struct tx *tx, const struct bound_spec *table, int64_t id, bool *ret);

/* Leases */

struct lease {
	int64_t id;
	const char *key, *holder;
	int64_t fencing_token;
	lapse_ms acquired_at, expires_at;
};

extern const struct bound_spec CONVERSATION_LEASE_BOUND, WORKSPACE_LEASE_BOUND, OAUTH_LEASE_BOUND,
	MODELS_LEASE_BOUND;

/* The lease table of that name; NULL = there is none. */
const struct bound_spec *lease_table(const char *name);

/* Acquires, takes over or renews it for the holder. LAPSE_ECONFLICT: another one has it, and *ret
 * is that lease. Texts live in the arena. */
int lease_ask(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, const char *holder, lapse_ms ttl_ms, struct lease *ret,
	      struct problem *p);

/* A lease whose time is over is not found. */
int lease_get(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, struct lease *ret);

/* `token` 0 = any. LAPSE_ECONFLICT: the holder or the token is another one. A held row stays, but
 * its time is over. */
int lease_give_up(struct tx *tx, struct arena *arena, const struct bound_spec *table,
		  const char *owner, const char *key, const char *holder, int64_t token,
		  struct problem *p);

/* Live ones by key, after `after`. The function says whether to go on. */
typedef bool lease_fn(void *arg, const struct lease *l);
int lease_list(struct tx *tx, const struct bound_spec *table, const char *owner, const char *after,
	       int64_t limit, lease_fn *fn, void *arg);

/* Refreshed entries: they live as long as they are put again. */

struct entry {
	int64_t id;
	const char *key, *data;
	lapse_ms created_at, last_seen_at, expires_at;
	int64_t bytes; /* what it counts among its owner's */
};

extern const struct bound_spec PRESENCE_ENTRY_BOUND, CONNECTION_BOUND;

/* The entry table of that name; NULL = there is none. */
const struct bound_spec *entry_table(const char *name);

/* Makes the entry, or refreshes the one there is; `data` NULL keeps what it has. Removes a few of
 * the owner's expired entries on the way, and at the cap of presence_entries the one that was not
 * seen for the longest time. */
int entry_put(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, const char *data, lapse_ms ttl_ms, struct entry *ret,
	      bool *ret_fresh, struct problem *p);
int entry_get(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      const char *key, struct entry *ret);

/* LAPSE_ECONFLICT: the entry is held. */
int entry_delete(struct tx *tx, struct arena *arena, const struct bound_spec *table,
		 const char *owner, const char *key, struct problem *p);

typedef bool entry_fn(void *arg, const struct entry *e);
int entry_list(struct tx *tx, const struct bound_spec *table, const char *owner, const char *after,
	       int64_t limit, entry_fn *fn, void *arg);

/* Keys that are claimed once inside a window. */

struct dedupe_key {
	const char *channel, *account_id, *container_id, *message_id;
};

extern const struct bound_spec DEDUPE_BOUND;

/* *ret_fresh = the caller is the first inside the window, which ends at *ret_expires_at. */
int dedupe_claim(struct tx *tx, const char *owner, const struct dedupe_key *key, lapse_ms window_ms,
		 bool *ret_fresh, lapse_ms *ret_expires_at, struct problem *p);

/* Sign-ins under way: a state is consumed once. */

struct oauth_state {
	int64_t id;
	const char *state, *data;
	lapse_ms created_at, expires_at;
	int64_t bytes; /* what it counts among its owner's */
};

extern const struct bound_spec OAUTH_PENDING_BOUND;

int oauth_put(struct tx *tx, const char *owner, const char *state, const char *data,
	      lapse_ms ttl_ms, struct oauth_state *ret, bool *ret_fresh, struct problem *p);

/* Takes the state out of the table; a held row stays, but its time is over. LAPSE_ENOTFOUND;
 * LAPSE_EEXPIRED when its time is over. */
int oauth_consume(struct tx *tx, struct arena *arena, const char *owner, const char *state,
		  struct oauth_state *ret);

/* The one cache row. LAPSE_ENOTFOUND before the first put. */
int models_cache_put(struct tx *tx, const char *data);
int models_cache_get(struct tx *tx, struct arena *arena, const char **ret_data,
		     lapse_ms *ret_updated_at);

/* Work queues */

struct queue_item {
	int64_t id;
	const char *key; /* NULL = none */
	const char *payload;
	int64_t inbox_id; /* 0 = none */
	enum queue_status status;
	int64_t attempt;
	const char *worker, *error;       /* "" = none */
	lapse_ms lease_expires_at;        /* of one in processing; else LAPSE_NEVER */
	lapse_ms created_at, finished_at; /* LAPSE_NEVER = it has not */
	const char *dedupe_key;           /* for queue_add(); NULL = none */
	int64_t bytes;                    /* what it counts among its owner's */
};

extern const struct bound_spec INBOX_BOUND, CHANNEL_OUTBOX_BOUND;

/* The queue of that name; NULL = there is none. */
const struct bound_spec *queue_table(const char *name);

/* What a claim waits for. */
const char *queue_wait_key(struct arena *arena, const struct bound_spec *table, const char *owner);

/* Fills id, status and created_at. With a dedupe_key that the queue has already: *ret_fresh =
 * false, and the item is that one. */
int queue_add(struct tx *tx, const struct bound_spec *table, const char *owner,
	      struct queue_item *item, bool *ret_fresh, struct problem *p);

/* Leases up to `limit` items to the worker, those first that have waited longest. */
typedef void queue_fn(void *arg, const struct queue_item *item);
int queue_claim(struct tx *tx, const struct bound_spec *table, const char *owner,
		const char *worker, int64_t limit, lapse_ms lease_ms, queue_fn *fn, void *arg,
		int64_t *ret_count);

/* When the next lease ends; LAPSE_NEVER = none runs. */
int queue_next_offer(struct tx *tx, const struct bound_spec *table, const char *owner,
		     lapse_ms *ret);

/* What a worker says of an item it has claimed. LAPSE_ECONFLICT unless worker and attempt are
 * current. */
struct queue_report {
	int64_t id;
	const char *worker;
	int64_t attempt;
};
int queue_complete(struct tx *tx, const struct bound_spec *table, const char *owner,
		   const struct queue_report *r, struct problem *p);
int queue_fail(struct tx *tx, const struct bound_spec *table, const char *owner,
	       const struct queue_report *r, const char *error, bool retry,
	       enum queue_status *ret_status, struct problem *p);
int queue_extend(struct tx *tx, const struct bound_spec *table, const char *owner,
		 const struct queue_report *r, lapse_ms lease_ms, lapse_ms *ret_expires_at,
		 struct problem *p);

/* Puts a failed item back into the queue, at its old place, for one more attempt. LAPSE_ENOTFOUND;
 * LAPSE_ECONFLICT unless it has failed. */
int queue_retry(struct tx *tx, const struct bound_spec *table, const char *owner, int64_t id,
		struct problem *p);

/* How many items of an owner are in each state, and when the oldest of them was added (LAPSE_NEVER
 * = there is none). */
struct queue_depth {
	int64_t items[QUEUE_STATES];
	lapse_ms oldest[QUEUE_STATES];
};
int queue_depth(struct tx *tx, const struct bound_spec *table, const char *owner,
		struct queue_depth *ret);

int queue_get(struct tx *tx, struct arena *arena, const struct bound_spec *table, const char *owner,
	      int64_t id, struct queue_item *ret);

/* Newest first, below `before`; of all states, or of one. */
int queue_list(struct tx *tx, const struct bound_spec *table, const char *owner, const char *status,
	       int64_t before, int64_t limit, queue_fn *fn, void *arg);

/* The log and its consumers */

struct outbox_row {
	int64_t id;
	const char *topic, *payload;
	lapse_ms created_at;
};

struct outbox_consumer {
	int64_t id;
	const char *name;
	int64_t position; /* the id it has read up to */
	lapse_ms updated_at;
	int64_t lag; /* rows behind the newest, up to a limit; of a list */
};

extern const struct bound_spec OUTBOX_BOUND, OUTBOX_CONSUMER_BOUND;

/* What a reader waits for. */
const char *outbox_wait_key(struct arena *arena, const char *owner);

int outbox_add(struct tx *tx, const char *owner, const char *topic, const char *payload,
	       int64_t *ret_id, struct problem *p);

/* Whether rows after that position are gone. */
int outbox_has_gap(struct tx *tx, const char *owner, int64_t after, bool *ret);

/* In order; `topic` NULL = all. */
/* False = enough. */
typedef bool outbox_fn(void *arg, const struct outbox_row *row);
int outbox_read(struct tx *tx, const char *owner, int64_t after, const char *topic, int64_t limit,
		outbox_fn *fn, void *arg);

/* A cursor that has stopped advancing for outbox_keep_ms is not found. */
int outbox_consumer_get(struct tx *tx, const char *owner, const char *name,
			struct outbox_consumer *ret);

/* LAPSE_ECONFLICT when it would go back without `force`. The same position again refreshes it. */
int outbox_consumer_put(struct tx *tx, const char *owner, const char *name, int64_t position,
			bool force, struct outbox_consumer *ret, struct problem *p);

typedef bool outbox_consumer_fn(void *arg, const struct outbox_consumer *c);
int outbox_consumer_list(struct tx *tx, const char *owner, const char *after, int64_t limit,
			 outbox_consumer_fn *fn, void *arg);

#endif
