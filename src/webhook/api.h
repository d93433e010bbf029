/* SPDX-License-Identifier: Apache-2.0 */
/* Webhooks: decode, call, encode. */
#ifndef LAPSE_WEBHOOK_API_H
#define LAPSE_WEBHOOK_API_H

#include "api/call.h"

extern const struct json_field WEBHOOK_CREATE_BODY[];
extern const struct json_field WEBHOOK_CHANGE_BODY[];
extern const struct json_field WEBHOOK_REPLAY_BODY[];

call_fn webhook_api_create;
call_fn webhook_api_list;
call_fn webhook_api_get;
call_fn webhook_api_change;
call_fn webhook_api_delete;
call_fn webhook_api_test;
call_fn webhook_api_replay;

#endif
