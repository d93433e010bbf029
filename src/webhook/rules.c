/* SPDX-License-Identifier: Apache-2.0 */
#include "webhook/rules.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"

#define SECRET_PREFIX "whsec_"
#define SECRET_MIN_BYTES 24
#define SECRET_MAX_BYTES 64
#define SECRET_BYTES 32 /* of one that we make */
#define BASE64_LEN(n) (((n) + 2) / 3 * 4)

int webhook_check_url(const char *url, struct problem *p)
{
	const char *host = strncmp(url, "https://", 8) == 0  ? url + 8
			   : strncmp(url, "http://", 7) == 0 ? url + 7
							     : NULL;
	size_t n = host ? strcspn(host, "/?#") : 0;

	if (n == 0 || strlen(url) > WEBHOOK_URL_MAX)
		return problem_set(p, LAPSE_EINVAL, "url",
				   "url must be http:// or https:// with a host, up to %d bytes",
				   WEBHOOK_URL_MAX);
	for (const char *c = url; *c; c++)
		if (*c <= ' ' || *c >= 0x7f)
			return problem_set(p, LAPSE_EINVAL, "url",
					   "url must be printable ASCII without blanks");
	if (memchr(host, '@', n))
		return problem_set(p, LAPSE_EINVAL, "url",
				   "url may not carry a user or a password: deliveries are signed");
	return LAPSE_OK;
}

/* Types */

int webhook_check_type(const char *type, struct problem *p)
{
	size_t n = strlen(type), name = strspn(type, "abcdefghijklmnopqrstuvwxyz_.");
	bool wild = strcmp(type, "*") == 0 ||
		    (name >= 2 && type[name - 1] == '.' && strcmp(type + name, "*") == 0);

	if (n == 0 || n > WEBHOOK_TYPE_MAX || (!wild && name != n))
		return problem_set(p, LAPSE_EINVAL, "types",
				   "types must be names of events (mailbox.received), beginnings "
				   "of them (mailbox.*), or *");
	return LAPSE_OK;
}

bool webhook_type_matches(const char *type, const char *kind)
{
	size_t n = strlen(type);

	if (n > 0 && type[n - 1] == '*')
		return strncmp(type, kind, n - 1) == 0;
	return strcmp(type, kind) == 0;
}

/* Secrets and signatures */

/* The bytes of a secret; 0 = it is none. */
static size_t webhook_decode_secret(const char *secret,
				    unsigned char out[BASE64_LEN(SECRET_MAX_BYTES)])
{
	const char *text = secret + strlen(SECRET_PREFIX);
	size_t n = strlen(secret);

	if (strncmp(secret, SECRET_PREFIX, strlen(SECRET_PREFIX)) != 0)
		return 0;
	n -= strlen(SECRET_PREFIX);
	if (n % 4 != 0 || n > BASE64_LEN(SECRET_MAX_BYTES))
		return 0;
	int len = EVP_DecodeBlock(out, (const unsigned char *)text, (int)n);
	size_t pad = n > 0 ? strlen(text) - strcspn(text, "=") : 0;
	if (len < 0 || pad > 2 || (size_t)len < SECRET_MIN_BYTES + pad)
		return 0;
	return (size_t)len - pad;
}

int webhook_check_secret(const char *secret, struct problem *p)
{
	unsigned char bytes[BASE64_LEN(SECRET_MAX_BYTES)];
	size_t n = webhook_decode_secret(secret, bytes);

	OPENSSL_cleanse(bytes, sizeof(bytes));
	if (n < SECRET_MIN_BYTES || n > SECRET_MAX_BYTES)
		return problem_set(p, LAPSE_EINVAL, "secret",
				   "secret must be " SECRET_PREFIX " and %d to %d bytes in Base64",
				   SECRET_MIN_BYTES, SECRET_MAX_BYTES);
	return LAPSE_OK;
}

void webhook_make_secret(struct buf *out)
{
	unsigned char bytes[SECRET_BYTES], text[BASE64_LEN(SECRET_BYTES) + 1];

	random_bytes(bytes, sizeof(bytes));
	EVP_EncodeBlock(text, bytes, sizeof(bytes));
	buf_puts(out, SECRET_PREFIX);
	buf_puts(out, (const char *)text);
	OPENSSL_cleanse(bytes, sizeof(bytes));
	OPENSSL_cleanse(text, sizeof(text));
}

void webhook_sign(const char *secret, const char *id, int64_t at_s, const char *body, size_t n,
		  struct buf *out)
{
	unsigned char key[BASE64_LEN(SECRET_MAX_BYTES)], mac[EVP_MAX_MD_SIZE];
	unsigned char text[BASE64_LEN(EVP_MAX_MD_SIZE) + 1];
	struct buf CLEANUP(buf_done) said = { 0 };
	size_t key_len = webhook_decode_secret(secret, key);
	unsigned mac_len = 0;

	assert(key_len >= SECRET_MIN_BYTES);
	buf_printf(&said, "%s.%lld.", id, (long long)at_s);
	buf_add(&said, body, n);
	HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)said.data, said.len, mac,
	     &mac_len);
	assert(mac_len > 0 && mac_len <= EVP_MAX_MD_SIZE);
	EVP_EncodeBlock(text, mac, (int)mac_len);
	buf_printf(out, "v1,%s", (const char *)text);
	OPENSSL_cleanse(key, sizeof(key));
}

/* Events */

bool webhook_parse_event(const char *text, struct webhook_event *ret)
{
	static const char ID[] = "id: ", KIND[] = "\nevent: ", DATA[] = "\ndata: {\"at\":\"",
			  MORE[] = ",\"data\":";
	char id[ID_TEXT_LEN + 1];
	const char *kind = strstr(text, KIND), *at = strstr(text, DATA);
	const char *more = at ? strstr(at, MORE) : NULL, *end = more ? strstr(more, "}\n\n") : NULL;

	if (strncmp(text, ID, strlen(ID)) != 0 || !kind || !end || kind > at)
		return false;
	*ret = (struct webhook_event){ .id = text + strlen(ID),
				       .kind = kind + strlen(KIND),
				       .at = at + strlen(DATA),
				       .data = more + strlen(MORE),
				       .length = (size_t)(end - text) + 3 };
	ret->kind_len = (size_t)(at - ret->kind);
	ret->data_len = (size_t)(end - ret->data);
	memcpy(id, ret->id, ID_TEXT_LEN);
	id[ID_TEXT_LEN] = '\0';
	return id_parse(id, &ret->seq);
}

static void webhook_put_source(struct buf *out, const char *owner)
{
	buf_puts(out, "urn:lapse:");
	for (const char *c = owner; *c; c++)
		if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
		    (*c >= '0' && *c <= '9') || strchr("-._", *c))
			buf_putc(out, *c);
		else
			buf_printf(out, "%%%02X", (unsigned)(unsigned char)*c);
}

void webhook_envelope(struct buf *out, const char *owner, const struct webhook_event *e)
{
	struct buf CLEANUP(buf_done) source = { 0 };

	assert(out->len == 0 && e->kind_len > 0);
	webhook_put_source(&source, owner);
	json_begin(out, '{');
	json_put_text(out, "specversion", "1.0");
	json_put_id(out, "id", e->seq);
	json_put_text(out, "source", buf_text(&source));
	buf_printf(out, ",\"type\":\"%.*s\",\"time\":\"%.*s\"", (int)e->kind_len, e->kind,
		   TIME_TEXT_LEN, e->at);
	buf_puts(out, ",\"datacontenttype\":\"application/json\",\"data\":");
	buf_add(out, e->data, e->data_len);
	json_end(out, '}');
}

lapse_ms webhook_pause(lapse_ms first_ms, int64_t attempts, uint32_t random)
{
	lapse_ms pause = first_ms;

	assert(attempts > 0 && first_ms > 0);
	for (int64_t i = 1; i < attempts && pause < WEBHOOK_RETRY_MAX_MS; i++)
		pause *= 2;
	if (pause > WEBHOOK_RETRY_MAX_MS)
		pause = WEBHOOK_RETRY_MAX_MS;
	return pause / 2 + (lapse_ms)(random % (uint32_t)(pause + 1));
}
