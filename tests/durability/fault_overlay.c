/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of unsynced operations of a file: see fault_overlay.h.
 *
 * An operation is PENDING (a sync will bring it to the disk), LOST (a sync failed: only readers see
 * it) or APPLIED (it is on the disk, but follows a LOST one, so the replay still needs it).
 * Replaying the whole list over the real file always gives what readers must see; that is the
 * invariant every function keeps.
 */
#include "fault_overlay.h"

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SQLite never writes more than a page, and its VFS counts the bytes of a write in 17 bits. */
#define PIECE_BYTES ((size_t)64 * 1024)

enum op_state { OP_PENDING, OP_LOST, OP_APPLIED };

struct op {
	enum op_state state;
	bool is_truncate; /* then `off` is the new size and there is no data */
	sqlite3_int64 off;
	size_t len;
	size_t cap;
	uint8_t *data; /* owned */
};

struct overlay {
	struct overlay *next;
	char *path;     /* owned */
	struct op *ops; /* owned, in the order they were issued */
	size_t count;
	size_t cap;
	unsigned losses; /* syncs that failed */
};

static struct overlay *all_overlays; /* one a path, as there is one disk */

struct overlay *overlay_find(const char *path)
{
	for (struct overlay *overlay = all_overlays; overlay; overlay = overlay->next) {
		if (strcmp(overlay->path, path) == 0)
			return overlay;
	}
	return NULL;
}

struct overlay *overlay_get(const char *path)
{
	struct overlay *overlay = overlay_find(path);

	if (overlay)
		return overlay;
	overlay = calloc(1, sizeof(*overlay));
	if (!overlay)
		return NULL;
	overlay->path = strdup(path);
	if (!overlay->path) {
		free(overlay);
		return NULL;
	}
	overlay->next = all_overlays;
	all_overlays = overlay;
	return overlay;
}

bool overlay_is_idle(const struct overlay *overlay)
{
	return overlay->count == 0;
}

static sqlite3_int64 op_end(const struct op *op)
{
	return op->off + (sqlite3_int64)op->len;
}

static sqlite3_int64 op_size_after(const struct op *op, sqlite3_int64 size)
{
	if (op->is_truncate)
		return op->off;
	return op_end(op) > size ? op_end(op) : size;
}

sqlite3_int64 overlay_size_over(const struct overlay *overlay, sqlite3_int64 disk_size)
{
	sqlite3_int64 size = disk_size;

	for (size_t i = 0; i < overlay->count; i++)
		size = op_size_after(&overlay->ops[i], size);
	return size;
}

int overlay_size(const struct overlay *overlay, sqlite3_file *real, sqlite3_int64 *ret_size)
{
	sqlite3_int64 disk_size;
	const int rc = real->pMethods->xFileSize(real, &disk_size);

	if (rc != SQLITE_OK)
		return rc;
	*ret_size = overlay_size_over(overlay, disk_size);
	return SQLITE_OK;
}

/* Replay one operation over the bytes [off, off + len) of the file. */
static void op_show(const struct op *op, uint8_t *buf, sqlite3_int64 off, sqlite3_int64 len)
{
	sqlite3_int64 from = op->off > off ? op->off : off;
	sqlite3_int64 to = off + len;

	if (!op->is_truncate && op_end(op) < to)
		to = op_end(op);
	if (from >= to)
		return;
	if (op->is_truncate)
		memset(buf + (from - off), 0, (size_t)(to - from));
	else
		memcpy(buf + (from - off), op->data + (from - op->off), (size_t)(to - from));
}

int overlay_read(const struct overlay *overlay, sqlite3_file *real, void *buf, int len,
		 sqlite3_int64 off)
{
	sqlite3_int64 size;
	int rc = real->pMethods->xRead(real, buf, len, off);

	if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
		return rc;
	rc = overlay_size(overlay, real, &size);
	if (rc != SQLITE_OK)
		return rc;
	for (size_t i = 0; i < overlay->count; i++)
		op_show(&overlay->ops[i], buf, off, len);
	return off + len <= size ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static void ops_remove(struct overlay *overlay, size_t index)
{
	free(overlay->ops[index].data);
	overlay->ops[index].data = NULL;
	overlay->count--;
	memmove(&overlay->ops[index], &overlay->ops[index + 1],
		(overlay->count - index) * sizeof(overlay->ops[0]));
}

/* What is on the disk and has nothing lost before it needs no replay. */
static void ops_trim(struct overlay *overlay)
{
	size_t lead = 0;

	while (lead < overlay->count && overlay->ops[lead].state == OP_APPLIED) {
		free(overlay->ops[lead].data);
		overlay->ops[lead++].data = NULL;
	}
	if (lead == 0)
		return;
	overlay->count -= lead;
	memmove(overlay->ops, overlay->ops + lead, overlay->count * sizeof(overlay->ops[0]));
}

static bool overlay_has_lost(const struct overlay *overlay)
{
	for (size_t i = 0; i < overlay->count; i++) {
		if (overlay->ops[i].state == OP_LOST)
			return true;
	}
	return false;
}

/* A write makes older ones below it invisible; only after a loss is the list long-lived enough to
 * care. */
static void ops_drop_covered(struct overlay *overlay, sqlite3_int64 off, sqlite3_int64 end)
{
	if (!overlay_has_lost(overlay))
		return;
	for (size_t i = overlay->count; i-- > 0;) {
		const struct op *op = &overlay->ops[i];
		if (!op->is_truncate && op->state != OP_PENDING && op->off >= off &&
		    op_end(op) <= end)
			ops_remove(overlay, i);
	}
	ops_trim(overlay);
}

static struct op *ops_push(struct overlay *overlay)
{
	if (overlay->count == overlay->cap) {
		const size_t cap = overlay->cap ? overlay->cap * 2 : 16;
		struct op *ops = realloc(overlay->ops, cap * sizeof(*ops));
		if (!ops)
			return NULL;
		overlay->ops = ops;
		overlay->cap = cap;
	}
	assert(overlay->ops);
	struct op *op = &overlay->ops[overlay->count++];
	*op = (struct op){ .state = OP_PENDING };
	return op;
}

static int op_append(struct op *op, const void *buf, size_t len)
{
	if (op->len + len > op->cap) {
		const size_t cap = (op->len + len) * 2;
		uint8_t *data = realloc(op->data, cap);
		if (!data)
			return SQLITE_IOERR_NOMEM;
		op->data = data;
		op->cap = cap;
	}
	memcpy(op->data + op->len, buf, len);
	op->len += len;
	return SQLITE_OK;
}

/* Where a write at `off` goes: writes that follow each other, as in a WAL, become one operation, so
 * that the list stays short. */
static struct op *ops_for_write(struct overlay *overlay, sqlite3_int64 off)
{
	struct op *op = overlay->count > 0 ? &overlay->ops[overlay->count - 1] : NULL;

	if (op && op->state == OP_PENDING && !op->is_truncate && op_end(op) == off)
		return op;
	op = ops_push(overlay);
	if (op)
		op->off = off;
	return op;
}

int overlay_write(struct overlay *overlay, const void *buf, int len, sqlite3_int64 off)
{
	if (len <= 0)
		return SQLITE_OK;
	ops_drop_covered(overlay, off, off + len);
	struct op *op = ops_for_write(overlay, off);
	return op ? op_append(op, buf, (size_t)len) : SQLITE_IOERR_NOMEM;
}

int overlay_truncate(struct overlay *overlay, sqlite3_int64 size)
{
	struct op *op = ops_push(overlay);

	if (!op)
		return SQLITE_IOERR_NOMEM;
	op->is_truncate = true;
	op->off = size;
	return SQLITE_OK;
}

static int op_apply(const struct op *op, sqlite3_file *real)
{
	if (op->is_truncate)
		return real->pMethods->xTruncate(real, op->off);
	for (size_t done = 0, piece; done < op->len; done += piece) {
		piece = op->len - done < PIECE_BYTES ? op->len - done : PIECE_BYTES;
		const int rc = real->pMethods->xWrite(real, op->data + done, (int)piece,
						      op->off + (sqlite3_int64)done);
		if (rc != SQLITE_OK)
			return rc;
	}
	return SQLITE_OK;
}

int overlay_apply(struct overlay *overlay, sqlite3_file *real)
{
	for (size_t i = 0; i < overlay->count; i++) {
		struct op *op = &overlay->ops[i];
		if (op->state != OP_PENDING)
			continue;
		const int rc = op_apply(op, real);
		if (rc != SQLITE_OK)
			return rc;
		op->state = OP_APPLIED;
	}
	ops_trim(overlay);
	return SQLITE_OK;
}

void overlay_lose(struct overlay *overlay)
{
	overlay->losses++;
	for (size_t i = 0; i < overlay->count; i++) {
		struct op *op = &overlay->ops[i];
		if (op->state == OP_PENDING && !op->is_truncate)
			op->state = OP_LOST;
	}
}

unsigned overlay_losses(const struct overlay *overlay)
{
	return overlay->losses;
}

void overlay_forget(struct overlay *overlay)
{
	while (overlay->count > 0)
		ops_remove(overlay, overlay->count - 1);
}

static void overlay_flush(const struct overlay *overlay, int fd)
{
	for (size_t i = 0; i < overlay->count; i++) {
		const struct op *op = &overlay->ops[i];
		if (op->state != OP_PENDING)
			continue;
		if (op->is_truncate ? ftruncate(fd, op->off) != 0
				    : pwrite(fd, op->data, op->len, op->off) != (ssize_t)op->len)
			abort();
	}
}

void overlay_flush_all(void)
{
	for (struct overlay *overlay = all_overlays; overlay; overlay = overlay->next) {
		if (overlay_is_idle(overlay))
			continue;
		const int fd = open(overlay->path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue; /* unlinked behind SQLite's back: nothing left to write to */
		overlay_flush(overlay, fd);
		close(fd);
	}
}
