/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/door.h"

#include <assert.h>
#include <string.h>

#include "http/auth.h"
#include "http/reply.h"
#include "http/request.h"
#include "mcp/rpc.h"
#include "mcp/tools.h"

#define MCP_MAGIC 0x4c4d4350u

/* What a request for /mcp is about; in the request's arena. */
struct mcp {
	uint32_t magic;
	json_t *message; /* owns what `rpc` borrows */
	struct rpc rpc;
	const struct tool *tool; /* the call runs as this tool's route; NULL = it does not */
	struct rpc_fault fault;  /* status 0 = none */
};

#define INSTRUCTIONS                                                                               \
	"lapse keeps what agents leave behind, each thing for a lifetime: at its deadline it is "  \
	"removed, unless it was renewed before. Unread messages are never removed. While you "     \
	"work, send a heartbeat every 30 seconds, look into your inbox, and acknowledge what you " \
	"have handled. To talk to agents use send_message; to wait for mail from outside use "     \
	"create_mailbox and wait_for_mail; to work on something alone use acquire_lease; to do "   \
	"something only once use claim_once; to share work use add_work and claim_work; for long " \
	"texts use stage_text. Times are UTC; every answer says when a thing expires."

/* A header's value without the blanks around it; NULL = not sent. */
static const char *header_of(const struct request *r, const char *name)
{
	const char *value = MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);

	if (!value)
		return NULL;
	value += strspn(value, " \t");
	size_t n = strlen(value);
	while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
		n--;
	return arena_strndup((struct arena *)(uintptr_t)&r->call.arena, value, n);
}

static struct mcp *mcp_of(const struct request *r)
{
	struct mcp *m = r->mcp;

	assert(m && m->magic == MCP_MAGIC);
	return m;
}

/* A tool that is called becomes the request's route. */
static void take_tool(struct request *r, struct mcp *m)
{
	const char *name = rpc_param(&m->rpc, "name");
	const json_t *arguments = json_object_get(m->rpc.params, "arguments");
	const struct tool *t = name ? tool_find(name) : NULL;
	struct call *c = &r->call;

	if (!t || (arguments && !json_is_object(arguments))) {
		if (!t)
			rpc_fault_set(&m->fault, 200, RPC_INVALID_PARAMS, "Unknown tool: %.80s",
				      name ? name : "(no name)");
		else
			rpc_fault_set(&m->fault, 200, RPC_INVALID_PARAMS,
				      "arguments must be an object");
		return;
	}
	assert(!m->tool && !c->body);
	m->tool = t;
	r->route = tool_route(t);
	c->body = json_object();
	r->err = auth_allows(r->route, c->admin, c->scopes, &c->problem);
	if (r->err == LAPSE_OK)
		r->err = auth_sees_files(c->engine, r->route, &c->problem);
	if (r->err == LAPSE_OK)
		r->err = tool_bind(t, arguments, c);
}

void mcp_take(struct request *r)
{
	struct mcp *m = arena_alloc(&r->call.arena, sizeof(*m));
	struct rpc_head head = { .version = header_of(r, "MCP-Protocol-Version"),
				 .method = header_of(r, "Mcp-Method"),
				 .name = header_of(r, "Mcp-Name") };

	assert(!r->mcp && r->err == LAPSE_OK);
	*m = (struct mcp){ .magic = MCP_MAGIC, .message = r->call.body };
	r->call.body = NULL;
	r->mcp = m;
	if (rpc_read(m->message, &head, &m->rpc, &m->fault) == LAPSE_OK &&
	    m->rpc.kind == RPC_REQUEST && strcmp(m->rpc.method, "tools/call") == 0)
		take_tool(r, m);
}

void mcp_release(struct request *r)
{
	if (!r->mcp)
		return;
	json_decref(mcp_of(r)->message);
	r->mcp = NULL;
}

/* Answers that need no room. */

static void write_server(struct buf *out, const char *key)
{
	json_key(out, key);
	json_begin(out, '{');
	json_put_text(out, "name", "lapse");
	json_put_text(out, "version", LAPSE_VERSION);
	json_end(out, '}');
}

static void answer_initialize(struct call *c, const struct mcp *m)
{
	rpc_begin_result(&c->reply, &m->rpc);
	json_put_text(&c->reply, "protocolVersion",
		      rpc_negotiate(rpc_param(&m->rpc, "protocolVersion")));
	json_put_raw(&c->reply, "capabilities", "{\"tools\":{}}");
	write_server(&c->reply, "serverInfo");
	json_put_text(&c->reply, "instructions", INSTRUCTIONS);
	rpc_end_result(&c->reply);
}

static void answer_ping(struct call *c, const struct mcp *m)
{
	rpc_begin_result(&c->reply, &m->rpc);
	rpc_end_result(&c->reply);
}

/* A list may differ from token to token, and a token's rights may change at any time. */
static void put_cacheable(struct buf *out)
{
	json_put_int(out, "ttlMs", 0);
	json_put_text(out, "cacheScope", "private");
}

static void put_meta(struct buf *out)
{
	json_key(out, "_meta");
	json_begin(out, '{');
	write_server(out, "io.modelcontextprotocol/serverInfo");
	json_end(out, '}');
}

static void answer_discover(struct call *c, const struct mcp *m)
{
	rpc_begin_result(&c->reply, &m->rpc);
	json_put_raw(&c->reply, "supportedVersions", "[\"" RPC_MODERN "\"]");
	json_put_raw(&c->reply, "capabilities", "{\"tools\":{}}");
	put_cacheable(&c->reply);
	json_put_text(&c->reply, "instructions", INSTRUCTIONS);
	put_meta(&c->reply);
	rpc_end_result(&c->reply);
}

static void answer_list(struct call *c, const struct mcp *m)
{
	rpc_begin_result(&c->reply, &m->rpc);
	json_key(&c->reply, "tools");
	tools_write(&c->reply, c->admin, c->scopes);
	if (m->rpc.modern) {
		put_cacheable(&c->reply);
		put_meta(&c->reply);
	}
	rpc_end_result(&c->reply);
}

static const struct mcp_method {
	const char *name;
	bool legacy, modern;
	void (*answer)(struct call *c, const struct mcp *m);
} METHODS[] = {
	{ "initialize", true, false, answer_initialize },
	{ "ping", true, false, answer_ping },
	{ "server/discover", false, true, answer_discover },
	{ "tools/list", true, true, answer_list },
};

static const struct mcp_method *method_find(const struct rpc *rpc)
{
	for (size_t i = 0; i < ARRAY_LEN(METHODS); i++)
		if (strcmp(METHODS[i].name, rpc->method) == 0 &&
		    (rpc->modern ? METHODS[i].modern : METHODS[i].legacy))
			return &METHODS[i];
	return NULL;
}

int mcp_api_post(struct call *c)
{
	struct mcp *m = mcp_of(request_of_call(c));
	const struct mcp_method *method = NULL;

	assert(!m->tool);
	if (m->fault.status == 0 && m->rpc.kind == RPC_NOTIFICATION) {
		c->status = 202;
		return LAPSE_OK;
	}
	if (m->fault.status == 0) {
		method = method_find(&m->rpc);
		if (!method)
			rpc_fault_set(&m->fault, m->rpc.modern ? 404 : 200, RPC_NO_METHOD,
				      "Method not found: %.80s", m->rpc.method);
	}
	if (method) {
		method->answer(c, m);
		return LAPSE_OK;
	}
	c->status = m->fault.status;
	rpc_write_fault(&c->reply, m->rpc.id, &m->fault);
	return LAPSE_OK;
}

/* The frame around a tool's answer. */

static void write_content(struct buf *out, const char *text)
{
	json_key(out, "content");
	json_begin(out, '[');
	json_begin(out, '{');
	json_put_text(out, "type", "text");
	json_put_text(out, "text", text);
	json_end(out, '}');
	json_end(out, ']');
}

/* What a model should do about an error, by the code that it sees. */
static const struct {
	const char *code, *next;
} NEXT_STEPS[] = {
	{ "invalid_request", "Correct the argument and call the tool again." },
	{ "forbidden", "Do not try again; ask the operator for a token that allows it." },
	{ "not_found", "Check the name or id; if it was right, its lifetime is over." },
	{ "conflict",
	  "Do not repeat it as it is: another agent was first, or the state has changed. "
	  "Look at the current state, then decide." },
	{ "expired", "Its lifetime is over and cannot be renewed. Make a new one." },
	{ "too_large", "Send less: store a long text with stage_text and send its checksum." },
	{ "limit_reached",
	  "Wait a few seconds and try again, or clear up: read, acknowledge or delete." },
	{ "upstream_error", "The mail server failed. Try again in a minute." },
	{ "unavailable", "Try again in a few seconds." },
};

static const char *next_step(const char *code)
{
	for (size_t i = 0; i < ARRAY_LEN(NEXT_STEPS); i++)
		if (strcmp(NEXT_STEPS[i].code, code) == 0)
			return NEXT_STEPS[i].next;
	return "Tell the operator.";
}

/* A tool that failed tells the model what was wrong, and what to do next. */
static void wrap_error(struct buf *out, const struct request *r)
{
	struct buf CLEANUP(buf_done) text = { 0 };
	const char *code = http_code_of((enum lapse_error)r->err);

	buf_printf(&text, "%s: %s. %s", code,
		   problem_text(&r->call.problem, (enum lapse_error)r->err), next_step(code));
	write_content(out, buf_text(&text));
	json_put_bool(out, "isError", true);
}

static void wrap_answer(struct buf *out, const struct request *r)
{
	const char *answer = r->call.plain_ok ? CALL_OK_TEXT : buf_text(&r->call.reply);

	write_content(out, answer);
	json_put_raw(out, "structuredContent", answer);
}

static void frame_tool(struct request *r, const struct mcp *m)
{
	struct buf out = { 0 };

	rpc_begin_result(&out, &m->rpc);
	if (r->err < 0)
		wrap_error(&out, r);
	else
		wrap_answer(&out, r);
	rpc_end_result(&out);
	buf_done(&r->call.reply);
	r->call.reply = out;
	r->call.status = 200;
	r->call.plain_ok = false;
	r->err = LAPSE_OK;
}

/* A body that is no JSON object, too large, or of another type. Who may call and whether the daemon
 * can answer at all are matters of HTTP, and stay so. */
static void frame_bad_body(struct request *r)
{
	struct rpc_fault fault;
	int status = http_status_of((enum lapse_error)r->err);

	if (r->err != LAPSE_EINVAL && r->err != LAPSE_EMEDIATYPE && r->err != LAPSE_ETOOLARGE)
		return;
	rpc_fault_set(&fault, status, r->err == LAPSE_EINVAL ? RPC_PARSE : RPC_INVALID_REQUEST,
		      "%s", problem_text(&r->call.problem, (enum lapse_error)r->err));
	buf_done(&r->call.reply);
	rpc_write_fault(&r->call.reply, NULL, &fault);
	r->call.status = status;
	r->err = LAPSE_OK;
}

void mcp_frame(struct request *r)
{
	if (r->mcp && mcp_of(r)->tool)
		frame_tool(r, mcp_of(r));
	else if (!r->mcp && r->err < 0 && r->route && r->route->handler == mcp_api_post)
		frame_bad_body(r);
}
