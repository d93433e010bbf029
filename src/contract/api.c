/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/api.h"

#include <assert.h>
#include <string.h>

#include "api/page.h"
#include "contract/keep_state.h"
#include "contract/report.h"

static int no_such_contract(struct call *c)
{
	return problem_set(&c->problem, LAPSE_ENOTFOUND, "contract",
			   "no contract '%.60s' is kept here (see /v1/contracts)", c->params[0]);
}

int contract_api_list(struct call *c)
{
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	for (size_t i = 0; i < keep_count(c->engine); i++)
		keep_write(c->engine, i, &c->reply);
	page_close(&c->reply, NULL);
	return LAPSE_OK;
}

int contract_api_get(struct call *c)
{
	const struct keeper *k = keep_find(c->engine, c->params[0]);

	for (size_t i = 0; k && i < keep_count(c->engine); i++)
		if (keepers_of(c->engine)->all[i] == k) {
			keep_write(c->engine, i, &c->reply);
			return LAPSE_OK;
		}
	return no_such_contract(c);
}

/* POST /v1/contracts/{name}/plan: on a worker, with a connection of its own. */

struct plan_state {
	char *file; /* read again, so that a reload meanwhile does not matter */
	lapse_ms now;
	struct buf report, error;
	int err;
};

static const char *plan_environment(const char *name)
{
	return getenv(name);
}

static int plan_connected(struct plan_state *s, const struct contract *c, struct foreign *f)
{
	struct checked checked;
	struct plan plan = { 0 };
	int err = contract_check(f, c, s->now, &checked);

	if (err < 0)
		return err;
	err = contract_plan(f, c, &checked, s->now, &plan);
	if (err == LAPSE_OK)
		report_plan(c, &plan, &s->report);
	plan_done(&plan);
	checked_done(&checked);
	return err;
}

static void plan_work(struct call *call)
{
	struct plan_state *s = call->state;
	struct foreign *CLEANUP(foreign_closep) f = NULL;
	struct contract *CLEANUP(contract_freep) c = NULL;

	assert(s && s->file);
	s->err = contract_read(s->file, plan_environment, &c, &s->error);
	if (s->err == LAPSE_OK)
		s->err = contract_connect(c, &f, &s->error);
	if (s->err < 0)
		return;
	s->err = plan_connected(s, c, f);
	if (s->err < 0)
		buf_puts(&s->error, foreign_error(f));
}

static int plan_finish(struct call *c)
{
	struct plan_state *s = c->state;

	assert(s->err == LAPSE_OK || s->error.len > 0);
	if (s->err == LAPSE_OK)
		buf_add(&c->reply, s->report.data, s->report.len);
	else
		problem_set(&c->problem, LAPSE_EUPSTREAM, NULL, "%.200s", buf_text(&s->error));
	int r = s->err == LAPSE_OK ? LAPSE_OK : LAPSE_EUPSTREAM;
	buf_done(&s->report);
	buf_done(&s->error);
	return r;
}

int contract_api_plan(struct call *c)
{
	const struct keeper *k = keep_find(c->engine, c->params[0]);

	if (!k)
		return no_such_contract(c);
	struct plan_state *s = c->state = arena_alloc(&c->arena, sizeof(*s));
	s->file = arena_strdup(&c->arena, k->file);
	s->now = clock_wall(c->engine->clock);
	return call_work(c, plan_work, plan_finish);
}

/* Approvals */

static void write_approval(struct buf *out, const struct approval *a)
{
	json_begin(out, '{');
	json_put_text(out, "bound", a->bound);
	json_put_int(out, "due_rows", a->due_rows);
	json_key(out, "table_rows");
	if (a->table_rows >= 0)
		json_int(out, a->table_rows);
	else
		json_text(out, NULL);
	json_put_time(out, "wanted_at", a->wanted_at);
	json_put_time(out, "given_at", a->given_at ? a->given_at : LAPSE_NEVER);
	json_end(out, '}');
}

static void add_approval(void *arg, const struct approval *a)
{
	write_approval(arg, a);
}

int approval_api_list(struct call *c)
{
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
	int r = approval_list(c->tx, add_approval, &c->reply);
	page_close(&c->reply, NULL);
	return r;
}

static void approved_effect(struct engine *e, void *arg)
{
	keep_approved(e, arg);
}

int approval_api_give(struct call *c)
{
	const char *bound = c->params[0];
	struct approval a = { 0 };
	int r = approval_give(c->tx, &c->arena, bound, &a);

	if (r == LAPSE_ENOTFOUND)
		return problem_set(&c->problem, r, "bound",
				   "no sweep of '%.60s' waits for approval (see /v1/approvals)",
				   bound);
	if (r < 0)
		return r;
	char *name = tx_alloc(c->tx, strlen(bound) + 1);
	memcpy(name, bound, strlen(bound) + 1);
	tx_effect(c->tx, approved_effect, name);
	write_approval(&c->reply, &a);
	return LAPSE_OK;
}
