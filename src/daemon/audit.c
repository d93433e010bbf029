/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/audit.h"

#include <assert.h>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "store/migrate.h"

#define RESTORED_TOLD "restored_told" /* the restore that an event has told of */

static void audit_put_settings(const struct settings *s, struct buf *out)
{
	json_put_text(out, "version", LAPSE_VERSION);
	json_key(out, "settings");
	json_begin(out, '{');
	for (size_t i = 0; i < SETTINGS_COUNT; i++) {
		if (s->sources[i] == SOURCE_DEFAULT)
			continue;
		json_key(out, SETTINGS_TABLE[i].name);
		setting_write_json(s, &SETTINGS_TABLE[i], out);
	}
	json_end(out, '}');
}

static int audit_settings(struct tx *tx)
{
	struct buf CLEANUP(buf_done) data = { 0 };

	json_begin(&data, '{');
	audit_put_settings(tx->engine->settings, &data);
	json_end(&data, '}');
	return event_add(tx, "", EVENT_SETTINGS_IN_FORCE, &data);
}

static int audit_restore(struct tx *tx)
{
	struct buf CLEANUP(buf_done) data = { 0 };
	const lapse_ms at = tx->engine->restored_at;
	int64_t told = 0;
	int r = meta_get(tx->db, RESTORED_TOLD, 0, &told);

	assert(at >= 0);
	if (r < 0 || at == told)
		return r;
	json_begin(&data, '{');
	json_put_time(&data, "restored_at", at);
	json_end(&data, '}');
	r = meta_set(tx->db, RESTORED_TOLD, at);
	return r < 0 ? r : event_add(tx, "", EVENT_STORE_RESTORED, &data);
}

static int audit_write(struct tx *tx, void *arg)
{
	int r = audit_settings(tx);

	(void)arg;
	return r < 0 ? r : audit_restore(tx);
}

void audit_start(struct engine *e)
{
	struct buf line;

	assert(e->magic == ENGINE_MAGIC && !e->stopped);
	log_open(e->log, &line, LOG_INFO, event_name(EVENT_SETTINGS_IN_FORCE));
	audit_put_settings(e->settings, &line);
	log_close(e->log, &line);
	if (job_do(e, JOB_DURABLE, audit_write, NULL) < 0)
		log_message(e->log, LOG_ERROR, "audit.failed",
			    "the events of the start could not be written");
}
