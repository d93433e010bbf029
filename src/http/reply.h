/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as HTTP: status, code, and the JSON body. */
#ifndef LAPSE_HTTP_REPLY_H
#define LAPSE_HTTP_REPLY_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

int http_status_of(enum lapse_error err);
const char *http_code_of(enum lapse_error err); /* "invalid_request", … : the closed list */

/* The body of an error; `more` are further members of it, or NULL. With `as_problem` it is RFC
 * 9457's, else ours. */
void http_write_error(struct buf *out, enum lapse_error err, const struct problem *p,
		      const char *more, bool as_problem);

#endif
