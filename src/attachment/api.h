/* SPDX-License-Identifier: Apache-2.0 */
/* Attachments: decode, call, encode. */
#ifndef LAPSE_ATTACHMENT_API_H
#define LAPSE_ATTACHMENT_API_H

#include "api/call.h"
#include "attachment/attachment.h"

extern const struct json_field ATTACHMENT_UPLOAD_QUERY[];
extern const struct json_field ATTACHMENT_STAGE_BODY[];
extern const struct json_field ATTACHMENT_RESTAGE_BODY[];
extern const struct json_field ATTACHMENT_TEXT_BODY[];
extern const struct json_field ATTACHMENT_TEXT_QUERY[];

extern const struct quick ATTACHMENT_UPLOAD_QUICK;

call_fn attachment_api_upload;
call_fn attachment_api_stage;
call_fn attachment_api_restage;
call_fn attachment_api_stage_text; /* text_api.c */
call_fn attachment_api_read_text;
call_fn attachment_api_list;
call_fn attachment_api_get;
call_fn attachment_api_content;
call_fn attachment_api_delete;
call_fn attachment_api_metrics;
call_fn attachment_api_cleanup;

/* Shared by the files of this room. */
struct stage_request {
	const char *path, *name;
	struct attachment_terms terms;
};

/* Makes c->upload the caller's attachment, and the reply. Looks first, off the loop, whether the
 * file of the row that is there is there too. */
int attachment_api_store(struct call *c, const struct stage_request *s);

/* The {checksum} of the path. Something that is no checksum cannot exist. */
int attachment_api_checksum(struct call *c, const char **ret);
int attachment_api_explain(struct call *c, int err);

#endif
