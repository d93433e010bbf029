/* SPDX-License-Identifier: Apache-2.0 */
#include "http/example.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define SOME_CHECKSUM "a3f5c1d2e4b697880112233445566778899aabbccddeeff00112233445566778"

/* A name with several meanings has one row for each kind. */
static const struct {
	const char *name;
	const char *text, *texts; /* JSON, for a field that is one text, or a list of them */
} EXAMPLES[] = {
	{ "action", "\"delete\"", NULL },
	{ "address", "\"signup-7@lapse.local\"", NULL },
	{ "after", "\"0198f3a2b4c5d6e7\"", NULL },
	{ "agent", "\"bob\"", NULL },
	{ "agent_id", "\"bob\"", NULL },
	{ "agents", NULL, "[\"bob\"]" },
	{ "bcc", NULL, "[\"archive@lapse.local\"]" },
	{ "body", "\"The code is 4711.\"", NULL },
	{ "bounded_by", "\"timestamp\"", NULL },
	{ "capabilities", NULL, "[\"resize\",\"translate\"]" },
	{ "capability", "\"resize\"", NULL },
	{ "cc", NULL, "[\"carol@lapse.local\"]" },
	{ "checksum", "\"" SOME_CHECKSUM "\"", NULL },
	{ "cluster_id", "\"eu-1\"", NULL },
	{ "content", "\"the build is green\"", NULL },
	{ "domain", "\"lapse.local\"", NULL },
	{ "due_when", "\"now - timestamp > 24 h\"", NULL },
	{ "error", "\"the mail server refused the connection\"", NULL },
	{ "file", "\"backups/lapse-20261116-101500.db\"", NULL },
	{ "folder", "\"inbox\"", NULL },
	{ "from", "\"alice\"", NULL },
	{ "html", "\"<p>The code is 4711.</p>\"", NULL },
	{ "ids", NULL, "[\"0198f3a2b4c5d6e7\"]" },
	{ "key", "\"0198f3a2b4c5d6e7\"", NULL },
	{ "kind", "\"mailbox\"", NULL },
	{ "message_id", "\"0198f3a2b4c5d6e9\"", NULL },
	{ "msg", "\"0198f3a2b4c5d6e9\"", NULL },
	{ "name", "\"report.pdf\"", NULL },
	{ "next_cursor", "\"0198f3a2b4c5d6e7\"", NULL },
	{ "owner", "\"fleet-a\"", NULL },
	{ "path", "\"/srv/out/report.pdf\"", NULL },
	{ "paths", NULL, "[\"sweep\"]" },
	{ "prefix", "\"lapse_3f9a1c\"", NULL },
	{ "preview", "\"The code is 4711.\"", NULL },
	{ "Range", "\"bytes=0-1023\"", NULL },
	{ "reason", "\"evidence for incident 12\"", NULL },
	{ "reasons", NULL, "[\"sweeps of messages are stalled\"]" },
	{ "safety_rule", "\"only when read\"", NULL },
	{ "scheduler", "\"messages\"", NULL },
	{ "status", "\"ok\"", NULL },
	{ "subject", "\"Your code\"", NULL },
	{ "table", "\"messages\"", NULL },
	{ "target", "\"signup-7@lapse.local\"", NULL },
	{ "to", "\"bob\"", "[\"bob\"]" },
	{ "token", "\"lapse_3f9a1c…\"", NULL },
	{ "type", "\"text\"", NULL },
	{ "username", "\"signup-7\"", NULL },
};

static const char *find_text(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(EXAMPLES); i++)
		if (strcmp(EXAMPLES[i].name, name) == 0 && EXAMPLES[i].text)
			return EXAMPLES[i].text;
	return "\"text\"";
}

static const char *find_texts(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(EXAMPLES); i++)
		if (strcmp(EXAMPLES[i].name, name) == 0 && EXAMPLES[i].texts)
			return EXAMPLES[i].texts;
	return "[\"text\"]";
}

#define SOME_ID "\"0198f3a2b4c5d6e7\""
#define SOME_TIME "\"2026-11-16T10:15:00.000Z\""

/* Durations are longer than other numbers. */
static const char *find_number(const char *name)
{
	size_t n = strlen(name);

	return n > 3 && strcmp(name + n - 3, "_ms") == 0 ? "600000" : "1";
}

static void example_of_number(struct buf *out, const struct json_field *f)
{
	int64_t n = find_number(f->name)[0] == '6' ? 600000 : 1;

	json_int(out, n < f->min ? f->min : n > f->max ? f->max : n);
}

void example_of_field(struct buf *out, const struct json_field *f)
{
	assert(f->name);
	switch (f->kind) {
	case FIELD_TEXT:
	case FIELD_LABEL:
	case FIELD_ID:
		json_raw(out, find_text(f->name));
		break;
	case FIELD_INT:
	case FIELD_TTL:
		example_of_number(out, f);
		break;
	case FIELD_BOOL:
		json_bool(out, true);
		break;
	case FIELD_TIME:
		json_raw(out, SOME_TIME);
		break;
	case FIELD_OBJECT:
		json_raw(out, "{\"task\":7}");
		break;
	case FIELD_IDS:
	case FIELD_TEXTS:
		json_raw(out, find_texts(f->name));
		break;
	case FIELD_HEXES:
		json_raw(out, "[" SOME_ID "]");
		break;
	}
}

static void example_of_values(struct buf *out, const char *values)
{
	struct buf CLEANUP(buf_done) first = { 0 };

	buf_printf(&first, "%.*s", (int)strcspn(values, "|"), values);
	json_text(out, buf_text(&first));
}

void example_of_member(struct buf *out, const struct shape_field *f)
{
	assert(f->name);
	switch (f->kind) {
	case SHAPE_TEXT:
		if (f->values)
			example_of_values(out, f->values);
		else
			json_raw(out, find_text(f->name));
		break;
	case SHAPE_ID:
		json_raw(out, SOME_ID);
		break;
	case SHAPE_INT:
	case SHAPE_TTL:
		json_raw(out, find_number(f->name));
		break;
	case SHAPE_BOOL:
		json_bool(out, true);
		break;
	case SHAPE_VALUE:
		json_int(out, 1);
		break;
	case SHAPE_TIME:
		json_raw(out, SOME_TIME);
		break;
	case SHAPE_OBJECT:
		json_raw(out, "{\"task\":7}");
		break;
	case SHAPE_COUNTS:
		json_raw(out, "{\"messages\":1}");
		break;
	case SHAPE_TEXTS:
		json_raw(out, find_texts(f->name));
		break;
	case SHAPE_LIST:
		json_begin(out, '[');
		example_of_shape(out, f->of);
		json_end(out, ']');
		break;
	case SHAPE_NEST:
		example_of_shape(out, f->of);
		break;
	}
}

void example_of_shape(struct buf *out, const struct shape *shape)
{
	assert(shape);
	json_begin(out, '{');
	for (const struct shape_field *f = shape->fields; f->name; f++) {
		if (f->flags & (SHAPE_OPTIONAL | SHAPE_OLD))
			continue;
		json_key(out, f->name);
		example_of_member(out, f);
	}
	json_end(out, '}');
}

/* Required fields, or the first one when none is: an example of a body that is accepted. */
void example_of_fields(struct buf *out, const struct json_field *fields)
{
	bool any = false;

	for (const struct json_field *f = fields; f->name; f++)
		any |= f->required;
	json_begin(out, '{');
	for (const struct json_field *f = fields; f->name; f++) {
		if (any ? !f->required : f != fields)
			continue;
		json_key(out, f->name);
		example_of_field(out, f);
	}
	json_end(out, '}');
}

void example_of_parameter(struct buf *out, const char *name, const char *fallback)
{
	const char *text = find_text(name);

	json_raw(out, strcmp(text, "\"text\"") == 0 ? fallback : text);
}
