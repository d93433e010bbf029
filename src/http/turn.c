/* SPDX-License-Identifier: Apache-2.0 */
#include "http/turn.h"

#include <assert.h>

#include "engine/job.h"
#include "http/request.h"
#include "http/server.h"

#define TURN_MAX 512 /* requests of a turn; a commit of more gains nothing */
#define TURN_US 5000 /* time of a turn that writes; what is left over goes into the next */
#define READ_US 1000 /* of one that reads, which gains nothing from being long */

/* One per lane of the store. */
struct turn {
	struct job job;
	struct server *server;
	struct db *lane;
	bool busy;     /* from turn_take() to its end */
	size_t n, ran; /* its requests, and how many of them ran before its time was over */
	struct request *batch[TURN_MAX];
};

void turn_enqueue(struct server *s, struct request *r)
{
	request_enter(r, REQUEST_QUEUED);
	fair_add(&s->queue, r, r->call.owner);
	server_kick(s);
}

void turn_answer(struct request *r, int err)
{
	assert(err <= 0 && !list_is_linked(&r->link));
	idempotency_release(&r->call.key);
	r->err = err;
	request_enter(r, REQUEST_ANSWERED);
	if (!r->connection) {
		server_forget(r);
		return;
	}
	if (r->suspended) {
		r->suspended = false;
		MHD_resume_connection(r->mhd);
	}
}

static void call_is_ready(struct call *c)
{
	struct request *r = request_of_call(c);
	struct server *s = r->server;

	assert(r->state == REQUEST_WAITING);
	/* A long poll gives what came while its caller may have lost the right to it. Other waits
	 * finish what they have begun. */
	int err = c->polled ? request_check_caller(r) : LAPSE_OK;
	if (err == LAPSE_OK) {
		turn_enqueue(s, r);
		return;
	}
	turn_answer(r, err);
	server_kick(s);
}

static int run_call(struct request *r, struct tx *tx)
{
	struct call *c = &r->call;

	assert(tx == NULL || tx_is_open(tx));
	assert(r->magic == REQUEST_MAGIC && r->route);
	assert(r->state == REQUEST_QUEUED);
	c->tx = tx;
	c->handler = r->route->handler;
	c->ready = call_is_ready;
	c->stopping = r->server->stopping;
	if (c->runs == 0)
		c->began = r->complete;
	int err = request_parse(r);
	return err < 0 ? err : call_run(c);
}

static void request_note_result(struct request *r, int result)
{
	assert(r->state == REQUEST_QUEUED);
	r->result = result;
	if (result != CALL_WAIT)
		return;
	request_enter(r, REQUEST_WAITING);
	call_wait_start(&r->call);
}

/* After the commit: what the handler's result asks for. */
static void request_conclude(struct request *r)
{
	assert(r->result <= LAPSE_OK || r->result == CALL_WAIT || r->result == CALL_AGAIN ||
	       r->result == CALL_NEEDS_WRITE);
	assert(r->magic == REQUEST_MAGIC && r->state != REQUEST_ANSWERED);
	if (r->state == REQUEST_WAITING) {
		call_wait_work(&r->call);
		return;
	}
	if (r->result == CALL_WAIT)
		return; /* an effect of this very turn has queued it again */
	r->writes |= r->result == CALL_NEEDS_WRITE;
	if (r->result == CALL_AGAIN || r->result == CALL_NEEDS_WRITE)
		turn_enqueue(r->server, r);
	else
		turn_answer(r, r->result);
}

/* Saves the savepoint, a tenth of the cost of a message, where the route promises to fail only
 * before its first write. */
static bool fails_before_writing(const struct request *r)
{
	return (r->route->flags & ROUTE_CLEAN) && !r->call.has_key;
}

/* Runs one request of a turn; a write has a step of its own, which is undone when it fails.
 * Negative = the whole transaction is lost: it was ended behind our back (a full disk, for one), it
 * must be tried again, or it cannot be undone in part. */
static int run_request(struct tx *tx, struct request *r)
{
	const bool step = tx->write && !fails_before_writing(r);
	int64_t before = db_changes_total(tx->db);
	int err = step ? tx_step_begin(tx) : LAPSE_OK;

	if (err < 0)
		return err;
	int result = run_call(r, tx);
	if (result == LAPSE_ERETRY)
		return result;
	if (!db_in_transaction(tx->db))
		return result < 0 ? result : LAPSE_EUNAVAILABLE;
	if (step)
		err = result < 0 ? call_undo(&r->call) : tx_step_end(tx);
	else if (result < 0 && db_changes_total(tx->db) != before)
		err = result;
	if (err == LAPSE_OK)
		request_note_result(r, result);
	return err;
}

/* The body of a turn: may run several times. */
static int run_turn(struct job *j, struct tx *tx)
{
	struct turn *t = CONTAINER_OF(j, struct turn, job);
	const struct clock *clock = t->server->engine->clock;
	const lapse_us stop = clock_mono(clock) + (tx->write ? TURN_US : READ_US);
	int err = LAPSE_OK;

	assert(t->lane == tx->db);
	assert(j->magic == JOB_MAGIC && t->busy && t->n > 0);
	t->ran = 0;
	while (err == LAPSE_OK && t->ran < t->n && (t->ran == 0 || clock_mono(clock) < stop))
		err = run_request(tx, t->batch[t->ran++]);
	return err;
}

static void turn_rewind(struct job *j)
{
	const struct turn *t = CONTAINER_OF(j, struct turn, job);

	assert(t->busy);
	for (size_t i = 0; i < t->n; i++) {
		assert(t->batch[i]->magic == REQUEST_MAGIC);
		call_rewind(&t->batch[i]->call);
		request_enter(t->batch[i], REQUEST_QUEUED);
	}
}

static void turn_end(struct turn *t)
{
	assert(t->busy && t->job.state == JOB_IDLE);
	t->n = 0;
	t->busy = false;
}

/* Those from `first` on, into the front of the queue, in their order. */
static void turn_put_back(struct turn *t, size_t first)
{
	for (size_t i = t->n; i-- > first;) {
		assert(t->batch[i]->state == REQUEST_QUEUED);
		fair_put_back(&t->server->queue, t->batch[i]);
	}
	if (first < t->n)
		server_kick(t->server);
}

/* The job's transaction is as durable as it needs to be, and its effects have run: the answers. */
static void turn_finish(struct job *j)
{
	struct turn *t = CONTAINER_OF(j, struct turn, job);

	assert(j->state == JOB_IDLE && t->busy);
	if (j->tx.write)
		histogram_add(&t->server->commit_batch, HISTOGRAM_REQUESTS, (int64_t)t->ran);
	assert(t->ran > 0 && t->ran <= t->n);
	fair_served(&t->server->queue, t->batch[t->ran - 1]);
	turn_put_back(t, t->ran);
	if (t->batch[0]->aside_since)
		aside_release(t->server);
	for (size_t i = 0; i < t->ran; i++) {
		t->batch[i]->aside_since = 0;
		request_conclude(t->batch[i]);
	}
	turn_end(t);
}

/* The request that met a locked row is set aside, and the others go on without it. */
static void turn_set_aside(struct turn *t)
{
	struct request *r = t->batch[t->ran - 1];

	assert(t->ran > 0 && t->ran <= t->n);
	turn_put_back(t, t->ran);
	t->n = t->ran - 1;
	turn_put_back(t, 0);
	aside_add(t->server, r);
	turn_end(t);
}

/* Requests that cannot be committed together are tried alone: one of them may be to blame. */
static void turn_fail(struct turn *t, int err)
{
	assert(err < 0 && t->n > 0);
	if (err == LAPSE_ERETRY && db_lock_met(t->lane) == DB_LOCK_HERE) {
		turn_set_aside(t);
		return;
	}
	if (err == LAPSE_ERETRY && t->n > 1) {
		for (size_t i = 0; i < t->n; i++)
			t->batch[i]->alone = true;
		turn_put_back(t, 0);
		turn_end(t);
		return;
	}
	if (t->job.tx.write)
		server_log_failed_turn(t->server, err);
	for (size_t i = 0; i < t->n; i++)
		turn_answer(t->batch[i], err);
	turn_end(t);
}

static void on_synced(uv_async_t *a)
{
	struct server *s = CONTAINER_OF(a, struct server, synced);
	struct turn *t = s->syncing;

	assert(t->job.state == JOB_COMMITTED);
	assert(t && t->busy);
	s->syncing = NULL;
	store_sync_end(s->engine->store);
	job_finish(&t->job);
	server_pump(s);
}

static void notify_synced(void *arg) /* on a thread of the store's */
{
	uv_async_send(arg);
}

static void turn_start(struct turn *t, enum store_mode mode)
{
	struct server *s = t->server;
	struct store *store = s->engine->store;
	const bool locked = t->batch[0]->aside_since || !list_empty(&s->aside.requests);

	assert(t->busy && t->n <= TURN_MAX);
	db_limit_lock_wait(t->lane, locked ? ASIDE_LOCK_MS : 0);
	int err = job_run(&t->job, s->engine, t->lane, mode);
	db_limit_lock_wait(t->lane, 0);
	if (err < 0) {
		turn_fail(t, err);
	} else if (mode == STORE_READ || !tx_has_changed(&t->job.tx) ||
		   store_is_durable(store, store_mark(store))) {
		job_finish(&t->job);
	} else {
		assert(!s->syncing);
		s->syncing = t;
		store_sync_start(store, notify_synced, &s->synced);
	}
}

void turn_init(struct server *s)
{
	const struct store *store = s->engine->store;

	assert(!s->turns && s->turns_count == 0);
	s->turns_count = store->lanes_count;
	s->turns = mem_zalloc((size_t)s->turns_count, sizeof(*s->turns));
	for (int i = 0; i < s->turns_count; i++)
		s->turns[i] = (struct turn){ .job = { .magic = JOB_MAGIC,
						      .run = run_turn,
						      .rewind = turn_rewind,
						      .finish = turn_finish },
					     .server = s,
					     .lane = store->lanes[i] };
	uv_async_init(s->loop, &s->synced, on_synced);
}

void turn_done(struct server *s)
{
	assert(!s->syncing);
	uv_close((uv_handle_t *)&s->synced, NULL);
	for (int i = 0; i < s->turns_count; i++)
		assert(!s->turns[i].busy);
	free(s->turns);
	s->turns = NULL;
}

static enum route_tx request_tx_kind(const struct request *r)
{
	return r->writes ? TX_WRITE : r->route->tx;
}

/* Takes the queued requests of one kind, in their order; one that is to run alone makes a turn by
 * itself. */
static size_t turn_take(struct server *s, enum route_tx kind, struct request *out[TURN_MAX])
{
	const int most = s->engine->store->steps_max;
	const size_t max = most > 0 && most < TURN_MAX ? (size_t)most : TURN_MAX;
	size_t n = 0;
	bool alone = false;

	for (struct request *r = fair_first(&s->queue), *next; r && n < max && !alone; r = next) {
		next = fair_after(&s->queue, r);
		if (request_tx_kind(r) != kind)
			continue;
		if (r->alone && n > 0)
			break;
		alone = r->alone;
		fair_remove(&s->queue, r);
		assert(r->magic == REQUEST_MAGIC && r->state == REQUEST_QUEUED);
		out[n++] = r;
	}
	return n;
}

/* Requests that use no transaction. */
static bool run_without_tx(struct server *s)
{
	struct request *batch[TURN_MAX];
	size_t n = turn_take(s, TX_NONE, batch);

	for (size_t i = 0; i < n; i++) {
		assert(batch[i]->route->tx == TX_NONE);
		fair_served(&s->queue, batch[i]);
		request_note_result(batch[i], run_call(batch[i], NULL));
		request_conclude(batch[i]);
	}
	return n > 0;
}

static struct turn *free_turn(struct server *s)
{
	for (int i = 0; i < s->turns_count; i++)
		if (!s->turns[i].busy)
			return &s->turns[i];
	return NULL;
}

/* Nothing begins while a turn is being synced, reads neither: they must not show what may still be
 * lost. */
static bool run_kind(struct server *s, enum route_tx kind)
{
	struct turn *t = store_is_syncing(s->engine->store) ? NULL : free_turn(s);

	if (!t)
		return false;
	t->n = turn_take(s, kind, t->batch);
	if (t->n == 0)
		return false;
	assert(!t->busy && t->job.state == JOB_IDLE);
	t->busy = true;
	s->last_turn = clock_mono(s->engine->clock);
	turn_start(t, kind == TX_WRITE ? STORE_WRITE : STORE_READ);
	return true;
}

bool turn_run(struct server *s)
{
	bool worked = aside_run(s);

	worked = run_without_tx(s) || worked;
	worked = run_kind(s, TX_READ) || worked;
	return run_kind(s, TX_WRITE) || worked;
}
