/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the room `presence`. */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "lib/check.h"
#include "lib/store.h"
#include "presence/presence.h"

static_assert(LAPSE_CAPABILITIES_MAX == CAPABILITIES_MAX && LAPSE_BEATS_MAX == BEATS_MAX,
	      "the public header says what the room's limits are");

static int agent_explain(struct lapse_store *s, int err)
{
	if (err == LAPSE_ENOTFOUND)
		return problem_set(&s->problem, err, "agent", "there is no such agent");
	if (err == LAPSE_ECONFLICT)
		return problem_set(&s->problem, err, "agent", "the agent is held");
	return err;
}

/* Starts a call about one agent. */
static int enter_agent(struct lapse_store *s, const char *agent)
{
	int r = store_enter(s);

	return r < 0 ? r : field_id(agent, "agent", &s->problem);
}

/* The set as the room wants it, in the arena. */
static int take_capabilities(const char *const *names, size_t count, struct arena *arena,
			     const char **ret, struct problem *p)
{
	const char *sorted[CAPABILITIES_MAX];

	if (count > 0) {
		int r = check_ids(names, count, CAPABILITIES_MAX, "capabilities", p);
		if (r < 0)
			return r;
		memcpy(sorted, names, count * sizeof(*names));
	}
	*ret = presence_pack(arena, sorted, count);
	return LAPSE_OK;
}

/* Heartbeats */

static int take_beat(struct lapse_store *s, const struct lapse_beat *from, struct arena *arena,
		     struct beat *to)
{
	struct problem *p = &s->problem;
	int r = field_id(from->agent, "agent", p);

	*to = (struct beat){ .agent = from->agent, .cluster = from->cluster };
	if (r == LAPSE_OK)
		r = field_id(from->cluster, "cluster", p);
	if (r == LAPSE_OK && from->capabilities)
		r = take_capabilities(from->capabilities, from->capabilities_count, arena,
				      &to->capabilities, p);
	if (r == LAPSE_OK && from->metadata)
		r = check_object(from->metadata, s->settings.body_max_bytes, "metadata", arena,
				 &to->metadata, p);
	return r;
}

/* When no beat says anything new, memory is all that is touched. */
static bool touch_all(struct lapse_store *s, const struct beat *beats, size_t count)
{
	struct fleet *f = fleet_of(&s->engine);
	lapse_ms now = clock_wall(s->engine.clock);

	for (size_t i = 0; i < count; i++) {
		uint32_t agent = fleet_find(f, s->owner, beats[i].agent);
		if (!agent || !presence_is_quiet(f, agent, &beats[i], now))
			return false;
	}
	for (size_t i = 0; i < count; i++)
		fleet_touch(f, fleet_find(f, s->owner, beats[i].agent), now);
	return true;
}

static int write_heartbeats(struct lapse_store *s, const struct beat *beats, size_t count)
{
	int r = store_begin(s);

	for (size_t i = 0; r == LAPSE_OK && i < count; i++)
		r = presence_beat(&s->tx, s->owner, &beats[i], &s->problem);
	return r;
}

static int check_beats(const struct lapse_beat *beats, size_t count, struct problem *p)
{
	if (!beats)
		return problem_set(p, LAPSE_EINVAL, "beats", "beats is required");
	return field_range((int64_t)count, 1, LAPSE_BEATS_MAX, "count", p);
}

static int beat_all(struct lapse_store *s, const struct lapse_beat *beats, size_t count,
		    struct arena *arena)
{
	struct beat *taken = arena_alloc(arena, count * sizeof(*taken));
	int r = LAPSE_OK;

	for (size_t i = 0; r == LAPSE_OK && i < count; i++)
		r = take_beat(s, &beats[i], arena, &taken[i]);
	return r < 0 || touch_all(s, taken, count) ? r : write_heartbeats(s, taken, count);
}

int lapse_agent_heartbeat(struct lapse_store *store, const struct lapse_beat *beats, size_t count)
{
	struct arena arena;
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = check_beats(beats, count, &store->problem);
	arena_init(&arena);
	if (r == LAPSE_OK)
		r = beat_all(store, beats, count, &arena);
	r = store_end(store, r);
	arena_done(&arena);
	return r;
}

/* Reading */

struct reader {
	uint32_t magic;
	lapse_agent_fn *fn;
	void *arg;
	int64_t left; /* agents that are still wanted */
};

static bool agent_show(void *arg, const struct agent_view *a)
{
	struct reader *reader = arg;

	assert(reader->magic == READER_MAGIC);
	json_t *CLEANUP(json_freep) set = json_loads(a->capabilities, 0, NULL);
	const char *names[CAPABILITIES_MAX];
	size_t n =
		json_array_size(set) < CAPABILITIES_MAX ? json_array_size(set) : CAPABILITIES_MAX;

	for (size_t i = 0; i < n; i++)
		names[i] = json_string_value(json_array_get(set, i));
	struct lapse_agent v = { .agent = a->agent,
				 .cluster = a->cluster,
				 .capabilities = names,
				 .capabilities_count = n,
				 .first_seen = a->first_seen,
				 .last_seen = a->last_seen,
				 .expires_at = a->expires_at,
				 .suspect = a->suspect };
	if (reader->fn)
		reader->fn(reader->arg, &v);
	return --reader->left > 0;
}

int lapse_agent_get(struct lapse_store *store, const char *agent, lapse_agent_fn *fn, void *arg)
{
	struct reader reader = { .magic = READER_MAGIC, .fn = fn, .arg = arg, .left = 1 };
	int r = enter_agent(store, agent);

	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = presence_get(&store->tx, store->owner, agent, false, agent_show, &reader);
	return store_end(store, agent_explain(store, r));
}

/* What chooses agents is optional. */
static int check_choice(const char *text, const char *name, struct problem *p)
{
	return text ? field_id(text, name, p) : LAPSE_OK;
}

int lapse_agent_list(struct lapse_store *store, const char *cluster, const char *capability,
		     const char *after, int64_t limit, lapse_agent_fn *fn, void *arg)
{
	const struct agent_filter filter = { .cluster = cluster,
					     .capability = capability,
					     .looks_max = INT64_MAX };
	struct reader reader = { .magic = READER_MAGIC, .fn = fn, .arg = arg, .left = limit };
	struct problem *p = &store->problem;
	int r = store_begin_list(store, limit);

	after = after ? after : "";

	if (r == LAPSE_OK)
		r = check_choice(cluster, "cluster", p);
	if (r == LAPSE_OK)
		r = check_choice(capability, "capability", p);
	if (r == LAPSE_OK)
		r = presence_list(&store->tx, store->owner, &filter, NULL, &after, agent_show,
				  &reader);
	return store_end(store, r);
}

/* Changing by hand */

int lapse_agent_set_capabilities(struct lapse_store *store, const char *agent,
				 const char *const *capabilities, size_t count)
{
	const char *set = NULL;
	struct arena arena;
	int r = enter_agent(store, agent);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = take_capabilities(capabilities, count, &arena, &set, &store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = presence_set_capabilities(&store->tx, store->owner, agent, set);
	r = store_end(store, agent_explain(store, r));
	arena_done(&arena);
	return r;
}

int lapse_agent_remove(struct lapse_store *store, const char *agent)
{
	int r = enter_agent(store, agent);

	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = presence_delete(&store->tx, store->owner, agent);
	return store_end(store, agent_explain(store, r));
}
