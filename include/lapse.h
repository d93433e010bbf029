/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liblapse: lapse in your own process. It opens a data directory and runs the operations and sweeps
 * of the daemon in it, without HTTP. Link with `pkg-config --libs lapse`; docs/library.md is the
 * guide.
 *
 *	struct lapse_options options;
 *	struct lapse_store *store;
 *
 *	lapse_options_init(&options, sizeof(options));
 *	options.data_dir = "agents.lapse";
 *	if (lapse_open(&options, &store, NULL) < 0)
 *		…
 *	lapse_message_send(store, &draft, &id);
 *	lapse_tick(store);             // whenever lapse_next_us(store) has passed
 *	lapse_close(store);
 *
 * Errors. A function that can fail returns 0 (LAPSE_OK) or a negative LAPSE_E…; what it would have
 * given back (ret_…) is untouched then, and lapse_error_message() says in a sentence what is wrong.
 * ret_… may be NULL unless it says otherwise.
 *
 * Durability. A call that wrote has synced it to the disk when it returns (but see
 * lapse_agent_heartbeat()). Removals by sweeps are committed but not synced: after a power loss the
 *next sweep finds them again. When the disk fails to sync, the process ends (abort): the kernel may
 *have dropped what it could not write, and only a fresh start reads the truth. Running out of
 *memory ends the process, too.
 *
 * Ownership. Texts you pass are copied or used during the call only. What a callback is given is
 * borrowed and lives until the callback returns. What comes back through a `const … **ret` belongs
 * to the store and lives until the next call with that store, except lapse_error_…(). Nothing here
 * has to be freed but the store, with lapse_close().
 *
 * Threads. One handle, one thread at a time; two handles (of two directories) are independent. A
 * handle must not cross a fork(). A callback must not call a function of the store it was called
 * for (that is LAPSE_EINVAL), must not longjmp and must not throw. All callbacks run inside a call
 * of yours, on its thread. lapse's own threads (checkpoints, syncs) call none.
 *
 * Time is milliseconds since 1970 (lapse_ms); durations are in the unit their name ends with.
 */
#ifndef LAPSE_H
#define LAPSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LAPSE_API __attribute__((visibility("default")))
#else
#define LAPSE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Errors */

/* The one list of errors, of the library, the daemon and the command. Numbers never change.
 * To add one: 1. a row below; 2. the compiler then points at http_status_of() and http_code_of() in
 * http/reply.c, which have no default. */
#define LAPSE_ERRORS(X)                                                                            \
	X(EINVAL, 1, "invalid request")                                                            \
	X(EUNAUTHORIZED, 2, "a valid token is needed")                                             \
	X(EFORBIDDEN, 3, "not allowed")                                                            \
	X(ENOTFOUND, 4, "not found")                                                               \
	X(EMETHOD, 5, "method not allowed")                                                        \
	X(ETIMEOUT, 6, "timed out")                                                                \
	X(ECONFLICT, 7, "conflict")                                                                \
	X(EEXPIRED, 8, "expired")                                                                  \
	X(ETOOLARGE, 9, "too large")                                                               \
	X(EMEDIATYPE, 10, "unsupported media type")                                                \
	X(EUNPROCESSABLE, 11, "cannot be processed")                                               \
	X(ELIMIT, 12, "limit reached")                                                             \
	X(EHEADERS, 13, "headers too large")                                                       \
	X(EINTERNAL, 14, "internal error")                                                         \
	X(EUNAVAILABLE, 15, "unavailable")                                                         \
	X(EBUSY, 16, "in use by another process")                                                  \
	X(ERETRY, 17, "the store is busy, try again")                                              \
	X(EFULL, 18, "the disk is full")                                                           \
	X(EIO, 19, "input/output error")                                                           \
	X(ECORRUPT, 20, "the store is damaged")                                                    \
	X(EVERSION, 21, "the store belongs to a newer version")                                    \
	X(EPRECONDITION, 23, "the resource has changed")                                           \
	X(ESYNC, 24, "the disk lost what it was told to sync")                                     \
	X(ERANGE, 25, "no such part of it")                                                        \
	X(EUPSTREAM, 26, "the server behind it failed")                                            \
	X(EUNKNOWN, 22, "the outcome of the commit is unknown")

#define LAPSE_ERROR_MEMBER(name, number, text) LAPSE_##name = -(number),
enum lapse_error { LAPSE_OK = 0, LAPSE_ERRORS(LAPSE_ERROR_MEMBER) };
#undef LAPSE_ERROR_MEMBER

/* "EINVAL" and "invalid request"; "unknown error" for numbers not in the list. Static. */
LAPSE_API const char *lapse_error_name(int err);
LAPSE_API const char *lapse_error_text(int err);

/* Times and ids */

typedef int64_t lapse_ms;
typedef int64_t lapse_us;

#define LAPSE_NEVER INT64_MAX

/* Ids that lapse makes are positive and grow with time. As text, in JSON and as the key of a hold,
 * they are 16 hex digits. */
#define LAPSE_ID_SIZE 17 /* with the NUL */
LAPSE_API void lapse_id_format(int64_t id, char out[LAPSE_ID_SIZE]);
LAPSE_API int lapse_id_parse(const char *text, int64_t *ret_id);

/* "0.1.0". Static. */
LAPSE_API const char *lapse_version(void);

/* Opening and closing */

struct lapse_store;

struct lapse_setting {
	const char *name; /* as in the daemon's file: "message_ttl_ms"; lapsed(8) lists them */
	const char *value;
};

struct lapse_options {
	size_t size; /* of this struct as you compiled it; lapse_options_init() sets it */

	const char *data_dir; /* required; made (0700) where it is missing */
	const char *owner;    /* whose things you work with; NULL = "local", as the daemon */

	/* Beyond the defaults. Neither the environment nor a file is read. Settings that only the
	 * daemon has a use for are checked and ignored. */
	const struct lapse_setting *settings;
	size_t settings_count;

	/* Your clock; NULL = the machine's. `wall` is the time of day. `mono` never goes back and
	 * tells how much time has really passed: a wall clock that runs ahead of it by more than
	 * clock_jump_max_ms is not trusted (see lapse_clock()). With `wall` alone, time is what
	 * you say it is, and no leap is ever seen. Both take clock_arg. */
	lapse_ms (*wall)(void *clock_arg);
	lapse_us (*mono)(void *clock_arg);
	void *clock_arg;

	/* Gets each log line, one JSON object without a newline; NULL = nothing is logged. The
	 * setting log_level says from which level on. */
	void (*log)(void *log_arg, const char *line);
	void *log_arg;
};

/* What is wrong, for a person. */
struct lapse_problem {
	char field[64];    /* the option, setting or argument to blame; empty = none of them */
	char message[256]; /* one sentence */
};

/* Fills the defaults. Call it with sizeof(*options): a program compiled against an older header
 * goes on working with a newer library. */
LAPSE_API void lapse_options_init(struct lapse_options *options, size_t size);

/* Opens the store, makes or migrates it where needed. LAPSE_EBUSY while a daemon or another handle
 * has the directory. There is no store yet that could remember an error, so it goes to `problem`,
 * which may be NULL; ret_store may not. */
LAPSE_API int lapse_open(const struct lapse_options *options, struct lapse_store **ret_store,
			 struct lapse_problem *problem);

/* Takes NULL. Nothing that a call has written is lost without it. Not from a callback. */
LAPSE_API void lapse_close(struct lapse_store *store);

/* Why the last call with this store failed, and the argument to blame; both empty when it did not.
 * They live until the next call that can fail. */
LAPSE_API const char *lapse_error_message(const struct lapse_store *store);
LAPSE_API const char *lapse_error_field(const struct lapse_store *store);

/* Works with the things of another owner from now on. Everything belongs to one; what belongs to
 * another is LAPSE_ENOTFOUND. */
LAPSE_API int lapse_set_owner(struct lapse_store *store, const char *owner);

/* Messages between agents. One that has been read goes 24 h (message_ttl_ms) after it was sent; an
 * unread one never. Names of agents: 1–128 bytes of printable UTF-8 without '/'. */

#define LAPSE_LIMIT_MAX 1000  /* items one call lists, claims, sends or marks at most */
#define LAPSE_NO_CLAIM (-1LL) /* where a claim's id is asked for or given */

struct lapse_draft {
	const char *to;       /* the agent; not for lapse_message_broadcast() */
	const char *from;     /* an agent, too */
	const char *content;  /* UTF-8 */
	const char *type;     /* 1–64 bytes; NULL = "text" */
	const char *metadata; /* a JSON object; NULL = "{}" */
};

struct lapse_message {
	int64_t id;
	const char *to, *from, *content, *type, *metadata;
	lapse_ms timestamp;
	lapse_ms read_at; /* LAPSE_NEVER = unread */
	int64_t claim_id; /* the claim that had it last, or LAPSE_NO_CLAIM */
};

typedef void lapse_message_fn(void *arg, const struct lapse_message *message);

/* LAPSE_ELIMIT when the agent has unread_max_per_agent unread messages. */
LAPSE_API int lapse_message_send(struct lapse_store *store, const struct lapse_draft *draft,
				 int64_t *ret_id);

/* The same to `count` different agents: to all or to none. ret_ids has room for `count`. */
LAPSE_API int lapse_message_broadcast(struct lapse_store *store, const char *const *to,
				      size_t count, const struct lapse_draft *draft,
				      int64_t *ret_ids);

/* Newest first: those with an id below `before` (0 = from the newest), at most `limit`. */
LAPSE_API int lapse_message_list(struct lapse_store *store, const char *agent, bool unread_only,
				 int64_t before, int64_t limit, lapse_message_fn *fn, void *arg);

/* LAPSE_ENOTFOUND, or LAPSE_EEXPIRED for one past its lifetime that no sweep has met yet. */
LAPSE_API int lapse_message_get(struct lapse_store *store, const char *agent, int64_t id,
				lapse_message_fn *fn, void *arg);

/* One that is read already stays as it is. With a claim: LAPSE_ECONFLICT when the message has
 * passed to another one. */
LAPSE_API int lapse_message_mark_read(struct lapse_store *store, const char *agent, int64_t id,
				      int64_t claim_id);

/* Many: those named, or all that were sent before a time. *ret_count = how many were unread. */
LAPSE_API int lapse_message_mark_ids(struct lapse_store *store, const char *agent,
				     const int64_t *ids, size_t count, int64_t *ret_count);
LAPSE_API int lapse_message_mark_before(struct lapse_store *store, const char *agent,
					lapse_ms before, int64_t *ret_count);

/* Leases unread messages to you, oldest first, for `visibility_ms` (up to 12 h). One that is not
 * marked as read by then is offered again. fn is called once the leases are on the disk.
 * *ret_claim_id = LAPSE_NO_CLAIM when there was nothing to claim. */
LAPSE_API int lapse_message_claim(struct lapse_store *store, const char *agent, int64_t limit,
				  lapse_ms visibility_ms, lapse_message_fn *fn, void *arg,
				  int64_t *ret_claim_id);

struct lapse_inbox {
	const char *agent;
	int64_t total, unread;
	lapse_ms oldest_unread; /* when it was sent; LAPSE_NEVER where there is none */
};

typedef void lapse_inbox_fn(void *arg, const struct lapse_inbox *inbox);

/* Inboxes in the order of their agents' names, those after `after` (NULL = from the first). */
LAPSE_API int lapse_message_stats(struct lapse_store *store, const char *after, int64_t limit,
				  lapse_inbox_fn *fn, void *arg);

/* Agents: who is there. One that was not heard of for more than 90 s (agent_evict_after_ms) is
 * evicted, with its capabilities, by the lapse_tick() at its deadline; reads do not show it from
 * then on. When most of the fleet falls silent at once, they are suspects first and get one more
 * threshold. After lapse_open() every known agent gets a full one. */

#define LAPSE_CAPABILITIES_MAX 64 /* of an agent */
#define LAPSE_BEATS_MAX 10000     /* of one call */

struct lapse_beat {
	const char *agent;
	const char *cluster;             /* where it runs */
	const char *const *capabilities; /* different names; NULL = as they are */
	size_t capabilities_count;       /* 0 with a pointer = none any more */
	const char *metadata;            /* a JSON object; NULL = as it is */
};

/* Heartbeats: register agents, or note that they were seen and what changed; of all or of none.
 * Membership, cluster, capabilities and metadata are durable when it returns. The time of the last
 * heartbeat is not: one that says nothing new costs no disk write. LAPSE_ELIMIT beyond
 * agents_max. */
LAPSE_API int lapse_agent_heartbeat(struct lapse_store *store, const struct lapse_beat *beats,
				    size_t count);

struct lapse_agent {
	const char *agent, *cluster;
	const char *const *capabilities;
	size_t capabilities_count;
	lapse_ms first_seen, last_seen;
	lapse_ms expires_at; /* when it will be evicted unless it is heard of */
	bool suspect;
};

typedef void lapse_agent_fn(void *arg, const struct lapse_agent *agent);

LAPSE_API int lapse_agent_get(struct lapse_store *store, const char *agent, lapse_agent_fn *fn,
			      void *arg);

/* Live agents in the order of their names, those after `after` (NULL = from the first), at most
 * `limit`; `cluster` and `capability` choose, NULL = any. */
LAPSE_API int lapse_agent_list(struct lapse_store *store, const char *cluster,
			       const char *capability, const char *after, int64_t limit,
			       lapse_agent_fn *fn, void *arg);

/* Replaces the set. LAPSE_ENOTFOUND. */
LAPSE_API int lapse_agent_set_capabilities(struct lapse_store *store, const char *agent,
					   const char *const *capabilities, size_t count);

/* Removes the agent and its capabilities. LAPSE_ENOTFOUND; LAPSE_ECONFLICT while it is held. */
LAPSE_API int lapse_agent_remove(struct lapse_store *store, const char *agent);

/* Attachments: files with a lifetime, known by the SHA-256 of their bytes. Staged ones lie in the
 * data directory. One that is neither persistent nor infinite is due when its lifetime has passed
 * since it was last staged; reads do not show it from then on, and a sweep removes it. Staging the
 * same bytes again keeps one file, begins its lifetime anew, and never makes it shorter. */

#define LAPSE_CHECKSUM_SIZE 65 /* 64 hex digits, lower case, and the NUL */
#define LAPSE_TTL_DEFAULT (-1) /* the setting attachment_ttl_ms, or mailbox_default_ttl_ms */

struct lapse_terms {
	const char *name; /* 1-255 bytes of printable UTF-8, for people; NULL = a default */
	bool persist;     /* time never removes it */
	lapse_ms ttl_ms;  /* LAPSE_TTL_DEFAULT, 0 or more, or LAPSE_NEVER */
};

struct lapse_attachment {
	int64_t id;
	const char *checksum, *name;
	int64_t size;
	bool persist;
	lapse_ms ttl_ms; /* LAPSE_NEVER = infinite */
	lapse_ms inserted_at;
	lapse_ms expires_at; /* LAPSE_NEVER = it stays */
	bool cached;         /* the last staging found these bytes here */
};

typedef void lapse_attachment_fn(void *arg, const struct lapse_attachment *attachment);

/* Gives up to `size` bytes; 0 = that was all, negative = it failed, and nothing is staged. */
typedef ptrdiff_t lapse_read_fn(void *arg, void *buffer, size_t size);

/* Stages a regular file, bytes in memory, or what `read` gives. `terms` may be NULL. fn, which may
 * be NULL, is called once it is on the disk. LAPSE_ETOOLARGE beyond attachment_max_bytes,
 * LAPSE_ELIMIT when all together would have more than attachment_total_bytes, LAPSE_EFULL. */
LAPSE_API int lapse_attachment_stage_path(struct lapse_store *store, const char *path,
					  const struct lapse_terms *terms, lapse_attachment_fn *fn,
					  void *arg);
LAPSE_API int lapse_attachment_stage_bytes(struct lapse_store *store, const void *bytes, size_t n,
					   const struct lapse_terms *terms, lapse_attachment_fn *fn,
					   void *arg);
LAPSE_API int lapse_attachment_stage_from(struct lapse_store *store, lapse_read_fn *read,
					  void *read_arg, const struct lapse_terms *terms,
					  lapse_attachment_fn *fn, void *arg);

/* Newest first: those with an id below `before` (0 = from the newest), at most `limit`. */
LAPSE_API int lapse_attachment_list(struct lapse_store *store, int64_t before, int64_t limit,
				    lapse_attachment_fn *fn, void *arg);

/* LAPSE_ENOTFOUND, or LAPSE_EEXPIRED for one past its lifetime that no sweep has met yet. */
LAPSE_API int lapse_attachment_get(struct lapse_store *store, const char *checksum,
				   lapse_attachment_fn *fn, void *arg);

/* A descriptor to read it with, yours to close. It stays readable whatever becomes of the
 * attachment. */
LAPSE_API int lapse_attachment_open(struct lapse_store *store, const char *checksum, int *ret_fd);

/* The row now, the file with the next lapse_tick(). LAPSE_ECONFLICT while it is held. */
LAPSE_API int lapse_attachment_delete(struct lapse_store *store, const char *checksum);

struct lapse_attachment_metrics {
	int64_t total_count, total_bytes;
	int64_t persistent_count, persistent_bytes;
	int64_t expirable_count, expirable_bytes; /* the others */
};

LAPSE_API int lapse_attachment_metrics(struct lapse_store *store,
				       struct lapse_attachment_metrics *ret_metrics);

/* Removes what is due, of all owners; the files go with the next lapse_tick(). */
LAPSE_API int lapse_attachment_cleanup(struct lapse_store *store, int64_t *ret_count,
				       int64_t *ret_bytes);

/* Mailboxes: disposable addresses. One lives up to and including expires_at; from the next
 * millisecond on it is expired for everybody, whoever notices first: a call that looks at it, the
 * lapse_tick() at its deadline, a sweep of the scheduler "mailboxes". Then its mail is removed and
 * its address free again. What has expired can be looked up for 30 days (mailbox_keep_expired_ms).
 *
 * Mailboxes that the library makes live in the store (the provider "local"): mail goes from one to
 * others of the same store, at once. It talks to no mail server. In a directory whose daemon has
 * one, the mailboxes there can be looked at, renewed and deleted, and expire; for their mail the
 * answer is LAPSE_EUPSTREAM. The account of one that ends is not touched: that it is to be deleted
 * is written down with the end (`cleanup` says so), and the next daemon does it. */

#define LAPSE_MAILBOX_ID_SIZE 21 /* "mbx_", 16 hex digits, and the NUL */

enum lapse_cleanup {
	LAPSE_CLEANUP_CLEAN = 0,   /* it has its account, or the account is gone */
	LAPSE_CLEANUP_PENDING = 1, /* it is over, and its account is still to be deleted */
	LAPSE_CLEANUP_DEAD = 2     /* that was given up: a dead letter of the daemon */
};

struct lapse_mailbox {
	const char *id;      /* also the key of a hold */
	const char *address; /* username@domain */
	const char *username, *domain;
	const char *provider; /* where it lives: "local", or a mail server's */
	bool expired;
	lapse_ms created_at, expires_at;
	enum lapse_cleanup cleanup;
	int64_t cleanup_attempts; /* failed ones */
};

typedef void lapse_mailbox_fn(void *arg, const struct lapse_mailbox *mailbox);

/* NULL = a random username, the setting mailbox_domain (the only domain there is here);
 * LAPSE_TTL_DEFAULT, or from mailbox_min_ttl_ms to mailbox_max_ttl_ms. fn, which may be NULL, is
 * called once it is on the disk. LAPSE_ECONFLICT when the address is taken, LAPSE_ELIMIT beyond
 * mailboxes_max. */
LAPSE_API int lapse_mailbox_create(struct lapse_store *store, const char *username,
				   const char *domain, lapse_ms ttl_ms, lapse_mailbox_fn *fn,
				   void *arg);

/* Expired ones, too. LAPSE_ENOTFOUND. */
LAPSE_API int lapse_mailbox_get(struct lapse_store *store, const char *id, lapse_mailbox_fn *fn,
				void *arg);

/* Newest first: those made before the one with the id `before` (NULL = from the newest), at most
 * `limit`. */
LAPSE_API int lapse_mailbox_list(struct lapse_store *store, bool include_expired,
				 const char *before, int64_t limit, lapse_mailbox_fn *fn,
				 void *arg);

/* Its lifetime begins anew, now. LAPSE_EEXPIRED once it is over. */
LAPSE_API int lapse_mailbox_renew(struct lapse_store *store, const char *id, lapse_ms ttl_ms,
				  lapse_mailbox_fn *fn, void *arg);

/* With its mail. LAPSE_ECONFLICT while it is held. */
LAPSE_API int lapse_mailbox_delete(struct lapse_store *store, const char *id);

/* The mail of a mailbox that lives: LAPSE_ENOTFOUND, LAPSE_EEXPIRED, LAPSE_EUPSTREAM otherwise.
 * One that has been read goes 24 h (message_ttl_ms) after it came; an unread one when its mailbox
 * is over. */

#define LAPSE_RECIPIENTS_MAX 100 /* of one mail: to, cc and bcc together */

struct lapse_mail {
	const char *id;
	const char *from, *subject;
	const char *const *to, *const *cc;
	size_t to_count, cc_count;
	lapse_ms received_at;
	bool read;
	const char *preview;     /* the first characters of the text */
	const char *text, *html; /* NULL in lists, and where there is none */
};

typedef void lapse_mail_fn(void *arg, const struct lapse_mail *mail);

/* Newest first, without the bodies: those that came before the one with the id `before` (NULL =
 * from the newest), at most `limit`. `folder`: "inbox" (NULL), "sent", "drafts", "junk" or
 * "all". */
LAPSE_API int lapse_mail_list(struct lapse_store *store, const char *mailbox, const char *folder,
			      const char *before, int64_t limit, lapse_mail_fn *fn, void *arg);

/* The whole mail, which is read from now on. fn is called once that is on the disk. */
LAPSE_API int lapse_mail_get(struct lapse_store *store, const char *mailbox, const char *id,
			     lapse_mail_fn *fn, void *arg);

struct lapse_mail_draft {
	const char *const *to, *const *cc, *const *bcc; /* plain addresses */
	size_t to_count, cc_count, bcc_count;
	const char *subject;     /* one line of up to 998 bytes */
	const char *text, *html; /* NULL = none; without both, an empty text */
};

/* To all recipients or to none; the mailbox keeps a copy in "sent", whose id is *ret_id. All must
 * be live mailboxes of this store, of any owner: LAPSE_EINVAL. LAPSE_ELIMIT when one has
 * mailbox_unread_max unread mails, LAPSE_ETOOLARGE for more than 16 MiB of copies. */
LAPSE_API int lapse_mail_send(struct lapse_store *store, const char *mailbox,
			      const struct lapse_mail_draft *draft, const char **ret_id);

/* The engine */

/* Does what is due: evictions, a slice of each sweep (sweep_budget_ms), deletions of files. It
 * never takes long; when more is due, lapse_next_us() is 0. LAPSE_EUNAVAILABLE when a sweep failed:
 * it is tried again by itself. */
LAPSE_API int lapse_tick(struct lapse_store *store);

/* When lapse_tick() is due next, counted from now; 0 = at once. Other calls can bring it nearer. */
LAPSE_API lapse_us lapse_next_us(struct lapse_store *store);

struct lapse_table_count {
	const char *table;
	int64_t pruned;
};

struct lapse_sweep_result {
	const char *scheduler;
	bool dry_run;
	int64_t pruned; /* rows, of all tables */
	lapse_us duration_us;
	const struct lapse_table_count *tables;
	size_t tables_count;
	int64_t bytes; /* of the files that go with the rows */
};

/* A whole sweep now, however long it takes. A dry run takes the same path, removes nothing and
 * tells what would go. LAPSE_ENOTFOUND for a scheduler that is not in the matrix. */
LAPSE_API int lapse_sweep(struct lapse_store *store, const char *scheduler, bool dry_run,
			  const struct lapse_sweep_result **ret_result);

enum lapse_path {
	LAPSE_PATH_LAZY = 1,     /* reads do not show what is due */
	LAPSE_PATH_DEADLINE = 2, /* removed at its deadline */
	LAPSE_PATH_SWEEP = 4,    /* removed by the scheduler's sweep */
	LAPSE_PATH_FORCED = 8    /* removed when somebody asks */
};

/* A row of the maintenance matrix. */
struct lapse_bound {
	const char *table, *scheduler;
	const char *bounded_by, *due_when, *safety_rule, *action;
	unsigned paths;     /* of enum lapse_path */
	lapse_ms window_ms; /* LAPSE_NEVER where each row holds its own deadline */
	int64_t live_rows;
	int64_t due_rows;       /* counted up to a million */
	lapse_ms oldest_due_ms; /* how long the oldest has been due; 0 when none is */
	lapse_ms last_sweep;    /* when it ended; LAPSE_NEVER = not yet */
	int64_t pruned;         /* rows, since the store was opened */
};

typedef void lapse_bound_fn(void *arg, const struct lapse_bound *bound);

LAPSE_API int lapse_matrix(struct lapse_store *store, lapse_bound_fn *fn, void *arg);

/* Holds: a held row is never removed, until the hold ends or is released. */
struct lapse_hold {
	int64_t id;
	const char *table, *key, *reason;
	lapse_ms until; /* LAPSE_NEVER = until it is released */
	lapse_ms placed_at;
};

typedef void lapse_hold_fn(void *arg, const struct lapse_hold *hold);

/* Places a hold, or replaces reason and end of the one there is. The key of a message is its id as
 * text, that of an agent its name, that of an attachment its checksum, that of a mailbox its id
 * (past its end a held one keeps its mail). LAPSE_ENOTFOUND when there is no such row. */
LAPSE_API int lapse_hold_place(struct lapse_store *store, const char *table, const char *key,
			       const char *reason, lapse_ms until);
LAPSE_API int lapse_hold_release(struct lapse_store *store, const char *table, const char *key);

/* Newest first: those with an id below `before` (0 = from the newest), at most `limit`. */
LAPSE_API int lapse_hold_list(struct lapse_store *store, int64_t before, int64_t limit,
			      lapse_hold_fn *fn, void *arg);

struct lapse_backup_file {
	const char *name; /* below the data directory: "backups/lapse-….db" */
	int64_t bytes;
	lapse_ms created_at;
};

/* A consistent, synced copy of the whole database. Of the backups only the newest backup_keep stay;
 * the others go with the next lapse_tick(). `lapse restore` puts one back. */
LAPSE_API int lapse_backup(struct lapse_store *store, const struct lapse_backup_file **ret_file);

/* What happened, in the order it happened; kept for event_keep_ms: who reads on later than that
 * misses what is gone. */
struct lapse_event {
	int64_t seq; /* grows; not without gaps */
	lapse_ms at;
	const char *kind; /* "message.sent" */
	const char *data; /* a JSON object */
};

typedef void lapse_event_fn(void *arg, const struct lapse_event *event);

/* Those after `after` (0 = from the oldest), at most `limit`: the owner's, and lapse's own. */
LAPSE_API int lapse_events(struct lapse_store *store, int64_t after, int64_t limit,
			   lapse_event_fn *fn, void *arg);

/* Trusted time, which everything goes by: it follows the wall clock, never goes back, and does not
 * follow a leap. */
struct lapse_clock_state {
	lapse_ms trusted, wall;
	bool jumped;      /* the wall clock has leapt ahead and is not followed */
	lapse_ms leap_ms; /* how far; 0 unless jumped */
};

LAPSE_API int lapse_clock(struct lapse_store *store, const struct lapse_clock_state **ret_state);

/* Takes the wall clock as it is. LAPSE_ECONFLICT when there is no leap. */
LAPSE_API int lapse_clock_accept(struct lapse_store *store);

#ifdef __cplusplus
}
#endif

#endif
