/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells a PostgreSQL store that it was restored: by pg_restore, or to a point in time. It cannot
 * find that out by itself, and what it would remove because of time that has passed since the
 * backup must wait.
 */
#ifndef LAPSE_STORE_POSTGRES_RESTORED_H
#define LAPSE_STORE_POSTGRES_RESTORED_H

#include "base/clock.h"
#include "base/err.h"

/* Marks the store as store_restore() marks one of SQLite: every bound gets one grace period, and
 * cursors of the time that was taken back are known as such. `store` is a URI, or @PATH of a file
 * with one. LAPSE_EBUSY: a lapsed uses it. */
int store_restored(const char *store, lapse_ms *ret_at, struct problem *p);

#endif
