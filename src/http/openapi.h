/* SPDX-License-Identifier: Apache-2.0 */
/* /openapi.json: the route table, described. */
#ifndef LAPSE_HTTP_OPENAPI_H
#define LAPSE_HTTP_OPENAPI_H

#include "api/call.h"

call_fn openapi_api_get;

/* Writes the document. */
void openapi_write(struct buf *out);

#endif
