/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the room `message`. */
#include "message/message.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/check.h"
#include "lib/key.h"
#include "lib/store.h"

static_assert(LAPSE_LIMIT_MAX <= MESSAGE_RECIPIENTS_MAX, "as the public header says");
static_assert(LAPSE_LIMIT_MAX <= MESSAGE_IDS_MAX, "as the public header says");
static_assert(LAPSE_NO_CLAIM == CLAIM_NONE, "as the public header says");

static int lib_message_explain(struct lapse_store *s, int err)
{
	if (err == LAPSE_ENOTFOUND)
		return problem_set(&s->problem, err, "id", "there is no such message");
	if (err == LAPSE_EEXPIRED)
		return problem_set(&s->problem, err, "id", "the message has expired");
	if (err == LAPSE_ECONFLICT)
		return problem_set(&s->problem, err, "claim_id",
				   "the message has passed to another claim");
	return err;
}

/* Sending */

/* What a draft becomes; metadata in its shortest form lives in the arena. */
static int message_take_draft(struct lapse_store *s, const struct lapse_draft *d,
			      struct arena *arena, struct message *ret)
{
	const int64_t max = s->settings.body_max_bytes;
	struct problem *p = &s->problem;
	struct message m = { .to = d->to,
			     .from = d->from,
			     .content = d->content,
			     .type = d->type ? d->type : "text" };
	int r = field_id(m.from, "from", p);

	if (r == LAPSE_OK)
		r = check_text(m.content, max, "content", p);
	if (r == LAPSE_OK)
		r = field_label(m.type, 1, MESSAGE_TYPE_MAX, "type", p);
	if (r == LAPSE_OK)
		r = check_object(d->metadata, max - (int64_t)strlen(m.content), "metadata", arena,
				 &m.metadata, p);
	if (r == LAPSE_OK)
		*ret = m;
	return r;
}

static void say_draft(struct buf *said, const struct message *m, const char *const *to,
		      size_t count)
{
	for (size_t i = 0; i < count; i++)
		key_say(said, to[i]);
	key_say(said, NULL); /* the recipients end here */
	key_say(said, m->from);
	key_say(said, m->content);
	key_say(said, m->type);
	key_say(said, m->metadata);
}

/* The ids that were kept with a key. They come from the store, which may be damaged. */
static int read_kept_ids(const char *answer, size_t count, struct message *sent, struct problem *p)
{
	char id[ID_TEXT_LEN + 1];

	if (strlen(answer) != count * ID_TEXT_LEN)
		return problem_set(p, LAPSE_ECORRUPT, NULL, "the key's first answer is damaged");
	for (size_t i = 0; i < count; i++) {
		snprintf(id, sizeof(id), "%.*s", ID_TEXT_LEN, answer + i * ID_TEXT_LEN);
		if (!id_parse(id, &sent[i].id))
			return problem_set(p, LAPSE_ECORRUPT, NULL,
					   "the key's first answer is damaged");
	}
	return LAPSE_OK;
}

/* Sends, unless the idempotency key says that this was done: then *sent has the first ids. What is
 * kept with the key is the ids, one after another. */
static int send_once(struct lapse_store *s, const struct message *draft, const char *const *to,
		     size_t count, struct arena *arena, struct message *sent)
{
	struct buf CLEANUP(buf_done) said = { 0 }, ids = { 0 };
	const char *answer = "";
	char id[ID_TEXT_LEN + 1];

	say_draft(&said, draft, to, count);
	int r = key_begin(s, "lapse_message_send", &said, arena, &answer);
	if (r > 0)
		return read_kept_ids(answer, count, sent, &s->problem);
	if (r < 0)
		return r;
	r = message_send(&s->tx, s->owner, draft, to, count, sent, &s->problem);
	for (size_t i = 0; r == LAPSE_OK && i < count; i++) {
		id_format(sent[i].id, id);
		buf_puts(&ids, id);
	}
	return r == LAPSE_OK ? key_end(s, buf_text(&ids)) : r;
}

/* The recipients are checked. */
static int send_to(struct lapse_store *s, const char *const *to, size_t count,
		   const struct lapse_draft *d, int64_t *ret_ids)
{
	struct arena arena;
	struct message draft, *sent;

	arena_init(&arena);
	sent = arena_alloc(&arena, count * sizeof(*sent));
	int r = message_take_draft(s, d, &arena, &draft);
	if (r == LAPSE_OK)
		r = store_begin(s);
	if (r == LAPSE_OK)
		r = send_once(s, &draft, to, count, &arena, sent);
	r = store_commit(s, r);
	for (size_t i = 0; r == LAPSE_OK && ret_ids && i < count; i++)
		ret_ids[i] = sent[i].id;
	arena_done(&arena);
	return r;
}

int lapse_message_send(struct lapse_store *store, const struct lapse_draft *draft, int64_t *ret_id)
{
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = field_id(draft->to, "to", &store->problem);
	if (r == LAPSE_OK)
		r = send_to(store, &draft->to, 1, draft, ret_id);
	key_done(store);
	return store_end(store, r);
}

int lapse_message_broadcast(struct lapse_store *store, const char *const *to, size_t count,
			    const struct lapse_draft *draft, int64_t *ret_ids)
{
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = check_ids(to, count, LAPSE_LIMIT_MAX, "to", &store->problem);
	if (r == LAPSE_OK)
		r = send_to(store, to, count, draft, ret_ids);
	key_done(store);
	return store_end(store, r);
}

/* Reading */

struct reader {
	uint32_t magic;
	lapse_message_fn *fn;
	void *arg;
};

static struct lapse_message message_view(const struct message *m)
{
	return (struct lapse_message){ .id = m->id,
				       .to = m->to,
				       .from = m->from,
				       .content = m->content,
				       .type = m->type,
				       .metadata = m->metadata,
				       .timestamp = m->timestamp,
				       .read_at = m->read ? m->read_at : LAPSE_NEVER,
				       .claim_id = m->claim_id };
}

static void message_show(void *arg, const struct message *m)
{
	const struct reader *reader = arg;
	struct lapse_message v = message_view(m);

	assert(reader->magic == READER_MAGIC);
	if (reader->fn)
		reader->fn(reader->arg, &v);
}

/* Starts a call on an agent's inbox. */
static int enter_inbox(struct lapse_store *s, const char *agent)
{
	int r = store_enter(s);

	return r < 0 ? r : field_id(agent, "agent", &s->problem);
}

int lapse_message_list(struct lapse_store *store, const char *agent, bool unread_only,
		       int64_t before, int64_t limit, lapse_message_fn *fn, void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	int r = enter_inbox(store, agent);

	if (r == LAPSE_OK)
		r = check_limit(limit, &store->problem);
	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = message_list(
			&store->tx, store->owner, agent, unread_only,
			&(struct message_page){ before > 0 ? before : INT64_MAX, limit, INT64_MAX },
			message_show, &reader);
	return store_end(store, r);
}

int lapse_message_get(struct lapse_store *store, const char *agent, int64_t id,
		      lapse_message_fn *fn, void *arg)
{
	struct reader reader = { READER_MAGIC, fn, arg };
	int r = enter_inbox(store, agent);

	if (r == LAPSE_OK)
		r = store_begin_read(store);
	if (r == LAPSE_OK)
		r = message_get(&store->tx, store->owner, agent, id, message_show, &reader);
	return store_end(store, lib_message_explain(store, r));
}

/* Marking as read */

int lapse_message_mark_read(struct lapse_store *store, const char *agent, int64_t id,
			    int64_t claim_id)
{
	struct reader none = { READER_MAGIC, NULL, NULL };
	int r = enter_inbox(store, agent);

	if (r == LAPSE_OK)
		r = store_begin(store);
	if (r == LAPSE_OK)
		r = message_mark_read(&store->tx, store->owner, agent, id, claim_id, message_show,
				      &none);
	return store_end(store, lib_message_explain(store, r));
}

int lapse_message_mark_ids(struct lapse_store *store, const char *agent, const int64_t *ids,
			   size_t count, int64_t *ret_count)
{
	int64_t marked = 0;
	int r = enter_inbox(store, agent);

	if (r == LAPSE_OK)
		r = field_range(ids ? (int64_t)count : 0, 1, LAPSE_LIMIT_MAX, "count",
				&store->problem);
	if (r == LAPSE_OK)
		r = store_begin(store);
	for (size_t at = 0, done; r == LAPSE_OK && at < count; at += done) {
		int64_t some = 0;
		r = message_mark_ids(&store->tx, store->owner, agent, ids + at, count - at, &done,
				     &some);
		marked += some;
	}
	r = store_end(store, r);
	if (r == LAPSE_OK && ret_count)
		*ret_count = marked;
	return r;
}

/* One transaction's worth. */
static int mark_some(struct lapse_store *s, const char *agent, lapse_ms before, int64_t *ret_count,
		     bool *ret_more)
{
	int r = enter_inbox(s, agent);

	if (r == LAPSE_OK)
		r = store_begin(s);
	if (r == LAPSE_OK)
		r = message_mark_before(&s->tx, s->owner, agent, before, MESSAGE_MARK_A_TURN,
					ret_count, ret_more);
	return store_end(s, r);
}

int lapse_message_mark_before(struct lapse_store *store, const char *agent, lapse_ms before,
			      int64_t *ret_count)
{
	int64_t total = 0, marked;
	bool more;

	do {
		marked = 0;
		more = false;
		int r = mark_some(store, agent, before, &marked, &more);
		if (r < 0)
			return r;
		total += marked;
	} while (more);
	if (ret_count)
		*ret_count = total;
	return LAPSE_OK;
}

/* Claiming: the rows are copied, so that the caller sees them once the leases are durable. */

struct claimed {
	struct arena arena;
	struct lapse_message *messages;
	size_t count;
};

static void message_keep(void *arg, const struct message *m)
{
	struct claimed *c = arg;
	struct lapse_message v = message_view(m);

	v.to = arena_strdup(&c->arena, v.to);
	v.from = arena_strdup(&c->arena, v.from);
	v.content = arena_strdup(&c->arena, v.content);
	v.type = arena_strdup(&c->arena, v.type);
	v.metadata = arena_strdup(&c->arena, v.metadata);
	c->messages[c->count++] = v;
}

static int claim(struct lapse_store *s, const char *agent, int64_t limit, lapse_ms visibility_ms,
		 int64_t claim_id, struct claimed *c)
{
	int64_t count = 0;
	int r = store_begin(s);

	if (r == LAPSE_OK)
		r = message_claim(&s->tx, s->owner, agent, claim_id,
				  time_add(s->tx.now, visibility_ms), limit, INT64_MAX,
				  message_keep, c, &count);
	return store_commit(s, r);
}

int lapse_message_claim(struct lapse_store *store, const char *agent, int64_t limit,
			lapse_ms visibility_ms, lapse_message_fn *fn, void *arg,
			int64_t *ret_claim_id)
{
	int64_t claim_id = id_random();
	struct claimed c = { .count = 0 };
	int r = enter_inbox(store, agent);

	if (r == LAPSE_OK)
		r = check_limit(limit, &store->problem);
	if (r == LAPSE_OK)
		r = field_range(visibility_ms, 1, MESSAGE_VISIBILITY_MAX_MS, "visibility_ms",
				&store->problem);
	if (r < 0)
		return store_end(store, r);
	arena_init(&c.arena);
	c.messages = arena_alloc(&c.arena, (size_t)limit * sizeof(*c.messages));
	r = claim(store, agent, limit, visibility_ms, claim_id, &c);
	for (size_t i = 0; r == LAPSE_OK && i < c.count; i++) {
		c.messages[i].claim_id = claim_id;
		if (fn)
			fn(arg, &c.messages[i]);
	}
	if (r == LAPSE_OK && ret_claim_id)
		*ret_claim_id = c.count > 0 ? claim_id : LAPSE_NO_CLAIM;
	arena_done(&c.arena);
	return store_end(store, r);
}

/* Statistics */

struct inbox_reader {
	lapse_inbox_fn *fn;
	void *arg;
};

static void show_inbox(void *arg, const struct inbox *i)
{
	const struct inbox_reader *reader = arg;
	struct lapse_inbox v = { .agent = i->agent,
				 .total = i->total,
				 .unread = i->unread,
				 .oldest_unread = i->unread > 0 ? i->oldest_unread : LAPSE_NEVER };

	if (reader->fn)
		reader->fn(reader->arg, &v);
}

int lapse_message_stats(struct lapse_store *store, const char *after, int64_t limit,
			lapse_inbox_fn *fn, void *arg)
{
	struct inbox_reader reader = { fn, arg };
	int r = store_begin_list(store, limit);

	if (r == LAPSE_OK)
		r = message_stats(&store->tx, store->owner, after ? after : "", limit, show_inbox,
				  &reader);
	return store_end(store, r);
}
