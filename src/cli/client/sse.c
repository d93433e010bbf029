/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/client/sse.h"

#include <assert.h>
#include <string.h>

#define RETRY_DIGITS 9 /* of a pause in milliseconds; more is nonsense */

static void buf_empty(struct buf *b)
{
	b->len = 0;
	if (b->data)
		b->data[0] = '\0';
}

static void buf_set(struct buf *b, const char *bytes, size_t n)
{
	buf_empty(b);
	buf_add(b, bytes, n);
}

void sse_done(struct sse *s)
{
	buf_done(&s->line);
	buf_done(&s->data);
	buf_done(&s->kind);
	buf_done(&s->next_id);
	buf_done(&s->last_id);
}

static void drop_event(struct sse *s)
{
	buf_empty(&s->data);
	buf_empty(&s->kind);
	s->has_data = false;
}

void sse_reset(struct sse *s)
{
	drop_event(s);
	buf_empty(&s->line);
	buf_set(&s->next_id, buf_text(&s->last_id), s->last_id.len);
	s->after_cr = false;
	s->after_start = false;
}

/* The empty line: the event is complete. One without data only sets the id. */
static bool finish_event(struct sse *s)
{
	bool more = true;

	assert(s->take && (s->has_data || s->data.len == 0));
	buf_set(&s->last_id, buf_text(&s->next_id), s->next_id.len);
	if (s->has_data) {
		struct sse_event event = { .id = buf_text(&s->last_id),
					   .kind = s->kind.len ? buf_text(&s->kind) : "message",
					   .data = buf_text(&s->data),
					   .data_len = s->data.len };
		more = s->take(s->arg, &event);
	}
	drop_event(s);
	return more;
}

static void take_retry(struct sse *s, const char *value)
{
	size_t digits = strspn(value, "0123456789");
	int64_t ms = 0;

	if (digits == 0 || digits > RETRY_DIGITS || value[digits] != '\0')
		return;
	for (size_t i = 0; i < digits; i++)
		ms = ms * 10 + (value[i] - '0');
	s->retry_ms = ms;
}

static bool take_field(struct sse *s, const char *name, size_t name_len, const char *value,
		       size_t n)
{
#define IS(text) (name_len == sizeof(text) - 1 && memcmp(name, text, name_len) == 0)
	if (IS("data")) {
		if (s->data.len + n + 1 > SSE_MAX_BYTES)
			return false;
		if (s->has_data)
			buf_putc(&s->data, '\n');
		buf_add(&s->data, value, n);
		s->has_data = true;
	} else if (IS("event")) {
		buf_set(&s->kind, value, n);
	} else if (IS("id") && !memchr(value, '\0', n)) {
		buf_set(&s->next_id, value, n);
	} else if (IS("retry")) {
		take_retry(s, value);
	}
#undef IS
	return true;
}

/* "name: value", "name:value", "name", ": comment", or the end of an event. */
static bool take_line(struct sse *s)
{
	assert(s->line.len <= SSE_MAX_BYTES && s->data.len <= SSE_MAX_BYTES);
	const char *line = buf_text(&s->line), *end = line + s->line.len;
	static const char mark[] = "\xef\xbb\xbf";

	if (!s->after_start && strncmp(line, mark, sizeof(mark) - 1) == 0)
		line += sizeof(mark) - 1;
	s->after_start = true;
	if (line == end)
		return finish_event(s);
	const char *colon = memchr(line, ':', (size_t)(end - line));
	const char *value = colon ? colon + 1 : end;
	if (value < end && *value == ' ')
		value++;
	if (colon == line)
		return !s->comment || s->comment(s->arg, value);
	return take_field(s, line, (size_t)((colon ? colon : end) - line), value,
			  (size_t)(end - value));
}

/* Bytes before the end of the line at `bytes`; `n` when it is not there yet. */
static size_t find_end(const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] == '\n' || bytes[i] == '\r')
			return i;
	return n;
}

bool sse_feed(struct sse *s, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n;) {
		if (s->after_cr && bytes[i] == '\n') {
			s->after_cr = false;
			i++;
			continue;
		}
		s->after_cr = false;
		size_t len = find_end(bytes + i, n - i);
		if (s->line.len + len > SSE_MAX_BYTES)
			return false;
		buf_add(&s->line, bytes + i, len);
		i += len;
		if (i == n)
			break;
		s->after_cr = bytes[i++] == '\r';
		bool more = take_line(s);
		buf_empty(&s->line);
		if (!more)
			return false;
	}
	return true;
}
