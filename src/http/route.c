/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"

#include <stdio.h>
#include <string.h>

#include "attachment/api.h"
#include "engine/api.h"
#include "http/openapi.h"
#include "http/probe.h"
#include "http/stream.h"
#include "mailbox/api.h"
#include "message/api.h"
#include "presence/api.h"

/* clang-format off */
const struct route ROUTES[] = {
	/* method, path, who, body, transaction, flags, handler, query, body fields, reply, summary, quick */
	{ "POST", "/v1/agents/{agent}/heartbeat", CALLER_ANY, BODY_JSON, TX_WRITE, 0,
	  presence_api_beat, NULL, PRESENCE_BEAT_BODY, &SHAPE_STATUS,
	  "Say that an agent lives", &PRESENCE_BEAT_QUICK },
	{ "POST", "/v1/heartbeats", CALLER_ANY, BODY_MANY, TX_WRITE, 0,
	  presence_api_beats, NULL, PRESENCE_BEATS_ENTRY, &SHAPE_ACCEPTED,
	  "Say that many agents live, all or none", &PRESENCE_BEATS_QUICK },
	{ "GET", "/v1/agents", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  presence_api_list, PRESENCE_LIST_QUERY, NULL, &SHAPE_AGENT_PAGE,
	  "List the agents that are there, by name", NULL },
	{ "GET", "/v1/agents/{agent}", CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG,
	  presence_api_get, NULL, NULL, &SHAPE_AGENT,
	  "Get an agent", NULL },
	{ "DELETE", "/v1/agents/{agent}", CALLER_ANY, BODY_NONE, TX_WRITE, 0,
	  presence_api_delete, NULL, NULL, &SHAPE_DELETED,
	  "Forget an agent and what it can do", NULL },
	{ "PUT", "/v1/agents/{agent}/capabilities", CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_ETAG,
	  presence_api_set_capabilities, NULL, PRESENCE_CAPABILITIES_BODY, &SHAPE_AGENT,
	  "Replace what an agent can do", NULL },
	{ "GET", "/v1/capabilities", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  presence_api_capabilities, PAGE_FIELDS, NULL, &SHAPE_CAPABILITY_PAGE,
	  "Every capability and who has it", NULL },
	{ "GET", "/v1/capabilities/{name}", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  presence_api_capability, PAGE_FIELDS, NULL, &SHAPE_AGENT_PAGE,
	  "The agents that have a capability", NULL },

	{ "POST", "/v1/agents/{agent}/messages", CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES | ROUTE_CLEAN,
	  message_api_send, NULL, MESSAGE_SEND_BODY, &SHAPE_MESSAGE,
	  "Send a message to an agent", NULL },
	{ "GET", "/v1/agents/{agent}/messages", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  message_api_list, MESSAGE_LIST_QUERY, NULL, &SHAPE_MESSAGE_PAGE,
	  "List an agent's messages, newest first", NULL },
	{ "POST", "/v1/agents/{agent}/messages/read", CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CLEAN,
	  message_api_read_many, NULL, MESSAGE_READ_MANY_BODY, &SHAPE_COUNT,
	  "Mark messages as read", NULL },
	{ "POST", "/v1/agents/{agent}/messages/claim", CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_CLEAN,
	  message_api_claim, NULL, MESSAGE_CLAIM_BODY, &SHAPE_CLAIM,
	  "Lease unread messages, oldest first", NULL },
	{ "GET", "/v1/agents/{agent}/messages/{id}", CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG,
	  message_api_get, NULL, NULL, &SHAPE_MESSAGE,
	  "Get a message", NULL },
	{ "POST", "/v1/agents/{agent}/messages/{id}/read", CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_ETAG | ROUTE_CLEAN,
	  message_api_read, NULL, MESSAGE_READ_BODY, &SHAPE_MESSAGE,
	  "Mark a message as read", NULL },
	{ "POST", "/v1/messages", CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES,
	  message_api_broadcast, NULL, MESSAGE_BROADCAST_BODY, &SHAPE_MESSAGES,
	  "Send a message to many agents, all or none", NULL },
	{ "GET", "/v1/messages/stats", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  message_api_stats, PAGE_FIELDS, NULL, &SHAPE_INBOX_PAGE,
	  "Counts of every inbox", NULL },

	{ "POST", "/v1/mailboxes", CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_CREATES | ROUTE_ETAG,
	  mailbox_api_create, NULL, MAILBOX_CREATE_BODY, &SHAPE_MAILBOX,
	  "Make a mailbox with a lifetime", NULL },
	{ "GET", "/v1/mailboxes", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  mailbox_api_list, MAILBOX_LIST_QUERY, NULL, &SHAPE_MAILBOX_PAGE,
	  "List mailboxes, newest first", NULL },
	{ "GET", "/v1/mailboxes/{id}", CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG,
	  mailbox_api_get, NULL, NULL, &SHAPE_MAILBOX,
	  "Get a mailbox, expired or not", NULL },
	{ "DELETE", "/v1/mailboxes/{id}", CALLER_ANY, BODY_NONE, TX_WRITE, 0,
	  mailbox_api_delete, NULL, NULL, &SHAPE_MAILBOX_DELETED,
	  "Delete a mailbox and its mail", NULL },
	{ "POST", "/v1/mailboxes/{id}/renew", CALLER_ANY, BODY_OPTIONAL, TX_WRITE, ROUTE_ETAG,
	  mailbox_api_renew, NULL, MAILBOX_RENEW_BODY, &SHAPE_MAILBOX,
	  "Let a mailbox live longer, from now on", NULL },
	{ "GET", "/v1/mailboxes/{id}/messages", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  mailbox_api_mails, MAILBOX_MAILS_QUERY, NULL, &SHAPE_MAIL_PAGE,
	  "List the mail of a mailbox, newest first", NULL },
	{ "GET", "/v1/mailboxes/{id}/messages/{msg}", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  mailbox_api_mail, NULL, NULL, &SHAPE_MAIL,
	  "Read a mail", NULL },
	{ "POST", "/v1/mailboxes/{id}/send", CALLER_ANY, BODY_JSON, TX_WRITE, ROUTE_CREATES,
	  mailbox_api_send, NULL, MAILBOX_SEND_BODY, &SHAPE_SENT,
	  "Send a mail from a mailbox", NULL },
	{ "POST", "/v1/attachments", CALLER_ANY, BODY_STREAM, TX_WRITE, ROUTE_CREATES,
	  attachment_api_upload, ATTACHMENT_UPLOAD_QUERY, NULL, &SHAPE_ATTACHMENT,
	  "Stage the bytes of the body", &ATTACHMENT_UPLOAD_QUICK },
	{ "POST", "/v1/attachments/stage", CALLER_ADMIN, BODY_JSON, TX_WRITE, ROUTE_CREATES,
	  attachment_api_stage, NULL, ATTACHMENT_STAGE_BODY, &SHAPE_ATTACHMENT,
	  "Stage a file of this host", NULL },
	{ "GET", "/v1/attachments", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  attachment_api_list, PAGE_FIELDS, NULL, &SHAPE_ATTACHMENT_PAGE,
	  "List attachments, newest first", NULL },
	{ "GET", "/v1/attachments/metrics", CALLER_ANY, BODY_NONE, TX_READ, 0,
	  attachment_api_metrics, NULL, NULL, &SHAPE_ATTACHMENT_METRICS,
	  "How many attachments there are, and how large", NULL },
	{ "POST", "/v1/attachments/cleanup", CALLER_ADMIN, BODY_NONE, TX_NONE, 0,
	  attachment_api_cleanup, NULL, NULL, &SHAPE_CLEANED,
	  "Remove every expired attachment now", NULL },
	{ "GET", "/v1/attachments/{checksum}", CALLER_ANY, BODY_NONE, TX_READ, ROUTE_ETAG,
	  attachment_api_get, NULL, NULL, &SHAPE_ATTACHMENT,
	  "Get what is known about an attachment", NULL },
	{ "GET", "/v1/attachments/{checksum}/content", CALLER_ANY, BODY_NONE, TX_READ, ROUTE_CONTENT,
	  attachment_api_content, NULL, NULL, NULL,
	  "Download an attachment, or a part of it", NULL },
	{ "DELETE", "/v1/attachments/{checksum}", CALLER_ANY, BODY_NONE, TX_WRITE, 0,
	  attachment_api_delete, NULL, NULL, &SHAPE_ATTACHMENT_DELETED,
	  "Delete an attachment", NULL },

	{ "GET", "/v1/matrix", CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  matrix_api_get, NULL, NULL, &SHAPE_MATRIX,
	  "Every bounded table and how it is doing", NULL },
	{ "POST", "/v1/sweep/{scheduler}", CALLER_ADMIN, BODY_NONE, TX_NONE, 0,
	  sweep_api_run, SWEEP_QUERY, NULL, &SHAPE_SWEEP,
	  "Run one sweep now", NULL },
	{ "GET", "/v1/holds", CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  hold_api_list, PAGE_FIELDS, NULL, &SHAPE_HOLD_PAGE,
	  "List holds", NULL },
	{ "PUT", "/v1/holds/{table}/{key}", CALLER_ADMIN, BODY_JSON, TX_WRITE, ROUTE_ETAG,
	  hold_api_put, NULL, HOLD_BODY, &SHAPE_HOLD,
	  "Keep a row from being removed", NULL },
	{ "GET", "/v1/holds/{table}/{key}", CALLER_ADMIN, BODY_NONE, TX_READ, ROUTE_ETAG,
	  hold_api_get, NULL, NULL, &SHAPE_HOLD,
	  "Get a hold", NULL },
	{ "DELETE", "/v1/holds/{table}/{key}", CALLER_ADMIN, BODY_NONE, TX_WRITE, 0,
	  hold_api_delete, NULL, NULL, &SHAPE_RELEASED,
	  "Release a hold", NULL },
	{ "GET", "/v1/dead-letters", CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  dead_letter_api_list, PAGE_FIELDS, NULL, &SHAPE_DEAD_LETTER_PAGE,
	  "Deletions outside that gave up, of all owners", NULL },
	{ "POST", "/v1/dead-letters/{id}/retry", CALLER_ADMIN, BODY_NONE, TX_WRITE, 0,
	  dead_letter_api_retry, NULL, NULL, &SHAPE_DEAD_LETTER,
	  "Try a deletion again", NULL },
	{ "DELETE", "/v1/dead-letters/{id}", CALLER_ADMIN, BODY_NONE, TX_WRITE, 0,
	  dead_letter_api_drop, NULL, NULL, &SHAPE_DROPPED,
	  "Let a deletion go: what it was about stays outside", NULL },
	{ "GET", "/v1/clock", CALLER_ANY, BODY_NONE, TX_NONE, 0,
	  clock_api_get, NULL, NULL, &SHAPE_CLOCK,
	  "Trusted time, and whether the wall clock has leapt", NULL },
	{ "POST", "/v1/clock/accept", CALLER_ADMIN, BODY_NONE, TX_NONE, 0,
	  clock_api_accept, NULL, NULL, &SHAPE_CLOCK,
	  "Trust the wall clock as it is", NULL },
	{ "GET", "/v1/tokens", CALLER_ADMIN, BODY_NONE, TX_READ, 0,
	  token_api_list, PAGE_FIELDS, NULL, &SHAPE_TOKEN_PAGE,
	  "List tokens, without their secrets", NULL },
	{ "POST", "/v1/tokens", CALLER_ADMIN, BODY_JSON, TX_WRITE, ROUTE_CREATES,
	  token_api_create, NULL, TOKEN_BODY, &SHAPE_TOKEN,
	  "Make a token; it is shown once", NULL },
	{ "DELETE", "/v1/tokens/{prefix}", CALLER_ADMIN, BODY_NONE, TX_WRITE, 0,
	  token_api_revoke, NULL, NULL, &SHAPE_REVOKED,
	  "Revoke a token", NULL },
	{ "GET", "/v1/events", CALLER_ANY, BODY_NONE, TX_NONE, ROUTE_STREAM,
	  stream_api_open, STREAM_QUERY, NULL, NULL,
	  "Follow events as they happen (server-sent events)", NULL },
	{ "POST", "/v1/backup", CALLER_ADMIN, BODY_NONE, TX_WRITE, ROUTE_CREATES,
	  backup_api_make, NULL, NULL, &SHAPE_BACKUP,
	  "Write a consistent copy into backups/", NULL },

	{ "GET", "/healthz", CALLER_PUBLIC, BODY_NONE, TX_NONE, 0,
	  probe_api_health, NULL, NULL, &SHAPE_STATUS,
	  "Whether the process is up", NULL },
	{ "GET", "/readyz", CALLER_PUBLIC, BODY_NONE, TX_NONE, 0,
	  probe_api_ready, NULL, NULL, &SHAPE_STATUS,
	  "Whether it can do its work, and why not", NULL },
	{ "GET", "/metrics", CALLER_METRICS, BODY_NONE, TX_NONE, 0,
	  probe_api_metrics, NULL, NULL, NULL,
	  "Metrics for Prometheus", NULL },
	{ "GET", "/openapi.json", CALLER_PUBLIC, BODY_NONE, TX_NONE, 0,
	  openapi_api_get, NULL, NULL, NULL,
	  "This description", NULL },
};
/* clang-format on */
const size_t ROUTES_COUNT = ARRAY_LEN(ROUTES);
_Static_assert(ARRAY_LEN(ROUTES) <= ROUTES_MAX, "raise ROUTES_MAX");

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char *percent_decode(struct arena *arena, const char *text, size_t n)
{
	char *out = arena_alloc(arena, n + 1);
	char *o = out;

	for (size_t i = 0; i < n; i++) {
		if (text[i] != '%') {
			*o++ = text[i];
			continue;
		}
		int high = i + 2 < n ? hex_value(text[i + 1]) : -1;
		int low = high < 0 ? -1 : hex_value(text[i + 2]);
		if (low < 0 || (high == 0 && low == 0))
			return NULL;
		*o++ = (char)(high << 4 | low);
		i += 2;
	}
	*o = '\0';
	return out;
}

/* One parameter of a path: where it stands in the request. */
struct slot {
	const char *text;
	size_t n;
};

/* {name} takes any segment, everything else itself. */
static bool matches(const char *pattern, const char *path, struct slot slots[CALL_PARAMS_MAX])
{
	int n = 0;

	for (; *pattern; pattern++) {
		if (*pattern != '{') {
			if (*pattern != *path++)
				return false;
			continue;
		}
		const char *start = path;
		while (*path && *path != '/')
			path++;
		slots[n++] = (struct slot){ start, (size_t)(path - start) };
		while (*pattern != '}')
			pattern++;
	}
	if (n < CALL_PARAMS_MAX)
		slots[n].text = NULL;
	return *path == '\0';
}

static int decode_params(struct arena *arena, const struct slot slots[CALL_PARAMS_MAX],
			 const char *ret_params[CALL_PARAMS_MAX])
{
	for (int i = 0; i < CALL_PARAMS_MAX && slots[i].text; i++) {
		ret_params[i] = percent_decode(arena, slots[i].text, slots[i].n);
		if (!ret_params[i])
			return LAPSE_EINVAL;
	}
	return LAPSE_OK;
}

static void add_allowed(char *allow, size_t size, const char *method)
{
	size_t n = strlen(allow);

	if (strstr(allow, method) == NULL)
		snprintf(allow + n, size - n, "%s%s%s", n ? ", " : "", method,
			 strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

int route_find(const char *method, const char *path, struct arena *arena,
	       const struct route **ret_route, const char *ret_params[CALL_PARAMS_MAX], char *allow,
	       size_t allow_size)
{
	const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
	struct slot slots[CALL_PARAMS_MAX] = { 0 };

	allow[0] = '\0';
	for (size_t i = 0; i < ROUTES_COUNT; i++) {
		if (!matches(ROUTES[i].path, path, slots))
			continue;
		if (strcmp(ROUTES[i].method, wanted) == 0) {
			*ret_route = &ROUTES[i];
			return decode_params(arena, slots, ret_params);
		}
		add_allowed(allow, allow_size, ROUTES[i].method);
	}
	return allow[0] ? LAPSE_EMETHOD : LAPSE_ENOTFOUND;
}
