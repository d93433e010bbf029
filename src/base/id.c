/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/word.h"

#define REPLICA_BITS 8
#define COUNTER_BITS 13
#define BELOW_MS_BITS (COUNTER_BITS + REPLICA_BITS)
#define ID_MS_MAX ((INT64_C(1) << 42) - 1)
_Static_assert(42 + BELOW_MS_BITS == 63, "an id is a positive int64_t");

int64_t id_floor(lapse_ms t)
{
	if (t <= 0)
		return 0;
	return (t > ID_MS_MAX ? ID_MS_MAX : t) << BELOW_MS_BITS;
}

lapse_ms id_time(int64_t id)
{
	assert(id >= 0);
	return id >> BELOW_MS_BITS;
}

uint8_t id_replica(int64_t id)
{
	return (uint8_t)(id & ((1 << REPLICA_BITS) - 1));
}

int64_t id_next(struct idgen *g, lapse_ms now)
{
	/* Milliseconds and counter are one number: a full counter carries into the milliseconds. */
	int64_t count = id_floor(now) >> REPLICA_BITS, last = g->last >> REPLICA_BITS;

	assert(g->last >= 0 && last < INT64_MAX >> REPLICA_BITS);
	if (count <= last)
		count = last + 1;
	g->last = count << REPLICA_BITS | g->replica;
	assert(id_replica(g->last) == g->replica && g->last > last << REPLICA_BITS);
	return g->last;
}

static const char HEX[] = "0123456789abcdef";

void id_format(int64_t id, char out[ID_TEXT_LEN + 1])
{
	uint64_t u = (uint64_t)id;

	for (int i = ID_TEXT_LEN - 1; i >= 0; i--, u >>= 4)
		out[i] = HEX[u & 15];
	out[ID_TEXT_LEN] = '\0';
}

static int hex_digit(char c)
{
	const char *digit = c ? strchr(HEX, c) : NULL;

	return digit ? (int)(digit - HEX) : -1;
}

bool id_parse(const char *text, int64_t *ret)
{
	uint64_t u = 0;

	for (int i = 0; i < ID_TEXT_LEN; i++) {
		int digit = hex_digit(text[i]);
		if (digit < 0)
			return false;
		u = u << 4 | (uint64_t)digit;
	}
	if (text[ID_TEXT_LEN] != '\0' || u > INT64_MAX)
		return false;
	*ret = (int64_t)u;
	return true;
}

void random_bytes(void *out, size_t n)
{
	char *p = out;

	while (n > 0) {
		ssize_t got = getrandom(p, n, 0);
		if (got < 0) {
			assert(errno == EINTR);
			continue;
		}
		p += got;
		n -= (size_t)got;
	}
}

int64_t id_random(void)
{
	uint64_t u;

	random_bytes(&u, sizeof(u));
	return (int64_t)(u & INT64_MAX);
}

void hex_encode(const void *bytes, size_t n, char *out)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < n; i++) {
		*out++ = HEX[p[i] >> 4];
		*out++ = HEX[p[i] & 15];
	}
	*out = '\0';
}

bool hex_decode(const char *text, char *out)
{
	for (; *text; text += 2) {
		int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);
		if (low < 0)
			return false;
		*out++ = (char)(high << 4 | low);
	}
	*out = '\0';
	return true;
}

/* The length of the sequence that starts at p, 0 when it is not one; *ret_rune is its value. */
static size_t utf8_sequence(const unsigned char *p, size_t n, uint32_t *ret_rune)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };

	assert(n > 0);
	size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;

	if (len == 1) {
		*ret_rune = p[0];
		return 1;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
		return 0;
	uint32_t rune = p[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		rune = rune << 6 | (p[i] & 0x3f);
	}
	if (rune < smallest[len] || rune > 0x10ffff || (rune >= 0xd800 && rune <= 0xdfff))
		return 0;
	*ret_rune = rune;
	return len;
}

/* How many of the first bytes are printable ASCII, looked at eight at a time. */
static size_t plain_words(const char *bytes, size_t n)
{
	size_t i = 0;

	for (; i + WORD_BYTES <= n; i += WORD_BYTES) {
		const uint64_t w = word_at(bytes + i);
		if ((w & WORD_EACH(0x80)) | word_below(w, ' ') | word_holds(w, 0x7f))
			break;
	}
	return i;
}

bool utf8_is_valid(const char *bytes, size_t n, bool printable)
{
	const size_t plain = plain_words(bytes, n);
	const unsigned char *p = (const unsigned char *)bytes + plain;

	n -= plain;
	while (n > 0) {
		uint32_t rune;
		size_t len = utf8_sequence(p, n, &rune);
		if (len == 0)
			return false;
		if (printable && (rune < 0x20 || (rune >= 0x7f && rune <= 0x9f)))
			return false;
		p += len;
		n -= len;
	}
	return true;
}

void utf8_repair(char *text)
{
	unsigned char *p = (unsigned char *)text;
	size_t n = strlen(text);

	while (n > 0) {
		uint32_t rune;
		size_t len = utf8_sequence(p, n, &rune);
		if (len == 0) {
			*p = '?';
			len = 1;
		}
		p += len;
		n -= len;
	}
}

bool id_is_valid(const char *text, const char **ret_why)
{
	size_t n = strlen(text);

	if (n == 0)
		*ret_why = "must not be empty";
	else if (n > ID_MAX_BYTES)
		*ret_why = "must be at most 128 bytes";
	else if (memchr(text, '/', n))
		*ret_why = "must not contain '/'";
	else if (!utf8_is_valid(text, n, true))
		*ret_why = "must be printable UTF-8 without control characters";
	else
		return true;
	return false;
}
