/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands (see commands.h for how to add one) and looking one up. */
#include "cli/commands.h"

#include <string.h>

/* clang-format off */
const struct command COMMANDS[] = {
	{ "status", "", 0, 0, 0, 0, "whether the daemon is up, ready, and keeps up with its sweeps",
	  "Ends with 4 when the daemon answers but is not ready; the reasons are printed.",
	  cmd_status },
	{ "matrix", "", 0, 0, 0, 0, "every bounded table: its bound, its safety rule, its rows",
	  "One row a table: how long its rows live, how many there are, how many are past their "
	  "deadline, when it was last swept and what has been removed since the store was made.",
	  cmd_matrix },
	{ "top", "", 0, 0, 0, OPT(INTERVAL) | OPT(ONCE),
	  "watch the fleet, the lag of expiry and the sweeps, live",
	  "Redraws in place until q or Ctrl-C, and goes on when the daemon goes away and comes back. "
	  "Rates and percentiles are those of the time since the last frame. Prints one frame after "
	  "one interval with --once, with --json, and where standard output is no terminal.",
	  cmd_top },
	{ "events", "", 0, 0, 0, OPT(FOLLOW) | OPT(AFTER),
	  "print what happened, one line an event",
	  "Prints the events that are still kept, oldest first, or those after --after. With --follow "
	  "it begins now, or after --after, and waits for more; when the connection breaks it tries "
	  "again and goes on after the last event it has seen. A gap line stands where events are "
	  "missing because they are no longer kept. With --json each line is an object with id, "
	  "event, at, owner and data.",
	  cmd_events },
	{ "agents", "", 0, 0, 0, OPT(CLUSTER) | OPT(CAPABILITY) | OPT(LIMIT),
	  "list the agents that are alive",
	  "A suspect agent has been silent for too long together with most of the fleet: it gets one "
	  "more threshold before it is evicted.",
	  cmd_agents },
	{ "agents show", "AGENT", 1, 1, 0, 0, "show one agent", NULL, cmd_agents_show },
	{ "agents rm", "AGENT", 1, 1, 0, 0, "remove an agent and its capabilities",
	  "An agent that still sends heartbeats comes back with the next one.", cmd_agents_rm },
	{ "heartbeat", "AGENT", 1, 1, OPT(OWN_CLUSTER), OPT(OWN_CAPABILITY),
	  "say that an agent is alive",
	  "For scripts, and for agents that have no client: prints nothing when it is accepted. "
	  "Without --capability the agent keeps the capabilities it has.",
	  cmd_heartbeat },
	{ "capabilities", "[NAME]", 0, 1, 0, OPT(LIMIT),
	  "list what the fleet can do, or the agents that can do one thing", NULL,
	  cmd_capabilities },
	{ "send", "AGENT [CONTENT|-]", 1, 2, OPT(FROM), OPT(TO) | OPT(TYPE) | OPT(METADATA),
	  "send a message to an agent, or to several",
	  "Without CONTENT, or with -, the content is read from standard input, byte for byte. With "
	  "--to all recipients get the message, or none of them. Prints the id of each message. A "
	  "content that begins with a dash comes after --.",
	  cmd_send },
	{ "inbox", "AGENT", 1, 1, 0, OPT(UNREAD) | OPT(WAIT) | OPT(LIMIT),
	  "list an agent's messages, newest first",
	  "Looking does not mark a message read: that is what read is for.", cmd_inbox },
	{ "read", "AGENT [ID]...", 1, ANY_NUMBER, 0, OPT(BEFORE) | OPT(ALL),
	  "mark messages read, which lets them expire",
	  "Takes ids, or --before, or --all. Marking a message twice is harmless.", cmd_read },
	{ "mailbox create", "", 0, 0, 0,
	  OPT(USERNAME) | OPT(DOMAIN) | OPT(MAILBOX_TTL) | OPT(KEY),
	  "make a mailbox that goes away by itself",
	  "Prints its id, its address and when it expires. With --idempotency-key a script that is "
	  "run again gets the mailbox it made before.",
	  cmd_mailbox_create },
	{ "mailbox ls", "", 0, 0, 0, OPT(INCLUDE_EXPIRED) | OPT(LIMIT), "list the mailboxes",
	  "The last column tells whether the account at the mail server is gone too: clean, pending "
	  "while it is tried, dead_letter when somebody has to look (dead-letters).",
	  cmd_mailbox_ls },
	{ "mailbox show", "ID", 1, 1, 0, 0, "show one mailbox, also one that has expired", NULL,
	  cmd_mailbox_show },
	{ "mailbox renew", "ID", 1, 1, 0, OPT(MAILBOX_TTL), "give a mailbox a new lifetime",
	  "The lifetime counts from now, so it can become shorter too. One that has expired cannot be "
	  "renewed.",
	  cmd_mailbox_renew },
	{ "mailbox rm", "ID", 1, 1, 0, 0, "remove a mailbox and its mail", NULL, cmd_mailbox_rm },
	{ "mailbox messages", "ID [MESSAGE]", 1, 2, 0, OPT(FOLDER) | OPT(LIMIT),
	  "list a mailbox's mail, newest first, or show one", NULL, cmd_mailbox_messages },
	{ "mailbox send", "ID", 1, 1, OPT(MAIL_TO) | OPT(SUBJECT),
	  OPT(CC) | OPT(BCC) | OPT(BODY) | OPT(BODY_FILE) | OPT(HTML_FILE) | OPT(KEY),
	  "send a mail from a mailbox",
	  "Without --body, --body-file and --html-file the text is read from standard input. Prints "
	  "the id of the mail.",
	  cmd_mailbox_send },
	{ "dead-letters ls", "", 0, 0, 0, OPT(LIMIT), "list the deletions outside that gave up",
	  "A file or an account at the mail server that could not be deleted, and what the last try "
	  "met with.",
	  cmd_dead_letters_ls },
	{ "dead-letters retry", "ID", 1, 1, 0, 0, "try such a deletion again", NULL,
	  cmd_dead_letters_retry },
	{ "dead-letters drop", "ID", 1, 1, 0, OPT(YES), "forget such a deletion",
	  "What it was to delete stays. On a terminal it asks first.", cmd_dead_letters_drop },
	{ "stage", "FILE...", 1, ANY_NUMBER, 0, OPT(STAGE_TTL) | OPT(PERSIST) | OPT(NAME),
	  "give files to the daemon, for a while",
	  "Prints a line for each: its checksum (SHA-256), size, when it expires and its name; "
	  "(cached) when the daemon had these bytes already, whose lifetime then only grows. - is "
	  "standard input. When one fails the others are staged all the same, and the exit code is "
	  "that of the first failure; only a daemon that is away or wants another token ends it at "
	  "once.",
	  cmd_stage },
	{ "fetch", "CHECKSUM", 1, 1, 0, OPT(OUTPUT) | OPT(FORCE),
	  "get a staged file back",
	  "CHECKSUM is what stage printed, or its first digits, at least 8. On a terminal the file "
	  "gets the attachment's name, without directories and strange characters; otherwise it goes "
	  "to standard output. The bytes come into FILE.part, which becomes FILE when all are there "
	  "and their checksum is right; when the connection breaks, or after Ctrl-C, the same command "
	  "goes on after the last byte.",
	  cmd_fetch },
	{ "attachments", "", 0, 0, 0, OPT(LIMIT), "list the staged files",
	  "On a terminal the first 16 digits of the checksums are shown.", cmd_attachments },
	{ "attachments ls", "", 0, 0, 0, OPT(LIMIT), "list the staged files, like attachments", NULL, cmd_attachments },
	{ "attachments show", "CHECKSUM", 1, 1, 0, 0, "show one staged file",
	  "CHECKSUM may be its first digits, at least 8.", cmd_attachments_show },
	{ "attachments rm", "CHECKSUM", 1, 1, 0, 0, "remove a staged file, also a persistent one",
	  "CHECKSUM may be its first digits, at least 8.", cmd_attachments_rm },
	{ "attachments metrics", "", 0, 0, 0, 0, "count the staged files and their bytes", NULL,
	  cmd_attachments_metrics },
	{ "cleanup", "", 0, 0, 0, 0, "remove all staged files that have expired, now",
	  "They are not served any more anyway; this frees their room. Persistent ones stay.",
	  cmd_cleanup },
	{ "sweep", "SCHEDULER", 1, 1, 0, OPT(DRY_RUN),
	  "run one sweep now, or tell what it would remove",
	  "The schedulers are in the second column of matrix: messages, housekeeping and others. That "
	  "of mailboxes also tells how many expired, how many accounts were tried again, are gone, "
	  "could not be deleted, and became dead letters.",
	  cmd_sweep },
	{ "clock", "", 0, 0, 0, 0, "show trusted time, the wall clock, and whether it has leapt",
	  "While the wall clock is far ahead of trusted time nothing expires because of it.",
	  cmd_clock },
	{ "clock accept", "", 0, 0, 0, OPT(YES), "take the wall clock as it is after a leap",
	  "What is due by the new time is removed then. On a terminal it asks first.",
	  cmd_clock_accept },
	{ "hold place", "TABLE KEY", 2, 2, OPT(REASON), OPT(UNTIL), "keep a row from being removed",
	  "Placing a hold again replaces its reason and its end.", cmd_hold_place },
	{ "hold ls", "", 0, 0, 0, OPT(LIMIT), "list the holds", NULL, cmd_hold_ls },
	{ "hold rm", "TABLE KEY", 2, 2, 0, 0, "release a hold",
	  "The row is removed by the next sweep if its time has come.", cmd_hold_rm },
	{ "token create", "", 0, 0, OPT(TOKEN_OWNER), OPT(ADMIN) | OPT(TTL), "make a token",
	  "Prints the token alone on standard output, this once: the daemon keeps only its hash. As "
	  "soon as one token exists, every request needs one, so make the first with --admin: without "
	  "an admin token nobody can make or revoke others.",
	  cmd_token_create },
	{ "token ls", "", 0, 0, 0, OPT(LIMIT), "list the tokens by their prefixes", NULL,
	  cmd_token_ls },
	{ "token revoke", "PREFIX", 1, 1, 0, 0, "make a token worthless at once", NULL,
	  cmd_token_revoke },
	{ "config", "", 0, 0, 0, OPT(CONFIG), "print every setting of the daemon",
	  "Shows what lapsed would use if it were started here without flags: the file, then the "
	  "environment over it. Asks no daemon.",
	  cmd_config },
	{ "backup", "", 0, 0, 0, 0, "copy the database into the data directory's backups/",
	  "The copy is consistent and is taken while the daemon works. Prints the name of the file.",
	  cmd_backup },
	{ "restore", "FILE", 1, 1, OPT(DATA_DIR), OPT(YES), "put a backup in place, offline",
	  "For a stopped daemon. The file is checked first, the old database is kept beside the new "
	  "one, and after the start nothing is removed for one grace period. On a terminal it asks "
	  "before it does anything.",
	  cmd_restore },
	{ "help", "[COMMAND]", 0, 2, 0, OPT(MAN), "print help, also for one command", NULL,
	  cmd_help },
	{ "version", "", 0, 0, 0, 0, "print the version", NULL, cmd_version },
};
/* clang-format on */
const size_t COMMANDS_COUNT = ARRAY_LEN(COMMANDS);

bool command_in_group(const struct command *c, const char *group)
{
	size_t n = strlen(group);

	return strncmp(c->name, group, n) == 0 && c->name[n] == ' ';
}

bool command_is_group(const char *name)
{
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (command_in_group(&COMMANDS[i], name))
			return true;
	return false;
}

const struct command *command_find(const char *group, const char *name)
{
	for (size_t i = 0; i < COMMANDS_COUNT; i++) {
		const char *own = COMMANDS[i].name;
		if (group && !command_in_group(&COMMANDS[i], group))
			continue;
		if (strcmp(group ? own + strlen(group) + 1 : own, name) == 0)
			return &COMMANDS[i];
	}
	return NULL;
}
