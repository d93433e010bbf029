/* SPDX-License-Identifier: Apache-2.0 */
/* The ETag of a resource: a hash of its JSON. */
#ifndef LAPSE_API_ETAG_H
#define LAPSE_API_ETAG_H

#include "base/buf.h"
#include "base/err.h"

#define ETAG_LEN 18

void etag_make(const char *json, size_t n, char out[ETAG_LEN + 1]);

/* LAPSE_EPRECONDITION when the caller relies on another state than `json`; `if_match` is the header
 * as it came, NULL = the caller relies on none. */
int etag_check(const char *if_match, const struct buf *json, struct problem *p);

#endif
