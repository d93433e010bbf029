/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon: the loop, and everything that hangs on it.
 *
 * Start: the store is opened and migrated, the socket bound, the server started, then one line says
 * where. Run: the loop pumps the server and ticks the engine. Stop (SIGTERM, SIGINT): no new
 * connections, sweeps end between two slices, everybody who waits is answered, what was committed
 * is answered, then the store is closed. A second signal ends at once; nothing answered is lost by
 * that.
 */
#ifndef LAPSE_DAEMON_DAEMON_H
#define LAPSE_DAEMON_DAEMON_H

#include "base/settings.h"

/* Runs until a signal. On failure `p` says why it could not start. */
int daemon_run(const struct settings *settings, struct problem *p);

#endif
