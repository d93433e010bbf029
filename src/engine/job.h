/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: what happens in one transaction. A turn of requests is one, a slice of a sweep is another.
 *
 *	job_run()     begins, runs the body, commits; on a lane
 *	job_finish()  runs the effects, then tells the owner; on the loop, once
 *
 * The body may run more than once: the store can ask for another try (LAPSE_ERETRY) at any
 * statement or at the commit, and then everything the body wrote is gone. So a body leaves nothing
 * behind but its transaction. What is to outlive a run is an effect, or is undone by `rewind`.
 *
 *	IDLE → job_run → RUNNING → COMMITTED → job_finish → IDLE
 *	                 RUNNING → failed → IDLE
 */
#ifndef LAPSE_ENGINE_JOB_H
#define LAPSE_ENGINE_JOB_H

#include "engine/tx.h"

#define JOB_MAGIC 0x4c504a42u
#define JOB_TRIES 4 /* a conflict with another writer seldom comes twice */

#define JOB_UNDO 1 /* a body was only to show what it would do */

enum job_state { JOB_IDLE, JOB_RUNNING, JOB_COMMITTED };

struct job {
	uint32_t magic;
	enum job_state state;

	/* The body. After an error, or JOB_UNDO, everything it wrote is undone. */
	int (*run)(struct job *j, struct tx *tx);

	/* A run failed and was undone; another one or the end follows. May be NULL. */
	void (*rewind)(struct job *j);

	/* It has committed, and its effects have run. May be NULL. */
	void (*finish)(struct job *j);

	struct tx tx;
};

/* LAPSE_OK: committed, and job_finish() must follow. Otherwise it is over and nothing happened;
 * JOB_UNDO when the body wanted that, LAPSE_ERETRY when JOB_TRIES runs were not enough, or when a
 * row stayed locked (db_lock_met()). */
int job_run(struct job *j, struct engine *e, struct db *lane, enum store_mode mode);
void job_finish(struct job *j);

/* A small job that is done when the call returns, on the loop's own lane. DURABLE: it survives a
 * power loss when the call returns. LAZY: it is found again after one, if need be. `body` may run
 * more than once, as above. */
enum job_end { JOB_DURABLE, JOB_LAZY };
typedef int job_body(struct tx *tx, void *arg);
int job_do(struct engine *e, enum job_end end, job_body *body, void *arg);

#endif
