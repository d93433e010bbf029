/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the daemon over libcurl: one transfer, its retry, and what its answer means. */
#include "cli/client/client.h"

#include <assert.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client/connect.h"
#include "cli/client/words.h"

#define CONNECT_TIMEOUT_MS 10000L
#define CALL_TIMEOUT_MS 60000
#define ANSWER_MAX_BYTES (1u << 30) /* a page of the largest messages, all escaped, and no more */
#define ATTEMPTS 2
#define LONG_BUFFER_BYTES                                                                          \
	(256 * 1024L) /* of a long body or answer: fewer calls, and still flat                     \
		       */

/* One transfer, for the functions curl calls. */
struct transfer {
	CURL *curl;
	const struct request *request;
	struct answer *answer;
	const struct clock *clock;
	lapse_us heard;  /* when something came, or went out */
	curl_off_t sent; /* of the source, at that time */
	bool has_begun;  /* the stream knows what it gets */
	bool ended;      /* by a function of the stream, or its source failed */
};

static bool is_wanted(const char *wanted, const char *type)
{
	return strcmp(wanted, "*/*") == 0 ||
	       (type && strncasecmp(type, wanted, strlen(wanted)) == 0);
}

/* Whether what comes is the stream that was asked for; an error or a stranger's page is gathered.
 */
static bool is_stream(const struct transfer *t)
{
	const char *type = NULL;
	long status = 0;

	if (!t->request->stream)
		return false;
	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(t->curl, CURLINFO_CONTENT_TYPE, &type);
	return (status == 200 || status == 206) && is_wanted(t->request->accept, type);
}

static bool begin_stream(struct transfer *t)
{
	const struct stream *s = t->request->stream;
	struct curl_header *range = NULL;
	long status = 0;

	assert(s && s->take && s->tick);
	if (t->has_begun || !s->begin)
		return true;
	t->has_begun = true;
	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_header(t->curl, "Content-Range", 0, CURLH_HEADER, -1, &range);
	return s->begin(s->arg, status, range ? range->value : NULL);
}

static size_t transfer_receive(char *bytes, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	struct buf *text = &t->answer->text;

	t->heard = clock_mono(t->clock);
	if (is_stream(t)) {
		const struct stream *s = t->request->stream;
		t->ended = !begin_stream(t) || !s->take(s->arg, bytes, size * n);
		return t->ended ? 0 : size * n;
	}
	if (text->len + size * n > ANSWER_MAX_BYTES)
		return 0;
	buf_add(text, bytes, size * n);
	return size * n;
}

static lapse_ms timeout_of(const struct request *request)
{
	return request->timeout_ms ? request->timeout_ms : CALL_TIMEOUT_MS;
}

static int transfer_tick(void *arg, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
			 curl_off_t up)
{
	struct transfer *t = arg;

	(void)down_total, (void)down, (void)up_total;
	if (t->request->source) {
		if (up != t->sent)
			t->heard = clock_mono(t->clock);
		t->sent = up;
		t->request->source->tick(t->request->source->arg, up);
	}
	if (is_stream(t) && !t->request->stream->tick(t->request->stream->arg))
		t->ended = true;
	return t->ended || clock_mono(t->clock) - t->heard > timeout_of(t->request) * 1000;
}

static size_t transfer_give(char *room, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	const struct source *s = t->request->source;

	size_t got = s->give(s->arg, room, size * n);
	assert(got == SOURCE_FAILED || got <= size * n);
	/* Reading the source may take long: that is not silence of the server. */
	t->heard = clock_mono(t->clock);
	if (got != SOURCE_FAILED)
		return got;
	t->ended = true;
	return CURL_READFUNC_ABORT;
}

/* For a connection that was kept open and turns out to be closed. */
static int transfer_seek(void *arg, curl_off_t offset, int origin)
{
	struct transfer *t = arg;
	const struct source *s = t->request->source;

	if (offset != 0 || origin != SEEK_SET || !s->rewind(s->arg))
		return CURL_SEEKFUNC_CANTSEEK;
	return CURL_SEEKFUNC_OK;
}

void answer_done(struct answer *answer)
{
	buf_done(&answer->text);
	json_decref(answer->json);
	answer->json = NULL;
}

static void freep_headers(struct curl_slist **headers)
{
	curl_slist_free_all(*headers);
}

static void set_body(CURL *curl, const struct request *request, const char *body)
{
	if (request->source) {
		curl_easy_setopt(curl, CURLOPT_POST, 1L);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)request->source->size);
		curl_easy_setopt(curl, CURLOPT_READFUNCTION, transfer_give);
		curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, transfer_seek);
		curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, LONG_BUFFER_BYTES);
		/* A connection that was kept may be closed; there is no second try without an
		 * end to count from. */
		curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, request->source->size < 0 ? 1L : 0L);
	} else if (body || strcmp(request->method, "POST") == 0) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)(body ? strlen(body) : 0));
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body ? body : "");
	}
}

static void set_options(struct cli *cli, const struct request *request, const char *url,
			const char *body, struct curl_slist *headers)
{
	struct client *c = &cli->client;

	curl_easy_reset(c->curl);
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	curl_easy_setopt(c->curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	/* A proxy of the environment is meant for the web, not for a daemon next door. */
	curl_easy_setopt(c->curl, CURLOPT_PROXY, "");
	if (c->socket)
		curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, c->socket);
	if (args_has(&cli->args, OPT_CA_FILE))
		curl_easy_setopt(c->curl, CURLOPT_CAINFO, cli->args.text[OPT_CA_FILE]);
	set_body(c->curl, request, body);
	curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, request->method);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c->curl, CURLOPT_USERAGENT, "lapse/" LAPSE_VERSION);
	curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
	if (request->stream || request->source) {
		curl_easy_setopt(c->curl, CURLOPT_BUFFERSIZE, LONG_BUFFER_BYTES);
		curl_easy_setopt(c->curl, CURLOPT_NOPROGRESS, 0L);
		curl_easy_setopt(c->curl, CURLOPT_XFERINFOFUNCTION, transfer_tick);
	} else {
		curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)timeout_of(request));
	}
	curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->reason);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, transfer_receive);
}

/* Whether the request may have reached the daemon and its answer was lost. */
static bool is_broken(CURLcode code)
{
	return code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
	       code == CURLE_PARTIAL_FILE;
}

static CURLcode transfer_perform(struct cli *cli, const struct request *request, struct answer *ret)
{
	struct client *c = &cli->client;
	bool harmless = request->creates || request->repeatable ||
			strcmp(request->method, "GET") == 0 || strcmp(request->method, "PUT") == 0;
	const struct source *source = request->source;
	int attempts = harmless && !request->stream ? ATTEMPTS : 1;
	CURLcode code = CURLE_OK;

	assert(c->curl && !(request->source && request->body));
	for (int attempt = 0; attempt < attempts; attempt++) {
		struct transfer t = { .curl = c->curl,
				      .request = request,
				      .answer = ret,
				      .clock = cli->clock,
				      .heard = clock_mono(cli->clock) };
		if (source && attempt > 0 && !source->rewind(source->arg))
			break;
		answer_done(ret);
		c->reason[0] = '\0';
		curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &t);
		curl_easy_setopt(c->curl, CURLOPT_XFERINFODATA, &t);
		curl_easy_setopt(c->curl, CURLOPT_READDATA, &t);
		curl_easy_setopt(c->curl, CURLOPT_SEEKDATA, &t);
		code = curl_easy_perform(c->curl);
		if (t.ended)
			code = source ? CURLE_READ_ERROR : CURLE_OK;
		if (!is_broken(code))
			break;
	}
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &ret->status);
	return code;
}

/* The answer is not the daemon's: a proxy that has lost its daemon, or another server. */
static enum outcome explain_stranger(const struct cli *cli, long status, const char *missing)
{
	enum outcome how = outcome_of_status(status);

	return cli_fail(cli, how == OUTCOME_OK ? OUTCOME_UNREACHABLE : how,
			"%s does not answer like lapsed (HTTP %ld, no %s)", cli->client.url, status,
			missing);
}

static enum outcome read_answer(const struct cli *cli, const struct request *request,
				struct answer *ret)
{
	bool good = outcome_of_status(ret->status) == OUTCOME_OK;

	if (good && request->stream && ret->text.len > 0)
		return explain_stranger(cli, ret->status, request->accept);
	if (good && request->accept)
		return OUTCOME_OK;
	ret->json = json_loadb(buf_text(&ret->text), ret->text.len, JSON_ALLOW_NUL, NULL);
	return json_is_object(ret->json) ? OUTCOME_OK
					 : explain_stranger(cli, ret->status, "JSON object");
}

static enum outcome send_call(struct cli *cli, const struct request *request, struct answer *ret)
{
	struct buf CLEANUP(buf_done) url = { 0 };
	char *CLEANUP(mem_freep) body = NULL;

	assert(request->method && request->path[0] == '/');
	enum outcome r = request_url(cli, request, &url);
	if (r != OUTCOME_OK)
		return r;
	if (request->body)
		body = json_dumps(request->body, JSON_COMPACT);
	struct curl_slist *CLEANUP(freep_headers) headers = request_headers(cli, request);
	set_options(cli, request, buf_text(&url), body, headers);
	CURLcode code = transfer_perform(cli, request, ret);
	/* The source has said why. */
	if (code == CURLE_READ_ERROR)
		return OUTCOME_USAGE;
	if (code != CURLE_OK)
		return client_explain(cli, code);
	return read_answer(cli, request, ret);
}

enum outcome client_refused(const struct cli *cli, const struct answer *a)
{
	enum outcome how = outcome_of_status(a->status);
	const char *text =
		json_string_value(json_object_get(json_object_get(a->json, "error"), "message"));
	assert(how != OUTCOME_OK);

	struct buf CLEANUP(buf_done) words = { 0 };

	if (!text)
		return cli_fail(cli, how, "the daemon answers HTTP %ld", a->status);
	words_of_flags(cli, text, &words);
	text = buf_text(&words);
	if (a->status == 401 && !cli->client.token)
		return cli_fail(cli, how, "%s (set LAPSE_TOKEN or give --token-file)", text);
	return cli_fail(cli, how, "%s", text);
}

enum outcome client_call(struct cli *cli, const struct request *request, struct answer *ret)
{
	struct answer CLEANUP(answer_done) answer = { 0 };

	enum outcome r = client_connect(cli);
	if (r == OUTCOME_OK)
		r = send_call(cli, request, &answer);
	if (r != OUTCOME_OK)
		return r;
	if (outcome_of_status(answer.status) != OUTCOME_OK && !request->any_status)
		return client_refused(cli, &answer);
	*ret = answer;
	answer = (struct answer){ 0 };
	return OUTCOME_OK;
}
