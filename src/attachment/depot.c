/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/depot.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wait.h"
#include "attachment/attachment.h"
#include "base/mem.h"
#include "store/migrate.h"

#define YOUNG_MS INT64_C(3600000)

/* Deleting files */

static void delete_batch(struct offload *o) /* on a worker */
{
	struct batch *b = CONTAINER_OF(o, struct batch, offload);

	assert(b->count > 0 && b->count <= DEPOT_BATCH);
	for (size_t i = 0; i < b->count; i++)
		b->errs[i] =
			CLEANUP_FILE.remove(o->engine->settings->data_dir, b->cleanups[i]->target,
					    b->whys[i], sizeof(b->whys[i]));
}

static void batch_deleted(struct offload *o)
{
	struct batch *b = CONTAINER_OF(o, struct batch, offload);

	assert(depot_of(o->engine)->busy);
	depot_of(o->engine)->busy = false;
	for (size_t i = 0; i < b->count; i++)
		cleanup_settle(o->engine, b->cleanups[i], b->errs[i], b->whys[i]);
	b->count = 0;
}

static void start_batch(struct engine *e)
{
	struct depot *d = depot_of(e);

	if (d->busy || d->waiting_count == 0)
		return;
	for (size_t i = 0; i < d->waiting_count; i++) {
		d->deleting.cleanups[i] = d->waiting[i];
		d->deleting.whys[i][0] = '\0';
	}
	assert(d->deleting.count == 0);
	d->deleting.count = d->waiting_count;
	d->waiting_count = 0;
	d->busy = true;
	offload_start(e, &d->deleting.offload);
}

/* The next tick deletes it, with all others that were started by then. */
static void start_cleanup(struct engine *e, struct cleanup *c)
{
	assert(c->magic == CLEANUP_MAGIC && c->kind == &CLEANUP_ATTACHMENT);
	assert(depot_of(e)->waiting_count < DEPOT_BATCH);
	depot_of(e)->waiting[depot_of(e)->waiting_count++] = c;
}

static void wake_cleanups(struct engine *e, void *arg)
{
	(void)arg;
	waiters_wake(e, DEPOT_FILES_KEY);
}

static int file_settled(struct tx *tx, const struct cleanup_outcome *o)
{
	(void)o;
	if (waiters_exist(tx->engine))
		tx_effect(tx, wake_cleanups, NULL);
	return LAPSE_OK;
}

const struct cleanup_kind CLEANUP_ATTACHMENT = {
	.name = "attachment",
	.running_max = DEPOT_BATCH,
	.attempts_max = offsetof(struct settings, cleanup_max_attempts),
	.dead = EVENT_DEAD_LETTER,
	.needs_files = true,
	.start = start_cleanup,
	.settled = file_settled,
};

/* Missing files that were met by chance */

void depot_report_missing(struct engine *e, int64_t id)
{
	struct depot *d = depot_of(e);

	assert(d->missing_count <= DEPOT_MISSING_MAX);
	for (size_t i = 0; i < d->missing_count; i++)
		if (d->missing[i] == id)
			return;
	if (d->missing_count < DEPOT_MISSING_MAX) /* else the next reader reports it */
		d->missing[d->missing_count++] = id;
}

static void mend_missing(struct engine *e)
{
	struct depot *d = depot_of(e);

	if (d->missing_count == 0 || !reconcile_lets_mend(e))
		return;
	reconcile_mend_rows(e, d->missing,
			    d->missing_count); /* else the next reader reports them */
	d->missing_count = 0;
}

/* Local files being copied */

static void depot_run_copy(struct offload *o) /* on a worker */
{
	struct copy *c = CONTAINER_OF(o, struct copy, offload);

	c->run(c);
}

static void depot_copied(struct offload *o)
{
	struct copy *c = CONTAINER_OF(o, struct copy, offload);
	struct depot *d = depot_of(o->engine);
	struct list *next = list_shift(&d->copies);

	assert(d->copying > 0);
	d->copying--;
	if (next)
		depot_copy(o->engine, CONTAINER_OF(next, struct copy, link));
	c->done(c);
}

void depot_copy(struct engine *e, struct copy *c)
{
	struct depot *d = depot_of(e);

	assert(c->run && c->done && d->copying <= DEPOT_COPIES_MAX);
	list_init(&c->link);
	if (d->copying == DEPOT_COPIES_MAX) {
		list_append(&d->copies, &c->link);
		return;
	}
	d->copying++;
	c->offload = (struct offload){ .work = depot_run_copy, .done = depot_copied };
	offload_start(e, &c->offload);
}

/* Life */

static int depot_load(struct tx *tx)
{
	struct engine *e = tx->engine;
	struct problem p = { 0 };
	struct depot *d = mem_zalloc(1, sizeof(*d));
	struct scheduler *s = schedule_find(e, "attachments");

	assert(tx_is_open(tx));
	d->magic = DEPOT_MAGIC;
	engine_set_room(e, ROOM_ATTACHMENT, d);
	d->deleting.offload = (struct offload){ .work = delete_batch, .done = batch_deleted };
	list_init(&d->copies);
	d->root = realpath(e->settings->data_dir, NULL);
	if (e->settings->attachment_sweep_at_start && s)
		s->next_at = clock_mono(e->clock);
	int r = blob_prepare(e->settings->data_dir, &p);
	if (r < 0) /* staging will fail and say so; everything else works */
		log_message(e->log, LOG_ERROR, "attachment.no_directory", "%s", p.message);
	lapse_ms created_at = 0;
	r = meta_get(tx->db, META_CREATED_AT, 0, &created_at);
	/* Above everything an earlier life can have used, row or not; below all of this one.
	 * Another replica may be at a file now: those of the last hour are left alone. */
	int64_t below =
		e->cluster.on ? id_floor(time_sub(tx->now, YOUNG_MS)) : id_next(&e->ids, tx->now);
	reconcile_init(&d->reconcile, id_floor(created_at), below);
	return r;
}

static void depot_tick(struct engine *e)
{
	if (depot_of(e)->stopping)
		return;
	start_batch(e);
	mend_missing(e);
	reconcile_tick(e);
}

static lapse_us depot_next_us(const struct engine *e)
{
	const struct depot *d = depot_of(e);

	if (d->stopping)
		return INT64_MAX;
	if ((d->missing_count > 0 && reconcile_lets_mend(e)) || (d->waiting_count > 0 && !d->busy))
		return 0;
	return reconcile_next_us(e);
}

static void depot_stop(struct engine *e)
{
	assert(!depot_of(e)->stopping);
	depot_of(e)->stopping = true;
	for (struct list *l; (l = list_shift(&depot_of(e)->copies)) != NULL;) {
		struct copy *c = CONTAINER_OF(l, struct copy, link);
		c->err = LAPSE_EUNAVAILABLE;
		c->done(c);
	}
}

static void depot_done(struct engine *e)
{
	struct depot *d = engine_room(e, ROOM_ATTACHMENT);

	if (d) {
		reconcile_done(&d->reconcile);
		free(d->root);
	}
	free(d);
	engine_set_room(e, ROOM_ATTACHMENT, NULL);
}

static void write_metrics(const struct engine *e, struct buf *out)
{
	const struct depot *d = depot_of(e);

	attachment_write_metrics(e, out);
	metrics_family(out, METRIC_ATTACHMENTS_MENDED);
	metrics_sample(out, METRIC_ATTACHMENTS_MENDED, "what=\"file_without_row\"",
		       d->orphans_found);
	metrics_sample(out, METRIC_ATTACHMENTS_MENDED, "what=\"row_without_file\"",
		       d->missing_found);
	metrics_sample(out, METRIC_ATTACHMENTS_MENDED, "what=\"temporary\"",
		       d->reconcile.temporary);
}

const struct room ATTACHMENT_ROOM = {
	.id = ROOM_ATTACHMENT,
	.load = depot_load,
	.tick = depot_tick,
	.next_us = depot_next_us,
	.stop = depot_stop,
	.done = depot_done,
	.write_metrics = write_metrics,
};
