/* SPDX-License-Identifier: Apache-2.0 */
/* The call that makes a backup. Backups that are too many go as durable intents, like the daemon's.
 */
#include "store/backup.h"

#include "lib/store.h"

struct surplus {
	struct tx *tx;
	const char *owner;
	int err;
};

static void drop(void *arg, const char *name)
{
	struct surplus *x = arg;

	if (x->err == LAPSE_OK)
		x->err = cleanup_add(x->tx, x->owner, &CLEANUP_FILE, name);
}

static int drop_surplus(struct lapse_store *s)
{
	struct surplus x = { .tx = &s->tx, .owner = s->owner };
	int r = store_begin(s);

	if (r == LAPSE_OK)
		r = backup_surplus(s->settings.data_dir, s->settings.backup_keep, drop, &x);
	if (r == LAPSE_OK)
		r = x.err;
	return store_commit(s, r);
}

int lapse_backup(struct lapse_store *store, const struct lapse_backup_file **ret_file)
{
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = store_backup(store->engine.store, &store->clock, &store->backup,
				 &store->problem);
	if (r == LAPSE_OK)
		r = drop_surplus(store);
	if (r == LAPSE_OK) {
		store->backup_file =
			(struct lapse_backup_file){ .name = store->backup.name,
						    .bytes = store->backup.bytes,
						    .created_at = store->backup.created_at };
		if (ret_file)
			*ret_file = &store->backup_file;
	}
	return store_end(store, r);
}
