/* SPDX-License-Identifier: Apache-2.0 */
#include "base/seal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "base/secret.h"

/* "v1:" and, in hex: nonce, ciphertext, tag. Random nonces of 96 bits are safe for 2^32 secrets
 * under one key, which is more mailboxes than one store will see. */
#define VERSION "v1:"
#define NONCE_BYTES 12
#define TAG_BYTES 16
#define SECRET_MAX_BYTES 65536
#define KEY_DIGITS (2 * SEAL_KEY_BYTES)

/* The key's file */

static int sync_directory_of(const char *path)
{
	char *CLEANUP(mem_freep) copy = mem_strdup(path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	int r = fsync(fd);
	close(fd);
	return r;
}

static int write_key(int fd)
{
	unsigned char key[SEAL_KEY_BYTES];
	char text[2 * SEAL_KEY_BYTES + 1];

	random_bytes(key, sizeof(key));
	hex_encode(key, sizeof(key), text);
	text[sizeof(text) - 1] = '\n';
	bool written = write(fd, text, sizeof(text)) == (ssize_t)sizeof(text) && fsync(fd) == 0;
	OPENSSL_cleanse(key, sizeof(key));
	OPENSSL_cleanse(text, sizeof(text));
	return written ? 0 : -1;
}

/* The whole key appears under its name at once, so a second process finds it complete. */
static int make_key(const char *path, struct problem *p)
{
	char part[PATH_MAX];

	if (snprintf(part, sizeof(part), "%s.XXXXXX", path) >= (int)sizeof(part))
		return problem_set(p, LAPSE_EINVAL, NULL, "the path of the key is too long");
	int fd = mkostemp(part, O_CLOEXEC); /* 0600 */
	int r = fd < 0 ? -1 : write_key(fd);
	if (r == 0 && link(part, path) < 0 && errno != EEXIST)
		r = -1;
	if (r == 0)
		r = sync_directory_of(path);
	int saved = errno;
	if (fd >= 0) {
		close(fd);
		unlink(part);
	}
	if (r < 0)
		return problem_set(p, LAPSE_EIO, NULL, "cannot make the key %.120s: %s", path,
				   strerror(saved));
	return LAPSE_OK;
}

static int decode_key(struct seal *s, struct buf *text, const char *path, struct problem *p)
{
	char key[SEAL_KEY_BYTES + 1];

	if (text->len > 0 && text->data[text->len - 1] == '\n')
		text->data[--text->len] = '\0';
	if (text->len != KEY_DIGITS || strlen(text->data) != KEY_DIGITS ||
	    !hex_decode(text->data, key))
		return problem_set(p, LAPSE_ECORRUPT, NULL,
				   "%.120s is no key: it must hold %d hex digits; put the right "
				   "file back",
				   path, KEY_DIGITS);
	memcpy(s->key, key, SEAL_KEY_BYTES);
	OPENSSL_cleanse(key, sizeof(key));
	return LAPSE_OK;
}

int seal_load(struct seal *s, const char *path, bool make, struct problem *p)
{
	struct buf CLEANUP(secret_wipe) text = { 0 };
	int r = secret_read_file(path, SECRET_NO_LINK, KEY_DIGITS + 1, &text, p);

	if (r == LAPSE_ENOTFOUND && make) {
		r = make_key(path, p);
		if (r == LAPSE_OK)
			r = secret_read_file(path, SECRET_NO_LINK, KEY_DIGITS + 1, &text, p);
	}
	return r < 0 ? r : decode_key(s, &text, path, p);
}

int seal_find(struct seal *s, const char *data_dir, const char *credentials_dir, bool make,
	      struct problem *p)
{
	char path[PATH_MAX];

	if (credentials_dir && credentials_dir[0]) {
		if (snprintf(path, sizeof(path), "%s/" SEAL_KEY_NAME, credentials_dir) >=
		    (int)sizeof(path))
			return problem_set(p, LAPSE_EINVAL, NULL,
					   "the path of the key is too long");
		int r = seal_load(s, path, false, p);
		if (r != LAPSE_ENOTFOUND)
			return r;
	}
	if (snprintf(path, sizeof(path), "%s/" SEAL_KEY_NAME, data_dir) >= (int)sizeof(path))
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is too long");
	return seal_load(s, path, make, p);
}

void seal_done(struct seal *s)
{
	OPENSSL_cleanse(s->key, sizeof(s->key));
}

/* The cipher */

static void cipher_freep(EVP_CIPHER_CTX **c)
{
	EVP_CIPHER_CTX_free(*c);
}

int seal_close(const struct seal *s, const char *context, const char *secret, struct buf *out)
{
	EVP_CIPHER_CTX *CLEANUP(cipher_freep) c = EVP_CIPHER_CTX_new();
	const size_t n = strlen(secret), total = NONCE_BYTES + n + TAG_BYTES;
	int len;

	assert(context[0]); /* what a secret is for is sealed with it */
	if (n > SECRET_MAX_BYTES)
		return LAPSE_ETOOLARGE;
	unsigned char *CLEANUP(mem_freep) bytes = mem_alloc(total);
	unsigned char *text = bytes + NONCE_BYTES;
	random_bytes(bytes, NONCE_BYTES);
	if (!c || EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, bytes) != 1 ||
	    EVP_EncryptUpdate(c, NULL, &len, (const unsigned char *)context,
			      (int)strlen(context)) != 1 ||
	    EVP_EncryptUpdate(c, text, &len, (const unsigned char *)secret, (int)n) != 1 ||
	    EVP_EncryptFinal_ex(c, text + len, &len) != 1 ||
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, text + n) != 1)
		return LAPSE_EINTERNAL;
	char *CLEANUP(mem_freep) hex = mem_alloc(2 * total + 1);
	hex_encode(bytes, total, hex);
	buf_puts(out, VERSION);
	buf_puts(out, hex);
	return LAPSE_OK;
}

static int open_bytes(const struct seal *s, const char *context, unsigned char *bytes, size_t n,
		      unsigned char *out)
{
	EVP_CIPHER_CTX *CLEANUP(cipher_freep) c = EVP_CIPHER_CTX_new();
	unsigned char *text = bytes + NONCE_BYTES;
	int len;

	if (!c || EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, bytes) != 1 ||
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, text + n) != 1 ||
	    EVP_DecryptUpdate(c, NULL, &len, (const unsigned char *)context,
			      (int)strlen(context)) != 1 ||
	    EVP_DecryptUpdate(c, out, &len, text, (int)n) != 1 ||
	    EVP_DecryptFinal_ex(c, out + len, &len) != 1)
		return LAPSE_ECORRUPT;
	return LAPSE_OK;
}

int seal_open(const struct seal *s, const char *context, const char *sealed, struct buf *out)
{
	const size_t prefix = strlen(VERSION), rest = NONCE_BYTES + TAG_BYTES;

	if (strncmp(sealed, VERSION, prefix) != 0)
		return LAPSE_ECORRUPT;
	const size_t total = strlen(sealed + prefix) / 2;
	if (total < rest || total > rest + SECRET_MAX_BYTES)
		return LAPSE_ECORRUPT;
	const size_t n = total - rest;
	assert(n <= SECRET_MAX_BYTES);
	char *CLEANUP(mem_freep) bytes = mem_alloc(total + 1);
	unsigned char *CLEANUP(mem_freep) text = mem_alloc(n + 1);
	if (!hex_decode(sealed + prefix, bytes))
		return LAPSE_ECORRUPT;
	int r = open_bytes(s, context, (unsigned char *)bytes, n, text);
	if (r == LAPSE_OK)
		buf_add(out, text, n);
	OPENSSL_cleanse(text, n);
	return r;
}
