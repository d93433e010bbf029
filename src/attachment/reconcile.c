/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/reconcile.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attachment/attachment.h"
#include "attachment/depot.h"
#include "base/mem.h"

#define SLICE_ROWS 500             /* looked at by one slice */
#define SLICE_FILES 5000           /* the same; the directory stays open in between */
#define SLICE_ORPHANS 100          /* found by one slice: their intents are one transaction */
#define LOOKUPS_A_LOCK 100         /* the reader is also the metrics' */
#define MISSING_MAX 100000         /* remembered; the rest waits for the next start */
#define MISSING_MIN 10             /* so many and more than half: nothing is removed */
#define PAUSE_US 5000              /* between two slices */
#define AGAIN_US INT64_C(60000000) /* after a slice that failed */

static void close_directory(struct reconcile *x)
{
	if (x->dir)
		closedir(x->dir);
	x->dir = NULL;
}

void reconcile_done(struct reconcile *x)
{
	close_directory(x);
	buf_done(&x->orphans);
	free(x->missing);
}

/* What cannot be looked at is told of and passed by: it says nothing about the rest. */
static void note_unreadable(struct reconcile *x, const char *path, int error)
{
	if (x->unreadable++ == 0)
		snprintf(x->unreadable_first, sizeof(x->unreadable_first), "%s: %s", path,
			 strerror(error));
}

/* Running out of descriptors or memory passes; everything else is the directory's own. */
static int open_directory(struct reconcile *x, const char *name)
{
	char path[DATADIR_PATH_MAX];
	int r = datadir_file(x->offload.engine->settings->data_dir, name, path);

	if (r < 0)
		return r;
	x->dir = opendir(path);
	if (x->dir || errno == ENOENT) /* one that is not there holds nothing */
		return LAPSE_OK;
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		return LAPSE_EIO;
	note_unreadable(x, name, errno);
	return LAPSE_OK;
}

/* NULL at the end, also at one that came too early. */
static const struct dirent *next_entry(struct reconcile *x, const char *name)
{
	errno = 0;
	const struct dirent *entry = readdir(x->dir);
	if (!entry && errno)
		note_unreadable(x, name, errno);
	return entry;
}

/* The top, on a worker: files/ itself */

/* Directories, and files that had a name before they had a checksum where unnamed ones do not
 * exist. */
static void look_at_entry(struct reconcile *x, const char *name)
{
	char byte[2];
	int64_t id;

	if (strlen(name) == 2 && hex_decode(name, byte)) {
		x->present[(unsigned char)byte[0]] = true;
		x->has_directories = true;
	} else if (strncmp(name, "new-", 4) == 0 && id_parse(name + 4, &id) && id <= x->newest) {
		x->temporary += unlinkat(dirfd(x->dir), name, 0) == 0;
	}
}

static void look_at_top(struct reconcile *x)
{
	x->err = open_directory(x, BLOB_DIR);
	for (const struct dirent *entry; x->dir && (entry = next_entry(x, BLOB_DIR)) != NULL;)
		look_at_entry(x, entry->d_name);
	close_directory(x);
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

/* After it was found to be unknown: a file that is still there then had nobody before, either. One
 * that is gone was removed, row and intent and all, while we looked. */
static bool is_there(const struct reconcile *x, const char *name)
{
	struct stat st;

	return fstatat(dirfd(x->dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* 1 = it is an orphan. What is not a file with a name of ours in its place is somebody else's. */
static int judge_file(const struct reconcile *x, struct db *db, const char *name,
		      char path[BLOB_PATH_MAX])
{
	char checksum[BLOB_CHECKSUM_LEN + 1], byte[BLOB_CHECKSUM_LEN / 2 + 1];
	int64_t id;

	if (!blob_parse_name(name, checksum, &id) || id > x->newest)
		return 0;
	hex_decode(checksum, byte);
	if ((unsigned char)byte[0] != x->directory)
		return 0;
	blob_path(checksum, id, path);
	int r = is_known(db, checksum, id, path);
	return r < 0 ? r : r == 0 && is_there(x, name);
}

/* Some of the directory, under one lock. False = that was its end, or an error. */
static bool look_at_some(struct reconcile *x, const char *name, size_t *found)
{
	char path[BLOB_PATH_MAX];

	for (int i = 0; i < LOOKUPS_A_LOCK; i++) {
		const struct dirent *entry = next_entry(x, name);
		int r = entry ? judge_file(x, x->offload.engine->reader, entry->d_name, path) : 0;
		if (r > 0 && ++*found)
			buf_add(&x->orphans, path, strlen(path) + 1);
		x->err = r < 0 ? r : LAPSE_OK;
		if (!entry || r < 0)
			return false;
	}
	return true;
}

static void look_at_directory(struct reconcile *x, const char *name)
{
	struct engine *e = x->offload.engine;
	size_t found = 0;

	x->more = true;
	for (int seen = 0; x->more && seen < SLICE_FILES && found < SLICE_ORPHANS;
	     seen += LOOKUPS_A_LOCK) {
		pthread_mutex_lock(&e->reader_lock);
		x->more = look_at_some(x, name, &found);
		pthread_mutex_unlock(&e->reader_lock);
	}
}

static void look_at_files(struct reconcile *x)
{
	char name[16];

	snprintf(name, sizeof(name), BLOB_DIR "/%02x", (unsigned)x->directory & 0xff);
	x->more = false;
	if (!x->dir)
		x->err = open_directory(x, name);
	if (x->dir)
		look_at_directory(x, name);
	if (!x->more)
		close_directory(x);
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

static const struct db_stmt ROW = { "SELECT 1 FROM attachments WHERE id = $1" };

/* After its file was not: one that is gone by now went with it, while we looked. */
static int has_row(struct engine *e, int64_t id)
{
	pthread_mutex_lock(&e->reader_lock);
	struct db_query q = db_query(e->reader, &ROW);
	db_bind_int(&q, 1, id);
	int r = db_step(&q);
	db_finish(&q);
	pthread_mutex_unlock(&e->reader_lock);
	return r;
}

static void note_missing(struct reconcile *x, int64_t id)
{
	x->missing_total++;
	if (x->missing_count == MISSING_MAX)
		return;
	if (x->missing_count % SLICE_ROWS == 0)
		x->missing = mem_realloc(x->missing,
					 (x->missing_count + SLICE_ROWS) * sizeof(*x->missing));
	x->missing[x->missing_count++] = id;
}

/* An error is the store's. */
static int judge_row(struct reconcile *x, const struct seen *row)
{
	struct engine *e = x->offload.engine;
	char path[BLOB_PATH_MAX];
	int64_t size = -1;
	int r = blob_stat(e->settings->data_dir, row->checksum, row->id, &size);

	if (r == LAPSE_OK && size == row->size)
		return LAPSE_OK;
	if (r < 0 && r != LAPSE_ENOTFOUND) {
		blob_path(row->checksum, row->id, path);
		note_unreadable(x, path, errno);
		return LAPSE_OK;
	}
	r = has_row(e, row->id);
	if (r > 0)
		note_missing(x, row->id);
	return r < 0 ? r : LAPSE_OK;
}

static void look_at_rows(struct reconcile *x)
{
	struct seen *CLEANUP(mem_freep) rows = mem_zalloc(SLICE_ROWS, sizeof(*rows));
	size_t n = 0;

	x->err = read_rows(x, rows, &n);
	for (size_t i = 0; x->err == LAPSE_OK && i < n; i++) {
		x->err = judge_row(x, &rows[i]);
		if (x->err < 0)
			return;
		x->after = rows[i].id;
		x->checked++;
	}
	x->more = n == SLICE_ROWS;
}

static void run_slice(struct offload *o)
{
	struct reconcile *x = CONTAINER_OF(o, struct reconcile, offload);

	x->err = LAPSE_OK;
	if (x->phase == RECONCILE_TOP)
		look_at_top(x);
	else if (x->phase == RECONCILE_FILES)
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

int reconcile_mend_rows(struct engine *e, const int64_t *ids, size_t n)
{
	enum mended how[RECONCILE_MEND_MAX] = { MENDED_NOT };
	struct tx tx;
	int r = tx_begin(&tx, e);

	assert(n <= RECONCILE_MEND_MAX);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++)
		r = mend_row(&tx, ids[i], &how[i]);
	if (r < 0) {
		tx_rollback(&tx);
		return r;
	}
	r = tx_commit_lazy(&tx);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		if (how[i] != MENDED_NOT)
			log_row(e, ids[i], how[i] == MENDED_HELD);
		e->depot->missing_found += how[i] == MENDED_GONE;
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

static void finish(struct engine *e, struct reconcile *x)
{
	if (x->reported || x->missing_total || x->temporary || x->unreadable)
		log_report(e, x);
	x->phase = RECONCILE_DONE;
	if (in_grace(e)) { /* once more when it is over */
		lapse_ms left = guard_grace_end(e->restored_at, 0) - clock_wall(e->clock);
		int64_t newest = x->newest;
		reconcile_done(x);
		reconcile_init(x, newest);
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
	x->phase =
		e->states[matrix_find(e, "attachments")].live > 0 ? RECONCILE_ROWS : RECONCILE_MEND;
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
		close_directory(x); /* what this slice has found must be found again */
		log_retry(e, r);
	} else if (!x->more) {
		next_phase(e, x);
	}
}

void reconcile_init(struct reconcile *x, int64_t newest)
{
	*x = (struct reconcile){ .newest = newest };
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
		finish(e, x);
}

void reconcile_tick(struct engine *e)
{
	struct reconcile *x = &e->depot->reconcile;

	if (x->phase == RECONCILE_DONE || x->busy || reconcile_next_us(e) > 0)
		return;
	if (x->phase == RECONCILE_MEND) {
		mend_some(e, x);
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

bool reconcile_lets_mend(const struct engine *e)
{
	const struct reconcile *x = &e->depot->reconcile;

	return x->phase == RECONCILE_DONE && !x->files_gone;
}
