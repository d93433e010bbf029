/* SPDX-License-Identifier: Apache-2.0 */
/* The principals of Stalwart 0.10 to 0.15. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "provider/registry.h"

bool address_split(const char *address, struct arena *arena, const char **ret_local,
		   const char **ret_domain)
{
	const char *at = strrchr(address, '@');

	if (!at || at == address || at[1] == '\0')
		return false;
	*ret_local = arena_strndup(arena, address, (size_t)(at - address));
	*ret_domain = arena_strdup(arena, at + 1);
	return true;
}

void rest_put_path(struct buf *b, const char *name)
{
	buf_puts(b, "/api/principal/");
	for (; *name; name++) {
		const char c = *name;
		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    strchr("-._~", c))
			buf_putc(b, c);
		else
			buf_printf(b, "%%%02X", (unsigned char)c);
	}
}

void rest_build_create(struct buf *b, const char *name, const char *address, const char *secret,
		       const char *mark)
{
	assert(b->len == 0 && secret[0] && mark[0]);
	json_begin(b, '{');
	json_put_text(b, "type", "individual");
	json_put_text(b, "name", name);
	json_key(b, "secrets");
	json_begin(b, '[');
	json_text(b, secret);
	json_end(b, ']');
	json_key(b, "emails");
	json_begin(b, '[');
	json_text(b, address);
	json_end(b, ']');
	json_put_raw(b, "roles", "[\"user\"]"); /* without it the account cannot log in */
	json_put_int(b, "quota", 0);
	json_put_text(b, "description", mark);
	json_end(b, '}');
}

static const char *text_of(const json_t *object, const char *key, struct arena *arena)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? arena_strdup(arena, text) : "";
}

static enum rest_verdict judge_error(const char *error)
{
	if (strcmp(error, "notFound") == 0)
		return REST_NOT_FOUND;
	return strcmp(error, "fieldAlreadyExists") == 0 ? REST_EXISTS : REST_ERROR;
}

static enum rest_verdict judge_status(int status)
{
	assert(status != 200);
	if (status == 404)
		return REST_NO_ROUTE;
	if (status == 401 || status == 403)
		return REST_REFUSED;
	if (status == 429)
		return REST_BUSY;
	return status >= 400 && status < 500 ? REST_ERROR : REST_BROKEN;
}

void rest_judge(int status, const char *text, size_t n, struct arena *arena,
		struct rest_answer *ret)
{
	json_t *CLEANUP(json_freep) body = NULL;
	struct problem ignored;

	*ret = (struct rest_answer){ .error = "", .item = "", .account = "", .mark = "" };
	if (status != 200) {
		ret->verdict = judge_status(status);
		return;
	}
	ret->verdict = REST_BROKEN;
	if (json_parse_object(text, n, &body, &ignored) < 0)
		return;
	const json_t *data = json_object_get(body, "data");
	ret->error = text_of(body, "error", arena);
	ret->item = text_of(body, "item", arena);
	ret->mark = text_of(data, "description", arena);
	if (ret->error[0])
		ret->verdict = judge_error(ret->error);
	else if (data && !json_object_get(body, "error"))
		ret->verdict = REST_DONE;
	if (json_is_integer(data))
		ret->account = arena_printf(arena, "%" PRId64, (int64_t)json_integer_value(data));
}
