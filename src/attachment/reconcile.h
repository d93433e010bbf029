/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check after a start: files without a row, rows without a file, leftovers of files that never
 * got their name. A crash leaves the first and the last; the second comes from outside lapse.
 *
 * It runs beside everything else, a slice at a time on a worker, with the engine's reader: some
 * thousand files of one of the 256 directories, or some hundred rows. It only looks at ids up to
 * the newest one at the start. Such an id can lose its row meanwhile but cannot get one; so what
 * is being staged now is never taken for a leftover. What is being removed now loses its row, then
 * its file, then its intent; so an id that was not found is looked for a second time, in the other
 * place. What a slice finds stays true until the loop acts on it.
 *
 * What it finds: a file without a row and without an intent to delete it gets that intent. A row
 * without its file goes, with an event that says why; one that is held is reported and stays. When
 * more than half of the rows, and at least MISSING_MIN, have no file, or not one of the 256
 * directories is there, it is likelier that files/ is not mounted than that they are all gone:
 * nothing is removed, now or by readers, and the log says so. Files that are older than the store
 * itself are of another one, whose database was lost or moved: they are reported and stay. During
 * the grace after a restore nothing is removed either; the check comes again when it is over. What
 * cannot be read is counted and passed by, and what is not a file with a name of ours in its place
 * is left alone.
 */
#ifndef LAPSE_ATTACHMENT_RECONCILE_H
#define LAPSE_ATTACHMENT_RECONCILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "engine/offload.h"
#include "store/blob.h"

#define RECONCILE_MEND_MAX 64 /* rows removed by one transaction: about a millisecond */

enum reconcile_phase {
	RECONCILE_TOP,
	RECONCILE_FILES,
	RECONCILE_ROWS,
	RECONCILE_MEND,
	RECONCILE_DONE
};

struct reconcile {
	struct offload offload;
	enum reconcile_phase phase;
	bool present[BLOB_FANOUT]; /* the directories there are */
	bool has_directories;
	bool busy;           /* a slice is on a worker */
	int64_t newest;      /* ids beyond it are not ours to judge */
	int64_t oldest;      /* nor are those below it: this store did not exist then */
	lapse_us not_before; /* monotonic */

	/* Of the slice. */
	int directory;
	DIR *dir;           /* the one being read; NULL = none */
	int64_t after;      /* rows: go on behind this id */
	bool more;          /* there is more in this directory, or in the table */
	struct buf orphans; /* paths, each with its NUL */
	int err;

	int64_t checked;  /* rows */
	int64_t *missing; /* rows without a file: those that can be remembered */
	size_t missing_count, mended;
	int64_t missing_total; /* all of them */
	bool files_gone;       /* too many of them: nothing is removed in this life */
	int64_t reported;      /* files without a row */
	int64_t temporary;     /* files removed that never got their name */
	int64_t older;         /* files from before this store */
	int64_t unreadable;    /* directories and files that could not be looked at */
	char unreadable_first[BLOB_PATH_MAX + 64];
};

struct engine;

void reconcile_init(struct reconcile *x, int64_t oldest, int64_t newest);
void reconcile_done(struct reconcile *x);
void reconcile_tick(struct engine *e);
lapse_us reconcile_next_us(const struct engine *e);

/* Whether a file that is met missing by chance ends its row: not before the check has said that
 * the others are there. */
bool reconcile_lets_mend(const struct engine *e);

/* Removes those of the rows that are there and not held, in one transaction, and tells of them once
 * it has committed. RECONCILE_MEND_MAX at most. */
int reconcile_mend_rows(struct engine *e, const int64_t *ids, size_t n);

/* Its looking half (reconcile_look.c): one slice, on a worker. */
void reconcile_look(struct offload *slice);
void reconcile_close_directory(struct reconcile *x);

#endif
