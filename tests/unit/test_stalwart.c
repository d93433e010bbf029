/* SPDX-License-Identifier: Apache-2.0 */
/* The conversations with a mail server, question by question, with a fetcher that follows a script:
 * what is asked, in which order, as whom, and what each outcome makes of the operation. */
#include <stdio.h>
#include <string.h>

#include "base/secret.h"
#include "provider/open.h"
#include "unit.h"

#define ORIGIN "https://mail.test"
#define ADMIN_AUTH "Basic YWRtaW46cHc="       /* admin:pw */
#define OWN_AUTH "Basic YUB4LnRlc3Q6c2VjcmV0" /* a@x.test:secret */

/* One question that is expected, and what comes back. A status of 0: `err`, and whether the
 * question may have arrived. */
struct line {
	const char *method, *path;
	const char *holds; /* in the body; NULL = there is no body */
	int status;
	const char *answer;
	int err;
	bool sent;
	const char *location;
};

struct desk {
	struct fetcher fetcher;
	struct fake_clock time;
	struct settings settings;
	struct provider *provider;
	struct problem problem;
	struct fetch *asked; /* and not answered yet */
	const struct line *next;
	lapse_ms took_ms; /* by every answer */
	lapse_ms last_timeout_ms;
	struct provider_op op;
	bool done, in_start;
};

static void fake_start(struct fetcher *fetcher, struct fetch *f)
{
	struct desk *d = CONTAINER_OF(fetcher, struct desk, fetcher);

	assert_null(d->asked);
	f->state = d;
	d->asked = f;
	d->last_timeout_ms = f->timeout_ms;
}

static void fake_cancel(struct fetcher *fetcher, struct fetch *f)
{
	struct desk *d = CONTAINER_OF(fetcher, struct desk, fetcher);

	assert_ptr_equal(d->asked, f);
	d->asked = NULL;
	f->err = LAPSE_EUNAVAILABLE;
	f->sent = true;
	f->done(f);
}

static int setup(void **state)
{
	struct desk *d = mem_zalloc(1, sizeof(*d));

	d->fetcher = (struct fetcher){ fake_start, fake_cancel };
	fake_clock_init(&d->time);
	settings_init(&d->settings);
	settings_set(&d->settings, "mailbox_provider", "stalwart", &d->problem);
	settings_set(&d->settings, "stalwart_url", ORIGIN "/", &d->problem);
	settings_set(&d->settings, "stalwart_credentials", "admin:pw", &d->problem);
	*state = d;
	return provider_open(&d->settings, NULL, &d->fetcher, &d->time.clock, &d->provider,
			     &d->problem);
}

static int teardown(void **state)
{
	struct desk *d = *state;

	provider_op_done(&d->op);
	provider_free(d->provider);
	settings_done(&d->settings);
	free(d);
	return 0;
}

static void over(struct provider_op *op)
{
	struct desk *d = op->arg;

	assert_false(d->in_start);
	assert_false(d->done);
	d->done = true;
}

static void begin(struct desk *d, enum provider_verb verb, const char *account)
{
	static const char *const to[] = { "b@x.test" };
	static const struct mail_draft draft = { .to = { to, 1 }, .subject = "s", .text = "t" };

	provider_op_done(&d->op);
	d->op = (struct provider_op){ .who = { .address = "a@x.test",
					       .name = "a@x.test",
					       .account = account,
					       .secret = "secret" },
				      .query = { .folder = MAIL_ALL, .limit = 20 },
				      .mail_id = "M1",
				      .draft = &draft,
				      .done = over,
				      .arg = d };
	provider_op_init(&d->op, verb);
	d->done = false;
	d->in_start = true;
	d->provider->start(d->provider, &d->op);
	d->in_start = false;
}

static void check_question(const struct fetch *f, const struct line *l)
{
	char url[600];

	snprintf(url, sizeof(url), ORIGIN "%s", l->path);
	if (strcmp(f->method, l->method) != 0 || strcmp(f->url, url) != 0)
		fail_msg("asked %s %s, expected %s %s", f->method, f->url, l->method, l->path);
	if (l->holds ? !f->body || !strstr(f->body, l->holds) : f->body != NULL)
		fail_msg("%s: the body is %s, expected %s", l->path, f->body ? f->body : "none",
			 l->holds ? l->holds : "none");
	bool own = strcmp(l->path, "/jmap") != 0 && strncmp(l->path, "/api/principal", 14) != 0;
	assert_string_equal(f->authorization, own ? OWN_AUTH : ADMIN_AUTH);
	assert_true(f->timeout_ms > 0 && f->answer_max_bytes > 0);
}

/* Answers what is asked by the lines, up to the one without a method. */
static void talk(struct desk *d, const struct line *lines)
{
	for (; lines->method; lines++) {
		struct fetch *f = d->asked;
		if (!f)
			fail_msg("nothing was asked, expected %s %s", lines->method, lines->path);
		check_question(f, lines);
		d->asked = NULL;
		fake_clock_advance(&d->time, d->took_ms);
		f->status = lines->status;
		f->err = lines->status ? LAPSE_OK : lines->err;
		f->sent = lines->status || lines->sent;
		snprintf(f->why, sizeof(f->why), "why");
		snprintf(f->location, sizeof(f->location), "%s",
			 lines->location ? lines->location : "");
		if (lines->answer)
			buf_puts(&f->answer, lines->answer);
		f->done(f);
	}
	if (d->asked)
		fail_msg("one question too many: %s %s %s", d->asked->method, d->asked->url,
			 d->asked->body ? d->asked->body : "");
	assert_true(d->done);
}

#define ANSWER(m, p, h, s, a)                                                                      \
	{                                                                                          \
		.method = m, .path = p, .holds = h, .status = s, .answer = a                       \
	}
#define LOST(m, p, h, e, arrived)                                                                  \
	{                                                                                          \
		.method = m, .path = p, .holds = h, .err = e, .sent = arrived                      \
	}
#define MOVED(p, s, to)                                                                            \
	{                                                                                          \
		.method = "GET", .path = p, .status = s, .location = to                            \
	}

#define PROBE "/api/principal?types=individual&limit=1"
#define IS_REST ANSWER("GET", PROBE, NULL, 200, "{\"data\":{\"items\":[],\"total\":0}}")
#define REST_GONE                                                                                  \
	ANSWER("GET", "/api/principal/a%40x.test", NULL, 200,                                      \
	       "{\"error\":\"notFound\",\"item\":\"a@x.test\"}")
#define NOT_REST ANSWER("GET", PROBE, NULL, 404, "")
#define DOMAIN(list)                                                                               \
	ANSWER("POST", "/jmap", "x:Domain/query", 200,                                             \
	       "{\"methodResponses\":[[\"x:Domain/query\",{\"ids\":[]},\"q\"],"                    \
	       "[\"x:Domain/get\",{\"list\":[" list "]},\"g\"]]}")
#define OUR_DOMAIN DOMAIN("{\"id\":\"d1\",\"name\":\"X.test\"}")
#define ACCOUNT(list)                                                                              \
	ANSWER("POST", "/jmap", "x:Account/get", 200,                                              \
	       "{\"methodResponses\":[[\"x:Account/query\",{\"ids\":[],\"total\":0},"              \
	       "\"q\"],[\"x:Account/get\",{\"list\":[" list "]},\"g\"]]}")
#define OURS "{\"id\":\"u1\",\"@type\":\"User\",\"emailAddress\":\"a@x.test\"}"
#define MARKED                                                                                     \
	"{\"id\":\"u1\",\"@type\":\"User\",\"emailAddress\":\"a@x.test\","                         \
	"\"description\":\"lapse 0000000000000000\"}"
#define PRINCIPAL(description)                                                                     \
	ANSWER("GET", "/api/principal/a%40x.test", NULL, 200,                                      \
	       "{\"data\":{\"name\":\"a@x.test\",\"description\":" description "}}")
#define THEIRS "{\"id\":\"u1\",\"@type\":\"User\",\"emailAddress\":\"z@x.test\"}"
#define SET(holds, args)                                                                           \
	ANSWER("POST", "/jmap", holds, 200,                                                        \
	       "{\"methodResponses\":[[\"x:Account/set\",{" args "},\"s\"]]}")
#define DESTROYED SET("\"destroy\":[\"u1\"]", "\"destroyed\":[\"u1\"]")
#define END                                                                                        \
	{                                                                                          \
		0                                                                                  \
	}

static const struct {
	const char *what;
	enum provider_verb verb;
	const char *account; /* of the mailbox */
	struct line lines[8];
	int err;
	bool unknown;
	const char *made;
} ACCOUNT_TALKS[] = {
	{ "create, principals",
	  PROVIDER_CREATE,
	  "",
	  { IS_REST, ANSWER("POST", "/api/principal", "\"roles\":[\"user\"]", 200, "{\"data\":50}"),
	    END },
	  LAPSE_OK,
	  false,
	  "rest:50" },
	{ "create, registry",
	  PROVIDER_CREATE,
	  "",
	  { NOT_REST, OUR_DOMAIN, SET("\"domainId\":\"d1\"", "\"created\":{\"m\":{\"id\":\"u1\"}}"),
	    END },
	  LAPSE_OK,
	  false,
	  "jmap:u1" },
	{ "create, unknown domain",
	  PROVIDER_CREATE,
	  "",
	  { NOT_REST, DOMAIN("{\"id\":\"d2\",\"name\":\"my-x.test\"}"), END },
	  LAPSE_EINVAL,
	  false,
	  NULL },
	{ "create, lost before it arrived",
	  PROVIDER_CREATE,
	  "",
	  { IS_REST, LOST("POST", "/api/principal", "a@x.test", LAPSE_EUPSTREAM, false), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "create, lost",
	  PROVIDER_CREATE,
	  "",
	  { IS_REST, LOST("POST", "/api/principal", "a@x.test", LAPSE_EUPSTREAM, true), END },
	  LAPSE_EUPSTREAM,
	  true,
	  NULL },
	{ "create, too late",
	  PROVIDER_CREATE,
	  "",
	  { NOT_REST, OUR_DOMAIN, LOST("POST", "/jmap", "\"create\"", LAPSE_ETIMEOUT, true), END },
	  LAPSE_EUPSTREAM,
	  true,
	  NULL },
	{ "create, the probe is lost",
	  PROVIDER_CREATE,
	  "",
	  { LOST("GET", PROBE, NULL, LAPSE_EUPSTREAM, true), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "create, the domain is lost",
	  PROVIDER_CREATE,
	  "",
	  { NOT_REST, LOST("POST", "/jmap", "x:Domain", LAPSE_ETIMEOUT, true), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "create, 502",
	  PROVIDER_CREATE,
	  "",
	  { NOT_REST, OUR_DOMAIN, ANSWER("POST", "/jmap", "\"create\"", 502, ""), END },
	  LAPSE_EUPSTREAM,
	  true,
	  NULL },
	{ "create, 413",
	  PROVIDER_CREATE,
	  "",
	  { NOT_REST, OUR_DOMAIN, ANSWER("POST", "/jmap", "\"create\"", 413, ""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "create, 404 after the probe",
	  PROVIDER_CREATE,
	  "",
	  { IS_REST, ANSWER("POST", "/api/principal", "a@x.test", 404, ""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "the probe is refused",
	  PROVIDER_CREATE,
	  "",
	  { ANSWER("GET", PROBE, NULL, 401, ""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "the probe finds a web page",
	  PROVIDER_DELETE,
	  "",
	  { ANSWER("GET", PROBE, NULL, 200, "<html>"), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "the probe finds an error",
	  PROVIDER_DELETE,
	  "",
	  { ANSWER("GET", PROBE, NULL, 200, "{\"error\":\"notFound\"}"), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "neither generation",
	  PROVIDER_DELETE,
	  "",
	  { NOT_REST, ANSWER("POST", "/jmap", "x:Domain", 404, ""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "no registry",
	  PROVIDER_DELETE,
	  "",
	  { NOT_REST, ANSWER("POST", "/jmap", "x:Domain", 400, ""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "a registry we may not read",
	  PROVIDER_DELETE,
	  "",
	  { NOT_REST,
	    ANSWER("POST", "/jmap", "x:Domain", 200,
		   "{\"methodResponses\":[[\"error\",{\"type\":\"forbidden\"},\"q\"]]}"),
	    END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "delete, principals",
	  PROVIDER_DELETE,
	  "rest:50",
	  { IS_REST, ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 200, "{\"data\":null}"),
	    END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete, 404 after the probe",
	  PROVIDER_DELETE,
	  "rest:50",
	  { IS_REST, ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 404, ""), REST_GONE, END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete, 404 and no such route for the account either",
	  PROVIDER_DELETE,
	  "rest:50",
	  { IS_REST, ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 404, ""),
	    ANSWER("GET", "/api/principal/a%40x.test", NULL, 404, ""), END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete, 404 while the account is there",
	  PROVIDER_DELETE,
	  "rest:50",
	  { IS_REST, ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 404, ""),
	    ANSWER("GET", "/api/principal/a%40x.test", NULL, 200,
		   "{\"data\":{\"name\":\"a@x.test\"}}"),
	    END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "delete, 404 and then nothing that can be believed",
	  PROVIDER_DELETE,
	  "rest:50",
	  { IS_REST, ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 404, ""),
	    ANSWER("GET", "/api/principal/a%40x.test", NULL, 502, ""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "delete, said to be taken",
	  PROVIDER_DELETE,
	  "rest:50",
	  { IS_REST,
	    ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 200,
		   "{\"error\":\"fieldAlreadyExists\"}"),
	    END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "delete by id",
	  PROVIDER_DELETE,
	  "jmap:u1",
	  { NOT_REST, OUR_DOMAIN, ACCOUNT(OURS), DESTROYED, END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete what may have been made, principals",
	  PROVIDER_DELETE,
	  "",
	  { IS_REST, PRINCIPAL("\"lapse 0000000000000000\""),
	    ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 200, "{\"data\":null}"), END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete what somebody else made, principals",
	  PROVIDER_DELETE,
	  "",
	  { IS_REST, PRINCIPAL("\"Alice\""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "delete what somebody else made, registry",
	  PROVIDER_DELETE,
	  "",
	  { NOT_REST, OUR_DOMAIN, ACCOUNT(OURS), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
	{ "delete by address",
	  PROVIDER_DELETE,
	  "",
	  { NOT_REST, OUR_DOMAIN, ACCOUNT(MARKED), DESTROYED, END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete, the id is of the other generation",
	  PROVIDER_DELETE,
	  "rest:u1",
	  { NOT_REST, OUR_DOMAIN, ACCOUNT(OURS), DESTROYED, END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete, the id is another's",
	  PROVIDER_DELETE,
	  "jmap:u1",
	  { NOT_REST, OUR_DOMAIN, ACCOUNT(THEIRS), ACCOUNT(""), END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete, gone in between",
	  PROVIDER_DELETE,
	  "jmap:u1",
	  { NOT_REST, OUR_DOMAIN, ACCOUNT(OURS),
	    SET("destroy", "\"notDestroyed\":{\"u1\":{\"type\":\"notFound\"}}"), END },
	  LAPSE_OK,
	  false,
	  NULL },
	{ "delete, no such domain",
	  PROVIDER_DELETE,
	  "",
	  { NOT_REST, DOMAIN(""), END },
	  LAPSE_EUPSTREAM,
	  false,
	  NULL },
};

static void accounts(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(ACCOUNT_TALKS); i++) {
		setup(state);
		struct desk *d = *state;
		print_message("  %s\n", ACCOUNT_TALKS[i].what);
		begin(d, ACCOUNT_TALKS[i].verb, ACCOUNT_TALKS[i].account);
		talk(d, ACCOUNT_TALKS[i].lines);
		assert_int_equal(d->op.err, ACCOUNT_TALKS[i].err);
		assert_int_equal(d->op.unknown, ACCOUNT_TALKS[i].unknown);
		if (ACCOUNT_TALKS[i].made)
			assert_string_equal(d->op.account, ACCOUNT_TALKS[i].made);
		else
			assert_null(d->op.account);
		assert_int_equal(d->op.problem.message[0] != '\0', d->op.err != LAPSE_OK);
		if (i + 1 < ARRAY_LEN(ACCOUNT_TALKS))
			teardown(state);
	}
}

/* The generation is remembered, and forgotten by a failure and by a 404. */
static void generations(void **state)
{
	struct desk *d = *state;
	static const struct line delete_ok =
		ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 200, "{\"data\":null}");
	static const struct line delete_404 =
		ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 404, "");
	static const struct line delete_502 =
		ANSWER("DELETE", "/api/principal/a%40x.test", NULL, 502, "");

	begin(d, PROVIDER_DELETE, "rest:50");
	talk(d, (const struct line[]){ IS_REST, delete_ok, END });
	begin(d, PROVIDER_DELETE, "rest:50");
	talk(d, (const struct line[]){ delete_ok, END });
	begin(d, PROVIDER_DELETE, "rest:50");
	talk(d, (const struct line[]){ delete_404, IS_REST, REST_GONE, END });
	assert_int_equal(d->op.err, LAPSE_OK);
	begin(d, PROVIDER_DELETE, "rest:50");
	talk(d, (const struct line[]){ delete_404, ANSWER("GET", PROBE, NULL, 502, ""), END });
	assert_int_equal(d->op.err, LAPSE_EUPSTREAM);
	begin(d, PROVIDER_DELETE, "rest:50");
	talk(d, (const struct line[]){ IS_REST, delete_502, END });
	begin(d, PROVIDER_DELETE, "rest:50");
	talk(d, (const struct line[]){ IS_REST, delete_ok, END });
	begin(d, PROVIDER_DELETE, "rest:50"); /* replaced by a newer one */
	talk(d, (const struct line[]){ delete_404, NOT_REST, OUR_DOMAIN, ACCOUNT(OURS), DESTROYED,
				       END });
	assert_int_equal(d->op.err, LAPSE_OK);
	begin(d, PROVIDER_DELETE, "jmap:u1");
	talk(d, (const struct line[]){ ACCOUNT(OURS), DESTROYED, END });
	begin(d, PROVIDER_CREATE, "");
	talk(d, (const struct line[]){ OUR_DOMAIN,
				       SET("create", "\"created\":{\"m\":{\"id\":\"u2\"}}"), END });
	begin(d, PROVIDER_CREATE, "");
	talk(d, (const struct line[]){ OUR_DOMAIN,
				       SET("create", "\"notCreated\":{\"m\":{\"type\":"
						     "\"primaryKeyViolation\"}}"),
				       END });
	assert_int_equal(d->op.err, LAPSE_ECONFLICT);
}

#define SESSION                                                                                    \
	"{\"apiUrl\":\"https://public.test/api/"                                                   \
	"\",\"primaryAccounts\":{\"urn:ietf:params:jmap:mail\":\"m\"}}"
#define WELL_KNOWN "/.well-known/jmap"
#define FOLDERS                                                                                    \
	ANSWER("POST", "/api/", "Mailbox/get", 200,                                                \
	       "{\"methodResponses\":[[\"Mailbox/get\",{\"list\":[{\"id\":\"dr\","                 \
	       "\"role\":\"drafts\"}]},\"m\"],[\"Identity/get\",{\"list\":[{\"id\":"               \
	       "\"i\",\"email\":\"a@x.test\"}]},\"i\"]]}")
#define SENT(submission)                                                                           \
	ANSWER("POST", "/api/", "EmailSubmission/set", 200,                                        \
	       "{\"methodResponses\":[[\"Email/set\",{\"created\":{\"d\":{\"id\":"                 \
	       "\"M1\"}}},\"e\"],[\"EmailSubmission/set\",{" submission "},\"s\"]]}")
#define DISCARD(status) ANSWER("POST", "/api/", "\"destroy\":[\"M1\"]", status, "")
#define REFUSED                                                                                    \
	SENT("\"notCreated\":{\"s\":{\"type\":\"invalidRecipients\",\"invalidRecipients\":["       \
	     "\"b@x.test\"]}}")

static const struct {
	const char *what;
	enum provider_verb verb;
	struct line lines[8];
	int err;
	const char *says;
} MAIL_TALKS[] = {
	{ "a list",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 307, ORIGIN "/s?x=1"), ANSWER("GET", "/s?x=1", NULL, 200, SESSION),
	    ANSWER("POST", "/api/", "Email/query", 200,
		   "{\"methodResponses\":[[\"Email/query\",{\"ids\":[]},\"q\"],"
		   "[\"Email/get\",{\"list\":[]},\"g\"]]}"),
	    END },
	  LAPSE_OK,
	  "" },
	{ "no redirect at all",
	  PROVIDER_GET,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION),
	    ANSWER("POST", "/api/", "Email/get", 200,
		   "{\"methodResponses\":[[\"Email/get\",{\"list\":[]},\"g\"]]}"),
	    END },
	  LAPSE_ENOTFOUND,
	  "no such mail" },
	{ "another host",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 307, "https://evil.test/s"), END },
	  LAPSE_EUPSTREAM,
	  "another server" },
	{ "a host that begins like ours",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 307, ORIGIN ".evil.test/s"), END },
	  LAPSE_EUPSTREAM,
	  "another server" },
	{ "our host as a user",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 307, ORIGIN "@evil.test/s"), END },
	  LAPSE_EUPSTREAM,
	  "another server" },
	{ "our host at another port",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 307, ORIGIN ":8443/s"), END },
	  LAPSE_EUPSTREAM,
	  "another server" },
	{ "in the clear",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 307, "http://mail.test/s"), END },
	  LAPSE_EUPSTREAM,
	  "another server" },
	{ "a redirect to nowhere",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 302, ""), END },
	  LAPSE_EUPSTREAM,
	  "redirect" },
	{ "two redirects",
	  PROVIDER_LIST,
	  { MOVED(WELL_KNOWN, 307, ORIGIN "/s"), MOVED("/s", 307, ORIGIN "/s"), END },
	  LAPSE_EUPSTREAM,
	  "redirect" },
	{ "a wrong password",
	  PROVIDER_LIST,
	  { ANSWER("GET", WELL_KNOWN, NULL, 401, "<html>secret"), END },
	  LAPSE_EUPSTREAM,
	  "password" },
	{ "a mail that went",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS,
	    SENT("\"created\":{\"s\":{\"id\":\"S1\",\"deliveryStatus\":null}}"), END },
	  LAPSE_OK,
	  "" },
	{ "a mail that was taken",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS,
	    SENT("\"created\":{\"s\":{\"id\":\"S1\"}}"),
	    LOST("POST", "/api/", "EmailSubmission/get", LAPSE_EUPSTREAM, true), END },
	  LAPSE_OK,
	  "" },
	{ "a mail nobody got",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS,
	    SENT("\"created\":{\"s\":{\"id\":\"S1\"}}"),
	    ANSWER("POST", "/api/", "EmailSubmission/get", 200,
		   "{\"methodResponses\":[[\"EmailSubmission/get\",{\"list\":[{"
		   "\"deliveryStatus\":{\"b@x.test\":{\"smtpReply\":\"550 "
		   "no\"}}}]},\"d\"]]}"),
	    DISCARD(200), END },
	  LAPSE_EINVAL,
	  "b@x.test" },
	{ "a refused mail",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS, REFUSED, DISCARD(200), END },
	  LAPSE_EINVAL,
	  "b@x.test" },
	{ "a refused mail whose draft stays",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS, REFUSED, DISCARD(502), END },
	  LAPSE_EINVAL,
	  "b@x.test" },
	{ "a mail that may have gone",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS,
	    LOST("POST", "/api/", "EmailSubmission/set", LAPSE_ETIMEOUT, true), END },
	  LAPSE_EUPSTREAM,
	  "cannot be told" },
	{ "a mail that never left",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS,
	    LOST("POST", "/api/", "EmailSubmission/set", LAPSE_EUPSTREAM, false), END },
	  LAPSE_EUPSTREAM,
	  "why" },
	{ "nobody to send as",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION),
	    ANSWER("POST", "/api/", "Identity/get", 200,
		   "{\"methodResponses\":[[\"Mailbox/get\",{\"list\":[]},\"m\"],"
		   "[\"Identity/get\",{\"list\":[]},\"i\"]]}"),
	    END },
	  LAPSE_EUPSTREAM,
	  "a@x.test" },
	{ "nowhere to put the draft",
	  PROVIDER_SEND,
	  { ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION),
	    ANSWER("POST", "/api/", "Identity/get", 200,
		   "{\"methodResponses\":[[\"Mailbox/get\",{\"list\":[]},\"m\"],"
		   "[\"Identity/get\",{\"list\":[{\"id\":\"i\",\"email\":\"a@x.test\"}]},"
		   "\"i\"]]}"),
	    END },
	  LAPSE_EUPSTREAM,
	  "drafts" },
};

static void mail(void **state)
{
	struct desk *d = *state;

	for (size_t i = 0; i < ARRAY_LEN(MAIL_TALKS); i++) {
		print_message("  %s\n", MAIL_TALKS[i].what);
		begin(d, MAIL_TALKS[i].verb, "");
		talk(d, MAIL_TALKS[i].lines);
		assert_int_equal(d->op.err, MAIL_TALKS[i].err);
		assert_false(d->op.unknown);
		if (!strstr(d->op.problem.message, MAIL_TALKS[i].says) ||
		    strstr(d->op.problem.message, "secret"))
			fail_msg("said: %s", d->op.problem.message);
		if (MAIL_TALKS[i].verb == PROVIDER_SEND && MAIL_TALKS[i].err == LAPSE_OK)
			assert_string_equal(d->op.sent_id, "M1");
	}
}

static void the_time_runs_through_all_questions(void **state)
{
	struct desk *d = *state;

	d->took_ms = 4000;
	begin(d, PROVIDER_SEND, "");
	assert_int_equal(d->last_timeout_ms, 10000);
	talk(d, (const struct line[]){
			ANSWER("GET", WELL_KNOWN, NULL, 200, SESSION), FOLDERS,
			LOST("POST", "/api/", "EmailSubmission", LAPSE_ETIMEOUT, true), END });
	assert_int_equal(d->last_timeout_ms, 2000);
	assert_non_null(strstr(d->op.problem.message, "10000 ms"));
}

static void a_stop_ends_everything(void **state)
{
	struct desk *d = *state;
	static const struct {
		enum provider_verb verb;
		bool creating;
	} cases[] = {
		{ PROVIDER_CREATE, false }, { PROVIDER_CREATE, true }, { PROVIDER_DELETE, false },
		{ PROVIDER_LIST, false },   { PROVIDER_GET, false },   { PROVIDER_SEND, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		begin(d, cases[i].verb, "");
		if (cases[i].creating) {
			struct fetch *f = d->asked;
			d->asked = NULL;
			f->status = 200;
			buf_puts(&f->answer, "{\"data\":{}}");
			f->done(f); /* the probe; now the account is asked for */
		}
		d->provider->stop(d->provider);
		assert_true(d->done);
		assert_int_equal(d->op.err, LAPSE_EUNAVAILABLE);
		assert_int_equal(d->op.unknown, cases[i].creating);
	}
	d->provider->stop(d->provider);
}

/* Which provider */

static void the_settings_choose(void **state)
{
	struct desk *d = *state;
	struct provider *p = d->provider;

	settings_set(&d->settings, "mailbox_provider", "local", &d->problem);
	assert_int_equal(provider_open(&d->settings, NULL, NULL, &d->time.clock, &p, &d->problem),
			 LAPSE_OK);
	assert_null(p);
	provider_free(p);
	settings_set(&d->settings, "mailbox_provider", "stalwart", &d->problem);
	assert_int_equal(provider_open(&d->settings, NULL, NULL, &d->time.clock, &p, &d->problem),
			 LAPSE_EINVAL);
	assert_string_equal(d->problem.field, "mailbox_provider");
	settings_set(&d->settings, "mailbox_provider", "Stalwart", &d->problem);
	assert_int_equal(
		provider_open(&d->settings, NULL, &d->fetcher, &d->time.clock, &p, &d->problem),
		LAPSE_EINVAL);
	assert_true(d->provider->needs_secret);
	assert_null(d->provider->run);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(accounts, teardown),
		TEST(generations),
		TEST(mail),
		TEST(the_time_runs_through_all_questions),
		TEST(a_stop_ends_everything),
		TEST(the_settings_choose),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
