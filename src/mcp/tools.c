/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/tools.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/field.h"
#include "http/auth.h"
#include "http/schema.h"

#define ALIASES(...) ((const struct tool_alias[]){ __VA_ARGS__, { 0 } })
#define FIXED(...) ((const struct tool_fixed[]){ __VA_ARGS__, { 0 } })

/* clang-format off */
const struct tool TOOLS[] = {
	{ "send_message", "Send a message",
	  "Send a message to another agent. It waits in that agent's inbox until the agent reads it; an "
	  "unread message is never removed. Example: {\"from_session_id\":\"planner\","
	  "\"to_session_id\":\"coder\",\"content\":\"please review\"}.",
	  "sendMessage", 0, ALIASES(
		{ "from_session_id", "from", "who sends it: your own id" },
		{ "to_session_id", "agent", "who gets it" },
		{ "content", "content", NULL }), NULL },
	{ "check_inbox", "Check an inbox",
	  "List the unread messages of an agent, newest first. Reading does not mark them: call "
	  "acknowledge_message for each one you have handled.",
	  "listMessages", TOOL_READS, ALIASES(
		{ "session_id", "agent", "whose inbox: your own id" },
		{ "limit", "limit", NULL }, { "after", "after", NULL }),
	  FIXED({ "unread", "true" }) },
	{ "check_operator_inbox", "Check the operator's inbox",
	  "List the unread messages that agents have sent to the human operator (the agent 'operator').",
	  "listMessages", TOOL_READS, ALIASES({ "session_id", NULL, "who asks; not needed" }),
	  FIXED({ "agent", "operator" }, { "unread", "true" }) },
	{ "acknowledge_message", "Acknowledge a message",
	  "Mark a message as read once you have handled it. Only read messages are ever removed, 24 "
	  "hours after they were sent. Repeating it is harmless.",
	  "markMessageRead", TOOL_IDEMPOTENT, ALIASES(
		{ "session_id", "agent", "whose inbox" },
		{ "message_id", "id", "the message's id, 16 hex digits" },
		{ "claim_id", "claim_id", NULL }), NULL },
	{ "broadcast_message", "Send to many agents",
	  "Send one message to several agents, all or none.",
	  "broadcastMessage", 0, NULL, NULL },
	{ "wait_for_messages", "Wait for messages",
	  "List unread messages of an agent and wait up to wait_ms for the first one to arrive. Use it "
	  "instead of asking again and again.",
	  "listMessages", TOOL_READS, ALIASES(
		{ "agent", "agent", "whose inbox" }, { "wait_ms", "wait_ms", NULL },
		{ "limit", "limit", NULL }, { "after", "after", NULL }),
	  FIXED({ "unread", "true" }) },
	{ "claim_messages", "Claim messages as work",
	  "Lease unread messages, oldest first, so that several workers share one inbox. A message you "
	  "do not acknowledge with its claim_id before visibility_ms is over is offered again.",
	  "claimMessages", 0, NULL, NULL },
	{ "heartbeat", "Say that you live",
	  "Say that an agent lives, and what it can do. Repeat it at least every 30 seconds: an agent "
	  "silent for more than 90 seconds is removed with its capabilities.",
	  "sendHeartbeat", TOOL_IDEMPOTENT, NULL, NULL },
	{ "list_agents", "Who is alive",
	  "List the agents that are alive now. Give a capability to find who can do something.",
	  "listAgents", TOOL_READS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "list_capabilities", "Who can do what",
	  "List every capability and the live agents that have it.",
	  "listCapabilities", TOOL_READS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "create_mailbox", "Make a disposable mail address",
	  "Make a mail address that works until expires_at and then goes with its mail. Renew it if you "
	  "need it longer.",
	  "createMailbox", 0, NULL, NULL },
	{ "wait_for_mail", "Wait for mail",
	  "Wait until mail arrives in a mailbox, a confirmation code for example, up to wait_ms (60000). "
	  "Give the id of the newest mail you have seen as `since`, and only newer mail counts. Then use "
	  "read_mail. Example: {\"id\":\"mbx_00f1e2d3c4b5a697\",\"wait_ms\":60000}.",
	  "listMails", TOOL_READS, ALIASES(
		{ "id", "id", "the mailbox's id" }, { "wait_ms", "wait_ms", NULL },
		{ "since", "since", NULL }, { "limit", "limit", NULL }), NULL },
	{ "list_mail", "List mail",
	  "List the mail of a mailbox, newest first. With wait_ms it waits for the first mail.",
	  "listMails", TOOL_READS, NULL, NULL },
	{ "read_mail", "Read a mail",
	  "Get one mail whole: its sender, subject and text.",
	  "getMail", TOOL_READS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "renew_mailbox", "Keep a mailbox longer",
	  "Give a mailbox a new lifetime, counted from now. An expired mailbox cannot be renewed.",
	  "renewMailbox", TOOL_IDEMPOTENT, NULL, NULL },
	{ "delete_mailbox", "Delete a mailbox",
	  "Delete a mailbox and its mail at once.",
	  "deleteMailbox", TOOL_DESTROYS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "list_attachments", "List files",
	  "List the staged files and when each of them goes.",
	  "listAttachments", TOOL_READS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "stage_text", "Keep a text as a file",
	  "Store a text as a file for a while, and get its checksum, by which every agent of your owner "
	  "can read it. Better than a long message. It goes at expires_at unless persist is true.",
	  "stageText", TOOL_IDEMPOTENT, NULL, NULL },
	{ "read_text", "Read a file",
	  "Get the text of a staged file by its checksum, up to 256 KiB at once; next_offset tells where "
	  "to go on.",
	  "readText", TOOL_READS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "acquire_lease", "Take or renew a lock",
	  "Take a lease so that no other agent works on the same thing, or renew yours before it ends "
	  "(the same holder, the same key). Another holder's lease is an error that says until when. Keep "
	  "fencing_token: it grows with every new holder. Example: {\"table\":\"workspace_leases\","
	  "\"key\":\"repo-7\",\"holder\":\"coder\",\"ttl_ms\":60000}.",
	  "acquireLease", 0, NULL, NULL },
	{ "release_lease", "Give a lock back",
	  "Release your lease at once, with the holder and fencing_token you have. Without it the lease "
	  "ends by itself at expires_at.",
	  "releaseLease", TOOL_DESTROYS, NULL, NULL },
	{ "claim_once", "Do something only once",
	  "Claim a key of four parts. Exactly one caller gets fresh: true within the window; everyone "
	  "else gets fresh: false and must not act again.",
	  "claimDedupeKey", 0, NULL, NULL },
	{ "add_work", "Put work into a queue",
	  "Add an item to a queue (channel_inbox or channel_outbox) for any worker to claim.",
	  "addQueueItem", 0, NULL, NULL },
	{ "claim_work", "Take work from a queue",
	  "Claim items of a queue; wait_ms waits for the first. Finish each with complete_work or "
	  "fail_work, with its attempt, before lease_expires_at, or another worker gets it.",
	  "claimQueueItems", 0, NULL, NULL },
	{ "complete_work", "Work is done",
	  "Say that an item you claimed is done. A conflict means that you no longer hold it.",
	  "completeQueueItem", TOOL_IDEMPOTENT, NULL, NULL },
	{ "fail_work", "Work has failed",
	  "Say that an item you claimed has failed, and whether it is to be tried again.",
	  "failQueueItem", 0, NULL, NULL },
	{ "extend_work", "Work takes longer",
	  "Keep an item you claimed for longer, before its lease ends.",
	  "extendQueueItem", TOOL_IDEMPOTENT, NULL, NULL },
	{ "list_events", "What happened",
	  "List what happened after a cursor, oldest first: messages sent, agents evicted, mail received. "
	  "Keep next_cursor for the next call. Without `after` it begins with the oldest event kept.",
	  "listEvents", TOOL_READS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "show_matrix", "What is kept and what is due",
	  "Show every bounded table: what makes a row due, what is never removed, how many rows are "
	  "live and due.",
	  "getMatrix", TOOL_READS | TOOL_IDEMPOTENT, NULL, NULL },
	{ "dry_run_sweep", "What would be removed",
	  "Tell what a sweep of a scheduler would remove now, without removing anything. For admins.",
	  "runSweep", TOOL_READS | TOOL_IDEMPOTENT, ALIASES({ "scheduler", "scheduler", "see show_matrix" }),
	  FIXED({ "dry_run", "true" }) },
	{ "hold_row", "Keep a row",
	  "Keep a row from being removed, whatever its deadline says, until the hold is released. For "
	  "admins. Example: {\"table\":\"messages\",\"key\":\"343c7e59be800000\",\"reason\":\"audit\"}.",
	  "placeHold", TOOL_IDEMPOTENT, NULL, NULL },
	{ "release_hold", "Let a row go again",
	  "Release a hold. A row that is due is then removed at the next sweep. For admins.",
	  "releaseHold", TOOL_DESTROYS, NULL, NULL },
};
/* clang-format on */
const size_t TOOLS_COUNT = ARRAY_LEN(TOOLS);

const struct tool *tool_find(const char *name)
{
	for (size_t i = 0; i < TOOLS_COUNT; i++)
		if (strcmp(TOOLS[i].name, name) == 0)
			return &TOOLS[i];
	return NULL;
}

const struct route *tool_route(const struct tool *t)
{
	for (size_t i = 0; i < ROUTES_COUNT; i++)
		if (ROUTES[i].id && strcmp(ROUTES[i].id, t->operation) == 0)
			return &ROUTES[i];
	assert(0 && "a tool names an operation that no route has");
	return NULL;
}

/* The position of {name} in the route's path, or -1. */
static int path_position(const struct route *r, const char *name)
{
	size_t n = strlen(name);
	int i = 0;

	for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{'), i++)
		if (strncmp(p + 1, name, n) == 0 && p[1 + n] == '}')
			return i;
	return -1;
}

/* The text of a value as a path or a query holds it; NULL = it cannot. */
static const char *value_as_text(struct arena *arena, const json_t *value)
{
	if (json_is_string(value))
		return json_string_value(value);
	if (json_is_integer(value))
		return arena_printf(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	if (json_is_boolean(value))
		return json_is_true(value) ? "true" : "false";
	return NULL;
}

/* Where the route wants a field: path, query or body. */
static int bind_field(const struct route *r, const char *argument, const char *field, json_t *value,
		      struct call *c)
{
	int position = path_position(r, field);

	if (position < 0 && r->fields && field_find(r->fields, field))
		return json_object_set(c->body, field, value) == 0 ? LAPSE_OK : LAPSE_EINTERNAL;
	if (position < 0 && !(r->query && field_find(r->query, field)))
		return problem_set(&c->problem, LAPSE_EINVAL, argument,
				   "there is no argument '%.60s'", argument);
	const char *text = value_as_text(&c->arena, value);
	if (!text)
		return problem_set(&c->problem, LAPSE_EINVAL, argument,
				   "%.60s must be a text, a whole number, true or false", argument);
	if (position >= 0) {
		c->params[position] = text;
		return LAPSE_OK;
	}
	assert(c->query_count < CALL_QUERY_MAX);
	c->query[c->query_count++] = (struct call_arg){ field, text };
	return LAPSE_OK;
}

static const struct tool_alias *alias_of(const struct tool *t, const char *argument)
{
	for (const struct tool_alias *a = t->aliases; a && a->argument; a++)
		if (strcmp(a->argument, argument) == 0)
			return a;
	return NULL;
}

static int bind_argument(const struct tool *t, const struct route *r, const char *argument,
			 json_t *value, struct call *c)
{
	const struct tool_alias *alias = alias_of(t, argument);

	if (json_is_null(value)) /* models write null for "not given" */
		return LAPSE_OK;
	if (!t->aliases)
		return bind_field(r, argument, argument, value, c);
	if (!alias)
		return problem_set(&c->problem, LAPSE_EINVAL, argument,
				   "there is no argument '%.60s'", argument);
	return alias->field ? bind_field(r, argument, alias->field, value, c) : LAPSE_OK;
}

static void bind_fixed(const struct tool *t, const struct route *r, struct call *c)
{
	for (const struct tool_fixed *f = t->fixed; f && f->field; f++) {
		int position = path_position(r, f->field);
		assert(position >= 0 || (r->query && field_find(r->query, f->field)));
		if (position >= 0)
			c->params[position] = f->value;
		else
			c->query[c->query_count++] = (struct call_arg){ f->field, f->value };
	}
}

/* What clients call the route's {name}. */
static const char *name_of_position(const struct tool *t, const struct route *r,
				    struct arena *arena, int position)
{
	const char *p = strchr(r->path, '{');

	while (position-- > 0)
		p = strchr(p + 1, '{');
	const char *field = arena_printf(arena, "%.*s", (int)strcspn(p + 1, "}"), p + 1);
	for (const struct tool_alias *a = t->aliases; a && a->argument; a++)
		if (a->field && strcmp(a->field, field) == 0)
			return a->argument;
	return field;
}

int tool_bind(const struct tool *t, const json_t *arguments, struct call *c)
{
	const struct route *r = tool_route(t);
	const char *name;
	json_t *value;
	int position = 0;

	memset(c->params, 0, sizeof(c->params));
	c->query_count = 0;
	json_object_foreach ((json_t *)(uintptr_t)arguments, name, value) {
		int err = bind_argument(t, r, name, value, c);
		if (err < 0)
			return err;
	}
	bind_fixed(t, r, c);
	for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{'), position++)
		if (!c->params[position])
			return problem_set(&c->problem, LAPSE_EINVAL,
					   name_of_position(t, r, &c->arena, position),
					   "%s is required",
					   name_of_position(t, r, &c->arena, position));
	return LAPSE_OK;
}

/* Schemas */

static const struct json_field *field_of(const struct route *r, const char *name)
{
	const struct json_field *f = r->fields ? field_find(r->fields, name) : NULL;

	return f || !r->query ? f : field_find(r->query, name);
}

/* One argument. A part of the path has no field: it is a text. */
static void put_argument(struct buf *out, const char *argument, const struct json_field *f,
			 const char *help)
{
	json_key(out, argument);
	if (f && !help) {
		schema_of_field(out, f);
		return;
	}
	json_begin(out, '{');
	json_put_text(out, "type", "string");
	if (help)
		json_put_text(out, "description", help);
	json_end(out, '}');
}

static bool is_fixed(const struct tool *t, const char *field)
{
	for (const struct tool_fixed *f = t->fixed; f && f->field; f++)
		if (strcmp(f->field, field) == 0)
			return true;
	return false;
}

/* Calls `put` for each argument of the tool. */
typedef void argument_fn(struct buf *out, const char *argument, const struct route *r,
			 const char *field, const char *help);

static void each_field(struct buf *out, const struct tool *t, const struct route *r,
		       const struct json_field *fields, argument_fn *put)
{
	for (const struct json_field *f = fields; f && f->name; f++)
		if (!is_fixed(t, f->name))
			put(out, f->name, r, f->name, NULL);
}

static void each_argument(struct buf *out, const struct tool *t, argument_fn *put)
{
	const struct route *r = tool_route(t);

	if (t->aliases) {
		for (const struct tool_alias *a = t->aliases; a->argument; a++)
			put(out, a->argument, r, a->field, a->help);
		return;
	}
	for (const char *p = strchr(r->path, '{'); p; p = strchr(p + 1, '{')) {
		char name[64];
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 1, "}"), p + 1);
		if (!is_fixed(t, name))
			put(out, name, r, name, NULL);
	}
	each_field(out, t, r, r->query, put);
	each_field(out, t, r, r->fields, put);
}

static void put_required(struct buf *out, const char *argument, const struct route *r,
			 const char *field, const char *help)
{
	const struct json_field *f = field ? field_of(r, field) : NULL;

	(void)help;
	if (field && (f ? f->required : path_position(r, field) >= 0))
		json_text(out, argument);
}

static void put_property(struct buf *out, const char *argument, const struct route *r,
			 const char *field, const char *help)
{
	put_argument(out, argument, field ? field_of(r, field) : NULL, help);
}

static void write_input(struct buf *out, const struct tool *t)
{
	json_key(out, "inputSchema");
	json_begin(out, '{');
	json_put_text(out, "type", "object");
	json_put_bool(out, "additionalProperties", false);
	json_key(out, "required");
	json_begin(out, '[');
	each_argument(out, t, put_required);
	json_end(out, ']');
	json_key(out, "properties");
	json_begin(out, '{');
	each_argument(out, t, put_property);
	json_end(out, '}');
	json_end(out, '}');
}

/* The route's shape, as the answer's structuredContent has it. */
static void write_output(struct buf *out, const struct tool *t)
{
	const struct shape *reply = tool_route(t)->reply;

	assert(reply); /* a tool's route answers JSON */
	json_key(out, "outputSchema");
	schema_of_shape_whole(out, reply);
}

static void write_hints(struct buf *out, unsigned hints)
{
	json_key(out, "annotations");
	json_begin(out, '{');
	json_put_bool(out, "readOnlyHint", hints & TOOL_READS);
	json_put_bool(out, "destructiveHint", hints & TOOL_DESTROYS);
	json_put_bool(out, "idempotentHint", hints & TOOL_IDEMPOTENT);
	json_put_bool(out, "openWorldHint", false);
	json_end(out, '}');
}

static void write_tool(struct buf *out, const struct tool *t)
{
	json_begin(out, '{');
	json_put_text(out, "name", t->name);
	json_put_text(out, "title", t->title);
	json_put_text(out, "description", t->description);
	write_input(out, t);
	write_output(out, t);
	write_hints(out, t->hints);
	json_end(out, '}');
}

void tools_write(struct buf *out, bool admin, scope_set scopes)
{
	struct problem ignored;

	json_begin(out, '[');
	for (size_t i = 0; i < TOOLS_COUNT; i++)
		if (auth_allows(tool_route(&TOOLS[i]), admin, scopes, &ignored) == LAPSE_OK)
			write_tool(out, &TOOLS[i]);
	json_end(out, ']');
}
