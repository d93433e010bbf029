/* SPDX-License-Identifier: Apache-2.0 */
/* URIs of databases that may hold a password, which is never printed. */
#ifndef LAPSE_BASE_URI_H
#define LAPSE_BASE_URI_H

#include <stdbool.h>

#include "base/buf.h"

/* Whether it holds a password: SCHEME://user:password@…, or …?password=… */
bool uri_has_password(const char *uri);

/* Appends the URI with *** in the place of each password. */
void uri_put_public(struct buf *out, const char *uri);

#endif
