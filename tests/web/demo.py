# SPDX-License-Identifier: Apache-2.0
"""A daemon with something to look at: every room of the page has rows in every state."""
import random

NAMES = ["planner", "coder", "reviewer", "tester", "scout", "writer", "librarian", "deployer"]
CLUSTERS = {"eu-west": 64, "us-east": 41, "ap-south": 23, "lab": 9, "edge-7": 4}
MAIL = "Hello,\n\nyour code is 493201. It is valid for ten minutes.\n\nThe team"
HTML = "<h1>Your code</h1><p>It is <b>493201</b>.</p><script>parent.document.title='owned'</script><img src='http://192.0.2.1/x.png'>"


def fleet(api):
    lines = "".join(f"{NAMES[i % 8]}-{number:03d},{cluster}\n" for number, (i, cluster) in enumerate(
        (i, cluster) for cluster, n in CLUSTERS.items() for i in range(n)))
    api.request("POST", "/v1/heartbeats", body=lines, headers={"Content-Type": "text/csv"}).ok()
    for i in range(6):
        api.post(f"/v1/agents/{NAMES[i]}-00{i}/heartbeat",
                 {"cluster_id": "eu-west", "capabilities": [NAMES[i][:-2], "chat", "search"]}).ok()


def messages(api, rng):
    for i in range(40):
        to = f"{NAMES[rng.randrange(6)]}-00{rng.randrange(3)}"
        sent = api.send(to, f"Build {1180 + i} is {'green' if i % 3 else 'red'}. Please look at stage {i % 5}.", sender=f"{NAMES[i % 8]}-001")
        if i % 2:
            api.read(to, sent["id"])
    api.post("/v1/agents/planner-000/messages/claim", {"visibility_ms": 600_000}).ok()


def mailboxes(api):
    boxes = [api.post("/v1/mailboxes", {"username": name, "ttl_ms": 300_000 * (i + 1)}).ok(201)
             for i, name in enumerate(["signup-4711", "invoice-robot", "trial-eu", "press-kit"])]
    for subject in ("Your code", "Welcome aboard", "Invoice 2026-118"):
        api.post(f"/v1/mailboxes/{boxes[1]['id']}/send",
                 {"to": boxes[0]["address"], "subject": subject, "body": MAIL, "html": HTML}).ok()
    return boxes


def files(api, rng):
    for i, name in enumerate(["trace.json", "screenshot.png", "dataset.parquet", "notes.md", "model-card.pdf"]):
        content = rng.randbytes(2000 * (i + 1) ** 3)
        persist = "true" if i == 2 else "false"
        api.upload(content, name=name, persist=persist)
        if i % 2:
            api.upload(content, name=name, persist=persist)


def tables(api):
    for key, holder in (("repo/main", "coder-000"), ("repo/docs", "writer-005"), ("ci/slot-1", "deployer-007")):
        api.put(f"/v1/leases/workspace_leases/{key.replace('/', '-')}", {"holder": holder, "ttl_ms": 600_000}).ok()
    for i in range(12):
        api.post("/v1/queues/channel_inbox", {"payload": {"order": 900 + i, "kind": "refund"}, "key": f"order-{900 + i}"}).ok(201)
    for item in api.post("/v1/queues/channel_inbox/claim", {"worker": "coder-000", "limit": 5}).ok()["data"][:3]:
        api.post(f"/v1/queues/channel_inbox/{item['id']}/fail",
                 {"worker": "coder-000", "attempt": item["attempt"], "error": "the shop answered 502"}).ok()
    for i in range(9):
        api.post("/v1/outbox", {"topic": "orders", "payload": {"order": i}}).ok(201)
    cursor = api.get("/v1/outbox", limit=4).ok()["next_cursor"]
    api.put("/v1/outbox/consumers/billing", {"cursor": cursor}).ok()


def fill(api, seed=7):
    """Everything; returns the mailboxes, of which the first has mail."""
    rng = random.Random(seed)
    fleet(api)
    messages(api, rng)
    boxes = mailboxes(api)
    files(api, rng)
    tables(api)
    held = api.get("/v1/agents/planner-000/messages").ok()["data"][0]["id"]
    api.put(f"/v1/holds/messages/{held}", {"reason": "evidence for incident 12"}).ok()
    return boxes
