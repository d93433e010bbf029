/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a mail server: every reader of jmap.h and registry.h gets every answer. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "provider/jmap.h"
#include "provider/registry.h"

#define LIMIT 100

static void read_mail(const json_t *answer, struct arena *arena)
{
	struct jmap_folders folders = { 0 };
	struct jmap_list list = { 0 };
	struct jmap_sent sent = { 0 };
	struct problem p = { 0 };
	struct mail *mail = NULL;

	jmap_parse_folders(answer, "a@example.org", true, arena, &folders, &p);
	if (jmap_parse_list(answer, LIMIT, arena, &list, &p) == LAPSE_OK)
		assert(list.count <= LIMIT);
	if (jmap_parse_get(answer, arena, &mail, &p) == LAPSE_OK)
		assert(mail);
	jmap_parse_send(answer, arena, &sent, &p);
	jmap_parse_delivery(answer, &sent, &p);
}

static void read_registry(const json_t *answer, struct arena *arena)
{
	struct problem p = { 0 };
	const char *id = NULL;
	bool definite = false;

	registry_parse_domain(answer, "example.org", arena, &id, &p);
	registry_parse_create(answer, arena, &id, &definite, &p);
	registry_parse_found(answer, true, "a@example.org", "mark", arena, &id, &p);
	registry_parse_found(answer, false, "a@example.org", NULL, arena, &id, &p);
	registry_parse_destroy(answer, "id", &p);
}

static void read_rest(const char *text, size_t n, struct arena *arena)
{
	static const int statuses[] = { 200, 401, 404, 429, 500 };
	struct jmap_session session = { 0 };
	struct rest_answer rest;
	struct problem p = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
		rest_judge(statuses[i], text, n, arena, &rest);
		assert(rest.error && rest.item && rest.account && rest.mark);
	}
	if (jmap_parse_session(text, n, arena, &session, &p) == LAPSE_OK)
		assert(session.api && session.account);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *CLEANUP(mem_freep) text = mem_zalloc(1, size + 1);
	static const enum jmap_using kinds[] = { JMAP_MAIL, JMAP_REGISTRY };
	struct problem p = { 0 };
	struct arena arena;

	memcpy(text, data, size);
	arena_init(&arena);
	read_rest(text, size, &arena);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		json_t *answer = NULL;
		if (jmap_parse(text, size, kinds[i], &answer, &p) < 0)
			continue;
		(kinds[i] == JMAP_MAIL ? read_mail : read_registry)(answer, &arena);
		json_decref(answer);
	}
	arena_done(&arena);
	return 0;
}
