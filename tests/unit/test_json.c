/* SPDX-License-Identifier: Apache-2.0 */
/* JSON out: commas and escapes. JSON in: what is parsed, and every way a field can be wrong. */
#include <string.h>

#include "api/field.h"
#include "base/json.h"
#include "base/json_quick.h"
#include "unit.h"

/* Out */

static void writes_commas_where_they_belong(void **state)
{
	struct buf CLEANUP(buf_done) b = { 0 };

	(void)state;
	json_begin(&b, '{');
	json_key(&b, "empty");
	json_begin(&b, '[');
	json_end(&b, ']');
	json_key(&b, "list");
	json_begin(&b, '[');
	json_int(&b, 1);
	json_begin(&b, '{');
	json_end(&b, '}');
	json_begin(&b, '[');
	json_text(&b, "x");
	json_end(&b, ']');
	json_bool(&b, true);
	json_text(&b, NULL);
	json_raw(&b, "{\"a\":1}");
	json_raw(&b, NULL);
	json_end(&b, ']');
	json_put_bool(&b, "no", false);
	json_put_int(&b, "n", INT64_MIN);
	json_put_raw(&b, "raw", "[]");
	json_put_id(&b, "id", 255);
	json_put_time(&b, "t", 1);
	json_put_time(&b, "never", LAPSE_NEVER);
	json_put_text(&b, "brackets", "{[:");
	json_put_text(&b, "last", "");
	json_end(&b, '}');
	assert_string_equal(buf_text(&b),
			    "{\"empty\":[],\"list\":[1,{},[\"x\"],true,null,{\"a\":1},null],"
			    "\"no\":false,\"n\":-9223372036854775808,\"raw\":[],"
			    "\"id\":\"00000000000000ff\",\"t\":\"1970-01-01T00:00:00.001Z\","
			    "\"never\":null,\"brackets\":\"{[:\",\"last\":\"\"}");
}

static void escapes_texts(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "", "\"\"" },
		{ "plain", "\"plain\"" },
		{ "\"", "\"\\\"\"" },
		{ "a\\b", "\"a\\\\b\"" },
		{ "\n\r\t", "\"\\n\\r\\t\"" },
		{ "\x01\x1f", "\"\\u0001\\u001f\"" },
		{ "\b\f", "\"\\u0008\\u000c\"" },
		{ "\x7f", "\"\x7f\"" },
		{ "/<>&", "\"/<>&\"" },
		{ "\xc3\xa4\xf0\x9f\x98\x80", "\"\xc3\xa4\xf0\x9f\x98\x80\"" },
		{ "end\"", "\"end\\\"\"" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf CLEANUP(buf_done) b = { 0 };
		json_text(&b, cases[i].text);
		assert_string_equal(buf_text(&b), cases[i].want);
		json_t *CLEANUP(json_freep) j = json_loads(buf_text(&b), JSON_DECODE_ANY, NULL);
		assert_string_equal(json_string_value(j), cases[i].text);
	}
}

/* Long texts are looked at by words: every byte, at every place. */
static void escapes_long_texts(void **state)
{
	char text[80];

	(void)state;
	for (int place = 0; place < 64; place++) {
		for (int c = 1; c < 0x80; c++) {
			struct buf CLEANUP(buf_done) b = { 0 };
			memset(text, place % 2 ? ' ' : '~', sizeof(text));
			text[place] = (char)c;
			text[place + 1 + (place + c) % 9] = '\0';
			json_text(&b, text);
			bool plain = c >= ' ' && c != '"' && c != '\\';
			assert_int_equal(b.len == strlen(text) + 2, plain);
			json_t *CLEANUP(json_freep) j =
				json_loads(buf_text(&b), JSON_DECODE_ANY, NULL);
			assert_string_equal(json_string_value(j), text);
		}
	}
}

static void escapes_keys(void **state)
{
	struct buf CLEANUP(buf_done) b = { 0 };

	(void)state;
	json_begin(&b, '{');
	json_put_int(&b, "a\"b", 1);
	json_end(&b, '}');
	assert_string_equal(buf_text(&b), "{\"a\\\"b\":1}");
}

/* In: the text */

#define TEXT(s) s, sizeof(s) - 1

static void parses_objects_only(void **state)
{
	static const struct {
		const char *text;
		size_t n;
		bool valid;
	} cases[] = {
		{ TEXT("{}"), true },
		{ TEXT(" {\"a\": [1, 2.5, null, true, \"\\u00e4\"]}\n"), true },
		{ TEXT("{\"a\":{\"b\":1},\"b\":2}"), true },
		{ TEXT("{\"a\":9223372036854775807}"), true },
		{ TEXT(""), false },
		{ TEXT("[]"), false },
		{ TEXT("\"text\""), false },
		{ TEXT("1"), false },
		{ TEXT("null"), false },
		{ TEXT("{"), false },
		{ TEXT("{}}"), false },
		{ TEXT("{} {}"), false },
		{ TEXT("{\"a\":1,}"), false },
		{ TEXT("{'a':1}"), false },
		{ TEXT("{a:1}"), false },
		{ TEXT("{\"a\":01}"), false },
		{ TEXT("{\"a\":NaN}"), false },
		{ TEXT("{\"a\":1e999}"), false },
		{ TEXT("{\"a\":9223372036854775808}"), false },
		{ TEXT("{\"a\":\"\t\"}"), false },
		{ TEXT("{\"a\":1,\"a\":1}"), false },
		{ TEXT("{\"a\":{\"b\":1,\"b\":2}}"), false },
		{ TEXT("{\"a\":1,\"\\u0061\":1}"), false },
		{ TEXT("{\"a\":\"\\u0000\"}"), false },
		{ TEXT("{\"\\u0000\":1}"), false },
		{ TEXT("{\"a\":\"\0\"}"), false },
		{ TEXT("{}\0"), false },
		{ TEXT("{\"a\":\"\xff\"}"), false },
		{ TEXT("{\"a\":\"\xc0\xaf\"}"), false },
		{ TEXT("{\"a\":\"\xed\xa0\x80\"}"), false },
		{ TEXT("{\"\xc3\":1}"), false },
		{ TEXT("{\"a\":\"\\ud800\"}"), false },
		{ TEXT("{\"a\":\"\\udc00\\ud800\"}"), false },
		{ TEXT("\xef\xbb\xbf{}"), false },
		{ TEXT("{\"a\":1} // no"), false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		json_t *CLEANUP(json_freep) j = NULL;
		struct problem p = { 0 };
		int r = json_parse_object(cases[i].text, cases[i].n, &j, &p);
		if (r != (cases[i].valid ? LAPSE_OK : LAPSE_EINVAL))
			fail_msg("case %zu: %s gave %d %s", i, cases[i].text, r, p.message);
		assert_int_equal(j != NULL, cases[i].valid);
		assert_string_equal(p.field, cases[i].valid ? "" : "body");
		assert_int_equal(p.message[0] == '\0', cases[i].valid);
	}
}

/* In: the quick way */

#define QUICK_DEPTH 4

static const struct {
	const char *text;
	bool quick; /* taken by it, not left to jansson */
} PLAIN[] = {
	{ "{}", true },
	{ "[]", true },
	{ " \t\r\n{ \"a\" : [ 1 , { } ] } \n", true },
	{ "{\"from\":\"me\",\"content\":\"a text of some length, and more\",\"n\":[0,10,1]}",
	  true },
	{ "{\"a\":true,\"b\":false,\"c\":null,\"d\":999999999999999999}", true },
	{ "{\"a\":\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 twelve\",\"\":\"\"}", true },
	{ "{\"1234567\":\"12345678\",\"12345678\":\"123456789\"}", true },
	{ "[[[[]]]]", true },
	{ "[[[[[]]]]]", false },
	{ "{\"a\":\"line\\nbreak\"}", false },
	{ "{\"\\u0061\":1}", false },
	{ "{\"\xc3\xa4\":1}", false },
	{ "[-1]", false },
	{ "[1.5,1e3]", false },
	{ "[9223372036854775807]", false },
	{ "{\"a\":1,\"a\":1}", false },
	{ "{\"a\":\"\xed\xa0\x80\"}", false },
	{ "{\"a\":\"01234567\xff\"}", false },
	{ "[1,2", false },
	{ "[1,2],", false },
	{ "[truest]", false },
	{ "[01]", false },
};

/* Whether the quick way took it. If so, jansson takes it too, and the trees are the same, down to
 * the order of members. */
static bool same_as_jansson(const char *text, size_t n)
{
	json_t *CLEANUP(json_freep) quick = json_quick_load(text, n, QUICK_DEPTH);
	json_t *CLEANUP(json_freep) slow = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);

	if (!quick)
		return false;
	if (!json_equal(quick, slow))
		fail_msg("jansson disagrees about %.*s", (int)n, text);
	char *CLEANUP(mem_freep) ours = json_dumps(quick, JSON_COMPACT);
	char *CLEANUP(mem_freep) theirs = json_dumps(slow, JSON_COMPACT);
	assert_string_equal(ours, theirs);
	return true;
}

static json_t *value_of_flat(const struct json_flat_member *m)
{
	switch ((int)m->type) {
	case JSON_STRING:
		return json_stringn(m->text, m->text_len);
	case JSON_INTEGER:
		return json_integer(m->number);
	case JSON_TRUE:
		return json_true();
	case JSON_FALSE:
		return json_false();
	default:
		assert_int_equal(m->type, JSON_NULL);
		return json_null();
	}
}

/* The same for a flat object: a tree made of its members is jansson's. */
static bool flat_as_jansson(const char *text, size_t n)
{
	json_t *CLEANUP(json_freep) slow = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	json_t *CLEANUP(json_freep) ours = json_object();
	struct json_flat flat;

	if (!json_flat_load(text, n, &flat))
		return false;
	for (size_t i = 0; i < flat.count; i++) {
		const struct json_flat_member *m = &flat.members[i];
		json_object_setn_new(ours, m->name, m->name_len, value_of_flat(m));
	}
	if (!json_equal(ours, slow) || json_object_size(ours) != flat.count)
		fail_msg("jansson disagrees about flat %.*s", (int)n, text);
	return true;
}

static void reads_flat_objects(void **state)
{
	static const struct {
		const char *text;
		bool flat;
	} cases[] = {
		{ "{}", true },
		{ " { \"a\" : \"b\" , \"c\" : 12 } ", true },
		{ "{\"a\":true,\"b\":false,\"c\":null,\"d\":0,\"e\":\"\"}", true },
		{ "{\"a\":999999999999999999}", true },
		{ "{\"a\":9999999999999999999}", false },
		{ "{\"a\":-1}", false }, /* the tree takes these */
		{ "{\"a\":1.5}", false },
		{ "{\"a\":[]}", false },
		{ "{\"a\":{}}", false },
		{ "{\"a\":\"\\n\"}", false },
		{ "{\"a\":\"\xc3\xa4\"}", false },
		{ "{\"\xc3\xa4\":1}", false },
		{ "{\"a\":1,\"a\":2}", false }, /* and these are wrong */
		{ "{\"a\":1,}", false },
		{ "{\"a\":1} x", false },
		{ "{\"a\":1", false },
		{ "{\"a\":truely}", false },
		{ "{\"a\":01}", false },
		{ "[]", false },
		{ "\"a\"", false },
		{ "", false },
		{ "{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1}", true },
		{ "{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1}",
		  false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (flat_as_jansson(cases[i].text, strlen(cases[i].text)) != cases[i].flat)
			fail_msg("%s was %staken", cases[i].text, cases[i].flat ? "not " : "");
}

static void reads_plain_json_quickly(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(PLAIN); i++)
		if (same_as_jansson(PLAIN[i].text, strlen(PLAIN[i].text)) != PLAIN[i].quick)
			fail_msg("%s was %staken", PLAIN[i].text, PLAIN[i].quick ? "not " : "");
}

static size_t both_as_jansson(const char *text, size_t n)
{
	return (size_t)same_as_jansson(text, n) + (size_t)flat_as_jansson(text, n);
}

/* Every text cut off at every byte, and with every byte replaced by any other, left out, and
 * doubled. */
static void agrees_with_jansson_about_changed_texts(void **state)
{
	size_t taken = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(PLAIN); i++) {
		size_t n = strlen(PLAIN[i].text);
		char *CLEANUP(mem_freep) text = mem_zalloc(1, n + 2);
		for (size_t at = 0; at < n; at++) {
			memcpy(text, PLAIN[i].text, n);
			taken += both_as_jansson(text, at);
			for (int byte = 0; byte < 256; byte++) {
				text[at] = (char)byte;
				taken += both_as_jansson(text, n);
			}
			memcpy(text, PLAIN[i].text, n);
			memmove(text + at, text + at + 1, n - at - 1);
			taken += both_as_jansson(text, n - 1);
			memcpy(text, PLAIN[i].text, at + 1);
			memcpy(text + at + 1, PLAIN[i].text + at, n - at);
			taken += both_as_jansson(text, n + 1);
		}
	}
	assert_true(taken > 10000); /* otherwise this shows nothing */
}

/* {"a":[[[…]]]} with so many levels in all. */
static int parse_nested(int levels)
{
	struct buf CLEANUP(buf_done) b = { 0 };
	json_t *CLEANUP(json_freep) j = NULL;
	struct problem p = { 0 };

	buf_puts(&b, "{\"a\":");
	for (int i = 1; i < levels; i++)
		buf_putc(&b, '[');
	for (int i = 1; i < levels; i++)
		buf_putc(&b, ']');
	buf_putc(&b, '}');
	return json_parse_object(buf_text(&b), b.len, &j, &p);
}

/* The same with a number in the innermost one, which is a level too. */
static int parse_nested_number(int levels)
{
	struct buf CLEANUP(buf_done) b = { 0 };
	json_t *CLEANUP(json_freep) j = NULL;
	struct problem p = { 0 };

	buf_puts(&b, "{\"a\":");
	for (int i = 2; i < levels; i++)
		buf_putc(&b, '[');
	buf_putc(&b, '1');
	for (int i = 2; i < levels; i++)
		buf_putc(&b, ']');
	buf_putc(&b, '}');
	return json_parse_object(buf_text(&b), b.len, &j, &p);
}

static void limits_depth(void **state)
{
	(void)state;
	assert_int_equal(parse_nested_number(64), LAPSE_OK);
	assert_int_equal(parse_nested_number(65), LAPSE_EINVAL);
	assert_int_equal(parse_nested(2), LAPSE_OK);
	assert_int_equal(parse_nested(64), LAPSE_OK);
	assert_int_equal(parse_nested(65), LAPSE_EINVAL);
	assert_int_equal(parse_nested(2000), LAPSE_EINVAL);
	assert_int_equal(parse_nested(200000), LAPSE_EINVAL);
}

/* In: the fields */

struct sample {
	const char *text, *label, *id;
	int64_t number;
	bool flag;
	lapse_ms time;
	json_t *object, *ids, *hexes;
};

#define FIELD(name, kind, required, min, max)                                                      \
	{                                                                                          \
#name, kind, required, offsetof(struct sample, name), min, max, ""                 \
	}
static const struct json_field FIELDS[] = {
	FIELD(text, FIELD_TEXT, false, 1, 5),     FIELD(label, FIELD_LABEL, false, 0, 8),
	FIELD(id, FIELD_ID, true, 0, 0),          FIELD(number, FIELD_INT, false, -3, 10),
	FIELD(flag, FIELD_BOOL, false, 0, 0),     FIELD(time, FIELD_TIME, false, 0, 0),
	FIELD(object, FIELD_OBJECT, false, 0, 0), FIELD(ids, FIELD_IDS, false, 1, 3),
	FIELD(hexes, FIELD_HEXES, false, 0, 2),   { 0 },
};

static json_t *parse(const char *text)
{
	json_t *j = NULL;
	struct problem p = { 0 };

	if (json_parse_object(text, strlen(text), &j, &p) < 0)
		fail_msg("%s: %s", text, p.message);
	return j;
}

static void decodes_each_kind(void **state)
{
	json_t *CLEANUP(json_freep) j =
		parse("{\"text\":\"a\\nb\",\"label\":\"\",\"id\":\"agent\",\"number\":-3,"
		      "\"flag\":true,\"time\":\"1970-01-01T00:00:01Z\",\"object\":{\"k\":[1]},"
		      "\"ids\":[\"x\",\"y\"],\"hexes\":[\"00000000000000ff\"]}");
	struct sample s = { 0 };
	struct problem p = { 0 };

	(void)state;
	assert_int_equal(fields_decode(j, FIELDS, &s, &p), LAPSE_OK);
	assert_string_equal(s.text, "a\nb");
	assert_string_equal(s.label, "");
	assert_string_equal(s.id, "agent");
	assert_int_equal(s.number, -3);
	assert_true(s.flag);
	assert_int_equal(s.time, 1000);
	assert_int_equal(json_object_size(s.object), 1);
	assert_int_equal(json_array_size(s.ids), 2);
	assert_int_equal(json_array_size(s.hexes), 1);
}

static void leaves_the_rest_alone(void **state)
{
	json_t *CLEANUP(json_freep) j = parse("{\"id\":\"agent\",\"flag\":false}");
	struct sample s = { .number = 7, .flag = true, .time = LAPSE_NEVER };
	struct problem p = { 0 };

	(void)state;
	assert_int_equal(fields_decode(j, FIELDS, &s, &p), LAPSE_OK);
	assert_int_equal(s.number, 7);
	assert_false(s.flag);
	assert_int_equal(s.time, LAPSE_NEVER);
	assert_null(s.text);
}

static void rejects_wrong_fields(void **state)
{
	static const struct {
		const char *json, *field, *message;
	} cases[] = {
		{ "{}", "id", "required" },
		{ "{\"flag\":true}", "id", "required" },
		{ "{\"id\":\"a\",\"extra\":1}", "extra", "unknown field 'extra'" },
		{ "{\"id\":\"a\",\"Flag\":true}", "Flag", "unknown" },
		{ "{\"id\":null}", "id", "string" },
		{ "{\"id\":5}", "id", "string" },
		{ "{\"id\":[]}", "id", "string" },
		{ "{\"id\":\"\"}", "id", "empty" },
		{ "{\"id\":\"a/b\"}", "id", "'/'" },
		{ "{\"id\":\"a\\u0007\"}", "id", "control" },
		{ "{\"id\":\"a\",\"text\":1}", "text", "string" },
		{ "{\"id\":\"a\",\"text\":null}", "text", "string" },
		{ "{\"id\":\"a\",\"text\":\"\"}", "text", "1 to 5 bytes" },
		{ "{\"id\":\"a\",\"text\":\"123456\"}", "text", "1 to 5 bytes" },
		{ "{\"id\":\"a\",\"text\":\"\xc3\xa4\xc3\xa4\xc3\xa4\"}", "text", "1 to 5 bytes" },
		{ "{\"id\":\"a\",\"label\":\"123456789\"}", "label", "0 to 8" },
		{ "{\"id\":\"a\",\"label\":\"a\\nb\"}", "label", "printable" },
		{ "{\"id\":\"a\",\"number\":-4}", "number", "between -3 and 10" },
		{ "{\"id\":\"a\",\"number\":11}", "number", "between -3 and 10" },
		{ "{\"id\":\"a\",\"number\":1.0}", "number", "integer" },
		{ "{\"id\":\"a\",\"number\":\"1\"}", "number", "integer" },
		{ "{\"id\":\"a\",\"number\":true}", "number", "integer" },
		{ "{\"id\":\"a\",\"flag\":1}", "flag", "true or false" },
		{ "{\"id\":\"a\",\"flag\":\"true\"}", "flag", "true or false" },
		{ "{\"id\":\"a\",\"flag\":null}", "flag", "true or false" },
		{ "{\"id\":\"a\",\"time\":0}", "time", "ISO 8601" },
		{ "{\"id\":\"a\",\"time\":\"soon\"}", "time", "ISO 8601" },
		{ "{\"id\":\"a\",\"object\":[]}", "object", "object" },
		{ "{\"id\":\"a\",\"object\":\"{}\"}", "object", "object" },
		{ "{\"id\":\"a\",\"ids\":\"x\"}", "ids", "array" },
		{ "{\"id\":\"a\",\"ids\":{}}", "ids", "array" },
		{ "{\"id\":\"a\",\"ids\":[]}", "ids", "1 to 3 entries" },
		{ "{\"id\":\"a\",\"ids\":[\"a\",\"b\",\"c\",\"d\"]}", "ids", "1 to 3 entries" },
		{ "{\"id\":\"a\",\"ids\":[\"a\",1]}", "ids", "ids[1] must be a string" },
		{ "{\"id\":\"a\",\"ids\":[\"a\",\"\"]}", "ids", "ids[1] must not be empty" },
		{ "{\"id\":\"a\",\"ids\":[\"a\",\"b\",\"a\"]}", "ids", "twice" },
		{ "{\"id\":\"a\",\"hexes\":[\"ff\"]}", "hexes", "hexes[0] must be 16 hex" },
		{ "{\"id\":\"a\",\"hexes\":[\"00000000000000FF\"]}", "hexes", "hexes[0]" },
		{ "{\"id\":\"a\",\"hexes\":[\"00000000000000ff\",\"00000000000000ff\"]}", "hexes",
		  "twice" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		json_t *CLEANUP(json_freep) j = parse(cases[i].json);
		struct sample s = { 0 };
		struct problem p = { 0 };
		if (fields_decode(j, FIELDS, &s, &p) != LAPSE_EINVAL)
			fail_msg("%s was taken", cases[i].json);
		if (strcmp(p.field, cases[i].field) != 0 || !strstr(p.message, cases[i].message))
			fail_msg("%s: %s: %s", cases[i].json, p.field, p.message);
	}
}

static const char *or_none(const char *text)
{
	return text ? text : "(none)";
}

/* What is decoded from a flat object is what is decoded from its tree; and what it leaves to the
 * tree is either wrong, or of a kind that needs a tree. */
static void decodes_flat_objects_alike(void **state)
{
	static const struct {
		const char *text;
		bool taken;
	} cases[] = {
		{ "{\"id\":\"a\"}", true },
		{ "{\"id\":\"a\",\"text\":\"12345\",\"label\":\"\",\"number\":10,\"flag\":true}",
		  true },
		{ "{\"flag\":false,\"number\":0,\"id\":\"agent\"}", true },
		{ "{\"id\":\"a\",\"time\":\"1970-01-01T00:00:01Z\"}", false },
		{ "{}", false },
		{ "{\"id\":\"a\",\"extra\":1}", false },
		{ "{\"id\":\"a\",\"i\":1}", false },
		{ "{\"id\":\"a/b\"}", false },
		{ "{\"id\":1}", false },
		{ "{\"id\":null}", false },
		{ "{\"id\":\"a\",\"text\":\"\"}", false },
		{ "{\"id\":\"a\",\"text\":\"123456\"}", false },
		{ "{\"id\":\"a\",\"number\":11}", false },
		{ "{\"id\":\"a\",\"number\":\"1\"}", false },
		{ "{\"id\":\"a\",\"flag\":1}", false },
		{ "{\"id\":\"a\",\"flag\":null}", false },
		{ "{\"id\":\"a\",\"object\":\"{}\"}", false },
		{ "{\"id\":\"a\",\"ids\":\"x\"}", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct arena CLEANUP(arena_done) arena;
		struct sample flat = { .number = 7 }, tree = { .number = 7 };
		struct json_flat object;
		struct problem p;
		arena_init(&arena);
		assert_true(json_flat_load(cases[i].text, strlen(cases[i].text), &object));
		if (fields_decode_flat(&object, FIELDS, &flat, &arena) != cases[i].taken)
			fail_msg("%s", cases[i].text);
		json_t *CLEANUP(json_freep) j = parse(cases[i].text);
		if (!cases[i].taken)
			continue;
		assert_int_equal(fields_decode(j, FIELDS, &tree, &p), LAPSE_OK);
		assert_string_equal(or_none(flat.text), or_none(tree.text));
		assert_string_equal(or_none(flat.label), or_none(tree.label));
		assert_string_equal(flat.id, tree.id);
		assert_int_equal(flat.number, tree.number);
		assert_int_equal(flat.flag, tree.flag);
	}
}

static void takes_the_ends_of_ranges(void **state)
{
	static const char *const cases[] = {
		"{\"id\":\"a\",\"number\":-3}",
		"{\"id\":\"a\",\"number\":10}",
		"{\"id\":\"a\",\"text\":\"1\"}",
		"{\"id\":\"a\",\"text\":\"12345\"}",
		"{\"id\":\"a\",\"label\":\"12345678\"}",
		"{\"id\":\"a\",\"ids\":[\"a\"]}",
		"{\"id\":\"a\",\"ids\":[\"a\",\"b\",\"c\"]}",
		"{\"id\":\"a\",\"hexes\":[]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		json_t *CLEANUP(json_freep) j = parse(cases[i]);
		struct sample s = { 0 };
		struct problem p = { 0 };
		if (fields_decode(j, FIELDS, &s, &p) != LAPSE_OK)
			fail_msg("%s: %s", cases[i], p.message);
	}
}

static void takes_an_empty_body(void **state)
{
	static const struct json_field optional[] = {
		FIELD(number, FIELD_INT, false, 0, 9),
		{ 0 },
	};
	struct sample s = { .number = 4 };
	struct problem p = { 0 };

	(void)state;
	assert_int_equal(fields_decode(NULL, optional, &s, &p), LAPSE_OK);
	assert_int_equal(s.number, 4);
	assert_int_equal(fields_decode(NULL, FIELDS, &s, &p), LAPSE_EINVAL);
	assert_string_equal(p.field, "id");
}

/* What a server wrote: NUL is text, and a long answer must not become a gigabyte of small values.
 */
static void foreign_answers(void **state)
{
	static const struct {
		const char *begin, *again, *end;
		int err;
	} cases[] = {
		{ "{\"a\":[", "[],", "[]]}", LAPSE_EINVAL },
		{ "{\"a\":[", "{},", "{}]}", LAPSE_EINVAL },
		{ "{\"a\":[", "1,", "1]}", LAPSE_EINVAL },
		{ "{\"a\":\"", ",[{", "\"}", LAPSE_OK },
		{ "{\"a\":\"", "\\\",", "\"}", LAPSE_OK },
		{ "{\"a\":\"", "\\u0000", "\"}", LAPSE_OK },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		json_t *CLEANUP(json_freep) j = NULL;
		struct buf CLEANUP(buf_done) text = { 0 };
		struct problem p;
		buf_puts(&text, cases[i].begin);
		for (int k = 0; k <= JSON_FOREIGN_VALUES_MAX; k++)
			buf_puts(&text, cases[i].again);
		buf_puts(&text, cases[i].end);
		assert_int_equal(json_parse_foreign(text.data, text.len, &j, &p), cases[i].err);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(foreign_answers),
		cmocka_unit_test(writes_commas_where_they_belong),
		cmocka_unit_test(escapes_texts),
		cmocka_unit_test(escapes_long_texts),
		cmocka_unit_test(escapes_keys),
		cmocka_unit_test(parses_objects_only),
		cmocka_unit_test(reads_plain_json_quickly),
		cmocka_unit_test(reads_flat_objects),
		cmocka_unit_test(decodes_flat_objects_alike),
		cmocka_unit_test(agrees_with_jansson_about_changed_texts),
		cmocka_unit_test(limits_depth),
		cmocka_unit_test(decodes_each_kind),
		cmocka_unit_test(leaves_the_rest_alone),
		cmocka_unit_test(rejects_wrong_fields),
		cmocka_unit_test(takes_the_ends_of_ranges),
		cmocka_unit_test(takes_an_empty_body),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
