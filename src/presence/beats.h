/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many heartbeats in one request, as CSV lines `agent_id,cluster_id`: reading them, and the quick
 * way for heartbeats that say nothing new.
 */
#ifndef LAPSE_PRESENCE_BEATS_H
#define LAPSE_PRESENCE_BEATS_H

#include "presence/presence.h"

/* One line of the text; the name and the cluster are borrowed from it and not terminated. */
struct beat_line {
	const char *agent, *cluster;
	size_t agent_len, cluster_len;
};

/* Reads the line at *at and moves on to the next one. False = it has no comma, or more than one. */
bool beat_line_read(const char **at, const char *end, struct beat_line *ret);

/* Touches all agents of the text, when every one of them is known, live and in the cluster it says.
 * False = something is new or wrong, and no agent was touched. *ret_n = how many lines. */
bool beats_touch(struct fleet *f, const char *owner, const char *text, size_t len, lapse_ms now,
		 int64_t *ret_n);

#endif
