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
 * Errors. A function that can fail returns 0 (LAPSE_OK) or a negative LAPSE_E…. After an error its
 * outputs (ret_…) are untouched and lapse_error_message() says in one sentence what is wrong.
 * An output may be NULL unless the function says otherwise.
 *
 * Durability. What a call has written is on the disk when the call returns (but see
 * lapse_agent_heartbeat()). Removals by sweeps are committed but not synced: after a power loss the
 * next sweep finds the same rows again. When the disk fails to sync, the process ends (abort): the
 * kernel may have dropped what it could not write, and only a fresh start reads what is really
 * there. Running out of memory ends the process, too.
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

/* Takes NULL. Nothing that a call has written is lost when it is not called. Not from a callback.
 */
LAPSE_API void lapse_close(struct lapse_store *store);

/* Why the last call with this store failed, and the argument to blame; both empty when it did not.
 * They live until the next call that can fail. */
LAPSE_API const char *lapse_error_message(const struct lapse_store *store);
LAPSE_API const char *lapse_error_field(const struct lapse_store *store);

/* Changes the owner for all further calls. Everything belongs to one owner; what belongs to another
 * is LAPSE_ENOTFOUND. */
LAPSE_API int lapse_set_owner(struct lapse_store *store, const char *owner);

/* Calling again after a crash. A key, 1 to 128 bytes of printable UTF-8, names the next call that
 * creates something: lapse_message_send(), lapse_message_broadcast(), lapse_mailbox_create(),
 * lapse_mail_send(), lapse_queue_add() or lapse_outbox_add(). That call uses the key up, whether it
 * succeeds or fails. When a call with the same key and arguments has succeeded in the last 24 h
 * (idempotency_keep_ms), nothing is done and the first answer comes back; with other arguments it
 * is LAPSE_EUNPROCESSABLE. A call that failed leaves no key. Keys belong to their owner and survive
 * restarts. NULL forgets the key.
 *
 * Staging needs none: the same bytes are the same attachment. */
LAPSE_API int lapse_set_idempotency_key(struct lapse_store *store, const char *key);

/* Whether the last call did nothing and gave the first answer again. */
LAPSE_API bool lapse_was_replayed(const struct lapse_store *store);

/* Messages between agents. A read message is removed 24 h (message_ttl_ms) after it was sent, an
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

/* Agents: who is there. An agent without a heartbeat for more than 90 s (agent_evict_after_ms) is
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

/* Heartbeats: register agents, or note that they were seen and what changed; all of them or none.
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
	bool suspect;        /* always false: suspects are not live, and not shown */
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

/* Removes the row now and the file with the next lapse_tick(). LAPSE_ECONFLICT while it is held. */
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
 * millisecond on every call treats it as expired. A call that looks at it, the lapse_tick() at its
 * deadline or a sweep of the scheduler "mailboxes" then removes its mail and frees its address,
 * whichever comes first. An expired mailbox can be looked up for 30 days (mailbox_keep_expired_ms).
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

/* Begins its lifetime anew, now. LAPSE_EEXPIRED once it has expired. */
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

/* Newest first, without the bodies: at most `limit` mails that came before the one with the id
 * `before` (NULL = from the newest). `folder`: "inbox" (NULL), "sent", "drafts", "junk" or
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

/* Operational tables: small state of a platform that must not outlive its use. docs/tables.md tells
 * what each is for. Nothing past its deadline is shown, swept or not. Keys, holders, workers,
 * states and consumers are names like those of agents; data and payloads are JSON objects.
 * LAPSE_ENOTFOUND with the field "table" when there is no such table; LAPSE_ELIMIT beyond a table's
 * limit per owner. */

/* Leases: one holder at a time. The tables are "conversation_leases", "workspace_leases",
 * "oauth_refresh_leases" and "models_dev_refresh_leases". */

struct lapse_lease {
	const char *table, *key, *holder;
	int64_t fencing_token; /* grows with each acquisition, store-wide; below 2^53 */
	lapse_ms acquired_at, expires_at;
};

typedef void lapse_lease_fn(void *arg, const struct lapse_lease *lease);

/* Acquires the lease, or renews it when the holder has it: then the token stays. LAPSE_ECONFLICT
 * while another holder has it. fn, which may be NULL, is called once the lease is on the disk. */
LAPSE_API int lapse_lease_acquire(struct lapse_store *store, const char *table, const char *key,
				  const char *holder, lapse_ms ttl_ms, lapse_lease_fn *fn,
				  void *arg);
LAPSE_API int lapse_lease_get(struct lapse_store *store, const char *table, const char *key,
			      lapse_lease_fn *fn, void *arg);

/* `fencing_token` 0 = whichever it has. LAPSE_ECONFLICT when the holder or the token is another
 * one. */
LAPSE_API int lapse_lease_release(struct lapse_store *store, const char *table, const char *key,
				  const char *holder, int64_t fencing_token);

/* By key, those after `after` (NULL = from the first), at most `limit`. */
LAPSE_API int lapse_lease_list(struct lapse_store *store, const char *table, const char *after,
			       int64_t limit, lapse_lease_fn *fn, void *arg);

/* Entries live as long as they are put again: "presence_entries" and "connections". */

struct lapse_entry {
	const char *key, *data;
	lapse_ms created_at, last_seen_at, expires_at;
};

typedef void lapse_entry_fn(void *arg, const struct lapse_entry *entry);

/* Makes the entry or refreshes it; `data` NULL = as it is. Beyond presence_entries_max the presence
 * entry that was not seen for the longest time goes. fn is called once it is on the disk. */
LAPSE_API int lapse_entry_put(struct lapse_store *store, const char *table, const char *key,
			      const char *data, lapse_ms ttl_ms, lapse_entry_fn *fn, void *arg);
LAPSE_API int lapse_entry_get(struct lapse_store *store, const char *table, const char *key,
			      lapse_entry_fn *fn, void *arg);

/* LAPSE_ECONFLICT while it is held. */
LAPSE_API int lapse_entry_remove(struct lapse_store *store, const char *table, const char *key);
LAPSE_API int lapse_entry_list(struct lapse_store *store, const char *table, const char *after,
			       int64_t limit, lapse_entry_fn *fn, void *arg);

/* Messages of a channel that are handled once. */

struct lapse_dedupe_key {
	const char *channel, *account_id, *container_id, *message_id; /* 1-512 bytes each */
};

/* *ret_fresh = the first call inside the window, which ends at *ret_expires_at. `window_ms`:
 * LAPSE_TTL_DEFAULT is the setting dedupe_window_ms. */
LAPSE_API int lapse_dedupe_claim(struct lapse_store *store, const struct lapse_dedupe_key *key,
				 lapse_ms window_ms, bool *ret_fresh, lapse_ms *ret_expires_at);

/* Work queues: "channel_inbox" and "channel_outbox". */

enum lapse_queue_status {
	LAPSE_QUEUE_QUEUED = 0,
	LAPSE_QUEUE_PROCESSING = 1,
	LAPSE_QUEUE_COMPLETED = 2,
	LAPSE_QUEUE_FAILED = 3,
	LAPSE_QUEUE_ANY = 4 /* for lapse_queue_list() */
};

struct lapse_queue_draft {
	const char *payload; /* NULL = "{}" */
	const char *key;     /* your own name for what it is about; NULL = none */
	const char
		*dedupe_key; /* while the queue has an item with it, none is added; NULL = none */
	int64_t inbox_id;    /* channel_outbox: the inbox item that it answers; 0 = none */
};

struct lapse_queue_item {
	int64_t id;
	const char *payload, *key; /* key: NULL = none */
	int64_t inbox_id;          /* 0 = none */
	enum lapse_queue_status status;
	int64_t attempt;
	const char *worker, *error; /* "" = none */
	lapse_ms lease_expires_at;  /* while it is processed; else LAPSE_NEVER */
	lapse_ms created_at;
	lapse_ms finished_at; /* LAPSE_NEVER = it has not */
};

typedef void lapse_queue_fn(void *arg, const struct lapse_queue_item *item);

/* *ret_added = false: the queue has an item with the dedupe_key, whose id is *ret_id. */
LAPSE_API int lapse_queue_add(struct lapse_store *store, const char *table,
			      const struct lapse_queue_draft *draft, int64_t *ret_id,
			      bool *ret_added);

/* Leases up to `limit` items to the worker, oldest first. An item that is neither completed nor
 * failed when its lease ends is offered again, up to queue_attempts_max times. fn is called once
 * the leases are on the disk. */
LAPSE_API int lapse_queue_claim(struct lapse_store *store, const char *table, const char *worker,
				int64_t limit, lapse_ms lease_ms, lapse_queue_fn *fn, void *arg,
				int64_t *ret_count);

/* What a worker says of an item it has claimed. LAPSE_ECONFLICT unless the item is still with this
 * worker and attempt. A completed channel_outbox item is gone, unless it is held. A failed one is
 * queued again with `retry` while it has attempts left; *ret_status says what became of it. */
LAPSE_API int lapse_queue_complete(struct lapse_store *store, const char *table, int64_t id,
				   const char *worker, int64_t attempt);
LAPSE_API int lapse_queue_fail(struct lapse_store *store, const char *table, int64_t id,
			       const char *worker, int64_t attempt, const char *error, bool retry,
			       enum lapse_queue_status *ret_status);
LAPSE_API int lapse_queue_extend(struct lapse_store *store, const char *table, int64_t id,
				 const char *worker, int64_t attempt, lapse_ms lease_ms,
				 lapse_ms *ret_expires_at);

LAPSE_API int lapse_queue_get(struct lapse_store *store, const char *table, int64_t id,
			      lapse_queue_fn *fn, void *arg);

/* Newest first: those with an id below `before` (0 = from the newest), at most `limit`. */
LAPSE_API int lapse_queue_list(struct lapse_store *store, const char *table,
			       enum lapse_queue_status status, int64_t before, int64_t limit,
			       lapse_queue_fn *fn, void *arg);

/* Sign-ins under way (oauth_pending): a state is consumed once. */

typedef void lapse_data_fn(void *arg, const char *data);

LAPSE_API int lapse_oauth_put(struct lapse_store *store, const char *state, const char *data,
			      lapse_ms ttl_ms, lapse_ms *ret_expires_at);

/* fn gets the data once the state is gone from the disk. LAPSE_ENOTFOUND; LAPSE_EEXPIRED past its
 * time. */
LAPSE_API int lapse_oauth_consume(struct lapse_store *store, const char *state, lapse_data_fn *fn,
				  void *arg);

/* A log that consumers follow. Rows are kept for outbox_keep_ms; a position is the id of the last
 * row that was read. */

struct lapse_outbox_row {
	int64_t id;
	const char *topic, *payload;
	lapse_ms created_at;
};

struct lapse_outbox_consumer {
	const char *name;
	int64_t position;
	lapse_ms updated_at;
	int64_t lag; /* rows behind the newest, counted up to a limit */
};

typedef void lapse_outbox_fn(void *arg, const struct lapse_outbox_row *row);
typedef void lapse_outbox_consumer_fn(void *arg, const struct lapse_outbox_consumer *consumer);

LAPSE_API int lapse_outbox_add(struct lapse_store *store, const char *topic, const char *payload,
			       int64_t *ret_id);

/* Rows after the position `after` (0 = from the oldest), in order; `topic` NULL = all. *ret_gap =
 * rows between that position and the oldest kept one are gone. */
LAPSE_API int lapse_outbox_read(struct lapse_store *store, int64_t after, const char *topic,
				int64_t limit, lapse_outbox_fn *fn, void *arg, bool *ret_gap);

/* Keeps a position. LAPSE_ECONFLICT when it would go back without `force`. The same position again
 * says that the consumer is alive: one that does not move for outbox_keep_ms is removed. */
LAPSE_API int lapse_outbox_commit(struct lapse_store *store, const char *consumer, int64_t position,
				  bool force);

/* LAPSE_ENOTFOUND for one that never was, or has stopped moving. */
LAPSE_API int lapse_outbox_position(struct lapse_store *store, const char *consumer,
				    int64_t *ret_position);
LAPSE_API int lapse_outbox_consumers(struct lapse_store *store, const char *after, int64_t limit,
				     lapse_outbox_consumer_fn *fn, void *arg);

/* The one row of models_dev_cache, shared by all owners and never pruned. LAPSE_ENOTFOUND before
 * the first put. */
LAPSE_API int lapse_models_cache_put(struct lapse_store *store, const char *data);
LAPSE_API int lapse_models_cache_get(struct lapse_store *store, lapse_data_fn *fn, void *arg);

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
	LAPSE_PATH_FORCED = 8    /* removed when a client asks */
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

	int64_t undeletable_rows; /* past their deadline, but held or referenced */
	lapse_ms last_success;    /* when a sweep of it last ended well; LAPSE_NEVER = not yet */
	int64_t rows_per_second;  /* of the last sweep that removed rows; 0 = not known */
	lapse_ms clears_in_ms;    /* estimate until no row is due; LAPSE_NEVER = not known */
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

/* What happened, in the order it happened. Events are kept for event_keep_ms: a reader that comes
 * later misses them. */
struct lapse_event {
	int64_t seq; /* grows; not without gaps */
	lapse_ms at;
	const char *kind; /* "message.sent" */
	const char *data; /* a JSON object */
};

typedef void lapse_event_fn(void *arg, const struct lapse_event *event);

/* At most `limit` events after `after` (0 = from the oldest): the owner's, and lapse's own. */
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
