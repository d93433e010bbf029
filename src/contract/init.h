/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A first contract for a database: looks at every table and proposes bounds where a column's name
 * and type say when a row may go. Each guess says why it was made. What does not check (an index is
 * missing) is proposed as a comment, so that the file can be used as it is.
 */
#ifndef LAPSE_CONTRACT_INIT_H
#define LAPSE_CONTRACT_INIT_H

#include "contract/check.h"

/* `database` is what the user typed, in a form contract_database() reads. Only reads. */
int contract_init(struct foreign *f, const char *database, lapse_ms now, struct buf *out);

#endif
