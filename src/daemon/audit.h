/* SPDX-License-Identifier: Apache-2.0 */
/* What operators want to find in the daemon's events after a start. */
#ifndef LAPSE_DAEMON_AUDIT_H
#define LAPSE_DAEMON_AUDIT_H

struct engine;

/* Writes the settings in force that are not defaults, without secrets, and whether the store was
 * restored since the last start. Once per start, after streams can follow events. A store that
 * cannot be written is logged and reported by others. */
void audit_start(struct engine *e);

#endif
