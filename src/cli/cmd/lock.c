/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lapse lock: a program that runs while we hold a lease. The lease is renewed meanwhile; when it is
 * lost, or was not renewed before it ended, the program is stopped, because another holder may be
 * at work. The fencing token in its environment lets what it writes to refuse it after that.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/run/program.h"
#include "cli/show/show.h"

#define LEASE_MS 30000
#define RENEWALS_PER_LEASE 3 /* two may be lost */
#define RETRY_MS 250         /* between two attempts while another holder has it */
#define CALL_MS 5000
#define HOLDER_MAX 128

struct lock {
	struct cli *cli;
	const char *table, *key, *holder;
	lapse_ms ttl_ms;
	char token[24];   /* the fencing token, as text */
	lapse_us ends_at; /* monotonic: counted from before the request that renewed it */
};

static json_t *lock_body(const struct lock *l)
{
	json_t *body = json_object();

	json_object_set_new(body, "holder", json_string(l->holder));
	json_object_set_new(body, "ttl_ms", json_integer(l->ttl_ms));
	return body;
}

/* Takes or renews the lease. 409 is an answer like any other. */
static enum outcome lock_take(struct lock *l, struct answer *ret)
{
	json_t *CLEANUP(json_freep) body = lock_body(l);
	struct request request = { .method = "PUT",
				   .path = "/v1/leases/%/%",
				   .segments = { l->table, l->key },
				   .body = body,
				   .any_status = true,
				   .timeout_ms = CALL_MS };
	lapse_us asked = clock_mono(l->cli->clock);

	enum outcome r = client_call(l->cli, &request, ret);
	if (r == OUTCOME_OK && ret->status == 200)
		l->ends_at = asked + l->ttl_ms * 1000;
	return r;
}

static bool lock_renew(void *arg)
{
	struct lock *l = arg;
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) why = { 0 };

	assert(l->token[0] && !l->cli->complaint);
	l->cli->complaint = &why;
	enum outcome r = lock_take(l, &answer);
	l->cli->complaint = NULL;
	bool lost = r == OUTCOME_OK && answer.status == 409;
	bool late = clock_mono(l->cli->clock) >= l->ends_at;
	if (lost || late)
		cli_fail(l->cli, OUTCOME_REFUSED, "the lease of %s/%s %s; the program is stopped",
			 l->table, l->key,
			 lost ? "has passed to another holder" : "could not be renewed in time");
	return !lost && !late;
}

static void lock_release(struct lock *l)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) ignored = { 0 };
	struct request CLEANUP(request_done) request = { .method = "DELETE",
							 .path = "/v1/leases/%/%",
							 .segments = { l->table, l->key },
							 .any_status = true,
							 .timeout_ms = CALL_MS };

	request_query(&request, "holder", l->holder);
	request_query(&request, "fencing_token", l->token);
	/* When that fails the lease ends by itself. */
	l->cli->complaint = &ignored;
	client_call(l->cli, &request, &answer);
	l->cli->complaint = NULL;
}

static void sleep_until_retry(void)
{
	struct timespec left = { .tv_nsec = RETRY_MS * 1000000L };

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

static enum outcome lock_held(const struct lock *l, const struct answer *answer, bool waited)
{
	const json_t *lease = json_object_get(answer->json, "lease");
	const char *holder = json_string_value(json_object_get(lease, "holder"));

	return cli_fail(l->cli, waited ? OUTCOME_EMPTY : OUTCOME_REFUSED, "%s/%s is held by %s",
			l->table, l->key, holder ? holder : "another holder");
}

/* Takes the lease, waiting for it as long as --wait says. */
static enum outcome lock_acquire(struct lock *l)
{
	const struct args *args = &l->cli->args;
	lapse_us until = clock_mono(l->cli->clock);

	until += args_has(args, OPT_WAIT) ? args->number[OPT_WAIT] * 1000 : 0;
	for (;;) {
		struct answer CLEANUP(answer_done) answer = { 0 };
		enum outcome r = lock_take(l, &answer);
		if (r != OUTCOME_OK)
			return r;
		const json_t *token = json_object_get(answer.json, "fencing_token");
		if (answer.status == 200 && json_is_integer(token)) {
			snprintf(l->token, sizeof(l->token), "%lld",
				 (long long)json_integer_value(token));
			return OUTCOME_OK;
		}
		if (answer.status != 409)
			return client_refused(l->cli, &answer);
		if (clock_mono(l->cli->clock) >= until)
			return lock_held(l, &answer, args_has(args, OPT_WAIT));
		sleep_until_retry();
	}
}

/* Another run of the same command is another holder. */
static const char *default_holder(struct cli *cli)
{
	char host[HOLDER_MAX - 16] = "";

	if (gethostname(host, sizeof(host) - 1) < 0)
		snprintf(host, sizeof(host), "lapse");
	return arena_printf(&cli->arena, "%s:%ld", host, (long)getpid());
}

enum outcome cmd_lock(struct cli *cli)
{
	const struct args *args = &cli->args;
	struct lock l = {
		.cli = cli,
		.table = args_operand(args, 0),
		.key = args_operand(args, 1),
		.holder = args_has(args, OPT_HOLDER) ? args->text[OPT_HOLDER] : default_holder(cli),
		.ttl_ms = args_has(args, OPT_LEASE_TTL) ? args->number[OPT_LEASE_TTL] : LEASE_MS
	};
	struct program_end end = { 0 };

	enum outcome r = lock_acquire(&l);
	if (r != OUTCOME_OK)
		return r;
	struct program p = { .argv = args->operands + 2,
			     .every_ms = l.ttl_ms / RENEWALS_PER_LEASE + 1,
			     .tick = lock_renew,
			     .arg = &l };
	p.env[0].name = "LAPSE_LEASE_TABLE", p.env[0].value = l.table;
	p.env[1].name = "LAPSE_LEASE_KEY", p.env[1].value = l.key;
	p.env[2].name = "LAPSE_LEASE_HOLDER", p.env[2].value = l.holder;
	p.env[3].name = "LAPSE_FENCING_TOKEN", p.env[3].value = l.token;
	r = program_run(cli, &p, &end);
	lock_release(&l);
	cli->exit_code = end.code;
	return r;
}
