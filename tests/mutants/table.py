# SPDX-License-Identifier: Apache-2.0
"""The table of mutants. A row: a name, the file, the exact change, the sentence of a seed or guarantee of the README that
it breaks, and the tests that must fail: programs of tests/unit by their target, tests of pytest by their id.

To add one: quote as little as is found once in the file, and name the tests that state the sentence. `make mutants`
tells whether they notice.
"""
import typing


class Mutant(typing.NamedTuple):
    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple


MUTANTS = []


def add(name, file, old, new, breaks, *tests):
    MUTANTS.append(Mutant(name, file, old, new, breaks, tests))


DEFAULTS = "unit_test_seed_defaults"
SETTINGS = "src/base/settings.h"

# Numbers of the seeds -----------------------------------------------------------------------------

for name, old, new, breaks in [
    ("message-ttl-25h", "message_ttl_ms, DAY_MS,", "message_ttl_ms, 90000000,", "000: read messages older than 24 hours are pruned"),
    ("message-interval-85s", "message_sweep_ms, 60000,", "message_sweep_ms, 85000,", "000: cleanup runs every 60 seconds"),
    ("agent-threshold-100s", "agent_evict_after_ms, 90000,", "agent_evict_after_ms, 100000,", "001: the threshold is 90 seconds"),
    ("agent-interval-45s", "agent_sweep_ms, 30000,", "agent_sweep_ms, 45000,", "001: the check fires every 30 seconds"),
    ("breaker-percent-40", "agent_breaker_percent, 50,", "agent_breaker_percent, 40,", "README: the breaker trips for more than half"),
    ("breaker-min-10", "agent_breaker_min, 100,", "agent_breaker_min, 10,", "001: a small fleet follows the seed exactly"),
    ("mailbox-default-ttl", "mailbox_default_ttl_ms, DAY_MS,", "mailbox_default_ttl_ms, 2 * DAY_MS,", "002: the default lifetime is 24 hours"),
    ("mailbox-min-ttl", "mailbox_min_ttl_ms, 300000,", "mailbox_min_ttl_ms, 60000,", "002: the shortest lifetime is 5 minutes"),
    ("mailbox-max-ttl", "mailbox_max_ttl_ms, 7 * DAY_MS,", "mailbox_max_ttl_ms, 8 * DAY_MS,", "002: the longest lifetime is 7 days"),
    ("mailbox-interval-50min", "mailbox_sweep_ms, 300000,", "mailbox_sweep_ms, 3000000,", "002: the sweep runs every 5 minutes"),
    ("mailbox-batch-5000", "mailbox_sweep_batch, 50,", "mailbox_sweep_batch, 5000,", "002: one sweep expires at most 50 mailboxes"),
    ("mailbox-retries-5", "mailbox_cleanup_max_retries, 3,", "mailbox_cleanup_max_retries, 5,", "002: three attempts, then -1"),
    ("mailbox-keep-3-days", "mailbox_keep_expired_ms, 30 * DAY_MS,", "mailbox_keep_expired_ms, 3 * DAY_MS,", "002: expired rows are kept 30 days"),
    ("attachment-ttl-1h", "attachment_ttl_ms, DAY_MS,", "attachment_ttl_ms, 3600000,", "003: the default lifetime is 24 hours"),
    ("attachment-interval-1h", "attachment_sweep_ms, 60000,", "attachment_sweep_ms, 3600000,", "003: the sweep runs every 60 seconds"),
    ("attachment-sweep-at-start", "attachment_sweep_at_start, false,", "attachment_sweep_at_start, true,", "003: no sweep at the start unless it is asked for"),
    ("cleanup-attempts-9", "cleanup_max_attempts, 3,", "cleanup_max_attempts, 9,", "README: a deletion outside ends done or as a dead letter"),
]:
    add(name, SETTINGS, old, new, breaks, DEFAULTS)

for name, old in [("interval", "RELAY_SWEEP_INTERVAL_MS"), ("batch", "RELAY_SWEEP_BATCH_SIZE"),
                  ("retries", "RELAY_CLEANUP_MAX_RETRIES"), ("default", "RELAY_DEFAULT_TTL_MS"),
                  ("min", "RELAY_MIN_TTL_MS"), ("max", "RELAY_MAX_TTL_MS")]:
    add(f"alias-{name}", "src/base/settings.c", f'"{old}"', f'"IGNORED_{name.upper()}"',
        f"002: {old} configures it", "unit_test_settings")

# Schedulers ---------------------------------------------------------------------------------------

SCHEDULE = "src/engine/schedule.c"
add("timer-never", SCHEDULE, "(clock_mono(e->clock) >= s->next_at || until_deadline(e, s) == 0);",
    "until_deadline(e, s) == 0;", "002: the sweep fires by its timer", DEFAULTS, "unit_test_schedule")
add("no-re-arm", SCHEDULE, "s->next_at = clock_mono(e->clock) + pause_us(e, s, err);",
    "s->next_at = INT64_MAX;", "000: cleanup reschedules itself", DEFAULTS, "unit_test_schedule")
add("first-sweep-at-once", SCHEDULE, "s->next_at = s->last_ended + interval_us(e, s);", "s->next_at = s->last_ended;",
    "003: no sweep at the start", DEFAULTS, "unit_test_schedule")
add("deadlines-ignored", SCHEDULE, "if (!s->has_deadlines || s->deadlines_off)", "if (true)",
    "README: removed at the deadline, not at the next sweep", "unit_test_presence_evict")
add("dry-run-puts-off", SCHEDULE, "if (!s->sweep.dry_run && !(s->sweep.by_deadline && err == LAPSE_OK))",
    "if (!(s->sweep.by_deadline && err == LAPSE_OK))", "README: a dry run changes nothing", "unit_test_schedule")
add("failed-sweep-is-silent", SCHEDULE, "\t\ts->errors++;\n\t\ts->unreported++;\n\t\tlog_failure(e, s, err);\n\t}\n\tint",
    "\t}\n\tint", "README: a failed tick is a log line and a counter", "unit_test_schedule")
add("queue-without-limit", SCHEDULE, "if (s->requests_count >= SWEEP_REQUESTS_MAX)", "if (false)",
    "README: everything is bounded", "unit_test_schedule")

# Sweeps and bounds --------------------------------------------------------------------------------

BOUND = "src/engine/bound.c"
add("bound-operator-at", BOUND, 's->op == DUE_AT ? " <= $1" : " < $1"', 's->op == DUE_AT ? " <= $1" : " <= $1"',
    "000: exactly 24 hours stays", "unit_test_sweep")
add("bound-operator-before", BOUND, 's->op == DUE_AT ? " <= $1" : " < $1"', 's->op == DUE_AT ? " < $1" : " < $1"',
    "003: due when now - inserted_at >= ttl", "tests/api/test_seed_003.py::test_verification_ttl_boundary_is_at_least")
add("bound-without-tests", BOUND, "\tbound_put_tests(out, dialect, s->only);\n}", "}",
    "000: unread messages are never removed, at any age", "unit_test_sweep")
add("bound-without-holds", BOUND, "\tif (!bound_is_held(s))\n\t\treturn;\n\tbuf_puts(out, \" AND NOT EXISTS (SELECT 1 FROM holds",
    "\treturn;\n\tbuf_puts(out, \" AND NOT EXISTS (SELECT 1 FROM holds", "README: held rows are never removed", "unit_test_sweep")
add("ended-holds-hold", BOUND, 'buf_printf(out, " AND h.until > $%d)", now);', 'buf_printf(out, " AND $%d = $%d)", now, now);',
    "README: a hold ends by itself", "unit_test_sweep")
add("walk-from-the-start", BOUND, 'buf_puts(out, ") > (");', 'buf_puts(out, ") >= (");',
    "README: a sweep costs what expired", "unit_test_bound")
SWEEP = "src/engine/sweep.c"
add("no-grace-after-restore", SWEEP, "!guard_in_grace(e->restored_at, bound_window(b), w->started_at))", "true)",
    "README: a restored database deletes nothing for one grace period", "unit_test_sweep")

# 000: messages ------------------------------------------------------------------------------------

MESSAGE = "src/message/message.c"
RULES = "src/message/rules.c"
add("message-due-at", RULES, "time_sub(now, timestamp) > ttl", "time_sub(now, timestamp) >= ttl", "000: exactly 24 hours stays",
    "unit_test_message_rules")
add("message-due-unread", RULES, "return read && time_sub", "return time_sub", "000: unread messages are never removed",
    "unit_test_message_rules")
add("message-due-never", RULES, "? MESSAGE_DUE : MESSAGE_LIVE", "? MESSAGE_LIVE : MESSAGE_LIVE", "000: a due message is not served",
    "unit_test_message_rules")
add("message-unread-pruned", "src/message/prune.c", '\t.only = BOUND_ONLY(IS_INT("read", 1)),\n', "", "000: unread messages are never removed",
    "tests/api/test_seed_000.py::test_acceptance_unread_and_48_hours_old_is_not_removed")
add("message-read-kept", "src/message/prune.c", '\t.only = BOUND_ONLY(IS_INT("read", 1)),\n', '\t.only = BOUND_ONLY(IS_INT("read", 0)),\n',
    "000: read messages older than 24 hours are pruned",
    "tests/api/test_seed_000.py::test_acceptance_read_and_25_hours_old_is_no_longer_there")
add("message-young-pruned", "src/message/prune.c", '.window = "message_ttl_ms"', '.window = "agent_evict_after_ms"',
    "000: a message read and 1 hour old is kept",
    "tests/api/test_seed_000.py::test_acceptance_read_and_1_hour_old_is_not_removed")
add("message-counter-drifts", "src/message/prune.c", "UPDATE inboxes SET total = total - $3", "UPDATE inboxes SET total = total - 1",
    "000: the inbox is updated with what remains", "unit_test_sweep")
add("message-mark-nothing", "src/message/mark.c", '"UPDATE messages SET read = 1, read_at = $4 "\n', '"UPDATE messages SET read = 0, read_at = $4 "\n',
    "000: a message that was read counts as read",
    "tests/api/test_seed_000.py::test_acceptance_read_and_25_hours_old_is_no_longer_there")
add("message-foreign-agent", "src/message/row.c", "m.owner = $2 AND m.agent = $3", "m.owner = $2 AND $3 = $3",
    "000: an agent reads its own messages", "tests/api/test_messages.py")
add("message-claim-taken-twice", "src/message/claim.c", "(m.claimed_until IS NULL OR m.claimed_until <= $3)", "$3 = $3",
    "README: a claim leases a message to one worker", "tests/api/test_claim.py")
add("message-unread-limit", "src/message/unread.c", 'WHERE inboxes.unread < $3 RETURNING', 'WHERE $3 = $3 RETURNING',
    "README: unread messages are bounded by refusal", "tests/api/test_messages.py")
add("message-unread-limit-tail", "src/message/unread.c", "return i->filed_unread + (int64_t)i->live < max ? LAPSE_OK",
    "return true ? LAPSE_OK", "README: unread messages are bounded by refusal", "tests/api/test_messages.py")
add("inbox-without-row", "src/message/unread.c", "return i->live == 0 && i->filed_unread == 0;", "return false;",
    "an inbox whose row has gone is made anew", "unit_test_tail")
add("inbox-row-kept", "src/message/prune.c", "return i && i->live > 0;", "return i != NULL;",
    "the row of an inbox goes with its last message", "unit_test_tail")
add("filing-in-long-slices", "src/message/rules.c", "RELAXED = { .slice_us = 100,", "RELAXED = { .slice_us = 1000,",
    "filing hurries only as the tail fills", "unit_test_message_rules")
add("filing-without-rest", "src/message/filing.c", "pace->rest_us > 0 ? REST_FACTOR * took : 0", "pace->rest_us < 0 ? REST_FACTOR * took : 0",
    "a slow slice of filing is followed by a longer rest", "unit_test_tail")
add("gathered-rows-take-no-time", "src/message/slice.c", "r = db_flush(db);", "r = db ? LAPSE_OK : LAPSE_EIO;",
    "a slice writes its rows before it looks at the clock", "unit_test_tail")
add("log-never-starts-over", "src/store/sqlite/checkpoint.c", "(wal_bytes >= RESTART_BYTES && left <= LEFT_BYTES)",
    "(wal_bytes < 0 && left <= LEFT_BYTES)", "a log below its limit starts over", "unit_test_checkpoint")
add("busy-log-is-a-failure", "src/store/sqlite/checkpoint.c", "if (r == LAPSE_ERETRY)\n\t\t\tleft", "if (r > 0)\n\t\t\tleft",
    "a busy log is no failure", "unit_test_checkpoint")
add("writer-waits-for-the-whole-log", "src/store/sqlite/checkpoint.c", "(wal_bytes >= RESTART_BYTES && left <= LEFT_BYTES)",
    "(wal_bytes >= RESTART_BYTES && left >= 0)", "a writer waits only for the little that is left", "unit_test_checkpoint")
add("commit-held-back", "src/store/sqlite/frames.c", "else if (f->commits || f->held.len >= HELD_BYTES)", "else if (f->held.len >= HELD_BYTES)",
    "an answered write survives kill -9", "unit_test_frames")
add("frames-of-a-rollback-kept", "src/store/sqlite/frames.c", "\tsqlite3_rollback_hook(handle, frames_forget, handle);\n", "\t(void)handle;\n\t(void)frames_forget;\n",
    "a rolled back transaction leaves nothing behind", "unit_test_frames")
add("frames-not-before-a-read", "src/store/sqlite/frames.c",
    "int rc = frames_flush(f);\n\n\treturn rc == SQLITE_OK ? f->real->pMethods->xRead", "int rc = SQLITE_OK;\n\n\treturn rc == SQLITE_OK ? f->real->pMethods->xRead",
    "frames of a large transaction are found again", "unit_test_frames")
add("cache-walked-at-each-commit", "src/store/sqlite/pagecache.c", "if (limit > c->max && !c->parked)", "if (limit > c->max + 1000000)",
    "a commit that splits pages looks at no others", "unit_test_pagecache")
add("posted-rows-unseen", "src/store/sqlite/db.c", "if (posted_rows(db->posted) > 0 && !sqlite3_stmt_busy(", "if (posted_rows(db->posted) < 0 && !sqlite3_stmt_busy(",
    "posted rows are seen by what follows", "unit_test_db")
add("posted-failure-forgotten", "src/store/sqlite/db.c", "\tdb->failed = r;\n", "\tdb->failed = LAPSE_OK;\n",
    "a posted row that cannot be written ends the transaction", "unit_test_db")
add("message-timestamp-future", "src/message/api.c", "b->timestamp < 0 || b->timestamp > c->tx->now", "false",
    "000: a dated message is not of the future",
    "tests/api/test_seed_000.py::test_a_platform_moves_its_messages_in_at_their_age")
add("message-timestamp-anyone", "src/message/api.c", "if (!c->admin)\n\t\treturn problem_set(&c->problem, LAPSE_EFORBIDDEN, \"timestamp\"",
    "if (false)\n\t\treturn problem_set(&c->problem, LAPSE_EFORBIDDEN, \"timestamp\"", "000: only an admin dates a message",
    "tests/api/test_seed_000.py::test_a_platform_moves_its_messages_in_at_their_age")
add("message-timestamp-dropped", "src/message/send.c", "m->timestamp = m->timestamp ? m->timestamp : tx->now;", "m->timestamp = tx->now;",
    "000: messages move in at their age", "tests/api/test_seed_000.py::test_a_platform_moves_its_messages_in_at_their_age")

# 001: presence ------------------------------------------------------------------------------------

P_RULES = "src/presence/rules.c"
FLEET = "src/presence/fleet.c"
EVICT = "src/presence/evict.c"
LEAVE = "src/presence/leave.c"
EVICT_TEST = "unit_test_presence_evict"
FLEET_TEST = "unit_test_presence_fleet"
RULES_TEST = "unit_test_presence_rules"
add("agent-due-at", P_RULES, "return time_sub(now, base) > evict_after;", "return time_sub(now, base) >= evict_after;",
    "001: 90 seconds exactly stay", RULES_TEST, EVICT_TEST)
add("agent-deadline-early", P_RULES, "return time_add(time_add(base, evict_after), 1);", "return time_add(base, evict_after);",
    "README: nothing is removed before its deadline", RULES_TEST)
add("agent-silent-early", P_RULES, "return evict_after - (check_ms < evict_after / 2 ? check_ms : evict_after / 2);", "return 0;",
    "README: the breaker counts silence of one threshold minus one check", RULES_TEST, FLEET_TEST)
add("breaker-at-half", P_RULES, "> v->tracked * rule->percent", ">= v->tracked * rule->percent",
    "README: the breaker trips for more than half", RULES_TEST)
add("breaker-no-minimum", P_RULES, "rule->percent > 0 && v->silent >= rule->least", "rule->percent > 0",
    "001: any agent older than 90 s is removed", RULES_TEST, EVICT_TEST)
add("breaker-cannot-be-off", P_RULES, "bool enough = rule->percent > 0 && ", "bool enough = ", "README: agent_breaker_percent 0 turns it off",
    RULES_TEST, EVICT_TEST)
add("breaker-never-closes", P_RULES, "presence_is_due(v->opened_at, evict_after, now) ? BREAKER_RELEASES",
    "presence_is_due(v->opened_at, evict_after, now) ? BREAKER_STAYS_OPEN", "README: the breaker closes by itself", RULES_TEST, FLEET_TEST)
add("suspects-stay-listed", P_RULES, "if (!presence_is_due(base, evict_after, now))\n\t\treturn AGENT_STAYS;",
    "if (!presence_is_due(base, evict_after, now) || (breaker_open && !overdue))\n\t\treturn AGENT_STAYS;",
    "001: a suspect is absent at its deadline", RULES_TEST, EVICT_TEST)
add("overdue-suspected", P_RULES, "return breaker_open && !overdue ? AGENT_SUSPECTED", "return breaker_open ? AGENT_SUSPECTED",
    "README: a hold released late does not protect again", RULES_TEST)
add("silent-not-uncounted", FLEET, "\tif (a->flags & AGENT_SILENT)\n\t\tcount_silent(f, i, false);\n\tif (a->flags & AGENT_PARKED)",
    "\tif (a->flags & AGENT_PARKED)", "README: a heartbeat ends silence", FLEET_TEST)
add("touch-keeps-place", FLEET, "\tunlink_agent(f, i);\n\ta->flags &= AGENT_UNTOLD;\n\tenqueue(f, i, at);\n", "\ta->flags = 0;\n\ta->base = at;\n",
    "001: a heartbeat keeps an agent", FLEET_TEST)
add("touch-without-time", FLEET, "a->last_seen = a->base;", "", "001: last_seen is the last heartbeat", FLEET_TEST)
add("park-forgets-overdue", FLEET, "(AGENT_PARKED | AGENT_OVERDUE | (held", "(AGENT_PARKED | (held", "001: an agent that failed to leave is tried again",
    EVICT_TEST)
add("unpark-nothing", FLEET, "\tif (parked->next == PARKED)\n\t\treturn;", "\treturn;", "001: F1, a failing removal is tried again", FLEET_TEST, EVICT_TEST)
add("rebase-keeps-silence", FLEET, "\t\tfleet_at(f, i)->base = f->newest;\n\t\tfleet_at(f, i)->flags &= AGENT_UNTOLD;", "\t\tfleet_at(f, i)->flags = 0;",
    "README: an accepted leap of the clock is no silence", FLEET_TEST, EVICT_TEST)
add("release-leaves-it-open", FLEET, "\tb->opened_at = LAPSE_NEVER;\n\tassert(f->open_count > 0);", "\tassert(f->open_count > 0);",
    "README: the breaker closes by itself", FLEET_TEST)
add("rows-of-the-future", EVICT, "return r == LAPSE_OK && ahead ? lower_seen(tx, now) : r;", "return r;",
    "001: any agent older than 90 s is removed", EVICT_TEST)
add("held-agents-evicted", EVICT, "\tif (c->holds) /* copies", "\tif (false) /* copies",
    "README: held rows are never removed", EVICT_TEST)
add("step-not-undone", EVICT, "\telse\n\t\ttx_step_undo(c->tx);", "\telse\n\t\ttx_step_end(c->tx);",
    "001: F1, a failing removal costs that step only", EVICT_TEST)
add("failing-step-stops-all", EVICT, "\treturn settle_apart(c, agents, n);", "\treturn r;", "001: F1, everyone else goes on time", EVICT_TEST)
add("breaker-for-all-owners", "src/presence/fleet.c", "p->breaker = breaker_take(f, t->owner);", "p->breaker = breaker_take(f, \"\");",
    "001: one owner's silence does not keep another's dead agent", "tests/api/test_seed_001.py::test_acceptance_an_owner_does_not_answer_for_another")
add("breaker-trip-unannounced", EVICT, "return step == BREAKER_TRIPS ? announce_breaker(c->tx, EVENT_BREAKER_TRIPPED, b, c->now)",
    "return false ? announce_breaker(c->tx, EVENT_BREAKER_TRIPPED, b, c->now)", "README: the breaker is visible", EVICT_TEST)
add("breaker-release-unannounced", EVICT, "if (fleet_breaker(c->fleet, b, false, c->now) == BREAKER_RELEASES)", "if (false)",
    "README: the breaker closes by itself", EVICT_TEST)
add("whole-check-keeps-parked", EVICT, "/* the first slice of a whole check */\n\t\tfleet_unpark(c->fleet);", "\n\t\t(void)w;",
    "001: F1, tried again at the next check", EVICT_TEST)
add("last-seen-never-written", EVICT, "if (a->id && a->last_seen >= f->flushed_at)", "if (false)", "README: last_seen is written at a clean stop", EVICT_TEST)
add("agent-hold-release-waits", EVICT, "\tif (until == 0 && i && fleet_at", "\tif (false && fleet_at", "README: a released hold's deadline counts at once", EVICT_TEST)
add("leap-ends-suspects", EVICT, "\tif (c->fleet->suspect_leaps != c->fleet->leaps)\n\t\tr = suspect_renew_all(c->tx);", "",
    "README: a clock that jumps deletes nothing", EVICT_TEST)
add("capabilities-stay", LEAVE, "\tr = presence_change_capabilities(tx, owner, agent, capabilities, \"[]\");\n", "",
    "001: CapabilityMap.remove_agent is called", EVICT_TEST)
add("eviction-without-event", LEAVE, "\tif (done > 0)\n\t\tr = presence_announce(tx, g.event", "\tif (false)\n\t\tr = presence_announce(tx, g.event",
    "README: every removal is visible", EVICT_TEST)
add("eviction-without-log", LEAVE, "\t\tif (g->event != EVENT_NONE)\n\t\t\tlog_farewell", "\t\tif (false)\n\t\t\tlog_farewell",
    "001: an :info log is emitted", EVICT_TEST)
add("eviction-log-debug", LEAVE, "log_open(log, &line, LOG_INFO, event_name(g->event));", "log_open(log, &line, LOG_WARN, event_name(g->event));",
    "001: the log has level info", EVICT_TEST)
add("suspect-not-kept", LEAVE, "int done = fate == AGENT_SUSPECTED ? suspect_keep(tx, g.id, g.last_seen, cutoff) : 1;", "int done = 1;",
    "README: heartbeats that come back find their capabilities", EVICT_TEST)
add("group-row-mismatch", LEAVE, "DB_ROWS_OR((int64_t)all->n, LAPSE_ERETRY)", "DB_ANY",
    "README: a renewal that came first wins", EVICT_TEST)
add("suspect-record-for-ever", "src/presence/suspect.c", "presence_is_due(s->suspected_at, f->evict_after, tx->now);", "false;",
    "README: a suspect's record is kept one threshold", EVICT_TEST)
add("suspect-loses-first-seen", "src/presence/presence.c", "\trow->first_seen = s.first_seen;\n", "", "README: a suspect comes back as it was", EVICT_TEST)
add("suspect-loses-capabilities", "src/presence/presence.c", "\trow->capabilities = s.capabilities;\n", "", "README: a suspect comes back as it was", EVICT_TEST)
add("suspect-not-dropped", "src/presence/presence.c", "\treturn suspect_drop(tx, s.id);\n}\n\nstatic const char *newer", "\treturn LAPSE_OK;\n}\n\nstatic const char *newer",
    "README: an agent is live or a suspect, not both", EVICT_TEST)
add("late-beat-keeps-capabilities", "src/presence/presence.c", "fleet_fate(f, i, tx->now) != AGENT_EVICTED ||", "true ||",
    "001: an evicted agent comes back without its capabilities", EVICT_TEST)
add("agents-without-limit", "src/presence/presence.c", "tx_live(tx, &AGENT_BOUND) >= e->settings->agents_max", "false",
    "README: the number of agents is bounded by refusal", EVICT_TEST)
add("due-agents-shown", "src/presence/view.c", "if (gone && !(v->suspect && include_suspect))", "if (false)",
    "README: nothing past its lifetime is served as live", EVICT_TEST)
add("due-agents-counted", "src/presence/view.c", "int64_t agents = db_int(&q, 1) - count_gone(tx, owner, name);", "int64_t agents = db_int(&q, 1);",
    "README: nothing past its lifetime is served as live", EVICT_TEST)

# 002: mailboxes -----------------------------------------------------------------------------------

M_RULES = "src/mailbox/rules.c"
MAILBOX = "src/mailbox/mailbox.c"
EXPIRE = "src/mailbox/expire.c"
M_TEST = "unit_test_mailbox"
MR_TEST = "unit_test_mailbox_rules"
S2 = "tests/api/test_seed_002.py::"
add("mailbox-due-at", M_RULES, "return expires_at < now;", "return expires_at <= now;", "002: expires_at < now", MR_TEST)
add("mailbox-deadline-early", M_RULES, "return time_add(expires_at, 1);", "return expires_at;", "README: nothing is removed before its deadline", MR_TEST)
add("mailbox-info-refused", M_RULES, "use == MAILBOX_INFO ? MAILBOX_SHOW_EXPIRED", "use == MAILBOX_INFO ? MAILBOX_REFUSE", "002: GET shows an expired mailbox", MR_TEST)
add("mailbox-operate-allowed", M_RULES, ": MAILBOX_REFUSE;", ": MAILBOX_SHOW_EXPIRED;", "002: an operation on an expired mailbox is 410", MR_TEST)
add("mailbox-look-does-not-expire", M_RULES, "return (struct mailbox_verdict){ over, true };", "return (struct mailbox_verdict){ over, false };",
    "002: the lazy check expires", MR_TEST)
add("mailbox-deleted-shown", M_RULES, "return (struct mailbox_verdict){ MAILBOX_HIDE, false };", "return (struct mailbox_verdict){ over, false };",
    "002: a deleted mailbox is 404", MR_TEST)
add("mailbox-flag-dead", M_RULES, "\treturn -1;\n}", "\treturn 1;\n}", "002: -1 when it gave up", MR_TEST)
add("mailbox-flag-pending", M_RULES, "\tcase CLEANUP_PENDING:\n\t\treturn 1;", "\tcase CLEANUP_PENDING:\n\t\treturn 0;", "002: 1 while its deletion is pending", MR_TEST)
add("mailbox-usernames-any", M_RULES, "if (!is_letter_or_digit(text[i]) && !joins)", "if (false)", "002: usernames are valid", MR_TEST)
add("mailbox-held-expires", MAILBOX, "\treturn held < 0 ? held : !held;\n}\n\nint mailbox_expire(", "\treturn 1;\n}\n\nint mailbox_expire(",
    "README: held rows are never removed", M_TEST)
add("mailbox-restored-expires", MAILBOX, "\tif (guard_in_grace(tx->engine->restored_at, 0, tx->now))\n\t\treturn 0;", "",
    "README: a restored database deletes nothing for one grace period", M_TEST)
add("mailbox-account-stays", MAILBOX, "\treturn cleanup_add_at(tx, m->owner, &CLEANUP_MAILBOX, id, at);", "\treturn LAPSE_OK;",
    "002: the principal is deleted", S2 + "test_expire_mailbox_on_active_row_with_past_expires_at")
add("mailbox-list-expires-one", MAILBOX, "#define OWNED_AT_ONCE 100", "#define OWNED_AT_ONCE 1",
    "002: lists trigger expiry", S2 + "test_one_list_expires_every_mailbox_that_is_due")
add("mailbox-renew-expired", MAILBOX, "\"AND expires_at >= $3\"\n};\n\nint mailbox_renew", "\"AND $3 = $3\"\n};\n\nint mailbox_renew",
    "002: renewing an expired mailbox is 410", M_TEST)
add("mailbox-renew-from-the-end", MAILBOX, "m->expires_at = time_add(tx->now, ttl_ms);", "m->expires_at = time_add(m->expires_at, ttl_ms);",
    "002: renew counts from now", S2 + "test_renew_mailbox_on_active_mailbox")
add("mailbox-foreign-owner", MAILBOX, "if (r <= 0 || strcmp(m.owner, owner) != 0)", "if (r <= 0)", "002: a mailbox of another owner is 404",
    S2 + "test_renew_mailbox_on_non_owned_mailbox")
add("mailbox-timer-retries-nothing", EXPIRE, "first && !w->by_deadline ? look_after(w, tx) : LAPSE_OK", "LAPSE_OK",
    "002: the sweep retries failed deletions", DEFAULTS)
add("mailbox-retries-one-a-sweep", EXPIRE, "#define RETRIES_A_SWEEP 10", "#define RETRIES_A_SWEEP 1", "002: ten retries a sweep", DEFAULTS)
add("mailbox-batch-ignored", EXPIRE, "return w->engine->settings->mailbox_sweep_batch - w->outside.expired;", "return INT64_MAX;",
    "002: one sweep expires one batch", DEFAULTS)
add("mailbox-deadline-ignored", EXPIRE, "return at == LAPSE_NEVER ? at : mailbox_deadline(at);", "return LAPSE_NEVER;",
    "README: expired at the deadline", "tests/api/test_mailboxes.py::test_the_deadline_comes_by_itself")
add("mailbox-hold-release-waits", EXPIRE, "\t.hold_changed = hold_on_mailbox_changed,\n", "", "README: a released hold's deadline counts at once",
    "tests/api/test_mailboxes.py::test_a_held_mailbox_is_over_but_nothing_of_it_goes")
add("mailbox-hold-end-waits", EXPIRE, "\t\tr = read_earliest_held(tx, now, at);\n", "\t\tr = LAPSE_OK;\n", "README: a hold's end is a deadline",
    "tests/api/test_mailboxes.py::test_the_end_of_a_hold_is_a_deadline")
add("mailbox-expired-kept-dirty", EXPIRE, ', IS_INT("stalwart_cleanup_failed", 0)),', "),", "002: a row waits for its deletion", M_TEST)
add("mailbox-deleted-by-address", "src/mailbox/outside.c", ".name = m->stalwart_name", ".name = m->address", "002: delete_principal uses stalwart_name",
    S2 + "test_closing_delete_principal_uses_stalwart_name")
add("mailbox-index-dropped", "src/store/schema/004_mailboxes.sql", "CREATE INDEX idx_mailboxes_expiry ON mailboxes (status, expires_at);\n", "",
    "002: idx_mailboxes_expiry", "unit_test_bound")

# 003: attachments ---------------------------------------------------------------------------------

A_RULES = "src/attachment/rules.c"
ATTACHMENT = "src/attachment/attachment.c"
AR_TEST = "unit_test_attachment_rules"
S3 = "tests/api/test_seed_003.py::"
add("attachment-due-after", A_RULES, "due_at != LAPSE_NEVER && due_at <= now", "due_at != LAPSE_NEVER && due_at < now", "003: due when now - inserted_at >= ttl", AR_TEST)
add("attachment-persistent-due", A_RULES, "return t->persist || t->ttl_ms == LAPSE_NEVER ? LAPSE_NEVER", "return t->ttl_ms == LAPSE_NEVER ? LAPSE_NEVER",
    "003: persistent attachments are never removed", AR_TEST)
add("attachment-persist-downgraded", A_RULES, "had->persist || wanted->persist", "wanted->persist", "003: persist is only upgraded", AR_TEST)
add("attachment-ttl-shortened", A_RULES, "had->ttl_ms > wanted->ttl_ms ? had->ttl_ms", "had->ttl_ms < wanted->ttl_ms ? had->ttl_ms",
    "003: staging again stretches ttl, never shortens", AR_TEST)
add("attachment-sweeps-persistent", "src/attachment/expire.c", '\t.only = BOUND_ONLY(IS_INT("persist", 0)),\n', "", "README: persistent files are never removed",
    S3 + "test_question_a_persistent_attachment_stays_whatever_its_deadline_says")
add("attachment-file-stays", "src/attachment/expire.c", "\t\t\tint r = attachment_doom(tx, &a);\n", "\t\t\tint r = LAPSE_OK;\n", "003: the file goes with the row",
    S3 + "test_on_cleanup_the_file_and_the_row_go")
add("attachment-cleaned-unannounced", "src/attachment/expire.c", '\t\t\t\tr = attachment_announce_cleaned(tx, &a, "expired");\n', "\t\t\t\tr = LAPSE_OK;\n",
    "003: one event per attachment", S3 + "test_telemetry_manual_cleanup_emits_one_event_per_attachment")
add("attachment-totals-drift", "src/attachment/expire.c", "gone.total_bytes -= a.size;", "gone.total_bytes -= 0;", "003: metrics are exact",
    S3 + "test_note_force_cleanup_prunes_only_expired_non_persistent")
add("attachment-not-refreshed", ATTACHMENT, "\ta->inserted_at = tx->now;\n\ta->due_at = attachment_due_at(&a->terms, tx->now);\n\ta->cached = true;",
    "\ta->cached = true;", "003: the same checksum refreshes inserted_at", S3 + "test_note_same_checksum_refreshes_inserted_at")
add("attachment-not-cached", ATTACHMENT, "\ta->cached = true;\n\tint r = refresh_row", "\ta->cached = false;\n\tint r = refresh_row",
    "003: cached says that the bytes were here", S3 + "test_verification_property_staging_repeatedly_is_idempotent")
add("attachment-due-served", ATTACHMENT, "\tif (attachment_is_due(a.due_at, tx->now))\n", "\tif (false)\n", "README: nothing past its lifetime is served as live",
    S3 + "test_verification_ttl_boundary_is_at_least")
add("attachment-no-total-limit", ATTACHMENT, "int r = check_owner_room(tx, a->owner, a->size, p);", "int r = LAPSE_OK;", "README: everything is bounded",
    "tests/api/test_attachments.py")
add("attachment-fleet-cleans-all", ATTACHMENT, 'FROM attachments WHERE owner = $2 AND persist = 0 AND due_at <= $1 "',
    'FROM attachments WHERE $2 = $2 AND persist = 0 AND due_at <= $1 "', "003: a fleet cleans up its own",
    "tests/api/test_attachments.py::test_a_fleet_cleans_up_and_stages_what_is_its_own")
add("attachment-path-to-strangers", "src/attachment/api.c", "if (!c->is_local || !d->root ||", "if (!d->root ||",
    "003: a path is for callers on this host", "tests/api/test_attachments.py::test_a_path_is_shown_to_callers_on_this_host")
add("attachment-path-hidden", "src/attachment/api.c", "\tjson_put_text(out, \"path\", buf_text(&whole));\n", "",
    "003: a staged file is handed to a local program", "tests/api/test_attachments.py::test_a_path_is_shown_to_callers_on_this_host")
add("attachment-cleanup-answers-early", "src/attachment/api.c", "if (r == LAPSE_OK && untried && left > 0) {", "if (false) {", "003: the cleanup answers when its files are gone",
    "tests/api/test_attachments.py::test_a_cleanup_answers_when_its_files_are_gone_or_says_how_many_remain")
add("attachment-path-to-anyone", "src/attachment/api.c", "if (!c->is_local || !d->root ||", "if (!d->root ||", "README: a path is for callers on the same host",
    "tests/api/test_attachments.py::test_a_path_is_shown_to_callers_on_this_host")
add("attachment-infinity-refused", "src/base/settings.c", "if (row->takes_infinity && strcmp(value, TTL_INFINITY) == 0) {", "if (false) {", "003: :ttl takes :infinity", "unit_test_settings")

# Deletions outside --------------------------------------------------------------------------------

CLEANUP = "src/engine/cleanup.c"
OUTCOME = "src/engine/cleanup_outcome.c"
C_TEST = "unit_test_cleanup"
add("cleanup-taken-twice", CLEANUP, "if (!cleanup_is_under_way(tx->engine, k, db_int(&q, 0)))", "if (true)", "README: repeating is harmless, but one runs at a time", C_TEST)
add("cleanup-lease-outlives", CLEANUP, "\treturn void_leases(e);", "\treturn LAPSE_OK;", "README: a deletion is never forgotten, nor late after a kill", C_TEST)
add("cleanup-start-ends-pauses", CLEANUP, 'WHERE state = 1 AND taken > 0 "', 'WHERE state = 1 "', "README: an unknown creation gets its time", C_TEST)
add("cleanup-dead-early", OUTCOME, "return c->attempts + 1 >= cleanup_attempts_max(e, c->kind)", "return c->attempts + 2 >= cleanup_attempts_max(e, c->kind)",
    "002: three attempts in all", C_TEST)
add("cleanup-never-dead", OUTCOME, "? CLEANUP_DEAD : CLEANUP_PENDING;", "? CLEANUP_PENDING : CLEANUP_PENDING;", "README: it ends as a dead letter a person can see", C_TEST)
add("cleanup-forgotten", OUTCOME, "int r = o.state == CLEANUP_DONE ? outcome_write_done(tx, c)",
    "int r = true ? outcome_write_done(tx, c)", "README: a deletion outside is never forgotten", C_TEST)
add("cleanup-unnamed-targets", OUTCOME, "\tif (count > 1)\n\t\toutcome_put_targets", "\tif (false)\n\t\toutcome_put_targets", "README: every failure is visible", C_TEST)
add("cleanup-unannounced", OUTCOME, "\t\tr = outcome_announce(tx, c, &o);", "\t\tr = LAPSE_OK;", "README: every failure is visible", C_TEST)
add("dead-letter-drop-forgets-room", "src/engine/deadletter.c", "\t\tr = tell_room_of_letter(tx, &d, CLEANUP_DROPPED);", "\t\tr = LAPSE_OK;", "README: a person can drop it", C_TEST)
add("dead-letter-keeps-attempts", "src/engine/deadletter.c", "UPDATE cleanups SET state = 1, attempts = 0, next_at = $2", "UPDATE cleanups SET state = 1, next_at = $2",
    "README: a person can retry it", C_TEST)
add("dead-letter-retry-ignores-kind", "src/engine/deadletter.c", "($2 = '' OR kind = $2)", "($2 = $2)", "README: retries by kind",
    "tests/api/test_dead_letters.py::test_some_are_chosen_by_kind_and_by_age")
add("dead-letter-retry-ignores-age", "src/engine/deadletter.c", "AND created_at < $3", "AND $3 = $3", "README: retries by age",
    "tests/api/test_dead_letters.py::test_some_are_chosen_by_kind_and_by_age")
add("provider-believes-404", "src/provider/stalwart_account.c", "\tcase REST_DONE:\n\t\tjob_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,\n\t\t\t\t       \"the mail server answered 404",
    "\tcase REST_DONE:\n\t\tjob_end(j, LAPSE_OK);\n\t\tbreak;\n\t\tjob_end(j, problem_set(&j->op->problem, LAPSE_EUPSTREAM, NULL,\n\t\t\t\t       \"the mail server answered 404",
    "README: a deletion outside ends done or as a dead letter", "unit_test_stalwart")
add("provider-foreign-account", "src/provider/stalwart_account.c", "else if (strcmp(a.mark, mark_of(j)) == 0)", "else if (true)", "README: accounts that are not ours stay", "unit_test_stalwart")

# Guards, holds, transactions ----------------------------------------------------------------------

GUARD = "src/engine/guard.c"
G_TEST = "unit_test_guard"
add("guard-trusts-leaps", GUARD, "if (leap > g->jump_max_ms) {", "if (false) {", "README: a clock that jumps deletes nothing", G_TEST)
add("guard-goes-back", GUARD, "if (g->jumped || wall < own_pace) {", "if (g->jumped) {", "README: trusted time never goes back", G_TEST)
add("guard-proves-large-leaps", GUARD, "return g->leap_ms <= LEAP_AUTO_ACCEPT_MS &&\n\t       mono", "return mono", "README: a large leap needs a person", G_TEST)
add("guard-proves-at-once", GUARD, "mono - g->steady_since >= g->accept_after_ms * 1000", "true", "README: a leap must stay steady first", G_TEST)
add("guard-forgets-mark", GUARD, "\tif (high_water > g->trusted)\n\t\tg->trusted = high_water;", "", "README: trusted time survives restarts", G_TEST)
add("guard-no-grace", GUARD, "return restored_at > 0 && now < guard_grace_end(restored_at, window);", "return false;", "README: a restored database deletes nothing for one grace period", G_TEST)
HOLD = "src/engine/hold.c"
add("hold-ended-listed", HOLD, " FROM holds WHERE owner = $1 AND id < $2 AND until > $3 ", " FROM holds WHERE owner = $1 AND id < $2 AND $3 = $3 ", "README: a hold ends by itself", "unit_test_hold")
add("hold-without-limit", HOLD, "if (db_int(&q, 0) > max)", "if (false)", "README: everything is bounded", "unit_test_hold")
add("hold-foreign-owner", HOLD, '"DELETE FROM holds WHERE owner = $1 AND tbl = $2 AND key = $3 AND until > $4"',
    '"DELETE FROM holds WHERE $1 = $1 AND tbl = $2 AND key = $3 AND until > $4"', "README: owners are apart", "unit_test_hold")

# Bounded under abuse ------------------------------------------------------------------------------

add("broadcast-without-limit", "src/message/send.c", "if (n == 1 || bytes <= max / (int64_t)n)", "if (n >= 1 || bytes <= max)",
    "a message to many agents makes at most broadcast_max_bytes of copies",
    "tests/api/test_abuse_stall.py::test_a_broadcast_is_bounded_by_its_copies")
add("body-of-strangers-kept", "src/http/request.c", "if (is_streamed(r) || r->err < 0) {", "if (is_streamed(r)) {",
    "the body of a request that has failed already is dropped as it comes",
    "tests/api/test_abuse_wire.py::test_bodies_of_strangers_are_dropped_as_they_come")
add("proxy-trusted-by-address", "src/http/auth.c", "return r->loopback && !e->settings->behind_tls_proxy;", "return r->loopback;",
    "behind a proxy nobody is trusted by address",
    "tests/api/test_abuse_trust.py::test_behind_a_proxy_nobody_is_trusted_by_address")
add("header-name-no-token", "src/http/head.c", "if (!is_token(name, name_len))", "if (name_len == 0)",
    "a name that is no token is 400 and closes",
    "tests/api/test_abuse_wire.py::test_a_head_that_is_no_proper_one_is_400_and_the_end")
add("long-poll-of-a-revoked-token", "src/http/turn.c", "c->polled ? request_check_caller(r) : LAPSE_OK", "LAPSE_OK",
    "a long poll whose token was revoked meanwhile gets nothing",
    "tests/api/test_abuse_trust.py::test_a_long_poll_of_a_revoked_token_gets_nothing")
add("nobody-to-answer", "src/http/turn.c", "if (!r->connection) {\n\t\tserver_forget(r);", "if (!r->connection) {",
    "a request whose client has left is over when it is done",
    "tests/api/test_turn.py::test_clients_that_leave_before_their_answer_disturb_nobody")
add("left-in-the-middle", "src/http/server.c", "\t\trequest_part(r);", "\t\tserver_forget(r);",
    "a request in a turn outlives its connection",
    "tests/api/test_turn.py::test_clients_that_leave_before_their_answer_disturb_nobody")
add("places-for-whoever-comes", "src/http/transfer.c", "count < max - max / 4 || (count < max && !has_place(s, owner))",
    "count < max", "uploads of one owner leave room for another's",
    "tests/api/test_abuse_owners.py::test_transfers_of_one_owner_leave_room_for_another")
add("scope-of-any-room", "src/engine/scope.c", "room == SCOPE_FREE || (set & scope_bit(room, writes)) != 0", "set != 0",
    "a scope of one room opens that room only",
    "tests/api/test_scopes.py::test_a_scope_of_one_room_opens_that_room_only")
add("tools-without-scopes", "src/mcp/door.c", "r->err = auth_allows(r->route, c->admin, c->scopes, &c->problem);",
    "r->err = auth_allows(r->route, c->admin, SCOPE_ALL, &c->problem);", "tools obey scopes",
    "tests/api/test_scopes.py::test_tools_obey_scopes")
add("tools-without-a-tree", "src/http/request.c", "r->call.needs_tree = is_mcp(r);", "r->call.needs_tree = false;",
    "a message for tools may be flat", "tests/mcp/test_mcp.py::test_ping_answers_nothing_at_all")
add("scopes-given-away", "src/api/token.c", "if (set & ~c->scopes)", "if (set & ~SCOPE_ALL)",
    "a token can only give scopes that it has itself",
    "tests/api/test_scopes.py::test_nobody_gives_away_what_it_does_not_have")
add("agents-of-one-owner", "src/presence/presence.c", "own < quota_of(e, owner, QUOTA_AGENTS)", "own >= 0",
    "one owner cannot take the room of another",
    "tests/api/test_abuse_owners.py::test_one_owner_cannot_take_the_room_of_another")
add("mailbox-room-kept", "src/mailbox/mailbox.c", "return r <= 0 ? r : quota_give_back(tx, m->owner, QUOTA_MAILBOXES);",
    "return r < 0 ? r : LAPSE_OK;", "a mailbox that goes makes room",
    "tests/api/test_abuse_owners.py::test_what_goes_makes_room")
add("matrix-of-all-owners", "src/api/engine.c", "c->admin ? NULL : c->owner", "NULL",
    "a token that is no admin's sees only its own counts",
    "tests/api/test_abuse_owners.py::test_the_matrix_tells_an_owner_only_its_own_counts")

# One for each line of the abuses that were found, where none is above.
add("timer-of-zero", "src/http/server.c", "\t\tuv_idle_start(&s->again, on_server_again);",
    "\t\t(void)on_server_again, uv_timer_start(&s->timer, on_server_timer, 0, 0);", "the loop looks around between two pumps",
    "tests/api/test_abuse_fair.py::test_the_loop_looks_around_however_long_the_queue_is")
add("queue-by-arrival", "src/http/fairness.c", "*last = *last + 1 > q->served ? *last + 1 : q->served;", "*last = 0;",
    "an owner with many requests waits for itself",
    "tests/api/test_abuse_fair.py::test_the_only_request_of_an_owner_does_not_wait_for_all_of_another")
add("replies-without-deadline", "src/http/connection.c", "\t\treturn set->reply_timeout_ms * 1000;", "\t\treturn INT64_MAX / 2;",
    "every reply has a deadline", "tests/api/test_abuse_wire.py::test_a_client_that_never_reads_is_let_go")
add("claim-without-bytes", "src/message/claim.c", "while (w.rows < limit && w.bytes < max_bytes) {", "while (w.rows < limit) {",
    "a claim has a limit of bytes", "tests/api/test_abuse_stall.py::test_a_claim_ends_after_a_megabyte")
add("deletion-outside", "src/base/file.c", "RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |\n\t\t\t\t\t   RESOLVE_NO_MAGICLINKS",
    "RESOLVE_NO_MAGICLINKS", "a deletion in the store cannot leave the directory",
    "tests/cli/test_abuse_restore.py::test_a_deletion_in_the_store_cannot_leave_the_directory")
add("restore-any-schema", "src/store/sqlite/restore_check.c", "static bool is_same_object(const struct db_query *a, const struct db_query *b)\n{",
    "static bool is_same_object(const struct db_query *a, const struct db_query *b)\n{\n\tif (a && b)\n\t\treturn true;",
    "restore compares the schema with the expected one",
    "tests/cli/test_abuse_restore.py::test_a_backup_that_lapse_did_not_write_is_refused")
add("restore-any-row", "src/store/sqlite/restore_check.c", "static bool obeys_rules(const char *table, const char *column, const char *text)\n{",
    "static bool obeys_rules(const char *table, const char *column, const char *text)\n{\n\tif (table && column)\n\t\treturn true;",
    "restore validates rows that code trusts",
    "tests/cli/test_abuse_restore.py::test_a_backup_that_lapse_did_not_write_is_refused")
add("one-client-too-many-waits", "src/http/connection.c", "if (++s->connections.count > s->engine->settings->connections_max)",
    "if (++s->connections.count < 0)", "past the limit a client gets 503 at once",
    "tests/api/test_abuse_wire.py::test_past_the_limit_a_client_gets_503_at_once")
add("half-requests-wait-long", "src/http/connection.c", "int64_t head = set->head_timeout_ms,", "int64_t head = set->request_timeout_ms,",
    "half requests have a short deadline of their own",
    "tests/api/test_abuse_wire.py::test_half_requests_have_a_short_deadline_of_their_own")
add("hang-ups-not-looked-for", "src/http/connection.c", "\thangups_look(s);\n", "",
    "long polls of clients that hung up leave room",
    "tests/api/test_abuse_wire.py::test_long_polls_of_clients_that_hung_up_leave_room_for_others")
add("hang-ups-by-the-clock-alone", "src/http/hangup.c", "c->since_look <= max / HANGUP_LOOK_SHARE", "true",
    "long polls of clients that hung up leave room, however fast they come",
    "tests/api/test_abuse_wire.py::test_long_polls_of_clients_that_hung_up_leave_room_for_others")
add("every-poll-a-hang-up", "src/http/hangup.c", "if (sockets[i].revents != 0)", "if (sockets[i].revents != POLLNVAL)",
    "long polls that go on are not disturbed",
    "tests/api/test_abuse_wire.py::test_long_polls_that_go_on_are_not_disturbed_when_connections_are_scarce")
add("uploads-in-flight-free", "src/http/upload.c", "\t\tr->call.flying += u->received;", "\t\tr->call.flying += 0;",
    "bytes of unfinished uploads count", "tests/api/test_abuse_fill.py::test_bytes_of_unfinished_uploads_count")
add("long-bodies-all-at-once", "src/http/pace.c", "\tif (!is_first && p->places == 0) {", "\tif (!is_first && p->places > PACE_PLACES) {",
    "long bodies that come together take turns",
    "tests/api/test_abuse_fair.py::test_many_long_bodies_take_turns_and_few_do_not")
add("few-long-bodies-wait", "src/http/pace.h", "#define PACE_PLACES 16", "#define PACE_PLACES 1",
    "as many senders as there are places never wait",
    "tests/api/test_abuse_fair.py::test_many_long_bodies_take_turns_and_few_do_not")
add("waiting-bodies-outlive-a-stop", "src/http/pace.c", "s->pumped < p->next && !s->stopping)", "s->pumped < p->next + s->stopping * INT64_C(1000000000))",
    "while the server stops, bodies that wait go on",
    "tests/api/test_abuse_fair.py::test_the_daemon_stops_while_long_bodies_wait")
add("inboxes-without-limit", "src/message/unread.c", "int r = p ? usage_admit(tx, owner, QUOTA_INBOXES, 1, p) : LAPSE_OK;", "int r = LAPSE_OK;\n\n\t(void)p;",
    "the inboxes of an owner are bounded",
    "tests/api/test_abuse_owners.py::test_an_inbox_that_is_there_takes_more_messages")
add("inbox-room-kept", "src/message/prune.c", "\tusage_take_off(tx, first->owner, QUOTA_INBOXES, db_changed(&q));", "",
    "an inbox that is empty makes room", "tests/api/test_abuse_owners.py::test_an_inbox_that_is_empty_makes_room")
add("stored-bytes-kept", "src/engine/sweep.c", "\tif (b->spec->bytes)\n\t\tusage_settle(tx, rows, n);", "",
    "what is pruned gives back its bytes",
    "tests/api/test_abuse_owners.py::test_the_bytes_of_messages_are_bounded_and_come_back")
add("usage-of-an-undone-step", "src/engine/tx.c", "\tusage_step_undo(tx);\n", "",
    "what was refused takes no bytes", "tests/api/test_abuse_owners.py::test_what_was_refused_takes_no_bytes")
add("usage-not-written", "src/engine/usage.c", "\t\tif (d->n != d->written)\n", "\t\tif ((d->written = d->n) == INT64_MIN)\n",
    "stored bytes survive a restart",
    "tests/api/test_abuse_owners.py::test_the_bytes_of_messages_are_bounded_and_come_back")
add("mails-twice", "src/provider/jmap_read.c", "if (has_duplicates(ids))", "if (has_duplicates(ids) && false)",
    "a mail server that lists a mail twice is refused", "tests/api/test_abuse_mail.py::test_one_id_a_thousand_times_is_refused")
add("directory-of-others", "src/store/datadir.c", "\t\tif (!is_expected(entry->d_name))", "\t\tif (!is_expected(entry->d_name) && false)",
    "a directory of other files is refused",
    "tests/cli/test_abuse_restore.py::test_a_directory_of_other_files_is_left_as_it_is")
add("hostile-json-shown", "src/cli/show/show.c", "\thostile_escape_json(&safe, json, n);", "\tbuf_add(&safe, json, n);",
    "hostile characters are escaped in JSON", "tests/cli/test_abuse_output.py::test_hostile_characters_are_escaped_in_json")
add("cursors-in-a-circle", "src/cli/client/pages.c", "if (c->mark && strcmp(c->mark, cursor) == 0)", "if (c->mark && strcmp(c->mark, cursor) == 0 && false)",
    "a server that repeats its cursor is left", "tests/cli/test_abuse_output.py::test_a_server_that_repeats_its_cursor_is_left")
add("absolute-form-without-host", "src/http/request.c", "\tif (host)\n\t\tr->head.host = arena_strndup(&r->call.arena, host, n);", "\t(void)n;",
    "the host of the absolute form counts", "tests/api/test_abuse_wire.py::test_the_host_of_the_absolute_form_counts")
add("looking-marks", "src/provider/local.c", "op->verb == PROVIDER_READ && !m->read", "!m->read",
    "GET and HEAD of a mail change nothing", "tests/api/test_abuse_mail.py::test_looking_at_a_mail_does_not_mark_it")
add("old-tls", "src/daemon/tls.h", '"NORMAL:-VERS-TLS1.0:-VERS-TLS1.1:-VERS-DTLS-ALL"', '"NORMAL:+VERS-TLS1.0:+VERS-TLS1.1:%COMPAT"',
    "TLS 1.2 at least", "tests/api/test_listen.py::test_old_tls_is_refused")
add("open-secrets", "src/base/secret.c", "if ((st.st_mode & (st.st_uid == geteuid() ? 0077 : 0027)) != 0)", "if (st.st_mode == 0)",
    "a secret file that others can read is refused", "tests/api/test_listen.py::test_a_key_that_others_can_read_is_refused")
add("any-number-of-values", "src/api/call.c", "c->text_len, c->engine->settings->body_max_values,", "c->text_len, INT64_MAX,",
    "a body has a limit of values", "tests/api/test_abuse_stall.py::test_a_body_has_a_limit_of_values")
add("any-number-of-capabilities", "src/presence/api.c", "\t\tif (changed > BEATS_CAPABILITIES_MAX)", "\t\tif (changed == SIZE_MAX)",
    "a batch changes a bounded number of capabilities",
    "tests/api/test_abuse_stall.py::test_a_batch_changes_a_bounded_number_of_capabilities")
add("old-certificate-kept", "src/daemon/tls.c", "\tcurrent = pair;\n", "\tif (!current)\n\t\tcurrent = pair;\n",
    "SIGHUP reads the certificate again", "tests/api/test_listen.py::test_sighup_reads_the_certificate_again")
add("malformed-length-left-to-the-library", "src/http/server.c", "if (strstr(format, \"Content-Length\"))", "if (strstr(format, \"Content-Lengths\"))",
    "a length that is no number gets one 400", "tests/api/test_abuse_wire.py::test_a_length_that_is_no_number_gets_one_400")
add("no-host-is-fine", "src/http/head.c", "\tif (!h->host && !is_old)", "\tif (!h->host && !is_old && h->hosts)",
    "a request without Host is 400", "tests/api/test_abuse_wire.py::test_no_host_is_our_400")
add("long-name-is-the-disks", "src/attachment/stage_api.c", "\tcase ENAMETOOLONG:\n\t\treturn problem_set(p, LAPSE_EINVAL,",
    "\tcase ENAMETOOLONG:\n\t\treturn problem_set(p, LAPSE_EUNAVAILABLE,",
    "a name that is too long is 400", "tests/api/test_abuse_wire.py::test_a_long_name_of_a_file_to_stage_is_400")
add("never-304", "src/http/send.c", "if (is_not_modified(r, etag)) {", "if (is_not_modified(r, etag) && *status == 0) {",
    "If-None-Match of the same state is 304", "tests/api/test_abuse_manners.py::test_if_none_match_of_the_same_state_is_304")
add("no-retry-after", "src/http/send.c", "if (status == 503 || status == 429)", "if (status == 503)",
    "429 says when to come again", "tests/api/test_abuse_manners.py::test_a_limit_says_when_to_come_again")
add("no-location", "src/http/send.c", "if (status == 201 && r->call.location)", "if (status == 0 && r->call.location)",
    "201 says where it is", "tests/api/test_abuse_manners.py::test_what_was_made_says_where_it_is")
SCOPES = "tests/api/test_scopes.py::"
add("token-made-silently", "src/engine/token.c", "return r < 0 ? r : token_announce(tx, EVENT_TOKEN_CREATED, token, by);", "return r < 0 || !by ? r : LAPSE_OK;",
    "a token that is made leaves an event", SCOPES + "test_tokens_and_backups_leave_events_for_admins")
add("token-revoked-silently", "src/engine/token.c", "return token_announce(tx, EVENT_TOKEN_REVOKED, &t, by);", "return t.owner && by ? LAPSE_OK : LAPSE_OK;",
    "a token that is revoked leaves an event", SCOPES + "test_tokens_and_backups_leave_events_for_admins")
add("backup-made-silently", "src/api/engine.c", "return event_add(c->tx, \"\", EVENT_BACKUP_MADE, &data);", "return LAPSE_OK;",
    "a backup leaves an event", SCOPES + "test_tokens_and_backups_leave_events_for_admins")
add("restored-silently", "src/daemon/audit.c", "return r < 0 ? r : event_add(tx, \"\", EVENT_STORE_RESTORED, &data);", "return r;",
    "a restore leaves an event", "tests/cli/test_abuse_restore.py::test_a_restore_is_told_once")
add("settings-in-silence", "src/daemon/audit.c", "return event_add(tx, \"\", EVENT_SETTINGS_IN_FORCE, &data);", "return tx ? LAPSE_OK : LAPSE_EINTERNAL;",
    "the settings in force are in the events", SCOPES + "test_the_settings_in_force_are_in_the_events_of_a_start")
add("last-use-not-noted", "src/http/request.c", "\t\ttoken_used(r->server->engine, caller.token);\n", "",
    "a token's last use is noted", SCOPES + "test_names_scopes_and_last_use_are_listed_and_survive")

# 004: operational tables --------------------------------------------------------------------------

SEED_004 = "tests/api/test_seed_004.py::"
for name, old, new, breaks in [
    ("table-interval-50min", "table_sweep_ms, 300000,", "table_sweep_ms, 3000000,", "004: the statestore sweep runs every 5 minutes"),
    ("outbox-interval-50min", "outbox_sweep_ms, 300000,", "outbox_sweep_ms, 3000000,", "004: the outbox sweep runs every 5 minutes"),
    ("outbox-keep-48h", "outbox_keep_ms, DAY_MS,", "outbox_keep_ms, 2 * DAY_MS,", "004: the outbox keeps 24 hours"),
    ("dedupe-window-48h", "dedupe_window_ms, DAY_MS,", "dedupe_window_ms, 2 * DAY_MS,", "004: the dedupe window is 24 hours"),
    ("presence-entries-5000", "presence_entries_max, 500,", "presence_entries_max, 5000,", "004: presence entries are capped"),
]:
    add(name, SETTINGS, old, new, breaks, DEFAULTS)

add("lease-taken-early", "src/optable/rules.c", "if (optable_is_over(expires_at, now))", "if (optable_is_over(expires_at, now + 1))",
    "004: only expired leases are removed", "unit_test_optable_rules")
add("lease-stolen", "src/optable/rules.c", "return same_holder ? LEASE_RENEW : LEASE_REFUSE;", "return LEASE_RENEW;",
    "004: active owners must renew before expiry", "unit_test_optable_rules",
    SEED_004 + "test_a_lease_is_acquired_renewed_and_refused")
add("fencing-starts-over", "src/optable/rules.c", "int64_t next = last + 1 > time ? last + 1 : time;", "int64_t next = time > 0 ? time : 1;",
    "004: fencing tokens never start over", "unit_test_optable_rules")
add("leases-of-all-tables-go", "src/optable/optable.h", '.only = BOUND_ONLY(IS_TEXT("tbl", NAME)),                                                  \\\n\t.held_as', '.held_as',
    "004: refresh lease cleanup leaves the cache and other tables alone", SEED_004 + "test_leases_of_one_table_leave_those_of_another_alone")
add("expired-leases-listed", "src/optable/optable.h", '" > $4 ORDER BY key LIMIT $5"', '" > $4 - 100000000 ORDER BY key LIMIT $5"',
    "README: nothing past its lifetime is served as live", SEED_004 + "test_a_lease_goes_when_it_has_expired_and_not_before")
add("entries-evict-newest", "src/optable/entry.c", "ORDER BY last_seen_at, id LIMIT 1", "ORDER BY last_seen_at DESC, id LIMIT 1",
    "004: the least recently seen presence entry goes", SEED_004 + "test_beyond_the_cap_the_least_recently_seen_entry_goes")
add("held-entries-deleted", "src/optable/entry.c", "if (r == LAPSE_OK && held)", "if (r == LAPSE_OK && held && p == NULL)",
    "README: held rows are never removed", SEED_004 + "test_a_held_entry_is_not_deleted")
add("dedupe-window-late", "src/optable/dedupe.c", ".op = DUE_AT,", ".op = DUE_BEFORE,",
    "004: replay protection ends with its window", SEED_004 + "test_a_dedupe_key_is_valid_inside_its_window_and_goes_after_it")
add("dedupe-no-inline-cleanup", "src/optable/dedupe.c", "#define DEDUPE_AT_ONCE 4 ", "#define DEDUPE_AT_ONCE 1 ",
    "004: dedupe keys are cleaned inline", SEED_004 + "test_inserts_remove_a_few_expired_keys_but_no_held_one")
add("inbox-forgets-its-outbox", "src/optable/queue.c", '{ { "inbox_id", "completed_id" },', '{ { "inbox_id", "inbox_id" },',
    "004: completed rows wait for dependent channel_outbox cleanup", SEED_004 + "test_a_completed_inbox_item_waits_for_its_outbox_items")
add("outbox-sweeps-unfinished", "src/optable/queue.c", '.only = BOUND_ONLY(IS_TEXT("tbl", "channel_outbox")),\n\t.held_as', '.only = BOUND_ONLY(IS_TEXT("tbl", "channel_inbox")),\n\t.held_as',
    "004: failed channel_outbox rows age out", SEED_004 + "test_a_delivered_outbox_item_goes_at_once_and_a_failed_one_after_its_window")
add("delivery-removes-held", "src/optable/queue.c", "bool goes = table == &CHANNEL_OUTBOX_BOUND && !held;", "bool goes = table == &CHANNEL_OUTBOX_BOUND && (held || !held);",
    "004: held channel_outbox rows stay when they are delivered", SEED_004 + "test_a_held_outbox_item_stays_when_it_is_delivered")
add("queue-never-fails", "src/optable/rules.c", "return retry && attempt < attempts_max ? QUEUE_QUEUED : QUEUE_FAILED;", "return retry ? QUEUE_QUEUED : QUEUE_FAILED;",
    "004: failed items end", SEED_004 + "test_after_the_last_attempt_an_item_has_failed")
add("oauth-gone-early", "src/optable/oauth.c", '.time = "expires_at",', '.time = "created_at",',
    "004: live auth handshakes survive until their advertised expiry", SEED_004 + "test_a_sign_in_survives_until_its_expiry_and_goes_then")
add("consumer-judged-by-birth", "src/optable/outbox.c", '.time = "updated_at",', '.time = "created_at",',
    "004: only cursors that stopped advancing are removed", SEED_004 + "test_a_consumer_goes_when_it_has_stopped_advancing")
add("tick-failure-unnamed", "src/rooms.c", '"statestore.lifecycle_tick_failed"', '"housekeeping.lifecycle_tick_failed"',
    "004: a tick failure is logged and counted", SEED_004 + "test_a_tick_that_failed_is_logged_counted_and_told_later")
add("prune-event-unnamed", "src/rooms.c", '"statestore.lifecycle_pruned"', '"housekeeping.lifecycle_pruned"',
    "004: statestore.lifecycle_pruned", SEED_004 + "test_a_tick_that_removed_something_says_so_once_for_all_tables")

# Contracts ----------------------------------------------------------------------------------------

APPLY = "tests/contract/test_apply.py::"
add("contract-ignores-references", "src/contract/pass.c", "if (!rows_true(&p->page, row, SCAN_ALLOWED)) {", "if (0 && !rows_true(&p->page, row, SCAN_ALLOWED)) {",
    "contract: rows that are referenced stay", APPLY + "test_unless_referenced_and_together_with")
add("contract-ignores-holds", "src/contract/pass.c", "if (!p->config.held)\n\t\treturn false;", "if (p->config.held || !p->config.held)\n\t\treturn false;",
    "contract: held rows stay", "tests/contract/test_keep.py::test_holds")
add("contract-removes-unreadable", "src/contract/pass.c", "\t\tp->tally.unreadable++;\n\t\treturn false;", "\t\tp->tally.unreadable++;\n\t\treturn true;",
    "contract: a time that cannot be read removes nothing", APPLY + "test_unreadable_times_stay")

add("contract-sweeps-held-at-once", "src/contract/pass_remove.c", "!(p->config.held && p->config.held(p->config.arg, NULL));", "(p->config.held || !p->config.held);",
    "contract: held rows stay", "tests/contract/test_keep.py::test_holds")
add("contract-writes-where-only-reading-is-allowed", "src/contract/foreign_postgres.c", 'write ? "" : "READ ONLY"', 'write ? "READ WRITE" : "READ ONLY"',
    "contract: a read-only database is left alone", "tests/contract/test_apply.py::test_a_read_only_server")
add("contract-removes-more-than-intended", "src/contract/pass.c", "p->page_limit = p->cut < p->room ? p->cut : p->room;", "p->page_limit = p->cut;",
    "contract: the number told is never less than the rows removed", APPLY + "test_a_slice_removes_no_more_than_was_intended")

# Durability ---------------------------------------------------------------------------------------

add("answers-before-sync", "src/http/turn.c", "} else if (mode == STORE_READ || !tx_has_changed(&t->job.tx) ||",
    "} else if (mode == STORE_READ || mode == STORE_WRITE ||", "README: an answered write survives power loss",
    "tests/durability/test_kill.py::test_answered_operations_survive[power-loss]")
add("full-disk-is-internal", "src/store/sqlite/db.c", "return LAPSE_EFULL;", "return LAPSE_EINTERNAL;",
    "README: a full disk costs 503s", "unit_test_db")
