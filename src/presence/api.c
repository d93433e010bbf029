/* SPDX-License-Identifier: Apache-2.0 */
#include "presence/api.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "presence/beats.h"
#include "presence/presence.h"

#define NAMES_SHOWN 100   /* agents listed with a capability */
#define LOOKS_A_TURN 1000 /* agents looked at for a list: half a millisecond */

/* Heartbeats */

struct beat_body {
	const char *agent, *cluster; /* the agent only in an entry of many */
	json_t *capabilities, *metadata;
};

#define CLUSTER_FIELD                                                                              \
	{                                                                                          \
		"cluster_id", FIELD_ID, true, offsetof(struct beat_body, cluster), 0, 0,           \
			"the cluster the agent runs in"                                            \
	}
#define CAPABILITIES_FIELD(required)                                                               \
	{                                                                                          \
		"capabilities", FIELD_IDS, required, offsetof(struct beat_body, capabilities), 0,  \
			CAPABILITIES_MAX, "what the agent can do; replaces the set"                \
	}

const struct json_field PRESENCE_BEAT_BODY[] = {
	CLUSTER_FIELD,
	CAPABILITIES_FIELD(false),
	{ "metadata", FIELD_OBJECT, false, offsetof(struct beat_body, metadata), 0, 0,
	  "anything else, as an object" },
	{ 0 },
};

const struct json_field PRESENCE_BEATS_ENTRY[] = {
	{ "agent_id", FIELD_ID, true, offsetof(struct beat_body, agent), 0, 0, "the agent" },
	CLUSTER_FIELD,
	CAPABILITIES_FIELD(false),
	{ 0 },
};

const struct json_field PRESENCE_CAPABILITIES_BODY[] = {
	CAPABILITIES_FIELD(true),
	{ 0 },
};

static const char *pack_capabilities(struct call *c, const json_t *capabilities)
{
	const char *names[CAPABILITIES_MAX];
	size_t n = json_array_size(capabilities);

	for (size_t i = 0; i < n; i++)
		names[i] = json_string_value(json_array_get(capabilities, i));
	return presence_pack(&c->arena, names, n);
}

static struct beat make_beat(struct call *c, const char *agent, const struct beat_body *body)
{
	struct beat b = { .agent = agent, .cluster = body->cluster };

	if (body->capabilities)
		b.capabilities = pack_capabilities(c, body->capabilities);
	if (body->metadata) {
		char *text = json_dumps(body->metadata, JSON_COMPACT | JSON_SORT_KEYS);
		b.metadata = arena_strdup(&c->arena, text ? text : "{}");
		free(text);
	}
	return b;
}

static int answer_ok(struct call *c)
{
	c->plain_ok = true;
	return LAPSE_OK;
}

int presence_api_beat(struct call *c)
{
	struct beat_body body = { 0 };
	const char *agent = NULL;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_body(c, PRESENCE_BEAT_BODY, &body);
	if (r < 0)
		return r;
	struct beat b = make_beat(c, agent, &body);
	r = presence_beat(c->tx, c->owner, &b, &c->problem);
	return r < 0 ? r : answer_ok(c);
}

/* Skips `word` and the white space around it; NULL when it is not there. */
static const char *skip(const char *at, const char *word)
{
	size_t n = strlen(word);

	at += strspn(at, " \t\r\n");
	if (strncmp(at, word, n) != 0)
		return NULL;
	at += n;
	return at + strspn(at, " \t\r\n");
}

/* Whether the body is {"cluster_id":"…"} with exactly this cluster: what nearly every heartbeat is,
 * known without parsing it. */
static bool says_only_tightly(const struct call *c, const struct profile *p)
{
	static const char before[] = "{\"cluster_id\":\"", after[] = "\"}";
	const size_t start = sizeof(before) - 1, end = start + p->cluster_len;

	return p->plain && c->text_len == end + sizeof(after) - 1 &&
	       memcmp(c->text, before, start) == 0 &&
	       memcmp(c->text + start, p->cluster, p->cluster_len) == 0 &&
	       memcmp(c->text + end, after, sizeof(after) - 1) == 0;
}

/* The same with white space in it. */
static bool says_only(const struct call *c, const struct profile *p)
{
	const char *at = skip(c->text, "{");

	if (!p->plain || strlen(c->text) != c->text_len || !at ||
	    !(at = skip(at, "\"cluster_id\"")) || !(at = skip(at, ":")))
		return false;
	if (*at++ != '"' || strncmp(at, p->cluster, p->cluster_len) != 0)
		return false;
	at += p->cluster_len;
	return *at == '"' && (at = skip(at + 1, "}")) && *at == '\0';
}

/* Whether the body, parsed, says nothing that is not known. */
static bool says_nothing_new(struct call *c, struct fleet *f, uint32_t i, lapse_ms now)
{
	struct beat_body body = { 0 };

	if (call_parse(c) < 0 || call_body(c, PRESENCE_BEAT_BODY, &body) < 0)
		return false;
	struct beat b = make_beat(c, c->params[0], &body);
	return presence_is_quiet(f, i, &b, now);
}

#define HASHED (UINT64_C(1) << 32) /* the hint's lower half is the hash of the agent */

static void hash_agent(struct call *c)
{
	struct scope s = fleet_scope(fleet_of(c->engine), c->owner);

	c->hint = HASHED | fleet_hash(&s, c->params[0], strlen(c->params[0]));
}

static void heartbeat_look_ahead(struct call *c)
{
	if (c->hint) {
		FLEET_FETCH_AGENT(fleet_of(c->engine), (uint32_t)c->hint);
		return;
	}
	hash_agent(c);
	FLEET_FETCH_BUCKET(fleet_of(c->engine), (uint32_t)c->hint);
}

static uint32_t find_agent(struct call *c, const struct fleet *f)
{
	if (!c->hint)
		hash_agent(c);
	return fleet_find_hashed(f, c->owner, c->params[0], strlen(c->params[0]),
				 (uint32_t)c->hint);
}

static int beat_quickly(struct call *c)
{
	struct fleet *f = presence_fleet(c->engine);
	uint32_t i = find_agent(c, f);

	if (!i)
		return CALL_NEEDS_TX;
	lapse_ms now = clock_wall(c->engine->clock);
	const struct profile *p = fleet_profile(f, i);
	bool quiet = (says_only_tightly(c, p) || says_only(c, p)) &&
		     fleet_fate(f, i, now) != AGENT_EVICTED;
	if (!quiet && !says_nothing_new(c, f, i, now))
		return CALL_NEEDS_TX;
	fleet_touch(f, i, now);
	return answer_ok(c);
}

const struct quick PRESENCE_BEAT_QUICK = { beat_quickly, heartbeat_look_ahead, NULL };

/* Many of them */

static int answer_accepted(struct call *c, int64_t n)
{
	json_begin(&c->reply, '{');
	json_put_int(&c->reply, "accepted", n);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

static int refuse_too_many_beats(struct call *c)
{
	return problem_set(&c->problem, LAPSE_EINVAL, "body", "body must have at most %d entries",
			   BEATS_MAX);
}

/* Puts the place of an entry in front of what is wrong with it: "[17].cluster_id must …". */
static int blame_entry(struct call *c, int err, size_t place)
{
	struct problem p = c->problem;
	bool named = p.field[0] && strncmp(p.message, p.field, strlen(p.field)) == 0;

	if (err != LAPSE_EINVAL)
		return err;
	problem_set(&c->problem, err, NULL, "[%zu]%s%.200s", place, named ? "." : ": ", p.message);
	snprintf(c->problem.field, sizeof(c->problem.field), "[%u]%s%.32s", (unsigned)place,
		 p.field[0] ? "." : "", p.field);
	return err;
}

static int blame_line(struct call *c, int err, size_t place)
{
	struct problem p = c->problem;

	if (err != LAPSE_EINVAL)
		return err;
	problem_set(&c->problem, err, p.field, "line %zu: %.200s", place, p.message);
	return err;
}

static int decode_entry(struct call *c, const json_t *entry, struct beat *ret)
{
	struct beat_body body = { 0 };

	if (!json_is_object(entry))
		return problem_set(&c->problem, LAPSE_EINVAL, NULL, "must be an object");
	int r = fields_decode(entry, PRESENCE_BEATS_ENTRY, &body, &c->problem);
	if (r == LAPSE_OK)
		*ret = make_beat(c, body.agent, &body);
	return r;
}

/* How many capabilities an entry brings. */
static size_t count_capabilities(const json_t *entry)
{
	return json_array_size(json_object_get(entry, "capabilities"));
}

static bool says_new_capabilities(struct call *c, const struct beat *b)
{
	struct fleet *f = presence_fleet(c->engine);
	uint32_t i = fleet_find(f, c->owner, b->agent);

	return b->capabilities && (!i || !presence_is_quiet(f, i, b, c->tx->now));
}

/* Refuses a batch that changes too many capabilities, before anything is written. Entries are
 * looked at only when there are enough of them all in all. */
static int check_capabilities(struct call *c)
{
	size_t n = json_array_size(c->body), all = 0, changed = 0;

	for (size_t i = 0; i < n; i++)
		all += count_capabilities(json_array_get(c->body, i));
	for (size_t i = 0; i < n && all > BEATS_CAPABILITIES_MAX; i++) {
		const json_t *entry = json_array_get(c->body, i);
		struct beat b = { 0 };
		int r = decode_entry(c, entry, &b);
		if (r < 0)
			return blame_entry(c, r, i);
		changed += says_new_capabilities(c, &b) ? count_capabilities(entry) : 0;
		if (changed > BEATS_CAPABILITIES_MAX)
			return problem_set(&c->problem, LAPSE_ETOOLARGE, "capabilities",
					   "one request may change %d capabilities: send fewer "
					   "agents at once",
					   BEATS_CAPABILITIES_MAX);
	}
	return LAPSE_OK;
}

static int beat_array(struct call *c)
{
	size_t n = json_array_size(c->body);

	if (n > BEATS_MAX)
		return refuse_too_many_beats(c);
	int r = check_capabilities(c);
	for (size_t i = 0; r == LAPSE_OK && i < n; i++) {
		struct beat b = { 0 };
		r = decode_entry(c, json_array_get(c->body, i), &b);
		if (r < 0)
			return blame_entry(c, r, i);
		r = presence_beat(c->tx, c->owner, &b, &c->problem);
	}
	return r < 0 ? r : answer_accepted(c, (int64_t)n);
}

static int line_text(struct call *c, const char *name, const char *text, size_t n, const char **ret)
{
	const char *why = "must not contain '\"'";
	const char *copy = arena_strndup(&c->arena, text, n);

	if (memchr(text, '\0', n))
		why = "must be printable UTF-8 without control characters";
	else if (!memchr(text, '"', n) && id_is_valid(copy, &why)) {
		*ret = copy;
		return LAPSE_OK;
	}
	return problem_set(&c->problem, LAPSE_EINVAL, name, "%s %s", name, why);
}

static int decode_line(struct call *c, const char **at, const char *end, struct beat *ret)
{
	struct beat_line l;

	*ret = (struct beat){ 0 };
	if (!beat_line_read(at, end, &l))
		return problem_set(&c->problem, LAPSE_EINVAL, NULL, "must be agent_id,cluster_id");
	int r = line_text(c, "agent_id", l.agent, l.agent_len, &ret->agent);
	return r < 0 ? r : line_text(c, "cluster_id", l.cluster, l.cluster_len, &ret->cluster);
}

static int beat_lines(struct call *c)
{
	const char *at = c->text, *end = c->text + c->text_len;
	size_t n = 0;

	while (at < end) {
		struct beat b;
		if (n++ == BEATS_MAX)
			return refuse_too_many_beats(c);
		int r = decode_line(c, &at, end, &b);
		if (r < 0)
			return blame_line(c, r, n);
		r = presence_beat(c->tx, c->owner, &b, &c->problem);
		if (r < 0)
			return r;
	}
	return answer_accepted(c, (int64_t)n);
}

int presence_api_beats(struct call *c)
{
	return c->is_csv ? beat_lines(c) : beat_array(c);
}

/* All of them say nothing new: the agents to touch are in `agents`. */
static bool find_entries(struct call *c, struct fleet *f, lapse_ms now, uint32_t *agents)
{
	size_t i;
	json_t *entry;

	json_array_foreach (c->body, i, entry) {
		struct beat b = { 0 };
		if (decode_entry(c, entry, &b) < 0)
			return false;
		agents[i] = fleet_find(f, c->owner, b.agent);
		if (!agents[i] || !presence_is_quiet(f, agents[i], &b, now))
			return false;
	}
	return true;
}

static int beats_quickly(struct call *c)
{
	struct fleet *f = presence_fleet(c->engine);
	lapse_ms now = clock_wall(c->engine->clock);
	int64_t n = 0;

	if (c->is_csv) {
		if (!beats_touch(f, c->owner, c->text, c->text_len, now, &n))
			return CALL_NEEDS_TX;
		return answer_accepted(c, n);
	}
	if (call_parse(c) < 0 || json_array_size(c->body) > BEATS_MAX)
		return CALL_NEEDS_TX;
	size_t count = json_array_size(c->body);
	uint32_t *CLEANUP(mem_freep) agents = mem_alloc(count * sizeof(*agents));
	if (!find_entries(c, f, now, agents))
		return CALL_NEEDS_TX;
	for (size_t i = 0; i < count; i++)
		fleet_touch(f, agents[i], now);
	return answer_accepted(c, (int64_t)count);
}

const struct quick PRESENCE_BEATS_QUICK = { beats_quickly, NULL, NULL };

/* Agents */

static void write_agent(struct buf *out, const struct agent_view *v)
{
	json_begin(out, '{');
	json_put_text(out, "agent_id", v->agent);
	json_put_text(out, "cluster_id", v->cluster);
	json_put_time(out, "first_seen", v->first_seen);
	json_put_time(out, "last_seen", v->last_seen);
	json_put_raw(out, "capabilities", v->capabilities);
	json_put_text(out, "state", v->suspect ? "suspect" : "live");
	json_end(out, '}');
}

static bool answer_agent(void *arg, const struct agent_view *v)
{
	struct call *c = arg;

	write_agent(&c->reply, v);
	c->sunset = v->expires_at;
	return true;
}

static int explain(struct call *c, int err)
{
	if (err == LAPSE_ENOTFOUND)
		return problem_set(&c->problem, err, NULL, "there is no such agent");
	if (err == LAPSE_ECONFLICT)
		return problem_set(&c->problem, err, NULL,
				   "the agent is held: release the hold first");
	return err;
}

struct get_query {
	bool include_suspect;
};

#define INCLUDE_SUSPECT_FIELD(type)                                                                \
	{                                                                                          \
		"include_suspect", FIELD_BOOL, false, offsetof(type, include_suspect), 0, 0,       \
			"suspects, too: silent agents whose record is still kept"                  \
	}

const struct json_field PRESENCE_GET_QUERY[] = {
	INCLUDE_SUSPECT_FIELD(struct get_query),
	{ 0 },
};

int presence_api_get(struct call *c)
{
	struct get_query query = { 0 };
	const char *agent = NULL;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_query(c, PRESENCE_GET_QUERY, &query);
	if (r == LAPSE_OK)
		r = presence_get(c->tx, c->owner, agent, query.include_suspect, answer_agent, c);
	return explain(c, r);
}

int presence_api_set_capabilities(struct call *c)
{
	struct beat_body body = { 0 };
	const char *agent = NULL;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = call_body(c, PRESENCE_CAPABILITIES_BODY, &body);
	if (r == LAPSE_OK)
		r = presence_set_capabilities(c->tx, c->owner, agent,
					      pack_capabilities(c, body.capabilities));
	if (r == LAPSE_OK)
		r = presence_get(c->tx, c->owner, agent, false, answer_agent, c);
	return explain(c, r);
}

int presence_api_delete(struct call *c)
{
	const char *agent = NULL;
	int r = call_id_param(c, 0, "agent", &agent);

	if (r == LAPSE_OK)
		r = presence_delete(c->tx, c->owner, agent);
	if (r < 0)
		return explain(c, r);
	json_begin(&c->reply, '{');
	json_put_text(&c->reply, "agent_id", agent);
	json_put_bool(&c->reply, "deleted", true);
	json_end(&c->reply, '}');
	return LAPSE_OK;
}

/* Lists, ordered by a name */

struct list_query {
	struct page page;
	const char *cluster, *capability;
	bool include_suspect;
};

const struct json_field PRESENCE_LIST_QUERY[] = {
	{ "cluster_id", FIELD_ID, false, offsetof(struct list_query, cluster), 1, ID_MAX_BYTES,
	  "only agents of this cluster" },
	{ "capability", FIELD_ID, false, offsetof(struct list_query, capability), 1, ID_MAX_BYTES,
	  "only agents that have it" },
	INCLUDE_SUSPECT_FIELD(struct list_query),
	{ "limit", FIELD_INT, false, offsetof(struct list_query, page.limit), 1, LIMIT_MAX,
	  "items per page (default 20)" },
	{ "after", FIELD_TEXT, false, offsetof(struct list_query, page.after), 1, 2 * ID_MAX_BYTES,
	  "next_cursor of the page before" },
	{ 0 },
};

struct name_pages {
	struct call *call;
	int64_t left; /* items that still belong to this page */
	const char *last;
	bool more;
};

/* Whether the item with this name belongs to the page. */
static bool page_takes(struct name_pages *w, const char *name)
{
	if (w->left-- == 0) {
		w->more = true;
		return false;
	}
	w->last = arena_strdup(&w->call->arena, name);
	return true;
}

static void begin_names(struct name_pages *w, struct call *c, const struct page *page)
{
	*w = (struct name_pages){ .call = c, .left = page->limit };
	json_begin(&c->reply, '{');
	json_key(&c->reply, "data");
	json_begin(&c->reply, '[');
}

static void end_names(struct name_pages *w)
{
	page_close(&w->call->reply, w->more ? page_text_cursor(&w->call->arena, w->last) : NULL);
}

static bool list_one_agent(void *arg, const struct agent_view *v)
{
	struct name_pages *w = arg;

	if (!page_takes(w, v->agent))
		return false;
	write_agent(&w->call->reply, v);
	return true;
}

/* A filter may leave out nearly everybody: then the page comes together over several turns. */
struct listing {
	struct name_pages pages;
	struct agent_filter filter;
	const char *after;
	const char *so_far; /* what earlier turns have written of the reply */
	size_t so_far_len;
};

static void keep_reply(struct call *c, struct listing *l)
{
	l->so_far = arena_strndup(&c->arena, c->reply.data, c->reply.len);
	l->so_far_len = c->reply.len;
}

static int list_some_agents(struct call *c)
{
	struct listing *l = arena_alloc(&c->arena, sizeof(*l));

	*l = *(const struct listing *)c->state;
	c->state = l;
	buf_done(&c->reply);
	buf_add(&c->reply, l->so_far, l->so_far_len);
	int r = presence_list(c->tx, c->owner, &l->filter, &c->arena, &l->after, list_one_agent,
			      &l->pages);
	if (r > 0) {
		keep_reply(c, l);
		c->next = list_some_agents;
		return CALL_AGAIN;
	}
	end_names(&l->pages);
	return r;
}

static int list_agents(struct call *c, const struct list_query *query)
{
	struct listing *l = c->state = arena_alloc(&c->arena, sizeof(*l));
	int r = LAPSE_OK;

	*l = (struct listing){ .filter = { .cluster = query->cluster,
					   .capability = query->capability,
					   .include_suspect = query->include_suspect,
					   .looks_max = LOOKS_A_TURN },
			       .after = "" };
	if (query->page.after)
		r = page_after_text(&query->page, &c->arena, &l->after, &c->problem);
	if (r < 0)
		return r;
	begin_names(&l->pages, c, &query->page);
	keep_reply(c, l);
	return list_some_agents(c);
}

int presence_api_list(struct call *c)
{
	struct list_query query = { .page.limit = LIMIT_DEFAULT };
	int r = call_query(c, PRESENCE_LIST_QUERY, &query);

	return r < 0 ? r : list_agents(c, &query);
}

int presence_api_capability(struct call *c)
{
	struct list_query query = { .page.limit = LIMIT_DEFAULT };
	int r = call_id_param(c, 0, "name", &query.capability);

	if (r == LAPSE_OK)
		r = call_query(c, PAGE_FIELDS, &query.page);
	return r < 0 ? r : list_agents(c, &query);
}

static bool begin_capability(void *arg, const char *capability, int64_t agents)
{
	struct name_pages *w = arg;
	struct buf *out = &w->call->reply;

	if (!page_takes(w, capability))
		return false;
	json_begin(out, '{');
	json_put_text(out, "capability", capability);
	json_put_int(out, "count", agents);
	json_key(out, "agents");
	json_begin(out, '[');
	return true;
}

static void add_name(void *arg, const char *agent)
{
	struct name_pages *w = arg;

	json_text(&w->call->reply, agent);
}

static void end_capability(void *arg)
{
	struct name_pages *w = arg;

	json_end(&w->call->reply, ']');
	json_end(&w->call->reply, '}');
}

int presence_api_capabilities(struct call *c)
{
	struct page page = { .limit = LIMIT_DEFAULT };
	struct name_pages w;
	const struct capability_reader reader = { .begin = begin_capability,
						  .name = add_name,
						  .end = end_capability,
						  .arg = &w,
						  .names_max = NAMES_SHOWN };
	const char *after = "";
	int r = call_query(c, PAGE_FIELDS, &page);

	if (r == LAPSE_OK && page.after)
		r = page_after_text(&page, &c->arena, &after, &c->problem);
	if (r < 0)
		return r;
	begin_names(&w, c, &page);
	r = presence_capabilities(c->tx, c->owner, after, &reader);
	end_names(&w);
	return r;
}
