/* SPDX-License-Identifier: Apache-2.0 */
/* Where the daemon is, with which token we come, and what to say when it is not there. */
#ifndef LAPSE_CLI_CONNECT_H
#define LAPSE_CLI_CONNECT_H

#include <curl/curl.h>

#include "cli/outcome.h"

struct cli;

/* Fills cli->client from --url, --token-file, --owner and the environment; once a run. */
enum outcome client_connect(struct cli *cli);

/* Prints why a transfer failed. */
enum outcome client_explain(const struct cli *cli, CURLcode code);

#endif
