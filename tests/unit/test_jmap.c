/* SPDX-License-Identifier: Apache-2.0 */
/* JMAP: what answers mean, as tables; and that requests are the JSON they should be. */
#include <string.h>

#include "provider/jmap.h"
#include "provider/registry.h"
#include "unit.h"

struct desk {
	struct arena arena;
	struct buf out;
	struct problem problem;
	json_t *json;
};

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	arena_init(&d->arena);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct desk *d = *state;

	arena_done(&d->arena);
	buf_done(&d->out);
	json_decref(d->json);
	free(d);
	return 0;
}

/* The answer of one call, or of several: "name", args, "id" triples without the outer brackets. */
static const json_t *answer(struct desk *d, const char *responses)
{
	json_decref(d->json);
	d->json = NULL;
	char *text = arena_printf(&d->arena, "{\"methodResponses\":[%s]}", responses);
	assert_int_equal(jmap_parse(text, strlen(text), JMAP_MAIL, &d->json, &d->problem),
			 LAPSE_OK);
	return d->json;
}

/* The request that was built, as JSON: its n-th call's arguments. */
static json_t *request(struct desk *d, size_t n)
{
	json_decref(d->json);
	d->json = NULL;
	assert_int_equal(json_parse_object(d->out.data, d->out.len, &d->json, &d->problem),
			 LAPSE_OK);
	return json_array_get(json_array_get(json_object_get(d->json, "methodCalls"), n), 1);
}

static const char *string_at(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

static void paths_never_leave_the_host(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *url, *path;
	} cases[] = {
		{ "/jmap/", "/jmap/" },
		{ "/jmap?a=b", "/jmap?a=b" },
		{ "https://mail.example.org/jmap/", "/jmap/" },
		{ "http://u:p@h:8080/a/b", "/a/b" },
		{ "//evil.test/x", "/x" },
		{ "/a//b", "/a//b" },
		{ "/a#b", "/a" },
		{ "/a:b@c", "/a:b@c" },
		{ "/x/http://y/z", "/x/http://y/z" },
		{ "https://mail.example.org", NULL },
		{ "https://mail.example.org?x", NULL },
		{ "jmap", NULL },
		{ "", NULL },
		{ "@evil.test/", NULL },
		{ ":80/x", NULL },
		{ "/a b", NULL },
		{ "/a\r\nX: y", NULL },
		{ "/a\\b", NULL },
		{ "/\xc3\xa4", NULL },
		{ "\\\\evil.test/x", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *path = jmap_path(cases[i].url, &d->arena);
		if ((path == NULL) != (cases[i].path == NULL) ||
		    (path && strcmp(path, cases[i].path) != 0))
			fail_msg("%s gave %s", cases[i].url, path ? path : "nothing");
	}
}

static void ids_are_checked(void **state)
{
	char longest[JMAP_ID_MAX + 2];

	(void)state;
	memset(longest, 'x', sizeof(longest));
	longest[JMAP_ID_MAX] = '\0';
	assert_true(jmap_id_is_valid("aZ09-_"));
	assert_true(jmap_id_is_valid(longest));
	longest[JMAP_ID_MAX] = 'x';
	longest[JMAP_ID_MAX + 1] = '\0';
	assert_false(jmap_id_is_valid(longest));
	assert_false(jmap_id_is_valid(""));
	assert_false(jmap_id_is_valid("a/b"));
	assert_false(jmap_id_is_valid("a\"b"));
	assert_false(jmap_id_is_valid("\xc3\xa4"));
}

#define MAIL_ACCOUNT "\"primaryAccounts\":{\"urn:ietf:params:jmap:mail\":\"m\"}"

static void sessions(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *text, *why; /* NULL = taken */
	} cases[] = {
		{ "{\"apiUrl\":\"/jmap/\"," MAIL_ACCOUNT "}", NULL },
		{ "{\"apiUrl\":\"https://h/jmap/\"," MAIL_ACCOUNT "}", NULL },
		{ "{\"apiUrl\":\"/jmap/\",\"primaryAccounts\":{}}", "password" },
		{ "{\"apiUrl\":\"/jmap/"
		  "\",\"primaryAccounts\":{\"urn:ietf:params:jmap:mail\":\"\"}}",
		  "password" },
		{ "{\"apiUrl\":\"/jmap/\",\"primaryAccounts\":7}", "password" },
		{ "{\"apiUrl\":\"/jmap/\"}", "password" },
		{ "{\"apiUrl\":\"jmap\"," MAIL_ACCOUNT "}", "apiUrl" },
		{ "{\"apiUrl\":7," MAIL_ACCOUNT "}", "apiUrl" },
		{ "{" MAIL_ACCOUNT "}", "apiUrl" },
		{ "[]", "nonsense" },
		{ "<html>", "nonsense" },
		{ "", "nonsense" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct jmap_session s = { 0 };
		int r = jmap_parse_session(cases[i].text, strlen(cases[i].text), &d->arena, &s,
					   &d->problem);
		if (!cases[i].why) {
			assert_int_equal(r, LAPSE_OK);
			assert_string_equal(s.api, "/jmap/");
			assert_string_equal(s.account, "m");
			assert_null(s.submission);
		} else if (r != LAPSE_EUPSTREAM || !strstr(d->problem.message, cases[i].why)) {
			fail_msg("%s gave %d, %s", cases[i].text, r, d->problem.message);
		}
	}
}

static void answers_are_found_by_name_and_id(void **state)
{
	struct desk *d = *state;
	json_t *args;
	const json_t *a = answer(d, "7,[],[\"Email/set\"],[\"Email/set\",{\"n\":1},\"e\"],"
				    "[\"EmailSubmission/set\",{\"n\":2},\"s\"],"
				    "[\"Email/set\",{\"n\":3},\"s\"],[\"error\",{},\"x\"],"
				    "[\"Email/get\",[],\"g\"]");

	assert_int_equal(jmap_find(a, "Email/set", "s", &args, &d->problem), LAPSE_OK);
	assert_int_equal(json_integer_value(json_object_get(args, "n")), 3);
	assert_int_equal(jmap_find(a, "EmailSubmission/set", "s", &args, &d->problem), LAPSE_OK);
	assert_int_equal(json_integer_value(json_object_get(args, "n")), 2);
	assert_int_equal(jmap_find(a, "Email/set", "g", &args, &d->problem), LAPSE_EUPSTREAM);
	assert_int_equal(jmap_find(a, "Email/get", "g", &args, &d->problem), LAPSE_EUPSTREAM);
	assert_int_equal(jmap_find(a, "Email/set", "x", &args, &d->problem), LAPSE_EUPSTREAM);
	assert_string_equal(jmap_error_type(a, "x"), "unknown");
	assert_null(jmap_error_type(a, "e"));
}

static void folders_and_identities(void **state)
{
	struct desk *d = *state;
	struct jmap_folders f;
	static const struct {
		const char *list, *identity;
	} cases[] = {
		{ "{\"id\":\"1\",\"email\":\"b@x.test\"},{\"id\":\"2\",\"email\":\"A@X.test\"}",
		  "2" },
		{ "{\"id\":\"1\",\"email\":\"*@x.test\"},{\"id\":\"2\",\"email\":\"a@x.test\"}",
		  "2" },
		{ "{\"id\":\"1\",\"email\":\"*@X.TEST\"},{\"id\":\"2\",\"email\":\"b@x.test\"}",
		  "1" },
		{ "{\"id\":\"1\",\"email\":\"b@x.test\"},{\"id\":\"2\",\"email\":\"*@y.test\"}",
		  NULL },
		{ "{\"id\":7,\"email\":\"a@x.test\"},7,{}", NULL },
		{ "", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *text = arena_printf(
			&d->arena,
			"[\"Mailbox/get\",{\"list\":[{\"id\":\"1\",\"role\":\"inbox\"},"
			"{\"id\":\"2\",\"role\":null},{\"id\":\"3\",\"role\":\"sent\"},"
			"{\"id\":\"4\",\"role\":\"inbox\"},{\"id\":5,\"role\":\"junk\"},7]},\"m\"],"
			"[\"Identity/get\",{\"list\":[%s]},\"i\"]",
			cases[i].list);
		assert_int_equal(jmap_parse_folders(answer(d, text), "a@x.test", true, &d->arena,
						    &f, &d->problem),
				 LAPSE_OK);
		assert_string_equal(f.ids[MAIL_INBOX], "1");
		assert_string_equal(f.ids[MAIL_SENT], "3");
		assert_null(f.ids[MAIL_DRAFTS]);
		assert_null(f.ids[MAIL_JUNK]);
		if ((f.identity == NULL) != (cases[i].identity == NULL) ||
		    (f.identity && strcmp(f.identity, cases[i].identity) != 0))
			fail_msg("case %zu: %s", i, f.identity ? f.identity : "none");
	}
}

/* Lists */

static void a_page_and_its_cursor(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *query; /* of Email/query */
		size_t count;
		const char *next;
	} cases[] = {
		{ "\"ids\":[]", 0, NULL },
		{ "\"ids\":[\"a\"]", 1, NULL },
		{ "\"ids\":[\"a\",\"b\"]", 2, NULL },
		{ "\"ids\":[\"a\",\"b\",\"c\"]", 2, "b" },
		/* one that went in between is left out; one that is no text, too */
		{ "\"ids\":[\"gone\",\"b\",\"c\"]", 1, "b" },
		{ "\"ids\":[\"a\",7]", 1, NULL },
		/* a server that gives no more than one at a time */
		{ "\"ids\":[\"a\"],\"limit\":1,\"position\":0,\"total\":3", 1, "a" },
		{ "\"ids\":[\"a\"],\"limit\":1,\"position\":2,\"total\":3", 1, NULL },
		{ "\"ids\":[\"a\"],\"limit\":1", 1, NULL },
		{ "\"ids\":[\"a\"],\"limit\":3,\"position\":0,\"total\":3", 1, NULL },
		/* one that cannot count */
		{ "\"ids\":[\"a\"],\"limit\":1,\"position\":9223372036854775807,\"total\":3", 1,
		  NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct jmap_list l;
		const char *text = arena_printf(
			&d->arena,
			"[\"Email/query\",{%s},\"q\"],[\"Email/get\",{\"list\":[{\"id\":\"c\"},"
			"{\"id\":\"b\"},{\"id\":\"a\"},{},7]},\"g\"]",
			cases[i].query);
		assert_int_equal(jmap_parse_list(answer(d, text), 2, &d->arena, &l, &d->problem),
				 LAPSE_OK);
		assert_int_equal(l.count, cases[i].count);
		if ((l.next == NULL) != (cases[i].next == NULL) ||
		    (l.next && strcmp(l.next, cases[i].next) != 0))
			fail_msg("%s: next is %s", cases[i].query, l.next ? l.next : "none");
		if (l.count == 2) {
			assert_string_equal(l.mails[0].id, "a");
			assert_string_equal(l.mails[1].id, "b");
		}
	}
}

static void lists_that_make_no_sense(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *text;
		int err;
	} cases[] = {
		{ "", LAPSE_EUPSTREAM },
		{ "[\"Email/query\",{\"ids\":[]},\"q\"]", LAPSE_EUPSTREAM },
		{ "[\"Email/query\",{\"ids\":{}},\"q\"],[\"Email/get\",{\"list\":[]},\"g\"]",
		  LAPSE_EUPSTREAM },
		{ "[\"Email/query\",{\"ids\":[]},\"q\"],[\"Email/get\",{\"list\":null},\"g\"]",
		  LAPSE_EUPSTREAM },
		{ "[\"error\",{\"type\":\"anchorNotFound\"},\"q\"]", LAPSE_EINVAL },
		{ "[\"error\",{\"type\":\"serverFail\"},\"q\"]", LAPSE_EUPSTREAM },
	};
	struct jmap_list l;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (jmap_parse_list(answer(d, cases[i].text), 2, &d->arena, &l, &d->problem) !=
		    cases[i].err)
			fail_msg("%s", cases[i].text);
}

static void put_many(struct buf *b, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++) {
		buf_puts(b, i > 0 ? "," : "");
		buf_puts(b, what);
	}
}

/* Comparing all with all would take hours. */
static void a_list_that_is_far_too_long(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) text = { 0 };
	struct jmap_list l;

	buf_puts(&text, "[\"Email/query\",{\"ids\":[");
	put_many(&text, 100000, "\"a\"");
	buf_puts(&text, "]},\"q\"],[\"Email/get\",{\"list\":[");
	put_many(&text, 100000, "{\"id\":\"b\"}");
	buf_puts(&text, "]},\"g\"]");
	assert_int_equal(jmap_parse_list(answer(d, text.data), 100, &d->arena, &l, &d->problem),
			 LAPSE_EUPSTREAM);
}

/* A few bytes of answer must not become gigabytes here. */
static void a_part_that_is_named_again_and_again(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) text = { 0 };
	struct mail *m;

	buf_puts(&text,
		 "[\"Email/get\",{\"list\":[{\"id\":\"M\",\"bodyValues\":{\"1\":{\"value\":\"");
	for (int i = 0; i < 100000; i++)
		buf_putc(&text, 'x');
	buf_puts(&text, "\"}},\"textBody\":[");
	put_many(&text, 5000, "{\"partId\":\"1\",\"type\":\"text/plain\"}");
	buf_puts(&text, "]}]},\"g\"]");
	assert_int_equal(jmap_parse_get(answer(d, text.data), &d->arena, &m, &d->problem),
			 LAPSE_OK);
	assert_true(strlen(m->text) > 1000000 && strlen(m->text) <= JMAP_TEXT_MAX_BYTES);
	assert_true(m->truncated);
}

/* A sender can put NUL into a mail, and the server passes it on. */
static void a_mail_with_nul_in_it(void **state)
{
	struct desk *d = *state;
	struct mail *m;
	const json_t *json =
		answer(d, "[\"Email/get\",{\"list\":[{\"id\":\"M\",\"subject\":\"a\\u0000b\","
			  "\"preview\":\"\\u0000\",\"from\":[{\"email\":\"x\\u0000@y\"}],"
			  "\"textBody\":[{\"partId\":\"1\",\"type\":\"text/plain\"}],"
			  "\"bodyValues\":{\"1\":{\"value\":\"one\\u0000two\"}}}]},\"g\"]");

	assert_int_equal(jmap_parse_get(json, &d->arena, &m, &d->problem), LAPSE_OK);
	assert_string_equal(m->subject, "a b");
	assert_string_equal(m->preview, " ");
	assert_string_equal(m->from, "x @y");
	assert_string_equal(m->text, "one two");
}

static void a_list_is_asked_for(void **state)
{
	struct desk *d = *state;
	const struct jmap_session s = { .account = "acc" };
	struct mail_query q = { .limit = 20 };

	assert_int_equal(jmap_build_list(&d->out, &s, NULL, &q, &d->problem), LAPSE_OK);
	json_t *args = request(d, 0);
	assert_null(json_object_get(args, "filter"));
	assert_int_equal(json_integer_value(json_object_get(args, "limit")), 21);
	assert_int_equal(json_integer_value(json_object_get(args, "position")), 0);
	d->out.len = 0;
	q.after = "M1";
	assert_int_equal(jmap_build_list(&d->out, &s, "box", &q, &d->problem), LAPSE_OK);
	args = request(d, 0);
	assert_string_equal(string_at(args, "anchor"), "M1");
	assert_int_equal(json_integer_value(json_object_get(args, "anchorOffset")), 1);
	assert_string_equal(string_at(json_object_get(args, "filter"), "inMailbox"), "box");
	assert_null(json_object_get(args, "position"));
	q.after = "not one";
	assert_int_equal(jmap_build_list(&d->out, &s, "box", &q, &d->problem), LAPSE_EINVAL);
	assert_string_equal(d->problem.field, "after");
}

/* Sending */

static void a_mail_is_built(void **state)
{
	struct desk *d = *state;
	const struct jmap_session s = { .account = "acc", .submission = "sub" };
	const struct jmap_folders f = { .ids = { [MAIL_DRAFTS] = "dr", [MAIL_SENT] = "se" },
					.identity = "id" };
	static const char *const to[] = { "a@x.test", "\"odd\"@x.test" }, *const bcc[] = {
		"secret@x.test", "A@x.test"
	};
	const struct mail_draft m = { .to = { to, 2 },
				      .bcc = { bcc, 2 },
				      .subject = "line\nbreak \"quoted\"",
				      .text = "text" };

	jmap_build_send(&d->out, &s, &f, "me@x.test", &m);
	json_t *draft = json_object_get(json_object_get(request(d, 0), "create"), "d");
	assert_string_equal(string_at(draft, "subject"), m.subject);
	assert_null(json_object_get(draft, "bcc"));
	assert_null(json_object_get(draft, "htmlBody"));
	assert_true(json_is_true(json_object_get(json_object_get(draft, "mailboxIds"), "dr")));
	json_t *args = request(d, 1);
	assert_string_equal(string_at(args, "accountId"), "sub");
	json_t *submission = json_object_get(json_object_get(args, "create"), "s");
	json_t *rcpt = json_object_get(json_object_get(submission, "envelope"), "rcptTo");
	assert_int_equal(json_array_size(rcpt), 3);
	assert_string_equal(string_at(json_array_get(rcpt, 2), "email"), "secret@x.test");
	json_t *patch = json_object_get(json_object_get(args, "onSuccessUpdateEmail"), "#s");
	assert_int_equal(json_object_size(patch), 3);
	assert_true(json_is_null(json_object_get(patch, "mailboxIds/dr")));
	assert_true(json_is_true(json_object_get(patch, "mailboxIds/se")));
}

static void a_mailbox_without_drafts_sends_all_the_same(void **state)
{
	struct desk *d = *state;
	const struct jmap_session s = { .account = "acc" };
	const struct jmap_folders f = { .ids = { [MAIL_INBOX] = "in" }, .identity = "id" };
	const struct mail_draft m = { .html = "<p>" };

	jmap_build_send(&d->out, &s, &f, "me@x.test", &m);
	json_t *draft = json_object_get(json_object_get(request(d, 0), "create"), "d");
	assert_true(json_is_true(json_object_get(json_object_get(draft, "mailboxIds"), "in")));
	assert_null(json_object_get(draft, "textBody"));
	json_t *patch =
		json_object_get(json_object_get(request(d, 1), "onSuccessUpdateEmail"), "#s");
	assert_int_equal(json_object_size(patch), 1);
}

#define MADE "[\"Email/set\",{\"created\":{\"d\":{\"id\":\"M1\"}},\"notCreated\":null},\"e\"]"
#define THEN ",[\"Email/set\",{\"updated\":null},\"s\"]"
#define SUBMITTED(more)                                                                            \
	"[\"EmailSubmission/set\",{\"created\":{\"s\":{\"id\":\"S1\"" more "}}},\"s\"]"

static void what_became_of_a_mail(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *text;
		int err;
		const char *field, *email, *submission;
		bool discard, ask;
	} cases[] = {
		{ MADE "," SUBMITTED("") THEN, LAPSE_OK, "", "M1", "S1", false, true },
		{ MADE "," SUBMITTED(",\"undoStatus\":\"final\",\"deliveryStatus\":null"), LAPSE_OK,
		  "", "M1", "S1", false, false },
		{ MADE "," SUBMITTED(",\"deliveryStatus\":{\"a\":{\"delivered\":\"yes\"}}"),
		  LAPSE_OK, "", "M1", "S1", false, false },
		{ MADE "," SUBMITTED(",\"deliveryStatus\":{\"a\":{\"delivered\":\"no\"}}"),
		  LAPSE_EINVAL, "to", "M1", "S1", true, false },
		{ MADE "," SUBMITTED(",\"deliveryStatus\":{\"a\":{\"smtpReply\":\"550 no\"},"
				     "\"b\":{\"smtpReply\":\"250 ok\"}}"),
		  LAPSE_EINVAL, "to", "M1", "S1", false, false },
		{ MADE
		  ",[\"EmailSubmission/set\",{\"created\":null,\"notCreated\":{\"s\":"
		  "{\"type\":\"invalidRecipients\",\"invalidRecipients\":[\"a\"]}}},\"s\"]" THEN,
		  LAPSE_EINVAL, "to", "M1", NULL, true, false },
		{ MADE ",[\"EmailSubmission/set\",{\"notCreated\":{\"s\":{}}},\"s\"]",
		  LAPSE_EUPSTREAM, "", "M1", NULL, true, false },
		{ MADE ",[\"error\",{\"type\":\"forbidden\"},\"s\"]", LAPSE_EUPSTREAM, "", "M1",
		  NULL, true, false },
		/* nothing about the submission: it may have gone out, so its copy stays */
		{ MADE, LAPSE_EUPSTREAM, "", "M1", NULL, false, false },
		{ MADE THEN, LAPSE_EUPSTREAM, "", "M1", NULL, false, false },
		{ MADE ",[\"EmailSubmission/set\",{},\"s\"]", LAPSE_EUPSTREAM, "", "M1", NULL,
		  false, false },
		{ "[\"Email/set\",{\"notCreated\":{\"d\":{\"type\":\"invalidProperties\","
		  "\"properties\":[\"to\"]}}},\"e\"],[\"error\",{\"type\":\"x\"},\"s\"]",
		  LAPSE_EINVAL, "to", NULL, NULL, false, false },
		{ "[\"Email/set\",{\"notCreated\":{\"d\":{\"type\":\"invalidProperties\","
		  "\"properties\":[\"bodyStructure\"]}}},\"e\"]",
		  LAPSE_EUPSTREAM, "", NULL, NULL, false, false },
		{ "[\"Email/set\",{\"notCreated\":{\"d\":{\"type\":\"tooLarge\"}}},\"e\"]",
		  LAPSE_EINVAL, "body", NULL, NULL, false, false },
		{ "[\"Email/set\",{\"notCreated\":{\"d\":{\"type\":\"overQuota\"}}},\"e\"]",
		  LAPSE_EUPSTREAM, "", NULL, NULL, false, false },
		{ "[\"error\",{\"type\":\"accountNotFound\"},\"e\"]", LAPSE_EUPSTREAM, "", NULL,
		  NULL, false, false },
		{ "[\"Email/set\",{\"created\":{\"d\":{\"id\":\"../x\"}}},\"e\"],"
		  "[\"EmailSubmission/set\",{\"created\":{\"s\":{\"id\":\"S1\"}}},\"s\"]",
		  LAPSE_EUPSTREAM, "", NULL, "S1", false, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct jmap_sent s;
		d->problem = (struct problem){ 0 };
		int r = jmap_parse_send(answer(d, cases[i].text), &d->arena, &s, &d->problem);
		bool same_email = (s.email == NULL) == (cases[i].email == NULL);
		bool same_submission = (s.submission == NULL) == (cases[i].submission == NULL);
		if (r != cases[i].err || strcmp(d->problem.field, cases[i].field) != 0 ||
		    !same_email || !same_submission || s.discard != cases[i].discard ||
		    s.ask != cases[i].ask)
			fail_msg("case %zu: %d '%s' %s %s %d %d", i, r, d->problem.field,
				 s.email ? s.email : "-", s.submission ? s.submission : "-",
				 s.discard, s.ask);
	}
}

static void deliveries_that_say_nothing_are_fine(void **state)
{
	struct desk *d = *state;
	static const char *const cases[] = {
		"",
		"[\"error\",{\"type\":\"x\"},\"d\"]",
		"[\"EmailSubmission/get\",{},\"d\"]",
		"[\"EmailSubmission/get\",{\"list\":[]},\"d\"]",
		"[\"EmailSubmission/get\",{\"list\":[{\"deliveryStatus\":null}]},\"d\"]",
		"[\"EmailSubmission/get\",{\"list\":[{\"deliveryStatus\":[1]}]},\"d\"]",
		"[\"EmailSubmission/get\",{\"list\":[{\"deliveryStatus\":{\"a\":7}}]},\"d\"]",
	};
	struct jmap_sent s = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(jmap_parse_delivery(answer(d, cases[i]), &s, &d->problem),
				 LAPSE_OK);
	assert_int_equal(
		jmap_parse_delivery(answer(d, "[\"EmailSubmission/get\",{\"list\":[{"
					      "\"deliveryStatus\":{\"a@x\":{\"smtpReply\":\"5\"}}"
					      "}]},\"d\"]"),
				    &s, &d->problem),
		LAPSE_EINVAL);
	assert_true(s.discard);
}

/* Principals */

static void what_principals_answer(void **state)
{
	struct desk *d = *state;
	static const struct {
		int status;
		const char *text;
		enum rest_verdict verdict;
		const char *account;
	} cases[] = {
		{ 200, "{\"data\":50}", REST_DONE, "50" },
		{ 200, "{\"data\":null}", REST_DONE, "" },
		{ 200, "{\"data\":{\"items\":[],\"total\":0}}", REST_DONE, "" },
		{ 200, "{\"error\":\"notFound\",\"item\":\"x\"}", REST_NOT_FOUND, "" },
		{ 200, "{\"error\":\"fieldAlreadyExists\",\"field\":\"name\"}", REST_EXISTS, "" },
		{ 200, "{\"error\":\"unsupported\"}", REST_ERROR, "" },
		{ 200, "{\"error\":\"other\",\"data\":1}", REST_ERROR, "1" },
		{ 200, "{\"error\":7,\"data\":1}", REST_BROKEN, "1" },
		{ 200, "{\"error\":\"\"}", REST_BROKEN, "" },
		{ 200, "{}", REST_BROKEN, "" },
		{ 200, "[]", REST_BROKEN, "" },
		{ 200, "", REST_BROKEN, "" },
		{ 200, "<html>", REST_BROKEN, "" },
		{ 404, "{\"error\":\"notFound\"}", REST_NO_ROUTE, "" },
		{ 404, "", REST_NO_ROUTE, "" },
		{ 401, "", REST_REFUSED, "" },
		{ 403, "", REST_REFUSED, "" },
		{ 429, "", REST_BUSY, "" },
		{ 400, "{\"data\":1}", REST_ERROR, "" },
		{ 500, "{\"data\":1}", REST_BROKEN, "" },
		{ 502, "", REST_BROKEN, "" },
		{ 201, "{\"data\":1}", REST_BROKEN, "" },
		{ 302, "", REST_BROKEN, "" },
		{ 0, "", REST_BROKEN, "" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rest_answer a;
		rest_judge(cases[i].status, cases[i].text, strlen(cases[i].text), &d->arena, &a);
		if (a.verdict != cases[i].verdict || strcmp(a.account, cases[i].account) != 0)
			fail_msg("%d %s gave %d '%s'", cases[i].status, cases[i].text,
				 (int)a.verdict, a.account);
	}
}

/* The registry */

#define DESTROYED(args) "[\"x:Account/set\",{" args "},\"s\"]"

static void what_counts_as_deleted(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *text;
		int err;
	} cases[] = {
		{ DESTROYED("\"destroyed\":[\"b\"]"), LAPSE_OK },
		{ DESTROYED("\"destroyed\":[7,\"a\",\"b\"]"), LAPSE_OK },
		{ DESTROYED("\"notDestroyed\":{\"b\":{\"type\":\"notFound\"}}"), LAPSE_OK },
		{ DESTROYED("\"notDestroyed\":{\"a\":{\"type\":\"notFound\"}}"), LAPSE_EUPSTREAM },
		{ DESTROYED("\"notDestroyed\":{\"b\":{\"type\":\"forbidden\"}}"), LAPSE_EUPSTREAM },
		{ DESTROYED("\"notDestroyed\":{\"b\":{}}"), LAPSE_EUPSTREAM },
		{ DESTROYED("\"destroyed\":[\"a\"]"), LAPSE_EUPSTREAM },
		{ DESTROYED("\"destroyed\":\"b\""), LAPSE_EUPSTREAM },
		{ DESTROYED(""), LAPSE_EUPSTREAM },
		{ "[\"error\",{\"type\":\"notFound\"},\"s\"]", LAPSE_EUPSTREAM },
		{ "", LAPSE_EUPSTREAM },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (registry_parse_destroy(answer(d, cases[i].text), "b", &d->problem) !=
		    cases[i].err)
			fail_msg("%s", cases[i].text);
}

#define FOUND(query, list)                                                                         \
	"[\"x:Account/query\",{" query "},\"q\"],[\"x:Account/get\",{\"list\":" list "},\"g\"]"
#define OURS                                                                                       \
	"{\"id\":\"b\",\"@type\":\"User\",\"emailAddress\":\"A@x.test\",\"description\":\"lapse "  \
	"1\"}"
#define TAKEN                                                                                      \
	"{\"id\":\"b\",\"@type\":\"User\",\"emailAddress\":\"A@x.test\",\"description\":"          \
	"\"Alice\"}"
#define THEIRS "{\"id\":\"c\",\"@type\":\"User\",\"emailAddress\":\"aa@x.test\"}"

/* A server counts what it was asked for: with as many as the limit there may be more. */
static void a_full_list_of_accounts_is_not_all_of_them(void **state)
{
	struct desk *d = *state;
	struct buf CLEANUP(buf_done) text = { 0 };
	const char *id = NULL;

	buf_puts(&text, "[\"x:Account/query\",{\"total\":100,\"ids\":[");
	put_many(&text, 100, "\"c\"");
	buf_puts(&text, "]},\"q\"],[\"x:Account/get\",{\"list\":[");
	put_many(&text, 100, THEIRS);
	buf_puts(&text, "]},\"g\"]");
	assert_int_equal(registry_parse_found(answer(d, text.data), true, "a@x.test", NULL,
					      &d->arena, &id, &d->problem),
			 LAPSE_EUPSTREAM);
}

static void who_is_found(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *text;
		int err;
		const char *id;
	} cases[] = {
		{ FOUND("\"ids\":[\"b\"],\"total\":1", "[" OURS "]"), LAPSE_OK, "b" },
		{ FOUND("\"ids\":[\"c\",\"b\"],\"total\":9", "[" THEIRS "," OURS "]"), LAPSE_OK,
		  "b" },
		{ FOUND("\"ids\":[\"c\"],\"total\":1", "[" THEIRS "]"), LAPSE_OK, NULL },
		{ FOUND("\"ids\":[\"b\"],\"total\":1", "[" TAKEN "]"), LAPSE_EUPSTREAM, NULL },
		{ FOUND("\"ids\":[]", "[]"), LAPSE_OK, NULL },
		{ FOUND("\"ids\":[\"c\"],\"total\":2", "[" THEIRS "]"), LAPSE_EUPSTREAM, NULL },
		{ FOUND("", "[]"), LAPSE_EUPSTREAM, NULL },
		{ FOUND("\"ids\":[\"b\"],\"total\":1", "[]"), LAPSE_EUPSTREAM, NULL },
		{ FOUND("\"ids\":[],\"total\":\"0\"", "[]"), LAPSE_EUPSTREAM, NULL },
		{ FOUND("\"ids\":[\"b\"]", "[{\"id\":\"b\",\"emailAddress\":\"a@x.test\"}]"),
		  LAPSE_EUPSTREAM, NULL },
		{ FOUND("\"ids\":[]", "null"), LAPSE_EUPSTREAM, NULL },
		{ FOUND("\"ids\":[\"b\"]", "[{\"id\":\"b\",\"@type\":\"User\"}]"), LAPSE_EUPSTREAM,
		  NULL },
		{ FOUND("\"ids\":[\"b\"]", "[{\"@type\":\"User\",\"emailAddress\":\"a@x.test\"}]"),
		  LAPSE_EUPSTREAM, NULL },
		{ FOUND("\"ids\":[\"b\"]",
			"[{\"id\":\"b\",\"@type\":\"Group\",\"emailAddress\":\"a@x.test\"}]"),
		  LAPSE_OK, NULL },
		{ "[\"error\",{\"type\":\"forbidden\"},\"q\"]", LAPSE_EUPSTREAM, NULL },
		{ "[\"x:Account/query\",{\"ids\":[]},\"q\"]", LAPSE_EUPSTREAM, NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *id = NULL;
		int r = registry_parse_found(answer(d, cases[i].text), true, "a@x.test", "lapse 1",
					     &d->arena, &id, &d->problem);
		if (r != cases[i].err || (id == NULL) != (cases[i].id == NULL) ||
		    (id && strcmp(id, cases[i].id) != 0))
			fail_msg("%s gave %d %s", cases[i].text, r, id ? id : "nobody");
	}
}

static void what_counts_as_created(void **state)
{
	struct desk *d = *state;
	static const struct {
		const char *text;
		int err;
		bool definite;
	} cases[] = {
		{ "[\"x:Account/set\",{\"created\":{\"m\":{\"id\":\"b\"}}},\"s\"]", LAPSE_OK,
		  false },
		{ "[\"x:Account/set\",{\"notCreated\":{\"m\":{\"type\":\"primaryKeyViolation\"}}},"
		  "\"s\"]",
		  LAPSE_ECONFLICT, true },
		{ "[\"x:Account/set\",{\"notCreated\":{\"m\":{\"type\":\"invalidProperties\"}}},"
		  "\"s\"]",
		  LAPSE_EUPSTREAM, true },
		{ "[\"x:Account/set\",{\"created\":{\"m\":{\"id\":\"a/b\"}}},\"s\"]",
		  LAPSE_EUPSTREAM, false },
		{ "[\"x:Account/set\",{\"created\":{\"m\":null}},\"s\"]", LAPSE_EUPSTREAM, false },
		{ "[\"x:Account/set\",{},\"s\"]", LAPSE_EUPSTREAM, false },
		{ "[\"error\",{\"type\":\"forbidden\"},\"s\"]", LAPSE_EUPSTREAM, true },
		{ "[\"error\",{\"type\":\"serverFail\"},\"s\"]", LAPSE_EUPSTREAM, false },
		{ "[\"error\",{\"type\":\"serverPartialFail\"},\"s\"]", LAPSE_EUPSTREAM, false },
		{ "", LAPSE_EUPSTREAM, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *id = NULL;
		bool definite = false;
		int r = registry_parse_create(answer(d, cases[i].text), &d->arena, &id, &definite,
					      &d->problem);
		if (r != cases[i].err || definite != cases[i].definite || (r == LAPSE_OK) != !!id)
			fail_msg("%s gave %d %d", cases[i].text, r, definite);
	}
}

static void addresses_split_at_the_last_at(void **state)
{
	struct desk *d = *state;
	const char *local, *domain;

	assert_true(address_split("\"a@b\"@x.test", &d->arena, &local, &domain));
	assert_string_equal(local, "\"a@b\"");
	assert_string_equal(domain, "x.test");
	assert_false(address_split("a", &d->arena, &local, &domain));
	assert_false(address_split("@x", &d->arena, &local, &domain));
	assert_false(address_split("a@", &d->arena, &local, &domain));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(paths_never_leave_the_host),
		TEST(ids_are_checked),
		TEST(sessions),
		TEST(answers_are_found_by_name_and_id),
		TEST(folders_and_identities),
		TEST(a_page_and_its_cursor),
		TEST(lists_that_make_no_sense),
		TEST(a_list_that_is_far_too_long),
		TEST(a_part_that_is_named_again_and_again),
		TEST(a_mail_with_nul_in_it),
		TEST(a_list_is_asked_for),
		TEST(a_mail_is_built),
		TEST(a_mailbox_without_drafts_sends_all_the_same),
		TEST(what_became_of_a_mail),
		TEST(deliveries_that_say_nothing_are_fine),
		TEST(what_principals_answer),
		TEST(what_counts_as_deleted),
		TEST(who_is_found),
		TEST(a_full_list_of_accounts_is_not_all_of_them),
		TEST(what_counts_as_created),
		TEST(addresses_split_at_the_last_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
