/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: decode, call, encode. */
#ifndef LAPSE_MESSAGE_API_H
#define LAPSE_MESSAGE_API_H

#include "api/call.h"

extern const struct json_field MESSAGE_SEND_BODY[];
extern const struct json_field MESSAGE_BROADCAST_BODY[];
extern const struct json_field MESSAGE_LIST_QUERY[];
extern const struct json_field MESSAGE_READ_BODY[];
extern const struct json_field MESSAGE_READ_MANY_BODY[];
extern const struct json_field MESSAGE_CLAIM_BODY[];
extern const struct json_field MESSAGE_EXTEND_BODY[];

call_fn message_api_send;
call_fn message_api_broadcast;
call_fn message_api_list;
call_fn message_api_get;
call_fn message_api_read;
call_fn message_api_read_many;
call_fn message_api_claim;
call_fn message_api_extend;
call_fn message_api_stats;

#endif
