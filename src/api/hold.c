/* SPDX-License-Identifier: Apache-2.0 */
/* Holds: placing, reading, releasing. */
#include "api/engine.h"

#include <assert.h>
#include <string.h>

#include "api/etag.h"
#include "engine/hold.h"

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
	json_put_time(out, "created_at", h->placed_at);
	json_put_time(out, "placed_at", h->placed_at); /* its old name, until 0.2 */
	json_end(out, '}');
}

/* A slice of a contract that began before the hold was committed may still remove the row: the
 * answer waits until that slice is over. One of another replica is looked for now and then. */
#define SLICE_WAIT_MS 60000
#define SLICE_LOOK_MS 50

struct hold_state {
	int64_t slice;
	struct bound_slices slices; /* of all replicas, in a cluster */
	const char *reply, *waits_for;
	const struct bound_spec *spec;
};

static bool has_slice(const struct bound_slices *slices, int64_t id)
{
	for (size_t i = 0; i < slices->count; i++)
		if (slices->ids[i] == id)
			return true;
	return false;
}

/* Whether one of the slices that were under way when the hold was placed still is. */
static int slices_last(struct call *c, const struct hold_state *s, bool *ret)
{
	struct bound_slices now;
	int r = s->spec->elsewhere->slices(c->tx, s->spec, &now);

	*ret = s->slice != 0 && s->spec->elsewhere->slice(s->spec) == s->slice;
	for (size_t i = 0; r == LAPSE_OK && i < s->slices.count; i++)
		*ret |= has_slice(&now, s->slices.ids[i]);
	return r;
}

static int hold_settled(struct call *c)
{
	const struct hold_state *s = c->state;
	const struct bound *b = matrix_find(c->engine, c->params[0]);
	lapse_ms left = call_wait_left(c, SLICE_WAIT_MS);
	bool last = false;
	int r = b && b->spec == s->spec ? slices_last(c, s, &last) : LAPSE_OK;

	if (r < 0)
		return r;
	if (!last) {
		buf_puts(&c->reply, s->reply);
		return LAPSE_OK;
	}
	if (left == 0)
		return problem_set(&c->problem, LAPSE_EUNAVAILABLE, NULL,
				   "the hold is placed, but a sweep that began before it is "
				   "still under way: try again");
	c->next = hold_settled;
	return call_park(c, s->waits_for,
			 s->slices.count && left > SLICE_LOOK_MS ? SLICE_LOOK_MS : left);
}

static int hold_answer(struct call *c, const struct hold *h)
{
	const struct bound *b = matrix_find(c->engine, h->table);
	const struct bound_elsewhere *there = b ? b->spec->elsewhere : NULL;
	struct buf CLEANUP(buf_done) reply = { 0 };
	struct hold_state *s = arena_alloc(&c->arena, sizeof(*s));

	*s = (struct hold_state){ .slice = there ? there->slice(b->spec) : 0 };
	int r = there ? there->slices(c->tx, b->spec, &s->slices) : LAPSE_OK;
	if (r < 0)
		return r;
	if (s->slice == 0 && s->slices.count == 0) {
		write_hold(&c->reply, h);
		return LAPSE_OK;
	}
	write_hold(&reply, h);
	s->reply = arena_strdup(&c->arena, buf_text(&reply));
	s->waits_for = there->waits_for(b->spec);
	s->spec = b->spec;
	c->state = s;
	c->next = hold_settled;
	return call_park(c, s->waits_for, s->slices.count ? SLICE_LOOK_MS : SLICE_WAIT_MS);
}

static int hold_key_of(struct call *c, const char **ret)
{
	return hold_key(c->engine, &c->arena, c->params[0], c->params[1], ret, &c->problem);
}

int hold_api_put(struct call *c)
{
	struct hold h = { .owner = c->owner, .table = c->params[0], .until = LAPSE_NEVER };
	int r = hold_key_of(c, &h.key);

	if (r == LAPSE_OK)
		r = call_body(c, HOLD_BODY, &h);

	if (r < 0)
		return r;
	if (h.until <= c->tx->now)
		return problem_set(&c->problem, LAPSE_EINVAL, "until",
				   "until must be in the future");
	r = hold_place(c->tx, &h, &c->problem);
	return r == LAPSE_OK ? hold_answer(c, &h) : r;
}

static int no_such_hold(struct call *c)
{
	return problem_set(&c->problem, LAPSE_ENOTFOUND, NULL, "there is no hold on %.60s/%.60s",
			   c->params[0], c->params[1]);
}

int hold_api_get(struct call *c)
{
	struct hold h;
	const char *key;
	int r = hold_key_of(c, &key);

	if (r == LAPSE_OK)
		r = hold_get(c->tx, &c->arena, c->owner, c->params[0], key, &h);

	if (r == LAPSE_ENOTFOUND)
		return no_such_hold(c);
	if (r == LAPSE_OK)
		write_hold(&c->reply, &h);
	return r;
}

static int check_hold_match(struct call *c, const char *key)
{
	struct buf CLEANUP(buf_done) json = { 0 };
	struct hold h;

	if (!c->if_match)
		return LAPSE_OK;
	int r = hold_get(c->tx, &c->arena, c->owner, c->params[0], key, &h);
	if (r < 0)
		return r;
	write_hold(&json, &h);
	return etag_check(c->if_match, &json, &c->problem);
}

int hold_api_delete(struct call *c)
{
	const char *key;
	int r = hold_key_of(c, &key);

	if (r == LAPSE_OK)
		r = check_hold_match(c, key);
	if (r == LAPSE_OK)
		r = hold_release(c->tx, c->owner, c->params[0], key);
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
