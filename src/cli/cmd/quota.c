/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas: ls, show, set, clear. */
#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "base/quantity.h"
#include "cli/line/commands.h"
#include "cli/show/show.h"

#define LIMIT_NAME_MAX 64
#define BACK_TO_SETTING "default" /* the word that takes a limit out of a quota */

/* A limit that the quota does not have is shown as "-": the setting holds. */
static const struct column QUOTA_COLUMNS[] = {
	{ "OWNER", "owner", CELL_TEXT },
	{ "AGENTS", "agents", CELL_COUNT },
	{ "MAILBOXES", "mailboxes", CELL_COUNT },
	{ "INBOXES", "inboxes", CELL_COUNT },
	{ "STREAMS", "streams", CELL_COUNT },
	{ "STORED", "stored_bytes", CELL_BYTES },
	{ "ATTACHMENTS", "attachment_bytes", CELL_BYTES },
	{ 0 },
};

static const struct column QUOTA_FACTS[] = {
	{ "owner", "owner", CELL_TEXT },
	{ "agents", "agents", CELL_COUNT },
	{ "mailboxes", "mailboxes", CELL_COUNT },
	{ "inboxes", "inboxes", CELL_COUNT },
	{ "streams", "streams", CELL_COUNT },
	{ "stored bytes", "stored_bytes", CELL_BYTES },
	{ "attachment bytes", "attachment_bytes", CELL_BYTES },
	{ 0 },
};

enum outcome cmd_quota_ls(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	enum outcome r = client_list(
		cli, &(struct request){ .method = "GET", .path = "/v1/quotas" }, &answer);

	return r == OUTCOME_OK ? show_list(cli, &answer, QUOTA_COLUMNS, "no quotas") : r;
}

/* Calls with the owner that the first operand names. */
static enum outcome quota_call(struct cli *cli, const char *method, const json_t *body,
			       bool any_status, struct answer *ret)
{
	return client_call(cli,
			   &(struct request){ .method = method,
					      .path = "/v1/quotas/%",
					      .segments = { args_operand(&cli->args, 0) },
					      .body = body,
					      .any_status = any_status },
			   ret);
}

enum outcome cmd_quota_show(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	enum outcome r = quota_call(cli, "GET", NULL, false, &answer);

	return r == OUTCOME_OK ? show_object(cli, &answer, QUOTA_FACTS) : r;
}

/* The limits the owner has already: those that are not named stay. */
static enum outcome quota_begin(struct cli *cli, json_t *body)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	enum outcome r = quota_call(cli, "GET", NULL, true, &answer);
	const char *key;
	json_t *value;

	if (r != OUTCOME_OK || answer.status == 404)
		return r;
	if (outcome_of_status(answer.status) != OUTCOME_OK)
		return client_refused(cli, &answer);
	json_object_foreach (answer.json, key, value)
		if (json_is_integer(value))
			json_object_set(body, key, value);
	return OUTCOME_OK;
}

/* "agents=5000", "stored_bytes=10GiB" or "streams=default". */
static enum outcome quota_take_limit(struct cli *cli, const char *word, json_t *body)
{
	char name[LIMIT_NAME_MAX];
	const char *equals = strchr(word, '=');
	size_t n = equals ? (size_t)(equals - word) : 0;
	int64_t value;

	assert(json_is_object(body));
	if (n == 0 || n >= sizeof(name))
		return cli_usage(cli, "'%s' is no LIMIT=NUMBER, like agents=5000", word);
	memcpy(name, word, n);
	name[n] = '\0';
	if (strcmp(equals + 1, BACK_TO_SETTING) == 0) {
		json_object_del(body, name);
		return OUTCOME_OK;
	}
	if (!bytes_parse(equals + 1, &value) || value < 1 ||
	    (!strstr(name, "bytes") && strspn(equals + 1, "0123456789") != strlen(equals + 1)))
		return cli_usage(cli, "'%s': %s", word,
				 strstr(name, "bytes")
					 ? "give " BYTES_EXAMPLES
					 : "give a whole number from 1, or " BACK_TO_SETTING);
	if (json_object_set_new(body, name, json_integer(value)) < 0)
		return cli_usage(cli, "LIMIT is not UTF-8 text");
	return OUTCOME_OK;
}

enum outcome cmd_quota_set(struct cli *cli)
{
	json_t *CLEANUP(json_freep) body = json_object();
	struct answer CLEANUP(answer_done) answer = { 0 };
	enum outcome r = quota_begin(cli, body);

	for (size_t i = 1; r == OUTCOME_OK && i < cli->args.operand_count; i++)
		r = quota_take_limit(cli, args_operand(&cli->args, i), body);
	if (r == OUTCOME_OK)
		r = quota_call(cli, json_object_size(body) > 0 ? "PUT" : "DELETE",
			       json_object_size(body) > 0 ? body : NULL, false, &answer);
	if (r != OUTCOME_OK || json_object_size(body) > 0)
		return r == OUTCOME_OK ? show_object(cli, &answer, QUOTA_FACTS) : r;
	if (!show_json(cli, &answer))
		puts("no limit is left: the settings hold");
	return OUTCOME_OK;
}

enum outcome cmd_quota_clear(struct cli *cli)
{
	struct answer CLEANUP(answer_done) answer = { 0 };
	struct buf CLEANUP(buf_done) owner = { 0 };
	enum outcome r = quota_call(cli, "DELETE", NULL, false, &answer);

	if (r != OUTCOME_OK || show_json(cli, &answer))
		return r;
	show_value(cli, json_object_get(answer.json, "owner"), CELL_TEXT, &owner);
	printf("%s has no quota any more: the settings hold\n", buf_text(&owner));
	return OUTCOME_OK;
}
