/* SPDX-License-Identifier: Apache-2.0 */
#include "provider/open.h"

#include <string.h>

#include "provider/stalwart.h"

int provider_open(const struct settings *settings, const char *credentials_dir,
		  struct fetcher *fetcher, const struct clock *clock, struct provider **ret,
		  struct problem *p)
{
	if (strcmp(settings->mailbox_provider, "local") == 0) {
		*ret = NULL;
		return LAPSE_OK;
	}
	if (strcmp(settings->mailbox_provider, "stalwart") != 0)
		return problem_set(p, LAPSE_EINVAL, "mailbox_provider",
				   "mailbox_provider: must be local or stalwart, not '%.30s'",
				   settings->mailbox_provider);
	if (!fetcher)
		return problem_set(p, LAPSE_EINVAL, "mailbox_provider",
				   "mailbox_provider: the library talks to no mail server, it must "
				   "be local here");
	return stalwart_new(settings, credentials_dir, fetcher, clock, ret, p);
}

void provider_free(struct provider *p)
{
	if (p)
		stalwart_free(p);
}
