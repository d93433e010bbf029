/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sealed.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "store/db.h"

/* A webhook always has a secret, a mailbox on a mail server has one. */
static const struct db_stmt ANY_SEALED = { "SELECT 1 FROM webhooks UNION ALL "
					   "SELECT 1 FROM mailboxes WHERE secret <> '' LIMIT 1" };

int sealed_any(struct db *db)
{
	struct db_query CLEANUP(db_finish) q = db_query(db, &ANY_SEALED);
	int r = db_step(&q);

	assert(r <= 1);
	return r;
}

int sealed_key(struct engine *e, struct seal *ret, struct problem *p)
{
	int sealed = sealed_any(e->db);

	assert(e->magic == ENGINE_MAGIC);
	if (sealed < 0)
		return sealed;
	return seal_find(ret, e->settings->data_dir, getenv("CREDENTIALS_DIRECTORY"), !sealed, p);
}
