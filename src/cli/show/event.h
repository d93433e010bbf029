/* SPDX-License-Identifier: Apache-2.0 */
/* An event of the stream as a line: readable, or JSON. */
#ifndef LAPSE_CLI_EVENT_H
#define LAPSE_CLI_EVENT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/client/sse.h"
#include "cli/show/show.h"

#define EVENT_GAP "gap" /* the kind of event that says that events are missing */

/* The event as an object with id, event and what its data says (at, owner, data); a fresh
 * reference. What is no JSON becomes the text `data`. */
json_t *event_object(const struct sse_event *event);

/* What --columns may name. */
extern const struct column EVENT_COLUMNS[];

/* "2026-11-15T18:33:00.123Z  0634a1b2c3d4e5f6  agent.evicted  agent_id=a last_seen=…"; on a
 * terminal today's date is left out, and what does not fit goes on in the next line. With `picked`
 * only those of EVENT_COLUMNS; NULL = the line above. */
void event_line(const struct cli *cli, const json_t *event, const struct column *picked,
		struct buf *out);

#endif
