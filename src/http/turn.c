/* SPDX-License-Identifier: Apache-2.0 */
#include "http/turn.h"

#include <assert.h>
#include <string.h>

#include "http/park.h"
#include "http/request.h"
#include "http/server.h"

#define TURN_MAX 512 /* requests of a turn; a commit of more gains nothing */

void turn_enqueue(struct server *s, struct request *r)
{
	r->state = REQUEST_QUEUED;
	list_append(&s->queue, &r->link);
	server_kick(s);
}

void turn_answer(struct request *r, int err)
{
	list_remove(&r->key_link);
	r->err = err;
	r->state = REQUEST_ANSWERED;
	if (r->suspended) {
		r->suspended = false;
		MHD_resume_connection(r->mhd);
	}
}

/* Runs the handler once. */
static int run_handler(struct request *r)
{
	struct call *c = &r->call;
	call_fn *fn = c->next ? c->next : r->route->handler;

	buf_done(&c->reply);
	c->status = 200;
	c->next = NULL;
	c->wake = park_wake_call;
	c->stopping = r->server->stopping;
	if (c->runs++ == 0)
		c->began = r->complete;
	return fn(c);
}

static bool is_under_way(const struct server *s, const struct idempotency *i)
{
	for (const struct list *l = s->keyed.next; l != &s->keyed; l = l->next) {
		const struct request *r = CONTAINER_OF(l, struct request, key_link);
		if (strcmp(r->idempotency.key, i->key) == 0 &&
		    strcmp(r->idempotency.owner, i->owner) == 0)
			return true;
	}
	return false;
}

/* A key that is under way in the store, but not here, is of a request whose last step could not be
 * committed: it was answered with an error, and this is its retry. */
static int take_key(struct request *r, int *ret_status, const char **ret_answer)
{
	struct call *c = &r->call;
	int err = idempotency_begin(c->tx, &r->idempotency, &c->arena, ret_status, ret_answer);

	if (err != LAPSE_ECONFLICT || is_under_way(r->server, &r->idempotency))
		return err;
	err = idempotency_drop(c->tx, &r->idempotency);
	if (err < 0)
		return err;
	return idempotency_begin(c->tx, &r->idempotency, &c->arena, ret_status, ret_answer);
}

/* The key's first sight of this request: 0 = go on, 1 = the reply is the first answer again. */
static int begin_key(struct request *r)
{
	struct call *c = &r->call;
	const char *text = "";
	int status = 0;
	int err = take_key(r, &status, &text);

	if (err == LAPSE_EUNPROCESSABLE)
		return problem_set(&c->problem, err, "Idempotency-Key",
				   "the key was used for another request");
	if (err == LAPSE_ECONFLICT)
		return problem_set(&c->problem, err, "Idempotency-Key",
				   "the first request with this key is still under way");
	if (err == LAPSE_OK)
		list_append(&r->server->keyed, &r->key_link);
	if (err > 0) {
		r->replayed = true;
		c->status = status;
		buf_done(&c->reply);
		buf_puts(&c->reply, text);
	}
	return err;
}

/* Around the handler: an Idempotency-Key is under way from its first step to its last. */
static int run_once(struct request *r)
{
	struct call *c = &r->call;

	if (!r->has_key)
		return run_handler(r);
	if (c->runs == 0) {
		int err = begin_key(r);
		if (err != 0)
			return err < 0 ? err : LAPSE_OK;
	}
	int result = run_handler(r);
	if (result != LAPSE_OK)
		return result;
	const struct buf *kept = c->kept.len ? &c->kept : &c->reply;
	return idempotency_end(c->tx, &r->idempotency, c->status, buf_text(kept));
}

/* A request that failed leaves no key: its retry really runs. What its first step wrote is
 * committed already and has to be taken back. */
static int undo_step(struct tx *tx, const struct request *r)
{
	int err = tx_step_undo(tx);

	if (err == LAPSE_OK && r->has_key && r->call.runs > 1)
		err = idempotency_drop(tx, &r->idempotency);
	return err;
}

static void note_result(struct request *r, int result)
{
	r->result = result;
	if (result == CALL_WAIT)
		park_start(r);
}

/* After the commit: what the handler's result asks for. */
static void conclude(struct request *r)
{
	if (r->state == REQUEST_WAITING) {
		park_start_work(r);
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

static void conclude_all(struct request *const *batch, size_t n)
{
	for (size_t i = 0; i < n; i++)
		conclude(batch[i]);
}

static void fail_all(struct request *const *batch, size_t n, int err)
{
	for (size_t i = 0; i < n; i++) {
		struct request *r = batch[i];
		if (r->state == REQUEST_WAITING)
			park_stop(r);
		r->call.problem = (struct problem){ 0 };
		turn_answer(r, err);
	}
}

static void run_plain(struct request *const *batch, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		batch[i]->call.tx = NULL;
		note_result(batch[i], run_handler(batch[i]));
	}
	conclude_all(batch, n);
}

static void run_reads(struct server *s, struct request *const *batch, size_t n)
{
	struct tx tx;
	int r = tx_begin_read(&tx, s->engine);

	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		batch[i]->call.tx = &tx;
		note_result(batch[i], run_handler(batch[i]));
	}
	if (r == LAPSE_OK && !db_in_transaction(tx.db)) /* a failing read has ended it */
		r = LAPSE_EUNAVAILABLE;
	if (r == LAPSE_OK)
		r = tx_commit(&tx);
	else
		tx_rollback(&tx);
	if (r < 0)
		fail_all(batch, n, r);
	else
		conclude_all(batch, n);
}

/* Saves the savepoint, a tenth of the cost of a message, where the route promises to fail only
 * before its first write. What it fails with after that is a failing store, and that is everybody's
 * problem: the whole transaction is given up. */
static int run_clean(struct tx *tx, struct request *r)
{
	int64_t before = db_changes_total(tx->db);

	r->call.tx = tx;
	int result = run_once(r);
	if (result < 0 && (db_changes_total(tx->db) != before || !db_in_transaction(tx->db)))
		return result;
	note_result(r, result);
	return LAPSE_OK;
}

/* One request in a step of its own. Negative = the whole transaction is lost. */
static int run_step(struct tx *tx, struct request *r)
{
	if ((r->route->flags & ROUTE_CLEAN) && !r->has_key)
		return run_clean(tx, r);
	int err = tx_step_begin(tx);

	if (err < 0)
		return err;
	r->call.tx = tx;
	int result = run_once(r);
	if (!db_in_transaction(tx->db)) /* a full disk, for one, takes everything with it */
		return result < 0 ? result : LAPSE_EUNAVAILABLE;
	err = result < 0 ? undo_step(tx, r) : tx_step_end(tx);
	if (err < 0)
		return err;
	note_result(r, result);
	return LAPSE_OK;
}

struct turn {
	struct tx tx;
	struct request *batch[TURN_MAX];
	size_t n;
};

static int run_steps(struct turn *t, struct engine *e)
{
	int err = tx_begin(&t->tx, e);

	for (size_t i = 0; err == LAPSE_OK && i < t->n; i++)
		err = run_step(&t->tx, t->batch[i]);
	if (err < 0) {
		tx_rollback(&t->tx);
		return err;
	}
	return tx_commit_start(&t->tx);
}

/* The turn's transaction is as durable as it needs to be: effects, then answers. */
static void finish_turn(struct server *s)
{
	struct turn *t = s->turn;

	tx_commit_finish(&t->tx);
	histogram_add(&s->commit_batch, HISTOGRAM_REQUESTS, (int64_t)t->n);
	conclude_all(t->batch, t->n);
	t->n = 0;
}

static void on_synced(uv_async_t *a)
{
	struct server *s = CONTAINER_OF(a, struct server, synced);

	s->engine->syncing = false;
	s->engine->durable = s->synced_to;
	finish_turn(s);
	server_pump(s);
}

static void notify(void *arg) /* on the syncer's thread */
{
	uv_async_send(arg);
}

static void run_writes(struct server *s)
{
	struct turn *t = s->turn;
	int err = run_steps(t, s->engine);

	if (err < 0) {
		server_log_failed_turn(s, err);
		fail_all(t->batch, t->n, err);
	} else if (!tx_has_changed(&t->tx)) {
		finish_turn(s);
	} else {
		s->engine->syncing = true;
		s->synced_to = s->engine->commits;
		syncer_request(s->engine->syncer, notify, &s->synced);
	}
}

void turn_init(struct server *s)
{
	s->turn = mem_zalloc(1, sizeof(*s->turn));
	uv_async_init(s->loop, &s->synced, on_synced);
}

void turn_done(struct server *s)
{
	uv_close((uv_handle_t *)&s->synced, NULL);
	free(s->turn);
	s->turn = NULL;
}

/* Takes the queued requests of one kind, oldest first. */
static size_t take(struct server *s, enum route_tx kind, struct request *out[TURN_MAX])
{
	size_t n = 0;

	for (struct list *l = s->queue.next, *next; l != &s->queue && n < TURN_MAX; l = next) {
		struct request *r = CONTAINER_OF(l, struct request, link);
		next = l->next;
		if ((r->writes ? TX_WRITE : r->route->tx) != kind)
			continue;
		list_remove(l);
		out[n++] = r;
	}
	return n;
}

bool turn_run(struct server *s)
{
	struct request *batch[TURN_MAX];
	size_t n = take(s, TX_NONE, batch);
	bool worked = n > 0;

	if (n > 0)
		run_plain(batch, n);
	if (s->engine->syncing) /* reads too: they must not show what may still be lost */
		return worked;
	n = take(s, TX_READ, batch);
	s->turn->n = take(s, TX_WRITE, s->turn->batch);
	if (n + s->turn->n == 0)
		return worked;
	s->last_turn = clock_mono(s->engine->clock);
	if (n > 0)
		run_reads(s, batch, n);
	if (s->turn->n > 0)
		run_writes(s);
	return true;
}
