/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of owners: handlers, and the fields of their bodies. */
#ifndef LAPSE_API_QUOTA_H
#define LAPSE_API_QUOTA_H

#include "api/call.h"

extern const struct json_field QUOTA_BODY[];

call_fn quota_api_list, quota_api_get, quota_api_put, quota_api_delete;

#endif
