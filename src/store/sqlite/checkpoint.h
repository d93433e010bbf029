/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpointer: a thread with a connection of its own that moves SQLite's write-ahead log into
 * the database, so that the loop never waits for that fsync, and that keeps the log bounded.
 *
 * It copies every mebibyte, beside the writer. Once the log is large, or beyond its limit, it
 * holds the writer back for the little that is left, so that the log starts over.
 *
 * Start: checkpointer_start() after migrations. Hand-over: the writer's connection reports the
 * log's size after each commit (checkpointer_note), which wakes the thread when a copy is due.
 * Shutdown: checkpointer_stop() finishes the checkpoint under way and joins. Failure: counted and
 * tried again with the next commit; the log stays, nothing is lost. A failed sync of the database
 * is different: the kernel has forgotten pages that count as copied, so the process ends at once
 * and the next start replays the log.
 */
#ifndef LAPSE_STORE_SQLITE_CHECKPOINT_H
#define LAPSE_STORE_SQLITE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "store/db.h"

struct checkpointer;

/* `writer` is only told where to report; the thread never uses it. */
int checkpointer_start(const struct db_config *config, struct db *writer, int64_t wal_max_bytes,
		       struct checkpointer **ret, struct problem *p);
void checkpointer_stop(struct checkpointer *c); /* takes NULL */

/* Around a write transaction: it waits for a hard checkpoint, and the other way round. Waiting here
 * is a wait; waiting for SQLite's own lock would be a poll that gives up. */
void checkpointer_hold(struct checkpointer *c);
void checkpointer_release(struct checkpointer *c);

/* The decisions, without state. At what size a log of this size is copied next; one beyond its
 * limit could not start over, and is tried again soon. */
int64_t checkpoint_next(int64_t wal_bytes, int64_t max_bytes);

/* Whether the writer is to wait until the log has started over, of which so much is left to copy.
 */
bool checkpoint_starts_over(int64_t wal_bytes, int64_t left, int64_t max_bytes);

/* The log's size after the last commit, and how many checkpoints failed. */
int64_t checkpointer_wal_bytes(struct checkpointer *c);
int64_t checkpointer_errors(struct checkpointer *c);

#endif
