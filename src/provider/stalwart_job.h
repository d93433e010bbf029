/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation under way at the mail server: a chain of questions. Each step asks one thing with
 * job_ask() and names the function that goes on with the answer; the last one calls job_end().
 *
 * Used by the files stalwart*.c only. Everything runs on the loop's thread.
 */
#ifndef LAPSE_PROVIDER_STALWART_JOB_H
#define LAPSE_PROVIDER_STALWART_JOB_H

#include "base/list.h"
#include "provider/fetch.h"
#include "provider/jmap.h"
#include "provider/provider.h"
#include "provider/stalwart.h"

enum generation { GENERATION_UNKNOWN, GENERATION_REST, GENERATION_REGISTRY };

struct stalwart {
	struct provider provider; /* what the engine is given */
	struct fetcher *fetcher;
	const struct clock *clock;
	lapse_ms timeout_ms; /* of a whole operation */
	char origin[ORIGIN_MAX];
	struct buf authorization; /* the administrator's */
	struct buf authorities;   /* who vouches for the server; empty = the system's */
	enum generation generation;
	struct list jobs; /* under way */
};

struct stalwart_job;
typedef void job_step(struct stalwart_job *j);

#define STALWART_JOB_MAGIC 0x4c534a42u

struct stalwart_job {
	uint32_t magic;
	bool asking; /* a question is under way: it may not end, nor ask another */
	struct list link;
	struct stalwart *server;
	struct provider_op *op;
	lapse_us deadline; /* monotonic; of all its questions together */
	struct fetch fetch;
	job_step *next;   /* goes on with the answer */
	job_step *failed; /* goes on without one; NULL = the operation fails */
	struct buf url, body;
	struct buf authorization; /* the mailbox's */
	json_t *answer;           /* of the API, parsed by job_parse() */

	/* Accounts */
	const char *local, *domain; /* of the address */
	job_step *probed_next;      /* once the generation is known */
	bool probed;                /* it was asked for by this very operation */
	bool domain_asked;
	const char *domain_id; /* NULL = the server does not know the domain */
	const char *found;     /* id of the account to delete */
	bool creating;         /* the question under way is the one that creates */
	bool created_maybe;    /* it may have been acted upon */

	/* Mail */
	bool hopped; /* the one redirect of the session was followed */
	struct jmap_session session;
	struct jmap_folders folders;
	struct jmap_sent sent;
	bool sending; /* the question under way is the one that sends */
};

enum job_as { AS_ADMIN, AS_MAILBOX };

/* Asks; j->body is what is sent unless it is empty. `path` begins with '/'. */
void job_ask(struct stalwart_job *j, enum job_as as, const char *method, const char *path,
	     size_t answer_max_bytes, job_step *next);

/* Ends the operation; the job is gone after it. j->op->problem says why it failed. */
void job_end(struct stalwart_job *j, int err);

/* Ends it with LAPSE_EUPSTREAM because of the status that was answered. */
void job_end_status(struct stalwart_job *j, enum job_as as);

/* Parses the answer of a JMAP API into j->answer. False: the operation has ended. */
bool job_parse(struct stalwart_job *j, enum job_as as);

/* Finds out the generation, then goes on. Ends the operation when it cannot. */
void job_probe(struct stalwart_job *j, job_step *next);
void job_ask_domain(struct stalwart_job *j, job_step *next);

void job_create(struct stalwart_job *j); /* stalwart_account.c */
void job_delete(struct stalwart_job *j);
void job_list(struct stalwart_job *j); /* stalwart_mail.c */
void job_get(struct stalwart_job *j);
void job_send(struct stalwart_job *j);

/* "Basic …" for "user:password", appended. */
void put_basic(struct buf *out, const char *user_password);

#define ANSWER_SMALL_BYTES 65536    /* of one account, of an error */
#define ANSWER_MEDIUM_BYTES 1048576 /* a session, folders, a hundred accounts */
#define ANSWER_LARGE_BYTES 16777216 /* a page of mails; one with several long parts */

#endif
