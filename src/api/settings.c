/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/settings: what is in force, and where each value came from. */
#include <assert.h>

#include "api/engine.h"

int settings_api_get(struct call *c)
{
	assert(c->admin); /* its route says so: paths and limits are not for every caller */
	settings_write_json(c->engine->settings, &c->reply);
	return LAPSE_OK;
}
