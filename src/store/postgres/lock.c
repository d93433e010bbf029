/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/lock.h"

#include <string.h>
#include <unistd.h>

/* The lock of the lapsed that uses a database. A daemon that was killed leaves its session behind
 * until the server notices, so a new one waits a little. */
#define LOCK_KEY "7881706990341218405" /* "lapse", and digits that nobody else picks */
#define LOCK_TRIES 50
#define LOCK_PAUSE_US 100000

/* Who has the lock, for the person who has to find out. */
static int refuse_second(struct wire *wire, struct problem *p)
{
	static const char HOLDER[] =
		"SELECT format('process %s of %s', a.pid, coalesce(host(a.client_addr), 'this "
		"machine')) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid "
		"WHERE l.locktype = 'advisory' AND l.granted AND l.database = a.datid "
		"AND (l.classid::bigint << 32 | l.objid::bigint) = " LOCK_KEY " LIMIT 1";
	char holder[96] = "";

	wire_ask(wire, HOLDER, holder, sizeof(holder));
	return problem_set(p, LAPSE_EBUSY, "store",
			   "another lapsed uses this database (%s): stop it, or start all of them "
			   "with --cluster",
			   holder[0] ? holder : "unknown");
}

static int take_advisory_lock(const char *ask, struct wire *wire, struct problem *p)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		char got[8] = "";
		if (i > 0)
			usleep(LOCK_PAUSE_US);
		int r = wire_ask(wire, ask, got, sizeof(got));
		if (r < 0)
			return problem_set(p, LAPSE_EUNAVAILABLE, "store", "%.200s", wire->error);
		if (strcmp(got, "t") == 0)
			return LAPSE_OK;
	}
	return refuse_second(wire, p);
}

int pg_lock_take(void *arg, struct wire *wire, struct problem *p)
{
	(void)arg;
	return take_advisory_lock("SELECT pg_try_advisory_lock(" LOCK_KEY ")", wire, p);
}

int pg_lock_share(void *arg, struct wire *wire, struct problem *p)
{
	(void)arg;
	return take_advisory_lock("SELECT pg_try_advisory_lock_shared(" LOCK_KEY ")", wire, p);
}
