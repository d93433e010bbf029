/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that knows libyaml: its events become nodes. */
#include "contract/document.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"

struct reading {
	struct document *doc;
	yaml_parser_t parser;
	struct buf *error;
	size_t nodes;
};

int document_refuse(const struct document *d, const struct node *at, struct buf *error,
		    const char *format, ...)
{
	char text[1024];
	va_list ap;

	assert(at->line > 0 && at->column > 0);
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	buf_clear(error);
	buf_printf(error, "%s:%d:%d: %s", d->file, at->line, at->column, text);
	return LAPSE_EINVAL;
}

static int refuse_mark(struct reading *r, yaml_mark_t mark, const char *why)
{
	struct node at = { .line = (int)mark.line + 1, .column = (int)mark.column + 1 };

	return document_refuse(r->doc, &at, r->error, "%s", why);
}

/* libyaml's own complaint; its encoding errors have an offset in place of a mark. */
static int refuse_syntax(struct reading *r)
{
	const yaml_parser_t *p = &r->parser;
	const char *why = p->problem ? p->problem : "not YAML";

	if (p->error == YAML_READER_ERROR)
		return refuse_mark(r, p->mark, "the file is not valid UTF-8 text");
	return refuse_mark(r, p->problem_mark, why);
}

static int read_event(struct reading *r, yaml_event_t *ret)
{
	return yaml_parser_parse(&r->parser, ret) ? LAPSE_OK : refuse_syntax(r);
}

static struct node *node_new(struct reading *r, const yaml_event_t *e, enum node_kind kind)
{
	struct node *n = arena_alloc(&r->doc->arena, sizeof(*n));

	n->kind = kind;
	n->line = (int)e->start_mark.line + 1;
	n->column = (int)e->start_mark.column + 1;
	r->nodes++;
	return n;
}

static int read_node(struct reading *r, yaml_event_t *e, int depth, struct node **ret);

static int read_scalar(struct reading *r, const yaml_event_t *e, struct node **ret)
{
	const char *bytes = (const char *)e->data.scalar.value;
	struct node *n = node_new(r, e, NODE_SCALAR);

	if (e->data.scalar.anchor)
		return document_refuse(r->doc, n, r->error, "anchors are not allowed");
	if (e->data.scalar.tag)
		return document_refuse(r->doc, n, r->error, "tags are not allowed");
	if (memchr(bytes, '\0', e->data.scalar.length))
		return document_refuse(r->doc, n, r->error, "a text must not hold NUL");
	n->text = arena_strndup(&r->doc->arena, bytes, e->data.scalar.length);
	n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	*ret = n;
	return LAPSE_OK;
}

/* The next child, or *ret = NULL at the end of the collection. */
static int read_child(struct reading *r, int depth, struct node **ret)
{
	yaml_event_t e;
	int err = read_event(r, &e);

	if (err < 0)
		return err;
	*ret = NULL;
	if (e.type != YAML_SEQUENCE_END_EVENT && e.type != YAML_MAPPING_END_EVENT)
		err = read_node(r, &e, depth, ret);
	yaml_event_delete(&e);
	return err;
}

static int check_key(struct reading *r, const struct node *map, const struct node *key)
{
	if (key->kind != NODE_SCALAR)
		return document_refuse(r->doc, key, r->error, "a key must be a text");
	const struct node *twin = node_get(map, key->text);
	if (twin)
		return document_refuse(r->doc, key, r->error,
				       "duplicate key '%s': it is already on line %d", key->text,
				       twin->key->line);
	return LAPSE_OK;
}

static int read_children(struct reading *r, struct node *parent, int depth)
{
	struct node **tail = &parent->first;

	for (;;) {
		struct node *key = NULL, *value = NULL;
		int err = read_child(r, depth + 1, parent->kind == NODE_MAP ? &key : &value);
		if (err < 0)
			return err;
		if (!key && !value)
			return LAPSE_OK;
		if (key)
			err = check_key(r, parent, key);
		if (err == LAPSE_OK && key)
			err = read_child(r, depth + 1, &value);
		if (err < 0)
			return err;
		assert(value);
		value->key = key;
		*tail = value;
		tail = &value->next;
		parent->count++;
	}
}

static int read_collection(struct reading *r, const yaml_event_t *e, int depth, struct node **ret)
{
	bool map = e->type == YAML_MAPPING_START_EVENT;
	struct node *n = node_new(r, e, map ? NODE_MAP : NODE_LIST);

	if (map ? !!e->data.mapping_start.anchor : !!e->data.sequence_start.anchor)
		return document_refuse(r->doc, n, r->error, "anchors are not allowed");
	if (map ? !!e->data.mapping_start.tag : !!e->data.sequence_start.tag)
		return document_refuse(r->doc, n, r->error, "tags are not allowed");
	if (depth >= DOCUMENT_DEPTH_MAX)
		return document_refuse(r->doc, n, r->error, "nested too deeply");
	int err = read_children(r, n, depth);
	if (err == LAPSE_OK)
		*ret = n;
	return err;
}

static int read_node(struct reading *r, yaml_event_t *e, int depth, struct node **ret)
{
	if (r->nodes >= DOCUMENT_NODES_MAX)
		return refuse_mark(r, e->start_mark, "the file has too many values");
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return read_scalar(r, e, ret);
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		return read_collection(r, e, depth, ret);
	case YAML_ALIAS_EVENT:
		return refuse_mark(r, e->start_mark, "aliases are not allowed");
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_STREAM_END_EVENT:
	case YAML_DOCUMENT_START_EVENT:
	case YAML_DOCUMENT_END_EVENT:
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		break;
	}
	return refuse_mark(r, e->start_mark, "a value is missing");
}

/* Reads one event and demands its type. */
static int expect_event(struct reading *r, yaml_event_type_t type, const char *otherwise)
{
	yaml_event_t e;
	int err = read_event(r, &e);

	if (err < 0)
		return err;
	if (e.type != type)
		err = refuse_mark(r, e.start_mark, otherwise);
	yaml_event_delete(&e);
	return err;
}

static int read_document(struct reading *r)
{
	yaml_event_t e;
	int err = expect_event(r, YAML_STREAM_START_EVENT, "the file is not YAML");

	if (err == LAPSE_OK)
		err = expect_event(r, YAML_DOCUMENT_START_EVENT, "the file is empty");
	if (err == LAPSE_OK)
		err = read_event(r, &e);
	if (err < 0)
		return err;
	err = read_node(r, &e, 0, &r->doc->root);
	yaml_event_delete(&e);
	if (err == LAPSE_OK)
		err = expect_event(r, YAML_DOCUMENT_END_EVENT, "the file is not YAML");
	if (err == LAPSE_OK)
		err = expect_event(r, YAML_STREAM_END_EVENT, "a file holds one contract only");
	return err;
}

int document_parse(struct document *d, const char *file, const char *text, size_t size,
		   struct buf *error)
{
	struct reading r = { .doc = d, .error = error };

	*d = (struct document){ 0 };
	arena_init(&d->arena);
	d->file = arena_strdup(&d->arena, file);
	if (!yaml_parser_initialize(&r.parser))
		abort();
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
	int err = read_document(&r);
	yaml_parser_delete(&r.parser);
	if (err < 0)
		d->root = NULL;
	assert((err == LAPSE_OK) == (d->root != NULL));
	return err;
}

int document_read(struct document *d, const char *file, struct buf *error)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	struct problem p = { 0 };
	int err = file_load(file, DOCUMENT_BYTES_MAX, &text, &p);

	*d = (struct document){ 0 };
	arena_init(&d->arena);
	if (err == LAPSE_OK)
		return document_parse(d, file, buf_text(&text), text.len, error);
	buf_clear(error);
	buf_puts(error, problem_text(&p, err));
	return err;
}

void document_done(struct document *d)
{
	arena_done(&d->arena);
	*d = (struct document){ 0 };
	arena_init(&d->arena);
}

const struct node *node_get(const struct node *map, const char *key)
{
	assert(map->kind == NODE_MAP);
	for (const struct node *n = map->first; n; n = n->next)
		if (strcmp(n->key->text, key) == 0)
			return n;
	return NULL;
}

bool node_is_null(const struct node *n)
{
	return n->kind == NODE_SCALAR && n->plain &&
	       (n->text[0] == '\0' || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}

#define NAME_MAX_SUGGESTED 40

static size_t smaller_of(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many letters must be added, dropped, changed or swapped with their neighbour. */
static size_t mistakes(const char *a, const char *b)
{
	size_t rows[3][NAME_MAX_SUGGESTED + 1] = { 0 };
	size_t n = strlen(a), m = strlen(b);

	if (n > NAME_MAX_SUGGESTED || m > NAME_MAX_SUGGESTED)
		return NAME_MAX_SUGGESTED;
	for (size_t j = 0; j <= m; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
		now[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);
			now[j] = smaller_of(change, smaller_of(now[j - 1], last[j]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = smaller_of(now[j], before[j - 2] + 1);
		}
	}
	return rows[n % 3][m];
}

const char *suggest(const char *text, const char *const *names)
{
	size_t allowed = strlen(text) < 5 ? 1 : 2, best = allowed + 1;
	const char *found = NULL;

	for (; *names; names++) {
		size_t n = mistakes(text, *names);
		if (n < best) {
			best = n;
			found = *names;
		}
	}
	return found;
}
