/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of a head. The input is a head as it comes; a forgiving parser cuts it in place, as
 * libmicrohttpd does, and a strict reading of the untouched bytes says what the walk must find: a
 * head without a fault has nothing in it but proper lines.
 */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "http/head.h"

#define HEAD_MAX 4096

static bool is_tchar(unsigned char c)
{
	return c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

/* A field line without its CRLF. */
static bool is_proper_line(const unsigned char *line, size_t n)
{
	const unsigned char *colon = memchr(line, ':', n);

	if (!colon || colon == line)
		return false;
	for (const unsigned char *c = line; c < colon; c++)
		if (!is_tchar(*c))
			return false;
	for (const unsigned char *c = colon + 1; c < line + n; c++)
		if ((*c < ' ' && *c != '\t') || *c == 0x7f)
			return false;
	return true;
}

/* libmicrohttpd puts NULs in the place of line ends, so it leaves no trace of a NUL that stood in
 * the place of a CR, or of the LF of a pair: such a line end counts as CRLF here. */
static void forget_what_leaves_no_trace(unsigned char *at, unsigned char *end)
{
	while (at < end) {
		unsigned char *run = at;
		while (at < end && (*at == '\0' || *at == '\r' || *at == '\n'))
			at++;
		if (memchr(run, '\n', (size_t)(at - run)) && (at - run == 2 || at - run == 4))
			memcpy(run, "\r\n\r\n", (size_t)(at - run));
		at += at == run;
	}
}

/* Every byte after the request line, up to the empty line. */
static bool are_proper_lines(const unsigned char *at, const unsigned char *end)
{
	while (at < end) {
		const unsigned char *cr = memmem(at, (size_t)(end - at), "\r\n", 2);
		if (!cr)
			return false;
		if (cr == at)
			return at + 2 == end;
		if (!is_proper_line(at, (size_t)(cr - at)))
			return false;
		at = cr + 2;
	}
	return false;
}

/* The end of a line for who forgives: CRLF, or LF alone. Cuts it. */
static char *cut_line(char *at, char *end)
{
	char *lf = memchr(at, '\n', (size_t)(end - at));

	if (!lf)
		return NULL;
	*lf = '\0';
	if (lf > at && lf[-1] == '\r')
		lf[-1] = '\0';
	return lf + 1;
}

/* Where the head ends for who forgives: after the first line that is empty, or begins with a NUL. 0
 * = nowhere. */
static size_t head_size(const uint8_t *data, size_t size)
{
	for (size_t at = 0; at < size;) {
		const uint8_t *lf = memchr(data + at, '\n', size - at);
		if (!lf)
			return 0;
		size_t next = (size_t)(lf - data) + 1;
		if (at > 0 && (data[at] == '\n' || data[at] == '\0' || data[at] == '\r'))
			return next;
		at = next;
	}
	return 0;
}

/* Gives the walk what a forgiving parser sees; false = it sees no end of the head. */
static bool walk_fields(struct head_walk *w, char *at, char *end)
{
	while (at < end) {
		char *next = cut_line(at, end);
		if (!next)
			return false;
		if (!*at)
			return true;
		char *colon = strchr(at, ':');
		if (!colon)
			return false;
		*colon = '\0';
		char *value = colon + 1 + strspn(colon + 1, " \t");
		head_walk_field(w, at, strlen(at), value, strlen(value));
		at = next;
	}
	return false;
}

static void check_target(const char *target)
{
	const char *host = NULL;
	size_t n = 0;
	bool clean;
	const char *path = head_target_path(target, &host, &n);

	assert(head_target_length(target, &clean) == strlen(target));
	assert(!host || (n > 0 && n <= strlen(target)));
	assert(!path || path[0] || !host);
}

/* libmicrohttpd refuses everything else by itself. */
static bool is_version(const char *text)
{
	return strlen(text) == 8 && strncmp(text, "HTTP/", 5) == 0 &&
	       isdigit((unsigned char)text[5]) && text[6] == '.' && isdigit((unsigned char)text[7]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char raw[HEAD_MAX + 1], cut[HEAD_MAX + 1];
	struct head_line line;
	struct head_walk w;

	size = head_size(data, size);
	if (size < 16 || size > HEAD_MAX)
		return 0;
	memcpy(raw, data, size);
	memcpy(cut, data, size);
	raw[size] = cut[size] = '\0';
	char *fields = cut_line(cut, cut + size), *space = strchr(cut, ' ');
	char *version = space ? strchr(space + 1, ' ') : NULL;
	if (!fields || !version || !is_version(version + 1))
		return 0;
	*space = *version = '\0';
	line = (struct head_line){ cut, space + 1, version + 1, strlen(space + 1) };
	check_target(line.target);
	head_walk_begin(&w, &line, size);
	bool whole = walk_fields(&w, fields, cut + size);
	head_walk_end(&w);
	forget_what_leaves_no_trace((unsigned char *)raw, (unsigned char *)raw + size);
	if (whole && !w.fault) /* the version has 8 bytes, and its line ended with CRLF */
		assert(are_proper_lines((unsigned char *)raw + (line.version + 8 + 2 - cut),
					(unsigned char *)raw + size));
	return 0;
}
