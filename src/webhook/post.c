/* SPDX-License-Identifier: Apache-2.0 */
#include "webhook/post.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/job.h"
#include "webhook/rules.h"

#define SAVE_EVERY_US (INT64_C(1000) * 1000) /* how much a crash may repeat */
#define MOVE_MAX (INT64_C(60000) << 20)      /* a cursor that skips so much is written down */
#define ANSWER_MAX_BYTES 65536
#define SKIPS_MAX 1000 /* events that a tick looks at before it lets others go first */

#define WEBHOOK_TOPIC "webhook" /* news: the one with this id has changed */
#define HOOK_MAGIC 0x4c484f4bu

/* One webhook in memory. */
struct hook {
	uint32_t magic;
	struct list link;
	struct engine *engine;
	struct arena arena; /* of its texts */
	struct webhook row;
	json_t *types;
	int64_t scanned; /* events up to here are in `pending`, or were looked at */
	int64_t saved;   /* the cursor in the store */
	struct buf pending;
	size_t pending_at;
	lapse_us next; /* monotonic: no attempt before it */
	bool posting, dirty;
	bool gone;    /* deleted or replaced while a post was under way */
	bool reading; /* a worker has its cursor */

	struct fetch fetch;
	struct webhook_event event;
	struct buf body, headers[3];
	const char *lines[WEBHOOK_HEAD_LINES];
	char error[128];
};

/* Writing down */

static void hook_mark_dirty(struct hook *h)
{
	struct webhooks *w = webhooks_of(h->engine);
	const lapse_us at = clock_mono(h->engine->clock) + SAVE_EVERY_US;

	assert(h->magic == HOOK_MAGIC && !h->gone);
	h->dirty = true;
	if (w->save_at == LAPSE_NEVER)
		w->save_at = at;
}

static int hooks_save_all(struct tx *tx, void *arg)
{
	struct webhooks *w = arg;
	int r = cluster_fence(tx, CLUSTER_WEBHOOKS);

	assert(w->magic == WEBHOOKS_MAGIC && tx_can_write(tx));
	for (struct list *l = w->hooks.next; r == LAPSE_OK && l != &w->hooks; l = l->next) {
		struct hook *h = CONTAINER_OF(l, struct hook, link);
		if (h->dirty)
			r = webhook_save(tx, &h->row);
	}
	return r;
}

static void hooks_save(struct engine *e)
{
	struct webhooks *w = webhooks_of(e);

	if (job_do(e, JOB_LAZY, hooks_save_all, w) < 0) {
		w->save_at = clock_mono(e->clock) + SAVE_EVERY_US;
		return;
	}
	w->save_at = LAPSE_NEVER;
	for (struct list *l = w->hooks.next; l != &w->hooks; l = l->next) {
		struct hook *h = CONTAINER_OF(l, struct hook, link);
		h->dirty = false;
		h->saved = h->row.progress.after;
	}
}

/* Memory */

static void hook_free(struct hook *h)
{
	assert(h->magic == HOOK_MAGIC && !h->posting && !h->reading);
	list_remove(&h->link);
	json_decref(h->types);
	buf_done(&h->pending);
	buf_done(&h->body);
	for (int i = 0; i < 3; i++)
		buf_done(&h->headers[i]);
	buf_done(&h->fetch.answer);
	arena_done(&h->arena);
	h->magic = 0;
#ifndef __clang_analyzer__ /* which takes the next node of a list for the one just removed */
	free(h);
#endif
}

/* Out of the list at once; freed once no post and no read uses it. */
static void hook_drop(struct hook *h)
{
	assert(h->magic == HOOK_MAGIC && !h->gone && list_is_linked(&h->link));
	list_remove(&h->link);
	h->gone = true;
	if (!h->posting && !h->reading)
		hook_free(h);
}

static struct hook *hook_find(struct webhooks *w, int64_t id)
{
	for (struct list *l = w->hooks.next; l != &w->hooks; l = l->next) {
		struct hook *h = CONTAINER_OF(l, struct hook, link);
		if (h->row.id == id)
			return h;
	}
	return NULL;
}

static void hook_add(void *arg, const struct webhook *row)
{
	struct engine *e = arg;
	struct webhooks *w = webhooks_of(e);
	struct hook *h = mem_zalloc(1, sizeof(*h));
	lapse_ms pause = time_sub(row->progress.next_at, clock_wall(e->clock));

	assert(row->id > 0 && !hook_find(w, row->id)); /* two would post everything twice */
	h->magic = HOOK_MAGIC;
	h->engine = e;
	arena_init(&h->arena);
	h->row = *row;
	h->row.owner = arena_strdup(&h->arena, row->owner);
	h->row.url = arena_strdup(&h->arena, row->url);
	h->row.secret = arena_strdup(&h->arena, row->secret);
	h->types = json_loads(row->types, 0, NULL);
	snprintf(h->error, sizeof(h->error), "%s", row->progress.last_error);
	h->row.progress.last_error = h->error;
	h->scanned = h->saved = row->progress.after;
	if (pause > 0)
		h->next = clock_mono(e->clock) +
			  (pause < WEBHOOK_RETRY_MAX_MS ? pause : WEBHOOK_RETRY_MAX_MS) * 1000;
	list_init(&h->link);
	list_append(&w->hooks, &h->link);
	w->low = w->low < h->scanned ? w->low : h->scanned;
	w->next = 0;
}

static void webhooks_refresh_now(struct engine *e, void *arg)
{
	const int64_t id = *(const int64_t *)arg;
	struct hook *h = hook_find(webhooks_of(e), id);
	struct arena CLEANUP(arena_done) arena;
	struct webhook row;

	arena_init(&arena);
	if (h)
		hook_drop(h);
	if (!webhooks_of(e)->leads)
		return;
	if (webhook_read(e->db, id, &arena, &row) > 0)
		hook_add(e, &row);
}

void webhooks_refresh(struct tx *tx, int64_t id)
{
	int64_t *arg = tx_alloc(tx, sizeof(*arg));

	*arg = id;
	tx_effect(tx, webhooks_refresh_now, arg);
	if (cluster_has_others(&tx->engine->cluster)) /* where telling fails, so does tx */
		cluster_tell(tx, WEBHOOK_TOPIC, arena_printf(&tx->arena, "%lld", (long long)id));
}

static int webhooks_news(struct tx *tx, const char *topic, const char *key, lapse_ms at)
{
	int64_t id = strtoll(key, NULL, 10);

	(void)at;
	if (strcmp(topic, WEBHOOK_TOPIC) == 0)
		webhooks_refresh_now(tx->engine, &id);
	return LAPSE_OK;
}

/* The memory follows rows that have moved, as webhook/owned.c moved them. Events that wait already
 * are still posted. */
static void webhooks_owner_moved(struct engine *e, const char *from, const char *to, bool whole)
{
	const struct list *hooks = &webhooks_of(e)->hooks;

	assert(strcmp(from, to) != 0);
	if (!whole) /* webhooks move in the last transaction */
		return;
	for (struct list *l = hooks->next; l != hooks; l = l->next) {
		struct hook *h = CONTAINER_OF(l, struct hook, link);
		if (strcmp(h->row.owner, from) != 0)
			continue;
		h->row.owner = arena_strdup(&h->arena, to);
		h->row.generation++;
	}
}

/* Outcomes */

static void hook_pop(struct hook *h)
{
	assert(!h->posting && !h->reading && h->event.length > 0);
	assert(h->pending_at + h->event.length <= h->pending.len);
	h->pending_at += h->event.length;
	h->row.progress.after = h->event.seq;
	h->row.progress.attempts = 0;
	h->row.progress.event_since = 0;
	h->row.progress.next_at = 0;
	h->next = 0;
}

struct burial {
	struct hook *hook;
	const char *kind;
	bool give_up;
	const char *disable; /* why; NULL = it stays */
};

static int hook_bury(struct tx *tx, void *arg)
{
	const struct burial *b = arg;
	struct hook *h = b->hook;
	struct webhook row = h->row; /* a copy: this may run again */
	int r = cluster_fence(tx, CLUSTER_WEBHOOKS);

	assert(h->magic == HOOK_MAGIC && (b->give_up || b->disable));
	if (r == LAPSE_OK && b->give_up) {
		r = webhook_bury(tx, &row, h->event.seq, b->kind);
		row.progress.after = h->event.seq;
	}
	if (r == LAPSE_OK)
		r = b->disable ? webhook_disable(tx, &row, b->disable) : webhook_save(tx, &row);
	return r;
}

/* What a failure means beyond the next attempt. */
static void hook_judge(struct hook *h, bool refused)
{
	const struct settings *set = h->engine->settings;
	struct webhook_progress *s = &h->row.progress;
	const lapse_ms now = clock_wall(h->engine->clock);
	char kind[128];
	struct burial b = { .hook = h, .kind = kind };

	snprintf(kind, sizeof(kind), "%.*s", (int)h->event.kind_len, h->event.kind);
	b.give_up = time_sub(now, s->event_since) >= set->webhook_give_up_ms;
	if (refused)
		b.disable = "its receiver said 410 Gone";
	else if (time_sub(now, s->failing_since) >= set->webhook_disable_after_ms)
		b.disable = "it failed longer than webhook_disable_after_ms";
	if (!b.give_up && !b.disable)
		return;
	if (job_do(h->engine, JOB_LAZY, hook_bury, &b) < 0)
		return; /* the next failure tries again */
	if (b.give_up) {
		webhooks_of(h->engine)->buried++;
		hook_pop(h);
	}
	if (b.disable) {
		h->row.enabled = false;
		h->row.disabled_at = now;
	}
}

static void hook_failed(struct hook *h, bool refused)
{
	struct webhook_progress *s = &h->row.progress;
	const lapse_ms now = clock_wall(h->engine->clock);
	uint32_t random = 0;

	assert(!h->posting && !h->gone && s->attempts >= 0);
	random_bytes(&random, sizeof(random));
	s->attempts++;
	s->event_since = s->event_since ? s->event_since : now;
	s->failing_since = s->failing_since ? s->failing_since : now;
	lapse_ms pause = webhook_pause(h->engine->settings->webhook_retry_ms, s->attempts, random);
	s->next_at = time_add(now, pause);
	h->next = clock_mono(h->engine->clock) + pause * 1000;
	webhooks_of(h->engine)->failed++;
	hook_judge(h, refused);
}

static void hook_answered(struct fetch *f)
{
	struct hook *h = f->arg;
	struct webhooks *w = webhooks_of(h->engine);
	struct webhook_progress *s = &h->row.progress;
	const bool good = f->err == LAPSE_OK && f->status >= 200 && f->status < 300;

	assert(h->magic == HOOK_MAGIC && h->posting);
	h->posting = false;
	buf_done(&f->answer);
	if (h->gone) {
		if (!h->reading)
			hook_free(h);
		return;
	}
	if (f->err == LAPSE_EUNAVAILABLE) /* we stop: it was no attempt */
		return;
	s->last_at = clock_wall(h->engine->clock);
	s->last_status = f->err == LAPSE_OK ? f->status : 0;
	if (good)
		h->error[0] = '\0';
	else if (f->err == LAPSE_OK)
		snprintf(h->error, sizeof(h->error), "the receiver answered %d", f->status);
	else
		snprintf(h->error, sizeof(h->error), "%.120s",
			 f->err == LAPSE_ETIMEOUT && !f->why[0] ? "no answer in time" : f->why);
	if (good) {
		s->failing_since = 0;
		w->delivered++;
		hook_pop(h);
	} else {
		hook_failed(h, f->err == LAPSE_OK && f->status == 410);
	}
	hook_mark_dirty(h);
	w->next = 0;
}

/* Posting */

static void hook_post(struct hook *h)
{
	struct engine *e = h->engine;
	struct problem p = { 0 };

	assert(h->row.enabled && !h->posting && !h->reading && !h->gone);
	buf_clear(&h->body);
	webhook_envelope(&h->body, h->row.owner, &h->event);
	if (webhook_head(e, &h->row, h->event.seq, &h->body, h->headers, h->lines, &p) < 0) {
		snprintf(h->error, sizeof(h->error), "%.120s", p.message);
		hook_failed(h, false);
		hook_mark_dirty(h);
		return;
	}
	h->fetch = (struct fetch){ .method = "POST",
				   .url = h->row.url,
				   .headers = h->lines,
				   .body = h->body.data,
				   .body_len = h->body.len,
				   .timeout_ms = e->settings->webhook_timeout_ms,
				   .answer_max_bytes = ANSWER_MAX_BYTES,
				   .done = hook_answered,
				   .arg = h };
	h->posting = true;
	webhooks_of(e)->fetcher->start(webhooks_of(e)->fetcher, &h->fetch);
}

static bool hook_wants(const struct hook *h)
{
	char kind[128];
	const json_t *type;
	size_t i;

	snprintf(kind, sizeof(kind), "%.*s", (int)h->event.kind_len, h->event.kind);
	json_array_foreach (h->types, i, type)
		if (webhook_type_matches(json_string_value(type), kind))
			return true;
	return false;
}

/* Up to the next event it wants, which is posted. */
static void hook_move(struct hook *h)
{
	assert(h->magic == HOOK_MAGIC && h->pending_at <= h->pending.len);
	for (int i = 0; i < SKIPS_MAX && h->pending_at < h->pending.len; i++) {
		const bool parsed = webhook_parse_event(h->pending.data + h->pending_at, &h->event);

		assert(parsed); /* we wrote it */
		if (!parsed)
			break;
		if (hook_wants(h)) {
			hook_post(h);
			return;
		}
		hook_pop(h);
	}
	if (h->pending_at < h->pending.len)
		return;
	buf_clear(&h->pending);
	h->pending_at = 0;
	h->row.progress.after = h->scanned;
	if (h->scanned - h->saved > MOVE_MAX)
		hook_mark_dirty(h);
}

static bool hook_is_ready(const struct hook *h, lapse_us now)
{
	return h->row.enabled && !h->posting && h->next <= now;
}

/* Reading */

static bool hook_is_hungry(const struct hook *h)
{
	return h->row.enabled && !h->posting && h->pending.len == 0;
}

static void webhooks_read(struct offload *o) /* on a worker */
{
	struct webhooks *w = CONTAINER_OF(o, struct webhooks, offload);

	replay_run(o->engine, &w->replay);
}

static void webhooks_take_page(struct hook *h, struct replay_reader *page, int err)
{
	assert(h->magic == HOOK_MAGIC && h->reading);
	h->reading = false;
	if (h->gone) {
		if (!h->posting)
			hook_free(h);
		return;
	}
	if (err < 0)
		return;
	assert(page->cursor >= h->scanned && h->pending.len == 0);
	h->scanned = page->cursor;
	buf_done(&h->pending);
	h->pending = page->text;
	page->text = (struct buf){ 0 };
	h->pending_at = 0;
}

static void webhooks_have_read(struct offload *o)
{
	struct webhooks *w = CONTAINER_OF(o, struct webhooks, offload);

	assert(w->magic == WEBHOOKS_MAGIC && w->reading);
	w->reading = false;
	for (size_t i = 0; i < w->replay.count; i++)
		webhooks_take_page(w->replay.readers[i].tag, &w->replay.readers[i], w->replay.err);
	replay_done(&w->replay);
	w->replay.count = 0;
	w->next = 0;
}

/* All hooks that have nothing left, from the one that is furthest behind. */
static void webhooks_start_reading(struct engine *e)
{
	struct webhooks *w = webhooks_of(e);
	struct replay *r = &w->replay;

	assert(!w->reading && !w->stopped);
	r->count = 0;
	r->from = w->low;
	r->upto = e->ring.newest;
	r->due = e->ring.pruned;
	for (struct list *l = w->hooks.next; l != &w->hooks && r->count < REPLAY_READERS;
	     l = l->next) {
		struct hook *h = CONTAINER_OF(l, struct hook, link);
		if (!hook_is_hungry(h) || h->scanned >= r->upto)
			continue;
		assert(!h->reading);
		r->readers[r->count++] = (struct replay_reader){ .owner = mem_strdup(h->row.owner),
								 .cursor = h->scanned,
								 .tag = h };
		h->reading = true;
	}
	if (r->count == 0)
		return;
	w->reading = true;
	w->offload = (struct offload){ .work = webhooks_read, .done = webhooks_have_read };
	offload_start(e, &w->offload);
}

/* The room */

static void webhooks_plan(struct engine *e)
{
	struct webhooks *w = webhooks_of(e);

	w->next = w->save_at;
	w->low = INT64_MAX;
	for (struct list *l = w->hooks.next; l != &w->hooks; l = l->next) {
		struct hook *h = CONTAINER_OF(l, struct hook, link);
		if (!h->row.enabled || h->posting)
			continue;
		if (h->pending.len > 0)
			w->next = h->next < w->next ? h->next : w->next;
		else if (h->scanned < w->low)
			w->low = h->scanned;
	}
}

/* In a cluster one replica posts. Whoever becomes that one reads every hook anew: where each of
 * them is, the replica before has written down. */
static bool webhooks_lead(struct engine *e)
{
	struct webhooks *w = webhooks_of(e);
	const bool leads = cluster_leads(e, CLUSTER_WEBHOOKS);
	struct arena CLEANUP(arena_done) arena;

	arena_init(&arena);
	if (leads == w->leads)
		return leads;
	while (!list_empty(&w->hooks))
		hook_drop(CONTAINER_OF(w->hooks.next, struct hook, link));
	w->save_at = LAPSE_NEVER;
	w->low = INT64_MAX;
	w->leads = leads && webhook_each(e->db, &arena, hook_add, e) == LAPSE_OK;
	return w->leads;
}

static void webhooks_tick(struct engine *e)
{
	struct webhooks *w = webhooks_of(e);
	const lapse_us now = clock_mono(e->clock);

	if (!w->fetcher || w->stopped || !webhooks_lead(e))
		return;
	for (struct list *l = w->hooks.next, *next; l != &w->hooks; l = next) {
		struct hook *h = CONTAINER_OF(l, struct hook, link);
		next = l->next;
		if (hook_is_ready(h, now) && h->pending.len > 0 && !h->reading)
			hook_move(h);
	}
	if (w->save_at <= now)
		hooks_save(e);
	webhooks_plan(e);
	if (!w->reading && w->low < e->ring.newest)
		webhooks_start_reading(e);
}

static lapse_us webhooks_next_us(const struct engine *e)
{
	const struct webhooks *w = webhooks_of(e);

	if (!w->fetcher || w->stopped)
		return INT64_MAX;
	if (w->leads != cluster_leads(e, CLUSTER_WEBHOOKS))
		return 0;
	if (list_empty(&w->hooks))
		return INT64_MAX;
	if (!w->reading && w->low < e->ring.newest)
		return 0;
	if (w->next == LAPSE_NEVER)
		return INT64_MAX;
	lapse_us left = w->next - clock_mono(e->clock);
	return left > 0 ? left : 0;
}

static int webhooks_load(struct tx *tx)
{
	struct webhooks *w = mem_zalloc(1, sizeof(*w));

	w->magic = WEBHOOKS_MAGIC;
	w->low = INT64_MAX;
	w->save_at = LAPSE_NEVER;
	list_init(&w->hooks);
	engine_set_room(tx->engine, ROOM_WEBHOOK, w);
	w->leads = !tx->engine->cluster.on;
	return w->leads ? webhook_each(tx->db, &tx->arena, hook_add, tx->engine) : LAPSE_OK;
}

void webhooks_give(struct engine *e, struct fetcher *fetcher)
{
	assert(fetcher && fetcher->start);
	assert(!webhooks_of(e)->fetcher);
	webhooks_of(e)->fetcher = fetcher;
}

static void webhooks_stop(struct engine *e)
{
	struct webhooks *w = webhooks_of(e);

	if (w->save_at != LAPSE_NEVER)
		hooks_save(e);
	w->stopped = true;
}

static void webhooks_done(struct engine *e)
{
	struct webhooks *w = engine_room(e, ROOM_WEBHOOK);

	if (!w)
		return;
	assert(w->magic == WEBHOOKS_MAGIC && !w->reading);
	for (struct list *l = w->hooks.next, *next; l != &w->hooks; l = next) {
		next = l->next;
		hook_free(CONTAINER_OF(l, struct hook, link));
	}
	seal_done(&w->key);
	w->magic = 0;
	free(w);
	engine_set_room(e, ROOM_WEBHOOK, NULL);
}

static void webhooks_write_metrics(const struct engine *e, struct buf *out)
{
	const struct webhooks *w = webhooks_of(e);

	metrics_family(out, METRIC_WEBHOOKS);
	metrics_sample(out, METRIC_WEBHOOKS, "result=\"delivered\"", w->delivered);
	metrics_sample(out, METRIC_WEBHOOKS, "result=\"failed\"", w->failed);
	metrics_sample(out, METRIC_WEBHOOKS, "result=\"dead_letter\"", w->buried);
}

const struct room WEBHOOK_ROOM = {
	.id = ROOM_WEBHOOK,
	.load = webhooks_load,
	.tick = webhooks_tick,
	.next_us = webhooks_next_us,
	.stop = webhooks_stop,
	.done = webhooks_done,
	.owner_moved = webhooks_owner_moved,
	.write_metrics = webhooks_write_metrics,
	.news = webhooks_news,
};

/* Trials */

static void webhook_trial_answered(struct fetch *f)
{
	struct webhook_trial *t = CONTAINER_OF(f, struct webhook_trial, fetch);

	assert(t->done);
	buf_done(&f->answer);
	buf_done(&t->body);
	for (int i = 0; i < 3; i++)
		buf_done(&t->headers[i]);
	t->done(t);
}

int webhook_trial_start(struct engine *e, const struct webhook *w, struct webhook_trial *t,
			struct problem *p)
{
	struct fetcher *fetcher = webhooks_of(e)->fetcher;
	char at[TIME_TEXT_LEN + 1];
	const struct webhook_event test = { .seq = id_next(&e->ids, clock_wall(e->clock)),
					    .kind = "webhook.test",
					    .kind_len = strlen("webhook.test"),
					    .at = at,
					    .data = "{}",
					    .data_len = 2 };

	assert(t->done && t->body.len == 0);
	if (!fetcher)
		return problem_set(p, LAPSE_EUNAVAILABLE, NULL, "nothing can be posted here");
	time_format(clock_wall(e->clock), at);
	webhook_envelope(&t->body, w->owner, &test);
	int r = webhook_head(e, w, test.seq, &t->body, t->headers, t->lines, p);
	if (r < 0)
		return r;
	t->fetch = (struct fetch){ .method = "POST",
				   .url = w->url,
				   .headers = t->lines,
				   .body = t->body.data,
				   .body_len = t->body.len,
				   .timeout_ms = e->settings->webhook_timeout_ms,
				   .answer_max_bytes = ANSWER_MAX_BYTES,
				   .done = webhook_trial_answered };
	fetcher->start(fetcher, &t->fetch);
	return LAPSE_OK;
}
