/* SPDX-License-Identifier: Apache-2.0 */
/* Creating and deleting accounts, at either generation. */
#include <assert.h>
#include <string.h>

#include "base/id.h"
#include "provider/registry.h"
#include "provider/stalwart_job.h"

#define REST_PREFIX "rest:"
#define REGISTRY_PREFIX "jmap:"

static const char *mark_of(struct stalwart_job *j)
{
	char id[ID_TEXT_LEN + 1];

	id_format(j->op->who.mailbox, id);
	return arena_printf(&j->op->arena, "lapse %s", id);
}

/* Its making was never answered, or the id that was does not lead to it: whether the account of
 * that name is ours must be asked. One of the older generation is known by its name. */
static bool needs_mark(const struct stalwart_job *j)
{
	return strncmp(j->op->who.account, REST_PREFIX, strlen(REST_PREFIX)) != 0;
}

static int unknown_domain(struct stalwart_job *j)
{
	return problem_set(&j->op->problem, LAPSE_EINVAL, "domain",
			   "the mail server does not serve the domain %.120s", j->domain);
}

/* Ends after an answer of the principals' API that is neither success nor a special case. */
static void end_rest(struct stalwart_job *j, const struct rest_answer *a)
{
	assert(a->verdict != REST_DONE);
	if (a->error[0])
		job_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
				       "the mail server refused: %.60s", a->error));
	else if (j->fetch.status == 200)
		job_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
				       "the mail server answered nonsense about principals"));
	else
		job_end_status(j, AS_ADMIN);
}

static void judge_rest_answer(struct stalwart_job *j, struct rest_answer *a)
{
	rest_judge(j->fetch.status, buf_text(&j->fetch.answer), j->fetch.answer.len, &j->op->arena,
		   a);
}

/* Creating */

static void create_at_known(struct stalwart_job *j);

static void rest_created(struct stalwart_job *j)
{
	struct rest_answer a;

	judge_rest_answer(j, &a);
	j->creating = false;
	j->created_maybe = a.verdict == REST_BROKEN;
	switch (a.verdict) {
	case REST_DONE:
		j->op->account = arena_printf(&j->op->arena, REST_PREFIX "%s", a.account);
		job_end(j, LAPSE_OK);
		break;
	case REST_EXISTS:
		job_end(j, problem_set(&j->op->problem, LAPSE_ECONFLICT, NULL,
				       "the address is taken"));
		break;
	case REST_NOT_FOUND:
		job_end(j, unknown_domain(j));
		break;
	case REST_NO_ROUTE:
		if (j->probed)
			job_end_status(j, AS_ADMIN);
		else
			job_probe(j, create_at_known); /* it was replaced since we asked */
		break;
	case REST_REFUSED:
	case REST_BUSY:
	case REST_ERROR:
	case REST_BROKEN:
		end_rest(j, &a);
		break;
	}
}

static void registry_created(struct stalwart_job *j)
{
	const char *id = NULL;
	bool definite = false;

	if (j->fetch.status >= 400 && j->fetch.status < 500)
		j->created_maybe = false;
	if (!job_parse(j, AS_ADMIN))
		return;
	int r = registry_parse_create(j->answer, &j->op->arena, &id, &definite, &j->op->problem);
	j->created_maybe = !definite;
	if (r == LAPSE_OK)
		j->op->account = arena_printf(&j->op->arena, REGISTRY_PREFIX "%s", id);
	job_end(j, r);
}

static void create_in_registry(struct stalwart_job *j)
{
	if (!j->domain_id) {
		job_end(j, unknown_domain(j));
		return;
	}
	assert(j->domain_asked && !j->creating);
	j->creating = true;
	registry_build_create(&j->body, j->local, j->domain_id, j->op->who.secret, mark_of(j));
	job_ask(j, AS_ADMIN, "POST", "/jmap", ANSWER_SMALL_BYTES, registry_created);
}

static void create_at_known(struct stalwart_job *j)
{
	const struct principal *who = &j->op->who;

	assert(j->server->generation != GENERATION_UNKNOWN);
	if (j->server->generation == GENERATION_REST) {
		j->creating = true;
		rest_build_create(&j->body, who->name, who->address, who->secret, mark_of(j));
		job_ask(j, AS_ADMIN, "POST", "/api/principal", ANSWER_SMALL_BYTES, rest_created);
	} else if (j->domain_asked) {
		create_in_registry(j);
	} else {
		job_ask_domain(j, create_in_registry);
	}
}

void job_create(struct stalwart_job *j)
{
	if (j->server->generation == GENERATION_UNKNOWN)
		job_probe(j, create_at_known);
	else
		create_at_known(j);
}

/* Deleting */

static void delete_at_known(struct stalwart_job *j);

static void ask_principal(struct stalwart_job *j, const char *method, job_step *next)
{
	struct buf CLEANUP(buf_done) path = { 0 };

	assert(j->server->generation == GENERATION_REST);
	rest_put_path(&path, j->op->who.name);
	job_ask(j, AS_ADMIN, method, buf_text(&path), ANSWER_SMALL_BYTES, next);
}

/* The server answered the deletion with a bare 404, and this is what it says of the account. */
static void rest_asked_if_gone(struct stalwart_job *j)
{
	struct rest_answer a;

	judge_rest_answer(j, &a);
	switch (a.verdict) {
	case REST_NOT_FOUND:
	case REST_NO_ROUTE:
		job_end(j, LAPSE_OK);
		break;
	case REST_DONE:
		job_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
				       "the mail server answered 404 to the deletion, but the "
				       "account is still there"));
		break;
	case REST_EXISTS:
	case REST_REFUSED:
	case REST_BUSY:
	case REST_ERROR:
	case REST_BROKEN:
		end_rest(j, &a);
		break;
	}
}

/* A proxy can answer 404 while the account exists: the server must say that it is gone. */
static void ask_if_gone(struct stalwart_job *j)
{
	if (j->server->generation == GENERATION_REST)
		ask_principal(j, "GET", rest_asked_if_gone);
	else
		delete_at_known(j);
}

static void end_removal(struct stalwart_job *j, const struct rest_answer *a)
{
	switch (a->verdict) {
	case REST_DONE:
	case REST_NOT_FOUND:
		job_end(j, LAPSE_OK);
		break;
	case REST_NO_ROUTE: /* gone, if this still is a server that has principals */
		if (j->probed)
			ask_if_gone(j);
		else
			job_probe(j, ask_if_gone);
		break;
	case REST_EXISTS:
	case REST_REFUSED:
	case REST_BUSY:
	case REST_ERROR:
	case REST_BROKEN:
		end_rest(j, a);
		break;
	}
}

static void rest_deleted(struct stalwart_job *j)
{
	struct rest_answer a;

	judge_rest_answer(j, &a);
	end_removal(j, &a);
}

static void rest_looked_up(struct stalwart_job *j)
{
	struct rest_answer a;

	judge_rest_answer(j, &a);
	if (a.verdict != REST_DONE)
		end_removal(j, &a);
	else if (strcmp(a.mark, mark_of(j)) == 0)
		ask_principal(j, "DELETE", rest_deleted);
	else
		job_end(j, account_not_ours(&j->op->problem));
}

static void registry_deleted(struct stalwart_job *j)
{
	if (job_parse(j, AS_ADMIN))
		job_end(j, registry_parse_destroy(j->answer, j->found, &j->op->problem));
}

static void destroy(struct stalwart_job *j)
{
	if (!j->found) {
		job_end(j, LAPSE_OK); /* it certainly is not there */
		return;
	}
	registry_build_destroy(&j->body, j->found);
	job_ask(j, AS_ADMIN, "POST", "/jmap", ANSWER_SMALL_BYTES, registry_deleted);
}

static void account_searched(struct stalwart_job *j)
{
	if (!job_parse(j, AS_ADMIN))
		return;
	int r = registry_parse_found(j->answer, true, j->op->who.address,
				     needs_mark(j) ? mark_of(j) : NULL, &j->op->arena, &j->found,
				     &j->op->problem);
	if (r < 0)
		job_end(j, r);
	else
		destroy(j);
}

static void search_account(struct stalwart_job *j)
{
	if (!j->domain_id) {
		job_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
				       "the mail server does not serve the domain %.120s: whether "
				       "the account is gone cannot be told",
				       j->domain));
		return;
	}
	registry_build_find(&j->body, j->local, j->domain_id);
	job_ask(j, AS_ADMIN, "POST", "/jmap", ANSWER_MEDIUM_BYTES, account_searched);
}

static void search_by_address(struct stalwart_job *j)
{
	if (j->domain_asked)
		search_account(j);
	else
		job_ask_domain(j, search_account);
}

/* The account with our id goes if it has our address. Otherwise another mailbox got the id. */
static void account_looked_up(struct stalwart_job *j)
{
	if (!job_parse(j, AS_ADMIN))
		return;
	int r = registry_parse_found(j->answer, false, j->op->who.address, NULL, &j->op->arena,
				     &j->found, &j->op->problem);
	if (r < 0)
		job_end(j, r);
	else if (j->found)
		destroy(j);
	else
		search_by_address(j);
}

static void delete_from_registry(struct stalwart_job *j)
{
	const char *account = j->op->who.account;
	const size_t prefix = strlen(REGISTRY_PREFIX);

	if (strncmp(account, REGISTRY_PREFIX, prefix) != 0 || !jmap_id_is_valid(account + prefix)) {
		search_by_address(j);
		return;
	}
	registry_build_get(&j->body, account + prefix);
	job_ask(j, AS_ADMIN, "POST", "/jmap", ANSWER_SMALL_BYTES, account_looked_up);
}

static void delete_at_known(struct stalwart_job *j)
{
	if (j->server->generation == GENERATION_REGISTRY)
		delete_from_registry(j);
	else if (needs_mark(j))
		ask_principal(j, "GET", rest_looked_up);
	else
		ask_principal(j, "DELETE", rest_deleted);
}

void job_delete(struct stalwart_job *j)
{
	if (j->server->generation == GENERATION_UNKNOWN)
		job_probe(j, delete_at_known);
	else
		delete_at_known(j);
}
