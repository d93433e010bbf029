/* SPDX-License-Identifier: Apache-2.0 */
#include "http/head.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/word.h"

#define FORWARDED "X-Forwarded-"
#define VERSION_LEN 8 /* "HTTP/1.1" */

static const char NOT_IN_PLACE[] = "the head holds a NUL, a folded line or a line without CRLF";

/* To add a header: a row here, behind those with shorter names, and its field. */
static const struct {
	const char *name;
	size_t len, field;
} HEADERS[] = {
#define ROW(text, member)                                                                          \
	{                                                                                          \
		text, sizeof(text) - 1, offsetof(struct head, member)                              \
	}
	ROW("Host", host),
	ROW("Accept", accept),
	ROW("Origin", origin),
	ROW("If-Match", if_match),
	ROW("Content-Type", content_type),
	ROW("Authorization", authorization),
	ROW("If-None-Match", if_none_match),
	ROW("X-Lapse-Owner", owner),
	ROW("Content-Length", content_length),
	ROW("Sec-Fetch-Site", fetch_site),
	ROW("Idempotency-Key", idempotency_key),
	ROW("Transfer-Encoding", transfer_encoding),
#undef ROW
};

/* The characters of a token (RFC 9110), which names of headers and methods are made of. A table,
 * because every request has dozens of them. */
#define RUN3(c) [c] = true, [(c) + 1] = true, [(c) + 2] = true
#define RUN9(c) RUN3(c), RUN3((c) + 3), RUN3((c) + 6)
#define LETTERS(a)                                                                                 \
	RUN9(a), RUN9((a) + 9), RUN3((a) + 18), RUN3((a) + 21), [(a) + 24] = true, [(a) + 25] = true
static const bool IS_TOKEN_CHAR[256] = {
	LETTERS('a'), LETTERS('A'), RUN9('0'),    ['9'] = true, ['!'] = true,
	['#'] = true, ['$'] = true, ['%'] = true, ['&'] = true, ['\''] = true,
	['*'] = true, ['+'] = true, ['-'] = true, ['.'] = true, ['^'] = true,
	['_'] = true, ['`'] = true, ['|'] = true, ['~'] = true,
};
#undef LETTERS
#undef RUN9
#undef RUN3

static bool is_token(const char *text, size_t n)
{
	bool is = n > 0;

	for (size_t i = 0; i < n; i++)
		is &= IS_TOKEN_CHAR[(unsigned char)text[i]];
	return is;
}

/* Whether a byte is below `least`, or is a DEL. */
static bool has_control(const char *text, size_t n, unsigned char least)
{
	uint64_t found = 0;

	if (n < WORD_BYTES) {
		for (size_t i = 0; i < n; i++)
			found |= (unsigned char)text[i] < least || text[i] == 0x7f;
		return found != 0;
	}
	for (size_t i = 0; i < n; i += WORD_BYTES) {
		/* The last word may look at some bytes twice. */
		size_t at = i + WORD_BYTES <= n ? i : n - WORD_BYTES;
		uint64_t w = word_at(text + at);
		found |= word_below(w, least) | word_holds(w, 0x7f);
	}
	return found != 0;
}

/* A tab is the one control character that a value may hold. */
static bool is_clean_value(const char *value, size_t n)
{
	if (!has_control(value, n, ' '))
		return true;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)value[i];
		if ((c < ' ' && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static void note_fault(struct head_walk *w, const char *fault)
{
	if (!w->fault)
		w->fault = fault;
}

/* Compared as numbers: a pointer that is not where it should be may be of anything. */
static bool is_at(const char *p, const char *expected)
{
	return (uintptr_t)p == (uintptr_t)expected;
}

void head_walk_begin(struct head_walk *w, const struct head_line *line, size_t size)
{
	size_t n = strlen(line->method);

	*w = (struct head_walk){ .end = line->method + size };
	assert(!line->method[n]);
	if (!is_token(line->method, n))
		note_fault(w, "the method is no token");
	if (!is_at(line->target, line->method + n + 1) ||
	    !is_at(line->version, line->target + line->target_len + 1))
		note_fault(w, "the request line holds a NUL, or more than two spaces");
	w->at = line->version + VERSION_LEN;
}

/* A line end, which was CRLF, and then `next`. */
static bool ends_line(const struct head_walk *w, const char *next)
{
	return is_at(next, w->at + 2) && (uintptr_t)next <= (uintptr_t)w->end && !w->at[0] &&
	       !w->at[1];
}

/* The colon, now a NUL, and the white space up to the value. */
static bool is_separator(const char *from, const char *value)
{
	if ((uintptr_t)value <= (uintptr_t)from || *from != '\0')
		return false;
	for (const char *c = from + 1; c < value; c++)
		if (*c != ' ' && *c != '\t')
			return false;
	return true;
}

void head_walk_field(struct head_walk *w, const char *name, size_t name_len, const char *value,
		     size_t value_len)
{
	if (w->fault)
		return;
	if (!is_token(name, name_len))
		note_fault(w, "the name of a header is no token");
	else if (!ends_line(w, name) || (uintptr_t)value >= (uintptr_t)w->end ||
		 !is_separator(name + name_len, value))
		note_fault(w, NOT_IN_PLACE);
	else if (!is_clean_value(value, value_len)) {
		note_fault(w, "the value of a header holds a control character");
		w->field = name;
	}
	w->at = value + value_len;
}

void head_walk_end(struct head_walk *w)
{
	if (!w->fault && (!is_at(w->end, w->at + 4) || memcmp(w->at, "\0\0\0", 4) != 0))
		note_fault(w, NOT_IN_PLACE);
}

const char *head_fault(const struct head *h, const char *version)
{
	bool is_old = strcmp(version, "HTTP/1.0") == 0;

	if (h->hosts > 1 || h->framings > 1)
		return "Host, Content-Length or Transfer-Encoding is given more than once";
	if (!h->host && !is_old)
		return "Host is missing";
	if (h->transfer_encoding && (is_old || strcasecmp(h->transfer_encoding, "chunked") != 0))
		return "Transfer-Encoding must be chunked, and of HTTP/1.1";
	return NULL;
}

size_t head_target_length(const char *target, bool *ret_clean)
{
	size_t n = strlen(target);

	*ret_clean = !has_control(target, n, ' ' + 1);
	return n;
}

const char *head_target_path(const char *target, const char **ret_host, size_t *ret_host_len)
{
	size_t scheme = target[0] == '/'                          ? 0 /* nearly always */
			: strncasecmp(target, "http://", 7) == 0  ? 7
			: strncasecmp(target, "https://", 8) == 0 ? 8
								  : 0;
	const char *host = target + scheme;
	size_t n = scheme ? strcspn(host, "/") : 0;

	if (scheme && (n == 0 || memchr(host, '@', n)))
		return NULL;
	*ret_host = scheme ? host : NULL;
	*ret_host_len = n;
	return scheme && !host[n] ? "/" : host + n;
}

/* libmicrohttpd's fields */

static bool is(const char *key, size_t n, const char *name, size_t len)
{
	return n == len && strncasecmp(key, name, len) == 0;
}

#define IS(key, n, text) is(key, n, text, sizeof(text) - 1)

static void note_value(struct head *h, const char *key, size_t n, const char *value)
{
	for (size_t i = 0; i < ARRAY_LEN(HEADERS) && HEADERS[i].len <= n; i++) {
		if (!is(key, n, HEADERS[i].name, HEADERS[i].len))
			continue;
		const char **field = (const char **)(void *)((char *)h + HEADERS[i].field);
		h->hosts += field == &h->host;
		h->framings += field == &h->content_length || field == &h->transfer_encoding;
		if (!*field)
			*field = value;
		return;
	}
	h->forwarded |= IS(key, n, "Forwarded") ||
			(n >= sizeof(FORWARDED) - 1 && IS(key, sizeof(FORWARDED) - 1, FORWARDED));
}

struct head_reader {
	struct head *head;
	struct head_walk walk;
};

static enum MHD_Result note_field(void *arg, enum MHD_ValueKind kind, const char *key,
				  size_t key_size, const char *value, size_t value_size)
{
	struct head_reader *r = arg;

	if (kind == MHD_GET_ARGUMENT_KIND) {
		r->head->has_query = true;
		return MHD_YES;
	}
	head_walk_field(&r->walk, key, key_size, value, value_size);
	if (!r->walk.fault)
		note_value(r->head, key, key_size, value);
	return MHD_YES;
}

void head_read(struct MHD_Connection *mhd, const struct head_line *line, struct head *ret)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	struct head_reader r = { .head = ret };

	assert(info && line->method && line->target && line->version);
	*ret = (struct head){ 0 };
	head_walk_begin(&r.walk, line, info->header_size);
	MHD_get_connection_values_n(mhd, MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND, note_field, &r);
	head_walk_end(&r.walk);
	ret->fault_field = r.walk.field;
	ret->fault = r.walk.fault ? r.walk.fault : head_fault(ret, line->version);
}
