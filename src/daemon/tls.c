/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tls.h"

#include <assert.h>
#include <gnutls/x509.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/secret.h"

#define PEM_MAX_BYTES (1 << 20)
#define CHAIN_MAX 16
/* A handshake that takes longer is cut by head_timeout_ms, whose maximum this is. */
#define IN_USE_US INT64_C(3600000000)

struct pair {
	struct list link; /* in `replaced` */
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned length;
	gnutls_privkey_t key;
	lapse_us replaced_at;
};

static struct pair *current;
static struct list replaced = { &replaced, &replaced }; /* oldest first */

static void pair_free(struct pair *pair)
{
	if (!pair)
		return;
	for (unsigned i = 0; i < pair->length; i++)
		gnutls_pcert_deinit(&pair->chain[i]);
	if (pair->key)
		gnutls_privkey_deinit(pair->key);
	free(pair);
}

static void pair_freep(struct pair **pair)
{
	pair_free(*pair);
}

static int import_chain(struct pair *pair, const gnutls_datum_t *cert)
{
	gnutls_x509_crt_t *list = NULL;
	unsigned count = 0;
	int rc = gnutls_x509_crt_list_import2(&list, &count, cert, GNUTLS_X509_FMT_PEM, 0);

	if (rc < 0)
		return rc;
	unsigned length = count < CHAIN_MAX ? count : CHAIN_MAX;
	rc = gnutls_pcert_import_x509_list(pair->chain, list, &length, 0);
	if (rc == GNUTLS_E_SUCCESS)
		pair->length = length;
	for (unsigned i = 0; i < count; i++)
		gnutls_x509_crt_deinit(list[i]);
	gnutls_free(list);
	return rc;
}

/* Whether the key is the certificate's. */
static int check_key_matches(const gnutls_datum_t *cert, const gnutls_datum_t *key)
{
	gnutls_certificate_credentials_t both = NULL;
	int rc = gnutls_certificate_allocate_credentials(&both);

	if (rc == GNUTLS_E_SUCCESS)
		rc = gnutls_certificate_set_x509_key_mem(both, cert, key, GNUTLS_X509_FMT_PEM);
	if (both)
		gnutls_certificate_free_credentials(both);
	return rc < 0 ? rc : GNUTLS_E_SUCCESS;
}

static int import_pair(struct pair *pair, const struct buf *cert_text, const struct buf *key_text)
{
	gnutls_datum_t cert = { (unsigned char *)cert_text->data, (unsigned)cert_text->len };
	gnutls_datum_t key = { (unsigned char *)key_text->data, (unsigned)key_text->len };
	int rc = check_key_matches(&cert, &key);

	if (rc == GNUTLS_E_SUCCESS)
		rc = import_chain(pair, &cert);
	if (rc == GNUTLS_E_SUCCESS)
		rc = gnutls_privkey_init(&pair->key);
	if (rc == GNUTLS_E_SUCCESS)
		rc = gnutls_privkey_import_x509_raw(pair->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
	return rc;
}

static int read_cert(const char *path, struct buf *out, struct problem *p)
{
	struct problem inner = { 0 };

	if (file_load(path, PEM_MAX_BYTES, out, &inner) == LAPSE_OK)
		return LAPSE_OK;
	return problem_set(p, LAPSE_EINVAL, "tls_cert", "tls_cert: %.200s", inner.message);
}

static int read_key_file(const char *path, struct buf *out, struct problem *p)
{
	struct problem inner = { 0 };

	if (secret_read_file(path, SECRET_MAY_LINK, PEM_MAX_BYTES, out, &inner) == LAPSE_OK)
		return LAPSE_OK;
	return problem_set(p, LAPSE_EINVAL, "tls_key", "tls_key: %.200s", inner.message);
}

/* A handshake may still use it. */
static void replace(struct pair *pair, lapse_us now)
{
	assert(pair && pair != current && !list_is_linked(&pair->link));
	if (current) {
		current->replaced_at = now;
		list_append(&replaced, &current->link);
	}
	current = pair;
	while (!list_empty(&replaced)) {
		struct pair *oldest = CONTAINER_OF(replaced.next, struct pair, link);
		if (oldest->replaced_at > now - IN_USE_US)
			break;
		list_remove(&oldest->link);
		pair_free(oldest);
	}
}

int tls_load(const struct settings *s, lapse_us now, struct problem *p)
{
	struct buf CLEANUP(buf_done) cert = { 0 };
	struct buf CLEANUP(secret_wipe) key = { 0 };
	struct pair *CLEANUP(pair_freep) pair = NULL;

	if (!s->tls_cert[0] && !s->tls_key[0])
		return LAPSE_OK;
	if (!s->tls_cert[0] || !s->tls_key[0])
		return problem_set(p, LAPSE_EINVAL, "tls_cert",
				   "tls_cert and tls_key go together: set both or none");
	int r = read_cert(s->tls_cert, &cert, p);
	if (r == LAPSE_OK)
		r = read_key_file(s->tls_key, &key, p);
	if (r < 0)
		return r;
	pair = mem_zalloc(1, sizeof(*pair));
	list_init(&pair->link);
	int rc = import_pair(pair, &cert, &key);
	if (rc < 0)
		return problem_set(p, LAPSE_EINVAL, "tls_cert",
				   "tls_cert and tls_key are no matching pair in PEM: %.120s",
				   gnutls_strerror(rc));
	assert(pair->length > 0 && pair->key);
	replace(pair, now);
	pair = NULL;
	return LAPSE_OK;
}

bool tls_is_on(void)
{
	return current != NULL;
}

void tls_unload(void)
{
	for (struct list *l = replaced.next, *next; l != &replaced; l = next) {
		next = l->next;
		pair_free(CONTAINER_OF(l, struct pair, link));
	}
	list_init(&replaced);
	pair_free(current);
	current = NULL;
}

int tls_retrieve(gnutls_session_t session, const gnutls_datum_t *names, int names_count,
		 const gnutls_pk_algorithm_t *algorithms, int algorithms_count,
		 gnutls_pcert_st **ret_chain, unsigned *ret_length, gnutls_privkey_t *ret_key)
{
	(void)session;
	(void)names;
	(void)names_count;
	(void)algorithms;
	(void)algorithms_count;
	assert(current);
	assert(current->length > 0 && current->length <= CHAIN_MAX);
	*ret_chain = current->chain;
	*ret_length = current->length;
	*ret_key = current->key;
	return 0;
}
