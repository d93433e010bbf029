/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The depot: what the room has in memory. Files that are to be deleted, the check after a start
 * (attachment/reconcile.h), and how many local files are being copied.
 *
 * Files go in batches, off the loop. The cleaner starts a deletion only when its intent, and with
 * it the end of its row, is durable. Start: with the engine. Shutdown: a batch under way ends; the
 * intents of the others stand.
 */
#ifndef LAPSE_ATTACHMENT_DEPOT_H
#define LAPSE_ATTACHMENT_DEPOT_H

#include <assert.h>

#include "attachment/reconcile.h"
#include "engine/engine.h"

#define DEPOT_BATCH CLEANUP_RUNNING_MAX
#define DEPOT_MISSING_MAX                                                                          \
	RECONCILE_MEND_MAX /* missing files that reads have reported, not checked yet */
#define DEPOT_COPIES_MAX 4 /* local files copied at once: each has a worker for long */

struct batch {
	struct offload offload;
	size_t count;
	struct cleanup *cleanups[DEPOT_BATCH];
	int errs[DEPOT_BATCH];
	char whys[DEPOT_BATCH][128];
};

/* A local file on its way into a blob. Owned by the caller until done() was called. */
struct copy {
	struct offload offload;
	struct list link;
	void (*run)(struct copy *c);  /* off the loop */
	void (*done)(struct copy *c); /* on it, after that, or instead: `err` is then set */
	int err;
};

#define DEPOT_FILES_KEY "files" /* wakes calls that wait for deletions of files */
#define DEPOT_MAGIC 0x4c445054u

struct depot {
	uint32_t magic;
	char *root;            /* the data directory, absolute */
	struct batch deleting; /* under way while `busy` */
	bool busy;
	size_t waiting_count;
	struct cleanup *waiting[DEPOT_BATCH];

	struct reconcile reconcile;
	int64_t missing[DEPOT_MISSING_MAX];
	size_t missing_count;
	int64_t orphans_found, missing_found; /* since the start */

	int copying;        /* local files, now */
	struct list copies; /* struct copy: waiting for their turn */
	bool stopping;
};

static inline struct depot *depot_of(const struct engine *e)
{
	struct depot *d = engine_room(e, ROOM_ATTACHMENT);

	assert(d && d->magic == DEPOT_MAGIC);
	return d;
}

/* A read has found that the file of this row is gone. */
void depot_report_missing(struct engine *e, int64_t id);

/* Runs it, once fewer than DEPOT_COPIES_MAX are under way. */
void depot_copy(struct engine *e, struct copy *c);

extern const struct room ATTACHMENT_ROOM;
extern const struct cleanup_kind CLEANUP_ATTACHMENT;

#endif
