/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static lapse_ms system_wall(void *ctx)
{
	struct timespec t;

	(void)ctx;
	clock_gettime(CLOCK_REALTIME, &t);
	return (lapse_ms)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static lapse_us system_mono(void *ctx)
{
	struct timespec t;

	(void)ctx;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (lapse_us)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

const struct clock CLOCK_SYSTEM = { system_wall, system_mono, NULL };

int64_t time_add(int64_t a, int64_t b)
{
	int64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return b > 0 ? INT64_MAX : INT64_MIN;
	return sum;
}

int64_t time_sub(int64_t a, int64_t b)
{
	int64_t difference;

	if (__builtin_sub_overflow(a, b, &difference))
		return b < 0 ? INT64_MAX : INT64_MIN;
	return difference;
}

struct civil {
	int64_t year;
	int month, day; /* from 1 */
};

/* Days since 1970-01-01 to a date and back, in the proleptic Gregorian calendar: years start in
 * March so that the leap day is the last one, and 400 years are one cycle of 146097 days. */
static struct civil civil_of_days(int64_t days)
{
	uint32_t since = (uint32_t)(days + 719468 + 146097); /* a cycle more: never negative */
	uint32_t era = since / 146097, doe = since % 146097;
	uint32_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	uint32_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	uint32_t mp = (5 * doy + 2) / 153;
	struct civil c = {
		.year = (int64_t)yoe + (int64_t)era * 400 - 400,
		.month = (int)(mp < 10 ? mp + 3 : mp - 9),
		.day = (int)(doy - (153 * mp + 2) / 5 + 1),
	};
	assert(c.month >= 1 && c.month <= 12 && c.day >= 1 && c.day <= 31);
	c.year += c.month <= 2;
	return c;
}

static int64_t days_of_civil(struct civil c)
{
	int64_t y = c.year - (c.month <= 2);
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t yoe = y - era * 400;
	int64_t doy = (153 * (c.month + (c.month > 2 ? -3 : 9)) + 2) / 5 + c.day - 1;
	int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
	return era * 146097 + doe - 719468;
}

#define MS_A_DAY INT64_C(86400000)
#define YEAR_0_MS INT64_C(-62167219200000)
#define YEAR_9999_END_MS INT64_C(253402300799999)

static lapse_ms clamp_to_calendar(lapse_ms t)
{
	if (t < YEAR_0_MS)
		return YEAR_0_MS;
	return t > YEAR_9999_END_MS ? YEAR_9999_END_MS : t;
}

static int64_t floor_days(lapse_ms t)
{
	return (t >= 0 ? t : t - (MS_A_DAY - 1)) / MS_A_DAY;
}

static void put_2(char *out, int n)
{
	assert(n >= 0 && n < 100);
	out[0] = (char)('0' + n / 10);
	out[1] = (char)('0' + n % 10);
}

static void put_year(char *out, int64_t year)
{
	put_2(out, (int)year / 100);
	put_2(out + 2, (int)year % 100);
}

/* hh:mm:ss */
static void put_clock(char *out, int seconds)
{
	put_2(out, seconds / 3600);
	put_2(out + 3, seconds / 60 % 60);
	put_2(out + 6, seconds % 60);
}

void time_format(lapse_ms t, char out[TIME_TEXT_LEN + 1])
{
	t = clamp_to_calendar(t);
	int64_t days = floor_days(t);
	int ms = (int)(t - days * MS_A_DAY);
	struct civil c = civil_of_days(days);

	assert(ms >= 0 && ms < MS_A_DAY && c.year >= 0 && c.year <= 9999);
	memcpy(out, "0000-00-00T00:00:00.000Z", TIME_TEXT_LEN + 1);
	put_year(out, c.year);
	put_2(out + 5, c.month);
	put_2(out + 8, c.day);
	put_clock(out + 11, ms / 1000);
	put_2(out + 20, ms % 1000 / 10);
	out[22] = (char)('0' + ms % 10);
}

void time_format_http(lapse_ms t, char out[TIME_HTTP_LEN + 1])
{
	static const char days_of_week[] = "ThuFriSatSunMonTueWed"; /* 1970-01-01 was a Thursday */
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

	t = clamp_to_calendar(t);
	int64_t days = floor_days(t);
	int s = (int)((t - days * MS_A_DAY) / 1000);
	struct civil c = civil_of_days(days);

	memcpy(out, "Day, 00 Mon 0000 00:00:00 GMT", TIME_HTTP_LEN + 1);
	memcpy(out, days_of_week + 3 * ((days % 7 + 7) % 7), 3);
	put_2(out + 5, c.day);
	memcpy(out + 8, months + 3 * (c.month - 1), 3);
	put_year(out + 12, c.year);
	put_clock(out + 17, s);
}

/* Reads exactly `width` digits at *p and moves past them. */
static bool take_digits(const char **p, int width, int *ret)
{
	int n = 0;

	for (int i = 0; i < width; i++) {
		if ((*p)[i] < '0' || (*p)[i] > '9')
			return false;
		n = n * 10 + ((*p)[i] - '0');
	}
	*p += width;
	*ret = n;
	return true;
}

static bool take_char(const char **p, char c)
{
	if (**p != c)
		return false;
	(*p)++;
	return true;
}

/* ".123456": digits past the third are read and dropped. */
static bool take_fraction(const char **p, int *ret_ms)
{
	int ms = 0, digits = 0;

	if (!take_char(p, '.')) {
		*ret_ms = 0;
		return true;
	}
	for (; **p >= '0' && **p <= '9'; (*p)++, digits++)
		if (digits < 3)
			ms = ms * 10 + (**p - '0');
	for (int i = digits; i < 3; i++)
		ms *= 10;
	*ret_ms = ms;
	return digits >= 1 && digits <= 9;
}

static bool take_offset(const char **p, int *ret_minutes)
{
	int sign, hours, minutes;

	if (take_char(p, 'Z')) {
		*ret_minutes = 0;
		return true;
	}
	if (**p != '+' && **p != '-')
		return false;
	sign = *(*p)++ == '-' ? -1 : 1;
	if (!take_digits(p, 2, &hours) || !take_char(p, ':') || !take_digits(p, 2, &minutes) ||
	    hours > 23 || minutes > 59)
		return false;
	*ret_minutes = sign * (hours * 60 + minutes);
	return true;
}

bool time_parse(const char *text, lapse_ms *ret)
{
	const char *p = text;
	int year, month, day, hour, minute, second, ms, offset;

	if (!take_digits(&p, 4, &year) || !take_char(&p, '-') || !take_digits(&p, 2, &month) ||
	    !take_char(&p, '-') || !take_digits(&p, 2, &day) || !take_char(&p, 'T') ||
	    !take_digits(&p, 2, &hour) || !take_char(&p, ':') || !take_digits(&p, 2, &minute) ||
	    !take_char(&p, ':') || !take_digits(&p, 2, &second) || !take_fraction(&p, &ms) ||
	    !take_offset(&p, &offset) || *p != '\0')
		return false;
	if (month < 1 || month > 12 || hour > 23 || minute > 59 || second > 59)
		return false;
	struct civil c = { year, month, day };
	int64_t days = days_of_civil(c);
	struct civil back = civil_of_days(days); /* the 31st of a short month comes back changed */
	if (back.month != month || back.day != day)
		return false;
	*ret = days * MS_A_DAY + (hour * 60 + minute - offset) * INT64_C(60000) + second * 1000 +
	       ms;
	return true;
}
