/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON bodies, decoded by the tables of fields that routes have. The first byte chooses the table.
 * What was taken must obey the table, and an error must name something. What the quick reader takes
 * must be what jansson takes, and the same.
 */
#include <assert.h>
#include <string.h>

#include "api/engine.h"
#include "api/quota.h"
#include "attachment/api.h"
#include "base/json.h"
#include "base/json_quick.h"
#include "base/mem.h"
#include "fuzz.h"
#include "mailbox/api.h"
#include "message/api.h"
#include "optable/api.h"
#include "presence/api.h"

#define ROOM_BYTES 4096 /* of the struct that a table fills */

static const struct json_field *const TABLES[] = {
	PRESENCE_BEAT_BODY,
	PRESENCE_BEATS_ENTRY,
	PRESENCE_CAPABILITIES_BODY,
	MESSAGE_SEND_BODY,
	MESSAGE_CLAIM_BODY,
	MESSAGE_READ_MANY_BODY,
	MESSAGE_BROADCAST_BODY,
	MAILBOX_CREATE_BODY,
	MAILBOX_SEND_BODY,
	ATTACHMENT_STAGE_BODY,
	LEASE_BODY,
	ENTRY_BODY,
	DEDUPE_BODY,
	QUEUE_BODY,
	OUTBOX_BODY,
	HOLD_BODY,
	TOKEN_BODY,
	QUOTA_BODY,
};

static void check_member(const struct json_field *f, const char *out)
{
	const void *at = out + f->offset;
	const char *text = NULL;

	if (f->kind == FIELD_INT && f->required) {
		int64_t n;
		memcpy(&n, at, sizeof(n));
		assert(n >= f->min && n <= f->max);
	}
	if (f->kind == FIELD_TEXT || f->kind == FIELD_LABEL || f->kind == FIELD_ID)
		memcpy(&text, at, sizeof(text));
	if (text && f->kind != FIELD_ID)
		assert((int64_t)strlen(text) >= f->min && (int64_t)strlen(text) <= f->max);
	assert(!f->required || f->kind != FIELD_ID || text);
}

static void check_quick(const char *text, size_t n)
{
	json_t *CLEANUP(json_freep) quick = json_quick_load(text, n, 63);
	json_t *CLEANUP(json_freep) slow = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);

	assert(!quick || json_equal(quick, slow));
}

/* What the flat way takes, the tree takes, with the same texts and numbers. */
static void check_flat(const char *text, size_t n, const struct json_field *fields)
{
	_Alignas(16) char flat[ROOM_BYTES] = { 0 }, tree[ROOM_BYTES] = { 0 };
	json_t *CLEANUP(json_freep) body = NULL;
	struct arena CLEANUP(arena_done) arena;
	struct json_flat object;
	struct problem p;

	arena_init(&arena);
	if (!json_flat_load(text, n, &object) || !fields_decode_flat(&object, fields, flat, &arena))
		return;
	int r = json_parse_object(text, n, &body, &p);
	assert(r == LAPSE_OK);
	r = fields_decode(body, fields, tree, &p);
	assert(r == LAPSE_OK);
	for (const struct json_field *f = fields; f->name; f++) {
		const void *a = flat + f->offset, *b = tree + f->offset;
		const bool is_text =
			f->kind == FIELD_TEXT || f->kind == FIELD_LABEL || f->kind == FIELD_ID;
		if (is_text && *(char *const *)a)
			assert(strcmp(*(char *const *)a, *(char *const *)b) == 0);
		else
			assert(memcmp(a, b, f->kind == FIELD_BOOL ? sizeof(bool) : 8) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_Alignas(16) char out[ROOM_BYTES] = { 0 };
	struct problem p = { 0 };
	json_t *body = NULL;

	if (size < 1)
		return 0;
	const struct json_field *fields = TABLES[data[0] % ARRAY_LEN(TABLES)];
	char *CLEANUP(mem_freep) text = mem_zalloc(1, size);
	memcpy(text, data + 1, size - 1);
	check_quick(text, size - 1);
	check_flat(text, size - 1, fields);
	if (json_parse_object(text, size - 1, &body, &p) < 0) {
		assert(p.message[0]);
		return 0;
	}
	int r = fields_decode(body, fields, out, &p);
	assert(r == LAPSE_OK || p.message[0]);
	for (const struct json_field *f = fields; r == LAPSE_OK && f->name; f++)
		check_member(f, out);
	json_decref(body);
	return 0;
}
