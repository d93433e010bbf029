/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping contracts: their schedulers and bounds are rows of the engine beside its own, and their
 * sweeps run beside the loop.
 *
 * A sweep of a contract's scheduler is a chain of jobs on a worker, with a turn on the loop between
 * two of them (contract/keep_sweep.c):
 *
 *	open    connect, compare clocks, take the lease
 *	bound   resolve the bound against the catalogue, count what is due where approval may be
 *		needed
 *	slice   remove rows; before it, on the loop, the intent is written to our own store, and
 *		what the slice before has removed is told
 *	close   give the lease back
 *
 * A worker has the connection, the pass and a copy of the holds; everything else belongs to the
 * loop. Without a loop (the command) jobs run at once, inside the tick.
 *
 * Failure: a bound that cannot be kept now is skipped and fails the tick; the others go on. A
 * server that is away fails the tick; the connection is opened again at the next. Reload: the new
 * file is read and checked on a worker; only one without errors replaces the old, once no sweep of
 * the contract is under way. Shutdown: running statements are cancelled; the slice is rolled back.
 */
#ifndef LAPSE_CONTRACT_KEEP_H
#define LAPSE_CONTRACT_KEEP_H

#include "contract/contract.h"
#include "engine/room.h"

struct engine;
struct keeper;
struct scheduler;

/* The room that keeps them; for the programs that do. */
extern const struct room CONTRACT_ROOM;

/* Reads the file and adds what it declares to the engine. Nothing connects yet. `error` is one
 * line. */
int keep_add(struct engine *e, const char *file, struct buf *error);

/* Counts what is due in every contract, beside the loop, so that the matrix tells before the first
 * sweep. From then on a contract that was read anew is looked at, too. */
void keep_look(struct engine *e);

/* SIGHUP: reads every file again. */
void keep_reload(struct engine *e);

/* No further slice begins: sweeps end by themselves, with what they have done. */
void keep_wind_down(struct engine *e);

/* By the contract's name; NULL where there is none. */
struct keeper *keep_find(const struct engine *e, const char *name);

/* For GET /v1/contracts; `write` is one object. */
size_t keep_count(const struct engine *e);
void keep_write(const struct engine *e, size_t i, struct buf *out);

/* How far the sweeps of a contract are: rows removed, and rows counted as due, 0 = not known. */
void keep_progress(const struct keeper *k, int64_t *ret_removed, int64_t *ret_expected);

/* What its sweeps did, bound by bound: {"contract", "removed", "upper_bound", "data":[…]}. Returns
 * whether all bounds were swept. */
bool keep_write_result(const struct keeper *k, struct buf *out);

/* Approves everything of the contract that waits for a person, for a caller who says so. *ret_any =
 * something waited: its schedulers want to sweep again. */
int keep_approve(struct keeper *k, bool *ret_any);

/* The schedulers of a contract; NULL after the last. */
struct scheduler *keep_scheduler(const struct keeper *k, size_t i);

/* Whether a bound is one of a contract's. */
bool keep_has_bound(const struct engine *e, const char *bound);

/* Bounds that wait for a person; "" = none. */
void keep_write_waiting(const struct engine *e, struct buf *out);

/* An approval was given: the bound's scheduler sweeps at once. */
void keep_approved(struct engine *e, const char *bound);

#endif
