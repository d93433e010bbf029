/* SPDX-License-Identifier: Apache-2.0 */
/* What the life of an attachment is, and what may be said about it: pure decisions. */
#ifndef LAPSE_ATTACHMENT_RULES_H
#define LAPSE_ATTACHMENT_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"

#define ATTACHMENT_NAME_MAX 255 /* bytes */
#define ATTACHMENT_NAME_DEFAULT "attachment"
#define ATTACHMENT_TTL_MAX_MS (100 * 366 * INT64_C(86400000)) /* 100 years; longer is infinity */

struct attachment_terms {
	bool persist;
	lapse_ms ttl_ms; /* LAPSE_NEVER = infinity */
};

/* When it is due; LAPSE_NEVER when it is persistent or infinite. */
lapse_ms attachment_due_at(const struct attachment_terms *t, lapse_ms inserted_at);

/* Due = now − inserted_at ≥ ttl_ms. At its deadline it is. */
bool attachment_is_due(lapse_ms due_at, lapse_ms now);

/* Staged again: persist is only upgraded, the lifetime only stretched. */
struct attachment_terms attachment_merge(const struct attachment_terms *had,
					 const struct attachment_terms *wanted);

enum range_verdict { RANGE_WHOLE, RANGE_PART, RANGE_UNSATISFIABLE };

/* The part of `size` bytes that a Range header asks for. One range is honoured; several, another
 * unit and what is no range at all mean the whole. NULL = there is no header. */
enum range_verdict attachment_range(const char *header, int64_t size, int64_t *ret_offset,
				    int64_t *ret_length);

/* Content-Disposition for a name that cannot be trusted: what could be a path or end the header
 * is replaced, what is not ASCII is encoded (RFC 6266, RFC 8187). */
void attachment_disposition(struct buf *out, const char *name);

/* What follows the one of `roots` (absolute paths with ':' between them) that `path` lies below;
 * *ret_root is its length, and where it begins. NULL = it lies below none of them. */
const char *attachment_below_root(const char *roots, const char *path, const char **ret_root,
				  size_t *ret_root_len);

/* Whether every root is an absolute path. */
bool attachment_roots_are_valid(const char *roots);

#endif
