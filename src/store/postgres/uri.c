/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/uri.h"

#include <assert.h>
#include <string.h>

#include "base/secret.h"

#define URI_MAX_BYTES 4096

static int read_uri_file(const char *path, struct buf *out, struct problem *p)
{
	struct problem inner = { 0 };
	int r = secret_read_file(path, SECRET_MAY_LINK, URI_MAX_BYTES, out, &inner);

	if (r < 0)
		return problem_set(p, LAPSE_EINVAL, "store", "store: %.200s", inner.message);
	while (out->len > 0 && strchr("\r\n", out->data[out->len - 1]))
		out->data[--out->len] = '\0';
	return LAPSE_OK;
}

int pg_uri_read(const char *setting, struct buf *out, struct problem *p)
{
	int r = LAPSE_OK;

	assert(out->len == 0);
	buf_reserve(out, URI_MAX_BYTES + 1); /* growing would leave copies behind */
	if (setting[0] == '@')
		r = read_uri_file(setting + 1, out, p);
	else
		buf_puts(out, setting);
	if (r < 0 || strncmp(buf_text(out), "postgresql://", 13) == 0 ||
	    strncmp(buf_text(out), "postgres://", 11) == 0)
		return r;
	return problem_set(
		p, LAPSE_EINVAL, "store",
		"store: must be sqlite, a postgresql:// URI, or @PATH of a file with one");
}
