/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `lapse mcp`: the daemon's tools for a client that starts a program and talks to it by lines. A
 * bridge and nothing more: each line of standard input is posted to /mcp, each answer becomes a
 * line of standard output, in whatever order they come. Complaints go to standard error.
 *
 * A message of 2026-07-28 says its version and names itself; the headers that HTTP wants are made
 * from it. For older clients the version of the answer to `initialize` is remembered. The end of
 * standard input is the end, once the answers that are under way have come or DRAIN_MS have passed.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/list.h"
#include "cli/client/connect.h"
#include "cli/line/commands.h"

#define LINE_MAX_BYTES ((size_t)10 << 20) /* as the protocol's own SDK has it */
#define ANSWER_MAX_BYTES ((size_t)64 << 20)
#define UNDER_WAY_MAX 64      /* lines posted at once; others wait in the pipe */
#define DRAIN_MS 2000         /* after the end of the input */
#define POST_TIMEOUT_MS 90000 /* a tool may wait for a minute */
#define VERSION_KEY "io.modelcontextprotocol/protocolVersion"
#define INTERNAL_ERROR (-32603)

struct bridge {
	struct cli *cli;
	CURLM *multi;
	struct list under_way; /* struct bridge_post */
	size_t count;
	struct buf line; /* what came of the next one */
	bool ended, broken;
	char version[32]; /* that a client of an older era has agreed on; "" = none yet */
};

struct bridge_post {
	struct list link;
	struct bridge *bridge;
	CURL *easy;
	struct curl_slist *headers;
	json_t *message;
	struct buf body, answer;
};

/* Output */

/* One line, whole, at once: a client reads line by line. */
static void bridge_print(struct bridge *b, const json_t *message)
{
	char *CLEANUP(mem_freep) text = json_dumps(message, JSON_COMPACT | JSON_ENCODE_ANY);

	if (!text || printf("%s\n", text) < 0 || fflush(stdout) != 0)
		b->broken = true;
}

/* An error of our own where the daemon gave no answer. A notification has no id and gets none. */
static void bridge_print_error(struct bridge *b, const json_t *message, const char *why)
{
	json_t *id = json_object_get(message, "id");

	fprintf(stderr, "lapse: %s\n", why);
	if (!id)
		return;
	json_t *CLEANUP(json_freep) answer =
		json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error", "code",
			  INTERNAL_ERROR, "message", why);
	bridge_print(b, answer);
}

/* Posts */

static void bridge_post_free(struct bridge_post *p)
{
	assert(p->bridge->count > 0 && list_is_linked(&p->link));
	list_remove(&p->link);
	p->bridge->count--;
	curl_multi_remove_handle(p->bridge->multi, p->easy);
	curl_easy_cleanup(p->easy);
	curl_slist_free_all(p->headers);
	json_decref(p->message);
	buf_done(&p->body);
	buf_done(&p->answer);
	free(p);
}

static size_t bridge_receive(char *bytes, size_t one, size_t n, void *arg)
{
	struct bridge_post *p = arg;

	(void)one;
	assert(p->answer.len <= ANSWER_MAX_BYTES);
	if (n > ANSWER_MAX_BYTES - p->answer.len)
		return CURL_WRITEFUNC_ERROR;
	buf_add(&p->answer, bytes, n);
	return n;
}

static void bridge_note_version(struct bridge *b, const struct bridge_post *p, const json_t *answer)
{
	const char *method = json_string_value(json_object_get(p->message, "method"));
	const char *version = json_string_value(
		json_object_get(json_object_get(answer, "result"), "protocolVersion"));

	if (method && version && strcmp(method, "initialize") == 0)
		snprintf(b->version, sizeof(b->version), "%s", version);
}

static void bridge_finish(struct bridge_post *p, CURLcode code)
{
	struct bridge *b = p->bridge;
	struct buf CLEANUP(buf_done) why = { 0 };
	long status = 0;

	curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	json_t *CLEANUP(json_freep) answer =
		json_loadb(buf_text(&p->answer), p->answer.len, 0, NULL);
	if (code != CURLE_OK) {
		buf_printf(&why, "no answer from %s: %s", b->cli->client.url,
			   curl_easy_strerror(code));
	} else if (json_object_get(answer, "jsonrpc")) {
		bridge_note_version(b, p, answer);
		bridge_print(b, answer);
	} else if (status != 202) {
		const char *said = json_string_value(
			json_object_get(json_object_get(answer, "error"), "message"));
		buf_printf(&why, "%s answered %ld: %s", b->cli->client.url, status,
			   said ? said : "not like lapsed");
	}
	if (why.len > 0)
		bridge_print_error(b, p->message, buf_text(&why));
	bridge_post_free(p);
}

static void bridge_header(struct bridge_post *p, const char *name, const char *value)
{
	struct buf CLEANUP(buf_done) line = { 0 };

	if (!value || strpbrk(value, "\r\n"))
		return;
	buf_printf(&line, "%s: %s", name, value);
	p->headers = curl_slist_append(p->headers, buf_text(&line));
}

/* What the message itself says, as headers. */
static void bridge_describe(struct bridge_post *p)
{
	const json_t *params = json_object_get(p->message, "params");
	const char *method = json_string_value(json_object_get(p->message, "method"));
	const char *modern =
		json_string_value(json_object_get(json_object_get(params, "_meta"), VERSION_KEY));

	if (!modern) {
		if (p->bridge->version[0])
			bridge_header(p, "MCP-Protocol-Version", p->bridge->version);
		return;
	}
	bridge_header(p, "MCP-Protocol-Version", modern);
	bridge_header(p, "Mcp-Method", method);
	bridge_header(p, "Mcp-Name", json_string_value(json_object_get(params, "name")));
}

static void bridge_set_options(struct bridge_post *p)
{
	const struct cli *cli = p->bridge->cli;
	const struct client *c = &cli->client;
	struct buf CLEANUP(buf_done) url = { 0 };

	buf_printf(&url, "%s/mcp", c->base);
	curl_easy_setopt(p->easy, CURLOPT_URL, buf_text(&url));
	curl_easy_setopt(p->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(p->easy, CURLOPT_PROXY, "");
	if (c->socket)
		curl_easy_setopt(p->easy, CURLOPT_UNIX_SOCKET_PATH, c->socket);
	if (args_has(&cli->args, OPT_CA_FILE))
		curl_easy_setopt(p->easy, CURLOPT_CAINFO, cli->args.text[OPT_CA_FILE]);
	curl_easy_setopt(p->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->body.len);
	curl_easy_setopt(p->easy, CURLOPT_POSTFIELDS, buf_text(&p->body));
	curl_easy_setopt(p->easy, CURLOPT_HTTPHEADER, p->headers);
	curl_easy_setopt(p->easy, CURLOPT_USERAGENT, "lapse/" LAPSE_VERSION);
	curl_easy_setopt(p->easy, CURLOPT_TIMEOUT_MS, (long)POST_TIMEOUT_MS);
	curl_easy_setopt(p->easy, CURLOPT_WRITEFUNCTION, bridge_receive);
	curl_easy_setopt(p->easy, CURLOPT_WRITEDATA, p);
	curl_easy_setopt(p->easy, CURLOPT_PRIVATE, p);
}

/* A client that gives a call up wants no answer: the post is dropped, and with it the call. */
static bool bridge_cancel(struct bridge *b, const json_t *message)
{
	const char *method = json_string_value(json_object_get(message, "method"));
	const json_t *id = json_object_get(json_object_get(message, "params"), "requestId");

	if (!method || strcmp(method, "notifications/cancelled") != 0)
		return false;
	for (struct list *l = b->under_way.next; id && l != &b->under_way; l = l->next) {
		struct bridge_post *p = CONTAINER_OF(l, struct bridge_post, link);
		if (json_equal(json_object_get(p->message, "id"), id)) {
			bridge_post_free(p);
			break;
		}
	}
	return true;
}

static void bridge_send(struct bridge *b, const char *line, size_t n)
{
	const struct request plain = { .body = json_true() }; /* for the headers of any request */
	json_error_t error;
	json_t *message = json_loadb(line, n, 0, &error);

	if (!json_is_object(message) || bridge_cancel(b, message)) {
		if (!json_is_object(message))
			fprintf(stderr, "lapse: a line is no JSON object: %s\n", error.text);
		json_decref(message);
		return;
	}
	struct bridge_post *p = mem_zalloc(1, sizeof(*p));
	p->bridge = b;
	p->message = message;
	buf_add(&p->body, line, n);
	p->headers = request_headers(b->cli, &plain);
	bridge_describe(p);
	p->easy = curl_easy_init();
	bridge_set_options(p);
	list_init(&p->link);
	list_append(&b->under_way, &p->link);
	b->count++;
	curl_multi_add_handle(b->multi, p->easy);
}

/* Input */

static void bridge_take_lines(struct bridge *b)
{
	size_t start = 0;

	for (char *end; b->line.len > start &&
			(end = memchr(b->line.data + start, '\n', b->line.len - start));) {
		size_t n = (size_t)(end - (b->line.data + start));
		if (n > 0 && b->line.data[start + n - 1] == '\r')
			n--;
		if (n > 0)
			bridge_send(b, b->line.data + start, n);
		start = (size_t)(end - b->line.data) + 1;
	}
	memmove(b->line.data, b->line.data + start, b->line.len - start);
	b->line.len -= start;
}

static void bridge_read(struct bridge *b)
{
	char bytes[65536];
	ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		b->ended = true;
		if (b->line.len > 0) /* the last line may have no end */
			buf_putc(&b->line, '\n');
	} else {
		buf_add(&b->line, bytes, (size_t)n);
	}
	if (b->line.len > 0)
		bridge_take_lines(b);
	if (b->line.len > LINE_MAX_BYTES) {
		fprintf(stderr, "lapse: a line of more than %zu bytes\n", LINE_MAX_BYTES);
		b->broken = true;
	}
}

static void bridge_collect(struct bridge *b)
{
	CURLMsg *m;
	int left, running;

	curl_multi_perform(b->multi, &running);
	while ((m = curl_multi_info_read(b->multi, &left))) {
		struct bridge_post *p = NULL;
		if (m->msg != CURLMSG_DONE)
			continue;
		CURLcode code = m->data.result;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p);
		bridge_finish(p, code);
	}
}

static void bridge_run(struct bridge *b)
{
	lapse_us until = LAPSE_NEVER;

	while (!b->broken && clock_mono(b->cli->clock) < until && !(b->ended && b->count == 0)) {
		struct curl_waitfd in = { .fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN };
		bool listens = !b->ended && b->count < UNDER_WAY_MAX;
		curl_multi_poll(b->multi, &in, listens ? 1 : 0, b->ended ? 50 : 1000, NULL);
		if (listens && in.revents)
			bridge_read(b);
		bridge_collect(b);
		if (b->ended && until == LAPSE_NEVER)
			until = clock_mono(b->cli->clock) + (lapse_us)DRAIN_MS * 1000;
	}
}

enum outcome cmd_mcp(struct cli *cli)
{
	struct bridge b = { .cli = cli };
	enum outcome r = client_connect(cli);

	if (r != OUTCOME_OK)
		return r;
	list_init(&b.under_way);
	b.multi = curl_multi_init();
	if (!b.multi)
		return cli_fail(cli, OUTCOME_UNREACHABLE, "libcurl does not start");
	fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
	bridge_run(&b);
	for (struct list *l = b.under_way.next, *next; l != &b.under_way; l = next) {
		next = l->next;
		bridge_post_free(CONTAINER_OF(l, struct bridge_post, link));
	}
	assert(b.count == 0);
	curl_multi_cleanup(b.multi);
	buf_done(&b.line);
	return OUTCOME_OK;
}
