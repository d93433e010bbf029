/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Presence in a cluster (engine/cluster.h). Every replica has the whole fleet in memory. Rows that
 * come, change or go are told in their own transaction. Heartbeats that changed no row are gathered
 * and told together, with the time until which they are complete; agents are judged by that time.
 */
#include <assert.h>
#include <string.h>

#include "presence/presence.h"

#define BEATS_BYTES 65536 /* of one row; then another one begins */

#define TOPIC_BEAT "agent"      /* owner and agent: its row may have changed, and it was heard of */
#define TOPIC_ROW "agent.row"   /* the same, and it was not heard of */
#define TOPIC_BEATS "agent.all" /* many of them, whose rows are as they were */

/* Telling */

void presence_tell(struct tx *tx, const char *owner, const char *agent, bool heard)
{
	if (!cluster_has_others(&tx->engine->cluster))
		return;
	/* Where telling fails, the transaction does. */
	cluster_tell(tx, heard ? TOPIC_BEAT : TOPIC_ROW,
		     arena_printf(&tx->arena, "%s\n%s\n", owner, agent));
}

static void forget_untold(struct engine *e, void *arg)
{
	struct fleet *f = fleet_of(e);

	(void)arg;
	for (size_t i = 0; i < f->untold_count; i++)
		fleet_at(f, f->untold[i])->flags &= (uint8_t)~AGENT_UNTOLD;
	f->untold_count = 0;
}

int presence_tell_beats(struct tx *tx)
{
	const struct fleet *f = fleet_of(tx->engine);
	struct buf CLEANUP(buf_done) key = { 0 };
	int r = LAPSE_OK;

	tx_effect(tx, forget_untold, NULL);
	if (!cluster_has_others(&tx->engine->cluster))
		return LAPSE_OK;
	for (size_t i = 0; r == LAPSE_OK && i < f->untold_count; i++) {
		const struct agent *a = fleet_at(f, f->untold[i]);
		if (!a->id || !(a->flags & AGENT_UNTOLD))
			continue; /* it left, and another one may have its place */
		buf_printf(&key, "%s\n%s\n", fleet_profile(f, f->untold[i])->owner, agent_name(a));
		if (key.len >= BEATS_BYTES) {
			r = cluster_tell(tx, TOPIC_BEATS, buf_text(&key));
			buf_clear(&key);
		}
	}
	return r == LAPSE_OK && key.len > 0 ? cluster_tell(tx, TOPIC_BEATS, buf_text(&key)) : r;
}

/* Hearing */

/* The next line of the key, ended in place of its line break; NULL = there is none. */
static char *news_line(char **at)
{
	char *line = *at, *end = strchr(line, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	*at = end + 1;
	return line;
}

static int hear_row(struct tx *tx, char *key, lapse_ms at, bool heard)
{
	static const struct db_stmt ROW = { "SELECT id, cluster_id, capabilities, metadata "
					    "FROM agents WHERE owner = $1 AND agent = $2" };
	struct fleet *f = fleet_of(tx->engine);
	const char *owner = news_line(&key), *agent = owner ? news_line(&key) : NULL;

	assert(tx_is_open(tx));
	if (!agent)
		return LAPSE_ECORRUPT;
	struct db_query CLEANUP(db_finish) q = db_query(tx->db, &ROW);
	db_bind_text(&q, 1, owner);
	db_bind_text(&q, 2, agent);
	int r = db_step(&q);
	if (r < 0)
		return r;
	uint32_t i = fleet_find(f, owner, agent);
	if (i && (r == 0 || fleet_at(f, i)->id != db_int(&q, 0))) {
		fleet_remove(f, i);
		i = 0;
	}
	if (r == 0)
		return LAPSE_OK;
	const struct traits t = { .owner = owner,
				  .cluster = db_text(&q, 1),
				  .capabilities = db_text(&q, 2),
				  .metadata = presence_metadata_hash(db_text(&q, 3)) };
	if (!i)
		i = fleet_add(f, agent, &t, db_int(&q, 0), at, at);
	else
		fleet_set(f, i, &t);
	if (heard)
		fleet_hear(f, i, at);
	return LAPSE_OK;
}

static int hear_beats(struct tx *tx, char *key, lapse_ms at)
{
	struct fleet *f = fleet_of(tx->engine);

	for (const char *owner, *agent; (owner = news_line(&key)) && (agent = news_line(&key));) {
		uint32_t i = fleet_find(f, owner, agent);
		if (i)
			fleet_hear(f, i, at);
	}
	return LAPSE_OK;
}

int presence_news(struct tx *tx, const char *topic, const char *key, lapse_ms at)
{
	struct fleet *f = fleet_of(tx->engine);
	const bool beat = strcmp(topic, TOPIC_BEAT) == 0;

	if (beat || strcmp(topic, TOPIC_ROW) == 0)
		return hear_row(tx, arena_strdup(&tx->arena, key), at, beat);
	if (strcmp(topic, TOPIC_BEATS) == 0)
		return hear_beats(tx, arena_strdup(&tx->arena, key), at);
	if (strcmp(topic, CLUSTER_SILENCE) == 0)
		fleet_rebase(f, clock_wall(tx->engine->clock));
	if (strcmp(topic, PRESENCE_UNPARK) == 0)
		fleet_unpark(f);
	return LAPSE_OK;
}
