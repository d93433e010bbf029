/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/ring.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define ALIGNMENT 16u
#define GONE 1 /* a position before every entry: what it stands for is only in the table */

struct ring_chain {
	struct map_node node; /* by owner */
	uint64_t first, last; /* its entries; 0 = none */
	uint64_t total;       /* events it ever had */
	int readers;
	struct list waiting; /* struct ring_place */
	char owner[];
};

struct entry {
	int64_t seq;
	uint64_t prev, next; /* of the same chain; 0 = none, below the tail = overwritten */
	struct ring_chain *chain;
	uint64_t room; /* bytes to the next entry */
	uint64_t n;    /* bytes of text */
	char text[];
};

struct ring_staged {
	int64_t seq;
	char *owner, *text;
	size_t n;
};

void ring_init(struct ring *r)
{
	*r = (struct ring){ 0 };
}

void ring_enable(struct ring *r, size_t size)
{
	assert(!r->bytes);
	assert(size >= ALIGNMENT && r->held == 0);
	r->size = size - size % ALIGNMENT;
	r->bytes = mem_alloc(r->size);
	r->head = r->tail = r->size; /* 0 stands for "none" */
	map_init(&r->chains);
}

static void free_chain(struct map_node *n, void *arg)
{
	(void)arg;
	free(CONTAINER_OF(n, struct ring_chain, node));
}

void ring_done(struct ring *r)
{
	for (size_t i = 0; i < r->staged_count; i++) {
		free(r->staged[i].owner);
		free(r->staged[i].text);
	}
	free(r->staged);
	if (r->bytes) {
		map_each(&r->chains, free_chain, NULL);
		map_done(&r->chains);
	}
	free(r->bytes);
	*r = (struct ring){ 0 };
}

void ring_start(struct ring *r, int64_t newest, int64_t pruned)
{
	assert(!r->last && pruned <= newest);
	r->newest = r->floor = newest;
	r->pruned = pruned;
}

static struct entry *entry_at(const struct ring *r, uint64_t at)
{
	assert(at >= r->tail && at < r->head);
	return (struct entry *)(void *)(r->bytes + at % r->size);
}

/* Chains */

static struct ring_chain *chain_get(struct ring *r, const char *owner)
{
	struct map_node *n = map_find(&r->chains, owner);
	size_t len = strlen(owner) + 1;

	if (n)
		return CONTAINER_OF(n, struct ring_chain, node);
	struct ring_chain *c = mem_zalloc(1, sizeof(*c) + len);
	memcpy(c->owner, owner, len);
	list_init(&c->waiting);
	map_insert(&r->chains, &c->node, c->owner);
	return c;
}

static void chain_put(struct ring *r, struct ring_chain *c)
{
	assert(c->readers >= 0);
	if (c->first || c->readers)
		return;
	map_remove(&r->chains, &c->node);
	free(c);
}

static void wake_waiting(struct ring_chain *c, uint64_t at)
{
	struct list *l;

	while ((l = list_shift(&c->waiting))) {
		struct ring_place *p = CONTAINER_OF(l, struct ring_place, link);
		assert(p->chain == c);
		p->at = at;
		p->reader->wake(p->reader);
	}
}

/* Entries */

static void drop_oldest(struct ring *r)
{
	struct entry *e = entry_at(r, r->tail);
	struct ring_chain *c = e->chain;

	assert(r->tail < r->head);
	r->floor = e->seq;
	c->first = e->next;
	if (!c->first)
		c->last = 0;
	if (r->last == r->tail)
		r->last = 0;
	assert(c->first == 0 || c->first > r->tail);
	r->tail += e->room;
	chain_put(r, c);
}

void ring_forget(struct ring *r, int64_t seq)
{
	while (r->tail < r->head && entry_at(r, r->tail)->seq <= seq)
		drop_oldest(r);
}

/* Makes `room` bytes in one piece at the head. */
static void ring_make_room(struct ring *r, uint64_t room)
{
	assert(room <= r->size);
	uint64_t rest = r->size - r->head % r->size;

	if (rest < room) { /* the end of the block is left empty */
		while (r->head + rest - r->tail > r->size)
			drop_oldest(r);
		if (r->last)
			entry_at(r, r->last)->room += rest;
		r->head += rest;
		if (!r->last)
			r->tail = r->head;
	}
	while (r->head + room - r->tail > r->size)
		drop_oldest(r);
}

static void ring_append(struct ring *r, struct ring_chain *c, int64_t seq, const char *text,
			size_t n, uint64_t room)
{
	ring_make_room(r, room);
	uint64_t at = r->head;
	struct entry *e = (struct entry *)(void *)(r->bytes + at % r->size);
	*e = (struct entry){
		.seq = seq,
		.prev = c->last,
		.chain = c,
		.room = room,
		.n = n,
	};
	assert(room >= sizeof(*e) + n);
	memcpy(e->text, text, n);
	r->head += room;
	if (c->last)
		entry_at(r, c->last)->next = at;
	else
		c->first = at;
	c->last = r->last = at;
	wake_waiting(c, at);
}

/* What the table has to tell from here on. */
static void leave_to_table(struct ring *r, int64_t seq)
{
	while (r->tail < r->head)
		drop_oldest(r);
	r->floor = seq;
}

static void ring_show(struct ring *r, int64_t seq, const char *owner, const char *text, size_t n)
{
	uint64_t room = (sizeof(struct entry) + n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

	assert(seq > r->newest);
	r->newest = seq;
	if (!text && !ring_is_followed(r)) {
		leave_to_table(r, seq);
		return;
	}
	struct ring_chain *c = chain_get(r, owner);
	c->readers++; /* it must outlive its own entries that go now */
	c->total++;
	if (text && room <= r->size / 2) { /* a longer one would push out half of the others */
		ring_append(r, c, seq, text, n, room);
	} else {
		leave_to_table(r, seq);
		wake_waiting(c, GONE);
	}
	assert(r->tail <= r->head && r->head - r->tail <= r->size);
	assert(c->readers > 0);
	c->readers--;
	chain_put(r, c);
}

/* Order */

static void ring_stage(struct ring *r, int64_t seq, const char *owner, const char *text, size_t n)
{
	assert(seq > r->newest);
	if (r->staged_count == r->staged_room) {
		r->staged_room = r->staged_room ? r->staged_room * 2 : 64;
		r->staged = mem_realloc(r->staged, r->staged_room * sizeof(*r->staged));
	}
	char *copy = text ? mem_alloc(n) : NULL;
	if (copy)
		memcpy(copy, text, n);
	r->staged[r->staged_count++] = (struct ring_staged){ seq, mem_strdup(owner), copy, n };
}

static int by_seq(const void *a, const void *b)
{
	int64_t x = ((const struct ring_staged *)a)->seq, y = ((const struct ring_staged *)b)->seq;

	return (x > y) - (x < y);
}

static void show_staged(struct ring *r)
{
	qsort(r->staged, r->staged_count, sizeof(*r->staged), by_seq);
	for (size_t i = 0; i < r->staged_count; i++) {
		struct ring_staged *s = &r->staged[i];
		ring_show(r, s->seq, s->owner, s->text, s->n);
		free(s->owner);
		free(s->text);
	}
	free(r->staged);
	r->staged = NULL;
	r->staged_count = r->staged_room = 0;
	assert(r->held == 0);
}

void ring_hold(struct ring *r)
{
	assert(r->held >= 0);
	r->held++;
}

void ring_add(struct ring *r, int64_t seq, const char *owner, const char *text, size_t n)
{
	assert(r->held > 0);
	if (!r->bytes)
		return;
	if (r->held > 1 || r->staged_count > 0)
		ring_stage(r, seq, owner, text, n);
	else
		ring_show(r, seq, owner, text, n);
}

void ring_release(struct ring *r)
{
	assert(r->held > 0);
	if (--r->held == 0 && r->staged_count > 0)
		show_staged(r);
}

/* Readers */

static void add_place(struct ring_reader *reader, const char *owner)
{
	assert(reader->places_count < 2);
	struct ring_place *p = &reader->places[reader->places_count++];

	list_init(&p->link);
	p->reader = reader;
	p->chain = chain_get(reader->ring, owner);
	p->chain->readers++;
	p->at = GONE;
}

void ring_join(struct ring *r, struct ring_reader *reader, const char *owner, bool engine_too)
{
	assert(r->bytes && reader->wake);
	reader->ring = r;
	r->readers++;
	reader->places_count = 0;
	reader->offset = 0;
	add_place(reader, owner);
	if (engine_too && owner[0])
		add_place(reader, "");
	ring_skip(reader);
}

static void lose_place(struct ring_reader *reader)
{
	for (int i = 0; i < reader->places_count; i++) {
		list_remove(&reader->places[i].link);
		reader->places[i].at = GONE;
	}
}

void ring_leave(struct ring_reader *reader)
{
	assert(reader->ring->readers > 0);
	reader->ring->readers--;
	lose_place(reader);
	for (int i = 0; i < reader->places_count; i++) {
		struct ring_chain *c = reader->places[i].chain;
		assert(c->readers > 0);
		c->readers--;
		chain_put(reader->ring, c);
	}
	reader->places_count = 0;
}

static uint64_t total(const struct ring_reader *reader)
{
	uint64_t n = 0;

	for (int i = 0; i < reader->places_count; i++)
		n += reader->places[i].chain->total;
	return n;
}

uint64_t ring_backlog(const struct ring_reader *reader)
{
	assert(total(reader) >= reader->seen);
	return total(reader) - reader->seen;
}

void ring_skip(struct ring_reader *reader)
{
	assert(reader->offset == 0);
	reader->cursor = reader->ring->newest;
	reader->seen = total(reader);
}

/* The first entry of the chain after the cursor; counts those that follow it too. */
static uint64_t find_next(const struct ring *r, const struct ring_chain *c, int64_t cursor,
			  uint64_t *count)
{
	uint64_t found = 0;

	for (uint64_t at = c->last; at >= r->tail && at != 0;) {
		const struct entry *e = entry_at(r, at);
		if (e->seq <= cursor)
			break;
		found = at;
		at = e->prev;
		++*count;
	}
	return found;
}

bool ring_seek(struct ring_reader *reader)
{
	struct ring *r = reader->ring;
	uint64_t left = 0;

	lose_place(reader);
	if (reader->cursor < r->floor || reader->offset > 0)
		return false;
	for (int i = 0; i < reader->places_count; i++) {
		struct ring_place *p = &reader->places[i];
		p->at = find_next(r, p->chain, reader->cursor, &left);
		if (!p->at)
			list_append(&p->chain->waiting, &p->link);
	}
	assert(left <= total(reader));
	reader->seen = total(reader) - left;
	return true;
}

/* The place whose entry is the oldest; NULL when all wait. */
static struct ring_place *oldest(struct ring_reader *reader, bool *ret_gone)
{
	const struct ring *r = reader->ring;
	struct ring_place *found = NULL;

	*ret_gone = false;
	for (int i = 0; i < reader->places_count; i++) {
		struct ring_place *p = &reader->places[i];
		*ret_gone |= p->at != 0 && p->at < r->tail;
		if (p->at != 0 && (!found || p->at < found->at))
			found = p;
	}
	return found;
}

static void pass(struct ring_reader *reader, struct ring_place *p, const struct entry *e)
{
	assert(p->chain == e->chain && e->seq > reader->cursor);
	reader->cursor = e->seq;
	reader->offset = 0;
	reader->seen++;
	p->at = e->next;
	if (!p->at)
		list_append(&e->chain->waiting, &p->link);
}

enum ring_state ring_read(struct ring_reader *reader, char *out, size_t max, size_t *n)
{
	for (;;) {
		bool gone;
		struct ring_place *p = oldest(reader, &gone);
		if (gone) {
			lose_place(reader);
			return RING_BEHIND;
		}
		if (!p)
			return RING_IDLE;
		const struct entry *e = entry_at(reader->ring, p->at);
		size_t left = (size_t)e->n - reader->offset, room = max - *n;
		size_t part = left < room ? left : room;
		if (part < left && (*n > 0 || room == 0))
			return RING_MORE;
		assert(reader->offset <= e->n && *n + part <= max);
		memcpy(out + *n, e->text + reader->offset, part);
		*n += part;
		if (part < left) {
			reader->offset += part;
			reader->partial = e->seq;
			return RING_MORE;
		}
		pass(reader, p, e);
	}
}
