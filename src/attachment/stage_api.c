/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/attachments/stage: a file of this host becomes an attachment.
 *
 * The path must lie below one of attachment_stage_roots, and is opened from there so that no
 * symlink, no `..` and nothing of /proc leads out, and that neither a pipe nor a device is ever
 * waited for. The copy is made on a worker, a few at a time (attachment/depot.h); what is hashed is
 * the copy, so the source may change as it likes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attachment/api.h"
#include "attachment/depot.h"
#include "base/file.h"

struct stage_state {
	struct copy copy;
	struct call *call;
	struct stage_request request;
	const char *root, *rest;
	struct blob blob;
	struct problem problem;
};

static int explain_open(int error, struct problem *p)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
		return problem_set(p, LAPSE_ENOTFOUND, "path", "there is no such file");
	case ELOOP:
		return problem_set(p, LAPSE_EFORBIDDEN, "path",
				   "a symlink is part of the path: give the file's own path");
	case EXDEV:
	case EACCES:
	case EPERM:
		return problem_set(p, LAPSE_EFORBIDDEN, "path",
				   "the file may not be read, or lies outside the stage roots");
	case ENAMETOOLONG:
		return problem_set(p, LAPSE_EINVAL, "path", "a name in the path is too long");
	case ENXIO: /* a socket, or a device that is not there */
		return problem_set(p, LAPSE_EINVAL, "path", "only a regular file can be staged");
	default:
		return blob_explain(error, "open the file", p);
	}
}

static int open_beneath(const char *root, const char *rest, struct problem *p)
{
	int fd = file_open_beneath(root, rest, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);

	return fd < 0 ? explain_open(-fd, p) : fd;
}

static int check_regular(int fd, struct problem *p)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return blob_explain(errno, "read the file", p);
	if (!S_ISREG(st.st_mode))
		return problem_set(p, LAPSE_EINVAL, "path", "only a regular file can be staged");
	return LAPSE_OK;
}

static void stage_run_copy(struct copy *x) /* on a worker */
{
	struct stage_state *s = CONTAINER_OF(x, struct stage_state, copy);
	int fd = open_beneath(s->root, s->rest, &s->problem);

	x->err = fd < 0 ? fd : check_regular(fd, &s->problem);
	if (x->err == LAPSE_OK)
		x->err = blob_copy(&s->blob, fd, &s->problem);
	if (x->err == LAPSE_OK)
		x->err = blob_finish(&s->blob, &s->problem);
	if (fd >= 0)
		close(fd);
}

static void stage_copied(struct copy *x)
{
	struct stage_state *s = CONTAINER_OF(x, struct stage_state, copy);

	call_wake(s->call);
}

static int stage_finish(struct call *c)
{
	struct stage_state *s = c->state;

	c->upload = &s->blob; /* whatever became of it, the request lets go of it at its end */
	if (s->copy.err < 0) {
		c->problem = s->problem;
		return s->copy.err;
	}
	return attachment_api_store(c, &s->request);
}

static void start_copy(struct engine *e, void *state)
{
	struct stage_state *s = state;

	depot_copy(e, &s->copy);
}

static int find_root(struct call *c, struct stage_state *s)
{
	const char *root = NULL;
	size_t n = 0;

	if (s->request.path[0] != '/')
		return problem_set(&c->problem, LAPSE_EINVAL, "path",
				   "path must be absolute: it is one of the daemon's host");
	s->rest = attachment_below_root(c->engine->settings->attachment_stage_roots,
					s->request.path, &root, &n);
	if (!s->rest)
		return problem_set(&c->problem, LAPSE_EFORBIDDEN, "path",
				   "path must lie below one of attachment_stage_roots");
	s->root = arena_strndup(&c->arena, root, n);
	return LAPSE_OK;
}

/* The last part of the path, cut where it is too long for a name. */
static const char *default_name(struct call *c, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = strlen(slash + 1);

	while (n > ATTACHMENT_NAME_MAX ||
	       (n < strlen(slash + 1) && n > 0 && ((unsigned char)slash[1 + n] & 0xc0) == 0x80))
		n--;
	return n > 0 ? arena_strndup(&c->arena, slash + 1, n) : ATTACHMENT_NAME_DEFAULT;
}

int attachment_api_stage(struct call *c)
{
	const struct settings *set = c->engine->settings;
	struct stage_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->request.terms.ttl_ms = set->attachment_ttl_ms;
	int r = call_body(c, ATTACHMENT_STAGE_BODY, &s->request);
	if (r == LAPSE_OK)
		r = find_root(c, s);
	if (r < 0)
		return r;
	if (!s->request.name)
		s->request.name = default_name(c, s->request.path);
	s->call = c;
	s->copy.run = stage_run_copy;
	s->copy.done = stage_copied;
	blob_init(&s->blob, set->data_dir, id_next(&c->engine->ids, c->tx->now),
		  set->attachment_max_bytes, strcmp(set->sqlite_synchronous, "off") != 0);
	tx_effect(c->tx, start_copy, s);
	return call_await(c, stage_finish);
}
