/* SPDX-License-Identifier: Apache-2.0 */
/* What the files keep*.c share: contracts under care, their bounds and their workers. */
#ifndef LAPSE_CONTRACT_KEEP_STATE_H
#define LAPSE_CONTRACT_KEEP_STATE_H

#include <assert.h>

#include "contract/check.h"
#include "contract/keep.h"
#include "contract/keep_store.h"
#include "contract/lease.h"
#include "contract/pass.h"
#include "contract/plan.h"
#include "engine/engine.h"

#define KEEPERS_MAX 32
#define KEEPERS_MAGIC 0x6b656570u

struct keep_terms;
struct keep_worker;

/* One bound, as the engine and the sweeps see it. */
struct keep_bound {
	struct keep_terms *terms;
	const struct contract_bound *bound;
	struct bound_spec spec;
	struct bound *row; /* of the matrix; NULL = not in it */
	char *due_when, *safety_rule;
	int64_t hash;
	struct keep_worker *worker;

	/* How the last sweep left it. */
	struct pass_tally left;
	bool waiting;       /* for approval */
	int64_t recovered;  /* rows an interrupted run may have removed without telling */
	int64_t recovering; /* such rows that the open transaction tells */
	int64_t before;     /* rows that sweeps of this command removed before the last one */
	int64_t together_before;
	int64_t expected;  /* rows the sweep under way counted as due; 0 = not counted */
	char problem[256]; /* why it could not be swept; "" = it was */
};

/* What one reading of a file says. Lives until the engine has released every bound of it. */
struct keep_terms {
	struct contract *contract;
	struct keep_bound *bounds;
	struct scheduler_def *defs; /* one for each scheduler of the contract */
	char **failed;              /* names of their events */
	char **pruned;
	size_t refs;
};

enum keep_state { KEEP_IDLE, KEEP_OPEN, KEEP_BOUND, KEEP_SLICE, KEEP_CLOSE };

/* The sweeps of one scheduler. */
struct keep_worker {
	struct keeper *keeper;
	struct scheduler *scheduler;
	size_t number; /* of its scheduler in the contract */
	struct foreign *f;
	struct lease *lease;

	enum keep_state state;
	struct sweep_request look; /* asks for a first look */
	bool looking;              /* the sweep under way only counts what is due */
	struct offload job;
	bool busy;           /* a job is under way: it has everything below */
	lapse_us rest_until; /* monotonic: no job before */
	size_t at;           /* the bound being swept */
	lapse_ms now;        /* of the sweep */
	lapse_ms trusted;    /* given to the job that opens */
	int err;             /* the first failure of the tick; the sweep goes on */

	/* Results of a job. */
	int job_err;
	char job_error[512];
	struct foreign *opened;
	lapse_ms theirs;
	struct findings findings;
	bool has_findings;
	struct rule *rule;
	struct plan_row count;
	bool wants_count, has_count;
	struct pass *pass;
	int64_t removed;
	bool more;
	bool lagging;     /* a standby is too far behind: nothing was removed */
	lapse_us lag_at;  /* monotonic: when that was last looked at */
	bool interrupted; /* the sweep ends before its time */

	struct held_keys held;
	int64_t slice;     /* number of the slice under way, 0 = none */
	lapse_us held_at;  /* monotonic: the holds are at least as new */
	int64_t intended;  /* rows of the intent that is not settled */
	int64_t unsettled; /* rows removed since the intent was written, not in our store yet */
	lapse_us lease_at; /* monotonic: when the lease was last renewed */
	lapse_us slice_at; /* when the slice began */
	bool covered;      /* an approval was given; cutoffs count from then */
	lapse_ms covered_at;
};

struct keeper {
	struct engine *e;
	char *file;
	struct keep_terms *terms, *next; /* next = read anew, waits for its turn */
	struct keep_worker *workers;     /* one for each scheduler */
	char holder[64];

	struct offload reload;
	bool reloading;
	struct checked checked; /* of the last check, by a reload */
	bool is_checked;
	struct buf error; /* why the last reload was refused; empty = it was not */
};

struct keepers {
	uint32_t magic;
	struct keeper *all[KEEPERS_MAX];
	size_t count;
	int64_t slices; /* so far: numbers of slices */
	bool looks;     /* contracts are looked at when they come */
	bool stopping;
	bool winding_down; /* no further slice begins; sweeps end by themselves */
};

struct keepers *keepers_of(const struct engine *e);

/* keep_terms.c */

struct keep_terms *terms_new(struct contract *c); /* takes the contract */
void terms_release(struct keep_terms *t);

/* Totals go on counting where a bound keeps its name. */
void terms_carry_totals(const struct keep_terms *from, struct keep_terms *to);

/* What the last sweep left of a bound, and why: members of a JSON object. */
void keep_bound_write(const struct keep_bound *b, struct buf *out);

/* keep_sweep.c: the chain of jobs */

static inline struct engine *worker_engine(const struct keep_worker *w)
{
	return w->keeper->e;
}

static inline struct keep_terms *worker_terms(const struct keep_worker *w)
{
	return w->keeper->terms;
}

static inline struct keep_bound *worker_bound(const struct keep_worker *w)
{
	assert(w->at < worker_terms(w)->contract->bounds_count);
	return &worker_terms(w)->bounds[w->at];
}

static inline struct keep_worker *worker_of(struct offload *o)
{
	return CONTAINER_OF(o, struct keep_worker, job);
}

void worker_begin(struct engine *e, struct scheduler *s);
void worker_step(struct keep_worker *w);
void worker_stop(struct keep_worker *w);
void worker_done(struct keep_worker *w);
lapse_us worker_next_us(const struct keep_worker *w); /* INT64_MAX = nothing to do */

void worker_job(struct keep_worker *w, void (*work)(struct offload *),
		void (*done)(struct offload *));
void worker_job_failed(struct keep_worker *w, int err, const char *words); /* says the job */

/* The tick has failed, but goes on with the other bounds. */
void worker_failed(struct keep_worker *w, int err, const char *words);
void worker_bound_failed(struct keep_worker *w, int err, const char *words);

void worker_forget_bound(struct keep_worker *w);
void worker_next_bound(struct keep_worker *w);

/* A connection that failed is not used again. */
void worker_drop_connection(struct keep_worker *w);

/* keep_bound.c: the next bound of this scheduler that may be swept now. */
void worker_start_bound(struct keep_worker *w);

/* keep_slice.c */
void worker_start_slice(struct keep_worker *w);

/* keep_told.c */

/* Before a slice of up to so many rows: an intent covers them, and its holds are read. */
int worker_intend(struct keep_worker *w, int64_t rows);

/* After it: holds that other replicas are asked for need not wait for it any more. */
void worker_slice_over(struct keep_worker *w);

/* What the last slices removed, and the next intent; 0 = there is none. */
int worker_settle(struct keep_worker *w, int64_t intend);

/* One event for the tick. */
void worker_tell(struct keep_worker *w);

/* Tells, once, what an earlier run left open. */
int keep_recover(struct keeper *k, struct keep_terms *terms);

/* With the lease, before the first slice: tells what an earlier holder of it did not. */
int worker_recover(struct keep_worker *w);

#endif
