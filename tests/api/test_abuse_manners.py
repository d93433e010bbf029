# SPDX-License-Identifier: Apache-2.0
"""What spares both sides work: 304, Retry-After, Location."""
from client import q


def test_if_none_match_of_the_same_state_is_304(shared_api, agent):
    sent = shared_api.send(agent)
    path = f"/v1/agents/{agent}/messages/{sent['id']}"
    etag = shared_api.get(path).headers["ETag"]
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        for method in ("GET", "HEAD"):
            answer = shared_api.request(method, path, headers={"If-None-Match": known})
            assert answer.status == 304 and answer.body == b"" and answer.headers["ETag"] == etag
    shared_api.read(agent, sent["id"])
    changed = shared_api.get(path, headers={"If-None-Match": etag})
    assert changed.ok()["read"] and changed.headers["ETag"] != etag


def test_if_none_match_is_nothing_to_a_write(shared_api, agent):
    sent = shared_api.send(agent)
    path = f"/v1/agents/{agent}/messages/{sent['id']}/read"
    assert shared_api.post(path, {}, headers={"If-None-Match": "*"}).ok()["read"]


def test_a_limit_says_when_to_come_again(start):
    api = start(unread_max_per_agent=1).client()
    api.send("a")
    answer = api.post("/v1/agents/a/messages", {"from": "b", "content": "x"})
    answer.fails(429, "limit_reached")
    assert int(answer.headers["Retry-After"]) > 0


def test_what_was_made_says_where_it_is(shared_api, agent):
    name = agent + " with é"
    for answer in (shared_api.post(f"/v1/agents/{q(name)}/messages", {"from": "b", "content": "x"}),
                   shared_api.post("/v1/mailboxes", {}), shared_api.upload(b"bytes")):
        made = answer.ok(201)
        found = shared_api.get(answer.headers["Location"]).ok()
        assert {key: found[key] for key in found if key != "cached"} == {
            key: made[key] for key in made if key != "cached"}
    again = shared_api.post("/v1/messages", {"to": [agent], "from": "b", "content": "x"})
    assert again.status == 201 and "Location" not in again.headers
