/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the room `attachment`. Files are written and read on the caller's thread. */
#include "attachment/attachment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attachment/depot.h"
#include "lib/check.h"
#include "lib/store.h"

#define READ_BYTES ((size_t)256 << 10)

static_assert(LAPSE_CHECKSUM_SIZE == BLOB_CHECKSUM_LEN + 1, "as the public header says");

static int lib_attachment_explain(struct lapse_store *s, int err)
{
	if (err == LAPSE_ENOTFOUND)
		return problem_set(&s->problem, err, "checksum", "there is no such attachment");
	if (err == LAPSE_EEXPIRED)
		return problem_set(&s->problem, err, "checksum", "the attachment has expired");
	if (err == LAPSE_ECONFLICT)
		return problem_set(&s->problem, err, "checksum",
				   "the attachment is held: release the hold first");
	return err;
}

static struct lapse_attachment attachment_view(const struct attachment *a)
{
	return (struct lapse_attachment){ .id = a->id,
					  .checksum = a->checksum,
					  .name = a->name,
					  .size = a->size,
					  .persist = a->terms.persist,
					  .ttl_ms = a->terms.ttl_ms,
					  .inserted_at = a->inserted_at,
					  .expires_at = a->due_at,
					  .cached = a->cached };
}

/* Staging */

#define STAGING_MAGIC 0x4c535447u

struct staging {
	uint32_t magic;
	struct lapse_store *store;
	struct attachment_draft draft;
	struct blob blob;
	struct arena arena; /* of what is shown after the commit */
	struct lapse_attachment shown;
};

static int take_terms(struct lapse_store *s, const struct lapse_terms *t, const char *name,
		      struct attachment_draft *d)
{
	*d = (struct attachment_draft){ .name = t && t->name ? t->name : name,
					.terms = { t && t->persist,
						   t ? t->ttl_ms : LAPSE_TTL_DEFAULT } };
	int r = field_label(d->name, 1, ATTACHMENT_NAME_MAX, "name", &s->problem);
	if (d->terms.ttl_ms == LAPSE_TTL_DEFAULT)
		d->terms.ttl_ms = s->settings.attachment_ttl_ms;
	else if (r == LAPSE_OK && d->terms.ttl_ms != LAPSE_NEVER)
		r = field_range(d->terms.ttl_ms, 0, ATTACHMENT_TTL_MAX_MS, "ttl_ms", &s->problem);
	return r;
}

static void attachment_keep(void *arg, const struct attachment *a)
{
	struct staging *x = arg;

	assert(x->magic == STAGING_MAGIC);
	x->shown = attachment_view(a);
	x->shown.checksum = arena_strdup(&x->arena, a->checksum);
	x->shown.name = arena_strdup(&x->arena, a->name);
}

/* Whether the row that is there has lost its file. */
static int attachment_look(struct staging *x)
{
	const char *data_dir = x->store->settings.data_dir;
	int64_t id = 0, size = 0, found = 0;
	int r = attachment_peek(&x->store->tx, x->store->owner, x->blob.checksum, &id, &size);

	if (r < 0 || id == 0)
		return r;
	r = blob_stat(data_dir, x->blob.checksum, id, &found);
	if (r == LAPSE_ENOTFOUND || (r == LAPSE_OK && found != size))
		x->draft.broken = id;
	return LAPSE_OK;
}

static int store_row(struct staging *x)
{
	struct lapse_store *s = x->store;
	int r = store_begin(s);

	assert(x->magic == STAGING_MAGIC && x->blob.checksum[0]);

	if (r == LAPSE_OK)
		r = attachment_look(x);
	if (r == LAPSE_OK)
		r = attachment_stage(&s->tx, s->owner, &x->blob, &x->draft, attachment_keep, x,
				     &s->problem);
	return store_commit(s, r);
}

/* The frame around what fills the blob. On failure the call is over. */
static int staging_begin(struct staging *x, struct lapse_store *s, const struct lapse_terms *terms,
			 const char *name)
{
	int r = store_enter(s);

	memset(x, 0, offsetof(struct staging, arena));
	x->magic = STAGING_MAGIC;
	x->store = s;
	if (r == LAPSE_OK)
		r = take_terms(s, terms, name, &x->draft);
	if (r < 0)
		return store_end(s, r);
	arena_init(&x->arena);
	blob_init(&x->blob, s->settings.data_dir,
		  id_next(&s->engine.ids, clock_wall(s->engine.clock)),
		  s->settings.attachment_max_bytes,
		  strcmp(s->settings.sqlite_synchronous, "off") != 0);
	return LAPSE_OK;
}

static int attachment_end(struct staging *x, int err, lapse_attachment_fn *fn, void *arg)
{
	struct lapse_store *s = x->store;

	if (err == LAPSE_OK)
		err = blob_finish(&x->blob, &s->problem);
	if (err == LAPSE_OK)
		err = store_row(x);
	blob_discard(&x->blob);
	if (err == LAPSE_OK && fn)
		fn(arg, &x->shown);
	arena_done(&x->arena);
	return store_end(s, err);
}

static int open_regular(const char *path, int *ret_fd, struct problem *p)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0) {
		int error = errno;
		if (fd >= 0)
			close(fd);
		return problem_set(p, error == ENOENT ? LAPSE_ENOTFOUND : LAPSE_EIO, "path",
				   "cannot open %.160s: %s", path, strerror(error));
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return problem_set(p, LAPSE_EINVAL, "path", "only a regular file can be staged");
	}
	*ret_fd = fd;
	return LAPSE_OK;
}

int lapse_attachment_stage_path(struct lapse_store *store, const char *path,
				const struct lapse_terms *terms, lapse_attachment_fn *fn, void *arg)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	const char *name = slash ? slash + 1 : path;
	struct staging x;
	int fd = -1;
	int r = staging_begin(&x, store, terms, name && name[0] ? name : ATTACHMENT_NAME_DEFAULT);

	if (r < 0)
		return r;
	r = path ? open_regular(path, &fd, &store->problem)
		 : problem_set(&store->problem, LAPSE_EINVAL, "path", "path is required");
	if (r == LAPSE_OK)
		r = blob_copy(&x.blob, fd, &store->problem);
	if (fd >= 0)
		close(fd);
	return attachment_end(&x, r, fn, arg);
}

int lapse_attachment_stage_bytes(struct lapse_store *store, const void *bytes, size_t n,
				 const struct lapse_terms *terms, lapse_attachment_fn *fn,
				 void *arg)
{
	struct staging x;
	int r = staging_begin(&x, store, terms, ATTACHMENT_NAME_DEFAULT);

	if (r < 0)
		return r;
	return attachment_end(&x, blob_write(&x.blob, bytes, n, &store->problem), fn, arg);
}

static int staging_fill(struct staging *x, lapse_read_fn *read, void *read_arg)
{
	char *CLEANUP(mem_freep) buffer = mem_alloc(READ_BYTES);
	int r = LAPSE_OK;

	while (r == LAPSE_OK) {
		ptrdiff_t n = read(read_arg, buffer, READ_BYTES);
		if (n == 0)
			break;
		r = n < 0 || (size_t)n > READ_BYTES
			    ? problem_set(&x->store->problem, LAPSE_EIO, "read",
					  "the caller's read failed")
			    : blob_write(&x->blob, buffer, (size_t)n, &x->store->problem);
	}
	return r;
}

int lapse_attachment_stage_from(struct lapse_store *store, lapse_read_fn *read, void *read_arg,
				const struct lapse_terms *terms, lapse_attachment_fn *fn, void *arg)
{
	struct staging x;
	int r = staging_begin(&x, store, terms, ATTACHMENT_NAME_DEFAULT);

	if (r < 0)
		return r;
	return attachment_end(&x, staging_fill(&x, read, read_arg), fn, arg);
}

/* Reading */

struct reader {
	uint32_t magic;
	lapse_attachment_fn *fn;
	void *arg;
};

static void attachment_show(void *arg, const struct attachment *a)
{
	const struct reader *reader = arg;
	struct lapse_attachment v = attachment_view(a);

	assert(reader->magic == READER_MAGIC);
	if (reader->fn)
		reader->fn(reader->arg, &v);
}

static int check_checksum(const char *checksum, struct problem *p)
{
	return checksum && blob_is_checksum(checksum)
		       ? LAPSE_OK
		       : problem_set(p, LAPSE_EINVAL, "checksum",
				     "checksum must be 64 hex digits, in lower case");
}

static int attachment_enter(struct lapse_store *s, const char *checksum)
{
	int r = store_enter(s);

	return r < 0 ? r : check_checksum(checksum, &s->problem);
}

int lapse_attachment_list(struct lapse_store *store, int64_t before, int64_t limit,
			  lapse_attachment_fn *fn, void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = attachment_list(&store->tx, store->owner, before > 0 ? before : INT64_MAX,
				    limit, attachment_show, &reader);
	return store_end(store, r);
}

int lapse_attachment_get(struct lapse_store *store, const char *checksum, lapse_attachment_fn *fn,
			 void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	int r = attachment_enter(store, checksum);

	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = attachment_get(&store->tx, store->owner, checksum, attachment_show, &reader);
	return store_end(store, lib_attachment_explain(store, r));
}

static void note_id(void *arg, const struct attachment *a)
{
	*(int64_t *)arg = a->id;
}

int lapse_attachment_open(struct lapse_store *store, const char *checksum, int *ret_fd)
{
	int64_t id = 0;
	int r = attachment_enter(store, checksum);

	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = attachment_get(&store->tx, store->owner, checksum, note_id, &id);
	r = store_commit(store, lib_attachment_explain(store, r));
	if (r == LAPSE_OK)
		r = blob_open(store->settings.data_dir, checksum, id, ret_fd, &store->problem);
	if (r == LAPSE_ENOTFOUND && id) {
		depot_report_missing(&store->engine, id);
		problem_set(&store->problem, r, "checksum",
			    "the attachment's file is gone from the disk; stage it again");
	}
	return store_end(store, r);
}

/* Removing, and figures */

int lapse_attachment_delete(struct lapse_store *store, const char *checksum)
{
	int r = attachment_enter(store, checksum);

	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = attachment_delete(&store->tx, store->owner, checksum);
	return store_end(store, lib_attachment_explain(store, r));
}

int lapse_attachment_metrics(struct lapse_store *store,
			     struct lapse_attachment_metrics *ret_metrics)
{
	struct attachment_metrics m = { 0 };
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = attachment_metrics(store->tx.db, store->owner, &m);
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_metrics)
		*ret_metrics = (struct lapse_attachment_metrics){
			.total_count = m.total_count,
			.total_bytes = m.total_bytes,
			.persistent_count = m.persistent_count,
			.persistent_bytes = m.persistent_bytes,
			.expirable_count = m.total_count - m.persistent_count,
			.expirable_bytes = m.total_bytes - m.persistent_bytes
		};
	return r;
}

int lapse_attachment_cleanup(struct lapse_store *store, int64_t *ret_count, int64_t *ret_bytes)
{
	const struct lapse_sweep_result *result = NULL;
	int r = lapse_sweep(store, "attachments", false, &result);

	if (r < 0)
		return r;
	if (ret_count)
		*ret_count = result->pruned;
	if (ret_bytes)
		*ret_bytes = result->bytes;
	return LAPSE_OK;
}
