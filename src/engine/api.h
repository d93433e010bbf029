/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own calls: the matrix, sweeps by hand, holds, tokens, backups, dead letters. */
#ifndef LAPSE_ENGINE_API_H
#define LAPSE_ENGINE_API_H

#include "engine/call.h"

extern const struct json_field SWEEP_QUERY[];
extern const struct json_field HOLD_BODY[];
extern const struct json_field TOKEN_BODY[];

call_fn matrix_api_get;
call_fn sweep_api_run;
call_fn hold_api_put;
call_fn hold_api_get;
call_fn hold_api_delete;
call_fn hold_api_list;
call_fn clock_api_get;
call_fn clock_api_accept;
call_fn token_api_create;
call_fn token_api_list;
call_fn token_api_revoke;
call_fn backup_api_make;
call_fn dead_letter_api_list;
call_fn dead_letter_api_retry;
call_fn dead_letter_api_drop;

#endif
