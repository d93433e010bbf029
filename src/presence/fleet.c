/* SPDX-License-Identifier: Apache-2.0 */
#include "presence/fleet.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"

#define FIRST_BUCKETS 1024
#define BUCKETS_AN_AGENT 2u /* each further agent of a bucket is memory to wait for */
#define FIRST_PROFILES 16
#define HEAD 0u               /* the record that is the head of the list */
#define PARKED 1u             /* and of the parked ones */
#define CATCH_UP_AGENTS 4096u /* at once: about half a millisecond of memory that is far away */

/* Records */

/* With small pages every other heartbeat of a large fleet missed the processor's table of pages,
 * too. A small fleet shall not take a huge page: the first slab follows when there is a second. */
static void add_slab(struct fleet *f)
{
	f->slabs = mem_realloc(f->slabs, (f->slabs_count + 1) * sizeof(*f->slabs));
	f->slabs[f->slabs_count++] = mem_aligned(HUGE_PAGE, SLAB_AGENTS * sizeof(struct agent));
	if (f->slabs_count == 2)
		mem_prefer_huge(f->slabs[0], SLAB_AGENTS * sizeof(struct agent));
	if (f->slabs_count > 1)
		mem_prefer_huge(f->slabs[f->slabs_count - 1], SLAB_AGENTS * sizeof(struct agent));
}

static uint32_t take_record(struct fleet *f)
{
	uint32_t i = f->free;

	if (i) {
		f->free = fleet_at(f, i)->chain;
		return i;
	}
	if (f->used == f->slabs_count * SLAB_AGENTS)
		add_slab(f);
	return f->used++;
}

static void init_head(struct fleet *f)
{
	uint32_t i = take_record(f);
	struct agent *a = fleet_at(f, i);

	memset(a, 0, sizeof(*a));
	a->next = a->prev = i;
}

/* Buckets, all of them empty; a power of two. */
static void set_buckets(struct fleet *f, uint32_t n)
{
	f->buckets = mem_zalloc(n, sizeof(*f->buckets));
	f->buckets_count = f->buckets_room = n;
	f->mask = n - 1;
	mem_prefer_huge(f->buckets, n * sizeof(*f->buckets));
}

/* Room only: a bucket is written when it is split off. */
static void grow_room(struct fleet *f)
{
	f->buckets_room *= 2;
	f->buckets = mem_realloc(f->buckets, f->buckets_room * sizeof(*f->buckets));
	mem_prefer_huge(f->buckets, f->buckets_room * sizeof(*f->buckets));
}

struct fleet *fleet_new(lapse_ms evict_after, lapse_ms check_ms, lapse_ms now)
{
	struct fleet *f = mem_zalloc(1, sizeof(*f));

	f->evict_after = evict_after;
	f->silent_after = presence_silent_after(evict_after, check_ms);
	set_buckets(f, FIRST_BUCKETS);
	random_bytes(&f->seed, sizeof(f->seed));
	map_init(&f->profiles);
	f->newest = now;
	f->opened_at = LAPSE_NEVER;
	init_head(f);
	init_head(f);
	return f;
}

static bool is_long(const struct agent *a)
{
	return a->len >= AGENT_NAME_INLINE;
}

static void set_name(struct agent *a, const char *name, size_t len)
{
	assert(len <= ID_MAX_BYTES);
	a->len = (uint8_t)len;
	if (is_long(a))
		*(char **)(void *)(a->name + 2) = mem_strdup(name);
	else
		memcpy(a->name, name, len + 1);
}

static void free_name(struct agent *a)
{
	if (is_long(a))
		free(*(char **)(void *)(a->name + 2));
}

void fleet_free(struct fleet *f)
{
	if (!f)
		return;
	for (uint32_t i = PARKED + 1; i < f->used; i++)
		if (fleet_at(f, i)->id)
			free_name(fleet_at(f, i));
	for (uint32_t i = 0; i < f->slabs_count; i++)
		free(f->slabs[i]);
	for (uint32_t i = 0; i < f->profiles_used; i++)
		free(f->by_index[i]);
	free(f->slabs);
	free(f->buckets);
	free(f->by_index);
	free(f->holes);
	map_done(&f->profiles);
	free(f);
}

/* Profiles */

static bool has_traits(const struct profile *p, const struct traits *t)
{
	return p->metadata == t->metadata && strcmp(p->cluster, t->cluster) == 0 &&
	       strcmp(p->capabilities, t->capabilities) == 0 && strcmp(p->owner, t->owner) == 0;
}

static uint32_t profile_slot(struct fleet *f)
{
	if (f->holes_count)
		return f->holes[--f->holes_count];
	if (f->profiles_used == f->profiles_cap) {
		f->profiles_cap = f->profiles_cap ? f->profiles_cap * 2 : FIRST_PROFILES;
		f->by_index = mem_realloc(f->by_index, f->profiles_cap * sizeof(*f->by_index));
		f->holes = mem_realloc(f->holes, f->profiles_cap * sizeof(*f->holes));
	}
	return f->profiles_used++;
}

/* The key ends with the capabilities; owner and cluster, which cannot hold a '/', follow it. */
static struct profile *profile_new(struct fleet *f, const char *key, const struct traits *t)
{
	size_t key_size = strlen(key) + 1, owner_size = strlen(t->owner) + 1;
	size_t cluster_size = strlen(t->cluster) + 1;
	struct profile *p = mem_zalloc(1, sizeof(*p) + key_size + owner_size + cluster_size);
	char *text = (char *)(p + 1);

	memcpy(text, key, key_size);
	memcpy(text + key_size, t->owner, owner_size);
	memcpy(text + key_size + owner_size, t->cluster, cluster_size);
	p->owner = text + key_size;
	p->cluster = text + key_size + owner_size;
	p->cluster_len = cluster_size - 1;
	p->capabilities_len = strlen(t->capabilities);
	p->capabilities = text + key_size - 1 - p->capabilities_len;
	p->metadata = t->metadata;
	p->is_bare = strcmp(t->capabilities, "[]") == 0;
	p->plain = strpbrk(p->cluster, "\"\\") == NULL;
	p->index = profile_slot(f);
	f->by_index[p->index] = p;
	map_insert(&f->profiles, &p->node, text);
	return p;
}

static uint32_t profile_take(struct fleet *f, const struct traits *t)
{
	struct profile *p = f->last;

	if (!p || !has_traits(p, t)) {
		struct buf CLEANUP(buf_done) key = { 0 };
		buf_printf(&key, "%s/%s/%016" PRIx64 "/%s", t->owner, t->cluster, t->metadata,
			   t->capabilities);
		struct map_node *n = map_find(&f->profiles, buf_text(&key));
		p = n ? CONTAINER_OF(n, struct profile, node) : profile_new(f, buf_text(&key), t);
	}
	f->last = p;
	p->refs++;
	return p->index;
}

static void profile_drop(struct fleet *f, uint32_t index)
{
	struct profile *p = f->by_index[index];

	assert(p->refs > 0);
	if (--p->refs > 0)
		return;
	if (f->last == p)
		f->last = NULL;
	map_remove(&f->profiles, &p->node);
	f->by_index[index] = NULL;
	f->holes[f->holes_count++] = index;
	free(p);
}

/* The hash table */

struct scope fleet_scope(const struct fleet *f, const char *owner)
{
	return (struct scope){ owner, XXH3_64bits_withSeed(owner, strlen(owner), f->seed) };
}

uint32_t fleet_hash(const struct scope *s, const char *name, size_t len)
{
	return (uint32_t)XXH3_64bits_withSeed(name, len, s->seed);
}

uint32_t fleet_find_hashed(const struct fleet *f, const char *owner, const char *name, size_t len,
			   uint32_t hash)
{
	for (uint32_t i = *fleet_bucket(f, hash); i; i = fleet_at(f, i)->chain) {
		const struct agent *a = fleet_at(f, i);
		if (a->hash == hash && a->len == len && memcmp(agent_name(a), name, len) == 0 &&
		    strcmp(f->by_index[a->profile]->owner, owner) == 0)
			return i;
	}
	return 0;
}

uint32_t fleet_find(const struct fleet *f, const char *owner, const char *name)
{
	struct scope s = fleet_scope(f, owner);
	size_t len = strlen(name);

	return fleet_find_hashed(f, owner, name, len, fleet_hash(&s, name, len));
}

/* Splits the next bucket in two. Doubling the table at once took 20 ms with a million agents. */
static void split_bucket(struct fleet *f)
{
	if (f->buckets_count == f->buckets_room)
		grow_room(f);
	uint32_t added = f->buckets_count++;
	if (added > f->mask)
		f->mask = f->mask * 2 + 1;
	uint32_t *from = &f->buckets[added & f->mask >> 1], *to = &f->buckets[added];
	uint32_t i = *from, next;
	*from = *to = 0;
	for (; i; i = next) {
		struct agent *a = fleet_at(f, i);
		next = a->chain;
		uint32_t *b = (a->hash & f->mask) == added ? to : from;
		a->chain = *b;
		*b = i;
	}
}

void fleet_reserve(struct fleet *f, uint32_t agents)
{
	uint32_t buckets = FIRST_BUCKETS;

	assert(f->count == 0);
	while (buckets < BUCKETS_AN_AGENT * (uint64_t)agents && buckets < UINT32_C(1) << 31)
		buckets *= 2;
	free(f->buckets);
	set_buckets(f, buckets);
}

static void hash_in(struct fleet *f, uint32_t i)
{
	while (f->buckets_count < BUCKETS_AN_AGENT * (f->count + 1))
		split_bucket(f);
	uint32_t *b = fleet_bucket(f, fleet_at(f, i)->hash);
	fleet_at(f, i)->chain = *b;
	*b = i;
}

static void unhash(struct fleet *f, uint32_t i)
{
	uint32_t *slot = fleet_bucket(f, fleet_at(f, i)->hash);

	while (*slot != i) {
		assert(*slot);
		slot = &fleet_at(f, *slot)->chain;
	}
	*slot = fleet_at(f, i)->chain;
}

/* The lists */

static void append(struct fleet *f, uint32_t head, uint32_t i)
{
	struct agent *h = fleet_at(f, head), *a = fleet_at(f, i);

	a->prev = h->prev;
	a->next = head;
	fleet_at(f, h->prev)->next = i;
	h->prev = i;
	if (head == HEAD && f->mark == HEAD)
		f->mark = i;
}

static void unlink_agent(struct fleet *f, uint32_t i)
{
	struct agent *a = fleet_at(f, i);

	if (a->flags & AGENT_SILENT)
		f->silent--;
	if (a->flags & AGENT_PARKED)
		f->parked--;
	a->flags &= (uint8_t) ~(AGENT_SILENT | AGENT_PARKED | AGENT_HELD);
	if (f->mark == i)
		f->mark = a->next;
	fleet_at(f, a->prev)->next = a->next;
	fleet_at(f, a->next)->prev = a->prev;
}

/* At the end of the list, with a base that keeps its order. */
static void enqueue(struct fleet *f, uint32_t i, lapse_ms base)
{
	f->newest = base > f->newest ? base : f->newest;
	fleet_at(f, i)->base = f->newest;
	append(f, HEAD, i);
}

static void set_suspect(struct fleet *f, struct agent *a, bool suspect)
{
	if (a->flags & AGENT_SUSPECT)
		f->suspects--;
	a->flags &= (uint8_t)~AGENT_SUSPECT;
	if (suspect) {
		a->flags |= AGENT_SUSPECT;
		f->suspects++;
	}
}

uint32_t fleet_add(struct fleet *f, const char *name, const struct traits *t, int64_t id,
		   lapse_ms last_seen, lapse_ms base)
{
	struct scope s = fleet_scope(f, t->owner);
	size_t len = strlen(name);

	assert(id > 0);
	uint32_t i = take_record(f);
	struct agent *a = fleet_at(f, i);
	*a = (struct agent){ .id = id, .last_seen = last_seen };
	set_name(a, name, len);
	a->hash = fleet_hash(&s, name, len);
	a->profile = profile_take(f, t);
	hash_in(f, i);
	enqueue(f, i, base);
	f->count++;
	return i;
}

void fleet_remove(struct fleet *f, uint32_t i)
{
	struct agent *a = fleet_at(f, i);

	assert(i > PARKED && a->id);
	set_suspect(f, a, false);
	unlink_agent(f, i);
	unhash(f, i);
	free_name(a);
	profile_drop(f, a->profile);
	a->id = 0;
	a->chain = f->free;
	f->free = i;
	f->count--;
}

void fleet_set(struct fleet *f, uint32_t i, const struct traits *t)
{
	struct agent *a = fleet_at(f, i);

	if (has_traits(f->by_index[a->profile], t))
		return;
	uint32_t profile = profile_take(f, t);
	profile_drop(f, a->profile);
	a->profile = profile;
}

void fleet_touch(struct fleet *f, uint32_t i, lapse_ms now)
{
	struct agent *a = fleet_at(f, i);

	if (a->flags & AGENT_SUSPECT)
		set_suspect(f, a, false);
	unlink_agent(f, i);
	a->flags = 0;
	enqueue(f, i, now);
	a->last_seen = a->base;
}

/* Silence */

uint32_t fleet_first(const struct fleet *f)
{
	return fleet_at(f, HEAD)->next;
}

uint32_t fleet_first_parked(const struct fleet *f)
{
	uint32_t i = fleet_at(f, PARKED)->next;

	return i == PARKED ? 0 : i;
}

uint32_t fleet_next(const struct fleet *f, uint32_t i)
{
	uint32_t next = fleet_at(f, i)->next;

	return next == PARKED ? 0 : next;
}

lapse_ms fleet_deadline(const struct fleet *f)
{
	uint32_t i = fleet_first(f);

	return i ? presence_deadline(fleet_at(f, i)->base, f->evict_after) : LAPSE_NEVER;
}

/* Passes agents that have become silent, up to so many. */
static void move_mark(struct fleet *f, lapse_ms now, uint32_t most)
{
	while (f->mark != HEAD && !f->tripping && most-- > 0) {
		struct agent *a = fleet_at(f, f->mark);
		if (!presence_is_due(a->base, f->silent_after, now))
			break;
		if (!(a->flags & AGENT_SUSPECT)) {
			a->flags |= AGENT_SILENT;
			f->silent++;
		}
		f->mark = a->next;
	}
}

uint32_t fleet_suspects(const struct fleet *f)
{
	return f->suspects + (f->tripping ? f->silent : 0);
}

enum breaker_step fleet_breaker(struct fleet *f, lapse_ms now)
{
	move_mark(f, now, UINT32_MAX);
	const struct breaker_view v = { f->opened_at, f->count, f->silent, fleet_suspects(f) };
	return breaker_judge(&v, f->evict_after, now);
}

enum breaker_step fleet_breaker_released(struct fleet *f, lapse_ms now)
{
	const struct breaker_view v = { LAPSE_NEVER, f->count, f->silent, fleet_suspects(f) };

	return breaker_judge(&v, f->evict_after, now);
}

enum agent_fate fleet_fate(struct fleet *f, uint32_t i, lapse_ms now)
{
	const struct agent *a = fleet_at(f, i);
	bool suspect = a->flags & AGENT_SUSPECT || (f->tripping && a->flags & AGENT_SILENT);

	if (!presence_is_due(a->base, f->evict_after, now))
		return suspect ? AGENT_SUSPECTED : AGENT_STAYS;
	enum breaker_step step = fleet_breaker(f, now);
	if (step == BREAKER_RELEASES)
		step = fleet_breaker_released(f, now);
	bool open = step == BREAKER_TRIPS || step == BREAKER_STAYS_OPEN;
	bool had_its_chance = a->flags & (AGENT_SUSPECT | AGENT_OVERDUE);
	return agent_judge(a->base, had_its_chance, open, f->evict_after, now);
}

void fleet_suspect(struct fleet *f, uint32_t i, lapse_ms now)
{
	unlink_agent(f, i);
	set_suspect(f, fleet_at(f, i), true);
	enqueue(f, i, now);
}

/* Those who are silent stand first. */
static void make_suspects(struct fleet *f, uint32_t most)
{
	uint32_t i = fleet_first(f), next;

	for (; f->silent > 0 && most > 0; i = next) {
		next = fleet_at(f, i)->next;
		if (!(fleet_at(f, i)->flags & AGENT_SILENT))
			continue;
		fleet_suspect(f, i, f->opened_at);
		most--;
	}
	f->tripping = f->silent > 0;
}

void fleet_trip(struct fleet *f, lapse_ms now)
{
	move_mark(f, now, UINT32_MAX);
	f->opened_at = now;
	make_suspects(f, CATCH_UP_AGENTS);
}

void fleet_release(struct fleet *f)
{
	f->opened_at = LAPSE_NEVER;
	f->tripping = false;
}

lapse_ms fleet_silence_at(const struct fleet *f)
{
	if (f->mark == HEAD)
		return LAPSE_NEVER;
	return presence_deadline(fleet_at(f, f->mark)->base, f->silent_after);
}

bool fleet_catch_up(struct fleet *f, lapse_ms now)
{
	if (f->tripping)
		make_suspects(f, CATCH_UP_AGENTS);
	else
		move_mark(f, now, CATCH_UP_AGENTS);
	return f->tripping || fleet_silence_at(f) <= now;
}

void fleet_rebase(struct fleet *f, lapse_ms now)
{
	fleet_unpark(f);
	f->newest = now > f->newest ? now : f->newest;
	for (uint32_t i = fleet_first(f); i != HEAD; i = fleet_at(f, i)->next) {
		fleet_at(f, i)->base = f->newest;
		fleet_at(f, i)->flags = 0;
	}
	f->suspects = f->silent = 0;
	f->tripping = false;
	f->mark = fleet_first(f);
}

void fleet_park(struct fleet *f, uint32_t i, bool held)
{
	unlink_agent(f, i);
	fleet_at(f, i)->flags |= (uint8_t)(AGENT_PARKED | AGENT_OVERDUE | (held ? AGENT_HELD : 0));
	append(f, PARKED, i);
	f->parked++;
}

void fleet_unpark(struct fleet *f)
{
	struct agent *head = fleet_at(f, HEAD), *parked = fleet_at(f, PARKED);

	if (parked->next == PARKED)
		return;
	for (uint32_t i = parked->next; i != PARKED; i = fleet_at(f, i)->next)
		fleet_at(f, i)->flags &= (uint8_t) ~(AGENT_PARKED | AGENT_HELD);
	/* They were first when they were parked, and whoever moved since went to the end. */
	fleet_at(f, parked->prev)->next = head->next;
	fleet_at(f, head->next)->prev = parked->prev;
	head->next = parked->next;
	fleet_at(f, parked->next)->prev = HEAD;
	parked->next = parked->prev = PARKED;
	f->parked = 0;
}
