/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page for people: the files of web/, embedded when lapsed is built (cmake/embed_web.cmake).
 * They are public; what the page shows comes from the same routes every other client uses.
 */
#ifndef LAPSE_HTTP_WEB_H
#define LAPSE_HTTP_WEB_H

#include <stddef.h>

#include "api/call.h"

struct web_file {
	const char *name; /* "main.js", "views/matrix.js" */
	const unsigned char *plain;
	size_t plain_size;
	const unsigned char *packed; /* by gzip */
	size_t packed_size;
};

extern const struct web_file WEB_FILES[]; /* ends with a row without a name */

call_fn web_api_page; /* GET / */
call_fn web_api_file; /* GET /web/{file} */
call_fn web_api_view; /* GET /web/views/{file} */

#endif
