/* SPDX-License-Identifier: Apache-2.0 */
/* Which provider the settings ask for. */
#ifndef LAPSE_PROVIDER_OPEN_H
#define LAPSE_PROVIDER_OPEN_H

#include "base/settings.h"
#include "provider/fetch.h"
#include "provider/provider.h"

/*
 * Checks mailbox_provider and what goes with it. `*ret` is NULL for "local", which lives in the
 * store and is the engine's default; otherwise a provider to be released with provider_free().
 * `fetcher` may be NULL where nothing can be fetched (the library): then only "local" is possible.
 * `credentials_dir` is the service manager's, or NULL. The fetcher, the clock and the settings are
 * borrowed until provider_free().
 */
int provider_open(const struct settings *settings, const char *credentials_dir,
		  struct fetcher *fetcher, const struct clock *clock, struct provider **ret,
		  struct problem *p);

/* Takes NULL. After stop(); nothing may be under way. */
void provider_free(struct provider *p);

#endif
