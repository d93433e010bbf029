/* SPDX-License-Identifier: Apache-2.0 */
#include "api/quota.h"

#include <stddef.h>
#include <string.h>

#include "engine/quota.h"

const struct json_field QUOTA_BODY[] = {
#define X(name, member, setting, help)                                                             \
	{ #member,                                                                                 \
	  FIELD_INT,                                                                               \
	  false,                                                                                   \
	  offsetof(struct owner_quota, limits) + QUOTA_##name * sizeof(int64_t),                   \
	  1,                                                                                       \
	  INT64_C(1125899906842624),                                                               \
	  "the most " help " of this owner; without it " #setting " holds" },
	QUOTAS(X)
#undef X
		{ 0 },
};

/* A limit that was not given is null: the setting holds. */
static void write_quota(struct buf *out, const struct owner_quota *q)
{
	json_begin(out, '{');
	json_put_text(out, "owner", q->owner);
	for (size_t i = 0; i < QUOTAS_NUMBER; i++) {
		json_key(out, QUOTA_ROWS[i].name);
		if (q->limits[i])
			json_int(out, q->limits[i]);
		else
			json_text(out, NULL);
	}
	json_end(out, '}');
}

struct quota_writer {
	struct call *call;
	int64_t left;
	const char *last;
	bool more;
};

static void add_quota(void *arg, const struct owner_quota *q)
{
	struct quota_writer *w = arg;

	if (w->left-- <= 0) {
		w->more = true;
		return;
	}
	w->last = arena_strdup(&w->call->arena, q->owner);
	write_quota(&w->call->reply, q);
}

int quota_api_list(struct call *c)
{
	struct page page = { .limit = LIMIT_DEFAULT };
	struct quota_writer w = { .call = c };
	const char *after = "";
	int r = call_query(c, PAGE_FIELDS, &page);

	if (r == LAPSE_OK && page.after)
		r = page_after_text(&page, &c->arena, &after, &c->problem);
	if (r < 0)
		return r;
	w.left = page.limit;
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	r = quota_list(c->tx, after, page.limit + 1, add_quota, &w);
	if (r < 0)
		return r;
	page_close(&c->reply, w.more ? page_text_cursor(&c->arena, w.last) : NULL);
	return LAPSE_OK;
}

static int no_such_quota(struct call *c, const char *owner)
{
	return problem_set(&c->problem, LAPSE_ENOTFOUND, "owner",
			   "the owner %.128s has no quota of its own: the settings hold", owner);
}

int quota_api_get(struct call *c)
{
	struct quota_writer w = { .call = c, .left = 1 };
	const char *owner;
	int r = call_id_param(c, 0, "owner", &owner);

	if (r == LAPSE_OK)
		r = quota_get(c->tx, owner, add_quota, &w);
	return r == LAPSE_ENOTFOUND ? no_such_quota(c, owner) : r;
}

int quota_api_put(struct call *c)
{
	struct owner_quota q = { 0 };
	int r = call_body(c, QUOTA_BODY, &q);
	bool any = false;

	if (r == LAPSE_OK)
		r = call_id_param(c, 0, "owner", &q.owner);
	if (r < 0)
		return r;
	for (size_t i = 0; i < QUOTAS_NUMBER; i++)
		any = any || q.limits[i];
	if (!any)
		return problem_set(&c->problem, LAPSE_EINVAL, "body",
				   "give at least one limit, or delete the quota");
	r = quota_set(c->tx, &q, &c->problem);
	if (r == LAPSE_OK)
		write_quota(&c->reply, &q);
	return r;
}

int quota_api_delete(struct call *c)
{
	const char *owner;
	int r = call_id_param(c, 0, "owner", &owner);

	if (r == LAPSE_OK)
		r = quota_remove(c->tx, owner);
	if (r == LAPSE_ENOTFOUND)
		return no_such_quota(c, owner);
	if (r < 0)
		return r;
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "owner", owner);
	json_put_bool(&c->reply, "deleted", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}
