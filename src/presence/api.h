/* SPDX-License-Identifier: Apache-2.0 */
/* Presence: decode, call, encode. */
#ifndef LAPSE_PRESENCE_API_H
#define LAPSE_PRESENCE_API_H

#include "api/call.h"

extern const struct json_field PRESENCE_BEAT_BODY[];
extern const struct json_field PRESENCE_BEATS_ENTRY[];
extern const struct json_field PRESENCE_LIST_QUERY[];
extern const struct json_field PRESENCE_GET_QUERY[];
extern const struct json_field PRESENCE_CAPABILITIES_BODY[];

extern const struct quick PRESENCE_BEAT_QUICK;
extern const struct quick PRESENCE_BEATS_QUICK;

call_fn presence_api_beat;
call_fn presence_api_beats;
call_fn presence_api_list;
call_fn fleet_api_get;
call_fn presence_api_get;
call_fn presence_api_delete;
call_fn presence_api_set_capabilities;
call_fn presence_api_capabilities;
call_fn presence_api_capability;

#endif
