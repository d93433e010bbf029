/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about contracts: what is kept, what it would remove, and approvals. */
#ifndef LAPSE_CONTRACT_API_H
#define LAPSE_CONTRACT_API_H

#include "api/call.h"

call_fn contract_api_list;
call_fn contract_api_get;
call_fn contract_api_plan;
call_fn approval_api_list;
call_fn approval_api_give;

#endif
