/* SPDX-License-Identifier: Apache-2.0 */
/* Where a PostgreSQL store is: the setting `store`, and the options of commands that take the same.
 */
#ifndef LAPSE_STORE_POSTGRES_URI_H
#define LAPSE_STORE_POSTGRES_URI_H

#include "base/buf.h"
#include "base/err.h"

/* Appends the URI that `setting` is, or that lies in the file @PATH. It may hold a password: end
 * the buffer with secret_wipe(). */
int pg_uri_read(const char *setting, struct buf *out, struct problem *p);

#endif
