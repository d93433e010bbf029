/* SPDX-License-Identifier: Apache-2.0 */
/* The live replicas of a cluster as a small table, for `lapse status` and `lapse top`. */
#ifndef LAPSE_CLI_SHOW_REPLICAS_H
#define LAPSE_CLI_SHOW_REPLICAS_H

#include <jansson.h>

#include "cli/cli.h"

/* `rows` are those of GET /v1/replicas; without any nothing is written. */
void show_replicas(const struct cli *cli, const json_t *rows, struct buf *out);

#endif
