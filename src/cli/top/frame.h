/* SPDX-License-Identifier: Apache-2.0 */
/* The text of one frame of `lapse top`. */
#ifndef LAPSE_CLI_FRAME_H
#define LAPSE_CLI_FRAME_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/cli.h"

/* The line of keys above the view; `every_ms` is 0 while the view is paused. */
void frame_keys(const struct cli *cli, lapse_ms every_ms, struct buf *out);

/* `away` says why the daemon does not answer and the view is an old one; NULL while it does. */
void frame_write(const struct cli *cli, const json_t *view, const char *away, struct buf *out);

#endif
