/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands are rows: parsing, --help, usage errors and the manual page read them.
 *
 * To add a command: 1. a row in commands.c; 2. its function, below and in the cmd_….c it fits in;
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
	const char *name;      /* "send", or "hold place" in a group */
	const char *operands;  /* what the synopsis shows, "" for none */
	int least, most;       /* operands it takes */
	uint64_t needs, takes; /* OPT(…) that must and that may be given */
	const char *summary;   /* a few words */
	const char *details;   /* whole sentences, or NULL */
	enum outcome (*run)(struct cli *cli);
};

extern const struct command COMMANDS[];
extern const size_t COMMANDS_COUNT;

/* NULL when there is none of that name. With `group` the name is "group name". */
const struct command *command_find(const char *group, const char *name);

/* Whether `name` is the first word of commands with two. */
bool command_is_group(const char *name); /* `agents` is a group and a command too */
bool command_in_group(const struct command *c, const char *group);

enum outcome cmd_send(struct cli *cli);
enum outcome cmd_inbox(struct cli *cli);
enum outcome cmd_read(struct cli *cli);

enum outcome cmd_agents(struct cli *cli);
enum outcome cmd_agents_show(struct cli *cli);
enum outcome cmd_agents_rm(struct cli *cli);
enum outcome cmd_heartbeat(struct cli *cli);
enum outcome cmd_capabilities(struct cli *cli);

enum outcome cmd_mailbox_create(struct cli *cli);
enum outcome cmd_mailbox_ls(struct cli *cli);
enum outcome cmd_mailbox_show(struct cli *cli);
enum outcome cmd_mailbox_renew(struct cli *cli);
enum outcome cmd_mailbox_rm(struct cli *cli);
enum outcome cmd_mailbox_messages(struct cli *cli);
enum outcome cmd_mailbox_send(struct cli *cli);
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

enum outcome cmd_events(struct cli *cli);
enum outcome cmd_top(struct cli *cli);

enum outcome cmd_status(struct cli *cli);
enum outcome cmd_matrix(struct cli *cli);
enum outcome cmd_sweep(struct cli *cli);
enum outcome cmd_clock(struct cli *cli);
enum outcome cmd_clock_accept(struct cli *cli);
enum outcome cmd_hold_place(struct cli *cli);
enum outcome cmd_hold_ls(struct cli *cli);
enum outcome cmd_hold_rm(struct cli *cli);
enum outcome cmd_backup(struct cli *cli);

enum outcome cmd_token_create(struct cli *cli);
enum outcome cmd_token_ls(struct cli *cli);
enum outcome cmd_token_revoke(struct cli *cli);

enum outcome cmd_config(struct cli *cli);
enum outcome cmd_restore(struct cli *cli);
enum outcome cmd_help(struct cli *cli);
enum outcome cmd_version(struct cli *cli);

#endif
