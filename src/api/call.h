/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call: one request as the rooms see it, without HTTP.
 *
 * A handler gets a call inside a transaction (or none, as its route says), decodes what it needs,
 * runs an operation, and writes the reply. It returns
 *   0            the reply is complete; it is sent once the transaction has committed
 *   negative     an error; its transaction step is undone and the error is the reply
 *   CALL_WAIT    after call_park(), call_await() or call_work(): the same handler, or the given
 *                one, runs again in a later transaction and must check again what it relied on
 *   CALL_AGAIN   commit what was done so far, and run the handler again in the next turn
 *   CALL_NEEDS_WRITE  from a handler in a read transaction, when there is something to write after
 *                all: nothing was done, it runs again in a write transaction
 *   a tx_wish    of the operation it ran (engine/tx.h): call_run() makes it CALL_NEEDS_WRITE or
 *                CALL_AGAIN
 *   CALL_NEEDS_TX  from a route's quick handler, which has no transaction: nothing was done, the
 *                ordinary handler is to run
 *
 * What must survive from one run to the next is in `state`, allocated from the call's arena.
 *
 * A run can be undone, because its transaction could not be committed, and then the same handler
 * runs again from the same place (call_rewind). So a run leaves nothing behind but its transaction:
 * it does not change what `state` pointed at when it began, but makes a new state and sets the
 * pointer; everything else is an effect.
 */
#ifndef LAPSE_API_CALL_H
#define LAPSE_API_CALL_H

#include "api/field.h"
#include "api/idempotency.h"
#include "api/page.h"
#include "api/wait.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/scope.h"
#include "engine/tx.h"
#include "store/blob.h"

enum { CALL_WAIT = 1, CALL_AGAIN = 2, CALL_NEEDS_TX = 3, CALL_NEEDS_WRITE = 4 };

#define CALL_PARAMS_MAX 4
#define CALL_QUERY_MAX 16
#define CALL_HEADERS_MAX 8 /* of a reply, beside those every reply has */

struct call;
typedef int call_fn(struct call *c);

/* The quick way of a route, for what needs the memory only. */
struct quick {
	/* Tried at once and without a transaction: LAPSE_OK or CALL_NEEDS_TX, never an error. */
	call_fn *answer;

	/* What `answer` will look at, brought nearer: runs once the caller is known, and again when
	 * the body comes, by which time memory asked for before is there. Changes nothing but
	 * c->hint. May be NULL. */
	void (*ahead)(struct call *c);

	/* On a route whose body is streamed: runs before it is received, and again before each
	 * piece of it is written, without a transaction; c->length is what is to come, or the
	 * piece. Its error saves receiving the rest. NULL elsewhere. */
	call_fn *admit;
};

/* Runs off the loop, on a worker thread: touches nothing but c->state and what is documented as
 * safe there. */
typedef void work_fn(struct call *c);

struct call_arg {
	const char *name, *value;
};

#define CALL_OK_TEXT "{\"status\":\"ok\"}\n"

/* Where a call stands between two runs. */
struct call_place {
	int (*next)(struct call *c);
	void *state;
	int runs;
};

#define CALL_MAGIC 0x4c43414cu

struct call {
	uint32_t magic;
	struct engine *engine;
	struct tx *tx; /* NULL in a handler whose route has no transaction */
	struct arena arena;

	/* What another field says the valid part of. From the arena to here nothing needs to be
	 * cleared when the call is used again. */
	struct call_arg query[CALL_QUERY_MAX];
	struct call_arg headers[CALL_HEADERS_MAX]; /* of the reply; see call_header() */

	/* Who and what. */
	const char *owner;
	const char *token; /* the prefix of the caller's; NULL = trusted without one */
	scope_set scopes;
	bool admin;
	bool acting;   /* an admin, for another owner */
	bool is_local; /* on this host, as far as can be told: a path means something to it */
	const char *params[CALL_PARAMS_MAX]; /* of the path, in order, decoded */
	size_t query_count;
	json_t *body;           /* NULL = an empty body, or one that is `flat` */
	struct json_flat *flat; /* the body, as long as nothing needs a tree of it; or NULL */
	const char *text; /* the body as it came, and a NUL; NULL where no route asks for it */
	size_t text_len;
	bool is_csv;                  /* the text is CSV, and `body` stays NULL */
	bool is_array;                /* the body is a JSON array, not an object */
	bool needs_tree;              /* not only tables of fields look at the body */
	const char *if_match;         /* the ETag the caller relies on; NULL = any */
	const char *range, *if_range; /* as they came; NULL = not given */
	int64_t length;               /* of a streamed body, as announced; -1 = not known */
	int64_t flying, flying_own;   /* bytes of streamed bodies that are in no row yet: of all
				       * owners,   and of this one */
	struct blob *upload;          /* a streamed body, hashed and durable; NULL before it is */
	uint64_t hint;                /* what looking ahead has found; 0 = nothing */

	/* The reply. */
	int status;    /* 200 unless the handler sets another */
	bool plain_ok; /* the reply is CALL_OK_TEXT, which costs less to send than a buffer */
	bool has_file; /* it is a part of a file, whose descriptor belongs to the call */
	struct buf reply;
	struct buf kept; /* what an Idempotency-Key keeps instead, when the reply holds a secret */
	const char *content_type; /* NULL = JSON */
	const char *location;     /* of what was made, for 201; NULL = it has no path of its own */
	lapse_ms sunset;          /* when the resource will expire; 0 = it says nothing */
	size_t headers_count;
	int64_t file_offset, file_length;
	int file_fd;
	struct problem problem;
	const char
		*problem_more; /* further members of an error's JSON, "\"name\":…"; NULL = none */

	/* Its Idempotency-Key. */
	struct idempotency key;
	bool has_key;  /* `key` is filled */
	bool replayed; /* the reply is the first answer again */

	/* Waiting. */
	call_fn *handler;
	int runs;       /* how often the handler has run before */
	bool stopping;  /* the daemon ends: do not wait any more */
	bool hurried;   /* its client has hung up: do not wait any more */
	bool polled;    /* its last wait was one of call_park() */
	bool waiting;   /* from call_wait_start() to call_wake() or call_wait_stop() */
	lapse_us began; /* monotonic: when it ran first */
	void *state;
	call_fn *next; /* what runs next; the handler itself unless it said otherwise */
	const char *park_key;
	lapse_ms park_ms;
	work_fn *work;

	struct call_place before; /* the run under way, or the last one */
	struct waiter waiter;
	struct offload job; /* `work`, while it is under way */

	/* Given by the door: the wait is over, the call is to run again. */
	void (*ready)(struct call *c);
};

/* Makes a call whose fields are zero ready for a door to fill; and lets go of what it holds:
 * memory, reply, body, an open file. */
void call_init(struct call *c, struct engine *e);
void call_done(struct call *c);

/* For doors. call_run() runs the handler once, inside c->tx where its route has one,
 * and claims and keeps its Idempotency-Key around it. call_undo() takes back the step of a handler
 * that failed, and with it the key that an earlier step has committed, so that a retry really runs.
 */
int call_run(struct call *c);
int call_undo(struct call *c);

/* The transaction of the last run was undone: the call is where it was before that run. */
void call_rewind(struct call *c);

/* What is left of a wait of `ms` that began with the first run; 0 when the daemon ends. */
lapse_ms call_wait_left(const struct call *c, lapse_ms ms);

/* Wait until the key is woken (api/wait.h), or at most `ms`. */
int call_park(struct call *c, const char *key, lapse_ms ms);

/* Wait until the job that was started calls call_wake(c). */
int call_await(struct call *c, call_fn *next);

/* Run `work` on a worker thread, then `next`. */
int call_work(struct call *c, work_fn *work, call_fn *next);

/* A path with each % replaced by the next segment, percent-encoded. `second` may be NULL. Lives as
 * long as the call. */
const char *call_path(struct call *c, const char *pattern, const char *first, const char *second);

/* A header of the reply, also when it is an error. The texts live as long as the call. */
void call_header(struct call *c, const char *name, const char *value);

/* Parses the text, once, into c->flat or c->body; into c->body when it is an array or a tree is
 * needed. */
int call_parse(struct call *c);

/* Decode the body or the query by a table of fields; see fields_decode(). */
int call_body(struct call *c, const struct json_field *fields, void *out);
int call_query(struct call *c, const struct json_field *fields, void *out);

/* A parameter of the path that must be an id given by a client. */
int call_id_param(struct call *c, int index, const char *name, const char **ret);

/* A whole page of a list whose cursor is an id, for routes whose query is PAGE_FIELDS: `list` gives
 * its items to `w`, those with ids below `before`, `limit` at most. */
typedef int page_fn(struct call *c, int64_t before, int64_t limit, struct page_writer *w);
int call_page(struct call *c, page_fn *list);

#endif
