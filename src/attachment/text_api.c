/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attachments that are texts, in JSON both ways: for callers that have no bytes to stream, such as
 * the tools of agents. The file is written and read on a worker.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "attachment/api.h"
#include "attachment/depot.h"
#include "base/id.h"

#define TEXT_READ_BYTES ((int64_t)256 << 10) /* of one answer; the rest has an offset */

/* Staging */

struct text_stage {
	struct stage_request request; /* first: the fields of TERMS_FIELDS are its */
	const char *text;
	struct blob blob;
	int err;
	struct problem problem;
};

const struct json_field ATTACHMENT_TEXT_BODY[] = {
	{ "text", FIELD_TEXT, true, offsetof(struct text_stage, text), 0, INT64_C(64) << 20,
	  "what the file holds" },
	{ "name", FIELD_LABEL, false, offsetof(struct text_stage, request.name), 1,
	  ATTACHMENT_NAME_MAX, "what it is called (default attachment)" },
	{ "persist", FIELD_BOOL, false, offsetof(struct text_stage, request.terms.persist), 0, 0,
	  "keep the file until it is deleted" },
	{ "ttl_ms", FIELD_TTL, false, offsetof(struct text_stage, request.terms.ttl_ms), 0,
	  ATTACHMENT_TTL_MAX_MS, "how long it is kept, or \"infinity\"" },
	{ 0 },
};

static void text_write(struct call *c) /* on a worker */
{
	struct text_stage *s = c->state;

	s->err = blob_write(&s->blob, s->text, strlen(s->text), &s->problem);
	if (s->err == LAPSE_OK)
		s->err = blob_finish(&s->blob, &s->problem);
}

static int text_store(struct call *c)
{
	struct text_stage *s = c->state;

	c->upload = &s->blob; /* whatever became of it, the request lets go of it at its end */
	if (s->err < 0) {
		c->problem = s->problem;
		return s->err;
	}
	return attachment_api_store(c, &s->request);
}

int attachment_api_stage_text(struct call *c)
{
	const struct settings *set = c->engine->settings;
	struct text_stage *s = arena_alloc(&c->arena, sizeof(*s));

	s->request = (struct stage_request){ .name = ATTACHMENT_NAME_DEFAULT,
					     .terms.ttl_ms = set->attachment_ttl_ms };
	int r = call_body(c, ATTACHMENT_TEXT_BODY, s);
	if (r < 0)
		return r;
	blob_init(&s->blob, set->data_dir, id_next(&c->engine->ids, c->tx->now),
		  set->attachment_max_bytes, strcmp(set->sqlite_synchronous, "off") != 0);
	c->state = s;
	return call_work(c, text_write, text_store);
}

/* Reading */

struct text_query {
	int64_t offset;
};

const struct json_field ATTACHMENT_TEXT_QUERY[] = {
	{ "offset", FIELD_INT, false, offsetof(struct text_query, offset), 0, INT64_MAX,
	  "begin at this byte: next_offset of the answer before" },
	{ 0 },
};

struct text_read {
	int64_t id, size, offset;
	const char *checksum, *name;
	char *bytes;
	size_t n;
	int err;
	struct problem problem;
};

static void text_note(void *arg, const struct attachment *a)
{
	struct call *c = arg;
	struct text_read *s = c->state;

	s->id = a->id;
	s->size = a->size;
	s->checksum = arena_strdup(&c->arena, a->checksum);
	s->name = arena_strdup(&c->arena, a->name);
}

static void text_load(struct call *c) /* on a worker */
{
	struct text_read *s = c->state;
	int fd = -1;

	s->err = blob_open(c->engine->settings->data_dir, s->checksum, s->id, &fd, &s->problem);
	if (s->err < 0)
		return;
	ssize_t got = pread(fd, s->bytes, TEXT_READ_BYTES, s->offset);
	if (got < 0)
		s->err = blob_explain(errno, "read the attachment", &s->problem);
	else
		s->n = (size_t)got;
	close(fd);
}

/* A character that the end has cut belongs to the next answer. */
static void text_trim(struct text_read *s)
{
	size_t n = s->n;

	if (s->offset + (int64_t)n >= s->size)
		return;
	while (n > 0 && ((unsigned char)s->bytes[n - 1] & 0xc0) == 0x80)
		n--;
	s->n = n > 0 && ((unsigned char)s->bytes[n - 1] & 0xc0) == 0xc0 ? n - 1 : s->n;
}

static int text_answer(struct call *c)
{
	struct text_read *s = c->state;

	if (s->err == LAPSE_ENOTFOUND)
		depot_report_missing(c->engine, s->id);
	if (s->err < 0) {
		c->problem = s->problem;
		return attachment_api_explain(c, s->err);
	}
	text_trim(s);
	if (memchr(s->bytes, '\0', s->n) || !utf8_is_valid(s->bytes, s->n, false))
		return problem_set(&c->problem, LAPSE_ECONFLICT, NULL,
				   "the attachment is no text: download it instead");
	s->bytes[s->n] = '\0';
	int64_t next = s->offset + (int64_t)s->n;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "checksum", s->checksum);
	json_put_text(&c->reply, "name", s->name);
	json_put_int(&c->reply, "size", s->size);
	json_put_text(&c->reply, "text", s->bytes);
	json_key(&c->reply, "next_offset");
	if (next < s->size)
		json_int(&c->reply, next);
	else
		json_text(&c->reply, NULL);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

int attachment_api_read_text(struct call *c)
{
	struct text_read *s = arena_alloc(&c->arena, sizeof(*s));
	struct text_query query = { 0 };
	const char *checksum = NULL;
	int r = attachment_api_checksum(c, &checksum);

	c->state = s;
	if (r == LAPSE_OK)
		r = call_query(c, ATTACHMENT_TEXT_QUERY, &query);
	if (r == LAPSE_OK)
		r = attachment_get(c->tx, c->owner, checksum, text_note, c);
	if (r < 0)
		return attachment_api_explain(c, r);
	s->offset = query.offset;
	s->bytes = arena_alloc(&c->arena, TEXT_READ_BYTES + 1);
	return call_work(c, text_load, text_answer);
}
