"""Random histories of a store that is 80 to 100 % full. Each must end well: the store recovers, and nothing is lost.

A seed gives a history. The map has the smallest size allowed, so it really runs out of pages; no fault is injected.
"""

import random
from pathlib import Path
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import End
from popmq_server.embedded import operations
from popmq_server.embedded.store.keys import NEVER, U64
from popmq_server.embedded.store.lmdb import MapFull
from popmq_server.errors import Refused
from popmq_server.options import MAX_SIZE_MIN
from popmq_server.values.handles import make_handle
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8, tag_hash
from tests.engine.rig import HOUR, MINUTE, SECOND, Delivery, Rig, parsed, refusal

TOPICS = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION"}
#: Maximum attempts of each group; one of them dead-letters after the first attempt.
GROUPS = {"once": 1, "thrice": 3}
SIZES = (50, 500, 3_000, 20_000, 100_000, 300_000)
#: Milliseconds after which a store with new room serves again.
HEALS_MS = 10 * SECOND


def made(message_id: str, size: int, extra: Extra | None = None) -> Outgoing:
    message = pb.Message(
        message_id=message_id, body=b"x" * size, message_group=extra.message_group if extra is not None else ""
    )
    return Outgoing(message.SerializeToString(), tag_hash(""), (hash8(message_id),), message_id, extra)


class History:
    """A broker, and what it has answered."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.rig = Rig(folder, map_bytes=MAX_SIZE_MIN)
        self.sent: dict[str, set[str]] = {name: set() for name in TOPICS}
        self.halves: dict[str, str] = {}  # transaction → message id
        self.done: dict[tuple[str, str], set[str]] = {}
        self.leased: dict[str, list[tuple[str, Delivery]]] = {name: [] for name in GROUPS}
        self.numbers = 0
        self.sizes: dict[str, int] = {}
        for name, kind in TOPICS.items():
            self.rig.do(ask.CreateTopic(name, 2, False, 72 * HOUR, kind))
        self.rig.topic("ballast")
        for group, attempts in GROUPS.items():
            self.rig.group(group, max_attempts=attempts)
            for name in TOPICS:
                self.rig.pop(topic=name, group=group)
                self.done[(group, name)] = set()

    # ── Steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def fill(self) -> None:
        """Fills the store to 80 % or more, partly with ballast, which is deleted in the end."""
        ballast = self.chance.uniform(0.15, 0.5)
        while self.used() < ballast:
            self.rig.do(ask.Send("ballast", (made(f"ballast{self.number()}", 200_000),), "", 0, 200_000))
        until = self.chance.uniform(0.8, 0.86)
        while self.used() < until and self.send():
            if self.chance.random() < 0.2:
                self.pop()
        self.pop()

    def used(self) -> float:
        with self.rig.reading() as kv:
            return float(kv.used_pages() / self.rig.store.map_pages)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def send(self) -> bool:
        """Sends; True if it was stored."""
        name = self.chance.choice(list(TOPICS))
        entries = tuple(self.message(name) for _ in range(self.chance.choice((1, 1, 2, 5))))
        result = self.rig.run(ask.Send(name, entries, "", 0, sum(len(one.data) for one in entries)))[0]
        if isinstance(result, Refused):
            assert result.code == "STORAGE_FULL", result
            return False
        for entry, place in zip(entries, result.places or (None,) * len(entries), strict=True):
            if isinstance(place, ask.Place) and place.transaction_id:
                self.halves[place.transaction_id] = entry.message_id
            else:
                self.sent[name].add(entry.message_id)
        return True

    def message(self, name: str) -> Outgoing:
        extra = {
            "fifo": Extra(message_group=self.chance.choice("abcd")),
            "delay": Extra(delay_ms=self.chance.choice((SECOND, MINUTE))),
            "transaction": Extra(transaction=self.chance.random() < 0.7),
        }.get(name)
        size, message_id = self.chance.choice(SIZES), f"m{self.number()}"
        self.sizes[message_id] = size
        return made(message_id, size, extra)

    def pop(self) -> None:
        group, name = self.chance.choice(list(GROUPS)), self.chance.choice(list(TOPICS))
        asked = ask.Pop(
            name,
            group,
            max_messages=self.chance.choice((1, 8, 64)),
            max_bytes=8 << 20,
            invisible_ms=self.chance.choice((SECOND, 30 * SECOND)),
        )
        self.popped(group, name, self.rig.run(asked)[0])

    def popped(self, group: str, name: str, answer: Any) -> None:
        if isinstance(answer, Refused):
            assert answer.code == "STORAGE_FULL", answer
            return
        for row in answer.rows:
            handle = make_handle(answer.ck_id, row[5], answer.nonce)
            message_id = parsed(row[0]).message_id
            self.leased[group].append((name, Delivery("", message_id, row[2], row[3], row[4], row[1], handle)))

    def ack(self) -> None:
        """An ack is never refused for lack of room."""
        group = self.chance.choice(list(GROUPS))
        rows = self.taken(group)
        answer = self.rig.run(ask.Ack(group, tuple(row.handle for _, row in rows)))[0]
        for (name, row), result in zip(rows, answer.results, strict=True):
            assert refusal(result) in ("", "HANDLE_LAPSED"), result
            if result is None:
                self.done[(group, name)].add(row.message_id)

    def equal_pops(self, count: int) -> None:
        """Equal pops of one message each, in one commit batch: the engine may run them as one (coalescing.py).

        Each message goes to one of them, and none finds nothing while there is a message for it.
        """
        group, name = self.chance.choice(list(GROUPS)), self.chance.choice(list(TOPICS))
        asked = ask.Pop(name, group, max_messages=1, max_bytes=8 << 20, invisible_ms=30 * SECOND)
        before = len(self.leased[group])
        answers = self.rig.run(*[asked] * count)
        for answer in answers:
            assert isinstance(answer, Refused) or len(answer.rows) <= 1, answer
            self.popped(group, name, answer)
        handles = [row.handle for _, row in self.leased[group][before:]]
        ids = [row.message_id for _, row in self.leased[group][before:]]
        assert len({*handles}) == len({*ids}) == len(ids), f"two pops got the same message: {ids}"
        if not all(isinstance(answer, Refused) or answer.rows for answer in answers):
            self.popped(group, name, after := self.rig.run(asked)[0])
            assert isinstance(after, Refused) or not after.rows, f"{group} got {after.rows} of {name} only later"

    def equal_acks(self, count: int) -> None:
        """Acks of one message each, of one group and topic, in one commit batch: the engine may run them as one.

        Each that is answered OK is done: with the handle nothing can be acked again.
        """
        group, name = self.chance.choice(list(GROUPS)), self.chance.choice(list(TOPICS))
        rows = [one for one in self.leased[group] if one[0] == name][-count:]
        self.leased[group] = [one for one in self.leased[group] if one not in rows]
        acks = [ask.Ack(group, (row.handle,)) for _, row in rows]
        acked = [refusal(answer.results[0]) for answer in self.rig.run(*acks)]
        assert {*acked} <= {"", "HANDLE_LAPSED"}, acked
        self.done[(group, name)] |= {row.message_id for (_, row), code in zip(rows, acked, strict=True) if not code}
        again = [refusal(answer.results[0]) for answer in self.rig.run(*acks)]
        assert again == ["HANDLE_LAPSED"] * len(rows), again

    def taken(self, group: str) -> list[tuple[str, Delivery]]:
        """Takes some of the handles that a group has leased."""
        self.chance.shuffle(self.leased[group])
        count = self.chance.choice((1, 5, 50))
        rows, self.leased[group] = self.leased[group][:count], self.leased[group][count:]
        return rows

    def change(self) -> None:
        group = self.chance.choice(list(GROUPS))
        kind = self.chance.choice(("extend", "release", "release", "reject"))
        how = {"delay_ms": self.chance.choice((0, 5 * SECOND)), "reason": self.chance.choice(("", "é" * 2000))}
        if kind == "extend":
            how = {"delay_ms": MINUTE}
        changes = tuple(ask.Change(row.handle, kind, **how) for _, row in self.taken(group))  # type: ignore[arg-type]
        answer = self.rig.run(ask.ChangeInvisibleTime(group, changes))[0]
        allowed = ("", "HANDLE_LAPSED", "BUSY") if kind == "extend" else ("", "HANDLE_LAPSED", "STORAGE_FULL", "BUSY")
        for result in [answer] if isinstance(answer, Refused) else answer:
            assert refusal(result) in allowed, result

    def end(self) -> None:
        """A rollback is never refused for lack of room."""
        for text in self.chance.sample(sorted(self.halves, key=self.halves.__getitem__), min(3, len(self.halves))):
            commit = self.chance.random() < 0.7
            answer = self.rig.run(ask.EndTransaction((End(text, commit),)))[0]
            result = answer if isinstance(answer, Refused) else answer[0]
            assert refusal(result) in (("", "STORAGE_FULL") if commit else ("",)), result
            if not refusal(result):
                message_id = self.halves.pop(text)
                if commit:
                    self.sent["transaction"].add(message_id)

    def redrive(self) -> None:
        group = self.chance.choice(list(GROUPS))
        result = self.rig.run(operations.RedrivePiece(group, offsets=None))[0]
        assert refusal(result) in ("", "STORAGE_FULL", "TOPIC_NOT_FOUND"), result

    def time_passes(self) -> None:
        self.rig.skip(self.chance.choice((100, SECOND, 5 * SECOND, MINUTE)))
        self.settle()

    def crash(self) -> None:
        self.rig.crash()
        self.settle()

    def move_the_limit(self) -> None:
        """Moves the limit by a little: the store stays nearly full."""
        size = MAX_SIZE_MIN + self.chance.randrange(2 << 20)
        assert refusal(self.rig.run(ask.SetMaxSize(size))[0]) in ("", "INVALID_FIELD", "STORAGE_FULL")

    def settle(self) -> None:
        """Runs what is due, in a bounded number of pieces: a broker in an endless loop fails."""
        for _ in range(2000):
            if not self.rig.due:
                return
            self.rig.run()
        raise AssertionError("time's work goes round and round")

    # ── What must be true ────────────────────────────────────────────────────────────────────────────────────────

    def live(self, steps: int) -> None:
        kinds = [self.send] * 4 + [self.pop] * 4 + [self.ack] * 2 + [self.change] * 3 + [self.time_passes] * 4
        for _ in range(steps):
            self.chance.choice([*kinds, self.end, self.redrive, self.crash, self.move_the_limit])()

    def heal(self) -> None:
        """Deletes a topic or raises the limit; within seconds of the broker's clock everything must be served again.

        If waiting dead letters take the new room at once, more is deleted.
        """
        if self.chance.random() < 0.5:
            self.rig.do(ask.DeleteTopic("ballast"))
        else:
            self.rig.do(ask.SetMaxSize(2 * MAX_SIZE_MIN))
        self.seconds_pass()
        for name in TOPICS:
            if self.used() > 0.75:
                self.rig.do(ask.PurgeTopic(name))
                self.sent[name] = set()
                self.halves = {} if name == "transaction" else self.halves
                self.seconds_pass()
        for name in TOPICS:
            entry = self.message(name)._replace(extra=Extra(message_group="a") if name == "fifo" else None)
            self.rig.do(ask.Send(name, (entry,), "", 0, len(entry.data)))
            self.sent[name].add(entry.message_id)
        for group in GROUPS:
            for name in TOPICS:
                assert not isinstance(self.rig.run(ask.Pop(name, group, invisible_ms=SECOND))[0], Refused)
                assert self.rig.numbers(group, name).dead_blocked == 0

    def seconds_pass(self) -> None:
        for _ in range(HEALS_MS // SECOND):
            self.rig.skip(SECOND)
            self.settle()

    def drain(self) -> None:
        """Each group acks all it gets; afterwards every message is finished, a dead letter, or unfinished.

        Unfinished ones are allowed only if dead letters have filled the store again, which holds up later messages, or
        if they are dead letters for which there are no adjacent pages.
        """
        before, now = -1, 0
        while before != now:
            self.rig.skip(3 * HOUR)
            self.seconds_pass()
            for group in GROUPS:
                for name in TOPICS:
                    self.finish(group, name)
            self.seconds_pass()
            before, now = now, sum(map(len, self.done.values())) + sum(len(self.rig.dead(group)) for group in GROUPS)
        for group in GROUPS:
            dead = {letter.message_id for letter in self.rig.dead(group)}
            for name, sent in self.sent.items():
                missing = sent - self.done[(group, name)] - dead
                left = self.rig.numbers(group, name)
                held = left.backlog
                assert len(missing) == held, f"{group} has lost of {name}: {missing}, and has {left}"
                if held and self.used() <= 0.8:
                    waits = held == left.dead_blocked and self.lies_apart(max(self.sizes[one] for one in missing))
                    assert waits, f"{group} does not finish {name}: {left}"

    def lies_apart(self, size: int) -> bool:
        """Whether a value of this size finds no adjacent pages."""
        kv = self.rig.store.begin()
        try:
            kv.put("log", U64.pack(NEVER), bytes(size))
        except MapFull:
            return True
        finally:
            kv.abort()
        return False

    def finish(self, group: str, name: str) -> None:
        """Pops and acks until nothing more comes."""
        asked = ask.Pop(name, group, max_messages=64, max_bytes=8 << 20, invisible_ms=HOUR)
        while not isinstance(answer := self.rig.run(asked)[0], Refused) and answer.rows:
            self.leased[group] = []
            self.popped(group, name, answer)
            rows, self.leased[group] = self.leased[group], []
            acked = self.rig.ack([row for _, row in rows], group)
            assert acked == [None] * len(rows)
            self.done[(group, name)] |= {row.message_id for _, row in rows}


def lived(seed: int, folder: Path, steps: int = 60) -> Rig:
    """One history from its seed to its end."""
    history = History(seed, folder)
    history.fill()
    history.live(steps)
    history.heal()
    history.drain()
    return history.rig
