# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the Stalwart mail server, over a real socket: both generations, and every way to fail.

In a test:

    with Stalwart(generation="rest") as server:          # or "registry" (0.16 and later)
        server.fault("DELETE /api/principal", "status", status=502, times=2)
        ...
        assert server.seen("DELETE /api/principal") == 3

By hand, for benchmarks: `python3 tests/double/stalwart.py --port 8080 --delay-ms 50`; then
`POST /_control` with {"fault": {...}}, {"clear": true}, {"generation": "registry"}, and `GET /_log`.

Where a real server and this one differ, the real one is right.
"""
import argparse
import asyncio
import base64
import dataclasses
import datetime
import itertools
import json
import random
import socket
import struct
import threading
import urllib.parse

ADMIN = "admin:correct-horse"
API_KEY = "api_a2V5OnNlY3JldA"
CORE, MAIL = "urn:ietf:params:jmap:core", "urn:ietf:params:jmap:mail"
SUBMISSION, REGISTRY = "urn:ietf:params:jmap:submission", "urn:stalwart:jmap"
FOLDERS = (("a", "inbox"), ("b", "trash"), ("c", "junk"), ("d", "drafts"), ("e", "sent"))
REASONS = {200: "OK", 301: "Moved Permanently", 302: "Found", 307: "Temporary Redirect", 400: "Bad Request",
           401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 429: "Too Many Requests",
           500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable"}


@dataclasses.dataclass
class Account:
    id: str
    number: int
    name: str
    address: str
    secret: str
    kind: str = "User"
    description: str | None = None
    mails: dict = dataclasses.field(default_factory=dict)
    submissions: dict = dataclasses.field(default_factory=dict)
    made: int = 0

    def next_id(self, prefix):
        self.made += 1
        return f"{prefix}{self.made}"

    def deliver(self, **fields):
        """Puts a mail into the inbox; fields as JMAP names them. Answers its id."""
        mail = {"id": self.next_id("M"), "mailboxIds": {"a": True}, "keywords": {}, "from": None, "to": None,
                "cc": None, "subject": None, "preview": "", "textBody": [], "htmlBody": [], "bodyValues": {},
                "receivedAt": now(), **fields}
        self.mails[mail["id"]] = mail
        return mail["id"]


@dataclasses.dataclass
class Fault:
    where: str       # "METHOD /path…" or the name of a JMAP method
    kind: str
    times: int | None
    skip: int
    options: dict


@dataclasses.dataclass
class Request:
    method: str
    path: str
    headers: dict
    body: bytes
    connection: int
    status: int = 0  # 0 = none was answered

    @property
    def calls(self):
        try:
            return [call[0] for call in json.loads(self.body)["methodCalls"]]
        except (ValueError, KeyError, TypeError, IndexError):
            return []

    def matches(self, where):
        if " " in where:
            method, path = where.split(" ", 1)
            return self.method == method and self.path.startswith(path)
        return self.path.startswith(where) if where.startswith("/") else where in self.calls


class Answer(Exception):
    """An answer that ends the handling of a request."""

    def __init__(self, status, body=b"", content_type="application/json", headers=()):
        super().__init__(status)
        self.status, self.content_type, self.headers = status, content_type, list(headers)
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def problem(status, detail):
    return Answer(status, {"type": "about:blank", "title": REASONS[status], "status": status, "detail": detail},
                  "application/problem+json")


def mutated(body, seed):
    """The JSON with one of its values gone or of another type."""
    try:
        tree = json.loads(body)
    except ValueError:
        return body
    places = []

    def walk(node):
        for key in (node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()):
            places.append((node, key))
            walk(node[key])

    walk(tree)
    chance = random.Random(seed)
    if not places:
        return b"7"
    node, key = chance.choice(places)
    others = [v for v in (None, 7, "x", [], {}, True, ["x"], 1e300) if type(v) is not type(node[key])]
    if chance.random() < 0.3:
        del node[key]
    else:
        node[key] = chance.choice(others)
    return json.dumps(tree).encode()


class Stalwart:
    def __init__(self, generation="rest", domains=("example.test",), port=0, delay_ms=0, tls=None):
        self.generation, self.domains = generation, list(domains)
        self.accounts = {}                  # by address
        self.faults, self.log = [], []
        self.numbers, self.connections = itertools.count(50), itertools.count(1)
        self.public = "https://mail.public.example"   # what it takes itself for
        self.session_path = "/jmap/session"
        self.delay_ms, self.port, self.tls = delay_ms, port, tls      # an ssl.SSLContext, or None
        self.unauthenticated_session = False           # answer 200 without accounts instead of 401
        self.loop = self.server = self.thread = None

    # Life ------------------------------------------------------------------------------------------

    def __enter__(self):
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()
        return self

    def __exit__(self, *exc):
        self.loop.call_soon_threadsafe(self._stop.set_result, None)
        self.thread.join()

    def restart(self, tls=None):
        """The same server, at the same port, perhaps as somebody else; every connection ends, its log is empty."""
        self.__exit__()
        self.tls, self.log = tls, []
        self.__enter__()

    def _run(self, ready):
        asyncio.run(self.serve(ready))

    async def serve(self, ready=None):
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        self.server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, backlog=1024,
                                                 ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        if ready:
            ready.set()
        await self._stop
        self.server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)                        # the last words of TLS leave, then the sockets close

    @property
    def url(self):
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    # What tests say and ask -------------------------------------------------------------------------

    def fault(self, where, kind, times=1, skip=0, **options):
        """The next `times` matching requests (None = all) fail: kind is status, reset, act_then_reset, close,
        act_then_close, hang, act_then_hang, trickle, giant, redirect, mutate (the
        true answer, with one value of another type, by `seed`), or delay (which does the work after `ms`)."""
        self.faults.append(Fault(where, kind, times, skip, options))

    def clear(self):
        self.faults.clear()

    def seen(self, where):
        return sum(request.matches(where) for request in self.log)

    def add(self, address, secret="p4ssw0rd-p4ssw0rd", kind="User", description=None):
        number = next(self.numbers)
        self.accounts[address] = Account(f"u{number}", number, address, address, secret, kind, description)
        return self.accounts[address]

    # HTTP -------------------------------------------------------------------------------------------

    async def _connection(self, reader, writer):
        number = next(self.connections)
        try:
            while await self._request(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            if self.tls and self._stop.done():         # TLS would wait for the other side's good-bye
                asyncio.get_running_loop().call_soon(writer.transport.abort)

    async def _request(self, reader, writer, number):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(method, path, headers, body, number)
        if not path.startswith("/_"):
            self.log.append(request)
            if self.delay_ms:
                await asyncio.sleep(self.delay_ms / 1000)
        fault = self._take_fault(request)
        if fault:
            return await self._fail(fault, request, writer)
        self._write(writer, request, self._answer(request))
        await writer.drain()
        return True

    def _answer(self, request):
        try:
            return self._route(request)
        except Answer as answer:
            return answer

    @staticmethod
    def _write(writer, request, answer):
        request.status = answer.status
        head = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Status')}",
                f"Content-Type: {answer.content_type}", f"Content-Length: {len(answer.body)}", *answer.headers]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + answer.body)

    # Failing ----------------------------------------------------------------------------------------

    def _take_fault(self, request):
        for fault in self.faults:
            if fault.times == 0 or not request.matches(fault.where):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            if fault.times is not None:
                fault.times -= 1
            return fault
        return None

    async def _fail(self, fault, request, writer):
        o = fault.options
        if fault.kind == "delay":
            await asyncio.sleep(o["ms"] / 1000)
            self._write(writer, request, self._answer(request))
            await writer.drain()
            return True
        if fault.kind == "mutate":
            answer = self._answer(request)
            answer.body = mutated(answer.body, o["seed"])
            self._write(writer, request, answer)
            await writer.drain()
            return True
        if fault.kind.startswith("act_then_"):
            self._answer(request)
        if fault.kind in ("close", "act_then_close"):
            return False
        if fault.kind in ("reset", "act_then_reset"):
            self._reset(writer)
            return False
        if fault.kind in ("hang", "act_then_hang"):
            await asyncio.sleep(3600)
        if fault.kind == "trickle":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3600\r\n\r\n")
            for _ in range(3600):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(o.get("every_ms", 1000) / 1000)
        if fault.kind == "giant":
            return await self._giant(writer, o.get("headers", False))
        if fault.kind == "redirect":
            self._write(writer, request, Answer(o.get("status", 307), b"", headers=[f"Location: {o['to']}"]))
            await writer.drain()
            return True
        body = o.get("body", b"")
        self._write(writer, request, Answer(o.get("status", 200),
                                            body.encode() if isinstance(body, str) else body,
                                            o.get("content_type", "application/json")))
        await writer.drain()
        return True

    @staticmethod
    def _reset(writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    @staticmethod
    async def _giant(writer, headers):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        if not headers:
            writer.write(b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(1 << 16):
            writer.write(b"X-%d: " % i + b"x" * 1000 + b"\r\n" if headers
                         else b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()
        return False

    # Routes -----------------------------------------------------------------------------------------

    def _route(self, request):
        path = request.path.split("?", 1)[0]
        if path == "/_control":
            return self._control(json.loads(request.body))
        if path == "/_log":
            return Answer(200, [{"method": r.method, "path": r.path, "calls": r.calls, "status": r.status}
                                for r in self.log])
        if path.startswith("/api/principal") and self.generation == "rest":
            return self._principal(request, path)
        if path == "/.well-known/jmap" and request.method == "GET":
            return Answer(307, b"", headers=[f"Location: {self.session_path}"])
        if path == self.session_path and request.method == "GET":
            return self._session(request)
        if path in ("/jmap", "/jmap/") and request.method == "POST":
            return self._jmap(request)
        return Answer(404, b"", "text/plain")

    def _control(self, order):
        if order.get("clear"):
            self.clear()
        if "generation" in order:
            self.generation = order["generation"]
        if "fault" in order:
            self.fault(**order["fault"])
        return Answer(200, {"accounts": len(self.accounts), "requests": len(self.log)})

    def _who(self, request):
        """"admin", an Account, or None without an Authorization header; raises 401."""
        given = request.headers.get("authorization")
        if given is None:
            return None
        scheme, _, value = given.partition(" ")
        if scheme == "Bearer" and value == API_KEY:
            return "admin"
        if scheme == "Basic":
            pair = base64.b64decode(value).decode()
            if pair == ADMIN:
                return "admin"
            name, _, secret = pair.partition(":")
            for account in self.accounts.values():
                if account.name == name and account.secret == secret:
                    return account
        raise problem(401, "You have to authenticate first.")

    # 0.10 to 0.15: principals -----------------------------------------------------------------------

    def _principal(self, request, path):
        who = self._who(request)
        if who is None:
            raise problem(401, "You have to authenticate first.")
        if who != "admin":
            raise problem(403, "You do not have the required permissions")
        name = urllib.parse.unquote(path.removeprefix("/api/principal").removeprefix("/"))
        if not name and request.method == "GET":
            return Answer(200, {"data": {"items": [{"name": a.name} for a in list(self.accounts.values())[:1]],
                                         "total": len(self.accounts)}})
        if not name and request.method == "POST":
            return self._create_principal(json.loads(request.body))
        account = next((a for a in self.accounts.values() if a.name == name), None)
        if not account:
            return Answer(200, {"error": "notFound", "item": name})
        if request.method == "DELETE":
            del self.accounts[account.address]
            return Answer(200, {"data": None})
        return Answer(200, {"data": {"id": account.number, "type": "individual", "name": account.name,
                                     "emails": [account.address], "description": account.description}})

    def _create_principal(self, wanted):
        if wanted["type"] == "domain":
            self.domains.append(wanted["name"])
            return Answer(200, {"data": next(self.numbers)})
        if set(wanted) != {"type", "name", "secrets", "emails", "roles", "quota", "description"}:
            raise problem(400, "Invalid JSON")
        for address in wanted["emails"]:
            if address.rpartition("@")[2] not in self.domains:
                return Answer(200, {"error": "notFound", "item": address.rpartition("@")[2]})
            if address in self.accounts:
                return Answer(200, {"error": "fieldAlreadyExists", "field": "emails", "value": address})
        account = self.add(wanted["emails"][0], wanted["secrets"][0], description=wanted["description"])
        account.name = wanted["name"]
        if wanted["roles"] != ["user"]:
            account.secret = None                      # may not authenticate
        return Answer(200, {"data": account.number})

    # JMAP -------------------------------------------------------------------------------------------

    def _session(self, request):
        who = self._who(request)
        if who is None and not self.unauthenticated_session:
            raise problem(401, "You have to authenticate first.")
        session = {"capabilities": {CORE: {"maxObjectsInGet": 500}, MAIL: {}, SUBMISSION: {}},
                   "apiUrl": f"{self.public}/jmap/", "accounts": {}, "primaryAccounts": {}, "username": "",
                   "state": "0"}
        if isinstance(who, Account):
            session["primaryAccounts"] = {MAIL: who.id, SUBMISSION: who.id, CORE: who.id}
            session["accounts"] = {who.id: {"name": who.address, "isPersonal": True}}
        return Answer(200, session)

    def _jmap(self, request):
        who = self._who(request)
        if who is None:
            raise problem(401, "You have to authenticate first.")
        try:
            wanted = json.loads(request.body)
            using, calls = wanted["using"], wanted["methodCalls"]
        except (ValueError, KeyError, TypeError):
            raise problem(400, "The request does not conform to JMAP.") from None
        if REGISTRY in using and self.generation != "registry":
            raise Answer(400, {"type": "urn:ietf:params:jmap:error:unknownCapability", "status": 400},
                         "application/problem+json")
        responses = []
        for name, args, call in calls:
            try:
                args = self._resolve(args, responses)
                result = getattr(self, "_" + name.replace(":", "_").replace("/", "_").lower(), None)
                if name.startswith("x:") != (who == "admin") or not result:
                    raise ValueError("forbidden" if result else "unknownMethod")
                found = result(who, args)
                extra = found.pop("_then", None)
                responses.append([name, found, call])
                if extra:
                    responses.append(["Email/set", self._email_set(who, extra), call])
            except ValueError as e:
                responses.append(["error", {"type": str(e)}, call])
        return Answer(200, {"methodResponses": responses, "sessionState": "0"})

    @staticmethod
    def _resolve(args, responses):
        out = {}
        for key, value in args.items():
            if key.startswith("#"):
                found = next((r for r in responses if r[2] == value["resultOf"] and r[0] == value["name"]), None)
                if not found:
                    raise ValueError("invalidResultReference")
                out[key[1:]] = found[1][value["path"].lstrip("/")]
            else:
                out[key] = value
        return out

    # 0.16 and later: the registry -------------------------------------------------------------------

    def _domain_id(self, domain):
        return f"d{self.domains.index(domain)}"

    def _x_domain_query(self, _, args):
        wanted = args["filter"]["name"]                # a search, not an exact match
        return {"ids": [self._domain_id(d) for d in self.domains if wanted in d], "position": 0, "queryState": "0"}

    def _x_domain_get(self, _, args):
        return {"list": [{"id": self._domain_id(d), "name": d} for d in self.domains
                         if self._domain_id(d) in args["ids"]], "notFound": []}

    def _x_account_query(self, _, args):
        """Of a condition with several keys only the last counts; the total is of what was found up to the limit."""
        wanted = args["filter"]
        if wanted.get("operator", "AND") != "AND":
            raise ValueError("unsupportedFilter")
        f = dict(list(c.items())[-1] for c in wanted.get("conditions", [wanted]))
        found = [a.id for a in self.accounts.values() if f.get("name", "") in a.address.split("@")[0]
                 and ("domainId" not in f or self._domain_id(a.address.split("@")[1]) == f["domainId"])]
        found = found[:args.get("limit", 500)]
        return {"ids": found, "position": 0, "total": len(found), "queryState": "0"}

    def _x_account_get(self, _, args):
        found = {a.id: a for a in self.accounts.values()}
        return {"list": [{"id": i, "@type": found[i].kind, "name": found[i].address.split("@")[0],
                          "emailAddress": found[i].address, "description": found[i].description}
                         for i in args["ids"] if i in found],
                "notFound": [i for i in args["ids"] if i not in found]}

    def _x_account_set(self, _, args):
        out = {"created": {}, "notCreated": {}, "destroyed": [], "notDestroyed": {}}
        for key, wanted in (args.get("create") or {}).items():
            domain = next((d for d in self.domains if self._domain_id(d) == wanted["domainId"]), None)
            address, secret = f"{wanted['name']}@{domain}", wanted["credentials"]["0"]["secret"]
            if address in self.accounts:
                out["notCreated"][key] = {"type": "primaryKeyViolation", "properties": ["email"]}
            elif not domain or not 8 <= len(secret) <= 128:
                out["notCreated"][key] = {"type": "invalidProperties", "description": f"{secret} is weak"}
            else:
                out["created"][key] = {"id": self.add(address, secret, description=wanted.get("description")).id}
        for i in args.get("destroy") or []:
            account = next((a for a in self.accounts.values() if a.id == i), None)
            if account:
                del self.accounts[account.address]
                out["destroyed"].append(i)
            else:
                out["notDestroyed"][i] = {"type": "notFound"}
        return {k: v for k, v in out.items() if v}

    # Mail -------------------------------------------------------------------------------------------

    def _mailbox_get(self, who, args):
        return {"accountId": args["accountId"], "state": "0", "notFound": [],
                "list": [{"id": i, "role": role} for i, role in FOLDERS]}

    def _identity_get(self, who, args):
        return {"accountId": args["accountId"], "state": "0", "notFound": [],
                "list": [{"id": "other", "email": "other@example.test"}, {"id": "I1", "email": who.address}]}

    def _email_query(self, who, args):
        folder = (args.get("filter") or {}).get("inMailbox")
        ids = [m["id"] for m in who.mails.values() if folder is None or folder in m["mailboxIds"]]
        ids.sort(key=lambda i: (who.mails[i]["receivedAt"], int(i[1:])), reverse=True)
        start = args.get("position", 0)
        if "anchor" in args:
            if args["anchor"] not in ids:
                raise ValueError("anchorNotFound")
            start = ids.index(args["anchor"]) + args.get("anchorOffset", 0)
        return {"accountId": who.id, "ids": ids[start:start + args["limit"]], "position": start, "total": len(ids),
                "queryState": "0", "canCalculateChanges": False}

    def _email_get(self, who, args):
        found = []
        for i in sorted(args["ids"]):                  # in an order of its own
            if i in who.mails:
                mail = {k: v for k, v in who.mails[i].items() if k in args["properties"] or k == "id"}
                if "bodyValues" in mail:
                    mail["bodyValues"] = {k: self._cut(v, args.get("maxBodyValueBytes", 0))
                                          for k, v in mail["bodyValues"].items()}
                found.append(mail)
        return {"accountId": who.id, "state": "0", "list": found,
                "notFound": [i for i in args["ids"] if i not in who.mails]}

    @staticmethod
    def _cut(value, most):
        text = value["value"]
        return {"value": text[:most] if most else text, "isTruncated": bool(most and len(text) > most)}

    def _email_set(self, who, args):
        out = {"accountId": who.id, "created": {}, "notCreated": {}, "updated": {}, "destroyed": []}
        for key, wanted in (args.get("create") or {}).items():
            text = next(iter(wanted["bodyValues"].values()), {"value": ""})["value"]
            out["created"][key] = {"id": who.deliver(**{**wanted, "preview": text[:100]}), "blobId": "B", "size": 1}
            self._created[key] = out["created"][key]["id"]
        for i, patch in (args.get("update") or {}).items():
            if i not in who.mails:
                out.setdefault("notUpdated", {})[i] = {"type": "notFound"}
                continue
            for pointer, value in patch.items():
                key, name = pointer.split("/")
                who.mails[i][key].pop(name, None)
                if value:
                    who.mails[i][key][name] = value
            out["updated"][i] = None
        for i in args.get("destroy") or []:
            if who.mails.pop(i, None):
                out["destroyed"].append(i)
        return out

    _created: dict = {}

    def _emailsubmission_set(self, who, args):
        out = {"accountId": who.id, "created": {}, "notCreated": {}}
        updates = {}
        for key, wanted in args["create"].items():
            email = self._created.get(wanted["emailId"].lstrip("#"), wanted["emailId"])
            if wanted["identityId"] != "I1" or wanted["envelope"]["mailFrom"]["email"] != who.address:
                out["notCreated"][key] = {"type": "forbiddenFrom"}
                continue
            status = {r["email"]: self._transmit(who.mails[email], r["email"])
                      for r in wanted["envelope"]["rcptTo"]}
            refused = all(s["delivered"] == "no" for s in status.values())
            i = who.next_id("S")
            undo = "final" if refused else "pending"
            who.submissions[i] = {"id": i, "undoStatus": undo, "deliveryStatus": status}
            out["created"][key] = {"id": i, "sendAt": now(), "undoStatus": undo}
            updates[email] = (args.get("onSuccessUpdateEmail") or {}).get("#" + key)
        return {**out, "_then": {"update": updates}} if updates else out

    def _transmit(self, mail, address):
        there = self.accounts.get(address)
        if address.rpartition("@")[2] in self.domains and not there:
            return {"smtpReply": "550 5.1.2 Mailbox does not exist.", "delivered": "no", "displayed": "unknown"}
        if there:
            there.deliver(**{k: mail[k] for k in ("from", "to", "cc", "subject", "preview", "textBody", "htmlBody",
                                                  "bodyValues")})
        return {"smtpReply": "250 2.1.5 Queued", "delivered": "queued", "displayed": "unknown"}

    def _emailsubmission_get(self, who, args):
        return {"accountId": who.id, "list": [who.submissions[i] for i in args["ids"] if i in who.submissions]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--generation", choices=("rest", "registry"), default="rest")
    parser.add_argument("--domain", action="append", default=[])
    parser.add_argument("--delay-ms", type=int, default=0)
    args = parser.parse_args()
    server = Stalwart(args.generation, args.domain or ("example.test",), args.port, args.delay_ms)
    print(f"stalwart double on http://127.0.0.1:{args.port}, administrator {ADMIN}", flush=True)
    try:
        asyncio.run(server.serve())
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
