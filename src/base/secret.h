/* SPDX-License-Identifier: Apache-2.0 */
/* Files that hold a secret, and memory that held one. */
#ifndef LAPSE_BASE_SECRET_H
#define LAPSE_BASE_SECRET_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum secret_link { SECRET_NO_LINK, SECRET_MAY_LINK };

/* Appends the file's bytes, at most `max`. LAPSE_ENOTFOUND: there is none. LAPSE_EFORBIDDEN: others
 * could read it, another user owns it, or it is no regular file; the problem says what to do.
 * A file of ours is for us alone (0600); one of root's may be readable by a group as well, which is
 * how service managers hand credentials over. */
int secret_read_file(const char *path, enum secret_link link, size_t max, struct buf *out,
		     struct problem *p);

/* buf_done() that leaves nothing behind; reserve enough before filling, growing leaves copies. */
void secret_wipe(struct buf *b);

#endif
