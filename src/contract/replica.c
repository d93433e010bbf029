/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/replica.h"

#include <assert.h>

int replica_lag_read(struct foreign *f, struct replica_lag *ret)
{
	static const char sql[] =
		"SELECT count(*), coalesce((extract(epoch FROM max(replay_lag)) * 1000)::bigint, "
		"0), "
		"pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') FROM pg_stat_replication";
	struct rows CLEANUP(rows_done) rows;

	rows_init(&rows);
	*ret = (struct replica_lag){ .visible = true };
	if (f->engine != FOREIGN_POSTGRES)
		return LAPSE_OK;
	int err = foreign_read(f, sql, NULL, 0, &rows);
	if (err < 0)
		return err;
	assert(rows.count == 1);
	ret->standbys = rows_int(&rows, 0, 0);
	ret->lag_ms = rows_int(&rows, 0, 1);
	ret->visible = rows_true(&rows, 0, 2);
	return LAPSE_OK;
}
