/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static lapse_ms wall(void *arg)
{
	return ((struct world *)arg)->wall;
}

static lapse_us mono(void *arg)
{
	return ((struct world *)arg)->mono;
}

static void take_line(void *arg, const char *line)
{
	struct world *w = arg;
	size_t n = strlen(w->log);

	snprintf(w->log + n, sizeof(w->log) - n, "%s\n", line);
}

int world_setup_bare(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	const char *base = getenv("TMPDIR");

	assert_non_null(w);
	snprintf(w->dir, sizeof(w->dir), "%.200s/lapse-lib-XXXXXX", base ? base : "/tmp");
	assert_non_null(mkdtemp(w->dir));
	w->wall = NOW;
	w->mono = 1000000000;
	lapse_options_init(&w->options, sizeof(w->options));
	w->options.data_dir = w->dir;
	w->options.wall = wall;
	w->options.mono = mono;
	w->options.clock_arg = w;
	w->options.log = take_line;
	w->options.log_arg = w;
	*state = w;
	return 0;
}

int world_setup(void **state)
{
	int r = world_setup_bare(state);

	world_open(*state);
	return r;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

int world_teardown(void **state)
{
	struct world *w = *state;

	lapse_close(w->store);
	nftw(w->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(w);
	return 0;
}

void world_open(struct world *w)
{
	struct lapse_problem p;

	if (lapse_open(&w->options, &w->store, &p) < 0)
		fail_msg("lapse_open: %s", p.message);
}

void world_reopen(struct world *w)
{
	lapse_close(w->store);
	w->store = NULL;
	world_open(w);
}

void world_pass(struct world *w, lapse_ms ms)
{
	w->wall += ms;
	w->mono += ms * 1000;
}

void check_ok(struct lapse_store *store, int r, const char *what, const char *file, int line)
{
	if (r != LAPSE_OK) {
		print_error("%s: %s: %s\n", what, lapse_error_name(r), lapse_error_message(store));
		_fail(file, line);
	}
	if (lapse_error_message(store)[0] || lapse_error_field(store)[0])
		_fail(file, line);
}

void check_error(struct lapse_store *store, int r, int err, const char *field, const char *what,
		 const char *file, int line)
{
	if (r != err || strcmp(lapse_error_field(store), field) != 0 ||
	    !lapse_error_message(store)[0]) {
		print_error("%s: %s, field '%s': %s\n", what, lapse_error_name(r),
			    lapse_error_field(store), lapse_error_message(store));
		_fail(file, line);
	}
}

static void see(struct seen *s, int64_t id, lapse_ms at, const char *text)
{
	assert_true(s->count < SEEN_MAX);
	s->items[s->count].id = id;
	s->items[s->count].at = at;
	snprintf(s->items[s->count].text, TEXT_SIZE, "%s", text);
	s->count++;
}

void see_message(void *seen, const struct lapse_message *m)
{
	struct seen *s = seen;

	see(s, m->id, m->timestamp, m->content);
	s->items[s->count - 1].claim_id = m->claim_id;
	s->items[s->count - 1].read_at = m->read_at;
}

void see_event(void *seen, const struct lapse_event *e)
{
	assert_int_equal(e->data[0], '{');
	see(seen, e->seq, e->at, e->kind);
}

void see_hold(void *seen, const struct lapse_hold *h)
{
	see(seen, h->id, h->until, h->key);
}

void see_inbox(void *seen, const struct lapse_inbox *i)
{
	see(seen, i->unread, i->oldest_unread, i->agent);
	((struct seen *)seen)->items[((struct seen *)seen)->count - 1].claim_id = i->total;
}

void see_bound(void *seen, const struct lapse_bound *b)
{
	see(seen, b->due_rows, b->oldest_due_ms, b->table);
	((struct seen *)seen)->items[((struct seen *)seen)->count - 1].claim_id = b->live_rows;
}

int64_t send_to(struct world *w, const char *agent, const char *content)
{
	struct lapse_draft d = { .to = agent, .from = "tester", .content = content };
	int64_t id = 0;

	assert_ok(w, lapse_message_send(w->store, &d, &id));
	assert_true(id > 0);
	return id;
}

int64_t send_read(struct world *w, const char *agent, const char *content)
{
	int64_t id = send_to(w, agent, content);

	assert_ok(w, lapse_message_mark_read(w->store, agent, id, LAPSE_NO_CLAIM));
	return id;
}

size_t count_messages(struct world *w, const char *agent)
{
	static struct seen s;

	s.count = 0;
	assert_ok(w, lapse_message_list(w->store, agent, false, 0, 1000, see_message, &s));
	return s.count;
}

void tick_until_idle(struct world *w)
{
	for (int i = 0; lapse_next_us(w->store) == 0; i++) {
		assert_true(i < 100000);
		assert_ok(w, lapse_tick(w->store));
	}
}

int64_t swept(struct world *w, const char *scheduler, bool dry_run)
{
	const struct lapse_sweep_result *result = NULL;

	assert_ok(w, lapse_sweep(w->store, scheduler, dry_run, &result));
	assert_string_equal(result->scheduler, scheduler);
	assert_int_equal(result->dry_run, dry_run);
	return result->pruned;
}
