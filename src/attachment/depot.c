/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/depot.h"

#include <assert.h>
#include <stdio.h>

#include "attachment/attachment.h"
#include "base/mem.h"
#include "store/migrate.h"

/* Deleting files */

static void delete_batch(struct offload *o) /* on a worker */
{
	struct batch *b = CONTAINER_OF(o, struct batch, offload);

	for (size_t i = 0; i < b->count; i++)
		b->errs[i] =
			CLEANUP_FILE.remove(o->engine->settings->data_dir, b->cleanups[i]->target,
					    b->whys[i], sizeof(b->whys[i]));
}

static void batch_deleted(struct offload *o)
{
	struct batch *b = CONTAINER_OF(o, struct batch, offload);

	o->engine->depot->busy = false;
	for (size_t i = 0; i < b->count; i++)
		cleanup_settle(o->engine, b->cleanups[i], b->errs[i], b->whys[i]);
	b->count = 0;
}

static void start_batch(struct engine *e)
{
	struct depot *d = e->depot;

	if (d->busy || d->waiting_count == 0)
		return;
	for (size_t i = 0; i < d->waiting_count; i++) {
		d->deleting.cleanups[i] = d->waiting[i];
		d->deleting.whys[i][0] = '\0';
	}
	d->deleting.count = d->waiting_count;
	d->waiting_count = 0;
	d->busy = true;
	offload_start(e, &d->deleting.offload);
}

/* The next tick deletes it, with all others that were started by then. */
static void start_cleanup(struct engine *e, struct cleanup *c)
{
	assert(e->depot->waiting_count < DEPOT_BATCH);
	e->depot->waiting[e->depot->waiting_count++] = c;
}

const struct cleanup_kind CLEANUP_ATTACHMENT = {
	.name = "attachment",
	.running_max = DEPOT_BATCH,
	.attempts_max = offsetof(struct settings, cleanup_max_attempts),
	.dead = EVENT_DEAD_LETTER,
	.start = start_cleanup,
};

/* Missing files that were met by chance */

void depot_report_missing(struct engine *e, int64_t id)
{
	struct depot *d = e->depot;

	for (size_t i = 0; i < d->missing_count; i++)
		if (d->missing[i] == id)
			return;
	if (d->missing_count < DEPOT_MISSING_MAX) /* else the next reader reports it */
		d->missing[d->missing_count++] = id;
}

static void mend_missing(struct engine *e)
{
	struct depot *d = e->depot;

	if (d->missing_count == 0 || !reconcile_lets_mend(e))
		return;
	reconcile_mend_rows(e, d->missing,
			    d->missing_count); /* else the next reader reports them */
	d->missing_count = 0;
}

/* Local files being copied */

static void run_copy(struct offload *o) /* on a worker */
{
	struct copy *c = CONTAINER_OF(o, struct copy, offload);

	c->run(c);
}

static void copied(struct offload *o)
{
	struct copy *c = CONTAINER_OF(o, struct copy, offload);
	struct depot *d = o->engine->depot;
	struct list *next = list_shift(&d->copies);

	d->copying--;
	if (next)
		depot_copy(o->engine, CONTAINER_OF(next, struct copy, link));
	c->done(c);
}

void depot_copy(struct engine *e, struct copy *c)
{
	struct depot *d = e->depot;

	list_init(&c->link);
	if (d->copying == DEPOT_COPIES_MAX) {
		list_append(&d->copies, &c->link);
		return;
	}
	d->copying++;
	c->offload = (struct offload){ .work = run_copy, .done = copied };
	offload_start(e, &c->offload);
}

/* Life */

static int load(struct tx *tx)
{
	struct engine *e = tx->engine;
	struct problem p = { 0 };
	struct depot *d = e->depot = mem_zalloc(1, sizeof(*d));
	struct scheduler *s = schedule_find(e, "attachments");

	d->deleting.offload = (struct offload){ .work = delete_batch, .done = batch_deleted };
	list_init(&d->copies);
	if (e->settings->attachment_sweep_at_start && s)
		s->next_at = clock_mono(e->clock);
	int r = blob_prepare(e->settings->data_dir, &p);
	if (r < 0) /* staging will fail and say so; everything else works */
		log_message(e->log, LOG_ERROR, "attachment.no_directory", "%s", p.message);
	lapse_ms created_at = 0;
	r = meta_get(tx->db, META_CREATED_AT, 0, &created_at);
	/* Above everything an earlier life can have used, row or not; below all of this one. */
	reconcile_init(&d->reconcile, id_floor(created_at), id_next(&e->ids, tx->now));
	return r;
}

static void tick(struct engine *e)
{
	if (e->depot->stopping)
		return;
	start_batch(e);
	mend_missing(e);
	reconcile_tick(e);
}

static lapse_us next_us(const struct engine *e)
{
	const struct depot *d = e->depot;

	if (d->stopping)
		return INT64_MAX;
	if ((d->missing_count > 0 && reconcile_lets_mend(e)) || (d->waiting_count > 0 && !d->busy))
		return 0;
	return reconcile_next_us(e);
}

static void stop(struct engine *e)
{
	e->depot->stopping = true;
	for (struct list *l; (l = list_shift(&e->depot->copies)) != NULL;) {
		struct copy *c = CONTAINER_OF(l, struct copy, link);
		c->err = LAPSE_EUNAVAILABLE;
		c->done(c);
	}
}

static void done(struct engine *e)
{
	if (e->depot)
		reconcile_done(&e->depot->reconcile);
	free(e->depot);
	e->depot = NULL;
}

static void write_metrics(const struct engine *e, struct buf *out)
{
	const struct depot *d = e->depot;

	attachment_write_metrics(e, out);
	metrics_family(out, METRIC_ATTACHMENTS_MENDED);
	metrics_sample(out, METRIC_ATTACHMENTS_MENDED, "what=\"file_without_row\"",
		       d->orphans_found);
	metrics_sample(out, METRIC_ATTACHMENTS_MENDED, "what=\"row_without_file\"",
		       d->missing_found);
	metrics_sample(out, METRIC_ATTACHMENTS_MENDED, "what=\"temporary\"",
		       d->reconcile.temporary);
}

const struct bound_memory DEPOT_MEMORY = {
	.load = load,
	.tick = tick,
	.next_us = next_us,
	.stop = stop,
	.done = done,
	.write_metrics = write_metrics,
};
