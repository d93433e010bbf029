/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets at rest: AES-256-GCM under one key of 32 bytes that lives in a file of its own, readable
 * by its owner only, never in the database and never in a backup of it.
 *
 * A sealed text is printable. It opens only with the same key and the same context (what it belongs
 * to), so a sealed secret copied into another row is worthless.
 */
#ifndef LAPSE_BASE_SEAL_H
#define LAPSE_BASE_SEAL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

#define SEAL_KEY_BYTES 32
#define SEAL_KEY_NAME "lapse.key"

struct seal {
	unsigned char key[SEAL_KEY_BYTES];
};

/* Reads the key from `path`: 64 hex digits. A missing file is made, 0600 and synced, when `make`
 * says so. One that others can read, or that is not a key, is an error that says what to do. */
int seal_load(struct seal *s, const char *path, bool make, struct problem *p);

/* The key of this store: lapse.key in the service manager's credentials directory
 * ($CREDENTIALS_DIRECTORY; NULL = none), else in the data directory, where it is made when `make`
 * says so. LAPSE_ENOTFOUND: there is none, and it was not to be made. */
int seal_find(struct seal *s, const char *data_dir, const char *credentials_dir, bool make,
	      struct problem *p);
void seal_done(struct seal *s); /* wipes the key */

/* Appends the sealed text. */
int seal_close(const struct seal *s, const char *context, const char *secret, struct buf *out);

/* LAPSE_ECORRUPT: another key, another context, or damaged. `out` gets the secret; wipe it. */
int seal_open(const struct seal *s, const char *context, const char *sealed, struct buf *out);

#endif
