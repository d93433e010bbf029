/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a database: one lapsed, the replicas of one cluster together, or one command that
 * changes it offline, has it at a time. It belongs to a session and goes with it.
 */
#ifndef LAPSE_STORE_POSTGRES_LOCK_H
#define LAPSE_STORE_POSTGRES_LOCK_H

#include "store/postgres/wire.h"

/* A greeting (struct pg_config). LAPSE_EBUSY: another one has the lock, and the problem says who.
 */
int pg_lock_take(void *arg, struct wire *wire, struct problem *p);

/* The same for a replica of a cluster, which shares the lock with the others. */
int pg_lock_share(void *arg, struct wire *wire, struct problem *p);

#endif
