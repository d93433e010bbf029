/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL store: the same tables and the same SQL in a PostgreSQL database, which the
 * setting `store` names. Attachments stay files in the data directory.
 *
 * One lane, which the owner of the loop runs inline, and a reader for long reads on workers. A
 * COMMIT that was answered is durable: there is nothing to sync.
 *
 * One lapsed uses a database at a time: the lane's session holds an advisory lock. A second one is
 * refused with LAPSE_EBUSY, because two of them would sweep the same tables. Replicas of a cluster
 * (engine/cluster.h) share the lock, and their write transactions take turns.
 */
#ifndef LAPSE_STORE_POSTGRES_STORE_H
#define LAPSE_STORE_POSTGRES_STORE_H

#include "store/store.h"

int pg_store_open(const struct store_config *config, struct store **ret, struct problem *p);

#endif
