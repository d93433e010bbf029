/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lapse run: a program under the daemon's care. With --heartbeat an agent is alive exactly as long
 * as it runs; with
 * --claim it is run once for each message of an agent, which is leased while it runs and marked
 * read when it succeeds. Both together are a worker that the fleet can see.
 */
#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/input.h"
#include "cli/line/commands.h"
#include "cli/run/program.h"
#include "cli/show/show.h"

#define BEATS_PER_THRESHOLD 3 /* two may be lost before the agent is evicted */
#define BEAT_DEFAULT_MS 30000 /* a third of the usual 90 s */
#define BEAT_MIN_MS 100
#define VISIBILITY_MS 30000 /* what a claim lasts, and is extended by */
#define EXTENDS_PER_CLAIM 3
#define POLL_STEP_MS 25000   /* a long poll; longer waits are several of them */
#define CALL_MARGIN_MS 10000 /* what an answer may take beyond the wait */

struct runner {
	struct cli *cli;
	const char *agent;      /* that lives while we run; NULL without --heartbeat */
	const char *inbox;      /* whose messages we work on; NULL without --claim */
	json_t *beat;           /* the body of a heartbeat */
	lapse_ms beat_ms;       /* between two heartbeats */
	lapse_us beaten;        /* when the last one was sent */
	lapse_ms visibility_ms; /* of a claim */
	char *message, *claim;  /* being worked on; owned */
	bool is_silent;         /* the daemon does not answer, and we have said so */
};

static void runner_done(struct runner *r)
{
	json_decref(r->beat);
	free(r->message);
	free(r->claim);
}

/* A request in the background: what goes wrong is said once, until it works again. */
static enum outcome call_quietly(struct runner *r, struct request *request, struct answer *answer,
				 const char *what)
{
	struct buf CLEANUP(buf_done) why = { 0 };

	assert(!r->cli->complaint);
	request->timeout_ms = CALL_MARGIN_MS;
	r->cli->complaint = &why;
	enum outcome how = client_call(r->cli, request, answer);
	r->cli->complaint = NULL;
	if (how != OUTCOME_OK && !r->is_silent)
		fprintf(stderr, "lapse: %s: %s; trying again\n", what, buf_text(&why));
	if (how == OUTCOME_OK && r->is_silent)
		fprintf(stderr, "lapse: %s works again\n", what);
	r->is_silent = how != OUTCOME_OK;
	return how;
}

static struct request beat_request(const struct runner *r)
{
	return (struct request){ .method = "POST",
				 .path = "/v1/agents/%/heartbeat",
				 .segments = { r->agent },
				 .body = r->beat,
				 .repeatable = true };
}

static void beat(struct runner *r)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = beat_request(r);

	r->beaten = clock_mono(r->cli->clock);
	assert(r->agent && r->beat && r->beat_ms >= BEAT_MIN_MS);
	call_quietly(r, &request, &answer, "heartbeat");
}

static bool beat_is_due(const struct runner *r)
{
	return r->agent && clock_mono(r->cli->clock) - r->beaten >= r->beat_ms * 1000;
}

/* How often to beat: the daemon's threshold is the window of its agents. */
static void learn_threshold(struct runner *r)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) why = { 0 };
	const json_t *row;
	size_t i;

	assert(!r->cli->complaint);
	r->beat_ms = BEAT_DEFAULT_MS;
	r->cli->complaint = &why;
	enum outcome how = client_call(
		r->cli, &(struct request){ .method = "GET", .path = "/v1/matrix" }, &answer);
	r->cli->complaint = NULL;
	if (how != OUTCOME_OK)
		return;
	json_array_foreach (json_object_get(answer.json, "data"), i, row) {
		const char *table = json_string_value(json_object_get(row, "table"));
		int64_t window = json_integer_value(json_object_get(row, "window_ms"));
		if (table && strcmp(table, "agents") == 0 && window > 0)
			r->beat_ms = window / BEATS_PER_THRESHOLD;
	}
	r->beat_ms = r->beat_ms < BEAT_MIN_MS ? BEAT_MIN_MS : r->beat_ms;
	assert(r->beat_ms >= BEAT_MIN_MS);
}

/* The first heartbeat must come through: a program whose agent is unknown must not start. */
static enum outcome agent_begin(struct runner *r)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	json_t *CLEANUP(json_freep) capabilities = json_array();
	struct cli *cli = r->cli;

	if (!r->agent)
		return OUTCOME_OK;
	if (!args_has(&cli->args, OPT_OWN_CLUSTER))
		return cli_usage(cli, "--cluster NAME is missing: --heartbeat needs it");
	r->beat = json_object();
	enum outcome how = input_text(cli, r->beat, "cluster_id", OPT_OWN_CLUSTER);
	if (how == OUTCOME_OK)
		how = input_texts(cli, capabilities, OPT_OWN_CAPABILITY);
	if (how != OUTCOME_OK)
		return how;
	if (args_has(&cli->args, OPT_OWN_CAPABILITY))
		json_object_set(r->beat, "capabilities", capabilities);
	struct request request = beat_request(r);
	how = client_call(cli, &request, &answer);
	r->beaten = clock_mono(cli->clock);
	if (how == OUTCOME_OK)
		learn_threshold(r);
	return how;
}

static void agent_end(struct runner *r)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "DELETE",
				   .path = "/v1/agents/%",
				   .segments = { r->agent } };

	if (!r->agent)
		return;
	request.timeout_ms = CALL_MARGIN_MS;
	/* It may be evicted already; then it is gone, as it should be. */
	request.any_status = true;
	client_call(r->cli, &request, &answer);
}

/* False when the message has passed to another claim. */
static bool claim_extend(struct runner *r)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/agents/%/messages/%/extend",
				   .segments = { r->inbox, r->message },
				   .body = body,
				   .any_status = true,
				   .repeatable = true };

	assert(r->message && r->claim);
	json_object_set_new(body, "claim_id", json_string(r->claim));
	json_object_set_new(body, "visibility_ms", json_integer(r->visibility_ms));
	if (call_quietly(r, &request, &answer, "extending the claim") != OUTCOME_OK)
		return true;
	if (answer.status == 409 || answer.status == 404) {
		cli_fail(r->cli, OUTCOME_REFUSED,
			 "message %s has passed to another worker; the program is stopped",
			 r->message);
		return false;
	}
	return true;
}

static bool keep_alive(void *arg)
{
	struct runner *r = arg;

	assert(!r->message == !r->claim);
	if (beat_is_due(r))
		beat(r);
	return !r->claim || claim_extend(r);
}

static lapse_ms tick_of(const struct runner *r)
{
	lapse_ms every = r->agent ? r->beat_ms : BEAT_DEFAULT_MS;

	if (r->claim && r->visibility_ms / EXTENDS_PER_CLAIM < every)
		every = r->visibility_ms / EXTENDS_PER_CLAIM;
	return every > 0 ? every : 1;
}

static struct program make_program(struct runner *r)
{
	return (struct program){
		.argv = r->cli->args.operands, .every_ms = tick_of(r), .tick = keep_alive, .arg = r
	};
}

/* The message is done: it may expire now. */
static enum outcome claim_finish(struct runner *r)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct request request = { .method = "POST",
				   .path = "/v1/agents/%/messages/%/read",
				   .segments = { r->inbox, r->message },
				   .body = body,
				   .repeatable = true };

	assert(r->message && r->claim);
	json_object_set_new(body, "claim_id", json_string(r->claim));
	return client_call(r->cli, &request, &answer);
}

static const char *message_text(const json_t *message, const char *key)
{
	return json_string_value(json_object_get(message, key));
}

static enum outcome run_with_message(struct runner *r, const json_t *message,
				     struct program_end *end)
{
	const json_t *content = json_object_get(message, "content");
	char *CLEANUP(mem_freep) metadata =
		json_dumps(json_object_get(message, "metadata"), JSON_COMPACT);
	struct buf CLEANUP(buf_done) input = { 0 };
	struct program p = make_program(r);

	buf_add(&input, json_string_value(content), json_string_length(content));
	p.input = &input;
	p.env[0].name = "LAPSE_AGENT", p.env[0].value = r->inbox;
	p.env[1].name = "LAPSE_MESSAGE_ID", p.env[1].value = r->message;
	p.env[2].name = "LAPSE_MESSAGE_FROM", p.env[2].value = message_text(message, "from");
	p.env[3].name = "LAPSE_MESSAGE_TYPE", p.env[3].value = message_text(message, "type");
	p.env[4].name = "LAPSE_MESSAGE_TIMESTAMP",
	p.env[4].value = message_text(message, "timestamp");
	p.env[5].name = "LAPSE_MESSAGE_METADATA", p.env[5].value = metadata;
	p.env[6].name = "LAPSE_CLAIM_ID", p.env[6].value = r->claim;
	return program_run(r->cli, &p, end);
}

/* Works on one claimed message. A failed program leaves it: it is offered again when the claim
 * ends. */
static enum outcome work_on(struct runner *r, const json_t *answer, struct program_end *end)
{
	const json_t *message = json_array_get(json_object_get(answer, "data"), 0);
	const char *id = message_text(message, "id"), *claim = message_text(answer, "claim_id");

	if (!id || !claim || !message_text(message, "content"))
		return cli_fail(r->cli, OUTCOME_UNREACHABLE, "%s does not answer like lapsed",
				r->cli->client.url);
	assert(!r->message && !r->claim); /* one at a time */
	r->message = mem_strdup(id);
	r->claim = mem_strdup(claim);
	assert(r->inbox);
	enum outcome how = run_with_message(r, message, end);
	if (how == OUTCOME_OK && end->code == 0 && !end->was_lost)
		how = claim_finish(r);
	else if (how == OUTCOME_OK && !end->was_lost)
		fprintf(stderr,
			"lapse: the program ended with %d; message %s is offered again when its "
			"claim ends\n",
			end->code, r->message);
	free(r->message);
	free(r->claim);
	r->message = r->claim = NULL;
	return how;
}

/* One long poll for a message. */
static enum outcome claim_one(struct runner *r, lapse_ms wait_ms, struct answer *ret)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct request request = { .method = "POST",
				   .path = "/v1/agents/%/messages/claim",
				   .segments = { r->inbox },
				   .body = body,
				   .timeout_ms = wait_ms + CALL_MARGIN_MS };

	assert(r->inbox && wait_ms >= 0 && wait_ms <= POLL_STEP_MS);
	json_object_set_new(body, "limit", json_integer(1));
	json_object_set_new(body, "visibility_ms", json_integer(r->visibility_ms));
	json_object_set_new(body, "wait_ms", json_integer(wait_ms));
	return client_call(r->cli, &request, ret);
}

/* Waits for a message and works on it. OUTCOME_EMPTY when none came within --wait. */
static enum outcome next_message(struct runner *r, struct program_end *end)
{
	const struct args *args = &r->cli->args;
	lapse_ms left = args_has(args, OPT_WAIT) ? args->number[OPT_WAIT] : LAPSE_NEVER;

	for (;;) {
		struct answer CLEANUP(answer_done) answer = { 0 };
		lapse_ms step = left < POLL_STEP_MS ? left : POLL_STEP_MS;
		if (r->agent && r->beat_ms < step)
			step = r->beat_ms;
		if (beat_is_due(r))
			beat(r);
		enum outcome how = claim_one(r, step, &answer);
		if (how != OUTCOME_OK)
			return how;
		if (json_array_size(json_object_get(answer.json, "data")) > 0)
			return work_on(r, answer.json, end);
		left = left == LAPSE_NEVER ? left : left - step;
		if (left <= 0)
			return OUTCOME_EMPTY;
	}
}

static enum outcome run_worker(struct runner *r, struct program_end *end)
{
	bool once = args_has(&r->cli->args, OPT_RUN_ONCE);
	enum outcome how;

	do {
		*end = (struct program_end){ 0 };
		how = next_message(r, end);
	} while (how == OUTCOME_OK && !once && !end->was_interrupted);
	return how;
}

enum outcome cmd_run(struct cli *cli)
{
	const struct args *args = &cli->args;
	struct runner CLEANUP(runner_done) r = { .cli = cli,
						 .agent = args->text[OPT_HEARTBEAT],
						 .inbox = args->text[OPT_CLAIM],
						 .visibility_ms = VISIBILITY_MS };
	struct program_end end = { 0 };

	if (!r.agent && !r.inbox)
		return cli_usage(cli, "give --heartbeat AGENT, or --claim AGENT, or both");
	if (!r.inbox && (args_has(args, OPT_WAIT) || args_has(args, OPT_RUN_ONCE) ||
			 args_has(args, OPT_VISIBILITY)))
		return cli_usage(cli, "--wait, --once and --visibility belong to --claim");
	if (args_has(args, OPT_VISIBILITY))
		r.visibility_ms = args->number[OPT_VISIBILITY];
	enum outcome how = agent_begin(&r);
	if (how != OUTCOME_OK)
		return how;
	if (r.inbox) {
		how = run_worker(&r, &end);
	} else {
		struct program p = make_program(&r);
		p.env[0].name = "LAPSE_AGENT", p.env[0].value = r.agent;
		how = program_run(cli, &p, &end);
	}
	agent_end(&r);
	cli->exit_code = end.code;
	/* A worker that was told to end between two messages, or by a program that did not mind. */
	if (how == OUTCOME_OK && r.inbox && end.was_interrupted && end.code == 0)
		return OUTCOME_INTERRUPTED;
	return how;
}
