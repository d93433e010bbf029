/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands are rows: parsing, --help, usage errors, completions and the manual page read them.
 *
 * The grammar is NOUN [VERB] [OPERAND]... [OPTION]...: a row with one word is a command of its own
 * or, where rows with two words begin with it, the bare noun, which lists. `NOUN ls` is the bare
 * noun too. ALIASES holds other words for a row: plurals, and short forms of the commands one types
 * all day.
 *
 * To add a command: 1. a row in commands.c; 2. its function, below and in the file of cmd/ it fits
 * in;
 * 3. `lapse help --man` gives the new docs/man/lapse.1.
 */
#ifndef LAPSE_CLI_COMMANDS_H
#define LAPSE_CLI_COMMANDS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"

#define ANY_NUMBER INT_MAX

struct command {
	const char *name;     /* "matrix", "agent" (a bare noun), "agent show" */
	const char *operands; /* what the synopsis shows, "" for none; from PROGRAM on, options are
			       * the program's */
	int least, most;      /* operands it takes */
	const uint8_t *needs, *takes; /* OPTIONS_OF(…) that must and that may be given */
	const char *summary;          /* a few words */
	const char *details;          /* whole sentences, or NULL */
	enum outcome (*run)(struct cli *cli);
};

extern const struct command COMMANDS[];
extern const size_t COMMANDS_COUNT;

struct command_alias {
	const char *word;  /* what may be typed */
	const char *means; /* the name of a row */
	bool is_short;     /* a short form, which help shows; otherwise only another spelling */
};

extern const struct command_alias ALIASES[];
extern const size_t ALIASES_COUNT;

/* A row by its whole name; NULL when there is none. */
const struct command *command_find(const char *name);

/* A row by the first word a user typed, aliases included; NULL when there is none. */
const struct command *command_find_word(const char *word);

/* `show` of the noun of `c`; the bare noun itself for `ls`. NULL when there is none. */
const struct command *command_find_verb(const struct command *c, const char *verb);

/* Whether rows with two words begin with this one's name. */
bool command_is_noun(const struct command *c);

/* Whether `c` belongs to the noun: its own row, or one of its verbs. */
bool command_of_noun(const struct command *c, const struct command *noun);

/* Whether the word is a short form; `inbox` then is the whole command, and `show` after it an
 * agent. */
bool command_word_is_short(const char *word);

/* The short form of a row, or NULL. */
const char *command_short(const struct command *c);

enum outcome cmd_send(struct cli *cli);
enum outcome cmd_inbox(struct cli *cli);
enum outcome cmd_message_show(struct cli *cli);
enum outcome cmd_claim(struct cli *cli);
enum outcome cmd_run(struct cli *cli);
enum outcome cmd_lock(struct cli *cli);
enum outcome cmd_read(struct cli *cli);

enum outcome cmd_agents(struct cli *cli);
enum outcome cmd_agents_show(struct cli *cli);
enum outcome cmd_agents_rm(struct cli *cli);
enum outcome cmd_heartbeat(struct cli *cli);
enum outcome cmd_capabilities(struct cli *cli);

enum outcome cmd_contract(struct cli *cli);
enum outcome cmd_contract_init(struct cli *cli);
enum outcome cmd_contract_check(struct cli *cli);
enum outcome cmd_contract_plan(struct cli *cli);
enum outcome cmd_contract_apply(struct cli *cli);
enum outcome cmd_approvals(struct cli *cli);
enum outcome cmd_approve(struct cli *cli);

enum outcome cmd_lease(struct cli *cli);
enum outcome cmd_lease_show(struct cli *cli);
enum outcome cmd_lease_acquire(struct cli *cli);
enum outcome cmd_lease_release(struct cli *cli);
enum outcome cmd_entry(struct cli *cli);
enum outcome cmd_entry_show(struct cli *cli);
enum outcome cmd_entry_put(struct cli *cli);
enum outcome cmd_entry_rm(struct cli *cli);
enum outcome cmd_dedupe(struct cli *cli);
enum outcome cmd_queue(struct cli *cli);
enum outcome cmd_queue_show(struct cli *cli);
enum outcome cmd_queue_add(struct cli *cli);
enum outcome cmd_queue_claim(struct cli *cli);
enum outcome cmd_queue_complete(struct cli *cli);
enum outcome cmd_queue_fail(struct cli *cli);
enum outcome cmd_queue_extend(struct cli *cli);
enum outcome cmd_queue_retry(struct cli *cli);
enum outcome cmd_oauth(struct cli *cli);
enum outcome cmd_oauth_put(struct cli *cli);
enum outcome cmd_oauth_consume(struct cli *cli);
enum outcome cmd_outbox(struct cli *cli);
enum outcome cmd_outbox_add(struct cli *cli);
enum outcome cmd_outbox_consumers(struct cli *cli);
enum outcome cmd_outbox_commit(struct cli *cli);

enum outcome cmd_mailbox_create(struct cli *cli);
enum outcome cmd_mailbox_ls(struct cli *cli);
enum outcome cmd_mailbox_show(struct cli *cli);
enum outcome cmd_mailbox_renew(struct cli *cli);
enum outcome cmd_mailbox_rm(struct cli *cli);
enum outcome cmd_mailbox_messages(struct cli *cli);
enum outcome cmd_mailbox_wait(struct cli *cli);
enum outcome cmd_mailbox_send(struct cli *cli);
enum outcome cmd_webhook_ls(struct cli *cli);
enum outcome cmd_webhook_show(struct cli *cli);
enum outcome cmd_webhook_create(struct cli *cli);
enum outcome cmd_webhook_test(struct cli *cli);
enum outcome cmd_webhook_replay(struct cli *cli);
enum outcome cmd_webhook_pause(struct cli *cli);
enum outcome cmd_webhook_resume(struct cli *cli);
enum outcome cmd_webhook_rm(struct cli *cli);
enum outcome cmd_dead_letters_ls(struct cli *cli);
enum outcome cmd_dead_letters_retry(struct cli *cli);
enum outcome cmd_dead_letters_drop(struct cli *cli);

enum outcome cmd_stage(struct cli *cli);
enum outcome cmd_fetch(struct cli *cli);
enum outcome cmd_attachments(struct cli *cli);
enum outcome cmd_attachments_show(struct cli *cli);
enum outcome cmd_attachments_rm(struct cli *cli);
enum outcome cmd_attachments_metrics(struct cli *cli);
enum outcome cmd_cleanup(struct cli *cli);

enum outcome cmd_mcp(struct cli *cli);
enum outcome cmd_events(struct cli *cli);
enum outcome cmd_top(struct cli *cli);

enum outcome cmd_status(struct cli *cli);
enum outcome cmd_doctor(struct cli *cli);
enum outcome cmd_matrix(struct cli *cli);
enum outcome cmd_why(struct cli *cli);
enum outcome cmd_sweep(struct cli *cli);
enum outcome cmd_clock(struct cli *cli);
enum outcome cmd_replicas(struct cli *cli);
enum outcome cmd_clock_accept(struct cli *cli);
enum outcome cmd_hold_place(struct cli *cli);
enum outcome cmd_hold_ls(struct cli *cli);
enum outcome cmd_hold_rm(struct cli *cli);
enum outcome cmd_quota_ls(struct cli *cli);
enum outcome cmd_quota_show(struct cli *cli);
enum outcome cmd_quota_set(struct cli *cli);
enum outcome cmd_quota_clear(struct cli *cli);
enum outcome cmd_backup(struct cli *cli);

enum outcome cmd_token_create(struct cli *cli);
enum outcome cmd_token_ls(struct cli *cli);
enum outcome cmd_token_adopt(struct cli *cli);
enum outcome cmd_token_revoke(struct cli *cli);

enum outcome cmd_config(struct cli *cli);
enum outcome cmd_restore(struct cli *cli);
enum outcome cmd_restored(struct cli *cli);
enum outcome cmd_migrate(struct cli *cli);
extern const char *const COMPLETION_SHELLS[]; /* ends with NULL */
enum outcome cmd_completion(struct cli *cli);
enum outcome cmd_complete(struct cli *cli);
enum outcome cmd_help(struct cli *cli);
enum outcome cmd_version(struct cli *cli);

#endif
