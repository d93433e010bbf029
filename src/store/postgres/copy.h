/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk copies on a session: PostgreSQL's COPY in its text form, one row per line.
 *
 * A line is written here exactly as the server would write it, so that what was sent and what comes
 * back can be compared byte by byte. The session leaves the pipeline mode with the first copy and
 * does not go back: it is of no use to store/postgres/db.c after that.
 *
 * Legal order: copy_in_begin, any number of copy_in_put, copy_in_end; or copy_out by itself. After
 * an error `error` of the session says why, and the copy is over.
 */
#ifndef LAPSE_STORE_POSTGRES_COPY_H
#define LAPSE_STORE_POSTGRES_COPY_H

#include "base/buf.h"
#include "store/postgres/wire.h"

/* A value as it stands in a line; NULL is SQL's NULL. */
void copy_put_text(struct buf *line, const char *text);

/* COPY … FROM STDIN: `bytes` are whole lines. All of a copy's rows are stored, or none of them. */
int copy_in_begin(struct wire *w, const char *sql);
int copy_in_put(struct wire *w, const struct buf *bytes);
int copy_in_end(struct wire *w);

/* COPY … TO STDOUT: shows every line, with its line break. */
typedef void copy_line_fn(void *arg, const char *line, size_t n);
int copy_out(struct wire *w, const char *sql, copy_line_fn *fn, void *arg);

#endif
