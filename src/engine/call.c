/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/call.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void call_etag(const char *json, size_t n, char out[ETAG_LEN + 1])
{
	snprintf(out, ETAG_LEN + 1, "\"%016llx\"", (unsigned long long)XXH3_64bits(json, n));
}

int call_check_match(struct call *c, const struct buf *json)
{
	char etag[ETAG_LEN + 1];

	call_etag(buf_text(json), json->len, etag);
	if (!c->if_match || strcmp(c->if_match, "*") == 0 || strstr(c->if_match, etag))
		return LAPSE_OK;
	return problem_set(&c->problem, LAPSE_EPRECONDITION, "If-Match",
			   "it has changed since you looked; its ETag is %s now", etag);
}

lapse_ms call_wait_left(const struct call *c, lapse_ms ms)
{
	lapse_us waited = clock_mono(c->engine->clock) - c->began;

	return c->stopping || waited / 1000 >= ms ? 0 : ms - waited / 1000;
}

int call_park(struct call *c, const char *key, lapse_ms ms)
{
	c->park_key = arena_strdup(&c->arena, key);
	c->park_ms = ms;
	return CALL_WAIT;
}

int call_await(struct call *c, call_fn *next)
{
	c->next = next;
	return CALL_WAIT;
}

int call_work(struct call *c, work_fn *work, call_fn *next)
{
	c->work = work;
	c->next = next;
	return CALL_WAIT;
}

void call_header(struct call *c, const char *name, const char *value)
{
	assert(c->headers_count < CALL_HEADERS_MAX);
	c->headers[c->headers_count++] = (struct call_arg){ name, value };
}

int call_parse(struct call *c)
{
	if (c->body)
		return LAPSE_OK;
	return (c->is_array ? json_parse_array : json_parse_object)(c->text, c->text_len, &c->body,
								    &c->problem);
}

int call_body(struct call *c, const struct json_field *fields, void *out)
{
	return json_decode(c->body, fields, out, &c->problem);
}

static const struct json_field *find_field(const struct json_field *fields, const char *name)
{
	for (; fields->name; fields++)
		if (strcmp(fields->name, name) == 0)
			return fields;
	return NULL;
}

static int decode_int(const struct json_field *f, const char *text, int64_t *out, struct problem *p)
{
	char *end;

	errno = 0;
	long long n = strtoll(text, &end, 10);
	if (text[0] == '\0' || text[0] == '+' || text[0] == ' ' || *end != '\0' ||
	    errno == ERANGE || n < f->min || n > f->max)
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must be an integer between %" PRId64 " and %" PRId64,
				   f->name, f->min, f->max);
	*out = n;
	return LAPSE_OK;
}

static int decode_arg(const struct json_field *f, const char *text, void *out, struct problem *p)
{
	if (f->kind == FIELD_INT)
		return decode_int(f, text, out, p);
	if (f->kind == FIELD_TTL && strcmp(text, TTL_INFINITY) == 0) {
		*(lapse_ms *)out = LAPSE_NEVER;
		return LAPSE_OK;
	}
	if (f->kind == FIELD_TTL) {
		if (decode_int(f, text, out, p) == LAPSE_OK)
			return LAPSE_OK;
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must be an integer between %" PRId64 " and %" PRId64
				   ", or " TTL_INFINITY,
				   f->name, f->min, f->max);
	}
	if (f->kind == FIELD_BOOL) {
		bool yes = strcmp(text, "true") == 0;
		if (!yes && strcmp(text, "false") != 0)
			return problem_set(p, LAPSE_EINVAL, f->name, "%s must be true or false",
					   f->name);
		*(bool *)out = yes;
		return LAPSE_OK;
	}
	if ((int64_t)strlen(text) < f->min || (int64_t)strlen(text) > f->max)
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must be %" PRId64 " to %" PRId64 " bytes long", f->name,
				   f->min, f->max);
	if (f->kind == FIELD_LABEL && !utf8_is_valid(text, strlen(text), true))
		return problem_set(p, LAPSE_EINVAL, f->name,
				   "%s must be printable, without control characters", f->name);
	*(const char **)out = text;
	return LAPSE_OK;
}

int call_query(struct call *c, const struct json_field *fields, void *out)
{
	for (size_t i = 0; i < c->query_count; i++) {
		const char *name = c->query[i].name;
		const struct json_field *f = find_field(fields, name);
		if (!f)
			return problem_set(&c->problem, LAPSE_EINVAL, name,
					   "unknown query parameter '%.60s'", name);
		for (size_t j = 0; j < i; j++)
			if (strcmp(c->query[j].name, name) == 0)
				return problem_set(&c->problem, LAPSE_EINVAL, name,
						   "query parameter '%.60s' is given twice", name);
		int r = decode_arg(f, c->query[i].value, (char *)out + f->offset, &c->problem);
		if (r < 0)
			return r;
	}
	return LAPSE_OK;
}

int call_id_param(struct call *c, int index, const char *name, const char **ret)
{
	const char *why;

	if (!id_is_valid(c->params[index], &why))
		return problem_set(&c->problem, LAPSE_EINVAL, name, "%s %s", name, why);
	*ret = c->params[index];
	return LAPSE_OK;
}

#define CURSOR_MAX 400 /* bytes: an id in hex, or a key of 128 bytes escaped */

const struct json_field PAGE_FIELDS[] = {
	{ "limit", FIELD_INT, false, offsetof(struct page, limit), 1, LIMIT_MAX,
	  "items a page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct page, after), 1, CURSOR_MAX,
	  "next_cursor of the page before" },
	{ 0 },
};

static int bad_cursor(struct problem *p)
{
	return problem_set(p, LAPSE_EINVAL, "after",
			   "after is not a cursor: use next_cursor of the page before");
}

const char *page_text_cursor(struct arena *arena, const char *text)
{
	char *out = arena_alloc(arena, 2 * strlen(text) + 1);

	hex_encode(text, strlen(text), out);
	return out;
}

int page_after_text(const struct page *page, struct arena *arena, const char **ret,
		    struct problem *p)
{
	char *text = arena_alloc(arena, strlen(page->after) / 2 + 1);
	const char *why;

	if (!hex_decode(page->after, text) || !id_is_valid(text, &why))
		return bad_cursor(p);
	*ret = text;
	return LAPSE_OK;
}

int page_before(const struct page *page, int64_t *ret_before, struct problem *p)
{
	*ret_before = INT64_MAX;
	if (page->after && !id_parse(page->after, ret_before))
		return bad_cursor(p);
	return LAPSE_OK;
}

void page_begin(struct page_writer *w, struct buf *out, const struct page *page)
{
	*w = (struct page_writer){ .out = out, .limit = page->limit };
	json_begin(out, '{');
	json_key(out, "data");
	json_begin(out, '[');
}

bool page_item(struct page_writer *w, int64_t id)
{
	if (w->written == w->limit) {
		w->more = true;
		return false;
	}
	w->written++;
	w->last_id = id;
	return true;
}

void page_close(struct buf *out, const char *next_cursor)
{
	json_end(out, ']');
	json_key(out, "pagination");
	json_begin(out, '{');
	json_put_text(out, "next_cursor", next_cursor);
	json_put_bool(out, "has_more", next_cursor != NULL);
	json_end(out, '}');
	json_end(out, '}');
}

void page_end(struct page_writer *w)
{
	char cursor[ID_TEXT_LEN + 1];

	id_format(w->last_id, cursor);
	page_close(w->out, w->more ? cursor : NULL);
}

int call_page(struct call *c, page_fn *list)
{
	struct page page = { .limit = LIMIT_DEFAULT };
	struct page_writer w;
	int64_t before = 0;
	int r = call_query(c, PAGE_FIELDS, &page);

	if (r == LAPSE_OK)
		r = page_before(&page, &before, &c->problem);
	if (r < 0)
		return r;
	page_begin(&w, &c->reply, &page);
	r = list(c, before, page.limit + 1, &w);
	page_end(&w);
	return r;
}
