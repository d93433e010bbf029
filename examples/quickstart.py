#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lapse from Python, with the standard library alone.

  quickstart.py heartbeat AGENT CLUSTER    stay alive until Ctrl-C, then say goodbye
  quickstart.py work AGENT                 claim messages, do the work, mark them read
  quickstart.py follow                     print events, across restarts of the daemon
  quickstart.py lease TABLE KEY HOLDER     hold a lease until Ctrl-C, then give it back
"""
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("LAPSE_URL", "http://127.0.0.1:7878")
TOKEN = os.environ.get("LAPSE_TOKEN")
BEAT_S = float(os.environ.get("BEAT_S", "30"))


class Refused(Exception):
    """The daemon's own words: status, code, message."""


def open_url(method, path, body=None, headers=None, timeout=60):
    headers = dict(headers or {})
    if TOKEN:
        headers["Authorization"] = f"Bearer {TOKEN}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data=data, headers=headers, method=method)
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        told = json.load(error)["error"]
        raise Refused(error.code, told["code"], told["message"]) from None


def lapse(method, path, body=None):
    with open_url(method, path, body) as answer:
        return json.load(answer)


def inbox(agent):
    return f"/v1/agents/{urllib.parse.quote(agent, safe='')}"


def heartbeat(agent, cluster):
    """An agent that is silent for 90 s is evicted: beat three times as often."""
    try:
        while True:
            try:
                lapse("POST", inbox(agent) + "/heartbeat", {"cluster_id": cluster, "capabilities": ["python"]})
            except (OSError, Refused) as why:
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
        except (OSError, Refused) as why:
            print(f"no claim, trying again: {why}", file=sys.stderr)
            time.sleep(1)
            continue
        for message in claim["data"]:
            print("working on:", message["content"], flush=True)
            try:
                lapse("POST", f"{inbox(agent)}/messages/{message['id']}/read", {"claim_id": claim["claim_id"]})
            except Refused as why:
                print(f"another worker has it: {why}", file=sys.stderr)


def follow():
    """Server-sent events: the last id says where to go on after a break."""
    last, kind = None, None
    while True:
        try:
            with open_url("GET", "/v1/events", headers={"Last-Event-ID": last} if last else {}) as stream:
                for line in stream:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name == "id":
                        last = value
                    elif name == "event":
                        kind = value
                    elif name == "data":
                        print(last, kind, value, flush=True)
        except OSError:
            pass
        time.sleep(2)


def lease(table, key, holder):
    """Give the fencing token with every write: storage that refuses smaller ones is safe from a late holder."""
    path = f"/v1/leases/{table}/{urllib.parse.quote(key, safe='')}"
    held = None
    while not held:
        try:
            held = lapse("PUT", path, {"holder": holder, "ttl_ms": 10_000})
        except (OSError, Refused):
            time.sleep(1)  # another holder has it
    token = held["fencing_token"]
    print(f"holding {key} with fencing token {token}", flush=True)
    try:
        while held["fencing_token"] == token:
            time.sleep(BEAT_S / 10)
            held = lapse("PUT", path, {"holder": holder, "ttl_ms": 10_000})
        print("the lease is lost: stop writing", file=sys.stderr)
    finally:
        lapse("DELETE", f"{path}?holder={urllib.parse.quote(holder, safe='')}&fencing_token={token}")


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
