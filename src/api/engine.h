/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own calls: the matrix, sweeps by hand, holds, tokens, backups, dead letters. */
#ifndef LAPSE_API_ENGINE_H
#define LAPSE_API_ENGINE_H

#include "api/call.h"

extern const struct json_field SWEEP_QUERY[];
extern const struct json_field WHY_QUERY[];
extern const struct json_field HOLD_BODY[];
extern const struct json_field DEAD_LETTER_RETRY_BODY[];
extern const struct json_field TOKEN_BODY[];
extern const struct json_field ADOPT_BODY[];

call_fn matrix_api_get;
call_fn why_api_get;
call_fn sweep_api_run;
call_fn hold_api_put;
call_fn hold_api_get;
call_fn hold_api_delete;
call_fn hold_api_list;
call_fn settings_api_get;
call_fn clock_api_get;
call_fn replicas_api_list;
call_fn whoami_api_get;
call_fn clock_api_accept;
call_fn token_api_create;
call_fn token_api_list;
call_fn token_api_revoke;
call_fn adopt_api_run;
call_fn backup_api_make;
call_fn dead_letter_api_list;
call_fn dead_letter_api_retry;
call_fn dead_letter_api_retry_many;
call_fn dead_letter_api_drop;

#endif
