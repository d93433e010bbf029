/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/reconcile.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "base/mem.h"

#define SLICE_ROWS 500             /* looked at by one slice */
#define SLICE_ORPHANS 1000         /* found by one slice; the directory is then looked at again */
#define LOOKUPS_A_LOCK 100         /* the reader is also the metrics' */
#define MEND_ROWS 50               /* removed by one transaction */
#define MISSING_MAX 100000         /* remembered; the rest waits for the next start */
#define MISSING_MIN 10             /* so many and more than half: nothing is removed */
#define PAUSE_US 5000              /* between two slices */
#define AGAIN_US INT64_C(60000000) /* after a slice that failed */

void reconcile_done(struct reconcile *x)
{
	buf_done(&x->orphans);
	free(x->missing);
}

/* Files, on a worker */

static const struct db_stmt HAS_ROW = {
	"SELECT 1 FROM attachments WHERE id = $1 AND checksum = $2 UNION ALL "
	"SELECT 1 FROM cleanups WHERE kind = 'attachment' AND target = $3"
};

static int is_known(struct db *db, const char *checksum, int64_t id, const char *path)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &HAS_ROW);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, checksum);
	db_bind_text(&q, 3, path);
	return db_step(&q);
}

/* 1 = it is an orphan. */
static int judge_file(const struct reconcile *x, struct db *db, const char *name,
		      char path[BLOB_PATH_MAX])
{
	char checksum[BLOB_CHECKSUM_LEN + 1];
	int64_t id;

	if (!blob_parse_name(name, checksum, &id) || id > x->newest)
		return 0;
	blob_path(checksum, id, path);
	int r = is_known(db, checksum, id, path);
	return r < 0 ? r : r == 0;
}

static void look_at_directory(struct reconcile *x, DIR *dir)
{
	struct engine *e = x->offload.engine;
	struct dirent *entry = NULL;
	size_t found = 0;

	do {
		pthread_mutex_lock(&e->reader_lock);
		for (int i = 0; i < LOOKUPS_A_LOCK && x->err == LAPSE_OK; i++) {
			char path[BLOB_PATH_MAX];
			entry = readdir(dir);
			int r = entry ? judge_file(x, e->reader, entry->d_name, path) : 0;
			if (!entry)
				break;
			if (r > 0 && ++found)
				buf_add(&x->orphans, path, strlen(path) + 1);
			x->err = r < 0 ? r : LAPSE_OK;
		}
		pthread_mutex_unlock(&e->reader_lock);
	} while (entry && x->err == LAPSE_OK && found < SLICE_ORPHANS);
	x->more = entry != NULL;
}

static void look_at_files(struct reconcile *x)
{
	char name[16], path[DATADIR_PATH_MAX];

	snprintf(name, sizeof(name), BLOB_DIR "/%02x", (unsigned)x->directory & 0xff);
	x->more = false;
	if (datadir_file(x->offload.engine->settings->data_dir, name, path) < 0)
		return;
	DIR *dir = opendir(path);
	if (!dir) { /* one that is not there holds nothing */
		x->err = errno == ENOENT ? LAPSE_OK : LAPSE_EIO;
		return;
	}
	look_at_directory(x, dir);
	closedir(dir);
}

/* Rows, on a worker */

static const struct db_stmt ROWS = {
	"SELECT id, checksum, size FROM attachments WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3"
};

struct seen {
	int64_t id, size;
	char checksum[BLOB_CHECKSUM_LEN + 1];
};

static int read_rows(struct reconcile *x, struct seen *rows, size_t *ret_n)
{
	struct engine *e = x->offload.engine;
	size_t n = 0;
	int r;

	pthread_mutex_lock(&e->reader_lock);
	{
		struct db_query CLEANUP(db_finish) q = db_query(e->reader, &ROWS);
		db_bind_int(&q, 1, x->after);
		db_bind_int(&q, 2, x->newest);
		db_bind_int(&q, 3, SLICE_ROWS);
		while ((r = db_step(&q)) > 0) {
			rows[n].id = db_int(&q, 0);
			rows[n].size = db_int(&q, 2);
			snprintf(rows[n].checksum, sizeof(rows[n].checksum), "%s", db_text(&q, 1));
			n++;
		}
	}
	pthread_mutex_unlock(&e->reader_lock);
	*ret_n = n;
	return r;
}

static void note_missing(struct reconcile *x, int64_t id)
{
	if (x->missing_count == MISSING_MAX)
		return;
	if (x->missing_count % SLICE_ROWS == 0)
		x->missing = mem_realloc(x->missing,
					 (x->missing_count + SLICE_ROWS) * sizeof(*x->missing));
	x->missing[x->missing_count++] = id;
}

static void look_at_rows(struct reconcile *x)
{
	struct seen *CLEANUP(mem_freep) rows = mem_zalloc(SLICE_ROWS, sizeof(*rows));
	size_t n = 0;

	x->err = read_rows(x, rows, &n);
	for (size_t i = 0; x->err == LAPSE_OK && i < n; i++) {
		int64_t size = -1;
		int r = blob_stat(x->offload.engine->settings->data_dir, rows[i].checksum,
				  rows[i].id, &size);
		if (r == LAPSE_ENOTFOUND || (r == LAPSE_OK && size != rows[i].size))
			note_missing(x, rows[i].id);
		else
			x->err = r;
		x->after = rows[i].id;
		x->checked++;
	}
	x->more = n == SLICE_ROWS;
}

static void run_slice(struct offload *o)
{
	struct reconcile *x = CONTAINER_OF(o, struct reconcile, offload);

	x->err = LAPSE_OK;
	if (x->phase == RECONCILE_FILES)
		look_at_files(x);
	else
		look_at_rows(x);
}

/* What follows, on the loop */

static bool in_grace(const struct engine *e)
{
	return guard_in_grace(e->restored_at, 0, clock_wall(e->clock));
}

static int doom_orphans(struct tx *tx, const struct reconcile *x, int64_t *ret_n)
{
	const char *path = buf_text(&x->orphans), *end = path + x->orphans.len;

	for (; path < end; path += strlen(path) + 1) {
		int r = cleanup_add(tx, "", &CLEANUP_ATTACHMENT, path);
		if (r < 0)
			return r;
		(*ret_n)++;
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
	int64_t n = 0;
	struct tx tx;

	if (x->orphans.len == 0)
		return LAPSE_OK;
	if (in_grace(e)) {
		x->reported += count_orphans(x);
		x->more = false; /* they would be found again */
		return LAPSE_OK;
	}
	int r = tx_begin(&tx, e);
	if (r == LAPSE_OK)
		r = doom_orphans(&tx, x, &n);
	if (r == LAPSE_OK)
		r = tx_commit_lazy(&tx);
	else
		tx_rollback(&tx);
	if (r == LAPSE_OK) {
		x->reported += n;
		e->depot->orphans_found += n;
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

void reconcile_mend_rows(struct engine *e, const int64_t *ids, size_t n)
{
	struct tx tx;
	int r = tx_begin(&tx, e);
	int64_t gone = 0;

	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		bool held = false;
		int removed = attachment_delete_broken(&tx, ids[i], &held);
		if (removed > 0 || held)
			log_row(e, ids[i], held);
		gone += removed > 0;
		r = removed < 0 ? removed : LAPSE_OK;
	}
	if (r == LAPSE_OK)
		r = tx_commit_lazy(&tx);
	else
		tx_rollback(&tx);
	if (r == LAPSE_OK)
		e->depot->missing_found += gone;
}

static void log_report(const struct engine *e, const struct reconcile *x)
{
	struct buf line;

	log_open(e->log, &line, LOG_WARN, "attachment.reconciled");
	json_put_int(&line, "files_without_row", x->reported);
	json_put_int(&line, "rows_without_file", (int64_t)x->missing_count);
	json_put_int(&line, "temporary", x->temporary);
	json_put_int(&line, "rows", x->checked);
	log_close(e->log, &line);
}

/* Whether to remove nothing, and say so instead. */
static bool is_suspicious(const struct engine *e, const struct reconcile *x)
{
	if (x->missing_count >= MISSING_MIN && (int64_t)x->missing_count * 2 > x->checked) {
		log_message(e->log, LOG_ERROR, "attachment.files_gone",
			    "%zu of %lld attachments have no file: nothing is removed; is " BLOB_DIR
			    "/ where it should be?",
			    x->missing_count, (long long)x->checked);
		return true;
	}
	return in_grace(e);
}

static void finish(struct engine *e, struct reconcile *x)
{
	if (x->reported || x->missing_count || x->temporary)
		log_report(e, x);
	x->phase = RECONCILE_DONE;
	if (in_grace(e)) { /* once more when it is over */
		lapse_ms left = guard_grace_end(e->restored_at, 0) - clock_wall(e->clock);
		int64_t newest = x->newest;
		reconcile_done(x);
		reconcile_init(x, e, newest);
		x->not_before = clock_mono(e->clock) + (left + 1) * 1000;
	}
}

/* The next directory there is; after the last one the rows, where there are any. */
static void next_directory(struct reconcile *x)
{
	while (x->directory < BLOB_FANOUT && !x->present[x->directory])
		x->directory++;
	if (x->directory < BLOB_FANOUT)
		return;
	bool found = x->reported > 0 || x->temporary > 0;
	x->phase = x->has_rows ? RECONCILE_ROWS : found ? RECONCILE_MEND : RECONCILE_DONE;
}

static void next_phase(struct engine *e, struct reconcile *x)
{
	if (x->phase == RECONCILE_FILES) {
		x->directory++;
		next_directory(x);
	} else if (x->phase == RECONCILE_ROWS) {
		x->phase = RECONCILE_MEND;
		x->mended = is_suspicious(e, x) ? x->missing_count : 0;
	}
}

static void slice_ended(struct offload *o)
{
	struct reconcile *x = CONTAINER_OF(o, struct reconcile, offload);
	struct engine *e = o->engine;

	x->busy = false;
	int r = x->err == LAPSE_OK ? settle_orphans(e, x) : x->err;
	buf_done(&x->orphans);
	x->not_before = clock_mono(e->clock) + (r < 0 ? AGAIN_US : PAUSE_US);
	if (r < 0)
		log_message(e->log, LOG_WARN, "attachment.reconcile_failed",
			    "%s: it will be tried again", err_text(r));
	else if (!x->more)
		next_phase(e, x);
}

/* What is in files/ itself: the directories, and files that had a name before they had a checksum
 * where unnamed ones do not exist. */
static void look_at_entry(struct reconcile *x, DIR *dir, const char *name)
{
	unsigned char byte;
	int64_t id;

	if (strlen(name) == 2 && hex_decode(name, (char[2]){ 0 })) {
		byte = (unsigned char)strtoul(name, NULL, 16);
		x->present[byte] = true;
	} else if (strncmp(name, "new-", 4) == 0 && id_parse(name + 4, &id) && id <= x->newest) {
		x->temporary += unlinkat(dirfd(dir), name, 0) == 0;
	}
}

void reconcile_init(struct reconcile *x, const struct engine *e, int64_t newest)
{
	char path[DATADIR_PATH_MAX];

	*x = (struct reconcile){ .newest = newest };
	int r = datadir_file(e->settings->data_dir, BLOB_DIR, path);
	DIR *dir = r < 0 ? NULL : opendir(path);
	for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
		look_at_entry(x, dir, entry->d_name);
	if (dir)
		closedir(dir);
	x->has_rows = e->states[matrix_find(e, "attachments")].live > 0;
	next_directory(x);
}

void reconcile_tick(struct engine *e)
{
	struct reconcile *x = &e->depot->reconcile;

	if (x->phase == RECONCILE_DONE || x->busy || reconcile_next_us(e) > 0)
		return;
	if (x->phase == RECONCILE_MEND) {
		size_t left = x->missing_count - x->mended;
		size_t n = left < MEND_ROWS ? left : MEND_ROWS;
		if (n > 0)
			reconcile_mend_rows(e, x->missing + x->mended, n);
		x->mended += n;
		if (x->mended == x->missing_count)
			finish(e, x);
		return;
	}
	x->busy = true;
	x->offload = (struct offload){ .work = run_slice, .done = slice_ended };
	offload_start(e, &x->offload);
}

lapse_us reconcile_next_us(const struct engine *e)
{
	const struct reconcile *x = &e->depot->reconcile;
	lapse_us in = x->not_before - clock_mono(e->clock);

	if (x->phase == RECONCILE_DONE || x->busy)
		return INT64_MAX;
	return in > 0 ? in : 0;
}
