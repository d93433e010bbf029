/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on the log and its consumers, of the room `optable`. */
#include <assert.h>
#include <string.h>

#include "lib/check.h"
#include "lib/key.h"
#include "lib/store.h"
#include "optable/optable.h"

/* Appends, unless the idempotency key says that this was done. What is kept with it is the id. */
static int outbox_add_once(struct lapse_store *s, const char *topic, const char *payload,
			   struct arena *arena, int64_t *ret_id)
{
	struct buf CLEANUP(buf_done) said = { 0 };
	const char *answer = "";
	char id[ID_TEXT_LEN + 1];

	key_say(&said, topic);
	key_say(&said, payload);
	int r = key_begin(s, "lapse_outbox_add", &said, arena, &answer);
	if (r > 0)
		return id_parse(answer, ret_id) ? LAPSE_OK
						: problem_set(&s->problem, LAPSE_ECORRUPT, NULL,
							      "the key's first answer is damaged");
	if (r == LAPSE_OK)
		r = outbox_add(&s->tx, s->owner, topic, payload, ret_id, &s->problem);
	if (r < 0)
		return r;
	id_format(*ret_id, id);
	return key_end(s, id);
}

int lapse_outbox_add(struct lapse_store *store, const char *topic, const char *payload,
		     int64_t *ret_id)
{
	const char *object = NULL;
	struct arena arena;
	int64_t id = 0;
	int r = store_enter(store);

	arena_init(&arena);
	if (r == LAPSE_OK)
		r = field_label(topic, 1, OUTBOX_TOPIC_MAX, "topic", &store->problem);
	if (r == LAPSE_OK)
		r = check_object(payload, store->settings.body_max_bytes, "payload", &arena,
				 &object, &store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = outbox_add_once(store, topic, object, &arena, &id);
	key_done(store);
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_id)
		*ret_id = id;
	arena_done(&arena);
	return r;
}

struct reader {
	uint32_t magic;
	lapse_outbox_fn *fn;
	void *arg;
};

static bool lib_outbox_show(void *arg, const struct outbox_row *row)
{
	const struct reader *reader = arg;
	struct lapse_outbox_row v = { row->id, row->topic, row->payload, row->created_at };

	assert(reader->magic == READER_MAGIC && v.id > 0);
	if (reader->fn)
		reader->fn(reader->arg, &v);
	return true;
}

int lapse_outbox_read(struct lapse_store *store, int64_t after, const char *topic, int64_t limit,
		      lapse_outbox_fn *fn, void *arg, bool *ret_gap)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	bool gap = false;
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = field_range(after, 0, INT64_MAX, "after", &store->problem);
	if (r == LAPSE_OK && topic)
		r = field_label(topic, 1, OUTBOX_TOPIC_MAX, "topic", &store->problem);
	if (r == LAPSE_OK && after > 0)
		r = outbox_has_gap(&store->tx, store->owner, after, &gap);
	if (r == LAPSE_OK)
		r = outbox_read(&store->tx, store->owner, after, topic, limit, lib_outbox_show,
				&reader);
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_gap)
		*ret_gap = gap;
	return r;
}

/* Consumers */

static int consumer_enter(struct lapse_store *s, const char *consumer)
{
	int r = store_enter(s);

	return r < 0 ? r : field_id(consumer, "consumer", &s->problem);
}

int lapse_outbox_commit(struct lapse_store *store, const char *consumer, int64_t position,
			bool force)
{
	struct outbox_consumer kept;
	int r = consumer_enter(store, consumer);

	if (r == LAPSE_OK)
		r = field_range(position, 0, INT64_MAX, "position", &store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = outbox_consumer_put(&store->tx, store->owner, consumer, position, force, &kept,
					&store->problem);
	if (r == LAPSE_ECONFLICT)
		problem_set(&store->problem, r, "position",
			    "the consumer is further already: `force` takes it back");
	return store_end(store, r);
}

int lapse_outbox_position(struct lapse_store *store, const char *consumer, int64_t *ret_position)
{
	struct outbox_consumer c = { 0 };
	int r = consumer_enter(store, consumer);

	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = outbox_consumer_get(&store->tx, store->owner, consumer, &c);
	r = store_end(store, check_blame(r, "consumer", &store->problem));
	if (r == LAPSE_OK && ret_position)
		*ret_position = c.position;
	return r;
}

struct consumer_reader {
	lapse_outbox_consumer_fn *fn;
	void *arg;
};

static bool lib_consumer_show(void *arg, const struct outbox_consumer *c)
{
	const struct consumer_reader *reader = arg;
	struct lapse_outbox_consumer v = { c->name, c->position, c->updated_at, c->lag };

	assert(v.lag >= 0);
	if (reader->fn)
		reader->fn(reader->arg, &v);
	return true;
}

int lapse_outbox_consumers(struct lapse_store *store, const char *after, int64_t limit,
			   lapse_outbox_consumer_fn *fn, void *arg)
{
	struct consumer_reader reader = { fn, arg };
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = outbox_consumer_list(&store->tx, store->owner, after ? after : "", limit,
					 lib_consumer_show, &reader);
	return store_end(store, r);
}
