/* SPDX-License-Identifier: Apache-2.0 */
/* How a replica joins a cluster, and how it leaves: by itself, or left out by another one. */
#include <assert.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/settings.h"
#include "engine/cluster.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/sealed.h"
#include "engine/tx.h"
#include "store/blob.h"
#include "store/migrate.h"

#define REUSE_MS INT64_C(60000) /* after its lease a number rests for so long */

int cluster_announce(struct tx *tx, enum event_kind kind, int64_t number, const char *why)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_int(&data, "replica", number);
	if (why)
		json_put_text(&data, "reason", why);
	json_end(&data, '}');
	return event_add(tx, "", kind, &data);
}

/* What a replica had under way that is not alive any more. */
int cluster_clear_after(struct tx *tx, int64_t number)
{
	int r = cluster_drop_leases(tx, number);

	if (r == LAPSE_OK)
		r = cleaner_free_taken(tx, number);
	for (const struct room *const *x = tx->engine->rooms; r == LAPSE_OK && *x; x++)
		if ((*x)->replica_gone)
			r = (*x)->replica_gone(tx, number);
	return r;
}

/* Outside a cluster no other process has the store: replicas of an earlier one are gone. */
static int clear_all(struct tx *tx)
{
	static const struct db_stmt NOBODY = { "UPDATE replicas SET state = 0 WHERE state = 1" };
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &NOBODY);

	return db_post(&q, DB_ANY);
}

/* The lowest number that was free for long enough. */
static int choose_number(struct tx *tx, int64_t *ret, struct problem *p)
{
	static const struct db_stmt TAKEN = {
		"SELECT number FROM replicas WHERE state = 1 OR lease_until > $1 "
		"OR (state = -1 AND flushed_through > $2) ORDER BY number"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &TAKEN);
	int64_t number = 1;
	int r;

	db_bind_int(&q, 1, time_sub(tx->now, REUSE_MS));
	db_bind_int(&q, 2, cluster_window_start(tx->engine, tx->now));
	while ((r = db_step(&q)) > 0)
		if (db_int(&q, 0) == number)
			number++;
	if (r < 0)
		return r;
	if (number > CLUSTER_NUMBERS_MAX)
		return problem_set(p, LAPSE_ELIMIT, "cluster",
				   "all %d numbers of replicas were in use within the last minute: "
				   "start this one a little later",
				   CLUSTER_NUMBERS_MAX);
	*ret = number;
	return LAPSE_OK;
}

static int refuse_while_clock_jumped(struct tx *tx, struct problem *p)
{
	static const struct db_stmt JUMPED = {
		"SELECT 1 FROM replicas WHERE state = 1 AND clock_jumped = 1"
	};
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &JUMPED);
	int r = db_step(&q);

	if (r > 0)
		return problem_set(p, LAPSE_ECONFLICT, "cluster",
				   "the clock has leapt and the cluster has not accepted it: look "
				   "at the clock, run 'lapse clock accept', then start this one");
	return r;
}

static int insert_replica(struct tx *tx, int64_t number, bool files)
{
	static const struct db_stmt FORGET = { "DELETE FROM replicas WHERE number = $1" };
	static const struct db_stmt INSERT = {
		"INSERT INTO replicas (number, incarnation, state, name, listen, version, files, "
		"started_at, lease_until, flushed_through, heard, clock_jumped) "
		"VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, $7, $9, 0)"
	};
	const struct engine *e = tx->engine;
	char name[256] = "";

	struct db_query CLEANUP(db_finish) forget = db_query(tx->db, &FORGET);
	db_bind_int(&forget, 1, number);
	int r = db_post(&forget, DB_ANY);
	if (r < 0)
		return r;
	gethostname(name, sizeof(name) - 1);
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &INSERT);
	db_bind_int(&q, 1, number);
	db_bind_int(&q, 2, e->cluster.incarnation);
	db_bind_text(&q, 3, name);
	db_bind_text(&q, 4, e->settings->listen);
	db_bind_text(&q, 5, LAPSE_VERSION);
	db_bind_int(&q, 6, files);
	db_bind_int(&q, 7, tx->now);
	db_bind_int(&q, 8, time_add(tx->now, cluster_lease_ms(e)));
	db_bind_int(&q, 9, e->cluster.heard);
	return db_post(&q, DB_ONE);
}

/* Secrets in the store are sealed with one key, which all replicas must have. */

static int64_t key_id(const struct seal *key)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	int64_t id = 0;

	SHA256(key->key, sizeof(key->key), digest);
	memcpy(&id, digest, sizeof(id));
	return id & INT64_MAX;
}

/* A key is made by the first replica, and only while it hides nothing. */
static int check_cluster_key(struct tx *tx, struct problem *p)
{
	struct seal CLEANUP(seal_done) key = { 0 };
	int64_t known = 0;
	int sealed = sealed_any(tx->db);
	int r = sealed < 0 ? sealed : meta_get(tx->db, "key_id", 0, &known);

	if (r < 0)
		return r;
	r = seal_find(&key, tx->engine->settings->data_dir, getenv("CREDENTIALS_DIRECTORY"),
		      known == 0 && sealed == 0, p);
	if (r == LAPSE_ENOTFOUND || (r == LAPSE_OK && known != 0 && key_id(&key) != known))
		return problem_set(p, LAPSE_ECONFLICT, "cluster",
				   "%s " SEAL_KEY_NAME " of the cluster: copy it from the data "
				   "directory of another replica",
				   r == LAPSE_OK ? "this replica has another key than the"
						 : "this replica does not have the");
	if (r < 0)
		return r;
	return known ? LAPSE_OK : meta_set(tx->db, "key_id", key_id(&key));
}

/* Files of attachments lie below data_dir/files. Replicas that see the same files see the same
 * marker there. */

static int count_attachments(struct tx *tx)
{
	static const struct db_stmt ANY = { "SELECT 1 FROM attachments LIMIT 1" };
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ANY);

	return db_step(&q);
}

/* The first replica makes the marker. Where there are attachments already, it must be the one that
 * has their files. */
static int find_files(struct tx *tx, bool *ret)
{
	const char *data_dir = tx->engine->settings->data_dir;
	int64_t known = 0, here = 0;
	int any = count_attachments(tx);
	int r = any < 0 ? any : meta_get(tx->db, "files_id", 0, &known);

	if (r < 0)
		return r;
	if (known == 0 && (any == 0 || blob_any(data_dir))) {
		known = id_random();
		r = meta_set(tx->db, "files_id", known);
		if (r == LAPSE_OK && blob_set_marker(data_dir, known) < 0)
			known = 0;
	}
	*ret = known != 0 && blob_get_marker(data_dir, &here) == LAPSE_OK && here == known;
	return r;
}

static int read_heard(struct tx *tx, int64_t *ret_heard, int64_t *ret_others)
{
	static const struct db_stmt HEARD = { "SELECT (SELECT coalesce(max(n), 0) FROM changes), "
					      "(SELECT count(*) FROM replicas WHERE state = 1)" };
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &HEARD);
	int r = db_step(&q);

	if (r <= 0)
		return r < 0 ? r : LAPSE_EINTERNAL;
	*ret_heard = db_int(&q, 0);
	*ret_others = db_int(&q, 1);
	return LAPSE_OK;
}

int cluster_join(struct tx *tx, struct problem *p)
{
	struct engine *e = tx->engine;
	struct cluster *c = &e->cluster;
	int64_t number = 0;

	assert(tx_can_write(tx) && !c->on);
	if (!e->settings->cluster)
		return clear_all(tx);
	int r = refuse_while_clock_jumped(tx, p);
	if (r == LAPSE_OK)
		r = choose_number(tx, &number, p);
	if (r == LAPSE_OK)
		r = read_heard(tx, &c->heard, &c->others);
	if (r < 0)
		return r;
	r = check_cluster_key(tx, p);
	if (r == LAPSE_OK)
		r = find_files(tx, &e->files_shared);
	if (r < 0)
		return r;
	c->incarnation = id_random();
	c->flushed = c->others ? tx->now : LAPSE_NEVER;
	c->lost_flushed = LAPSE_NEVER;
	e->ids.replica = (uint8_t)number;
	r = insert_replica(tx, number, e->files_shared);
	if (r == LAPSE_OK)
		r = cluster_clear_after(tx, number);
	if (r < 0)
		return r;
	c->on = true;
	c->synced = c->renewed = c->contact_since = clock_mono(e->clock);
	return LAPSE_OK;
}

int cluster_joined(struct tx *tx)
{
	struct cluster *c = &tx->engine->cluster;

	if (!c->on)
		return LAPSE_OK;
	c->events_after = tx->engine->ids.last;
	return cluster_announce(tx, EVENT_REPLICA_JOINED, tx->engine->ids.replica, NULL);
}

int cluster_set_state(struct tx *tx, int64_t number, enum replica_state state)
{
	static const struct db_stmt SET = { "UPDATE replicas SET state = $2 WHERE number = $1" };
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &SET);

	db_bind_int(&q, 1, number);
	db_bind_int(&q, 2, state);
	return db_post(&q, DB_ONE);
}

int cluster_tell_rooms(struct tx *tx)
{
	int r = LAPSE_OK;

	for (const struct room *const *x = tx->engine->rooms; r == LAPSE_OK && *x; x++)
		if ((*x)->tell && engine_room(tx->engine, (*x)->id))
			r = (*x)->tell(tx);
	return r;
}

static int leave_in_order(struct tx *tx, void *arg)
{
	int64_t number = tx->engine->ids.replica;
	int r = cluster_tell_rooms(tx);

	(void)arg;
	if (r == LAPSE_OK)
		r = cluster_announce(tx, EVENT_REPLICA_LEFT, number, "it was stopped");
	if (r == LAPSE_OK)
		r = cluster_clear_after(tx, number);
	return r < 0 ? r : cluster_set_state(tx, number, REPLICA_STOPPED);
}

/* Where the store does not answer, the others find out by the lease. */
void cluster_leave(struct engine *e)
{
	if (!e->cluster.on || e->cluster.lost)
		return;
	job_do(e, JOB_DURABLE, leave_in_order, NULL);
	e->cluster.on = false;
}
