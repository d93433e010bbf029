/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `lapse top` knows about a daemon at one moment, and the view that two of them make: an
 * object with the rates and percentiles of the time between. The view is what --json prints and
 * what frame.c draws.
 */
#ifndef LAPSE_CLI_SAMPLE_H
#define LAPSE_CLI_SAMPLE_H

#include <jansson.h>

#include "cli/cli.h"
#include "cli/top/scrape.h"

/* Numbers from /metrics; not a number where the daemon does not have them. */
struct figures {
	double agents, suspects; /* live ones, and suspects */
	double requests;         /* since the daemon began */
	double dead_letters;
	double replicas; /* not a number outside a cluster */
	struct buckets lag, commit;
};

/* A zeroed one has nothing: `matrix` is NULL. */
struct sample {
	lapse_us at; /* monotonic */
	struct figures figures;
	json_t *matrix; /* the answers of /v1/matrix, /readyz, /v1/clock */
	json_t *ready;
	json_t *clock;
	json_t *replicas; /* and of /v1/replicas; NULL outside a cluster */
	bool is_ready;
};

/* Asks the daemon. */
enum outcome sample_read(struct cli *cli, struct sample *ret);
void sample_done(struct sample *s);

/* A fresh reference. Numbers that need a sample before are null without one. */
json_t *sample_view(const struct cli *cli, const struct sample *now, const struct sample *before);

#endif
