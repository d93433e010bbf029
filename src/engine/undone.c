/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/undone.h"

#include <assert.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "store/migrate.h"

#define UNDONE_BY "undone_by" /* the restore that the range below is of */
#define UNDONE_AFTER "undone_after"
#define UNDONE_UPTO "undone_upto"

static int undone_find(struct engine *e)
{
	const struct {
		const char *key;
		int64_t value;
	} rows[] = {
		{ UNDONE_AFTER, e->ids.last },
		{ UNDONE_UPTO, id_floor(e->restored_at) },
		{ UNDONE_BY, e->restored_at },
	};
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < ARRAY_LEN(rows); i++)
		r = meta_set(e->db, rows[i].key, rows[i].value);
	return r;
}

int undone_load(struct engine *e)
{
	int64_t by = 0;
	int r = meta_get(e->db, UNDONE_BY, 0, &by);

	if (r == LAPSE_OK && e->restored_at != by)
		r = undone_find(e);
	if (r == LAPSE_OK)
		r = meta_get(e->db, UNDONE_AFTER, 0, &e->undone.after);
	if (r == LAPSE_OK)
		r = meta_get(e->db, UNDONE_UPTO, 0, &e->undone.upto);
	return r;
}

bool undone_has(const struct engine *e, int64_t id)
{
	assert(e->magic == ENGINE_MAGIC);
	return id > e->undone.after && id < e->undone.upto;
}
