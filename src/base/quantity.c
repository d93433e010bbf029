/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quantity.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define FRACTION_DIGITS_MAX 6 /* enough for any exact fraction people write */

struct quantity_unit {
	const char *name;
	int64_t factor;
};

static const struct quantity_unit SPAN_UNITS[] = {
	{ "ms", 1 },      { "s", 1000 },     { "m", 60000 },
	{ "h", 3600000 }, { "d", 86400000 }, { "w", INT64_C(604800000) },
};

static const struct quantity_unit BYTE_UNITS[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "K", INT64_C(1) << 10 },
	{ "KiB", INT64_C(1) << 10 },
	{ "KB", 1000 },
	{ "M", INT64_C(1) << 20 },
	{ "MiB", INT64_C(1) << 20 },
	{ "MB", 1000000 },
	{ "G", INT64_C(1) << 30 },
	{ "GiB", INT64_C(1) << 30 },
	{ "GB", 1000000000 },
	{ "T", INT64_C(1) << 40 },
	{ "TiB", INT64_C(1) << 40 },
	{ "TB", INT64_C(1000000000000) },
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Reads "12" or "1.5" at `*text` as digits / scale and moves past it. */
static bool quantity_number(const char **text, int64_t *ret_digits, int64_t *ret_scale)
{
	const char *at = *text;
	int64_t digits = 0, scale = 1;
	int fraction = 0;

	if (!is_digit(*at))
		return false;
	for (; is_digit(*at); at++)
		if (__builtin_mul_overflow(digits, 10, &digits) ||
		    __builtin_add_overflow(digits, *at - '0', &digits))
			return false;
	if (*at == '.') {
		if (!is_digit(*++at))
			return false;
		for (; is_digit(*at); at++, scale *= 10)
			if (++fraction > FRACTION_DIGITS_MAX ||
			    __builtin_mul_overflow(digits, 10, &digits) ||
			    __builtin_add_overflow(digits, *at - '0', &digits))
				return false;
	}
	*text = at;
	*ret_digits = digits;
	*ret_scale = scale;
	return true;
}

static const struct quantity_unit *quantity_unit_find(const struct quantity_unit *units,
						      size_t count, const char *name, size_t n,
						      bool any_case)
{
	for (size_t i = 0; i < count; i++) {
		if (strlen(units[i].name) != n)
			continue;
		if (any_case ? strncasecmp(units[i].name, name, n) == 0
			     : strncmp(units[i].name, name, n) == 0)
			return &units[i];
	}
	return NULL;
}

/* One number with its unit, moving `*text` past both. */
static bool quantity_term(const char **text, const struct quantity_unit *units, size_t count,
			  bool any_case, int64_t *ret)
{
	int64_t digits, scale, product;
	const char *at = *text;

	if (!quantity_number(&at, &digits, &scale))
		return false;
	size_t n = strcspn(at, "0123456789");
	const struct quantity_unit *u = quantity_unit_find(units, count, at, n, any_case);
	if (!u || __builtin_mul_overflow(digits, u->factor, &product) || product % scale != 0)
		return false;
	assert(scale > 0 && product >= 0);
	*text = at + n;
	*ret = product / scale;
	return true;
}

bool span_parse(const char *text, int64_t *ret_ms)
{
	int64_t sum = 0, term;

	assert(text && ret_ms);
	do {
		if (!quantity_term(&text, SPAN_UNITS, ARRAY_LEN(SPAN_UNITS), false, &term) ||
		    __builtin_add_overflow(sum, term, &sum))
			return false;
	} while (*text);
	*ret_ms = sum;
	return true;
}

bool bytes_parse(const char *text, int64_t *ret_bytes)
{
	int64_t term;

	assert(text && ret_bytes);
	if (!quantity_term(&text, BYTE_UNITS, ARRAY_LEN(BYTE_UNITS), true, &term) || *text)
		return false;
	*ret_bytes = term;
	return true;
}
