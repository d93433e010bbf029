/* SPDX-License-Identifier: Apache-2.0 */
/* The provider itself: jobs, questions, and which generation the server is of. */
#include "provider/stalwart.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/secret.h"
#include "provider/registry.h"
#include "provider/stalwart_job.h"

/* What tells the generations apart: a list of at most one principal. */
#define PROBE_PATH "/api/principal?types=individual&limit=1"
#define UNSURE "; whether the mail was sent cannot be told"

void put_basic(struct buf *out, const char *user_password)
{
	const size_t n = strlen(user_password);

	buf_puts(out, "Basic ");
	buf_reserve(out, 4 * (n / 3 + 1) + 1);
	out->len += (size_t)EVP_EncodeBlock((unsigned char *)out->data + out->len,
					    (const unsigned char *)user_password, (int)n);
}

/* Ending */

static void free_job(struct stalwart_job *j)
{
	assert(j->magic == STALWART_JOB_MAGIC && !j->asking && !j->op->state);
	list_remove(&j->link);
	json_decref(j->answer);
	buf_done(&j->fetch.answer);
	buf_done(&j->url);
	secret_wipe(&j->body);
	secret_wipe(&j->authorization);
	j->magic = 0;
	free(j);
}

void job_end(struct stalwart_job *j, int err)
{
	struct provider_op *op = j->op;
	const bool about_account = op->verb == PROVIDER_CREATE || op->verb == PROVIDER_DELETE;

	assert(j->magic == STALWART_JOB_MAGIC && !j->asking);
	assert(err <= 0 && op->state == j);
	op->err = err;
	op->unknown = op->verb == PROVIDER_CREATE && err < 0 && j->created_maybe;
	op->state = NULL;
	if (about_account && err == LAPSE_EUPSTREAM)
		j->server->generation = GENERATION_UNKNOWN; /* it may be another server by now */
	free_job(j);
	op->done(op);
}

static int say_status(struct problem *p, int status, enum job_as as)
{
	if (status == 401 || status == 403)
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   as == AS_ADMIN ? "the mail server refused the credentials of "
						    "lapse (%d): see stalwart_credentials"
						  : "the mail server refused the mailbox's own "
						    "password (%d)",
				   status);
	if (status == 429)
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server asks for fewer requests (429)");
	if (status >= 300 && status < 400)
		return problem_set(p, LAPSE_EUPSTREAM, NULL,
				   "the mail server redirects (%d), which is not followed: see "
				   "stalwart_url",
				   status);
	return problem_set(p, LAPSE_EUPSTREAM, NULL, "the mail server answered %d", status);
}

void job_end_status(struct stalwart_job *j, enum job_as as)
{
	if (j->sending && j->fetch.status >= 500)
		job_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
				       "the mail server answered %d" UNSURE, j->fetch.status));
	else
		job_end(j, say_status(&j->op->problem, j->fetch.status, as));
}

static void end_unanswered(struct stalwart_job *j)
{
	struct problem *p = &j->op->problem;
	assert(j->fetch.err < 0);
	const char *doubt = j->sending && j->fetch.sent ? UNSURE : "";

	if (j->fetch.err == LAPSE_EUNAVAILABLE)
		job_end(j, problem_set(p, LAPSE_EUNAVAILABLE, NULL,
				       "stopped before the mail server answered"));
	else if (j->fetch.err == LAPSE_ETIMEOUT)
		job_end(j, problem_set(p, LAPSE_EUPSTREAM, NULL,
				       "the mail server did not answer within %lld ms%s",
				       (long long)j->server->timeout_ms, doubt));
	else if (j->fetch.untrusted)
		job_end(j, problem_set(p, LAPSE_EUPSTREAM, NULL,
				       "the mail server's certificate is not trusted (see "
				       "stalwart_ca_file): %.120s",
				       j->fetch.why));
	else
		job_end(j, problem_set(p, LAPSE_EUPSTREAM, NULL,
				       "the mail server could not be asked: %.120s%s", j->fetch.why,
				       doubt));
}

/* Asking */

static void answered(struct fetch *f)
{
	struct stalwart_job *j = f->arg;

	assert(j->magic == STALWART_JOB_MAGIC && j->asking && f == &j->fetch);
	j->asking = false;
	secret_wipe(&j->body);
	j->created_maybe = j->creating && f->sent; /* until the answer says otherwise */
	if (f->err == LAPSE_OK)
		j->next(j);
	else if (j->failed)
		j->failed(j);
	else
		end_unanswered(j);
}

void job_ask(struct stalwart_job *j, enum job_as as, const char *method, const char *path,
	     size_t answer_max_bytes, job_step *next)
{
	struct stalwart *s = j->server;
	lapse_ms left = (j->deadline - clock_mono(s->clock)) / 1000;

	assert(j->magic == STALWART_JOB_MAGIC && !j->asking && next);
	assert(method && path[0] == '/');
	buf_done(&j->fetch.answer);
	buf_done(&j->url);
	buf_puts(&j->url, s->origin);
	buf_puts(&j->url, path);
	j->next = next;
	j->failed = NULL;
	j->fetch = (struct fetch){
		.method = method,
		.url = buf_text(&j->url),
		.authorization = buf_text(as == AS_ADMIN ? &s->authorization : &j->authorization),
		.authorities = s->authorities.len > 0 ? s->authorities.data : NULL,
		.body = j->body.len > 0 ? j->body.data : NULL,
		.body_len = j->body.len,
		.timeout_ms = left > 1 ? left : 1,
		.answer_max_bytes = answer_max_bytes,
		.done = answered,
		.arg = j
	};
	j->asking = true;
	s->fetcher->start(s->fetcher, &j->fetch);
}

bool job_parse(struct stalwart_job *j, enum job_as as)
{
	assert(!j->asking);
	json_decref(j->answer);
	j->answer = NULL;
	if (j->fetch.status != 200) {
		job_end_status(j, as);
		return false;
	}
	int r = jmap_parse(buf_text(&j->fetch.answer), j->fetch.answer.len,
			   as == AS_ADMIN ? JMAP_REGISTRY : JMAP_MAIL, &j->answer, &j->op->problem);
	if (r < 0) {
		job_end(j, r);
		return false;
	}
	return true;
}

/* Which generation */

static void probed(struct stalwart_job *j, enum generation g)
{
	assert(g != GENERATION_UNKNOWN && j->probed_next);
	j->server->generation = g;
	j->probed = true;
	j->probed_next(j);
}

static void domain_answered(struct stalwart_job *j)
{
	const char *error;

	if (!job_parse(j, AS_ADMIN))
		return;
	j->domain_asked = true;
	int r = registry_parse_domain(j->answer, j->domain, &j->op->arena, &j->domain_id,
				      &j->op->problem);
	error = jmap_error_type(j->answer, "q");
	if (error && strcmp(error, "forbidden") == 0)
		r = problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
				"stalwart_credentials may not read the mail server's domains");
	if (r < 0)
		job_end(j, r);
	else
		probed(j, GENERATION_REGISTRY);
}

void job_ask_domain(struct stalwart_job *j, job_step *next)
{
	assert(next);
	j->probed_next = next;
	registry_build_domain(&j->body, j->domain);
	job_ask(j, AS_ADMIN, "POST", "/jmap", ANSWER_MEDIUM_BYTES, domain_answered);
}

static void principals_answered(struct stalwart_job *j)
{
	struct rest_answer a;

	rest_judge(j->fetch.status, buf_text(&j->fetch.answer), j->fetch.answer.len, &j->op->arena,
		   &a);
	switch (a.verdict) {
	case REST_DONE:
		probed(j, GENERATION_REST);
		break;
	case REST_NO_ROUTE:
		job_ask_domain(j, j->probed_next);
		break;
	case REST_NOT_FOUND:
	case REST_EXISTS:
	case REST_ERROR:
	case REST_BUSY:
	case REST_REFUSED:
	case REST_BROKEN:
		if (j->fetch.status == 200)
			job_end(j,
				problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
					    "the mail server is no Stalwart that lapse knows, or "
					    "lists no principals: %.60s",
					    a.error[0] ? a.error : "it answered nonsense"));
		else
			job_end_status(j, AS_ADMIN);
		break;
	}
}

void job_probe(struct stalwart_job *j, job_step *next)
{
	assert(next);
	j->probed_next = next;
	job_ask(j, AS_ADMIN, "GET", PROBE_PATH, ANSWER_MEDIUM_BYTES, principals_answered);
}

/* The provider */

static job_step *const STEPS[] = {
	[PROVIDER_CREATE] = job_create, [PROVIDER_DELETE] = job_delete, [PROVIDER_LIST] = job_list,
	[PROVIDER_GET] = job_get,       [PROVIDER_READ] = job_get,      [PROVIDER_SEND] = job_send,
};

static void login_as_mailbox(struct stalwart_job *j)
{
	struct buf CLEANUP(secret_wipe) pair = { 0 };
	const struct principal *who = &j->op->who;

	assert(j->authorization.len == 0);
	buf_reserve(&pair, strlen(who->name) + strlen(who->secret) + 1);
	buf_printf(&pair, "%s:%s", who->name, who->secret);
	put_basic(&j->authorization, pair.data);
}

static void stalwart_start(struct provider *p, struct provider_op *op)
{
	struct stalwart *s = CONTAINER_OF(p, struct stalwart, provider);
	struct stalwart_job *j = mem_zalloc(1, sizeof(*j));

	assert(op->verb < ARRAY_LEN(STEPS) && op->done);
	assert(!op->state);
	j->magic = STALWART_JOB_MAGIC;
	j->server = s;
	j->op = op;
	j->deadline = clock_mono(s->clock) + s->timeout_ms * 1000;
	op->state = j;
	op->unknown = false;
	list_append(&s->jobs, &j->link);
	if (!address_split(op->who.address, &op->arena, &j->local, &j->domain))
		j->local = j->domain = ""; /* no server knows it, and it will say so */
	login_as_mailbox(j);
	STEPS[op->verb](j);
}

static void stalwart_stop(struct provider *p)
{
	struct stalwart *s = CONTAINER_OF(p, struct stalwart, provider);

	while (!list_empty(&s->jobs)) {
		struct stalwart_job *j = CONTAINER_OF(s->jobs.next, struct stalwart_job, link);
		assert(j->magic == STALWART_JOB_MAGIC && j->asking);
		s->fetcher->cancel(s->fetcher, &j->fetch);
	}
}

int stalwart_new(const struct settings *settings, const char *credentials_dir,
		 struct fetcher *fetcher, const struct clock *clock, struct provider **ret,
		 struct problem *p)
{
	struct stalwart *s = mem_zalloc(1, sizeof(*s));
	int r = stalwart_check_url(settings->stalwart_url, s->origin, p);

	if (r == LAPSE_OK)
		r = stalwart_check_credentials(settings->stalwart_credentials, credentials_dir,
					       &s->authorization, p);
	if (r == LAPSE_OK)
		r = stalwart_check_authorities(settings->stalwart_ca_file, &s->authorities, p);
	if (r < 0) {
		stalwart_free(&s->provider);
		return r;
	}
	s->provider = (struct provider){ .name = "stalwart",
					 .needs_secret = true,
					 .start = stalwart_start,
					 .stop = stalwart_stop };
	s->fetcher = fetcher;
	s->clock = clock;
	s->timeout_ms = settings->stalwart_timeout_ms;
	list_init(&s->jobs);
	*ret = &s->provider;
	return LAPSE_OK;
}

void stalwart_free(struct provider *p)
{
	struct stalwart *s = CONTAINER_OF(p, struct stalwart, provider);

	assert(!s->jobs.next || list_empty(&s->jobs));
	secret_wipe(&s->authorization);
	buf_done(&s->authorities);
	free(s);
}
