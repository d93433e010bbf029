/* SPDX-License-Identifier: Apache-2.0 */
/* The addressing half of the client: URL and token, and transfers that did not come through. */
#include "cli/client/connect.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "cli/cli.h"

#define TOKEN_MAX_BYTES 4096 /* far above any token; keeps a wrong --token-file out of memory */

/* "127.0.0.1:7878", "[::1]:7878", "localhost:7878": what `lapsed --listen` takes. */
static bool is_host_and_port(const char *text)
{
	const char *colon = strrchr(text, ':');

	if (!colon || colon == text || strpbrk(text, "/?#@ ") || !colon[1])
		return false;
	if (text[0] != '[' && memchr(text, ':', (size_t)(colon - text)))
		return false;
	return strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

static enum outcome take_url(struct cli *cli)
{
	struct client *c = &cli->client;
	const char *url = cli->args.text[OPT_URL];

	if (!url)
		url = getenv("LAPSE_URL");
	c->url = url && url[0] ? url : DEFAULT_URL;
	if (strncmp(c->url, "unix:", 5) == 0 && c->url[5]) {
		c->socket = c->url + 5;
		c->base = "http://localhost";
		return OUTCOME_OK;
	}
	bool has_scheme = strncmp(c->url, "http://", 7) == 0 || strncmp(c->url, "https://", 8) == 0;
	if (!has_scheme && !is_host_and_port(c->url))
		return cli_usage(cli,
				 "'%s' is no URL: it must be HOST:PORT, http://HOST:PORT, "
				 "https://HOST:PORT or unix:PATH",
				 c->url);
	if (!has_scheme)
		c->url = arena_printf(&cli->arena, "http://%s", c->url);
	size_t n = strlen(c->url);
	while (c->url[n - 1] == '/')
		n--;
	c->base = arena_strndup(&cli->arena, c->url, n);
	return OUTCOME_OK;
}

/* A token goes into a header line: anything but visible ASCII is a mistake or an attack. */
static bool token_is_valid(const char *s)
{
	for (const char *c = s; *c; c++)
		if (*c <= ' ' || *c > '~')
			return false;
	return s[0] != '\0';
}

static enum outcome read_token_file(struct cli *cli, const char *path)
{
	char text[TOKEN_MAX_BYTES + 2];
	FILE *f = fopen(path, "re");

	if (!f)
		return cli_fail(cli, OUTCOME_USAGE, "cannot read the token from %s: %s", path,
				strerror(errno));
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	text[n] = '\0';
	if (strlen(text) != n || n > TOKEN_MAX_BYTES || !token_is_valid(text))
		return cli_fail(cli, OUTCOME_USAGE, "%s does not hold a token", path);
	assert(!cli->client.token);
	cli->client.token = mem_strdup(text);
	return OUTCOME_OK;
}

static enum outcome take_token(struct cli *cli)
{
	const char *variable = getenv("LAPSE_TOKEN");

	if (args_has(&cli->args, OPT_TOKEN_FILE))
		return read_token_file(cli, cli->args.text[OPT_TOKEN_FILE]);
	if (!variable || !variable[0])
		return OUTCOME_OK;
	if (!token_is_valid(variable))
		return cli_fail(cli, OUTCOME_USAGE, "LAPSE_TOKEN does not hold a token");
	assert(!cli->client.token);
	cli->client.token = mem_strdup(variable);
	return OUTCOME_OK;
}

static enum outcome check_owner(const struct cli *cli)
{
	const char *why;

	if (args_has(&cli->args, OPT_OWNER) && !id_is_valid(cli->args.text[OPT_OWNER], &why))
		return cli_usage(cli, "--owner %s", why);
	return OUTCOME_OK;
}

enum outcome client_connect(struct cli *cli)
{
	struct client *c = &cli->client;

	if (c->curl)
		return OUTCOME_OK;
	enum outcome r = take_url(cli);
	if (r == OUTCOME_OK)
		r = take_token(cli);
	if (r == OUTCOME_OK)
		r = check_owner(cli);
	if (r != OUTCOME_OK)
		return r;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(c->curl = curl_easy_init()))
		return cli_fail(cli, OUTCOME_UNREACHABLE, "libcurl does not start");
	assert(c->url && c->base);
	return OUTCOME_OK;
}

void client_done(struct client *client)
{
	if (client->token)
		explicit_bzero(client->token, strlen(client->token));
	free(client->token);
	client->token = NULL;
	if (client->curl) {
		curl_easy_cleanup(client->curl);
		curl_global_cleanup();
	}
	client->curl = NULL;
}

static enum outcome explain_no_daemon(const struct cli *cli)
{
	char why[128];
	long number = 0;

	curl_easy_getinfo(cli->client.curl, CURLINFO_OS_ERRNO, &number);
	snprintf(why, sizeof(why), "%s", number ? strerror((int)number) : "cannot connect");
	why[0] = (char)tolower((unsigned char)why[0]);
	return cli_fail(cli, OUTCOME_UNREACHABLE,
			"no daemon at %s (%s). Start one with: lapsed --data-dir DIR",
			cli->client.url, why);
}

enum outcome client_explain(const struct cli *cli, CURLcode code)
{
	const struct client *c = &cli->client;

	assert(c->curl && code != CURLE_OK);
	if (code == CURLE_COULDNT_CONNECT)
		return explain_no_daemon(cli);
	if (code == CURLE_WRITE_ERROR)
		return cli_fail(cli, OUTCOME_UNREACHABLE, "the answer of %s is too large", c->url);
	if (code == CURLE_ABORTED_BY_CALLBACK)
		return cli_fail(cli, OUTCOME_UNREACHABLE, "%s has gone silent", c->url);
	if (code == CURLE_URL_MALFORMAT)
		return cli_usage(cli, "'%s' is no URL", c->url);
	return cli_fail(cli, OUTCOME_UNREACHABLE, "no answer from %s: %s", c->url,
			c->reason[0] ? c->reason : curl_easy_strerror(code));
}
