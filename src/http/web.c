/* SPDX-License-Identifier: Apache-2.0 */
#include "http/web.h"

#include <assert.h>
#include <string.h>

#include "http/request.h"

/* Nothing from elsewhere, nothing inline. A mail's HTML is shown in a sandboxed frame whose
 * document inherits this policy, so it loads nothing either. */
#define POLICY                                                                                     \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "    \
	"'self'; "                                                                                 \
	"frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static const struct web_type {
	const char *ending, *type;
} WEB_TYPES[] = {
	{ ".html", "text/html; charset=utf-8" },
	{ ".css", "text/css; charset=utf-8" },
	{ ".js", "text/javascript; charset=utf-8" },
	{ ".svg", "image/svg+xml" },
};

static const char *web_type_of(const char *name)
{
	const char *ending = strrchr(name, '.');

	assert(ending);
	for (size_t i = 0; i < ARRAY_LEN(WEB_TYPES); i++)
		if (strcmp(WEB_TYPES[i].ending, ending) == 0)
			return WEB_TYPES[i].type;
	assert(0 && "web/ holds a file whose kind has no row in WEB_TYPES");
	return NULL;
}

static const struct web_file *web_find(const char *name)
{
	for (const struct web_file *f = WEB_FILES; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}

/* Browsers all send "gzip" as a word of its own; a client that refuses it sends q=0. */
static bool takes_gzip(const struct call *c)
{
	const struct request *r = request_of_call(c);
	const char *accepts =
		r ? MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, "Accept-Encoding") : NULL;
	const char *word = accepts ? strstr(accepts, "gzip") : NULL;

	return word && strncmp(word + 4, ";q=0", 4) != 0;
}

static int web_send(struct call *c, const char *name)
{
	const struct web_file *f = web_find(name);

	if (!f)
		return problem_set(&c->problem, LAPSE_ENOTFOUND, NULL,
				   "the page has no file '%.80s'", name);
	bool packed = takes_gzip(c);
	if (packed)
		call_header(c, "Content-Encoding", "gzip");
	call_header(c, "Vary", "Accept-Encoding");
	call_header(c, "Cache-Control", "no-cache");
	call_header(c, "Content-Security-Policy", POLICY);
	call_header(c, "Referrer-Policy", "no-referrer");
	call_header(c, "X-Content-Type-Options", "nosniff");
	c->content_type = web_type_of(name);
	buf_add(&c->reply, packed ? f->packed : f->plain, packed ? f->packed_size : f->plain_size);
	return LAPSE_OK;
}

int web_api_page(struct call *c)
{
	return web_send(c, "index.html");
}

int web_api_file(struct call *c)
{
	return web_send(c, c->params[0]);
}

int web_api_view(struct call *c)
{
	return web_send(c, arena_printf(&c->arena, "views/%s", c->params[0]));
}
