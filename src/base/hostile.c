/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hostile.h"

#include <inttypes.h>

#include "base/id.h"
#include "base/mem.h"

static const struct {
	uint32_t first, last;
} HOSTILE[] = {
	{ 0x00, 0x1f },     { 0x7f, 0x9f },     { 0x61c, 0x61c },
	{ 0x200e, 0x200f }, { 0x2028, 0x202e }, { 0x2066, 0x2069 },
	{ 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
};

bool hostile_is(uint32_t code_point)
{
	for (size_t i = 0; i < ARRAY_LEN(HOSTILE); i++)
		if (code_point >= HOSTILE[i].first && code_point <= HOSTILE[i].last)
			return true;
	return false;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *ret)
{
	unsigned char c = (unsigned char)s[0];
	size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

	if (len > n || !utf8_is_valid(s, len, false))
		return 0;
	uint32_t code = len == 1 ? c : c & (0xffu >> (len + 1));
	for (size_t i = 1; i < len; i++)
		code = code << 6 | ((unsigned char)s[i] & 0x3f);
	*ret = code;
	return len;
}

static void add_unicode_escape(struct buf *out, uint32_t c)
{
	if (c < 0x10000) {
		buf_printf(out, "\\u%04" PRIx32, c);
		return;
	}
	c -= 0x10000;
	buf_printf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
}

void hostile_escape_json(struct buf *out, const char *json, size_t n)
{
	size_t done = 0;

	for (size_t i = 0; i < n;) {
		unsigned char byte = (unsigned char)json[i];
		uint32_t c = 0;
		if (byte < 0x7f) {
			i++;
			continue;
		}
		size_t len = utf8_decode(json + i, n - i, &c);
		if (len > 0 && hostile_is(c)) {
			buf_add(out, json + done, i - done);
			add_unicode_escape(out, c);
			done = i + len;
		}
		i += len > 0 ? len : 1;
	}
	buf_add(out, json + done, n - done);
}
