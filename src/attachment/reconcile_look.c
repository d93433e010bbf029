/* SPDX-License-Identifier: Apache-2.0 */
/* The looking half of the check, on a worker: a slice finds, and touches nothing but leftovers that
 * never got a name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attachment/reconcile.h"
#include "base/mem.h"
#include "engine/engine.h"

#define SLICE_ROWS 500     /* looked at by one slice */
#define SLICE_FILES 5000   /* the same; the directory stays open in between */
#define SLICE_ORPHANS 100  /* found by one slice: their intents are one transaction */
#define LOOKUPS_A_LOCK 100 /* the reader is also the metrics' */
#define MISSING_MAX 100000 /* remembered; the rest waits for the next start */

void reconcile_close_directory(struct reconcile *x)
{
	if (x->dir)
		closedir(x->dir);
	x->dir = NULL;
}

/* What cannot be looked at is told of and passed by: it says nothing about the rest. */
static void note_unreadable(struct reconcile *x, const char *path, int error)
{
	if (x->unreadable++ == 0)
		snprintf(x->unreadable_first, sizeof(x->unreadable_first), "%s: %s", path,
			 strerror(error));
}

/* Not opendir(): ThreadSanitizer does not see that it makes a descriptor, nor that libuv closes
 * sockets by a raw system call, and would take the two for one. */
static DIR *open_listing(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir) {
		int error = errno;
		close(fd);
		errno = error;
	}
	return dir;
}

/* Running out of descriptors or memory passes; everything else is the directory's own. */
static int open_directory(struct reconcile *x, const char *name)
{
	char path[DATADIR_PATH_MAX];
	int r = datadir_file(x->offload.engine->settings->data_dir, name, path);

	if (r < 0)
		return r;
	x->dir = open_listing(path);
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
	reconcile_close_directory(x);
}

/* Files, on a worker */

static const struct db_stmt HAS_ROW = {
	"SELECT 1 FROM attachments WHERE id = $1 AND checksum = $2 UNION ALL "
	"SELECT 1 FROM cleanups WHERE kind = 'attachment' AND target = $3"
};

static int is_known_blob(struct db *db, const char *checksum, int64_t id, const char *path)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &HAS_ROW);

	db_bind_int(&q, 1, id);
	db_bind_text(&q, 2, checksum);
	db_bind_text(&q, 3, path);
	return db_step(&q);
}

/* Asked after no row and no intent was found for it: a file that is still there had none before,
 * either. One that is gone was removed while we looked, together with its row and its intent. */
static bool is_there(const struct reconcile *x, const char *name)
{
	struct stat st;

	return fstatat(dirfd(x->dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* 1 = it is an orphan. Anything but a file with a name of ours, in its place, is left alone. */
static int judge_file(struct reconcile *x, struct db *db, const char *name,
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
	int r = is_known_blob(db, checksum, id, path);
	if (r != 0 || !is_there(x, name))
		return r < 0 ? r : 0;
	x->older += id < x->oldest;
	return id >= x->oldest;
}

/* Some of the directory, under one lock. False = that was its end, or an error. */
static bool look_at_some(struct reconcile *x, struct db *reader, const char *name, size_t *found)
{
	char path[BLOB_PATH_MAX];

	for (int i = 0; i < LOOKUPS_A_LOCK; i++) {
		const struct dirent *entry = next_entry(x, name);
		int r = entry ? judge_file(x, reader, entry->d_name, path) : 0;
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
	struct store *s = x->offload.engine->store;
	size_t found = 0;

	x->more = true;
	for (int seen = 0; x->more && seen < SLICE_FILES && found < SLICE_ORPHANS;
	     seen += LOOKUPS_A_LOCK) {
		struct db *reader = store_take_reader(s);
		x->more = look_at_some(x, reader, name, &found);
		store_give_reader(s, reader);
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
		reconcile_close_directory(x);
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
	struct store *s = x->offload.engine->store;
	struct db *reader = store_take_reader(s);
	size_t n = 0;
	int r;

	{
		struct db_query CLEANUP(db_finish) q = db_query(reader, &ROWS);
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
	store_give_reader(s, reader);
	*ret_n = n;
	return r;
}

static const struct db_stmt ROW = { "SELECT 1 FROM attachments WHERE id = $1" };

/* After its file was not: one that is gone by now went with it, while we looked. */
static int has_row(struct engine *e, int64_t id)
{
	struct db *reader = store_take_reader(e->store);
	struct db_query q = db_query(reader, &ROW);

	db_bind_int(&q, 1, id);
	int r = db_step(&q);
	db_finish(&q);
	store_give_reader(e->store, reader);
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

void reconcile_look(struct offload *o)
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
