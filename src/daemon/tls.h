/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's certificate and key: read at the start, and again on SIGHUP.
 *
 * libmicrohttpd asks for them in every handshake (tls_retrieve), so a new pair serves new
 * connections and those that are open keep what they have. GnuTLS borrows a pair until a handshake
 * is over; one that was replaced is kept until it cannot be in use any more.
 *
 * There is one pair in the process: GnuTLS gives its callback nothing to tell two servers apart.
 */
#ifndef LAPSE_DAEMON_TLS_H
#define LAPSE_DAEMON_TLS_H

#include <gnutls/abstract.h>

#include "base/clock.h"
#include "base/settings.h"

/* What is spoken: GnuTLS's own choice, without what is broken. */
#define TLS_PRIORITIES "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1:-VERS-DTLS-ALL"

/* Reads tls_cert and tls_key; both empty is fine, and leaves no pair. The key is a secret: a file
 * that others can read is refused. On failure the pair that was there stays. */
int tls_load(const struct settings *s, lapse_us now, struct problem *p);

/* Whether there is a pair. */
bool tls_is_on(void);

void tls_unload(void);

/* A gnutls_certificate_retrieve_function2. */
int tls_retrieve(gnutls_session_t session, const gnutls_datum_t *names, int names_count,
		 const gnutls_pk_algorithm_t *algorithms, int algorithms_count,
		 gnutls_pcert_st **ret_chain, unsigned *ret_length, gnutls_privkey_t *ret_key);

#endif
