/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attachments: the operations and their SQL. Seed 003.
 *
 * An attachment is a row and its file (store/blob.h). The file is durable before the row exists,
 * and the row is gone, durably, before the file is removed; so a row always has its file, and a
 * file without a row is at worst the leftover of a crash (attachment/reconcile.h). Every operation
 * runs inside the caller's transaction; what belongs to another owner does not exist.
 */
#ifndef LAPSE_ATTACHMENT_ATTACHMENT_H
#define LAPSE_ATTACHMENT_ATTACHMENT_H

#include "attachment/rules.h"
#include "engine/tx.h"
#include "store/blob.h"

struct attachment {
	int64_t id; /* of the row and of the file */
	const char *owner, *checksum, *name;
	int64_t size;
	struct attachment_terms terms;
	lapse_ms inserted_at;
	lapse_ms due_at; /* LAPSE_NEVER = it stays */
	bool cached;     /* the last staging found these bytes here */
};

/* The row lives until fn returns. */
typedef void attachment_fn(void *arg, const struct attachment *a);

struct attachment_draft {
	const char *name;
	struct attachment_terms terms;
	int64_t broken; /* id of a row whose file the caller found missing; 0 = none */
};

/* Makes the finished blob the owner's attachment. The owner's live row with the same bytes is
 * refreshed instead, and the blob is of no further use; one past its lifetime is removed first.
 * LAPSE_ELIMIT when all attachments together would have more than attachment_total_bytes. */
int attachment_stage(struct tx *tx, const char *owner, struct blob *b,
		     const struct attachment_draft *d, attachment_fn *fn, void *arg,
		     struct problem *p);

/* Stages again bytes that the owner has, without sending them: refreshes the live row.
 * LAPSE_ENOTFOUND when the owner does not have them, or when the caller found the file of the row
 * missing (d->broken). */
int attachment_restage(struct tx *tx, const char *owner, const char *checksum,
		       const struct attachment_draft *d, attachment_fn *fn, void *arg);

/* LAPSE_ENOTFOUND; LAPSE_EEXPIRED for one past its lifetime that no sweep has met yet. */
int attachment_get(struct tx *tx, const char *owner, const char *checksum, attachment_fn *fn,
		   void *arg);

/* The id and size of the row a staging of these bytes would refresh; id 0 where there is none. */
int attachment_peek(struct tx *tx, const char *owner, const char *checksum, int64_t *ret_id,
		    int64_t *ret_size);

/* Live ones with an id below `before`, newest first, at most `limit`. */
int attachment_list(struct tx *tx, const char *owner, int64_t before, int64_t limit,
		    attachment_fn *fn, void *arg);

/* LAPSE_ENOTFOUND; LAPSE_ECONFLICT while it is held. */
int attachment_delete(struct tx *tx, const char *owner, const char *checksum);

struct attachment_metrics;

/* Removes up to `limit` attachments of the owner that are due. *ret_gone = how many, and how large.
 */
int attachment_clean_owner(struct tx *tx, const char *owner, int64_t limit,
			   struct attachment_metrics *ret_gone);

/* Files whose deletion was noted up to the id `mark`, of one owner or ("") of all: whether one was
 * not tried yet, and how many are there still, tried or not. */
int attachment_files_untried(struct db *db, const char *owner, int64_t mark, bool *ret);
int attachment_files_left(struct db *db, const char *owner, int64_t mark, int64_t *ret);

/* Removes the row with this id because its file is gone. 1 = done, 0 = there is no such row, or it
 * is held. *ret_held says which. */
int attachment_delete_broken(struct tx *tx, int64_t id, bool *ret_held);

struct attachment_metrics {
	int64_t total_count, total_bytes;
	int64_t persistent_count, persistent_bytes;
};

/* Of one owner; of everybody for the owner "". Outside a transaction too. */
int attachment_metrics(struct db *db, const char *owner, struct attachment_metrics *ret);

void attachment_write_metrics(const struct engine *e, struct buf *out);

extern const struct bound_spec ATTACHMENT_BOUND;

/* For attachment/expire.c. */
int attachment_announce_cleaned(struct tx *tx, const struct attachment *a, const char *reason);
int attachment_count(struct tx *tx, const char *owner, const struct attachment_metrics *delta);
int attachment_doom(struct tx *tx, const struct attachment *a); /* the file, as a durable intent */

#endif
