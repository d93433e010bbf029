# SPDX-License-Identifier: Apache-2.0
"""What the catalogues of events, errors and metrics say. Their names come from the program; a name without a
description fails the test that writes the page."""
import json
import re
import subprocess

EVENTS = {
    "message.sent": "A message was stored, or one message for several agents: `from`, `type`, `messages` (ids and recipients).",
    "message.read": "Messages were marked read: `agent`, `id` where it was one, `count`.",
    "message.pruned": "A sweep removed read messages or read mail: `table`, `count`, `oldest`, `reason`. One event per owner and batch.",
    "agent.seen": "An agent registered with its first heartbeat: `agent_id`, `cluster_id`, `last_seen`.",
    "agent.suspected": "The breaker holds an agent back: it is not shown as live, and its record is kept for one more threshold.",
    "agent.evicted": "An agent was silent for longer than `agent_evict_after_ms`: `agent_id`, `cluster_id`, `last_seen`.",
    "agent.deleted": "A request removed an agent: `agent_id`.",
    "breaker.tripped": "So much of a fleet fell silent at once that its agents became suspects.",
    "breaker.released": "The breaker closed: heartbeats came back, or one more threshold has passed.",
    "mailbox.created": "A mailbox is active: `id`, `address`, `expires_at`.",
    "webhook.disabled": "A webhook failed for too long, or its receiver answered 410, and is not posted to any more: `id`, `url`, "
                        "`reason`, `error`.",
    "mailbox.received": "Mail has arrived in a mailbox of the provider local: `id`, `address`, `message_id`, `from`, `subject`.",
    "mailbox.renewed": "A mailbox got a new lifetime: `id`, `address`, `expires_at`.",
    "mailbox.expired": "The lifetime of a mailbox is over: `id`, `address`, `expires_at`.",
    "mailbox.cleanup_failed": "An account could not be deleted, and will be tried again: `target`, `attempts`, `error`.",
    "mailbox.dead_letter": "An account could not be deleted, and that was the last attempt: `target`, `attempts`, `error`.",
    "mailbox.deleted": "A request deleted a mailbox, or a sweep removed expired rows.",
    "attachment.staged": "A file was staged: `checksum`, `name`, `size_bytes`, `persist`, `ttl_ms`, `cached`.",
    "attachment.cleaned": "A file is gone: `checksum`, `name`, `bytes`, `ttl_ms`, `reason` (`expired`, `deleted`, `file missing`).",
    "hold.placed": "A row is held: `table`, `key`, `reason`.",
    "hold.released": "A hold was released: `table`, `key`.",
    "token.created": "An admin made a token: `prefix`, `owner`, `name`, `scopes`, `admin`, `expires_at`, and `by`, the "
                     "prefix of the token that asked for it. For admins.",
    "token.revoked": "An admin revoked a token: the same members. For admins.",
    "backup.made": "A backup is in `backups/`: `file`, `bytes`, and `by`. For admins.",
    "store.restored": "The daemon started on a store that came from a backup: `restored_at`. Every bound gets one grace period. For "
                      "admins.",
    "settings.in_force": "The daemon started: its `version` and the `settings` that are not defaults, secrets only as "
                         "\"set\". For admins.",
    "clock.jumped": "The wall clock leapt further than `clock_jump_max_ms`. Nothing expires because of it.",
    "clock.accepted": "The wall clock is trusted again.",
    "cleanup.dead_letter": "A deletion outside the store gave up: `kind`, `target`, `attempts`, `error`.",
    "housekeeping.lifecycle_pruned": "A sweep removed rows of lapse's own tables: `table`, `count`, `oldest`, `reason`.",
    "statestore.lifecycle_pruned": "A sweep removed rows of operational tables: the count of each table. One event per sweep.",
    "outbox.lifecycle_pruned": "A sweep removed rows of the outbox: the count of each table. One event per sweep.",
    "lease.acquired": "A lease was taken: its table, key, holder and fencing token.",
    "lease.released": "A lease was given back before its end.",
    "lease.expired": "A lease ended by itself.",
    "lease.moved": "Another replica leads a scheduler now: `scheduler`, `replica`, `from`, `token`. For admins.",
    "owner.adopted": "Everything of another owner became this one's: `from`, `owner`, `rows`, `tables`.",
    "contract.loaded": "A contract is in force: its name and bounds.",
    "contract.refused": "A contract did not check; the one before stays in force.",
    "approval.wanted": "A sweep would remove more than `ask_above`, and waits for a person.",
    "approval.given": "A person approved a sweep.",
    "replica.joined": "A replica joined the cluster: `replica`. For admins.",
    "replica.left": "A replica left the cluster: `replica`, `reason`. For admins.",
}
TICK_FAILED = "A sweep of {} failed. It is tried again one interval later."


def event_names(root):
    """The events of the program: the rows of the table, and those that bounds and schedulers name."""
    names = set()
    for path in sorted((root / "src").rglob("*.[ch]")):
        text = path.read_text()
        names |= set(re.findall(r'^\tX\(\w+, "([a-z_]+\.[a-z_]+)"', text, re.M))
        names |= set(re.findall(r'\.(?:event|failed|event_kind) = "([a-z_]+\.[a-z_]+)"', text))
    return sorted(names)


def describe_event(name):
    if name.endswith(".lifecycle_tick_failed"):
        return TICK_FAILED.format(f"`{name.split('.')[0]}`")
    return EVENTS[name]


def events_page(root):
    names = event_names(root)
    undescribed = [name for name in names if not name.endswith("_tick_failed") and name not in EVENTS]
    assert not undescribed, f"describe these events in tests/docs/catalogue.py: {undescribed}"
    text = ("# Every event\n\nGenerated by `make docs`. [events.md](events.md) tells how to follow them. Names in the second "
            "column are members of `data`.\n\n| event | it says |\n|---|---|\n")
    return text + "".join(f"| `{name}` | {describe_event(name)} |\n" for name in names)


WHAT_TO_DO = {
    400: "Mend the request; sending it again changes nothing.",
    401: "Send a token, or a new one.",
    403: "Use an admin's token, or ask from the machine itself.",
    404: "Check the id and the owner.",
    405: "Use a method that `Allow` lists.",
    408: "Send it again; send the body faster, or raise `request_timeout_ms`.",
    409: "Look at the present state, then decide.",
    410: "Make a new one: nothing brings it back.",
    412: "Get it again and repeat with the new `ETag`.",
    413: "Send less, or raise the limit that the message names.",
    415: "Set `Content-Type`.",
    416: "Ask for a range inside the file.",
    422: "Use a new `Idempotency-Key` for another request.",
    429: "Wait until something went, or raise the setting that the message names.",
    431: "Send fewer or shorter headers.",
    500: "Look at the log; it is a bug, please report it.",
    502: "Look at the mail server; then send it again.",
    503: "Wait `Retry-After` seconds and send it again: nothing was stored.",
}


def errors_page(document):
    text = ("# Every error\n\nGenerated from the OpenAPI document by `make docs`. The body is "
            "`{\"error\": {\"code\", \"message\", \"field\"?}}`; with `Accept: application/problem+json` it is that of RFC 9457, "
            "with `code` and `field` as further members. `field` names what is wrong, when it is one field.\n\n"
            "| status | `code` | when | what to do |\n|---|---|---|---|\n")
    for response in document["components"]["responses"].values():
        example = response["content"]["application/problem+json"]["example"]
        text += (f"| {example['status']} | `{example['code']}` | {response['description']} | "
                 f"{WHAT_TO_DO[example['status']]} |\n")
    text += ("\nThe command `lapse` ends with 1 for an error of the daemon, and says its message; `lapse help` lists its exit "
             "codes. The library returns the `LAPSE_E…` of the same meaning ([library.md](library.md)).\n")
    return text


def metric_families(text):
    """(name, type, help) of everything /metrics writes."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    types = dict(re.findall(r"^# TYPE (\S+) (.*)$", text, re.M))
    labels = {}
    for name, found in re.findall(r"^(\w+)\{([^}]*)\}", text, re.M):
        family = next((n for n in (name, re.sub(r"_(bucket|sum|count)$", "", name)) if n in types), name)
        labels.setdefault(family, set()).update(set(re.findall(r'(\w+)="', found)) - {"le"})
    return [(name, types[name], helps[name], sorted(labels.get(name, ()))) for name in types]


def metrics_page(text):
    page = ("# Every metric\n\nGenerated from a running daemon by `make docs`. No id of an agent, mailbox or message is ever a "
            "label. [operating.md](operating.md#watching) says where to look first.\n\n"
            "| metric | type | labels | |\n|---|---|---|---|\n")
    for name, kind, helped, labels in metric_families(text):
        page += f"| `{name}` | {kind} | {', '.join(f'`{one}`' for one in labels)} | {helped} |\n"
    return page


def openapi(lapsed):
    return json.loads(subprocess.run([lapsed, "--openapi"], check=True, capture_output=True).stdout)
