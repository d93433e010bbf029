/* SPDX-License-Identifier: Apache-2.0 */
/* How far PostgreSQL's standbys are behind: a sweep slows down while one is too far. */
#ifndef LAPSE_CONTRACT_REPLICA_H
#define LAPSE_CONTRACT_REPLICA_H

#include "contract/foreign.h"

struct replica_lag {
	int64_t standbys; /* connected */
	int64_t lag_ms;   /* of the one furthest behind; 0 when it cannot be seen */
	bool visible;     /* the role may see it */
};

/* SQLite has no standbys. */
int replica_lag_read(struct foreign *f, struct replica_lag *ret);

#endif
