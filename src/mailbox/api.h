/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes and their mail: decode, call, encode. */
#ifndef LAPSE_MAILBOX_API_H
#define LAPSE_MAILBOX_API_H

#include "api/call.h"
#include "mailbox/outside.h"

extern const struct json_field MAILBOX_CREATE_BODY[];
extern const struct json_field MAILBOX_LIST_QUERY[];
extern const struct json_field MAILBOX_RENEW_BODY[];
extern const struct json_field MAILBOX_MAILS_QUERY[];
extern const struct json_field MAILBOX_SEND_BODY[];

call_fn mailbox_api_create;
call_fn mailbox_api_list;
call_fn mailbox_api_get;
call_fn mailbox_api_renew;
call_fn mailbox_api_delete;
call_fn mailbox_api_mails; /* mail_api.c */
call_fn mailbox_api_mail;
call_fn mailbox_api_read_mail;
call_fn mailbox_api_send;

/* Shared by the files of this room: an outside_call that becomes the call's state, and whose end
 * wakes the call. */
struct outside_call *mailbox_api_outside(struct call *c, enum provider_verb verb,
					 const struct mailbox *m);

#endif
