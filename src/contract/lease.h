/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sweeps a user's database when several daemons keep the same contract.
 *
 * With the table lapse_leases in that database there is one row per scheduler: a holder renews it
 * while it sweeps, and its fencing token is checked in every transaction that deletes, so a holder
 * that was stopped for too long deletes nothing any more. Without the table, PostgreSQL daemons
 * take turns slice by slice with an advisory lock of the transaction; SQLite daemons, which are on
 * one machine, lock a file beside the database.
 *
 *	lease_new → lease_take (each tick) → { lease_fence in each deleting transaction } →
 *	lease_give → lease_free
 */
#ifndef LAPSE_CONTRACT_LEASE_H
#define LAPSE_CONTRACT_LEASE_H

#include "contract/foreign.h"

#define LEASE_MS 30000 /* how long a lease lasts without renewal */

struct lease;

int lease_table_exists(struct foreign *f, bool *ret);
int lease_table_create(struct foreign *f);

/* `scheduler` is its full name, `holder` names this process; both are copied. */
struct lease *lease_new(const char *scheduler, const char *holder, const char *database);
void lease_free(struct lease *l); /* takes NULL; gives up the file lock */

/* Takes or renews. LAPSE_EBUSY: another holder has it. */
int lease_take(struct lease *l, struct foreign *f);

/* Inside a transaction that deletes. LAPSE_EPRECONDITION: the lease is another's by now.
 * LAPSE_ERETRY: another replica is in a slice at this moment. */
int lease_fence(struct lease *l, struct foreign *f);

/* Gives it back, so that another can take it at once. */
void lease_give(struct lease *l, struct foreign *f);

/* 0 without the table. */
int64_t lease_token(const struct lease *l);

#endif
