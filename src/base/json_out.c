/* SPDX-License-Identifier: Apache-2.0 */
/* The writing half of base/json.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "base/word.h"

/* A value follows another value exactly when the last byte ended one. */
static void separate(struct buf *b)
{
	char last = '{';

	if (b->len > 0)
		last = b->data[b->len - 1];
	if (last != '{' && last != '[' && last != ':')
		buf_putc(b, ',');
}

void json_begin(struct buf *b, char bracket)
{
	assert(bracket == '{' || bracket == '[');
	separate(b);
	buf_putc(b, bracket);
}

void json_end(struct buf *b, char bracket)
{
	assert(bracket == '}' || bracket == ']');
	assert(b->len > 0 && b->data[b->len - 1] != ':'); /* a key waits for its value */
	buf_putc(b, bracket);
}

static void put_escaped(struct buf *b, unsigned char c)
{
	switch (c) {
	case '"':
		buf_add(b, "\\\"", 2);
		break;
	case '\\':
		buf_add(b, "\\\\", 2);
		break;
	case '\n':
		buf_add(b, "\\n", 2);
		break;
	case '\r':
		buf_add(b, "\\r", 2);
		break;
	case '\t':
		buf_add(b, "\\t", 2);
		break;
	default:
		buf_printf(b, "\\u%04x", c);
	}
}

/* How many of the `n` bytes from `s` on can be copied as they are. */
static size_t plain_run(const char *s, size_t n)
{
	static const bool special[256] = {
		[0 ... 0x1f] = true,
		['"'] = true,
		['\\'] = true,
	};
	size_t i = 0;

	for (; i + WORD_BYTES <= n; i += WORD_BYTES) {
		uint64_t mask = word_json_special(word_at(s + i));
		if (mask)
			return i + word_first(mask);
	}
	if (i < n && n >= WORD_BYTES) { /* the last word has some bytes that were looked at */
		uint64_t mask = word_json_special(word_at(s + n - WORD_BYTES));
		return mask ? n - WORD_BYTES + word_first(mask) : n;
	}
	while (i < n && !special[(unsigned char)s[i]])
		i++;
	return i;
}

/* In quotes; then `after`, unless it is NUL. */
static void put_with_escapes(struct buf *b, const char *s, size_t n, char after)
{
	const char *end = s + n;

	buf_putc(b, '"');
	while (s < end) {
		size_t run = plain_run(s, (size_t)(end - s));
		buf_add(b, s, run);
		s += run;
		if (s < end)
			put_escaped(b, (unsigned char)*s++);
	}
	buf_putc(b, '"');
	if (after != '\0')
		buf_putc(b, after);
}

/* The same for bytes that need no escape. */
static inline void put_plain(struct buf *b, const char *s, size_t n, char after)
{
	buf_reserve(b, n + 3);
	char *out = b->data + b->len;
	out[0] = '"';
	memcpy(out + 1, s, n);
	out[n + 1] = '"';
	out[n + 2] = after;
	out[n + 3] = '\0';
	b->len += n + 2 + (after != '\0');
}

static void put_quoted(struct buf *b, const char *s)
{
	size_t n = strlen(s);

	if (plain_run(s, n) < n)
		put_with_escapes(b, s, n, '\0');
	else
		put_plain(b, s, n, '\0');
}

void json_key(struct buf *b, const char *key)
{
	assert(key);
	assert(b->len == 0 || b->data[b->len - 1] != ':'); /* as above */
	const size_t n = strlen(key);
	separate(b);
	if (plain_run(key, n) < n)
		put_with_escapes(b, key, n, ':');
	else
		put_plain(b, key, n, ':');
}

void json_text(struct buf *b, const char *s)
{
	separate(b);
	if (s)
		put_quoted(b, s);
	else
		buf_add(b, "null", 4);
}

void json_int(struct buf *b, int64_t n)
{
	separate(b);
	buf_int(b, n);
}

void json_bool(struct buf *b, bool v)
{
	separate(b);
	buf_puts(b, v ? "true" : "false");
}

void json_raw(struct buf *b, const char *json)
{
	separate(b);
	buf_puts(b, json ? json : "null");
}

void json_time(struct buf *b, lapse_ms t)
{
	char text[TIME_TEXT_LEN + 1];

	if (t == LAPSE_NEVER) {
		json_text(b, NULL);
		return;
	}
	time_format(t, text);
	separate(b);
	put_plain(b, text, TIME_TEXT_LEN, '\0');
}

void json_id(struct buf *b, int64_t id)
{
	char text[ID_TEXT_LEN + 1];

	id_format(id, text);
	separate(b);
	put_plain(b, text, ID_TEXT_LEN, '\0');
}

void json_put_text(struct buf *b, const char *key, const char *s)
{
	json_key(b, key);
	json_text(b, s);
}

void json_put_int(struct buf *b, const char *key, int64_t n)
{
	json_key(b, key);
	json_int(b, n);
}

void json_put_bool(struct buf *b, const char *key, bool v)
{
	json_key(b, key);
	json_bool(b, v);
}

void json_put_time(struct buf *b, const char *key, lapse_ms t)
{
	json_key(b, key);
	json_time(b, t);
}

void json_put_id(struct buf *b, const char *key, int64_t id)
{
	json_key(b, key);
	json_id(b, id);
}

void json_put_raw(struct buf *b, const char *key, const char *json)
{
	json_key(b, key);
	json_raw(b, json);
}

void json_put_ttl(struct buf *b, const char *key, lapse_ms ttl)
{
	json_key(b, key);
	if (ttl == LAPSE_NEVER)
		json_text(b, TTL_INFINITY);
	else
		json_int(b, ttl);
}
