/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/reconcile.h"

#include <assert.h>
#include <string.h>

#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "base/mem.h"
#include "engine/job.h"

#define MISSING_MIN 10             /* so many and more than half: nothing is removed */
#define PAUSE_US 5000              /* between two slices */
#define AGAIN_US INT64_C(60000000) /* after a slice that failed */

void reconcile_done(struct reconcile *x)
{
	reconcile_close_directory(x);
	buf_done(&x->orphans);
	free(x->missing);
}

/* What follows, on the loop */

static bool in_grace(const struct engine *e)
{
	return guard_in_grace(e->restored_at, 0, clock_wall(e->clock));
}

static int doom_orphans(struct tx *tx, void *arg)
{
	const struct reconcile *x = arg;
	const char *path = buf_text(&x->orphans), *end = path + x->orphans.len;

	for (; path < end; path += strlen(path) + 1) {
		int r = cleanup_add(tx, "", &CLEANUP_ATTACHMENT, path);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

static int64_t count_orphans(const struct reconcile *x)
{
	int64_t n = 0;

	for (size_t i = 0; i < x->orphans.len; i++)
		n += x->orphans.data[i] == '\0';
	return n;
}

static int settle_orphans(struct engine *e, struct reconcile *x)
{
	int64_t n = count_orphans(x);

	if (n == 0)
		return LAPSE_OK;
	if (in_grace(e)) {
		x->reported += n;
		return LAPSE_OK;
	}
	int r = job_do(e, JOB_LAZY, doom_orphans, x);
	if (r == LAPSE_OK) {
		x->reported += n;
		depot_of(e)->orphans_found += n;
	}
	return r;
}

static void log_row(const struct engine *e, int64_t id, bool held)
{
	char text[ID_TEXT_LEN + 1];

	id_format(id, text);
	log_message(e->log, LOG_WARN, "attachment.file_missing",
		    "the file of attachment %s is gone or was changed: %s", text,
		    held ? "its row is held and stays" : "its row was removed");
}

enum mended { MENDED_NOT, MENDED_GONE, MENDED_HELD };

static int mend_row(struct tx *tx, int64_t id, enum mended *ret)
{
	bool held = false;
	int r = attachment_delete_broken(tx, id, &held);

	if (r < 0)
		return r;
	*ret = held ? MENDED_HELD : r > 0 ? MENDED_GONE : MENDED_NOT;
	return LAPSE_OK;
}

struct mending {
	const int64_t *ids;
	size_t n;
	enum mended how[RECONCILE_MEND_MAX];
};

static int mend_rows(struct tx *tx, void *arg)
{
	struct mending *x = arg;
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < x->n; i++)
		r = mend_row(tx, x->ids[i], &x->how[i]);
	return r;
}

int reconcile_mend_rows(struct engine *e, const int64_t *ids, size_t n)
{
	struct mending x = { .ids = ids, .n = n };

	assert(n <= RECONCILE_MEND_MAX);
	int r = job_do(e, JOB_LAZY, mend_rows, &x);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		if (x.how[i] != MENDED_NOT)
			log_row(e, ids[i], x.how[i] == MENDED_HELD);
		depot_of(e)->missing_found += x.how[i] == MENDED_GONE;
	}
	return r;
}

static void log_report(const struct engine *e, const struct reconcile *x)
{
	struct buf line;

	log_open(e->log, &line, LOG_WARN, "attachment.reconciled");
	json_put_int(&line, "files_without_row", x->reported);
	json_put_int(&line, "rows_without_file", x->missing_total);
	json_put_int(&line, "temporary", x->temporary);
	json_put_int(&line, "files_of_another_store", x->older);
	json_put_int(&line, "unreadable", x->unreadable);
	if (x->unreadable)
		json_put_text(&line, "first_unreadable", x->unreadable_first);
	json_put_int(&line, "rows", x->checked);
	log_close(e->log, &line);
}

/* Most of the files, or the very directories they were in. */
static bool looks_unmounted(const struct reconcile *x)
{
	if (x->missing_total == 0)
		return false;
	return !x->has_directories ||
	       (x->missing_total >= MISSING_MIN && x->missing_total * 2 > x->checked);
}

/* Whether to remove nothing, and say so instead. */
static bool is_suspicious(const struct engine *e, struct reconcile *x)
{
	x->files_gone = looks_unmounted(x);
	if (x->files_gone)
		log_message(
			e->log, LOG_ERROR, "attachment.files_gone",
			"%lld of %lld attachments have no file: nothing is removed; is " BLOB_DIR
			"/ where it should be?",
			(long long)x->missing_total, (long long)x->checked);
	return x->files_gone || in_grace(e);
}

static void reconcile_finish(struct engine *e, struct reconcile *x)
{
	if (x->reported || x->missing_total || x->temporary || x->older || x->unreadable)
		log_report(e, x);
	x->phase = RECONCILE_DONE;
	if (in_grace(e)) { /* once more when it is over */
		lapse_ms left = guard_grace_end(e->restored_at, 0) - clock_wall(e->clock);
		int64_t oldest = x->oldest, newest = x->newest;
		reconcile_done(x);
		reconcile_init(x, oldest, newest);
		x->not_before = clock_mono(e->clock) + (left + 1) * 1000;
	}
}

/* The next directory there is; after the last one the rows, where there are any. */
static void next_directory(const struct engine *e, struct reconcile *x)
{
	while (x->directory < BLOB_FANOUT && !x->present[x->directory])
		x->directory++;
	if (x->directory < BLOB_FANOUT)
		return;
	x->phase = matrix_of(e, &ATTACHMENT_BOUND)->live > 0 ? RECONCILE_ROWS : RECONCILE_MEND;
}

static void next_phase(struct engine *e, struct reconcile *x)
{
	if (x->phase == RECONCILE_TOP) {
		x->phase = RECONCILE_FILES;
		next_directory(e, x);
	} else if (x->phase == RECONCILE_FILES) {
		x->directory++;
		next_directory(e, x);
	} else if (x->phase == RECONCILE_ROWS) {
		x->phase = RECONCILE_MEND;
		x->mended = is_suspicious(e, x) ? x->missing_count : 0;
	}
}

static void log_retry(const struct engine *e, int err)
{
	log_message(e->log, LOG_WARN, "attachment.reconcile_failed", "%s: it will be tried again",
		    err_text(err));
}

static void slice_ended(struct offload *o)
{
	struct reconcile *x = CONTAINER_OF(o, struct reconcile, offload);
	struct engine *e = o->engine;

	x->busy = false;
	int r = x->err == LAPSE_OK ? settle_orphans(e, x) : x->err;
	buf_done(&x->orphans);
	x->not_before = clock_mono(e->clock) + (r < 0 ? AGAIN_US : PAUSE_US);
	if (r < 0) {
		reconcile_close_directory(x); /* what this slice has found must be found again */
		log_retry(e, r);
	} else if (!x->more) {
		next_phase(e, x);
	}
}

void reconcile_init(struct reconcile *x, int64_t oldest, int64_t newest)
{
	*x = (struct reconcile){ .oldest = oldest, .newest = newest };
}

static void mend_some(struct engine *e, struct reconcile *x)
{
	size_t left = x->missing_count - x->mended;
	size_t n = left < RECONCILE_MEND_MAX ? left : RECONCILE_MEND_MAX;

	int r = n > 0 ? reconcile_mend_rows(e, x->missing + x->mended, n) : LAPSE_OK;
	x->not_before = clock_mono(e->clock) + (r < 0 ? AGAIN_US : PAUSE_US);
	if (r < 0) {
		log_retry(e, r);
		return;
	}
	x->mended += n;
	if (x->mended == x->missing_count)
		reconcile_finish(e, x);
}

void reconcile_tick(struct engine *e)
{
	struct reconcile *x = &depot_of(e)->reconcile;

	if (x->phase == RECONCILE_DONE || x->busy || reconcile_next_us(e) > 0)
		return;
	if (x->phase == RECONCILE_MEND) {
		mend_some(e, x);
		return;
	}
	x->busy = true;
	x->offload = (struct offload){ .work = reconcile_look, .done = slice_ended };
	offload_start(e, &x->offload);
}

lapse_us reconcile_next_us(const struct engine *e)
{
	const struct reconcile *x = &depot_of(e)->reconcile;
	lapse_us in = x->not_before - clock_mono(e->clock);

	if (x->phase == RECONCILE_DONE || x->busy || !e->files_shared ||
	    !cluster_leads(e, ATTACHMENT_BOUND.scheduler))
		return INT64_MAX;
	return in > 0 ? in : 0;
}

bool reconcile_lets_mend(const struct engine *e)
{
	const struct reconcile *x = &depot_of(e)->reconcile;

	return x->phase == RECONCILE_DONE && !x->files_gone;
}
