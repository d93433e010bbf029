/* SPDX-License-Identifier: Apache-2.0 */
#include "http/reply.h"

#include "base/json.h"

int http_status_of(enum lapse_error err)
{
	switch (err) {
	case LAPSE_OK:
		return 200;
	case LAPSE_EINVAL:
		return 400;
	case LAPSE_EUNAUTHORIZED:
		return 401;
	case LAPSE_EFORBIDDEN:
		return 403;
	case LAPSE_ENOTFOUND:
		return 404;
	case LAPSE_EMETHOD:
		return 405;
	case LAPSE_ETIMEOUT:
		return 408;
	case LAPSE_ECONFLICT:
		return 409;
	case LAPSE_EEXPIRED:
		return 410;
	case LAPSE_EPRECONDITION:
		return 412;
	case LAPSE_ETOOLARGE:
		return 413;
	case LAPSE_EMEDIATYPE:
		return 415;
	case LAPSE_ERANGE:
		return 416;
	case LAPSE_EUNPROCESSABLE:
		return 422;
	case LAPSE_ELIMIT:
		return 429;
	case LAPSE_EHEADERS:
		return 431;
	case LAPSE_EINTERNAL:
		return 500;
	case LAPSE_EUPSTREAM:
		return 502;
	case LAPSE_EUNAVAILABLE:
	case LAPSE_EBUSY:
	case LAPSE_ERETRY:
	case LAPSE_EFULL:
	case LAPSE_EIO:
	case LAPSE_ECORRUPT:
	case LAPSE_EVERSION:
	case LAPSE_ESYNC:
	case LAPSE_EUNKNOWN:
		return 503;
	}
	return 500;
}

const char *http_code_of(enum lapse_error err)
{
	switch (err) {
	case LAPSE_OK:
		return "ok";
	case LAPSE_EINVAL:
		return "invalid_request";
	case LAPSE_EUNAUTHORIZED:
		return "unauthorized";
	case LAPSE_EFORBIDDEN:
		return "forbidden";
	case LAPSE_ENOTFOUND:
		return "not_found";
	case LAPSE_EMETHOD:
		return "method_not_allowed";
	case LAPSE_ETIMEOUT:
		return "timeout";
	case LAPSE_ECONFLICT:
		return "conflict";
	case LAPSE_EEXPIRED:
		return "expired";
	case LAPSE_EPRECONDITION:
		return "precondition_failed";
	case LAPSE_ETOOLARGE:
		return "too_large";
	case LAPSE_EMEDIATYPE:
		return "unsupported_media_type";
	case LAPSE_ERANGE:
		return "range_not_satisfiable";
	case LAPSE_EUNPROCESSABLE:
		return "unprocessable";
	case LAPSE_ELIMIT:
		return "limit_reached";
	case LAPSE_EHEADERS:
		return "headers_too_large";
	case LAPSE_EINTERNAL:
		return "internal";
	case LAPSE_EUPSTREAM:
		return "upstream_error";
	case LAPSE_EUNAVAILABLE:
	case LAPSE_EBUSY:
	case LAPSE_ERETRY:
	case LAPSE_EFULL:
	case LAPSE_EIO:
	case LAPSE_ECORRUPT:
	case LAPSE_EVERSION:
	case LAPSE_ESYNC:
	case LAPSE_EUNKNOWN:
		return "unavailable";
	}
	return "internal";
}

static void write_problem(struct buf *out, enum lapse_error err, const struct problem *p)
{
	json_begin(out, '{');
	json_put_text(out, "type", "about:blank");
	json_put_text(out, "title", err_text(err));
	json_put_int(out, "status", http_status_of(err));
	json_put_text(out, "detail", problem_text(p, err));
	json_put_text(out, "code", http_code_of(err));
	if (p->field[0])
		json_put_text(out, "field", p->field);
	json_end(out, '}');
}

void http_write_error(struct buf *out, enum lapse_error err, const struct problem *p,
		      bool as_problem)
{
	if (as_problem) {
		write_problem(out, err, p);
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
	json_end(out, '}');
}
