/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a store, and the frame of every call. */
#include "lib/store.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "attachment/rules.h"
#include "lib/check.h"
#include "provider/open.h"
#include "rooms.h"

#define OWNER_DEFAULT "local" /* whom the daemon takes callers without a token for */
#define OPTIONS_SIZE_MAX 4096 /* beyond any version: the size was never set */

const char *lapse_version(void)
{
	return LAPSE_VERSION;
}

const char *lapse_error_name(int err)
{
	return err_name(err);
}

const char *lapse_error_text(int err)
{
	return err_text(err);
}

void lapse_id_format(int64_t id, char out[LAPSE_ID_SIZE])
{
	static_assert(LAPSE_ID_SIZE == ID_TEXT_LEN + 1, "the public header says how long an id is");
	id_format(id, out);
}

int lapse_id_parse(const char *text, int64_t *ret_id)
{
	int64_t id;

	if (!text || !id_parse(text, &id))
		return LAPSE_EINVAL;
	if (ret_id)
		*ret_id = id;
	return LAPSE_OK;
}

/* The frame of a call */

int store_enter(struct lapse_store *s)
{
	assert(s->magic == LAPSE_STORE_MAGIC && s->depth >= 0);
	s->err = LAPSE_OK;
	s->problem = (struct problem){ 0 };
	if (++s->depth == 1) {
		s->replayed = false;
		return LAPSE_OK;
	}
	return problem_set(&s->problem, LAPSE_EINVAL, NULL,
			   "a callback must not use the store it was called for");
}

/* What the database says is wrong. */
static int store_failed(struct lapse_store *s, int err)
{
	return problem_set(&s->problem, err, NULL, "%s: %.180s", err_text(err),
			   db_error(s->engine.db));
}

static int store_begin_tx(struct lapse_store *s, bool write)
{
	assert(s->depth == 1 && !s->in_tx);
	int r = write ? tx_begin(&s->tx, &s->engine) : tx_begin_read(&s->tx, &s->engine);

	s->in_tx = r == LAPSE_OK;
	if (r < 0) {
		store_failed(s, r);
		tx_rollback(&s->tx);
	}
	return r;
}

int store_begin(struct lapse_store *s)
{
	return store_begin_tx(s, true);
}

int store_begin_read(struct lapse_store *s)
{
	return store_begin_tx(s, false);
}

int store_begin_list(struct lapse_store *s, int64_t limit)
{
	int r = store_enter(s);

	if (r == LAPSE_OK)
		r = check_limit(limit, &s->problem);
	return r == LAPSE_OK ? store_begin_read(s) : r;
}

int store_commit(struct lapse_store *s, int err)
{
	assert(s->depth > 0 && err <= 0);
	if (!s->in_tx || s->depth > 1)
		return err;
	s->in_tx = false;
	if (err < 0) {
		tx_rollback(&s->tx);
		return err;
	}
	int r = tx_commit(&s->tx);
	return r < 0 ? store_failed(s, r) : LAPSE_OK;
}

bool store_again(struct lapse_store *s, int *r)
{
	if (*r != TX_AGAIN && *r != TX_NEEDS_WRITE)
		return false;
	*r = store_commit(s, LAPSE_OK); /* of a read: its end */
	if (*r == LAPSE_OK)
		*r = store_begin(s);
	return *r == LAPSE_OK;
}

int store_end(struct lapse_store *s, int err)
{
	s->err = store_commit(s, err);
	if (s->err == LAPSE_OK) /* a callback may have left one */
		s->problem = (struct problem){ 0 };
	assert(s->depth > 1 || !s->in_tx);
	s->depth--;
	assert(s->depth >= 0);
	return s->err;
}

const char *lapse_error_message(const struct lapse_store *store)
{
	return store->err == LAPSE_OK ? "" : problem_text(&store->problem, store->err);
}

const char *lapse_error_field(const struct lapse_store *store)
{
	return store->err == LAPSE_OK ? "" : store->problem.field;
}

/* Options */

void lapse_options_init(struct lapse_options *options, size_t size)
{
	memset(options, 0, size);
	options->size = size;
}

/* Takes the options of a program that was compiled against an older or newer header: what it does
 * not have is zero, and what we do not have must be. */
static int take_options(const struct lapse_options *from, struct lapse_options *to,
			struct problem *p)
{
	const char *bytes = (const char *)from;

	if (!from || from->size < offsetof(struct lapse_options, owner) ||
	    from->size > OPTIONS_SIZE_MAX)
		return problem_set(p, LAPSE_EINVAL, "size",
				   "the options were not made by lapse_options_init()");
	size_t known = from->size < sizeof(*to) ? from->size : sizeof(*to);
	for (size_t i = known; i < from->size; i++)
		if (bytes[i] != 0)
			return problem_set(p, LAPSE_EINVAL, NULL,
					   "an option is set that liblapse %s does not know",
					   LAPSE_VERSION);
	memset(to, 0, sizeof(*to));
	memcpy(to, from, known);
	return LAPSE_OK;
}

static int store_take_settings(struct lapse_store *s, struct problem *p)
{
	const struct lapse_options *o = &s->options;

	for (size_t i = 0; i < o->settings_count; i++) {
		const struct lapse_setting *x = &o->settings[i];
		if (!x->name || !x->value)
			return problem_set(p, LAPSE_EINVAL, "settings",
					   "settings[%zu] needs a name and a value", i);
		int r = settings_set(&s->settings, x->name, x->value, p);
		if (r < 0)
			return r;
	}
	if (!o->data_dir)
		return problem_set(p, LAPSE_EINVAL, "data_dir", "data_dir is required");
	return settings_set(&s->settings, "data_dir", o->data_dir, p);
}

static int store_check_settings(struct lapse_store *s, struct problem *p)
{
	const struct settings *x = &s->settings;

	if (!log_level_parse(x->log_level, &s->log.least))
		return problem_set(p, LAPSE_EINVAL, "log_level",
				   "log_level: must be debug, info, warn or error, not '%.30s'",
				   x->log_level);
	if (strcmp(x->sqlite_synchronous, "full") != 0 && strcmp(x->sqlite_synchronous, "off") != 0)
		return problem_set(p, LAPSE_EINVAL, "sqlite_synchronous",
				   "sqlite_synchronous: must be full or off, not '%.30s'",
				   x->sqlite_synchronous);
	if (!attachment_roots_are_valid(x->attachment_stage_roots))
		return problem_set(p, LAPSE_EINVAL, "attachment_stage_roots",
				   "attachment_stage_roots: each must be an absolute path, with : "
				   "between them");
	return settings_check(x, p);
}

static int take_owner(struct lapse_store *s, struct problem *p)
{
	const char *owner = s->options.owner ? s->options.owner : OWNER_DEFAULT;
	int r = field_id(owner, "owner", p);

	if (r == LAPSE_OK)
		s->owner = mem_strdup(owner);
	return r;
}

/* Opening and closing */

static void no_log(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void log_init(struct lapse_store *s)
{
	s->log = (struct log){ .clock = &s->clock,
			       .fd = -1,
			       .sink = s->options.log ? s->options.log : no_log,
			       .sink_arg = s->options.log_arg };
}

static int store_open_engine(struct lapse_store *s, struct problem *p)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct engine_config config = { .settings = &s->settings,
					.clock = &s->clock,
					.log = &s->log,
					.bounds = ROOM_BOUNDS,
					.schedulers = ROOM_SCHEDULERS,
					.cleanups = ROOM_CLEANUPS,
					.rooms = ROOMS };

	sigset_t all, before;

	pthread_once(&once, db_process_init);
	sigfillset(&all); /* the engine's threads inherit it: signals are the program's business */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = engine_open(&s->engine, &config, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == LAPSE_OK) {
		s->engine.cleaner.stays_here = true; /* no loop, no mail server */
	}
	return r;
}

static void store_free(struct lapse_store *s)
{
	assert(s->magic == LAPSE_STORE_MAGIC);
	s->magic = 0;
	settings_done(&s->settings);
	free(s->owner);
	free(s->tables);
	free(s);
}

static int store_open_all(const struct lapse_options *options, struct lapse_store **ret,
			  struct problem *p)
{
	struct lapse_store *s = mem_zalloc(1, sizeof(*s));
	struct provider *none; /* mailboxes of the library live in its store */

	s->magic = LAPSE_STORE_MAGIC;
	settings_init(&s->settings);
	int r = take_options(options, &s->options, p);
	if (r == LAPSE_OK)
		r = take_owner(s, p);
	if (r == LAPSE_OK)
		r = store_take_settings(s, p);
	if (r == LAPSE_OK)
		r = store_clock_init(s, p);
	log_init(s);
	if (r == LAPSE_OK)
		r = store_check_settings(s, p);
	if (r == LAPSE_OK)
		r = provider_open(&s->settings, NULL, NULL, &s->clock, &none, p);
	if (r == LAPSE_OK)
		r = store_open_engine(s, p);
	if (r < 0) {
		store_free(s);
		return r;
	}
	*ret = s;
	return LAPSE_OK;
}

int lapse_open(const struct lapse_options *options, struct lapse_store **ret_store,
	       struct lapse_problem *problem)
{
	struct problem p = { 0 };
	int r = store_open_all(options, ret_store, &p);

	if (problem) {
		snprintf(problem->field, sizeof(problem->field), "%s", p.field);
		snprintf(problem->message, sizeof(problem->message), "%s",
			 r < 0 ? problem_text(&p, r) : "");
	}
	return r;
}

void lapse_close(struct lapse_store *store)
{
	if (!store)
		return;
	assert(store->depth == 0); /* a callback that closes its store would come back to nothing */
	engine_stop(&store->engine);
	engine_close(&store->engine);
	store_free(store);
}

int lapse_set_owner(struct lapse_store *store, const char *owner)
{
	int r = store_enter(store);

	if (r == LAPSE_OK)
		r = field_id(owner, "owner", &store->problem);
	if (r == LAPSE_OK) {
		free(store->owner);
		store->owner = mem_strdup(owner);
	}
	return store_end(store, r);
}
