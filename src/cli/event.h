/* SPDX-License-Identifier: Apache-2.0 */
/* An event of the stream as a line: readable, or JSON. */
#ifndef LAPSE_CLI_EVENT_H
#define LAPSE_CLI_EVENT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/sse.h"

#define EVENT_GAP "gap" /* the kind of the event that stands for those that are missing */

/* The event as an object with id, event and what its data says (at, owner, data); a fresh
 * reference. What is no JSON becomes the text `data`. */
json_t *event_object(const struct sse_event *event);

/* "2026-11-15T18:33:00.123Z  agent.evicted  agent_id=a last_seen=…" */
void event_line(const struct cli *cli, const json_t *event, struct buf *out);

#endif
