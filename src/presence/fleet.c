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
#define BREAKER_MAGIC 0xb4ea6e41u
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

struct fleet *fleet_new(lapse_ms evict_after, lapse_ms check_ms, struct breaker_rule rule,
			lapse_ms now)
{
	struct fleet *f = mem_zalloc(1, sizeof(*f));

	f->magic = FLEET_MAGIC;
	assert(evict_after > 0 && rule.least > 0);
	f->rule = rule;
	map_init(&f->breakers);
	list_init(&f->open);
	f->evict_after = evict_after;
	f->silent_after = presence_silent_after(evict_after, check_ms);
	set_buckets(f, FIRST_BUCKETS);
	random_bytes(&f->seed, sizeof(f->seed));
	map_init(&f->profiles);
	f->newest = now;
	f->known_through = LAPSE_NEVER;
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

static void breaker_free(struct map_node *node, void *arg)
{
	struct breaker *b = CONTAINER_OF(node, struct breaker, node);

	(void)arg;
	assert(b->magic == BREAKER_MAGIC);
	b->magic = 0;
	free(b);
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
	free(f->untold);
	map_done(&f->profiles);
	map_each(&f->breakers, breaker_free, NULL);
	map_done(&f->breakers);
	free(f);
}

/* Breakers */

static struct breaker *breaker_take(struct fleet *f, const char *owner)
{
	struct breaker *b = fleet_breaker_find(f, owner);

	if (!b) {
		size_t size = strlen(owner) + 1;
		b = mem_zalloc(1, sizeof(*b) + size);
		b->magic = BREAKER_MAGIC;
		b->opened_at = LAPSE_NEVER;
		list_init(&b->link);
		b->owner = memcpy(b + 1, owner, size);
		map_insert(&f->breakers, &b->node, b->owner);
	}
	b->refs++;
	return b;
}

static void breaker_drop(struct fleet *f, struct breaker *b)
{
	assert(b->magic == BREAKER_MAGIC && b->refs > 0);
	if (--b->refs > 0)
		return;
	assert(b->count == 0 && b->silent == 0 && !list_is_linked(&b->link));
	map_remove(&f->breakers, &b->node);
	breaker_free(&b->node, NULL);
}

struct breaker *fleet_breaker_find(const struct fleet *f, const char *owner)
{
	struct map_node *n = map_find(&f->breakers, owner);

	return n ? CONTAINER_OF(n, struct breaker, node) : NULL;
}

uint32_t fleet_count_of(const struct fleet *f, const char *owner)
{
	const struct breaker *b = fleet_breaker_find(f, owner);

	assert(!b || b->magic == BREAKER_MAGIC);
	return b ? b->count : 0;
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
	p->breaker = breaker_take(f, t->owner);
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
	breaker_drop(f, p->breaker);
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

static void count_silent(struct fleet *f, uint32_t i, bool silent)
{
	struct agent *a = fleet_at(f, i);
	struct breaker *b = fleet_breaker_of(f, i);

	assert(b->magic == BREAKER_MAGIC && silent == !(a->flags & AGENT_SILENT));
	a->flags ^= AGENT_SILENT;
	f->silent = silent ? f->silent + 1 : f->silent - 1;
	b->silent = silent ? b->silent + 1 : b->silent - 1;
	assert(b->silent <= b->count && f->silent <= f->count);
}

static void unlink_agent(struct fleet *f, uint32_t i)
{
	struct agent *a = fleet_at(f, i);

	if (a->flags & AGENT_SILENT)
		count_silent(f, i, false);
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
	fleet_breaker_of(f, i)->count++;
	return i;
}

void fleet_remove(struct fleet *f, uint32_t i)
{
	struct agent *a = fleet_at(f, i);

	assert(i > PARKED && a->id);
	unlink_agent(f, i);
	fleet_breaker_of(f, i)->count--;
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
	assert(f->by_index[profile]->breaker == f->by_index[a->profile]->breaker);
	profile_drop(f, a->profile);
	a->profile = profile;
}

void fleet_hear(struct fleet *f, uint32_t i, lapse_ms at)
{
	struct agent *a = fleet_at(f, i);

	assert(i > PARKED && a->id);
	unlink_agent(f, i);
	a->flags &= AGENT_UNTOLD;
	enqueue(f, i, at);
	a->last_seen = a->base;
}

static void gather(struct fleet *f, uint32_t i)
{
	struct agent *a = fleet_at(f, i);

	if (a->flags & AGENT_UNTOLD)
		return;
	a->flags |= AGENT_UNTOLD;
	if (f->untold_count == f->untold_room) {
		f->untold_room = f->untold_room ? f->untold_room * 2 : 64;
		f->untold = mem_realloc(f->untold, f->untold_room * sizeof(*f->untold));
	}
	f->untold[f->untold_count++] = i;
}

void fleet_touch(struct fleet *f, uint32_t i, lapse_ms now)
{
	fleet_hear(f, i, now);
	if (f->gathering)
		gather(f, i);
}

static void fleet_move_agent(struct fleet *f, uint32_t i, const struct scope *to)
{
	struct agent *a = fleet_at(f, i);
	const struct profile *p = fleet_profile(f, i);
	const struct traits t = { to->owner, p->cluster, p->capabilities, p->metadata };
	bool silent = a->flags & AGENT_SILENT;
	uint32_t profile = profile_take(f, &t);

	assert(p->breaker->count > 0 && p->breaker != f->by_index[profile]->breaker);
	if (silent)
		count_silent(f, i, false);
	p->breaker->count--;
	profile_drop(f, a->profile);
	a->profile = profile;
	fleet_breaker_of(f, i)->count++;
	if (silent)
		count_silent(f, i, true);
	unhash(f, i);
	a->hash = fleet_hash(to, agent_name(a), a->len);
	hash_in(f, i);
}

void fleet_move(struct fleet *f, const char *from, const char *to, const char *name, int64_t id)
{
	const struct scope s = fleet_scope(f, to);
	uint32_t i = fleet_find(f, from, name), twin;

	assert(id > 0 && strcmp(from, to) != 0);
	if (!i || fleet_at(f, i)->id != id)
		return;
	/* The same agent, which moved before it was heard of again; or one whose row is gone. */
	twin = fleet_find(f, to, name);
	if (twin)
		fleet_remove(f, twin);
	fleet_move_agent(f, i, &s);
	assert(fleet_find(f, to, name) == i);
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
static void move_silence_mark(struct fleet *f, lapse_ms now, uint32_t most)
{
	while (f->mark != HEAD && most-- > 0) {
		struct agent *a = fleet_at(f, f->mark);
		if (!presence_is_due(a->base, f->silent_after, now))
			break;
		count_silent(f, f->mark, true);
		f->mark = a->next;
	}
}

enum breaker_step fleet_breaker(struct fleet *f, const struct breaker *b, bool released,
				lapse_ms now)
{
	assert(b->magic == BREAKER_MAGIC);
	move_silence_mark(f, now, UINT32_MAX);
	const struct breaker_view v = { released ? LAPSE_NEVER : b->opened_at, b->count,
					b->silent };
	return breaker_judge(&f->rule, &v, f->evict_after, now);
}

enum agent_fate fleet_fate(struct fleet *f, uint32_t i, lapse_ms at)
{
	const struct agent *a = fleet_at(f, i);
	const lapse_ms now = fleet_time(f, at);

	if (!presence_is_due(a->base, f->evict_after, now))
		return AGENT_STAYS;
	const struct breaker *b = fleet_breaker_of(f, i);
	enum breaker_step step = fleet_breaker(f, b, false, now);
	if (step == BREAKER_RELEASES)
		step = fleet_breaker(f, b, true, now);
	bool open = step == BREAKER_TRIPS || step == BREAKER_STAYS_OPEN;
	return agent_judge(a->base, a->flags & AGENT_OVERDUE, open, f->evict_after, now);
}

void fleet_trip(struct fleet *f, struct breaker *b, lapse_ms now)
{
	assert(b->opened_at == LAPSE_NEVER && !list_is_linked(&b->link));
	b->opened_at = now;
	b->suspected = 0;
	b->refs++;
	list_append(&f->open, &b->link);
	f->open_count++;
}

void fleet_release(struct fleet *f, struct breaker *b)
{
	assert(b->opened_at != LAPSE_NEVER && list_is_linked(&b->link));
	b->opened_at = LAPSE_NEVER;
	assert(f->open_count > 0);
	f->open_count--;
	list_remove(&b->link);
	breaker_drop(f, b);
}

lapse_ms fleet_silence_at(const struct fleet *f)
{
	if (f->mark == HEAD)
		return LAPSE_NEVER;
	return presence_deadline(fleet_at(f, f->mark)->base, f->silent_after);
}

bool fleet_catch_up(struct fleet *f, lapse_ms now)
{
	move_silence_mark(f, now, CATCH_UP_AGENTS);
	return fleet_silence_at(f) <= now;
}

/* Gives a new base to the agents of the list from `i` on. */
static void rebase_from(struct fleet *f, uint32_t i, lapse_ms now)
{
	f->newest = now > f->newest ? now : f->newest;
	for (; i != HEAD; i = fleet_at(f, i)->next) {
		if (fleet_at(f, i)->flags & AGENT_SILENT)
			count_silent(f, i, false);
		fleet_at(f, i)->base = f->newest;
		fleet_at(f, i)->flags &= AGENT_UNTOLD;
	}
}

void fleet_rebase(struct fleet *f, lapse_ms now)
{
	fleet_unpark(f);
	rebase_from(f, fleet_first(f), now);
	assert(f->silent == 0);
	f->mark = fleet_first(f);
}

void fleet_spare(struct fleet *f, lapse_ms since, lapse_ms now)
{
	uint32_t i = fleet_first(f);
	bool mark_stays = false;

	for (; i != HEAD && presence_is_due(fleet_at(f, i)->base, f->evict_after, since);
	     i = fleet_at(f, i)->next)
		mark_stays |= i == f->mark;
	rebase_from(f, i, now);
	if (!mark_stays)
		f->mark = i;
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
	assert(f->parked > 0);
	for (uint32_t i = parked->next; i != PARKED; i = fleet_at(f, i)->next)
		fleet_at(f, i)->flags &= (uint8_t) ~(AGENT_PARKED | AGENT_HELD);
	/* They were first when they were parked, and agents that moved since went to the end. */
	fleet_at(f, parked->prev)->next = head->next;
	fleet_at(f, head->next)->prev = parked->prev;
	head->next = parked->next;
	fleet_at(f, parked->next)->prev = HEAD;
	parked->next = parked->prev = PARKED;
	f->parked = 0;
}
