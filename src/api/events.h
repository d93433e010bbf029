/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/events/list: events after a cursor, as a list. */
#ifndef LAPSE_API_EVENTS_H
#define LAPSE_API_EVENTS_H

#include "api/call.h"

extern const struct json_field EVENTS_LIST_QUERY[];

call_fn events_api_list;

#endif
