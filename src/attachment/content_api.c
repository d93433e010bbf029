/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/attachments/{checksum}/content. The file is opened on a worker, which also reads a short
 * answer; a long one is read while it is sent. A client that reads it gets all of
 * it, even if the row goes meanwhile.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attachment/api.h"
#include "attachment/depot.h"

#define SHORT_BYTES (64 << 10) /* read before the answer begins */

struct content_state {
	int64_t id, size;
	lapse_ms due_at;
	const char *name, *checksum, *etag;
	int64_t offset, length; /* the part that is wanted */
	bool part;
	char *bytes; /* a short answer */
	int err;
	struct problem problem;
};

static void note(void *arg, const struct attachment *a)
{
	struct call *c = arg;
	struct content_state *s = c->state;

	s->id = a->id;
	s->size = a->size;
	s->due_at = a->due_at;
	s->name = arena_strdup(&c->arena, a->name);
	s->checksum = arena_strdup(&c->arena, a->checksum);
	s->etag = arena_printf(&c->arena, "\"%s\"", a->checksum);
}

static int choose_part(struct call *c, struct content_state *s)
{
	const char *range = c->if_range && strcmp(c->if_range, s->etag) != 0 ? NULL : c->range;
	enum range_verdict verdict = attachment_range(range, s->size, &s->offset, &s->length);

	s->part = verdict == RANGE_PART;
	if (verdict != RANGE_UNSATISFIABLE)
		return LAPSE_OK;
	call_header(c, "Content-Range",
		    arena_printf(&c->arena, "bytes */%lld", (long long)s->size));
	return problem_set(&c->problem, LAPSE_ERANGE, "Range", "it has only %lld bytes",
			   (long long)s->size);
}

static int read_short(const struct content_state *s, int fd)
{
	for (int64_t done = 0; done < s->length;) {
		ssize_t got =
			pread(fd, s->bytes + done, (size_t)(s->length - done), s->offset + done);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? errno : EIO;
		done += got;
	}
	return 0;
}

/* A short part is in memory now, and the reply needs no file. */
static void close_file(struct call *c)
{
	close(c->file_fd);
	c->has_file = false;
}

static void open_content_file(struct call *c) /* on a worker */
{
	struct content_state *s = c->state;
	struct stat st;

	s->err = blob_open(c->engine->settings->data_dir, s->checksum, s->id, &c->file_fd,
			   &s->problem);
	if (s->err < 0)
		return;
	c->has_file = true; /* whatever comes, the request closes it */
	if (fstat(c->file_fd, &st) < 0 || st.st_size != s->size) {
		s->err = LAPSE_ENOTFOUND; /* it is not what was stored */
		return;
	}
	int error = s->bytes ? read_short(s, c->file_fd) : 0;
	if (error)
		s->err = blob_explain(error, "read the attachment", &s->problem);
	else if (s->bytes)
		close_file(c);
}

static void add_content_headers(struct call *c, const struct content_state *s)
{
	struct buf CLEANUP(buf_done) disposition = { 0 };

	attachment_disposition(&disposition, s->name);
	c->content_type = "application/octet-stream";
	call_header(c, "Content-Disposition", arena_strdup(&c->arena, buf_text(&disposition)));
	call_header(c, "X-Content-Type-Options", "nosniff");
	call_header(c, "Accept-Ranges", "bytes");
	call_header(c, "ETag", s->etag);
	if (s->part)
		call_header(c, "Content-Range",
			    arena_printf(&c->arena, "bytes %lld-%lld/%lld", (long long)s->offset,
					 (long long)(s->offset + s->length - 1),
					 (long long)s->size));
	c->status = s->part ? 206 : 200;
	c->sunset = s->due_at == LAPSE_NEVER ? 0 : s->due_at;
}

static void ignore(void *arg, const struct attachment *a)
{
	*(int64_t *)arg = a->id;
}

/* The file could not be had: it went with its row, or the row stands without it. */
static int explain_missing(struct call *c, const struct content_state *s)
{
	int64_t id = 0;
	int r = attachment_get(c->tx, c->owner, s->checksum, ignore, &id);

	if (s->err != LAPSE_ENOTFOUND) {
		c->problem = s->problem;
		return s->err;
	}
	if (r < 0 || id != s->id)
		return attachment_api_explain(c, r < 0 ? r : LAPSE_ENOTFOUND);
	depot_report_missing(c->engine, s->id); /* twice is once: this may run again */
	return problem_set(&c->problem, LAPSE_ENOTFOUND, NULL,
			   "the attachment's file is gone from the disk; stage it again");
}

static int content_finish(struct call *c)
{
	const struct content_state *s = c->state;

	if (s->err < 0)
		return explain_missing(c, s);
	add_content_headers(c, s);
	if (!s->bytes) {
		c->file_offset = s->offset;
		c->file_length = s->length;
		return LAPSE_OK;
	}
	buf_add(&c->reply, s->bytes, (size_t)s->length);
	return LAPSE_OK;
}

int attachment_api_content(struct call *c)
{
	struct content_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));
	const char *checksum = NULL;
	int r = attachment_api_checksum(c, &checksum);

	if (r == LAPSE_OK)
		r = attachment_get(c->tx, c->owner, checksum, note, c);
	if (r < 0)
		return attachment_api_explain(c, r);
	r = choose_part(c, s);
	if (r < 0)
		return r;
	if (s->length <= SHORT_BYTES)
		s->bytes = arena_alloc(&c->arena, (size_t)s->length + 1);
	return call_work(c, open_content_file, content_finish);
}
