#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lapse from Python, with the package `requests`.

  quickstart_requests.py heartbeat AGENT CLUSTER    stay alive until Ctrl-C, then say goodbye
  quickstart_requests.py work AGENT                 claim messages, do the work, mark them read
  quickstart_requests.py follow                     print events, across restarts of the daemon
  quickstart_requests.py lease TABLE KEY HOLDER     hold a lease until Ctrl-C, then give it back
"""
import os
import signal
import sys
import time
from urllib.parse import quote

import requests

URL = os.environ.get("LAPSE_URL", "http://127.0.0.1:7878")
BEAT_S = float(os.environ.get("BEAT_S", "30"))

session = requests.Session()
if os.environ.get("LAPSE_TOKEN"):
    session.headers["Authorization"] = f"Bearer {os.environ['LAPSE_TOKEN']}"


def lapse(method, path, body=None):
    """The JSON of the answer; requests.HTTPError for an error, with the daemon's own words."""
    answer = session.request(method, URL + path, json=body, timeout=60)
    if not answer.ok:
        raise requests.HTTPError(answer.json()["error"]["message"], response=answer)
    return answer.json()


def inbox(agent):
    return f"/v1/agents/{quote(agent, safe='')}"


def heartbeat(agent, cluster):
    """An agent that is silent for 90 s is evicted: beat three times as often."""
    try:
        while True:
            try:
                lapse("POST", inbox(agent) + "/heartbeat", {"cluster_id": cluster, "capabilities": ["python"]})
            except requests.RequestException as why:
                print(f"no heartbeat, trying again: {why}", file=sys.stderr)
            time.sleep(BEAT_S)
    finally:
        lapse("DELETE", inbox(agent))


def work(agent):
    """What is not marked read when its lease ends is offered again: do work that may be done twice."""
    while True:
        try:
            claim = lapse("POST", inbox(agent) + "/messages/claim",
                          {"limit": 1, "visibility_ms": 30_000, "wait_ms": 20_000})
        except requests.RequestException as why:
            print(f"no claim, trying again: {why}", file=sys.stderr)
            time.sleep(1)
            continue
        for message in claim["data"]:
            print("working on:", message["content"], flush=True)
            try:
                lapse("POST", f"{inbox(agent)}/messages/{message['id']}/read", {"claim_id": claim["claim_id"]})
            except requests.HTTPError as why:
                print(f"another worker has it: {why}", file=sys.stderr)


def follow():
    """Server-sent events: the last id says where to go on after a break."""
    last, kind = None, None
    while True:
        try:
            headers = {"Last-Event-ID": last} if last else {}
            with session.get(URL + "/v1/events", headers=headers, stream=True, timeout=60) as stream:
                for line in stream.iter_lines(chunk_size=1, decode_unicode=True):
                    name, _, value = line.partition(": ")
                    if name == "id":
                        last = value
                    elif name == "event":
                        kind = value
                    elif name == "data":
                        print(last, kind, value, flush=True)
        except requests.RequestException:
            pass
        time.sleep(2)


def lease(table, key, holder):
    """Give the fencing token with every write: storage that refuses smaller ones is safe from a late holder."""
    path = f"/v1/leases/{table}/{quote(key, safe='')}"
    held = None
    while not held:
        try:
            held = lapse("PUT", path, {"holder": holder, "ttl_ms": 10_000})
        except requests.RequestException:
            time.sleep(1)  # another holder has it
    token = held["fencing_token"]
    print(f"holding {key} with fencing token {token}", flush=True)
    try:
        while held["fencing_token"] == token:
            time.sleep(BEAT_S / 10)
            held = lapse("PUT", path, {"holder": holder, "ttl_ms": 10_000})
        print("the lease is lost: stop writing", file=sys.stderr)
    finally:
        lapse("DELETE", f"{path}?holder={quote(holder, safe='')}&fencing_token={token}")


def stop(_signal, _frame):
    raise KeyboardInterrupt


if __name__ == "__main__":
    commands = {"heartbeat": heartbeat, "work": work, "follow": follow, "lease": lease}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, stop)
    try:
        commands[sys.argv[1]](*sys.argv[2:])
    except KeyboardInterrupt:
        pass
