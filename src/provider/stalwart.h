/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mailboxes at a Stalwart mail server: accounts are made and deleted with an administrator's
 * credentials, mail is read and sent over JMAP with the mailbox's own.
 *
 * Which generation the server is of is found out by asking it, at the first use and again after
 * every failure. An account counts as gone only when the server says so in words it understands:
 * see rest_judge() and registry_parse_destroy(). A 404 says so only from a server that has just
 * shown to have principals.
 *
 * The id of an account (provider_op.account) carries the generation that gave it ("rest:50",
 * "jmap:b"), because a number of the one means another account to the other.
 */
#ifndef LAPSE_PROVIDER_STALWART_H
#define LAPSE_PROVIDER_STALWART_H

#include "base/settings.h"
#include "provider/fetch.h"
#include "provider/provider.h"

/* See provider_open(). */
int stalwart_new(const struct settings *settings, const char *credentials_dir,
		 struct fetcher *fetcher, const struct clock *clock, struct provider **ret,
		 struct problem *p);
void stalwart_free(struct provider *p);

/* The settings' checks, apart for the tests. */

/* "https://host:port" of a URL: http or https, no user, path, query or fragment; http only to this
 * machine itself, because credentials travel with every request. */
#define ORIGIN_MAX 520
int stalwart_check_url(const char *url, char out[ORIGIN_MAX], struct problem *p);

/* The value of the Authorization header for "user:password", an API key, "@PATH" of a file with
 * one of these, or, when `text` is empty, the file stalwart_credentials of the credentials
 * directory. Appended to `out`; wipe it. */
int stalwart_check_credentials(const char *text, const char *credentials_dir, struct buf *out,
			       struct problem *p);

/* The certificates of the file `path`, appended to `out`; nothing when `path` is empty. */
int stalwart_check_authorities(const char *path, struct buf *out, struct problem *p);

#endif
