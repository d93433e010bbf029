# SPDX-License-Identifier: Apache-2.0
"""What the clients were told, and the comparison of it with what is on the disk.

Every message has a content nobody else sends, so that a row belongs to exactly one request. A request is
`answered` (it must have taken effect, once), `unknown` (the daemon died before it answered: all of it or
nothing) or `refused` (an error: nothing). After a check, an unknown request is known by its rows.
"""
import collections
import dataclasses

COMPLAINTS_SHOWN = 12


class Loss(AssertionError):
    """The disk contradicts an answer."""


@dataclasses.dataclass(eq=False)
class Send:
    """One request that makes messages: to one agent, or to several, all or none."""
    path: str
    body: dict
    agents: list
    content: str
    key: str = None
    fate: str = "unknown"
    ids: list = None  # in the order of agents, once known


@dataclasses.dataclass
class Notes:
    """What one client did in one round; merged into the ledger when the round is over."""
    sends: list = dataclasses.field(default_factory=list)
    read: list = dataclasses.field(default_factory=list)  # ids, answered
    maybe_read: list = dataclasses.field(default_factory=list)  # lists of ids: all of a list or none
    claims: list = dataclasses.field(default_factory=list)  # (agent, claim_id, ids), answered
    surprises: list = dataclasses.field(default_factory=list)  # answers the contract does not allow


Row = collections.namedtuple("Row", "agent content read read_at claim_id")


def public_id(number):
    """The primary key is the public id as a signed 64 bit number."""
    return f"{number & (2**64 - 1):016x}"


def read_rows(db):
    sql = "SELECT id, agent, content, read, read_at, claim_id FROM messages"
    return {public_id(number): Row(*rest) for number, *rest in db.execute(sql)}


class Ledger:
    def __init__(self):
        self.sends = []
        self.fresh = []  # those of the last round
        self.read = set()
        self.maybe_read = []
        self.claimed = {}  # id -> (agent, claim_id): leased for longer than the test lasts
        self.answered = 0

    def merge(self, all_notes):
        self.fresh = [send for notes in all_notes for send in notes.sends]
        self.sends += self.fresh
        for notes in all_notes:
            assert not notes.surprises, f"unexpected answers: {notes.surprises[:5]}"
            self.read.update(notes.read)
            self.maybe_read += notes.maybe_read
            for agent, claim_id, ids in notes.claims:
                self.claimed.update({id_: (agent, claim_id) for id_ in ids})
            self.answered += len(notes.read) + len(notes.claims)
        self.answered += sum(send.fate == "answered" for send in self.fresh)

    # The disk -------------------------------------------------------------------------------------

    def check(self, db):
        """Raises Loss when the database contradicts what clients know, else learns from it."""
        complaints = self._unsound(db)
        if not complaints:
            rows = read_rows(db)
            complaints = [*self._sends_wrong(rows), *self._reads_wrong(rows), *self._claims_wrong(rows),
                          *self._counters_wrong(db), *self._index_wrong(db)]
            self._learn(rows)
        if complaints:
            shown = "\n  ".join(complaints[:COMPLAINTS_SHOWN])
            raise Loss(f"{len(complaints)} contradictions:\n  {shown}")

    @staticmethod
    def _unsound(db):
        verdict = [row[0] for row in db.execute("PRAGMA integrity_check(5)")]
        foreign = db.execute("PRAGMA foreign_key_check").fetchall()
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        complaints = [] if verdict == ["ok"] else [f"integrity_check: {line}" for line in verdict]
        complaints += [f"foreign_key_check: {row}" for row in foreign]
        complaints += [f"the table {name} is gone" for name in {"messages", "messages_unread", "inboxes"} - tables]
        return complaints

    def _sends_wrong(self, rows):
        found = collections.defaultdict(list)  # content -> ids
        for id_, row in rows.items():
            found[row.content].append(id_)
        for send in self.sends:
            yield from self._send_wrong(send, found.pop(send.content, []), rows)
        for content, ids in found.items():
            yield f"{len(ids)} messages nobody sent: {content[:60]}"

    @staticmethod
    def _send_wrong(send, ids, rows):
        agents = sorted(rows[id_].agent for id_ in ids)
        label = f"{send.fate} {send.content[:40]} (key {send.key})"
        if send.fate == "answered":
            if sorted(ids) != sorted(send.ids):
                yield f"{label}: answered messages are gone or doubled: {send.ids}, on disk {ids}"
            for id_, agent in zip(send.ids, send.agents):
                if id_ in rows and (rows[id_].agent, rows[id_].content) != (agent, send.content):
                    yield f"{label}: {id_} has other content or another recipient"
        elif send.fate == "refused":
            if ids:
                yield f"{label}: refused, but on disk {ids}"
        elif agents not in ([], sorted(send.agents)):
            yield f"{label}: half written: {len(agents)} of {len(send.agents)}"

    def _reads_wrong(self, rows):
        for id_ in self.read:
            if id_ in rows and not (rows[id_].read and rows[id_].read_at):
                yield f"answered as read, but is not: {id_}"
        for id_, row in rows.items():
            if bool(row.read) != (row.read_at is not None):
                yield f"half read: {id_} read {row.read} at {row.read_at}"
        for ids in self.maybe_read:
            states = {bool(rows[id_].read) for id_ in ids if id_ in rows and id_ not in self.read}
            if len(states) > 1:
                yield f"some of one request's messages are read, some not: {ids}"

    def _claims_wrong(self, rows):
        for id_ in self.claimed:
            if id_ in rows and not rows[id_].read and not rows[id_].claim_id:
                yield f"answered as claimed, but is not: {id_}"

    @staticmethod
    def _counters_wrong(db):
        counted = {(o, a): (t, u) for o, a, t, u in db.execute(
            "SELECT m.owner, m.agent, count(*), count(u.id) FROM messages m LEFT JOIN messages_unread u USING (owner, agent, id) "
            "WHERE m.read = 1 OR u.id IS NOT NULL GROUP BY m.owner, m.agent")}
        kept = {(o, a): (t, u) for o, a, t, u in db.execute(
            "SELECT owner, agent, total, unread FROM inboxes WHERE total <> 0 OR unread <> 0")}
        for inbox in counted.keys() | kept.keys():
            if counted.get(inbox) != kept.get(inbox):
                yield f"inbox {inbox} says {kept.get(inbox)}, counted {counted.get(inbox)} (total, unread)"
        live = db.execute("SELECT sum(live) FROM counts WHERE tbl = 'messages'").fetchone()[0] or 0
        there = db.execute("SELECT count(*) FROM messages").fetchone()[0]
        if live != there:
            yield f"counts says {live} messages, there are {there}"

    @staticmethod
    def _index_wrong(db):
        """Unread messages are filed, or after the mark from which a start reads them again."""
        (filed,), = db.execute("SELECT coalesce(max(value), 0) FROM meta WHERE key = 'messages_filed'")
        for number, in db.execute("SELECT id FROM messages WHERE read = 0 AND id <= ? EXCEPT "
                                  "SELECT id FROM messages_unread", (filed,)):
            yield f"unread and not filed, but before the mark: {public_id(number)}"
        for number, in db.execute("SELECT id FROM messages_unread EXCEPT SELECT id FROM messages WHERE read = 0"):
            yield f"filed as unread, but it is not: {public_id(number)}"

    def _learn(self, rows):
        where = collections.defaultdict(dict)
        for id_, row in rows.items():
            where[row.content][row.agent] = id_
        for send in self.sends:
            if send.fate == "unknown":
                there = where.get(send.content, {})
                send.ids = [there[agent] for agent in send.agents if agent in there] or None
                if send.key is None:
                    send.fate = "answered" if send.ids else "refused"
        for ids in self.maybe_read:
            self.read.update(id_ for id_ in ids if id_ in rows and rows[id_].read)
        self.maybe_read = []

    # The daemon, after it came back ---------------------------------------------------------------

    def recheck(self, wire, rng, sample=12):
        """Asks the daemon about a sample, and repeats requests that carry an Idempotency-Key."""
        self._retry_unknown(wire)
        answered = [send for send in self.sends if send.fate == "answered"]
        fresh = [send for send in self.fresh if send.fate == "answered"]
        some = pick(rng, fresh, sample) + pick(rng, answered, sample // 2)
        for send in some:
            self._look_up(wire, send, rng.randrange(len(send.ids)))
        for send in pick(rng, [send for send in answered if send.key], sample // 3):
            again = wire.post(send.path, send.body, send.key)
            if again.status != 201 or ids_of(again) != send.ids:
                raise Loss(f"repeating {send.content[:40]} (key {send.key}, {send.ids}) gave {again}")
        self._claim_again(wire, rng)

    def _retry_unknown(self, wire):
        for send in self.sends:
            if send.fate != "unknown":
                continue
            answer = wire.post(send.path, send.body, send.key)
            if answer.status != 201 or (send.ids and ids_of(answer) != send.ids):
                raise Loss(f"retry of {send.content[:40]} (on disk {send.ids}) gave {answer}")
            send.fate, send.ids = "answered", ids_of(answer)

    def _look_up(self, wire, send, index):
        id_, agent = send.ids[index], send.agents[index]
        answer = wire.get(f"/v1/agents/{agent}/messages/{id_}")
        if answer.status != 200 or answer.json()["content"] != send.content:
            raise Loss(f"answered message {id_} of {agent}: {answer}")
        if id_ in self.read and not answer.json()["read"]:
            raise Loss(f"answered as read, but is not: {answer}")

    def _claim_again(self, wire, rng):
        """What is leased is not offered again."""
        for agent in pick(rng, sorted({agent for agent, _ in self.claimed.values()}), 2):
            answer = wire.post(f"/v1/agents/{agent}/messages/claim",
                               {"limit": 20, "visibility_ms": VISIBILITY_MS})
            assert answer.status == 200, answer
            ids = [message["id"] for message in answer.json()["data"]]
            twice = [id_ for id_ in ids if id_ in self.claimed]
            if twice:
                raise Loss(f"claimed and offered again: {twice}")
            self.claimed.update({id_: (agent, answer.json()["claim_id"]) for id_ in ids})


VISIBILITY_MS = 3_600_000


def ids_of(answer):
    body = answer.json()
    return [message["id"] for message in body["data"]] if "data" in body else [body["id"]]


def pick(rng, things, count):
    return rng.sample(things, min(count, len(things)))
