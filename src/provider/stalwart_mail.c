/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and sending mail as the mailbox itself. Any JMAP server would do. */
#include <assert.h>
#include <string.h>

#include "provider/stalwart_job.h"

/* The session: where the API is and which account is ours. */

/* The one redirect, only within the server we were told about. */
static bool follow(struct stalwart_job *j, job_step *next)
{
	const size_t n = strlen(j->server->origin);
	const char *to = j->fetch.location;

	if (j->hopped || strncmp(to, j->server->origin, n) != 0 || to[n] != '/')
		return false;
	const char *path = jmap_path(to + n, &j->op->arena);
	if (!path)
		return false;
	j->hopped = true;
	job_ask(j, AS_MAILBOX, "GET", path, ANSWER_MEDIUM_BYTES, next);
	return true;
}

static void session_answered(struct stalwart_job *j, job_step *next)
{
	const int status = j->fetch.status;

	assert(!j->asking && !j->session.api);
	if (status >= 300 && status < 400) {
		if (!follow(j, j->next))
			job_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
					       "the mail server redirects JMAP to another server, "
					       "or without end, which is not followed: see "
					       "stalwart_url"));
		return;
	}
	if (status != 200) {
		job_end_status(j, AS_MAILBOX);
		return;
	}
	int r = jmap_parse_session(buf_text(&j->fetch.answer), j->fetch.answer.len, &j->op->arena,
				   &j->session, &j->op->problem);
	if (r < 0)
		job_end(j, r);
	else
		next(j);
}

static void ask_session(struct stalwart_job *j, job_step *next)
{
	job_ask(j, AS_MAILBOX, "GET", "/.well-known/jmap", ANSWER_MEDIUM_BYTES, next);
}

static void ask_api(struct stalwart_job *j, size_t answer_max_bytes, job_step *next)
{
	assert(j->session.api && j->body.len > 0);
	job_ask(j, AS_MAILBOX, "POST", j->session.api, answer_max_bytes, next);
}

/* Listing */

/* Nothing from the mail with this id on: lists begin with the newest. */
static void cut_known(struct provider_op *op)
{
	for (size_t i = 0; op->query.since && i < op->mails_count; i++)
		if (strcmp(op->mails[i].id, op->query.since) == 0) {
			op->mails_count = i;
			op->next_cursor = NULL;
		}
}

static void list_answered(struct stalwart_job *j)
{
	struct provider_op *op = j->op;
	struct jmap_list list;

	if (!job_parse(j, AS_MAILBOX))
		return;
	int r = jmap_parse_list(j->answer, op->query.limit, &op->arena, &list, &op->problem);
	if (r == LAPSE_OK) {
		op->mails = list.mails;
		op->mails_count = list.count;
		op->next_cursor = list.next;
		cut_known(op);
	}
	job_end(j, r);
}

static void ask_list(struct stalwart_job *j, const char *folder)
{
	int r = jmap_build_list(&j->body, &j->session, folder, &j->op->query, &j->op->problem);

	if (r < 0)
		job_end(j, r);
	else
		ask_api(j, ANSWER_LARGE_BYTES, list_answered);
}

static void list_folders_answered(struct stalwart_job *j)
{
	if (!job_parse(j, AS_MAILBOX))
		return;
	int r = jmap_parse_folders(j->answer, j->op->who.address, false, &j->op->arena, &j->folders,
				   &j->op->problem);
	if (r < 0)
		job_end(j, r);
	else if (j->folders.ids[j->op->query.folder])
		ask_list(j, j->folders.ids[j->op->query.folder]);
	else
		job_end(j, LAPSE_OK); /* no such folder, so nothing in it */
}

static void list_in_session(struct stalwart_job *j)
{
	if (j->op->query.folder == MAIL_ALL) {
		ask_list(j, NULL);
		return;
	}
	jmap_build_folders(&j->body, &j->session, false);
	ask_api(j, ANSWER_MEDIUM_BYTES, list_folders_answered);
}

static void list_session(struct stalwart_job *j)
{
	session_answered(j, list_in_session);
}

void job_list(struct stalwart_job *j)
{
	ask_session(j, list_session);
}

/* Reading one */

static void get_answered(struct stalwart_job *j)
{
	if (!job_parse(j, AS_MAILBOX))
		return;
	int r = jmap_parse_get(j->answer, &j->op->arena, &j->op->mails, &j->op->problem);
	if (r == LAPSE_OK && j->op->verb == PROVIDER_READ && !j->op->mails[0].read)
		r = problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,
				"the mail server did not mark the mail as read");
	if (r == LAPSE_OK)
		j->op->mails_count = 1;
	job_end(j, r);
}

static void get_in_session(struct stalwart_job *j)
{
	if (!jmap_id_is_valid(j->op->mail_id)) {
		job_end(j, problem_set(&j->op->problem, LAPSE_ENOTFOUND, NULL,
				       "no such mail in this mailbox"));
		return;
	}
	jmap_build_get(&j->body, &j->session, j->op->mail_id, j->op->verb == PROVIDER_READ);
	ask_api(j, ANSWER_LARGE_BYTES, get_answered);
}

static void get_session(struct stalwart_job *j)
{
	session_answered(j, get_in_session);
}

void job_get(struct stalwart_job *j)
{
	ask_session(j, get_session);
}

/* Sending */

static void end_sent(struct stalwart_job *j)
{
	assert(!j->sending && j->sent.email);
	j->op->sent_id = j->sent.email;
	job_end(j, LAPSE_OK);
}

/* Whatever became of the draft, the mail was refused. */
static void discarded(struct stalwart_job *j)
{
	assert(j->op->err < 0); /* end_unsent() has noted why */
	job_end(j, j->op->err);
}

static void end_unsent(struct stalwart_job *j, int err)
{
	assert(err < 0 && !j->sending);
	if (!j->sent.discard || !j->sent.email) {
		job_end(j, err);
		return;
	}
	j->op->err = err;
	jmap_build_discard(&j->body, &j->session, j->sent.email);
	ask_api(j, ANSWER_MEDIUM_BYTES, discarded);
	j->failed = discarded;
}

static void delivery_answered(struct stalwart_job *j)
{
	json_t *CLEANUP(json_freep) answer = NULL;
	struct problem ignored;

	if (j->fetch.status == 200)
		jmap_parse(buf_text(&j->fetch.answer), j->fetch.answer.len, JMAP_MAIL, &answer,
			   &ignored);
	int r = answer ? jmap_parse_delivery(answer, &j->sent, &j->op->problem) : LAPSE_OK;
	if (r < 0)
		end_unsent(j, r);
	else
		end_sent(j);
}

static void send_answered(struct stalwart_job *j)
{
	if (!job_parse(j, AS_MAILBOX))
		return;
	j->sending = false;
	int r = jmap_parse_send(j->answer, &j->op->arena, &j->sent, &j->op->problem);
	if (r < 0) {
		end_unsent(j, r);
	} else if (j->sent.ask) {
		jmap_build_delivery(&j->body, &j->session, j->sent.submission);
		ask_api(j, ANSWER_MEDIUM_BYTES, delivery_answered);
		j->failed = end_sent; /* it was taken; more cannot be told */
	} else {
		end_sent(j);
	}
}

static void send_folders_answered(struct stalwart_job *j)
{
	struct problem *p = &j->op->problem;

	if (!job_parse(j, AS_MAILBOX))
		return;
	int r = jmap_parse_folders(j->answer, j->op->who.address, true, &j->op->arena, &j->folders,
				   p);
	if (r == LAPSE_OK && !j->folders.identity)
		r = problem_set(p, LAPSE_EUPSTREAM, NULL,
				"the mail server has no identity for the mailbox to send as %.120s "
				"(see docs/stalwart.md)",
				j->op->who.address);
	if (r == LAPSE_OK && !j->folders.ids[MAIL_DRAFTS] && !j->folders.ids[MAIL_SENT] &&
	    !j->folders.ids[MAIL_INBOX])
		r = problem_set(p, LAPSE_EUPSTREAM, NULL, "the mailbox has no folder for drafts");
	if (r < 0) {
		job_end(j, r);
		return;
	}
	assert(!j->sending && j->op->draft);
	j->sending = true;
	jmap_build_send(&j->body, &j->session, &j->folders, j->op->who.address, j->op->draft);
	ask_api(j, ANSWER_MEDIUM_BYTES, send_answered);
}

static void send_in_session(struct stalwart_job *j)
{
	jmap_build_folders(&j->body, &j->session, true);
	ask_api(j, ANSWER_MEDIUM_BYTES, send_folders_answered);
}

static void send_session(struct stalwart_job *j)
{
	session_answered(j, send_in_session);
}

void job_send(struct stalwart_job *j)
{
	ask_session(j, send_session);
}
