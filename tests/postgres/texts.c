/* SPDX-License-Identifier: Apache-2.0 */
/* Prints as JSON what is made at run time for PostgreSQL: the schema, and every bound's statements.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "rooms.h"
#include "store/migrate.h"
#include "store/schema.h"

static void put_schema(struct buf *out)
{
	struct buf CLEANUP(buf_done) sql = { 0 };

	sql_schema(&sql, DIALECT_POSTGRES, META_TABLE);
	for (const struct schema_step *s = SCHEMA; s->version; s++)
		sql_schema(&sql, DIALECT_POSTGRES, s->sql);
	json_put_text(out, "schema", buf_text(&sql));
}

static void put_statement(struct buf *out, const char *name, const struct db_stmt *stmt)
{
	if (stmt->sql)
		json_put_text(out, name, stmt->sql);
}

static void put_bound(struct buf *out, const struct bound_spec *spec)
{
	struct bound_sql sql = { 0 };
	struct problem p = { 0 };

	if (bound_compile(spec, DIALECT_POSTGRES, &sql, &p) < 0) {
		fprintf(stderr, "%s\n", p.message);
		exit(1);
	}
	json_key(out, spec->name);
	json_begin(out, '{');
	put_statement(out, "due", &sql.due);
	put_statement(out, "own_due", &sql.own_due);
	put_statement(out, "prune", &sql.prune);
	put_statement(out, "newest", &sql.newest);
	put_statement(out, "find", &sql.find);
	put_statement(out, "lock", &sql.lock);
	put_statement(out, "held", &sql.held);
	put_statement(out, "look", &sql.look);
	put_statement(out, "look_by", &sql.look_by);
	put_statement(out, "referenced", &sql.referenced);
	json_end(out, '}');
	bound_sql_done(&sql);
}

int main(void)
{
	struct buf CLEANUP(buf_done) out = { 0 };

	json_begin(&out, '{');
	put_schema(&out);
	json_key(&out, "bounds");
	json_begin(&out, '{');
	for (const struct bound_spec *const *b = ROOM_BOUNDS; *b; b++)
		put_bound(&out, *b);
	json_end(&out, '}');
	json_end(&out, '}');
	puts(buf_text(&out));
	return 0;
}
