/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_quick.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/word.h"

#define DIGITS_MAX 18 /* always fit into 64 bits */

struct quick_reader {
	const char *at, *end;
	int depth; /* levels that may still begin */
};

static json_t *quick_value(struct quick_reader *r);

static void skip_space(struct quick_reader *r)
{
	while (r->at < r->end &&
	       (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
		r->at++;
}

/* Takes this byte, and the white space before it. */
static bool takes(struct quick_reader *r, char c)
{
	skip_space(r);
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

/* The bytes of a text up to its quote; -1 = something in it has to be decoded, or it has no end.
 * *ret_ascii = each byte is. */
static ptrdiff_t text_length(const struct quick_reader *r, bool *ret_ascii)
{
	const char *p = r->at;
	uint64_t high = 0, special = 0;

	for (; r->end - p >= WORD_BYTES; p += WORD_BYTES) {
		uint64_t w = word_at(p);
		special = word_json_special(w);
		if (special) {
			size_t n = word_first(special);
			high |= n > 0 ? w << (64 - 8 * n) : 0;
			p += n;
			break;
		}
		high |= w;
	}
	for (; !special && p < r->end; p++) {
		unsigned char c = (unsigned char)*p;
		if (c == '"' || c == '\\' || c < ' ')
			break;
		high |= c & 0x80;
	}
	*ret_ascii = (high & WORD_EACH(0x80)) == 0;
	return p < r->end && *p == '"' ? p - r->at : -1;
}

/* The quote before it is taken already. */
static json_t *quick_text(struct quick_reader *r)
{
	bool ascii;
	ptrdiff_t n = text_length(r, &ascii);

	if (n < 0)
		return NULL;
	const char *text = r->at;
	r->at += n + 1;
	return ascii ? json_stringn_nocheck(text, (size_t)n) : json_stringn(text, (size_t)n);
}

/* Whether the value before this place ends here: nothing may follow that jansson would take for a
 * part of it. */
static bool value_ends(const struct quick_reader *r)
{
	return r->at < r->end && *r->at != '\0' && strchr(",]} \n\t\r", *r->at);
}

static bool takes_integer(struct quick_reader *r, int64_t *ret)
{
	const char *start = r->at;
	int64_t n = 0;

	while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && r->at - start < DIGITS_MAX)
		n = n * 10 + (*r->at++ - '0');
	*ret = n;
	return value_ends(r) && (*start != '0' || r->at - start == 1);
}

static bool takes_word(struct quick_reader *r, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(r->end - r->at) <= n || memcmp(r->at, word, n) != 0)
		return false;
	r->at += n;
	return value_ends(r);
}

static json_t *quick_integer(struct quick_reader *r)
{
	int64_t n;

	return takes_integer(r, &n) ? json_integer(n) : NULL;
}

static bool quick_member(struct quick_reader *r, json_t *object)
{
	bool ascii;
	ptrdiff_t n = takes(r, '"') ? text_length(r, &ascii) : -1;

	if (n < 0 || !ascii)
		return false;
	const char *key = r->at;
	r->at += n + 1;
	json_t *value = takes(r, ':') ? quick_value(r) : NULL;
	size_t before = json_object_size(object);
	/* A name that was there already makes it no larger. */
	return value && json_object_setn_new_nocheck(object, key, (size_t)n, value) == 0 &&
	       json_object_size(object) > before;
}

static bool quick_members(struct quick_reader *r, json_t *object)
{
	if (takes(r, '}'))
		return true;
	do {
		if (!quick_member(r, object))
			return false;
	} while (takes(r, ','));
	return takes(r, '}');
}

static bool quick_items(struct quick_reader *r, json_t *array)
{
	if (takes(r, ']'))
		return true;
	do {
		json_t *value = quick_value(r);
		if (!value || json_array_append_new(array, value) != 0)
			return false;
	} while (takes(r, ','));
	return takes(r, ']');
}

static json_t *quick_container(struct quick_reader *r)
{
	bool is_object = *r->at == '{';
	json_t *CLEANUP(json_freep) j = NULL;

	if (r->depth == 0)
		return NULL;
	r->depth--;
	r->at++;
	j = is_object ? json_object() : json_array();
	if (!j || !(is_object ? quick_members(r, j) : quick_items(r, j)))
		return NULL;
	r->depth++;
	json_t *whole = j;
	j = NULL;
	return whole;
}

static json_t *quick_value(struct quick_reader *r)
{
	skip_space(r);
	if (r->at == r->end)
		return NULL;
	switch (*r->at) {
	case '"':
		r->at++;
		return quick_text(r);
	case '{':
	case '[':
		return quick_container(r);
	case 't':
		return takes_word(r, "true") ? json_true() : NULL;
	case 'f':
		return takes_word(r, "false") ? json_false() : NULL;
	case 'n':
		return takes_word(r, "null") ? json_null() : NULL;
	default:
		return *r->at >= '0' && *r->at <= '9' ? quick_integer(r) : NULL;
	}
}

json_t *json_quick_load(const char *text, size_t n, int depth)
{
	struct quick_reader r = { .at = text, .end = text + n, .depth = depth };

	assert(text && depth > 0);
	skip_space(&r);
	if (r.at == r.end || (*r.at != '{' && *r.at != '['))
		return NULL;
	json_t *CLEANUP(json_freep) j = quick_container(&r);
	skip_space(&r);
	if (!j || r.at != r.end)
		return NULL;
	json_t *whole = j;
	j = NULL;
	return whole;
}

/* Flat objects */

static bool flat_text(struct quick_reader *r, const char **ret, size_t *ret_len)
{
	bool ascii;
	ptrdiff_t n = takes(r, '"') ? text_length(r, &ascii) : -1;

	if (n < 0 || !ascii)
		return false;
	*ret = r->at;
	*ret_len = (size_t)n;
	r->at += n + 1;
	return true;
}

static bool flat_value(struct quick_reader *r, struct json_flat_member *m)
{
	skip_space(r);
	if (r->at == r->end)
		return false;
	switch (*r->at) {
	case '"':
		m->type = JSON_STRING;
		return flat_text(r, &m->text, &m->text_len);
	case 't':
		m->type = JSON_TRUE;
		return takes_word(r, "true");
	case 'f':
		m->type = JSON_FALSE;
		return takes_word(r, "false");
	case 'n':
		m->type = JSON_NULL;
		return takes_word(r, "null");
	default:
		m->type = JSON_INTEGER;
		return *r->at >= '0' && *r->at <= '9' && takes_integer(r, &m->number);
	}
}

static bool flat_is(const struct json_flat_member *m, const char *name, size_t n)
{
	return m->name_len == n && memcmp(m->name, name, n) == 0;
}

static bool flat_member(struct quick_reader *r, struct json_flat *f)
{
	struct json_flat_member *m = &f->members[f->count];

	if (f->count == JSON_FLAT_MAX || !flat_text(r, &m->name, &m->name_len) || !takes(r, ':') ||
	    !flat_value(r, m))
		return false;
	for (size_t i = 0; i < f->count; i++)
		if (flat_is(&f->members[i], m->name, m->name_len))
			return false;
	f->count++;
	return true;
}

bool json_flat_load(const char *text, size_t n, struct json_flat *ret)
{
	struct quick_reader r = { .at = text, .end = text + n };

	assert(text);
	ret->count = 0;
	if (!takes(&r, '{'))
		return false;
	if (!takes(&r, '}')) {
		do {
			if (!flat_member(&r, ret))
				return false;
		} while (takes(&r, ','));
		if (!takes(&r, '}'))
			return false;
	}
	skip_space(&r);
	return r.at == r.end;
}

const struct json_flat_member *json_flat_find(const struct json_flat *f, const char *name)
{
	const size_t n = strlen(name);

	assert(f->count <= JSON_FLAT_MAX);
	for (size_t i = 0; i < f->count; i++)
		if (flat_is(&f->members[i], name, n))
			return &f->members[i];
	return NULL;
}
