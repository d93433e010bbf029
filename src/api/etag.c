/* SPDX-License-Identifier: Apache-2.0 */
#include "api/etag.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void etag_make(const char *json, size_t n, char out[ETAG_LEN + 1])
{
	int len = snprintf(out, ETAG_LEN + 1, "\"%016llx\"",
			   (unsigned long long)XXH3_64bits(json, n));

	assert(len == ETAG_LEN);
}

int etag_check(const char *if_match, const struct buf *json, struct problem *p)
{
	char etag[ETAG_LEN + 1];

	etag_make(buf_text(json), json->len, etag);
	if (!if_match || strcmp(if_match, "*") == 0 || strstr(if_match, etag))
		return LAPSE_OK;
	return problem_set(p, LAPSE_EPRECONDITION, "If-Match",
			   "it has changed since you looked; its ETag is %s now", etag);
}
