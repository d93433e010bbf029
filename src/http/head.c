/* SPDX-License-Identifier: Apache-2.0 */
#include "http/head.h"

#include <stddef.h>
#include <strings.h>

#include "base/mem.h"

#define FORWARDED "X-Forwarded-"

/* To add a header: a row here, and its field. */
static const struct {
	const char *name;
	size_t len, field;
} HEADERS[] = {
#define ROW(text, member)                                                                          \
	{                                                                                          \
		text, sizeof(text) - 1, offsetof(struct head, member)                              \
	}
	ROW("Host", host),
	ROW("Accept", accept),
	ROW("Origin", origin),
	ROW("If-Match", if_match),
	ROW("Content-Type", content_type),
	ROW("Authorization", authorization),
	ROW("X-Lapse-Owner", owner),
	ROW("Content-Length", content_length),
	ROW("Sec-Fetch-Site", fetch_site),
	ROW("Idempotency-Key", idempotency_key),
#undef ROW
};

static bool is(const char *key, size_t n, const char *name, size_t len)
{
	return n == len && strncasecmp(key, name, len) == 0;
}

#define IS(key, n, text) is(key, n, text, sizeof(text) - 1)

static void note_value(struct head *h, const char *key, size_t n, const char *value)
{
	for (size_t i = 0; i < ARRAY_LEN(HEADERS); i++) {
		if (!is(key, n, HEADERS[i].name, HEADERS[i].len))
			continue;
		const char **field = (const char **)(void *)((char *)h + HEADERS[i].field);
		h->hosts += field == &h->host;
		h->framings += field == &h->content_length;
		if (!*field)
			*field = value;
		return;
	}
	h->framings += IS(key, n, "Transfer-Encoding");
	h->forwarded |= IS(key, n, "Forwarded") ||
			(n >= sizeof(FORWARDED) - 1 && IS(key, sizeof(FORWARDED) - 1, FORWARDED));
}

static enum MHD_Result note(void *arg, enum MHD_ValueKind kind, const char *key, size_t key_size,
			    const char *value, size_t value_size)
{
	struct head *h = arg;

	(void)value_size;
	if (kind == MHD_GET_ARGUMENT_KIND)
		h->has_query = true;
	else
		note_value(h, key, key_size, value);
	return MHD_YES;
}

void head_read(struct MHD_Connection *mhd, struct head *ret)
{
	*ret = (struct head){ 0 };
	MHD_get_connection_values_n(mhd, MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND, note, ret);
}
