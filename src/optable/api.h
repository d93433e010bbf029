/* SPDX-License-Identifier: Apache-2.0 */
/* Operational tables: decode, call, encode. One file for each shape. */
#ifndef LAPSE_OPTABLE_API_H
#define LAPSE_OPTABLE_API_H

#include "api/call.h"
#include "optable/optable.h"

extern const struct json_field LEASE_BODY[];
extern const struct json_field LEASE_RELEASE_QUERY[];

call_fn lease_api_take;
call_fn lease_api_get;
call_fn lease_api_release;
call_fn lease_api_list;

extern const struct json_field ENTRY_BODY[];
extern const struct json_field DEDUPE_BODY[];
extern const struct json_field OAUTH_BODY[];
extern const struct json_field CACHE_BODY[];

call_fn entry_api_put;
call_fn entry_api_get;
call_fn entry_api_delete;
call_fn entry_api_list;
call_fn dedupe_api_claim;
call_fn oauth_api_put;
call_fn oauth_api_consume;
call_fn models_cache_api_put;
call_fn models_cache_api_get;

extern const struct json_field QUEUE_BODY[];
extern const struct json_field QUEUE_CLAIM_BODY[];
extern const struct json_field QUEUE_COMPLETE_BODY[];
extern const struct json_field QUEUE_FAIL_BODY[];
extern const struct json_field QUEUE_EXTEND_BODY[];
extern const struct json_field QUEUE_LIST_QUERY[];

call_fn queue_api_add;
call_fn queue_api_claim;
call_fn queue_api_complete;
call_fn queue_api_fail;
call_fn queue_api_extend;
call_fn queue_api_get;
call_fn queue_api_retry;
call_fn queue_api_depths;
call_fn queue_api_list;

extern const struct json_field OUTBOX_BODY[];
extern const struct json_field OUTBOX_QUERY[];
extern const struct json_field OUTBOX_CONSUMER_BODY[];

call_fn outbox_api_add;
call_fn outbox_api_read;
call_fn outbox_api_consumer_put;
call_fn outbox_api_consumers;

/* Shared by the files of this room: an object of the body as the text that is stored; NULL = it was
 * not given. */
const char *optable_object_text(struct call *c, const json_t *object);

/* And a list whose cursor is a text. */
struct text_page {
	struct buf *out;
	struct page page;
	const char *after; /* where it begins: "" = at the start */
	int64_t written;
	char *last; /* the last one that is shown, from the call's arena */
	bool more;
	struct arena *arena;
};
int text_page_begin(struct text_page *p, struct call *c);
bool text_page_item(struct text_page *p, const char *name); /* false: the page is full */
void text_page_end(struct text_page *p);

#endif
