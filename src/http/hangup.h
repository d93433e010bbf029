/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long polls of clients that have hung up. libmicrohttpd does not notice that of a suspended
 * connection, and the daemon would learn of it when the poll is answered, up to a minute later.
 * Clients that hang up and come again would take all of connections_max meanwhile.
 *
 * So when connections become scarce, each new one lets the server look for such polls. They are
 * answered at once, as if their time were over: a client that has only ended its own side of the
 * connection gets a proper answer, and the connection of any other is free.
 */
#ifndef LAPSE_HTTP_HANGUP_H
#define LAPSE_HTTP_HANGUP_H

struct server;

/* For each new connection: looks for them if fewer than a quarter of the connections are free, and
 * the last look was long ago or many connections have come since. */
void hangups_look(struct server *s);

#endif
