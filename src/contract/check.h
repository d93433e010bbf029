/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checking a whole contract against its database: every bound becomes a rule, or findings say why
 * not.
 */
#ifndef LAPSE_CONTRACT_CHECK_H
#define LAPSE_CONTRACT_CHECK_H

#include "contract/rule.h"

#define CLOCKS_APART_MS 60000 /* more than this between two clocks, and nothing is removed */

struct checked {
	struct rule **rules; /* one for each bound, in order; NULL = it cannot be kept */
	size_t count;
	struct findings findings;
};

/* Only reads. Negative when the database failed: foreign_error() says how, and `ret` is empty. A
 * struct checked must not be moved. */
int contract_check(struct foreign *f, const struct contract *c, lapse_ms now, struct checked *ret);
void checked_done(struct checked *c);

/* Opens the contract's database. `error` is one line. */
int contract_connect(const struct contract *c, struct foreign **ret, struct buf *error);

/* How a bound is walked, for people: "by the index conversations_updated_at". */
void rule_describe(const struct rule *r, struct buf *out);

#endif
