/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands (see commands.h for how to add one) and looking one up. */
#include "cli/line/commands.h"

#include <assert.h>
#include <string.h>

/* clang-format off */
const struct command COMMANDS[] = {
	{ "status", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "tell whether the daemon is up and ready, and what needs attention",
	  "Shows version, uptime, clock, breakers, dead letters, disk and every table. What is wrong is said "
	  "in one line each, with the command that helps. Ends with 4 when the daemon answers but is not "
	  "ready.",
	  cmd_status },
	{ "doctor", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_DATA_DIR),
	  "check this machine: directory, permissions, lock, port, clock, disk, database, certificates",
	  "Runs where the daemon runs, or will run, and changes nothing. Uses the settings of the daemon if "
	  "it answers and the token allows it, otherwise those of a daemon started here. Ends with 1 when "
	  "a check finds a problem.",
	  cmd_doctor },
	{ "matrix", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "list every bounded table: its bound, its safety rule, its rows",
	  "One row per table: how long its rows live, how many there are, how many are past their "
	  "deadline and when they will be gone, how many stay past it (KEPT) and why, when it was last swept "
	  "and last swept well, at which pace, and what has been removed since the daemon started. A terminal "
	  "shows the columns that fit; --wide shows all of them.",
	  cmd_matrix },
	{ "why", "THING", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "tell what happened to a thing, and when and why it will go",
	  "THING is an id, an agent, an address, a checksum or a key. Prints each row that has this name, what "
	  "keeps it and when it goes, and then its life: every event that is still kept and mentions it, "
	  "oldest first. Ends with 5 when neither a row nor an event knows the name.",
	  cmd_why },
	{ "top", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_INTERVAL, OPT_ONCE),
	  "watch the fleet, the lag of expiry and the sweeps, live",
	  "Redraws in place until q or Ctrl-C, and goes on when the daemon goes away and comes back. "
	  "Rates and percentiles cover the time since the last frame. Prints one frame after one "
	  "interval with --once, with --json, and when standard output is not a terminal.",
	  cmd_top },
	{ "events", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_FOLLOW, OPT_EVENT_TYPE, OPT_SINCE, OPT_AFTER, OPT_LIMIT),
	  "print what happened, one event per line",
	  "Prints the events that are still kept, oldest first, or those from --since or after --after. With "
	  "--follow it begins now, or at the place these name, and waits for more; when the connection "
	  "breaks it tries again and goes on after the last event it has seen. --type takes a whole name, "
	  "the word before the dot, or a pattern with *. A gap line marks the place where events are missing "
	  "because they are no longer kept. The id in each line is what --after takes. With --json each line "
	  "is an object with id, event, at, owner and data.",
	  cmd_events },

	{ "agent", "", 0, 0, OPTIONS_NONE,
	  OPTIONS_OF(OPT_CLUSTER, OPT_CAPABILITY, OPT_INCLUDE_SUSPECT, OPT_LIMIT),
	  "list the agents that are alive",
	  "A suspect has fallen silent together with most of its fleet. It is not alive, but its "
	  "record is kept for one more threshold: a heartbeat brings it back with its capabilities.",
	  cmd_agents },
	{ "agent show", "AGENT", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "show one agent", NULL,
	  cmd_agents_show },
	{ "agent heartbeat", "AGENT", 1, 1, OPTIONS_OF(OPT_OWN_CLUSTER), OPTIONS_OF(OPT_OWN_CAPABILITY),
	  "say that an agent is alive",
	  "For scripts, and for agents that have no client. Prints nothing when the daemon accepts it. "
	  "Without --capability the agent keeps the capabilities it has.",
	  cmd_heartbeat },
	{ "agent rm", "AGENT", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "remove an agent and its capabilities",
	  "An agent that still sends heartbeats comes back with the next one.", cmd_agents_rm },

	{ "capability", "[NAME]", 0, 1, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT),
	  "list what the fleet can do, or the agents that can do one thing", NULL, cmd_capabilities },

	{ "message", "[AGENT]", 0, 1, OPTIONS_NONE, OPTIONS_OF(OPT_UNREAD, OPT_WAIT, OPT_LIMIT),
	  "list an agent's messages, newest first, or all inboxes",
	  "Without AGENT lists the agents that have messages. Listing a message does not mark it read; "
	  "message read does. With --wait it ends with 7 when no message came in time.",
	  cmd_inbox },
	{ "message show", "AGENT ID", 2, 2, OPTIONS_NONE, OPTIONS_NONE,
	  "show one message with its whole content",
	  "The first digits of ID are enough, at least 4. Control characters in the content are escaped; "
	  "its lines stay lines.",
	  cmd_message_show },
	{ "message send", "AGENT [CONTENT|-]", 1, 2, OPTIONS_OF(OPT_FROM),
	  OPTIONS_OF(OPT_TO, OPT_TYPE, OPT_METADATA),
	  "send a message to one agent or to several",
	  "Without CONTENT, or with -, the content is read from standard input, byte for byte. With "
	  "--to all recipients get the message, or none of them. Prints the id of each message. "
	  "Content that begins with a dash comes after --.",
	  cmd_send },
	{ "message claim", "AGENT", 1, 1, OPTIONS_NONE,
	  OPTIONS_OF(OPT_VISIBILITY, OPT_WAIT, OPT_LIMIT),
	  "lease an agent's unread messages, oldest first",
	  "No other claim gets the messages until the lease ends; one that is not marked read by then is "
	  "offered again. Takes 10 messages unless --limit says otherwise. Ends with 7 when there is "
	  "nothing to claim, with --wait when nothing came in time. See also run --claim.",
	  cmd_claim },
	{ "message read", "AGENT [ID]...", 1, ANY_NUMBER, OPTIONS_NONE,
	  OPTIONS_OF(OPT_BEFORE, OPT_ALL, OPT_CLAIM_ID),
	  "mark messages read, which lets them expire",
	  "Takes ids, or --before, or --all. The first digits of an ID are enough, at least 4. Marking a "
	  "message twice is harmless. With --claim a message that has passed to another claim is left "
	  "alone, and the command says so.",
	  cmd_read },

	{ "run", "PROGRAM [ARG]...", 1, ANY_NUMBER, OPTIONS_NONE,
	  OPTIONS_OF(OPT_HEARTBEAT, OPT_OWN_CLUSTER, OPT_OWN_CAPABILITY, OPT_CLAIM, OPT_VISIBILITY,
		     OPT_WAIT, OPT_RUN_ONCE),
	  "run a program as an agent, or for each message of one",
	  "With --heartbeat AGENT the agent is alive exactly as long as the program runs: the command sends "
	  "heartbeats in the background and removes the agent at the end. --cluster is needed then. With "
	  "--claim AGENT it claims one message at a time and runs the program with the content as its "
	  "standard input and LAPSE_MESSAGE_ID, LAPSE_MESSAGE_FROM, LAPSE_MESSAGE_TYPE, "
	  "LAPSE_MESSAGE_TIMESTAMP, LAPSE_MESSAGE_METADATA, LAPSE_CLAIM_ID and LAPSE_AGENT in its "
	  "environment. The claim is extended while the program runs. When the program ends with 0 the "
	  "message is marked read; otherwise it is offered again when the claim ends. This goes on until "
	  "Ctrl-C, until nothing comes within --wait (exit code 7), or for one message with --once. The exit "
	  "code is that of the program: 128 and the signal when one ended it, 127 when it does not exist. "
	  "Options of the program come after its name.",
	  cmd_run },
	{ "lock", "TABLE KEY PROGRAM [ARG]...", 3, ANY_NUMBER, OPTIONS_NONE,
	  OPTIONS_OF(OPT_LEASE_TTL, OPT_HOLDER, OPT_WAIT),
	  "run a program while holding a lease",
	  "Takes the lease KEY of TABLE (workspace_leases, for example), renews it while the program runs, and "
	  "releases it at the end. The program finds LAPSE_FENCING_TOKEN, LAPSE_LEASE_TABLE, LAPSE_LEASE_KEY and "
	  "LAPSE_LEASE_HOLDER in its environment. When the lease is lost, or cannot be renewed before it ends, the "
	  "program is stopped with SIGTERM. While another holder has the lease the command ends with 1, or waits "
	  "for it with --wait and then ends with 7. Otherwise the exit code is that of the program.",
	  cmd_lock },

	{ "lease", "TABLE", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT), "list the leases of a table",
	  "TABLE is conversation_leases, workspace_leases, oauth_refresh_leases or models_dev_refresh_leases. "
	  "A lease whose time is over is not listed: any holder can take it. See also lock, which holds a lease "
	  "while a program runs.",
	  cmd_lease },
	{ "lease show", "TABLE KEY", 2, 2, OPTIONS_NONE, OPTIONS_NONE, "show one lease", NULL,
	  cmd_lease_show },
	{ "lease acquire", "TABLE KEY", 2, 2, OPTIONS_OF(OPT_LEASE_HOLDER), OPTIONS_OF(OPT_LEASE_TTL),
	  "take a lease, or renew it",
	  "Prints the fencing token, which grows each time the lease passes to a holder and stays the same when "
	  "it is renewed. While another holder has the lease the command ends with 1.",
	  cmd_lease_acquire },
	{ "lease release", "TABLE KEY", 2, 2, OPTIONS_OF(OPT_LEASE_HOLDER), OPTIONS_OF(OPT_FENCING_TOKEN),
	  "give a lease back before it ends", NULL, cmd_lease_release },

	{ "entry", "TABLE", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT),
	  "list the entries of a table that are refreshed",
	  "TABLE is presence_entries or connections. An entry lives as long as it is put again in time.",
	  cmd_entry },
	{ "entry show", "TABLE KEY", 2, 2, OPTIONS_NONE, OPTIONS_NONE, "show one entry", NULL,
	  cmd_entry_show },
	{ "entry put", "TABLE KEY [DATA|-]", 2, 3, OPTIONS_OF(OPT_ENTRY_TTL), OPTIONS_NONE,
	  "make an entry, or refresh it",
	  "DATA is a JSON object; with - it is read from standard input. Without DATA the entry keeps what it "
	  "has. Prints when the entry expires.",
	  cmd_entry_put },
	{ "entry rm", "TABLE KEY", 2, 2, OPTIONS_NONE, OPTIONS_NONE, "remove an entry", NULL, cmd_entry_rm },

	{ "dedupe", "CHANNEL ACCOUNT CONTAINER MESSAGE", 4, 4, OPTIONS_NONE, OPTIONS_OF(OPT_WINDOW),
	  "claim an incoming message, once",
	  "Of all callers that name the same message inside the window, exactly one ends with 0. The others end "
	  "with 1.",
	  cmd_dedupe },

	{ "queue", "TABLE", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_STATUS, OPT_LIMIT),
	  "list the items of a work queue, newest first",
	  "TABLE is channel_inbox or channel_outbox.", cmd_queue },
	{ "queue show", "TABLE ID", 2, 2, OPTIONS_NONE, OPTIONS_NONE,
	  "show one item with its payload", "The first digits of ID are enough, at least 4.",
	  cmd_queue_show },
	{ "queue add", "TABLE [PAYLOAD|-]", 1, 2, OPTIONS_NONE,
	  OPTIONS_OF(OPT_ITEM_KEY, OPT_INBOX_ID, OPT_DEDUPE_KEY, OPT_KEY), "add an item",
	  "PAYLOAD is a JSON object. Without PAYLOAD, or with -, it is read from standard input. Prints the id "
	  "of the item. With --dedupe-key the command prints the id of the item that the queue has already.",
	  cmd_queue_add },
	{ "queue claim", "TABLE", 1, 1, OPTIONS_OF(OPT_WORKER),
	  OPTIONS_OF(OPT_ITEM_LEASE, OPT_WAIT, OPT_LIMIT),
	  "lease items to a worker, oldest first",
	  "Takes one item unless --limit says otherwise. An item that is neither completed nor failed when its "
	  "lease ends is offered again. Ends with 7 when there is nothing to claim, with --wait when nothing "
	  "came in time.",
	  cmd_queue_claim },
	{ "queue complete", "TABLE ID", 2, 2, OPTIONS_OF(OPT_WORKER, OPT_ATTEMPT), OPTIONS_NONE,
	  "say that an item is done",
	  "A channel_outbox item is removed then, unless it is held. Ends with 1 when the item has passed to another worker or "
	  "attempt.",
	  cmd_queue_complete },
	{ "queue fail", "TABLE ID", 2, 2, OPTIONS_OF(OPT_WORKER, OPT_ATTEMPT, OPT_ERROR),
	  OPTIONS_OF(OPT_RETRY), "say that an item could not be done", NULL, cmd_queue_fail },
	{ "queue extend", "TABLE ID", 2, 2, OPTIONS_OF(OPT_WORKER, OPT_ATTEMPT), OPTIONS_OF(OPT_ITEM_LEASE),
	  "keep an item longer", NULL, cmd_queue_extend },
	{ "queue retry", "TABLE ID", 2, 2, OPTIONS_NONE, OPTIONS_NONE,
	  "give a failed item one more attempt",
	  "The item goes back to its old place in the queue. Its attempts go on counting.",
	  cmd_queue_retry },

	{ "oauth", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE, "keep what a sign-in under way needs",
	  "The states of sign-ins are secrets, so they cannot be listed. The matrix counts them as oauth_pending.",
	  cmd_oauth },
	{ "oauth put", "STATE [DATA|-]", 1, 2, OPTIONS_OF(OPT_STATE_TTL), OPTIONS_NONE,
	  "keep the data of a sign-in until its callback comes",
	  "DATA is a JSON object. Without DATA, or with -, it is read from standard input, where other users of "
	  "the machine do not see it.",
	  cmd_oauth_put },
	{ "oauth consume", "STATE", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "take the data of a sign-in, once",
	  "Prints the data as JSON. Exactly one caller gets it; the others end with 5. After its time the "
	  "command ends with 1.",
	  cmd_oauth_consume },

	{ "outbox", "", 0, 0, OPTIONS_NONE,
	  OPTIONS_OF(OPT_CONSUMER, OPT_AFTER_CURSOR, OPT_TOPIC, OPT_WAIT, OPT_LIMIT),
	  "print the rows of the log, in the order of their commits",
	  "Begins with the oldest row that is kept, after --after, or where --consumer stands. Reading moves no "
	  "consumer; outbox commit does. Says so on standard error when rows between that place and the first "
	  "row were removed. With --wait it ends with 7 when no row came in time.",
	  cmd_outbox },
	{ "outbox add", "TOPIC [PAYLOAD|-]", 1, 2, OPTIONS_NONE, OPTIONS_OF(OPT_KEY), "append a row",
	  "PAYLOAD is a JSON object. Without PAYLOAD, or with -, it is read from standard input. Prints the id "
	  "of the row.",
	  cmd_outbox_add },
	{ "outbox consumers", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT),
	  "list the consumers and how far behind they are", NULL, cmd_outbox_consumers },
	{ "outbox commit", "CONSUMER CURSOR", 2, 2, OPTIONS_NONE, OPTIONS_OF(OPT_BACKWARDS),
	  "say how far a consumer has read",
	  "Makes the consumer if there is none. The same cursor again keeps the consumer from going stale.",
	  cmd_outbox_commit },

	{ "mailbox", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_INCLUDE_EXPIRED, OPT_LIMIT),
	  "list the mailboxes",
	  "The last column tells whether the account at the mail server is gone too: clean; pending "
	  "while lapse tries to delete it; dead_letter when a person has to look (lapse dead-letter).",
	  cmd_mailbox_ls },
	{ "mailbox show", "ID", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "show one mailbox, expired ones included", NULL, cmd_mailbox_show },
	{ "mailbox create", "", 0, 0, OPTIONS_NONE,
	  OPTIONS_OF(OPT_USERNAME, OPT_DOMAIN, OPT_MAILBOX_TTL, OPT_KEY),
	  "make a mailbox that goes away by itself",
	  "Prints its id, its address and when it expires. With --idempotency-key a script that runs "
	  "again gets the mailbox it made before.",
	  cmd_mailbox_create },
	{ "mailbox renew", "ID", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_MAILBOX_TTL),
	  "give a mailbox a new lifetime",
	  "The lifetime counts from now, so it can become shorter too. An expired mailbox cannot be "
	  "renewed.",
	  cmd_mailbox_renew },
	{ "mailbox messages", "ID [MESSAGE]", 1, 2, OPTIONS_NONE, OPTIONS_OF(OPT_FOLDER, OPT_LIMIT),
	  "list a mailbox's mail, newest first, or show one mail", NULL, cmd_mailbox_messages },
	{ "mailbox wait", "ID", 1, 1, OPTIONS_NONE,
	  OPTIONS_OF(OPT_MAIL_FROM, OPT_MAIL_SUBJECT, OPT_CODE, OPT_LINK, OPT_WAIT),
	  "wait for the next unread mail and print it, or the code in it",
	  "Takes the oldest unread mail that fits, waits for one up to --wait (1m) when there is none, and marks "
	  "it read, so that the next call gets the next mail. Letters match in either case. Ends with 7 when "
	  "nothing came.",
	  cmd_mailbox_wait },
	{ "mailbox send", "ID", 1, 1, OPTIONS_OF(OPT_MAIL_TO, OPT_SUBJECT),
	  OPTIONS_OF(OPT_CC, OPT_BCC, OPT_BODY, OPT_BODY_FILE, OPT_HTML_FILE, OPT_KEY),
	  "send a mail from a mailbox",
	  "Without --body, --body-file and --html-file the text is read from standard input. Prints "
	  "the id of the mail.",
	  cmd_mailbox_send },
	{ "mailbox rm", "ID", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "remove a mailbox and its mail", NULL,
	  cmd_mailbox_rm },

	{ "attachment", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT), "list the staged files",
	  "On a terminal only the first 16 digits of the checksums are shown.", cmd_attachments },
	{ "attachment show", "CHECKSUM", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "show one staged file", "The first digits of CHECKSUM are enough, at least 8.",
	  cmd_attachments_show },
	{ "attachment stage", "FILE...", 1, ANY_NUMBER, OPTIONS_NONE,
	  OPTIONS_OF(OPT_STAGE_TTL, OPT_PERSIST, OPT_NAME),
	  "give files to the daemon for a while",
	  "Prints one line for each file: its checksum (SHA-256), size, when it expires and its name; "
	  "(cached) when the daemon already had these bytes, whose lifetime then only grows. - is "
	  "standard input. When one file fails the others are staged all the same, and the exit code is "
	  "that of the first failure. Only a daemon that is away or refuses the token ends the command "
	  "at once.",
	  cmd_stage },
	{ "attachment fetch", "CHECKSUM", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_OUTPUT, OPT_FORCE),
	  "get a staged file back",
	  "CHECKSUM is what stage printed; its first digits are enough, at least 8. On a terminal the "
	  "file gets the attachment's name, without directories and unprintable characters; otherwise "
	  "it goes to standard output. The bytes come into FILE.part, which becomes FILE when all are "
	  "there and their checksum is right. When the connection breaks, or after Ctrl-C, the same "
	  "command goes on after the last byte.",
	  cmd_fetch },
	{ "attachment rm", "CHECKSUM", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "remove a staged file, even a persistent one",
	  "The first digits of CHECKSUM are enough, at least 8.", cmd_attachments_rm },
	{ "attachment metrics", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "count the staged files and their bytes", NULL, cmd_attachments_metrics },
	{ "attachment cleanup", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "remove all staged files that have expired, now",
	  "Expired files are no longer served; this frees their space. Persistent files stay.",
	  cmd_cleanup },

	{ "webhook", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT), "list the webhooks",
	  "A webhook posts your events to a URL, signed: see docs/webhooks.md.", cmd_webhook_ls },
	{ "webhook show", "ID", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "show one webhook and how its deliveries stand", NULL, cmd_webhook_show },
	{ "webhook create", "URL", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_EVENT_TYPE),
	  "post events to a URL from now on",
	  "Prints the id and the secret that signatures are made with, this once. --type takes names of "
	  "events, beginnings (mailbox.*), or * for all, which is the default.",
	  cmd_webhook_create },
	{ "webhook test", "ID", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "post a test event now",
	  "Ends with 1 when the receiver did not answer with success.", cmd_webhook_test },
	{ "webhook replay", "ID", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_AFTER),
	  "post events again, all that are kept or those after one",
	  "They come with the ids they had, so a receiver can tell.", cmd_webhook_replay },
	{ "webhook pause", "ID", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "post nothing for now",
	  "A paused webhook is removed after webhook_keep_ms (7 days).", cmd_webhook_pause },
	{ "webhook resume", "ID", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "post again, from where it stopped", NULL, cmd_webhook_resume },
	{ "webhook rm", "ID", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "remove a webhook and its dead letters", NULL,
	  cmd_webhook_rm },

	{ "dead-letter", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT),
	  "list the deletions outside the store that gave up",
	  "Each is a file, or an account at the mail server, that could not be deleted, with the error "
	  "of the last attempt.",
	  cmd_dead_letters_ls },
	{ "dead-letter retry", "[ID]", 0, 1, OPTIONS_NONE,
	  OPTIONS_OF(OPT_ALL_LETTERS, OPT_KIND, OPT_OLDER_THAN), "retry one deletion that was given up, or many",
	  "After an outage of the mail server --all tries every deletion that gave up again.",
	  cmd_dead_letters_retry },
	{ "dead-letter drop", "ID", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_YES), "forget a deletion that was given up",
	  "The file or account stays where it is. On a terminal the command asks first.",
	  cmd_dead_letters_drop },

	{ "hold", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT), "list the holds", NULL, cmd_hold_ls },
	{ "hold place", "TABLE KEY", 2, 2, OPTIONS_OF(OPT_REASON), OPTIONS_OF(OPT_UNTIL),
	  "keep a row from being removed",
	  "Placing a hold again replaces its reason and its end.", cmd_hold_place },
	{ "hold rm", "TABLE KEY", 2, 2, OPTIONS_NONE, OPTIONS_NONE, "release a hold",
	  "The next sweep removes the row if its time has come.", cmd_hold_rm },

	{ "quota", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT),
	  "list the owners that have limits of their own",
	  "Every other owner has the limits of the settings. A limit that is shown as - is that of the "
	  "settings, too.",
	  cmd_quota_ls },
	{ "quota show", "OWNER", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "show the limits of one owner", NULL,
	  cmd_quota_show },
	{ "quota set", "OWNER LIMIT...", 2, ANY_NUMBER, OPTIONS_NONE, OPTIONS_NONE,
	  "give an owner limits of its own",
	  "LIMIT is agents=N, mailboxes=N, inboxes=N, streams=N, stored_bytes=SIZE or attachment_bytes=SIZE. "
	  "Limits that are not named stay as they are; agents=default goes back to the setting.",
	  cmd_quota_set },
	{ "quota clear", "OWNER", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "remove the limits of one owner",
	  "The limits of the settings hold for it again.", cmd_quota_clear },

	{ "contract", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "list the bounds of the contracts that the daemon keeps",
	  "A contract gives the tables of your own database lifetimes: see docs/contracts.md.",
	  cmd_contract },
	{ "contract init", "DATABASE", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "write a first contract for a database of yours",
	  "DATABASE is sqlite:PATH or postgresql://…. Looks at the tables, and prints a contract with "
	  "guesses that say why. Removes nothing.",
	  cmd_contract_init },
	{ "contract check", "FILE", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "check a contract against its database",
	  "Connects to the database of the contract and verifies tables, columns, keys and indexes. "
	  "Ends with 1 when something was found, with 2 when the file or the database cannot be read.",
	  cmd_contract_check },
	{ "contract plan", "FILE", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "show what a contract would remove now",
	  "Only reads, for ten seconds per bound at most; EXACT is no where there was more. ASKS is yes "
	  "where a sweep would wait for approval.",
	  cmd_contract_plan },
	{ "contract apply", "FILE", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_DATA_DIR, OPT_APPROVE, OPT_LEASE_TABLE, OPT_YES),
	  "keep a contract once, now",
	  "With --data-dir the command opens that directory itself, so that holds, events and the history "
	  "apply; a daemon that has it is asked to do the work if it keeps the contract, as without "
	  "--data-dir. Ctrl-C ends it after the running slice. Ends with 1 when a bound could not be "
	  "swept or waits for approval; --approve, with --data-dir, approves it.",
	  cmd_contract_apply },
	{ "approval", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "list the sweeps of contracts that wait for approval",
	  "A sweep waits when it would remove more of a table than its contract allows without asking "
	  "(ask_above).",
	  cmd_approvals },
	{ "approval give", "BOUND", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "approve a sweep that waits for it",
	  "Covers the rows that are due now.", cmd_approve },

	{ "token", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_LIMIT), "list the tokens by their prefixes",
	  NULL, cmd_token_ls },
	{ "token create", "", 0, 0, OPTIONS_OF(OPT_TOKEN_OWNER),
	  OPTIONS_OF(OPT_TOKEN_NAME, OPT_SCOPE, OPT_ADMIN, OPT_TTL, OPT_ADOPT_LOCAL),
	  "make a token",
	  "Prints the token alone on standard output, this once: the daemon keeps only its hash. As "
	  "soon as one token exists, every request needs one, so make the first with --admin: only an "
	  "admin token can make or revoke others. What was made without a token belongs to the owner local, "
	  "and a token of another owner does not see it; --adopt-local moves it, as token adopt does. Rooms for scopes: messages, agents, mailboxes, "
	  "attachments, tables, events, contracts, engine. Writing does not include reading.",
	  cmd_token_create },
	{ "token adopt", "OWNER", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_ADOPT_FROM),
	  "move what was made without a token to an owner",
	  "Moves everything of the owner local, or of --from, to OWNER. Nothing moves when both have something "
	  "with the same key. After an interruption the same command moves what is left. Needs an admin token. "
	  "Events keep the owner they happened to.",
	  cmd_token_adopt },
	{ "token revoke", "PREFIX", 1, 1, OPTIONS_NONE, OPTIONS_NONE, "make a token worthless at once",
	  NULL, cmd_token_revoke },

	{ "sweep", "SCHEDULER", 1, 1, OPTIONS_NONE, OPTIONS_OF(OPT_DRY_RUN),
	  "run one sweep now, or tell what it would remove",
	  "The column SCHEDULER of matrix names them: messages, housekeeping and others. The "
	  "sweep of mailboxes also tells how many expired, and how many accounts were tried again, "
	  "were deleted, could not be deleted, and became dead letters.",
	  cmd_sweep },
	{ "replica", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "list the replicas of a cluster, and which of them sweeps what",
	  "LAG is how long ago the heartbeats that a replica took were last known to all. Needs an admin token.",
	  cmd_replicas },
	{ "clock", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "show trusted time, the wall clock, and whether it has leapt",
	  "While the wall clock is far ahead of trusted time, nothing expires because of it.", cmd_clock },
	{ "clock accept", "", 0, 0, OPTIONS_NONE, OPTIONS_OF(OPT_YES),
	  "accept the wall clock after a leap",
	  "What is due by the new time is removed then. On a terminal the command asks first.",
	  cmd_clock_accept },
	{ "config", "[NAME]...", 0, ANY_NUMBER, OPTIONS_NONE,
	  OPTIONS_OF(OPT_OFFLINE, OPT_CONFIG),
	  "show the settings in force, and where each came from",
	  "Asks the daemon, which needs an admin token once tokens exist. FROM is default, file, "
	  "environment or flag. Secrets are shown only as set. One NAME shows everything about a setting. "
	  "With --offline or --config no daemon is asked: the command reads the file, then the "
	  "environment over it, as lapsed would here.",
	  cmd_config },
	{ "backup", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "copy the database into the data directory's backups/",
	  "The copy is consistent and is taken while the daemon works. Prints the name of the file.",
	  cmd_backup },
	{ "restore", "FILE", 1, 1, OPTIONS_OF(OPT_DATA_DIR), OPTIONS_OF(OPT_YES),
	  "put a backup in place, offline",
	  "For a stopped daemon. The file is checked first, the old database is kept beside the new "
	  "one, and after the start nothing is removed for one grace period. On a terminal the command "
	  "asks before it does anything.",
	  cmd_restore },
	{ "restored", "", 0, 0, OPTIONS_OF(OPT_STORE), OPTIONS_OF(OPT_YES),
	  "say that a PostgreSQL store was restored, before the daemon starts on it",
	  "For a stopped daemon, after pg_restore or a restore to a point in time. After the start nothing is removed "
	  "for one grace period, and readers of events whose place is of the time that was taken back are told "
	  "that there is a gap. On a terminal the command asks first.",
	  cmd_restored },
	{ "migrate", "", 0, 0, OPTIONS_OF(OPT_MOVE_FROM, OPT_MOVE_TO), OPTIONS_OF(OPT_YES),
	  "move a store from SQLite to PostgreSQL, offline",
	  "For a stopped daemon. Copies every table, then reads both sides and compares the number of rows and the "
	  "SHA-256 of each table. When it is interrupted, the same command goes on where it stopped. At the end "
	  "the old database is kept under another name. Files of attachments and lapse.key stay in DIR: start lapsed "
	  "with --data-dir DIR and --store URI. On a terminal the command asks first.",
	  cmd_migrate },
	{ "mcp", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE,
	  "give a client of the Model Context Protocol the daemon's tools",
	  "Reads messages from standard input, one per line, posts them to the daemon and prints the answers: see "
	  "docs/mcp.md. The client starts it; a token comes from LAPSE_TOKEN or --token-file.",
	  cmd_mcp },
	{ "completion", "SHELL", 1, 1, OPTIONS_NONE, OPTIONS_NONE,
	  "print the completion script of bash, zsh or fish",
	  "For bash: eval \"$(lapse completion bash)\" in ~/.bashrc. For zsh the same, after compinit. For fish: lapse "
	  "completion fish | source. The script asks the command for every Tab, and the command asks the daemon "
	  "for names of agents, mailboxes, files, schedulers and tokens.",
	  cmd_completion },
	{ "complete", "[WORD]...", 0, ANY_NUMBER, OPTIONS_NONE, OPTIONS_NONE,
	  "print what may come next; the completion scripts use it",
	  "The words come after --; the last one is being typed. Prints one candidate per line, a tab, and what it "
	  "is; the line :files stands for the files of this machine.",
	  cmd_complete },
	{ "help", "[COMMAND]", 0, 2, OPTIONS_NONE, OPTIONS_OF(OPT_MAN),
	  "print help for everything, a noun or a command", NULL, cmd_help },
	{ "version", "", 0, 0, OPTIONS_NONE, OPTIONS_NONE, "print the version", NULL, cmd_version },
};

const struct command_alias ALIASES[] = {
	{ "send", "message send", true },
	{ "inbox", "message", true },
	{ "claim", "message claim", true },
	{ "read", "message read", true },
	{ "heartbeat", "agent heartbeat", true },
	{ "stage", "attachment stage", true },
	{ "fetch", "attachment fetch", true },
	{ "cleanup", "attachment cleanup", true },
	{ "approve", "approval give", true },
	{ "approvals", "approval", false },
	{ "agents", "agent", false },
	{ "capabilities", "capability", false },
	{ "messages", "message", false },
	{ "mailboxes", "mailbox", false },
	{ "attachments", "attachment", false },
	{ "dead-letters", "dead-letter", false },
	{ "holds", "hold", false },
	{ "quotas", "quota", false },
	{ "tokens", "token", false },
	{ "webhooks", "webhook", false },
	{ "event", "events", false },
	{ "leases", "lease", false },
	{ "entries", "entry", false },
	{ "queues", "queue", false },
	{ "replicas", "replica", false },
};
/* clang-format on */
const size_t COMMANDS_COUNT = ARRAY_LEN(COMMANDS);
const size_t ALIASES_COUNT = ARRAY_LEN(ALIASES);

const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (strcmp(COMMANDS[i].name, name) == 0)
			return &COMMANDS[i];
	return NULL;
}

const struct command *command_find_word(const char *word)
{
	for (size_t i = 0; i < ALIASES_COUNT; i++)
		if (strcmp(ALIASES[i].word, word) == 0) {
			const struct command *c = command_find(ALIASES[i].means);
			assert(c); /* the table names a row */
			return c;
		}
	return strchr(word, ' ') ? NULL : command_find(word);
}

/* Bytes of the noun, the first word of its name. */
static size_t noun_length(const struct command *c)
{
	size_t n = strcspn(c->name, " ");

	assert(n > 0);
	return n;
}

bool command_of_noun(const struct command *c, const struct command *noun)
{
	size_t n = noun_length(noun);

	return noun_length(c) == n && memcmp(c->name, noun->name, n) == 0;
}

const struct command *command_find_verb(const struct command *c, const char *verb)
{
	if (!command_is_noun(c))
		return NULL;
	for (size_t i = 0; i < COMMANDS_COUNT; i++) {
		const struct command *other = &COMMANDS[i];
		const char *own = other->name + noun_length(other);
		if (command_of_noun(other, c) && strcmp(*own ? own + 1 : "ls", verb) == 0)
			return other;
	}
	return NULL;
}

bool command_is_noun(const struct command *c)
{
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (strchr(COMMANDS[i].name, ' ') && command_of_noun(&COMMANDS[i], c))
			return true;
	return false;
}

bool command_word_is_short(const char *word)
{
	for (size_t i = 0; i < ALIASES_COUNT; i++)
		if (ALIASES[i].is_short && strcmp(ALIASES[i].word, word) == 0)
			return true;
	return false;
}

const char *command_short(const struct command *c)
{
	for (size_t i = 0; i < ALIASES_COUNT; i++)
		if (ALIASES[i].is_short && strcmp(ALIASES[i].means, c->name) == 0)
			return ALIASES[i].word;
	return NULL;
}
