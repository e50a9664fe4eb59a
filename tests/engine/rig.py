"""The engine without threads and sockets, under a fake clock; the requests of clients are plain calls.

A call is a commit batch: one transaction. `settle` does the periodic work that is due, as the writer thread would.
`findings` are those of fsck, and differences between memory and what a new start reads.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import Clock, FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import GroupNumbers, Page
from popmq_server.contract.operations import A, Query
from popmq_server.embedded.fsck.check import check, differences
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import CQ_ENTRY, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.store import Store, reading
from popmq_server.embedded.writer.batch import Committed
from popmq_server.embedded.writer.core import HANDLERS, Core
from popmq_server.errors import Later, Refused
from popmq_server.options import JOURNAL
from popmq_server.values.handles import Handle, make_handle, read_handle
from popmq_server.values.leased import Leased
from popmq_server.values.limits import DELAYS_MS_DEFAULT
from popmq_server.values.outgoing import Outgoing, hash8, tag_hash
from popmq_server.values.records import Group, Topic

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
KEEP = 72 * HOUR
#: Pieces of work that one moment may take: far above what any test needs.
PIECES_MAX = 20_000


class Delivery(NamedTuple):
    """A row of a Popped, with its handle."""

    body: str
    message_id: str
    queue: int
    offset: int
    attempt: int
    stored_ms: int
    handle: str

    @property
    def lease(self) -> Handle:
        """What its handle names."""
        return read_handle(self.handle)


def message(
    body: str, message_id: str = "", keys: tuple[str, ...] = (), tag: str = "", properties: dict[str, str] | None = None
) -> Outgoing:
    """The entry that the API makes of a validated message."""
    made = pb.Message(
        message_id=message_id or body, body=body.encode(), keys=keys, tag=tag, properties=properties or {}
    )
    data = made.SerializeToString()
    return Outgoing(data, tag_hash(tag), tuple(map(hash8, (message_id or body, *keys))), message_id or body)


def parsed(data: bytes) -> pb.Message:
    return pb.Message.FromString(data)


def deliveries(popped: Leased | ask.Popped) -> list[Delivery]:
    """The rows of an answer with their handles, from the core or from a broker."""
    found = []
    for row in popped.rows:
        data, stored_ms, queue, offset, attempt, named = row
        read = parsed(data)
        if isinstance(popped, Leased):
            handle = make_handle(popped.ck_id, cast(int, named), popped.nonce)
        else:
            handle = cast(bytes, named).decode()
        found.append(Delivery(read.body.decode(), read.message_id, queue, offset, attempt, stored_ms, handle))
    return found


def bodies(rows: Iterable[Delivery]) -> list[str]:
    return [row.body for row in rows]


def verdict(store: Store, live: State) -> list[str]:
    """The findings of fsck, and the differences between memory and what a new start reads.

    While a deleted topic or group is being removed, memory may still hold rows that the store no longer has.
    """
    with reading(store) as kv:
        return [*check(kv), *(differences(kv, live) if not list(live.purges) else ())]


class Rig:
    """One data folder, its Core, and a clock."""

    #: Whether a signal that ends the process is noted in the folder.
    note_faults = False
    #: How commits are synced.
    sync = "none"
    #: Whether commit batches go through a journal: POPMQ_JOURNAL=on asks it of all tests.
    journaled = JOURNAL == "on"

    def __init__(self, folder: Path, clock: Clock | None = None, map_bytes: int = 1 << 28) -> None:
        self.folder = folder
        self.map_bytes = map_bytes
        self.clock = clock or FakeClock()
        #: The job of each piece of periodic work that failed.
        self.failures: list[str] = []
        self._start()

    def _start(self) -> None:
        self.store = Store(
            self.folder, self.map_bytes, self.sync, note_faults=self.note_faults, journaled=self.journaled
        )
        self.core = Core(self.store, self.clock)

    # ── Running commands ─────────────────────────────────────────────────────────────────────────────────────────

    def run(self, *commands: Any) -> list[Any]:
        """Runs commands as one commit batch. Returns a result or a Refused for each."""
        return self.commit(*commands).results

    def commit(self, *commands: Any) -> Committed:
        committed = self.core.run(list(commands))
        self.failures += committed.failures
        return committed

    def do(self, command: Any) -> Any:
        """Runs one command alone. Raises Refused."""
        result = self.run(command)[0]
        if isinstance(result, BaseException):
            raise result
        return result

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def due(self) -> bool:
        return self.core.next_due_ms is not None and self.core.next_due_ms <= self.now

    def settle(self) -> None:
        """Does all periodic work that is due."""
        for _ in self.pieces():
            pass

    def pieces(self) -> Iterator[Committed]:
        """The commits of all periodic work that is due. A job that stays due without end fails the test."""
        for _ in range(PIECES_MAX):
            if not self.due:
                return
            yield self.commit()
        raise AssertionError("a job stays due, whatever it does")

    def advance(self, ms: int) -> None:
        """Moves the clock, and does the work that became due."""
        self.skip(ms)
        self.settle()

    def skip(self, ms: int) -> None:
        """Moves the clock without doing the work that became due."""
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(ms)

    # ── Starts and ends ──────────────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> None:
        """Starts again as after a kill: only what was committed is left, in the file."""
        self.abandon()
        self._start()

    def abandon(self) -> None:
        """Closes the file as a kill does: nothing is synced, drained or logged."""
        if self.store.folding is not None:
            self.store.folding.abandon()
        self.store._env.close()
        os.close(self.store._file)
        self.store._lock.close()

    def restart(self) -> None:
        self.core.close()
        self._start()

    def findings(self) -> list[str]:
        return verdict(self.store, self.core.state)

    def read(self, name: str) -> list[tuple[bytes, bytes]]:
        """Every entry of one database."""
        with self.reading() as kv:
            return [(key, bytes(value)) for key, value in kv.scan(name)]

    def reading(self) -> Any:
        """A read transaction, as a context manager."""
        return reading(self.store)

    @contextlib.contextmanager
    def tables(self) -> Iterator[State]:
        """The state in memory, with a transaction to read CheckPoints and leases."""
        with reading(self.store) as kv:
            self.core.state.read_through(kv)
            yield self.core.state
            self.core.state.read_through(None)

    def write(self, change: Callable[[Transaction], None]) -> None:
        """Changes the store behind the engine's back."""
        kv = self.store.begin()
        change(kv)
        kv.commit()

    def damage(self, *messages: int, place: int = -1) -> None:
        """Flips a bit in the records of some messages, counted as they were stored."""

        def flip(kv: Transaction) -> None:
            units = sorted(unit[:2] for _, value in kv.scan("cq") for unit in CQ_ENTRY.iter_unpack(value))
            for position, size in (units[message] for message in messages):
                key, value = kv.floor("log", U64.pack(position)) or (b"", b"")
                start, raw = position - U64.unpack(key)[0], bytearray(value)
                raw[start + place % size] ^= 0x10
                kv.put("log", key, bytes(raw))

        self.write(flip)

    # ── Topics and groups ────────────────────────────────────────────────────────────────────────────────────────

    def topic(self, name: str = "t", queues: int = 1, by_age: bool = False, keep_ms: int = KEEP) -> Topic:
        topic: Topic = self.do(ask.CreateTopic(name, queues, by_age, keep_ms))[0]
        return topic

    def group(self, name: str = "g", **settings: Any) -> Group:
        chosen: dict[str, Any] = {
            "max_attempts": 17,
            "delays_ms": DELAYS_MS_DEFAULT,
            "invisible_ms": MINUTE,
            "share_number": 0,
            "start_from": "EARLIEST",
            "start_ms": 0,
            "exclusive_owner": False,
        }
        group: Group = self.do(ask.CreateGroup(name, **chosen | settings))[0]
        return group

    def pair(self, queues: int = 1, **settings: Any) -> None:
        """Topic t and group g, the group bound to the topic."""
        self.topic("t", queues)
        self.group("g", **settings)
        self.pop()

    # ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, *texts: str, topic: str = "t", producer: str = "", number: int = 0) -> ask.Sent:
        return self.do(sending(*texts, topic=topic, producer=producer, number=number))  # type: ignore[no-any-return]

    def popped(self, topic: str = "t", group: str = "g", **asked: Any) -> Leased:
        return self.do(ask.Pop(topic, group, **asked))  # type: ignore[no-any-return]

    def pop(self, messages: int = 32, topic: str = "t", group: str = "g", **asked: Any) -> list[Delivery]:
        return deliveries(self.popped(topic, group, max_messages=messages, **asked))

    def ack(self, rows: Iterable[Delivery], group: str = "g") -> list[Refused | None]:
        return self.do(ask.Ack(group, tuple(row.handle for row in rows))).results  # type: ignore[no-any-return]

    def change(self, rows: Iterable[Delivery], kind: str, group: str = "g", **how: Any) -> list[Any]:
        changes = tuple(ask.Change(row.handle, kind, **how) for row in rows)
        return self.do(ask.ChangeInvisibleTime(group, changes))  # type: ignore[no-any-return]

    def extend(self, rows: Iterable[Delivery], ms: int, group: str = "g") -> list[Any]:
        return self.change(rows, "extend", group, delay_ms=ms)

    def release(self, rows: Iterable[Delivery], group: str = "g", **how: Any) -> list[Any]:
        """As the broker does: what did not fit into a commit is released in the next one."""
        rows = list(rows)
        results = self.change(rows, "release", group, **how)
        while left := [index for index, result in enumerate(results) if isinstance(result, Later)]:
            again = self.change([rows[index] for index in left], "release", group, **how)
            for index, result in zip(left, again, strict=True):
                results[index] = result
        return results

    def reject(self, rows: Iterable[Delivery], reason: str = "", group: str = "g") -> list[Any]:
        return self.change(rows, "reject", group, reason=reason)

    # ── Owners ───────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, owner: str = "o", lease_ms: int = MINUTE, group: str = "g", **more: Any) -> int:
        generation: int = self.do(ask.AttachOwner(group, owner, lease_ms, **more))[0]
        return generation

    def seal(self, epoch: int, part: int = 0, chunk: int = 0, **asked: Any) -> Leased:
        """A Pop with a token of owner o, generation 1 unless said otherwise."""
        return self.do(sealing(epoch, part, chunk, **asked))  # type: ignore[no-any-return]

    def ack_up_to(self, epoch: int, owner: str = "o", generation: int = 1, group: str = "g") -> int:
        acked: int = self.do(ask.AckUpTo(group, owner, generation, epoch))[0]
        return acked

    # ── Looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, query: Query[A]) -> A:
        """The answer to a query outside of any commit batch; no periodic work runs."""
        tx = Tx(self.core.state, self.store, self.now)
        try:
            return cast(A, HANDLERS[type(query)](tx, query))
        finally:
            tx.abort()

    def numbers(self, group: str = "g", topic: str = "t") -> GroupNumbers:
        found: GroupNumbers = self.look(queries.Groups(topic, group))[0]
        return found

    def browse(self, topic: str, queue: int = 0, offset: int = 0, count: int = 4096) -> Page:
        page: Page = self.look(queries.Browse(topic, queue, offset, count, 1 << 30))
        return page

    def dead(self, group: str = "g") -> list[pb.Message]:
        """The dead letters of a group, in their order."""
        return [parsed(row[0]) for row in self.browse(f"%DLQ%{group}").rows]


class Journaled(Rig):
    """A rig whose commit batches go through a journal."""

    journaled = True


def sending(*texts: str, topic: str = "t", producer: str = "", number: int = 0) -> ask.Send:
    entries = tuple(message(text) for text in texts)
    return ask.Send(topic, entries, producer, number, sum(len(entry.data) for entry in entries))


def sealing(
    epoch: int,
    part: int = 0,
    chunk: int = 0,
    *,
    owner: str = "o",
    generation: int = 1,
    share: int = 0,
    upto: ask.Position | None = None,
    topic: str = "t",
    group: str = "g",
    topic_id: int = 0,
    **asked: Any,
) -> ask.Pop:
    token = ask.PopToken(owner, generation, epoch, part, chunk, share, upto, topic_id)
    return ask.Pop(topic, group, token=token, **asked)


def refusal(result: Any) -> str:
    """The code of a Refused, or "" for what was done."""
    return result.code if isinstance(result, Refused) else ""


def refusals(results: Iterable[Any]) -> list[str]:
    return [refusal(result) for result in results]


def numbered(prefix: str, count: int) -> Iterator[str]:
    return (f"{prefix}{number}" for number in range(count))
