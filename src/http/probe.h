/* SPDX-License-Identifier: Apache-2.0 */
/* /healthz, /readyz and /metrics. */
#ifndef LAPSE_HTTP_PROBE_H
#define LAPSE_HTTP_PROBE_H

#include "api/call.h"

call_fn probe_api_health;
call_fn probe_api_ready;
call_fn probe_api_metrics;

#endif
