/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

lapse_ms attachment_due_at(const struct attachment_terms *t, lapse_ms inserted_at)
{
	return t->persist || t->ttl_ms == LAPSE_NEVER ? LAPSE_NEVER
						      : time_add(inserted_at, t->ttl_ms);
}

bool attachment_is_due(lapse_ms due_at, lapse_ms now)
{
	return due_at != LAPSE_NEVER && due_at <= now;
}

struct attachment_terms attachment_merge(const struct attachment_terms *had,
					 const struct attachment_terms *wanted)
{
	return (struct attachment_terms){ had->persist || wanted->persist,
					  had->ttl_ms > wanted->ttl_ms ? had->ttl_ms
								       : wanted->ttl_ms };
}

/* Ranges */

/* Digits only; false for anything else. A number too large is the largest one. */
static bool read_number(const char **text, int64_t *ret)
{
	size_t n = strspn(*text, "0123456789");

	if (n == 0)
		return false;
	errno = 0;
	long long value = strtoll(*text, NULL, 10);
	*ret = errno == ERANGE ? INT64_MAX : value;
	*text += n;
	return true;
}

static enum range_verdict judge_range(int64_t first, int64_t last, int64_t size,
				      int64_t *ret_offset, int64_t *ret_length)
{
	if (first >= size)
		return RANGE_UNSATISFIABLE;
	last = last < size ? last : size - 1;
	*ret_offset = first;
	*ret_length = last - first + 1;
	return RANGE_PART;
}

enum range_verdict attachment_range(const char *header, int64_t size, int64_t *ret_offset,
				    int64_t *ret_length)
{
	int64_t first = 0, last = INT64_MAX;

	*ret_offset = 0;
	*ret_length = size;
	if (!header || strncasecmp(header, "bytes=", 6) != 0)
		return RANGE_WHOLE;
	const char *text = header + 6;
	bool has_first = read_number(&text, &first);
	if (*text++ != '-')
		return RANGE_WHOLE;
	bool has_last = read_number(&text, &last);
	if (*text != '\0' || (!has_first && !has_last) || (has_first && last < first))
		return RANGE_WHOLE;
	if (!has_first) { /* the last so many */
		if (last == 0)
			return RANGE_UNSATISFIABLE;
		first = last < size ? size - last : 0;
		last = INT64_MAX;
	}
	return judge_range(first, last, size, ret_offset, ret_length);
}

/* Names */

static char harmless(char c, bool first)
{
	if ((unsigned char)c < 0x20 || c == 0x7f || strchr("/\\\"%*:<>?|;", c))
		return '_';
	if (first && c == '.') /* no hidden file, no parent directory */
		return '_';
	return c;
}

static void add_plain(struct buf *out, const char *name)
{
	for (const char *c = name; *c; c++) {
		if ((unsigned char)*c >= 0xc0)
			buf_putc(out, '_'); /* once a character */
		else if ((unsigned char)*c < 0x80)
			buf_putc(out, harmless(*c, c == name));
	}
}

static void add_encoded(struct buf *out, const char *name)
{
	static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789!#$&+-.^_`|~";

	for (const char *c = name; *c; c++) {
		char h = *c;
		if ((unsigned char)h < 0x80)
			h = harmless(h, c == name);
		if (strchr(safe, h))
			buf_putc(out, h);
		else
			buf_printf(out, "%%%02X", (unsigned char)h);
	}
}

void attachment_disposition(struct buf *out, const char *name)
{
	buf_puts(out, "attachment; filename=\"");
	add_plain(out, name);
	buf_puts(out, "\"; filename*=UTF-8''");
	add_encoded(out, name);
}

/* Roots */

static size_t without_slashes(const char *root, size_t n)
{
	while (n > 1 && root[n - 1] == '/')
		n--;
	return n;
}

const char *attachment_below_root(const char *roots, const char *path, const char **ret_root,
				  size_t *ret_root_len)
{
	for (const char *root = roots; *root;) {
		size_t whole = strcspn(root, ":"), n = without_slashes(root, whole);
		const char *rest = path + n;
		if (n == 1) /* the root of everything */
			rest = path;
		if (n > 0 && strncmp(path, root, n) == 0 && *rest == '/') {
			rest += strspn(rest, "/");
			*ret_root = root;
			*ret_root_len = n;
			return *rest ? rest : NULL;
		}
		root += whole + (root[whole] == ':');
	}
	return NULL;
}

bool attachment_roots_are_valid(const char *roots)
{
	for (const char *root = roots; *root;) {
		size_t n = strcspn(root, ":");
		if (n == 0 || root[0] != '/')
			return false;
		root += n + (root[n] == ':');
	}
	return true;
}
