/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/api.h"

#include <string.h>

#include "engine/deadletter.h"
#include "engine/follow.h"
#include "engine/hold.h"
#include "engine/token.h"
#include "store/backup.h"

/* GET /v1/matrix: due rows are counted on a worker. */

struct matrix_state {
	struct due_count due[BOUNDS_MAX];
	lapse_ms now;
	int err;
};

static void matrix_work(struct call *c)
{
	struct matrix_state *s = c->state;

	s->err = engine_count_due(c->engine, s->now, s->due);
}

static int matrix_finish(struct call *c)
{
	const struct matrix_state *s = c->state;

	if (s->err < 0)
		return s->err;
	matrix_write_json(c->engine, s->due, s->now, &c->reply);
	return LAPSE_OK;
}

int matrix_api_get(struct call *c)
{
	struct matrix_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));

	s->now = clock_wall(c->engine->clock);
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
};

static void sweep_done(struct sweep_request *r, int err, const struct sweep *result)
{
	struct sweep_state *s = CONTAINER_OF(r, struct sweep_state, request);

	s->err = err;
	s->done = true;
	s->result = *result;
	s->call->wake(s->call);
}

static void deletion_settled(struct cleanup_follower *f)
{
	struct sweep_state *s = CONTAINER_OF(f, struct sweep_state, follower);

	if (f->targets.count == 0)
		wait_wake(&s->call->engine->waits, s->wait_key);
}

static void write_outside(const struct sweep_state *s, struct buf *out)
{
	json_put_int(out, "expired", s->result.outside.expired);
	json_put_int(out, "retried", s->result.outside.retried);
	json_put_int(out, "cleaned", s->result.outside.cleaned + s->follower.cleaned);
	json_put_int(out, "failed", s->follower.failed);
	json_put_int(out, "dead_letters", s->follower.dead);
}

static void write_sweep(const struct engine *e, const struct sweep_state *s, struct buf *out)
{
	const struct sweep *w = &s->result;

	json_begin(out, '{');
	json_put_text(out, "scheduler", w->scheduler);
	json_put_bool(out, "dry_run", w->dry_run);
	json_put_int(out, "pruned", w->total);
	json_key(out, "tables");
	json_begin(out, '{');
	for (size_t i = 0; i < e->bounds_count; i++)
		if (strcmp(e->bounds[i]->scheduler, w->scheduler) == 0)
			json_put_int(out, e->bounds[i]->table, w->pruned[i]);
	json_end(out, '}');
	json_put_int(out, "duration_ms", (w->ended - w->started) / 1000);
	if (schedule_find(e, w->scheduler)->def->outside)
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
	write_sweep(c->engine, s, &c->reply);
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
				   "there is no scheduler '%.60s' (see /v1/matrix)", c->params[0]);
	struct sweep_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));
	s->call = c;
	s->request.dry_run = query.dry_run;
	s->request.done = sweep_done;
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

/* Holds. */

const struct json_field HOLD_BODY[] = {
	{ "reason", FIELD_LABEL, true, offsetof(struct hold, reason), 1, HOLD_REASON_MAX,
	  "why it must not be removed" },
	{ "until", FIELD_TIME, false, offsetof(struct hold, until), 0, 0,
	  "when the hold ends by itself" },
	{ 0 },
};

static void write_hold(struct buf *out, const struct hold *h)
{
	json_begin(out, '{');
	json_put_text(out, "table", h->table);
	json_put_text(out, "key", h->key);
	json_put_text(out, "reason", h->reason);
	json_put_time(out, "until", h->until);
	json_put_time(out, "placed_at", h->placed_at);
	json_end(out, '}');
}

int hold_api_put(struct call *c)
{
	struct hold h = {
		.owner = c->owner, .table = c->params[0], .key = c->params[1], .until = LAPSE_NEVER
	};
	int r = call_body(c, HOLD_BODY, &h);

	if (r < 0)
		return r;
	if (h.until <= c->tx->now)
		return problem_set(&c->problem, LAPSE_EINVAL, "until",
				   "until must be in the future");
	r = hold_place(c->tx, &h, &c->problem);
	if (r == LAPSE_OK)
		write_hold(&c->reply, &h);
	return r;
}

static int no_such_hold(struct call *c)
{
	return problem_set(&c->problem, LAPSE_ENOTFOUND, NULL, "there is no hold on %.60s/%.60s",
			   c->params[0], c->params[1]);
}

int hold_api_get(struct call *c)
{
	struct hold h;
	int r = hold_get(c->tx, &c->arena, c->owner, c->params[0], c->params[1], &h);

	if (r == LAPSE_ENOTFOUND)
		return no_such_hold(c);
	if (r == LAPSE_OK)
		write_hold(&c->reply, &h);
	return r;
}

static int check_hold_match(struct call *c)
{
	struct buf CLEANUP(buf_done) json = { 0 };
	struct hold h;

	if (!c->if_match)
		return LAPSE_OK;
	int r = hold_get(c->tx, &c->arena, c->owner, c->params[0], c->params[1], &h);
	if (r < 0)
		return r;
	write_hold(&json, &h);
	return call_check_match(c, &json);
}

int hold_api_delete(struct call *c)
{
	int r = check_hold_match(c);

	if (r == LAPSE_OK)
		r = hold_release(c->tx, c->owner, c->params[0], c->params[1]);
	if (r == LAPSE_ENOTFOUND)
		return no_such_hold(c);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "table", c->params[0]);
	json_put_text(&c->reply, "key", c->params[1]);
	json_put_bool(&c->reply, "released", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

static void add_hold(void *arg, const struct hold *h)
{
	struct page_writer *w = arg;

	if (page_item(w, h->id))
		write_hold(w->out, h);
}

static int list_holds(struct call *c, int64_t before, int64_t limit, struct page_writer *w)
{
	return hold_list(c->tx, c->owner, before, limit, add_hold, w);
}

int hold_api_list(struct call *c)
{
	return call_page(c, list_holds);
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

int clock_api_accept(struct call *c)
{
	if (!guard_accept(&c->engine->guard))
		return problem_set(&c->problem, LAPSE_ECONFLICT, NULL,
				   "the clock is trusted: there is no leap to accept");
	write_clock(c);
	return LAPSE_OK;
}

/* Tokens. */

struct token_body {
	const char *owner;
	bool admin;
	int64_t ttl_ms;
};

const struct json_field TOKEN_BODY[] = {
	{ "owner", FIELD_ID, true, offsetof(struct token_body, owner), 0, 0,
	  "whom the token belongs to: a fleet, a tenant" },
	{ "admin", FIELD_BOOL, false, offsetof(struct token_body, admin), 0, 0,
	  "may use admin routes and act for other owners" },
	{ "ttl_ms", FIELD_INT, false, offsetof(struct token_body, ttl_ms), 1, 100 * YEAR_MS,
	  "lifetime; without it the token lives until it is revoked" },
	{ 0 },
};

static void write_token(struct buf *out, const struct token *t, const char *text)
{
	json_begin(out, '{');
	if (text)
		json_put_text(out, "token", text);
	json_put_text(out, "prefix", t->prefix);
	json_put_text(out, "owner", t->owner);
	json_put_bool(out, "admin", t->admin);
	json_put_time(out, "created_at", t->created_at);
	json_put_time(out, "expires_at", t->expires_at);
	json_end(out, '}');
}

int token_api_create(struct call *c)
{
	struct token_body body = { 0 };
	char text[TOKEN_TEXT_MAX];
	int r = call_body(c, TOKEN_BODY, &body);

	if (r < 0)
		return r;
	struct token t = { .owner = body.owner, .admin = body.admin, .expires_at = LAPSE_NEVER };
	if (body.ttl_ms)
		t.expires_at = time_add(c->tx->now, body.ttl_ms);
	r = token_create(c->tx, &t, text, &c->arena, &c->problem);
	if (r < 0)
		return r;
	c->status = 201;
	write_token(&c->reply, &t, text);
	write_token(&c->kept, &t, NULL); /* a retry learns that it exists, not its secret */
	return LAPSE_OK;
}

static void add_token(void *arg, const struct token *t)
{
	struct page_writer *w = arg;

	if (page_item(w, t->id))
		write_token(w->out, t, NULL);
}

static int list_tokens(struct call *c, int64_t before, int64_t limit, struct page_writer *w)
{
	return token_list(c->tx, before, limit, add_token, w);
}

int token_api_list(struct call *c)
{
	return call_page(c, list_tokens);
}

int token_api_revoke(struct call *c)
{
	int r = token_revoke(c->tx, c->params[0], &c->problem);

	if (r == LAPSE_ENOTFOUND)
		return problem_set(&c->problem, r, "prefix", "there is no token '%.60s'",
				   c->params[0]);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "prefix", c->params[0]);
	json_put_bool(&c->reply, "revoked", true);
	json_end(&c->reply, '}');
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
	struct arena arena; /* of the worker: the call's own belongs to the loop */
	int err;
};

static void add_surplus(void *arg, const char *name)
{
	struct backup_state *s = arg;
	struct surplus *x = arena_alloc(&s->arena, sizeof(*x));

	strncpy(x->name, name, sizeof(x->name) - 1);
	x->next = s->surplus;
	s->surplus = x;
}

static void backup_work(struct call *c)
{
	struct backup_state *s = c->state;
	const struct settings *settings = c->engine->settings;

	s->err = backup_make(settings->data_dir, c->engine->system, &s->backup, &s->problem);
	if (s->err == LAPSE_OK)
		s->err = backup_surplus(settings->data_dir, settings->backup_keep, add_surplus, s);
}

static int backup_finish(struct call *c)
{
	struct backup_state *s = c->state;
	int r = s->err;

	c->problem = s->problem;
	for (struct surplus *x = s->surplus; r == LAPSE_OK && x; x = x->next)
		r = cleanup_add(c->tx, c->owner, &CLEANUP_FILE, x->name);
	arena_done(&s->arena);
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

	arena_init(&s->arena);
	return call_work(c, backup_work, backup_finish);
}
