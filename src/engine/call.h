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
 *   CALL_NEEDS_TX  from a route's quick handler, which has no transaction: nothing was done, the
 *                ordinary handler is to run
 *
 * What must survive from one run to the next is in `state`, allocated from the call's arena.
 */
#ifndef LAPSE_ENGINE_CALL_H
#define LAPSE_ENGINE_CALL_H

#include "base/json.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tx.h"
#include "store/blob.h"

enum { CALL_WAIT = 1, CALL_AGAIN = 2, CALL_NEEDS_TX = 3, CALL_NEEDS_WRITE = 4 };

#define CALL_PARAMS_MAX 4
#define CALL_QUERY_MAX 16
#define CALL_HEADERS_MAX 8 /* of a reply, beside those every reply has */
#define LIMIT_DEFAULT 20
#define LIMIT_MAX 100

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

	/* On a route whose body is streamed: runs before it is received, without a transaction, and
	 * its error saves receiving it. NULL elsewhere. */
	call_fn *admit;
};

/* Runs off the loop, on a worker thread: touches nothing but c->state and what is documented as
 * safe there. */
typedef void work_fn(struct call *c);

struct call_arg {
	const char *name, *value;
};

#define CALL_OK_TEXT "{\"status\":\"ok\"}"

struct call {
	struct engine *engine;
	struct tx *tx; /* NULL in a handler whose route has no transaction */
	struct arena arena;

	/* Who and what. */
	const char *owner;
	bool admin;
	const char *params[CALL_PARAMS_MAX]; /* of the path, in order, decoded */
	struct call_arg query[CALL_QUERY_MAX];
	size_t query_count;
	json_t *body;     /* NULL = an empty body */
	const char *text; /* the body as it came, and a NUL; NULL where no route asks for it */
	size_t text_len;
	bool is_csv;                  /* the text is CSV, and `body` stays NULL */
	bool is_array;                /* the body is a JSON array, not an object */
	const char *if_match;         /* the ETag the caller relies on; NULL = any */
	const char *range, *if_range; /* as they came; NULL = not given */
	int64_t length;               /* of a streamed body, as announced; -1 = not known */
	struct blob *upload;          /* a streamed body, hashed and durable; NULL before it is */
	uint64_t hint;                /* what looking ahead has found; 0 = nothing */

	/* The reply. */
	int status;    /* 200 unless the handler sets another */
	bool plain_ok; /* the reply is CALL_OK_TEXT, which costs less to send than a buffer */
	bool has_file; /* it is a part of a file, whose descriptor belongs to the call */
	struct buf reply;
	struct buf kept; /* what an Idempotency-Key keeps instead, when the reply holds a secret */
	const char *content_type; /* NULL = JSON */
	lapse_ms sunset;          /* when the resource will expire; 0 = it says nothing */
	struct call_arg headers[CALL_HEADERS_MAX]; /* see call_header() */
	size_t headers_count;
	int64_t file_offset, file_length;
	int file_fd;
	struct problem problem;

	/* Waiting. */
	int runs;       /* how often the handler has run before */
	bool stopping;  /* the daemon ends: do not wait any more */
	bool timed_out; /* the wait of call_park() is over */
	lapse_us began; /* monotonic: when it ran first */
	void *state;
	call_fn *next; /* what runs next; the handler itself unless it said otherwise */
	const char *park_key;
	lapse_ms park_ms;
	work_fn *work;

	/* Given by whoever runs calls: makes a call that waits run again. */
	void (*wake)(struct call *c);
};

/* What is left of a wait of `ms` that began with the first run; 0 when the daemon ends. */
lapse_ms call_wait_left(const struct call *c, lapse_ms ms);

/* Wait until the key is woken (engine/wait.h), or at most `ms`. */
int call_park(struct call *c, const char *key, lapse_ms ms);

/* Wait until somebody calls c->wake(c). */
int call_await(struct call *c, call_fn *next);

/* Run `work` on a worker thread, then `next`. */
int call_work(struct call *c, work_fn *work, call_fn *next);

/* A header of the reply, also when it is an error. The texts live as long as the call. */
void call_header(struct call *c, const char *name, const char *value);

/* Parses the text into c->body, once. */
int call_parse(struct call *c);

/* Decode the body or the query by a table of fields; see json_decode(). */
int call_body(struct call *c, const struct json_field *fields, void *out);
int call_query(struct call *c, const struct json_field *fields, void *out);

/* A parameter of the path that must be an id given by a client. */
int call_id_param(struct call *c, int index, const char *name, const char **ret);

/* The ETag of a resource is a hash of its JSON. LAPSE_EPRECONDITION when the caller relies on
 * another state than `json`. */
#define ETAG_LEN 18
void call_etag(const char *json, size_t n, char out[ETAG_LEN + 1]);
int call_check_match(struct call *c, const struct buf *json);

/* Lists: `limit` and `after` of the query, and the frame around the items. */
struct page {
	int64_t limit;
	const char *after; /* NULL = from the start */
};
extern const struct json_field PAGE_FIELDS[];

/* The cursor of lists whose order is "newest id first": all ids below it. */
int page_before(const struct page *page, int64_t *ret_before, struct problem *p);

/* The frame of a list whose cursor is an id. page_item() says whether the item belongs to this
 * page: ask the store for one more than the limit, and the one too many says that there is more. */
struct page_writer {
	struct buf *out;
	int64_t limit, written;
	int64_t last_id;
	bool more;
};
void page_begin(struct page_writer *w, struct buf *out, const struct page *page);
bool page_item(struct page_writer *w, int64_t id);
void page_end(struct page_writer *w);

/* A whole answer of that kind, for routes whose query is PAGE_FIELDS: `list` gives its items to
 * `w`, those with ids below `before`, `limit` at most. */
typedef int page_fn(struct call *c, int64_t before, int64_t limit, struct page_writer *w);
int call_page(struct call *c, page_fn *list);

/* Cursors of lists ordered by a text: its bytes in hex. */
const char *page_text_cursor(struct arena *arena, const char *text);
int page_after_text(const struct page *page, struct arena *arena, const char **ret,
		    struct problem *p);

/* The closing part of a list, for cursors of another kind: NULL = no further page. */
void page_close(struct buf *out, const char *next_cursor);

#endif
