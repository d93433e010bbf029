/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job.h"

#include <assert.h>

#include "engine/engine.h"

/* A begin that fails is no reason to try again: the store is not there, and the loop must not wait
 * for it. */
static int job_try(struct job *j, struct engine *e, struct db *lane, enum store_mode mode,
		   bool *ret_again)
{
	int r = tx_begin_on(&j->tx, e, lane, mode);

	*ret_again = r == LAPSE_OK;
	if (r == LAPSE_OK)
		r = j->run(j, &j->tx);
	if (r == LAPSE_OK && !db_in_transaction(lane)) /* a failing statement has ended it */
		r = LAPSE_EUNAVAILABLE;
	if (r == LAPSE_OK)
		return tx_commit_start(&j->tx);
	tx_rollback(&j->tx);
	return r;
}

int job_run(struct job *j, struct engine *e, struct db *lane, enum store_mode mode)
{
	bool again = true;
	int r = LAPSE_ERETRY;

	assert(j->magic == JOB_MAGIC && j->state == JOB_IDLE && j->run);
	j->state = JOB_RUNNING;
	for (int tries = 0; r == LAPSE_ERETRY && again && tries < JOB_TRIES; tries++) {
		r = job_try(j, e, lane, mode, &again);
		assert(r <= 0 || r == JOB_UNDO);
		if (r < 0 && j->rewind)
			j->rewind(j);
		if (r == LAPSE_ERETRY && db_lock_met(lane) == DB_LOCK_HERE)
			break; /* it was waited for; another try is its owner's choice */
	}
	if (r == LAPSE_ERETRY && mode == STORE_WRITE && db_lock_met(lane) == DB_LOCK_NONE)
		e->store_failing = true;
	j->state = r == LAPSE_OK ? JOB_COMMITTED : JOB_IDLE;
	return r;
}

void job_finish(struct job *j)
{
	assert(j->tx.state == TX_COMMITTED);
	assert(j->magic == JOB_MAGIC && j->state == JOB_COMMITTED);
	j->state = JOB_IDLE;
	tx_commit_finish(&j->tx);
	if (j->finish)
		j->finish(j);
}

struct small_job {
	struct job job;
	job_body *body;
	void *arg;
};

static int run_small(struct job *j, struct tx *tx)
{
	const struct small_job *s = CONTAINER_OF(j, struct small_job, job);

	assert(s->body);
	return s->body(tx, s->arg);
}

int job_do(struct engine *e, enum job_end end, job_body *body, void *arg)
{
	struct small_job s = { .job = { .magic = JOB_MAGIC, .run = run_small },
			       .body = body,
			       .arg = arg };
	int r = job_run(&s.job, e, e->db, STORE_WRITE);

	assert(e->magic == ENGINE_MAGIC);
	assert(r != JOB_UNDO);
	if (r < 0)
		return r;
	if (end == JOB_DURABLE)
		store_sync(e->store);
	job_finish(&s.job);
	return LAPSE_OK;
}
