/* SPDX-License-Identifier: Apache-2.0 */
/* What a check and a plan found, as JSON: for GET /v1/contracts, and for --json of the command. */
#ifndef LAPSE_CONTRACT_REPORT_H
#define LAPSE_CONTRACT_REPORT_H

#include "contract/check.h"
#include "contract/plan.h"

/* {"contract", "database", "bounds":[…], "findings":[…]} */
void report_check(const struct contract *c, const struct checked *checked, struct buf *out);

/* {"contract", "data":[…]} */
void report_plan(const struct contract *c, const struct plan *plan, struct buf *out);

/* "sqlite" or "postgresql"; never the database's address, which may hold a password. */
const char *report_engine(const struct contract *c);

#endif
