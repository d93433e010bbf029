/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names and mail addresses: their syntax, and nothing else. Addresses are the plain kind that
 * every mail server takes: ASCII, without quotes, comments or display names, so nothing in them can
 * end a header line or a command.
 */
#ifndef LAPSE_BASE_ADDRESS_H
#define LAPSE_BASE_ADDRESS_H

#include <stdbool.h>

#define HOST_MAX 253    /* bytes of a host name */
#define ADDRESS_MAX 254 /* bytes of an address */

/* Labels of 1–63 letters, digits and hyphens, no hyphen at their ends. On false *ret_why says what
 * is wrong, as a sentence without its subject's name. */
bool host_is_valid(const char *text, const char **ret_why);

/* LOCAL@HOST, LOCAL of 1–64 characters. */
bool address_is_valid(const char *text, const char **ret_why);

/* Capital letters of ASCII become small ones, in place. */
void ascii_lower(char *text);

struct sockaddr;

/* Whether the address is one of the public Internet: neither this machine nor a private, local,
 * shared, reserved or multicast network, also where an IPv6 address holds an IPv4 one. */
bool sockaddr_is_public(const struct sockaddr *a);

#endif
