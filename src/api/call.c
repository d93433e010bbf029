/* SPDX-License-Identifier: Apache-2.0 */
#include "api/call.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

void call_init(struct call *c, struct engine *e)
{
	assert(c->magic == 0);
	c->magic = CALL_MAGIC;
	c->engine = e;
	arena_init(&c->arena);
	list_init(&c->key.link);
	list_init(&c->waiter.link);
}

void call_done(struct call *c)
{
	assert(c->magic == CALL_MAGIC && !c->waiting && !c->work);
	assert(!list_is_linked(&c->key.link)); /* it was released with the answer */
	c->magic = 0;
	if (c->has_file)
		close(c->file_fd);
	json_decref(c->body);
	buf_done(&c->reply);
	buf_done(&c->kept);
	arena_done(&c->arena);
}

/* What an operation wishes of its transaction is what its call wishes of the door. */
static int call_result(int r)
{
	if (r == TX_NEEDS_WRITE)
		return CALL_NEEDS_WRITE;
	return r == TX_AGAIN ? CALL_AGAIN : r;
}

/* A reply is written whole in one run. */
static void clear_reply(struct call *c)
{
	buf_clear(&c->reply);
	buf_done(&c->kept);
	c->status = 200;
	c->plain_ok = false;
	c->content_type = NULL;
	c->sunset = 0;
	c->headers_count = 0;
	c->problem = (struct problem){ 0 };
}

static int run_handler(struct call *c)
{
	call_fn *fn = c->next ? c->next : c->handler;

	assert(fn);
	clear_reply(c);
	c->next = NULL;
	c->runs++;
	return call_result(fn(c));
}

/* The key's first sight of this call: 0 = go on, 1 = the reply is the first answer again. */
static int begin_key(struct call *c)
{
	const char *text = "";
	int status = 0;
	int r = idempotency_claim(c->tx, &c->key, &c->arena, &status, &text);

	if (r == LAPSE_EUNPROCESSABLE || r == LAPSE_ECONFLICT)
		return problem_set(&c->problem, r, "Idempotency-Key", "%s", idempotency_refusal(r));
	if (r > 0) {
		c->replayed = true;
		c->status = status;
		buf_done(&c->reply);
		buf_puts(&c->reply, text);
	}
	return r;
}

int call_run(struct call *c)
{
	assert(c->magic == CALL_MAGIC);
	assert(!c->waiting && !c->work && !c->park_key);
	c->before = (struct call_place){ c->next, c->state, c->runs };
	if (!c->has_key)
		return run_handler(c);
	assert(c->tx && c->tx->write);
	if (c->runs == 0) {
		int r = begin_key(c);
		if (r != 0)
			return r < 0 ? r : LAPSE_OK;
	}
	int result = run_handler(c);
	if (result != LAPSE_OK)
		return result;
	const struct buf *kept = c->kept.len ? &c->kept : &c->reply;
	return idempotency_end(c->tx, &c->key, c->status, buf_text(kept));
}

void call_rewind(struct call *c)
{
	if (c->waiting)
		call_wait_stop(c);
	c->work = NULL;
	c->park_key = NULL;
	c->next = c->before.next;
	c->state = c->before.state;
	c->runs = c->before.runs;
	c->replayed = false;
	if (c->runs == 0)
		idempotency_release(&c->key);
	clear_reply(c);
}

int call_undo(struct call *c)
{
	assert(c->tx && c->tx->write);
	int r = tx_step_undo(c->tx);

	if (r == LAPSE_OK && c->has_key && c->runs > 1)
		r = idempotency_drop(c->tx, &c->key);
	return r;
}

lapse_ms call_wait_left(const struct call *c, lapse_ms ms)
{
	lapse_us waited = clock_mono(c->engine->clock) - c->began;

	return c->stopping || c->hurried || waited / 1000 >= ms ? 0 : ms - waited / 1000;
}

int call_park(struct call *c, const char *key, lapse_ms ms)
{
	assert(!c->work);
	c->park_key = arena_strdup(&c->arena, key);
	c->park_ms = ms;
	return CALL_WAIT;
}

int call_await(struct call *c, call_fn *next)
{
	assert(next);
	c->next = next;
	return CALL_WAIT;
}

int call_work(struct call *c, work_fn *work, call_fn *next)
{
	assert(!c->work && !c->park_key);
	c->work = work;
	c->next = next;
	return CALL_WAIT;
}

void call_header(struct call *c, const char *name, const char *value)
{
	assert(c->headers_count < CALL_HEADERS_MAX);
	c->headers[c->headers_count++] = (struct call_arg){ name, value };
}

/* What is longer may turn out at its end not to be flat, and would be read twice. */
#define FLAT_BYTES_MAX 8192

static bool parse_flat(struct call *c)
{
	struct json_flat flat;

	if (c->is_array || c->needs_tree || c->text_len > FLAT_BYTES_MAX ||
	    !json_flat_load(c->text, c->text_len, &flat))
		return false;
	c->flat = arena_alloc(&c->arena, sizeof(flat));
	*c->flat = flat;
	return true;
}

static int parse_tree(struct call *c)
{
	return (c->is_array ? json_parse_array : json_parse_object)(c->text, c->text_len, &c->body,
								    &c->problem);
}

int call_parse(struct call *c)
{
	if (c->body || c->flat)
		return LAPSE_OK;
	int r = json_check_values(c->text, c->text_len, c->engine->settings->body_max_values,
				  &c->problem);
	return r < 0 || parse_flat(c) ? r : parse_tree(c);
}

int call_body(struct call *c, const struct json_field *fields, void *out)
{
	assert(!c->flat || c->text);
	if (c->flat && !c->body) {
		if (fields_decode_flat(c->flat, fields, out, &c->arena))
			return LAPSE_OK;
		int r = parse_tree(c);
		if (r < 0)
			return r;
	}
	return fields_decode(c->body, fields, out, &c->problem);
}

static bool query_has(const struct call *c, const char *name)
{
	for (size_t i = 0; i < c->query_count; i++)
		if (strcmp(c->query[i].name, name) == 0)
			return true;
	return false;
}

static int query_is_whole(struct call *c, const struct json_field *fields)
{
	for (const struct json_field *f = fields; f->name; f++)
		if (f->required && !query_has(c, f->name))
			return problem_set(&c->problem, LAPSE_EINVAL, f->name,
					   "query parameter '%.60s' is missing", f->name);
	return LAPSE_OK;
}

int call_query(struct call *c, const struct json_field *fields, void *out)
{
	for (size_t i = 0; i < c->query_count; i++) {
		const char *name = c->query[i].name;
		const struct json_field *f = field_find(fields, name);
		if (!f)
			return problem_set(&c->problem, LAPSE_EINVAL, name,
					   "unknown query parameter '%.60s'", name);
		for (size_t j = 0; j < i; j++)
			if (strcmp(c->query[j].name, name) == 0)
				return problem_set(&c->problem, LAPSE_EINVAL, name,
						   "query parameter '%.60s' is given twice", name);
		int r = field_decode_text(f, c->query[i].value, (char *)out + f->offset,
					  &c->problem);
		if (r < 0)
			return r;
	}
	return query_is_whole(c, fields);
}

int call_id_param(struct call *c, int index, const char *name, const char **ret)
{
	int r = field_id(c->params[index], name, &c->problem);

	assert(index >= 0 && index < CALL_PARAMS_MAX);
	if (r == LAPSE_OK)
		*ret = c->params[index];
	return r;
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

/* RFC 3986: what needs no escape in a segment of a path. */
static const bool UNRESERVED[256] = {
	['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true, ['-'] = true,
	['.'] = true,         ['_'] = true,         ['~'] = true,
};

static char *add_segment(char *out, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";

	for (; *text; text++) {
		const unsigned char c = (unsigned char)*text;
		if (UNRESERVED[c]) {
			*out++ = *text;
			continue;
		}
		*out++ = '%';
		*out++ = hex[c >> 4];
		*out++ = hex[c & 15];
	}
	return out;
}

const char *call_path(struct call *c, const char *pattern, const char *first, const char *second)
{
	const char *segments[] = { first, second };
	size_t n = 0, room = strlen(pattern) + 1;

	for (size_t i = 0; i < ARRAY_LEN(segments); i++)
		room += segments[i] ? 3 * strlen(segments[i]) : 0;
	char *path = arena_alloc(&c->arena, room), *out = path;
	for (; *pattern; pattern++) {
		if (*pattern != '%') {
			*out++ = *pattern;
			continue;
		}
		assert(n < ARRAY_LEN(segments) && segments[n]);
		out = add_segment(out, segments[n++]);
	}
	*out = '\0';
	assert((size_t)(out - path) < room);
	return path;
}
