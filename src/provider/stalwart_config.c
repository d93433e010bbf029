/* SPDX-License-Identifier: Apache-2.0 */
/* Where the server is and who we are to it. */
#include <arpa/inet.h>
#include <assert.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/secret.h"
#include "provider/stalwart.h"
#include "provider/stalwart_job.h"

#define CREDENTIALS_MAX_BYTES 1024
#define CREDENTIALS_NAME "stalwart_credentials"
/* Parsed for each new connection, on the loop: room for some forty certificates, where one or two
 * are needed, and not for a whole system's. */
#define AUTHORITIES_MAX_BYTES 65536

/* URL */

static int bad_url(struct problem *p, const char *what)
{
	return problem_set(p, LAPSE_EINVAL, "stalwart_url", "stalwart_url: %s", what);
}

static bool is_loopback(const char *host)
{
	struct in_addr v4;

	if (strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
		return true;
	return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

/* The host of "host", "host:port", "[v6]" or "[v6]:port"; false when it is none of these. */
static bool take_host(const char *authority, char *host, size_t size)
{
	size_t n = authority[0] == '[' ? strcspn(authority, "]") + 1 : strcspn(authority, ":");
	const char *port = authority + n;

	if (n > strlen(authority) || n < 1 || n >= size)
		return false;
	snprintf(host, size, "%.*s", (int)n, authority);
	if (host[0] == '[') {
		struct in6_addr v6;
		char inner[64];
		snprintf(inner, sizeof(inner), "%.*s", (int)(n - 2), host + 1);
		if (inet_pton(AF_INET6, inner, &v6) != 1)
			return false;
	} else if (host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789.-")] != '\0') {
		return false;
	}
	if (port[0] == '\0')
		return true;
	size_t digits = strspn(port + 1, "0123456789");
	return port[0] == ':' && digits > 0 && digits <= 5 && port[1 + digits] == '\0' &&
	       atoi(port + 1) > 0 && atoi(port + 1) <= 65535;
}

int stalwart_check_url(const char *url, char out[ORIGIN_MAX], struct problem *p)
{
	bool tls = strncmp(url, "https://", 8) == 0;
	const char *authority = url + (tls ? 8 : 7);
	char host[300], origin[ORIGIN_MAX];

	if (url[0] == '\0')
		return bad_url(p, "is needed with mailbox_provider stalwart, like "
				  "https://mail.example.org");
	if (!tls && strncmp(url, "http://", 7) != 0)
		return bad_url(p, "must begin with https:// (or http:// on this machine)");
	size_t n = strcspn(authority, "/?#");
	if (authority[n] != '\0' && strcmp(authority + n, "/") != 0)
		return bad_url(p, "must be scheme, host and port only, without path and query");
	if (memchr(authority, '@', n))
		return bad_url(p, "must not hold a user: that is what stalwart_credentials is for");
	if ((size_t)(authority - url) + n >= sizeof(origin))
		return bad_url(p, "is too long");
	snprintf(origin, sizeof(origin), "%.*s", (int)((size_t)(authority - url) + n), url);
	if (!take_host(origin + (authority - url), host, sizeof(host)))
		return bad_url(p, "must be HOST or HOST:PORT after the scheme");
	if (!tls && !is_loopback(host))
		return bad_url(p, "would send credentials in the clear: use https:// for every "
				  "host but this one");
	assert(strlen(origin) < ORIGIN_MAX);
	memcpy(out, origin, sizeof(origin));
	return LAPSE_OK;
}

/* Credentials */

static int bad_credentials(struct problem *p, const char *what)
{
	return problem_set(p, LAPSE_EINVAL, "stalwart_credentials", "stalwart_credentials: %s",
			   what);
}

/* user:password is Basic, anything else a key. */
static int put_auth_header(const char *text, struct buf *out, struct problem *p)
{
	const char *colon = strchr(text, ':');

	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return bad_credentials(p, "must not hold control characters");
	if (colon && colon != text && colon[1] != '\0') {
		put_basic(out, text);
		return LAPSE_OK;
	}
	if (colon || strncmp(text, "api_", 4) != 0 || strchr(text, ' '))
		return bad_credentials(p, "must be user:password or an API key (api_…)");
	buf_reserve(out, strlen(text) + 16);
	buf_printf(out, "Bearer %s", text);
	return LAPSE_OK;
}

static int read_credentials(const char *path, struct buf *out, struct problem *p)
{
	struct problem inner = { 0 };
	int r = secret_read_file(path, SECRET_MAY_LINK, CREDENTIALS_MAX_BYTES, out, &inner);

	if (r < 0)
		return problem_set(p, LAPSE_EINVAL, "stalwart_credentials",
				   "stalwart_credentials: %.200s", inner.message);
	while (out->len > 0 && strchr("\r\n", out->data[out->len - 1]))
		out->data[--out->len] = '\0';
	if (strlen(buf_text(out)) != out->len)
		return bad_credentials(p, "the file holds a NUL");
	return LAPSE_OK;
}

int stalwart_check_credentials(const char *text, const char *credentials_dir, struct buf *out,
			       struct problem *p)
{
	struct buf CLEANUP(secret_wipe) file = { 0 };
	char path[PATH_MAX];
	int r = LAPSE_OK;

	if (text[0] == '@') {
		r = read_credentials(text + 1, &file, p);
	} else if (text[0] == '\0' && credentials_dir && credentials_dir[0]) {
		snprintf(path, sizeof(path), "%s/" CREDENTIALS_NAME, credentials_dir);
		r = read_credentials(path, &file, p);
	} else if (text[0] == '\0') {
		r = bad_credentials(p, "is needed with mailbox_provider stalwart: user:password, "
				       "an API key, or @PATH of a file with one of them");
	}
	if (r < 0)
		return r;
	return put_auth_header(file.data ? buf_text(&file) : text, out, p);
}

/* Authorities */

/* Certificates in a text of PEM, as libcurl will read it; -1 = it will not be able to. */
static int count_certificates(const struct buf *pem)
{
	BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
	STACK_OF(X509_INFO) *infos = PEM_X509_INFO_read_bio(bio, NULL, NULL, (void *)"");
	int n = infos ? 0 : -1;

	for (int i = 0; infos && i < sk_X509_INFO_num(infos); i++)
		n += sk_X509_INFO_value(infos, i)->x509 != NULL;
	sk_X509_INFO_pop_free(infos, X509_INFO_free);
	BIO_free(bio);
	ERR_clear_error();
	return n;
}

int stalwart_check_authorities(const char *path, struct buf *out, struct problem *p)
{
	struct problem inner = { 0 };

	if (path[0] == '\0')
		return LAPSE_OK;
	if (file_load(path, AUTHORITIES_MAX_BYTES, out, &inner) < 0)
		return problem_set(p, LAPSE_EINVAL, "stalwart_ca_file", "stalwart_ca_file: %.200s",
				   inner.message);
	assert(out->data);
	int n = count_certificates(out);
	if (n == 0)
		return problem_set(p, LAPSE_EINVAL, "stalwart_ca_file",
				   "stalwart_ca_file: %.120s holds no certificate: it must be that "
				   "of the authority, in PEM (-----BEGIN CERTIFICATE-----)",
				   path);
	if (n < 0 || strlen(buf_text(out)) != out->len)
		return problem_set(p, LAPSE_EINVAL, "stalwart_ca_file",
				   "stalwart_ca_file: %.120s is damaged: copy the certificates "
				   "(PEM) again",
				   path);
	return LAPSE_OK;
}
