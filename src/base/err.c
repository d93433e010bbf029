/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/id.h"

const char *err_name(int err)
{
	switch (err) {
	case LAPSE_OK:
		return "OK";
#define X(name, number, text)                                                                      \
	case LAPSE_##name:                                                                         \
		return #name;
		LAPSE_ERRORS(X)
#undef X
	default:
		return "unknown error";
	}
}

const char *err_text(int err)
{
	switch (err) {
	case LAPSE_OK:
		return "ok";
#define X(name, number, text)                                                                      \
	case LAPSE_##name:                                                                         \
		return text;
		LAPSE_ERRORS(X)
#undef X
	default:
		return "unknown error";
	}
}

int problem_set(struct problem *p, int err, const char *field, const char *format, ...)
{
	va_list ap;

	snprintf(p->field, sizeof(p->field), "%s", field ? field : "");
	va_start(ap, format);
	vsnprintf(p->message, sizeof(p->message), format, ap);
	va_end(ap);
	utf8_repair(p->field); /* a cut may have gone through a character */
	utf8_repair(p->message);
	return err;
}

const char *problem_text(const struct problem *p, int err)
{
	return p->message[0] ? p->message : err_text(err);
}
