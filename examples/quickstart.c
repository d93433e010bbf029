/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lapse from C, over HTTP with libcurl and jansson. To have it inside your own process instead, see
 * embed.c.
 *
 *	cc quickstart.c -lcurl -ljansson -o quickstart
 *	quickstart heartbeat AGENT CLUSTER    stay alive until Ctrl-C, then say goodbye
 *	quickstart work AGENT                 claim messages, do the work, mark them read
 *	quickstart follow                     print events, across restarts of the daemon
 *	quickstart lease TABLE KEY HOLDER     hold a lease until Ctrl-C, then give it back
 */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stopping;

static void stop(int number)
{
	(void)number;
	stopping = 1;
}

struct text {
	char *data;
	size_t n;
};

static size_t collect(char *data, size_t size, size_t n, void *arg)
{
	struct text *t = arg;
	char *more = realloc(t->data, t->n + size * n + 1);

	if (!more)
		return 0;
	t->data = more;
	memcpy(more + t->n, data, size * n);
	t->n += size * n;
	more[t->n] = '\0';
	return size * n;
}

static CURL *prepare(const char *path, struct curl_slist **headers)
{
	const char *base = getenv("LAPSE_URL"), *token = getenv("LAPSE_TOKEN");
	char url[1024], line[512];
	CURL *c = curl_easy_init();

	if (!c)
		exit(1);
	snprintf(url, sizeof(url), "%s%s", base ? base : "http://127.0.0.1:7878", path);
	curl_easy_setopt(c, CURLOPT_URL, url);
	if (token) {
		snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
		*headers = curl_slist_append(*headers, line);
	}
	return c;
}

/* The JSON of the answer, or NULL: the reason has been printed. Takes the reference of `body`. */
static json_t *lapse(const char *method, const char *path, json_t *body)
{
	struct curl_slist *headers = NULL;
	struct text answer = { 0 };
	CURL *c = prepare(path, &headers);
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	long status = 0;

	json_decref(body);
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
	if (text) {
		headers = curl_slist_append(headers, "Content-Type: application/json");
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, text);
	}
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_TIMEOUT, 60L);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, &answer);

	CURLcode failed = curl_easy_perform(c);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	if (failed)
		fprintf(stderr, "%s\n", curl_easy_strerror(failed));
	else if (status >= 300)
		fprintf(stderr, "%ld %s\n", status, answer.data);
	json_t *json =
		!failed && status < 300 && answer.data ? json_loads(answer.data, 0, NULL) : NULL;
	free(answer.data);
	free(text);
	curl_slist_free_all(headers);
	curl_easy_cleanup(c);
	return json;
}

/* "/v1/agents/NAME" and what follows; the name is percent-encoded. */
static const char *path_of(const char *agent, const char *rest)
{
	static char path[1024];
	char *name = curl_easy_escape(NULL, agent, 0);

	snprintf(path, sizeof(path), "/v1/agents/%s%s", name ? name : "", rest);
	curl_free(name);
	return path;
}

static double rest_s(void)
{
	const char *every = getenv("BEAT_S");

	return every ? atof(every) : 30;
}

/* An agent that is silent for 90 s is evicted: beat three times as often. */
static void heartbeat(const char *agent, const char *cluster)
{
	while (!stopping) {
		json_decref(lapse(
			"POST", path_of(agent, "/heartbeat"),
			json_pack("{s:s, s:[s]}", "cluster_id", cluster, "capabilities", "c")));
		usleep((useconds_t)(rest_s() * 1e6)); /* a signal ends it */
	}
	json_decref(lapse("DELETE", path_of(agent, ""), NULL));
}

static void do_work(const char *agent, const char *claim, const json_t *message)
{
	char rest[128];

	printf("working on: %s\n", json_string_value(json_object_get(message, "content")));
	fflush(stdout);
	snprintf(rest, sizeof(rest), "/messages/%s/read",
		 json_string_value(json_object_get(message, "id")));
	json_decref(lapse("POST", path_of(agent, rest), json_pack("{s:s}", "claim_id", claim)));
}

/* What is not marked read when its lease ends is offered again: do work that may be done twice. */
static void work(const char *agent)
{
	while (!stopping) {
		json_t *claim = lapse("POST", path_of(agent, "/messages/claim"),
				      json_pack("{s:i, s:i, s:i}", "limit", 1, "visibility_ms",
						30000, "wait_ms", 20000));
		size_t i;
		json_t *message;
		if (!claim)
			sleep(1);
		json_array_foreach (json_object_get(claim, "data"), i, message)
			do_work(agent, json_string_value(json_object_get(claim, "claim_id")),
				message);
		json_decref(claim);
	}
}

struct follower {
	struct text rest; /* of a line that is not whole yet */
	char last[64], kind[64];
};

static void take_line(struct follower *f, const char *line)
{
	if (strncmp(line, "id: ", 4) == 0)
		snprintf(f->last, sizeof(f->last), "%s", line + 4);
	else if (strncmp(line, "event: ", 7) == 0)
		snprintf(f->kind, sizeof(f->kind), "%s", line + 7);
	else if (strncmp(line, "data: ", 6) == 0)
		printf("%s %s %s\n", f->last, f->kind, line + 6);
	fflush(stdout);
}

static size_t take(char *data, size_t size, size_t n, void *arg)
{
	struct follower *f = arg;
	char *end;

	if (stopping || collect(data, size, n, &f->rest) != size * n)
		return 0;
	while ((end = memchr(f->rest.data, '\n', f->rest.n))) {
		*end = '\0';
		take_line(f, f->rest.data);
		f->rest.n -= (size_t)(end + 1 - f->rest.data);
		memmove(f->rest.data, end + 1, f->rest.n);
	}
	return size * n;
}

/* Server-sent events: the last id says where to go on after a break. */
static void follow(void)
{
	struct follower f = { 0 };

	while (!stopping) {
		struct curl_slist *headers = NULL;
		CURL *c = prepare("/v1/events", &headers);
		char line[128];
		snprintf(line, sizeof(line), "Last-Event-ID: %s", f.last);
		if (f.last[0])
			headers = curl_slist_append(headers, line);
		curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
		curl_easy_setopt(c, CURLOPT_WRITEDATA, &f);
		curl_easy_perform(c);
		curl_slist_free_all(headers);
		curl_easy_cleanup(c);
		f.rest.n = 0;
		sleep(2);
	}
	free(f.rest.data);
}

/* The fencing token of the lease, or 0: another holder has it, or the daemon is away. */
static json_int_t take_lease(const char *path, const char *holder)
{
	json_t *lease =
		lapse("PUT", path, json_pack("{s:s, s:i}", "holder", holder, "ttl_ms", 10000));
	json_int_t token = json_integer_value(json_object_get(lease, "fencing_token"));

	json_decref(lease);
	return token;
}

/* Give the fencing token with every write: storage that refuses smaller ones is safe from a late
 * holder. */
static int hold_lease(const char *table, const char *key, const char *holder)
{
	char path[512], release[1024];
	json_int_t token, now;

	snprintf(path, sizeof(path), "/v1/leases/%s/%s", table, key);
	while ((token = take_lease(path, holder)) == 0 && !stopping)
		sleep(1);
	if (token == 0)
		return 0;
	printf("holding %s with fencing token %" JSON_INTEGER_FORMAT "\n", key, token);
	fflush(stdout);
	for (now = token; now == token && !stopping;
	     now = stopping ? now : take_lease(path, holder))
		usleep((useconds_t)(rest_s() * 1e5)); /* a signal ends it */
	if (now != token) {
		fputs("the lease is lost: stop writing\n", stderr);
		return 1;
	}
	snprintf(release, sizeof(release), "%s?holder=%s&fencing_token=%" JSON_INTEGER_FORMAT, path,
		 holder, token);
	json_decref(lapse("DELETE", release, NULL));
	return 0;
}

int main(int argc, char **argv)
{
	int status = 0;
	struct sigaction action = { .sa_handler = stop };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	if (argc == 4 && strcmp(argv[1], "heartbeat") == 0) {
		heartbeat(argv[2], argv[3]);
	} else if (argc == 3 && strcmp(argv[1], "work") == 0) {
		work(argv[2]);
	} else if (argc == 2 && strcmp(argv[1], "follow") == 0) {
		follow();
	} else if (argc == 5 && strcmp(argv[1], "lease") == 0) {
		status = hold_lease(argv[2], argv[3], argv[4]);
	} else {
		fputs("usage: quickstart heartbeat AGENT CLUSTER | work AGENT | follow | "
		      "lease TABLE KEY HOLDER\n",
		      stderr);
		return 2;
	}
	curl_global_cleanup();
	return status;
}
