/* SPDX-License-Identifier: Apache-2.0 */
#include "api/engine.h"

#include <assert.h>
#include <string.h>

#include "engine/deadletter.h"
#include "store/backup.h"

/* GET /v1/matrix: due rows are counted on a worker. */

struct matrix_state {
	struct due_counts *due;
	int err;
};

static void matrix_work(struct call *c)
{
	struct matrix_state *s = c->state;

	s->err = engine_count_due(c->engine, s->due);
}

static int matrix_finish(struct call *c)
{
	const struct matrix_state *s = c->state;

	if (s->err == LAPSE_OK)
		matrix_write_json(c->engine, s->due, &c->reply);
	matrix_count_end(c->engine);
	return s->err;
}

int matrix_api_get(struct call *c)
{
	struct matrix_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->due = matrix_count_begin(c->engine, &c->arena, c->admin ? NULL : c->owner,
				    clock_wall(c->engine->clock));
	return call_work(c, matrix_work, matrix_finish);
}

/* POST /v1/sweep/{scheduler}: the answer waits until the sweep has ended, and then for the
 * deletions outside that it started, until they have settled or this time is over. */
#define SETTLE_MAX_MS 60000

struct sweep_query {
	bool dry_run;
};

const struct json_field SWEEP_QUERY[] = {
	{ "dry_run", FIELD_BOOL, false, offsetof(struct sweep_query, dry_run), 0, 0,
	  "only tell what a sweep would remove" },
	{ 0 },
};

struct sweep_state {
	struct sweep_request request;
	struct cleanup_follower follower;
	const char *wait_key; /* what its settling wakes */
	struct call *call;
	int err;
	bool done;
	struct sweep result;
	struct sweep_count *tables;
	size_t tables_count;
};

static void sweep_answered(struct sweep_request *r, int err, const struct sweep *result)
{
	struct sweep_state *s = CONTAINER_OF(r, struct sweep_state, request);

	assert(s->call->magic == CALL_MAGIC && !s->done);
	s->err = err;
	s->done = true;
	s->result = *result;
	s->tables_count = sweep_counts(result, &s->call->arena, &s->tables);
	call_wake(s->call);
}

static void deletion_settled(struct cleanup_follower *f)
{
	struct sweep_state *s = CONTAINER_OF(f, struct sweep_state, follower);

	assert(f->magic == FOLLOWER_MAGIC);
	if (f->targets.count == 0)
		waiters_wake(s->call->engine, s->wait_key);
}

static void write_outside(const struct sweep_state *s, struct buf *out)
{
	json_put_int(out, "expired", s->result.outside.expired);
	json_put_int(out, "retried", s->result.outside.retried);
	json_put_int(out, "cleaned", s->result.outside.cleaned + s->follower.cleaned);
	json_put_int(out, "failed", s->follower.failed);
	json_put_int(out, "dead_letters", s->follower.dead);
}

static void write_sweep(const struct sweep_state *s, struct buf *out)
{
	const struct sweep *w = &s->result;

	json_begin(out, '{');
	json_put_text(out, "scheduler", w->scheduler->def->name);
	json_put_bool(out, "dry_run", w->dry_run);
	json_put_int(out, "pruned", w->total);
	json_key(out, "tables");
	json_begin(out, '{');
	for (size_t i = 0; i < s->tables_count; i++)
		json_put_int(out, s->tables[i].table, s->tables[i].pruned);
	json_end(out, '}');
	json_put_int(out, "duration_ms", (w->ended - w->started) / 1000);
	if (w->scheduler->def->outside)
		write_outside(s, out);
	json_end(out, '}');
}

static int sweep_finish(struct call *c)
{
	struct sweep_state *s = c->state;
	lapse_ms left = call_wait_left(c, SETTLE_MAX_MS);

	if (s->done && s->err == LAPSE_OK && s->follower.targets.count > 0 && left > 0) {
		c->next = sweep_finish;
		return call_park(c, s->wait_key, left);
	}
	follower_done(&s->follower);
	if (!s->done)
		return LAPSE_EUNAVAILABLE;
	if (s->err < 0)
		return s->err;
	write_sweep(s, &c->reply);
	return LAPSE_OK;
}

int sweep_api_run(struct call *c)
{
	struct scheduler *scheduler = schedule_find(c->engine, c->params[0]);
	struct sweep_query query = { 0 };
	int r = call_query(c, SWEEP_QUERY, &query);

	if (r < 0)
		return r;
	if (!scheduler)
		return problem_set(&c->problem, LAPSE_ENOTFOUND, "scheduler",
				   "there is no scheduler '%.60s': the matrix has their names",
				   c->params[0]);
	struct sweep_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));
	s->call = c;
	s->request.dry_run = query.dry_run;
	s->request.done = sweep_answered;
	s->request.follower = &s->follower;
	s->follower.settled = deletion_settled;
	s->wait_key = arena_printf(&c->arena, "sweep/%p", (void *)s);
	list_init(&s->request.link);
	r = schedule_request(c->engine, scheduler, &s->request);
	if (r < 0)
		return problem_set(&c->problem, r, NULL, "too many sweeps of %s are waiting",
				   scheduler->def->name);
	follower_init(c->engine, &s->follower);
	return call_await(c, sweep_finish);
}

/* The clock. */

static void write_clock(struct call *c)
{
	struct guard *g = &c->engine->guard;
	lapse_ms now = guard_now(g);
	lapse_ms steady_ms = (clock_mono(c->engine->system) - g->steady_since) / 1000;
	bool by_itself = g->jumped && g->leap_ms <= LEAP_AUTO_ACCEPT_MS;

	json_begin(&c->reply, '{');
	json_put_time(&c->reply, "trusted", now);
	json_put_time(&c->reply, "wall", clock_wall(c->engine->system));
	json_put_text(&c->reply, "state", g->jumped ? "jumped" : "trusted");
	json_put_int(&c->reply, "leap_ms", g->jumped ? g->leap_ms : 0);
	json_key(&c->reply, "accepted_in_ms");
	if (by_itself)
		json_int(&c->reply, g->accept_after_ms - steady_ms);
	else
		json_text(&c->reply, NULL);
	json_end(&c->reply, '}');
}

int clock_api_get(struct call *c)
{
	write_clock(c);
	return LAPSE_OK;
}

int replicas_api_list(struct call *c)
{
	return cluster_write_json(c->tx, &c->reply);
}

int clock_api_accept(struct call *c)
{
	if (!guard_accept(&c->engine->guard))
		return problem_set(&c->problem, LAPSE_ECONFLICT, NULL,
				   "the clock is trusted: there is no leap to accept");
	write_clock(c);
	return LAPSE_OK;
}

/* Dead letters. */

static void write_dead_letter(struct buf *out, const struct dead_letter *d)
{
	json_begin(out, '{');
	json_put_id(out, "id", d->id);
	json_put_text(out, "kind", d->kind);
	json_put_text(out, "target", d->target);
	json_put_text(out, "owner", d->owner);
	json_put_text(out, "state", d->state == CLEANUP_DEAD ? "dead_letter" : "pending");
	json_put_int(out, "attempts", d->attempts);
	json_put_text(out, "error", d->error);
	json_put_time(out, "created_at", d->created_at);
	json_end(out, '}');
}

static void add_dead_letter(void *arg, const struct dead_letter *d)
{
	struct page_writer *w = arg;

	if (page_item(w, d->id))
		write_dead_letter(w->out, d);
}

static int list_dead_letters(struct call *c, int64_t before, int64_t limit, struct page_writer *w)
{
	return dead_letter_list(c->tx, before, limit, add_dead_letter, w);
}

int dead_letter_api_list(struct call *c)
{
	return call_page(c, list_dead_letters);
}

static int no_such_dead_letter(struct call *c)
{
	return problem_set(&c->problem, LAPSE_ENOTFOUND, "id", "there is no dead letter '%.60s'",
			   c->params[0]);
}

int dead_letter_api_retry(struct call *c)
{
	struct dead_letter d;
	int64_t id;

	if (!id_parse(c->params[0], &id))
		return no_such_dead_letter(c);
	int r = dead_letter_retry(c->tx, id, &c->arena, &d);
	if (r == LAPSE_ENOTFOUND)
		return no_such_dead_letter(c);
	if (r == LAPSE_OK)
		write_dead_letter(&c->reply, &d);
	return r;
}

/* POST /v1/dead-letters/retry: all of them, or those of a kind or an age; some in each turn. */
#define RETRIES_A_TURN 100

const struct json_field DEAD_LETTER_RETRY_BODY[] = {
	{ "kind", FIELD_LABEL, false, offsetof(struct dead_letter_filter, kind), 1, 64,
	  "only deletions of this kind: mailbox, attachment or file" },
	{ "before", FIELD_TIME, false, offsetof(struct dead_letter_filter, before), 0, 0,
	  "only deletions that were first wanted before this time" },
	{ 0 },
};

struct retry_many {
	int64_t after, retried;
};

static int check_kind(struct call *c, const char *kind)
{
	if (!kind || cleaner_kind_named(c->engine, kind))
		return LAPSE_OK;
	return problem_set(&c->problem, LAPSE_EINVAL, "kind",
			   "kind must be mailbox, attachment or file, not '%.60s'", kind);
}

int dead_letter_api_retry_many(struct call *c)
{
	struct dead_letter_filter filter = { .before = LAPSE_NEVER };
	int64_t n = 0;
	int r = call_body(c, DEAD_LETTER_RETRY_BODY, &filter);

	if (r == LAPSE_OK)
		r = check_kind(c, filter.kind);
	if (r < 0)
		return r;
	if (!c->state)
		c->state = arena_alloc(&c->arena, sizeof(struct retry_many));
	struct retry_many *m = c->state;
	r = dead_letter_retry_many(c->tx, &filter, RETRIES_A_TURN, &m->after, &n);
	if (r < 0)
		return r;
	m->retried += n;
	if (n == RETRIES_A_TURN)
		return CALL_AGAIN;
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "retried", m->retried);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

int dead_letter_api_drop(struct call *c)
{
	int64_t id;

	if (!id_parse(c->params[0], &id))
		return no_such_dead_letter(c);
	int r = dead_letter_drop(c->tx, id, &c->arena);
	if (r == LAPSE_ENOTFOUND)
		return no_such_dead_letter(c);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_id(&c->reply, "id", id);
	json_put_bool(&c->reply, "dropped", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* POST /v1/backup: the copy is made on a worker; old ones go as durable intents. */

struct surplus {
	struct surplus *next;
	char name[320];
};

struct backup_state {
	struct backup backup;
	struct problem problem;
	struct surplus *surplus;
	struct arena *arena; /* the call's own: while it waits, only the worker uses it */
	int err;
};

static void add_surplus(void *arg, const char *name)
{
	struct backup_state *s = arg;
	struct surplus *x = arena_alloc(s->arena, sizeof(*x));

	strncpy(x->name, name, sizeof(x->name) - 1);
	x->next = s->surplus;
	s->surplus = x;
}

static void backup_work(struct call *c)
{
	struct backup_state *s = c->state;
	const struct settings *settings = c->engine->settings;

	s->err = store_backup(c->engine->store, c->engine->system, &s->backup, &s->problem);
	if (s->err == LAPSE_OK)
		s->err = backup_surplus(settings->data_dir, settings->backup_keep, add_surplus, s);
}

static int announce_backup(struct call *c, const struct backup *b)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	json_put_text(&data, "file", b->name);
	json_put_int(&data, "bytes", b->bytes);
	json_put_text(&data, "by", c->token);
	json_end(&data, '}');
	return event_add(c->tx, "", EVENT_BACKUP_MADE, &data);
}

static int backup_finish(struct call *c)
{
	const struct backup_state *s = c->state;
	int r = s->err;

	c->problem = s->problem;
	for (const struct surplus *x = s->surplus; r == LAPSE_OK && x; x = x->next)
		r = cleanup_add(c->tx, c->owner, &CLEANUP_FILE, x->name);
	if (r == LAPSE_OK)
		r = announce_backup(c, &s->backup);
	if (r < 0)
		return r;
	c->status = 201;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "file", s->backup.name);
	json_put_int(&c->reply, "bytes", s->backup.bytes);
	json_put_time(&c->reply, "created_at", s->backup.created_at);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

int backup_api_make(struct call *c)
{
	struct backup_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->arena = &c->arena;
	return call_work(c, backup_work, backup_finish);
}
