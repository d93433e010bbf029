/* SPDX-License-Identifier: Apache-2.0 */
#include "http/reply.h"

#include "base/json.h"

#include <assert.h>

struct kind {
	int status;
	const char *code; /* of the closed list */
};

static struct kind error_kind_of(enum lapse_error err)
{
	switch (err) {
	case LAPSE_OK:
		return (struct kind){ 200, "ok" };
	case LAPSE_EINVAL:
		return (struct kind){ 400, "invalid_request" };
	case LAPSE_EUNAUTHORIZED:
		return (struct kind){ 401, "unauthorized" };
	case LAPSE_EFORBIDDEN:
		return (struct kind){ 403, "forbidden" };
	case LAPSE_ENOTFOUND:
		return (struct kind){ 404, "not_found" };
	case LAPSE_EMETHOD:
		return (struct kind){ 405, "method_not_allowed" };
	case LAPSE_ETIMEOUT:
		return (struct kind){ 408, "timeout" };
	case LAPSE_ECONFLICT:
		return (struct kind){ 409, "conflict" };
	case LAPSE_EEXPIRED:
		return (struct kind){ 410, "expired" };
	case LAPSE_EPRECONDITION:
		return (struct kind){ 412, "precondition_failed" };
	case LAPSE_ETOOLARGE:
		return (struct kind){ 413, "too_large" };
	case LAPSE_EMEDIATYPE:
		return (struct kind){ 415, "unsupported_media_type" };
	case LAPSE_ERANGE:
		return (struct kind){ 416, "range_not_satisfiable" };
	case LAPSE_EUNPROCESSABLE:
		return (struct kind){ 422, "unprocessable" };
	case LAPSE_ELIMIT:
		return (struct kind){ 429, "limit_reached" };
	case LAPSE_EHEADERS:
		return (struct kind){ 431, "headers_too_large" };
	case LAPSE_EUPSTREAM:
		return (struct kind){ 502, "upstream_error" };
	case LAPSE_EUNAVAILABLE:
	case LAPSE_EBUSY:
	case LAPSE_ERETRY:
	case LAPSE_EFULL:
	case LAPSE_EIO:
	case LAPSE_ECORRUPT:
	case LAPSE_EVERSION:
	case LAPSE_ESYNC:
	case LAPSE_EUNKNOWN:
		return (struct kind){ 503, "unavailable" };
	case LAPSE_EINTERNAL:
		break;
	}
	return (struct kind){ 500, "internal" };
}

int http_status_of(enum lapse_error err)
{
	return error_kind_of(err).status;
}

const char *http_code_of(enum lapse_error err)
{
	return error_kind_of(err).code;
}

static void write_more(struct buf *out, const char *more)
{
	if (!more)
		return;
	buf_putc(out, ',');
	buf_puts(out, more);
}

static void write_problem(struct buf *out, enum lapse_error err, const struct problem *p,
			  const char *more)
{
	json_begin(out, '{');
	json_put_text(out, "type", "about:blank");
	json_put_text(out, "title", err_text(err));
	json_put_int(out, "status", http_status_of(err));
	json_put_text(out, "detail", problem_text(p, err));
	json_put_text(out, "code", http_code_of(err));
	if (p->field[0])
		json_put_text(out, "field", p->field);
	write_more(out, more);
	json_end(out, '}');
}

void http_write_error(struct buf *out, enum lapse_error err, const struct problem *p,
		      const char *more, bool as_problem)
{
	assert(err < 0);
	if (as_problem) {
		write_problem(out, err, p, more);
		return;
	}
	json_begin(out, '{');
	json_key(out, "error");
	json_begin(out, '{');
	json_put_text(out, "code", http_code_of(err));
	json_put_text(out, "message", problem_text(p, err));
	if (p->field[0])
		json_put_text(out, "field", p->field);
	json_end(out, '}');
	write_more(out, more);
	json_end(out, '}');
}
