"""Turns by fair key beside a model of its own: what waits, what is leased, and under which key.

    ready      sent, released, lapsed, or put back by a reset         leased     by a Pop, until it ends
    done       acked, passed by a reset, dropped with its purged topic

Rules: sends of many tenants, pops of any size, acks, releases, expiry, resets, other settings of the group, purges,
starts, kills, and commits that fail. After a Pop each message of its answer was ready, there are as many as the model
says may go, and of two keys that may go none has got two messages more than the other. After each step the store is
sound, and memory is what a start reads. Half of the examples read ahead in pieces so small that each backlog is long
and the memory is often full; there some Pops come before all is read.
"""

import contextlib
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from popmq_server.contract import commands as ask
from popmq_server.embedded.operations import ReadAhead
from popmq_server.embedded.rules.delivery.fair import fair_pick, reading
from popmq_server.embedded.rules.delivery.fair import index as indexes
from popmq_server.errors import CommitFailed
from popmq_server.values.leased import Leased
from popmq_server.values.records import FairKeys
from tests.engine.faults import Fault, failing
from tests.engine.rig import MINUTE, Delivery, Rig, deliveries
from tests.engine.traffic.traffic_fair import of, send, tenants

TENANTS = [f"tenant{number}" for number in range(8)]
#: Limits of leased messages of a key; None: no fair keys.
LIMITS = [0, 0, 1, 3, None]
#: Pieces of an index that reads little at a time.
SMALL = {"PIECE": 8, "LONG_BACKLOG": 20, "FRESH_WINDOW": 9, "FRESH_OF_KEY": 3, "_SPAN": 4}


class Held(NamedTuple):
    """A leased message. `counted`: under a limit of its key."""

    row: Delivery
    tenant: str
    until_ms: int
    counted: bool


class Fair(RuleBasedStateMachine):
    """One topic, one group with fair keys."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="popmq-fair-"))
        self.rig = Rig(self.folder / "data", map_bytes=1 << 26)
        self.sent = 0
        self.ready: dict[str, str] = {}  # body → tenant
        self.held: dict[str, Held] = {}
        self.all: dict[str, str] = {}
        self.limit: int | None = 0
        self.priority = False
        self.small, self.full_at = False, 0  # messages; 0: never
        self.patches = contextlib.ExitStack()

    @initialize(
        queues=st.integers(1, 4),
        priority=st.booleans(),
        limit=st.sampled_from(LIMITS),
        small=st.booleans(),
        full_at=st.sampled_from([0, 0, 40]),
    )
    def begins(self, queues: int, priority: bool, limit: int | None, small: bool, full_at: int) -> None:
        if small:
            self.small, self.full_at = True, full_at
            for name, value in SMALL.items():
                self.patches.enter_context(mock.patch.object(reading, name, value))
            self.patches.enter_context(mock.patch.object(fair_pick, "AHEAD_OF_POP", 6))
            self.patches.enter_context(mock.patch.object(indexes, "MESSAGES_MAX", full_at or indexes.MESSAGES_MAX))
        self.rig.do(ask.CreateTopic("t", queues, False, 72 * 60 * MINUTE, "PRIORITY" if priority else "NORMAL"))
        self.limit, self.priority = limit, priority
        self.rig.group("g", max_attempts=1000, fair_keys=self.fair(), delays_ms=(0,))
        self.rig.pop()

    def fair(self) -> FairKeys | None:
        return None if self.limit is None else FairKeys("property", "tenant", "", self.limit)

    def teardown(self) -> None:
        self.patches.close()
        self.rig.abandon()
        shutil.rmtree(self.folder)

    # ── Senders ──────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(tenant=st.sampled_from(TENANTS), count=st.sampled_from([1, 1, 3, 30, 200]))
    def sends(self, tenant: str, count: int) -> None:
        some = list(of(tenant, count, self.sent))
        send(self.rig, some)
        added = {f"{tenant}-{number}": tenant for number in range(self.sent, self.sent + count)}
        self.sent += count
        self.ready |= added
        self.all |= added

    # ── Consumers ────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(messages=st.sampled_from([1, 2, 7, 32, 300]), long=st.booleans(), read=st.sampled_from([True, True, False]))
    def pops(self, messages: int, long: bool, read: bool) -> None:
        if read:
            self.reads_ahead()
        popped = self.pop(messages, long)
        rows = deliveries(popped)
        may_go = self.may_go()
        taken = Counter(tenants(rows))
        assert len({row.body for row in rows}) == len(rows)
        assert [row.body for row in rows if row.body not in self.ready] == []
        assert taken <= may_go
        assert rows or not may_go.total() or not self.small or self.full_at
        complete = not (popped.behind or self.full_at) if self.small else read
        assert len(rows) == min(messages, may_go.total()) or not complete
        if complete and self.limit is not None and not self.priority:
            most = max(taken.values(), default=0)
            assert [name for name, count in may_go.items() if taken[name] < min(count, most - 1)] == []
        until_ms = self.rig.now + (10 * MINUTE if long else MINUTE)
        for row in rows:
            tenant = self.ready.pop(row.body)
            self.held[row.body] = Held(row, tenant, until_ms, bool(self.limit))

    def pop(self, messages: int, long: bool) -> Leased:
        """As the broker does: again until it has searched everything."""
        while True:
            popped = self.rig.popped(max_messages=messages, invisible_ms=10 * MINUTE if long else MINUTE)
            if not popped.again:
                return popped

    def reads_ahead(self) -> None:
        """As the event loop does."""
        while self.rig.do(ReadAhead("t", "g")):
            pass

    def may_go(self) -> Counter[str]:
        """How many messages of each tenant a Pop may take."""
        counted = Counter(one.tenant for one in self.held.values() if one.counted)
        found = Counter(self.ready.values())
        if self.limit:
            found = Counter({name: max(0, min(count, self.limit - counted[name])) for name, count in found.items()})
        return found

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["ack", "ack", "release"]))
    def settles(self, data: st.DataObject, how: str) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, max_size=20, unique=True))
        rows = [self.held.pop(body) for body in chosen]
        if how == "ack":
            assert self.rig.ack([one.row for one in rows]) == [None] * len(rows)
        else:
            self.rig.release([one.row for one in rows])
            self.ready |= {one.row.body: one.tenant for one in rows}

    @rule(minutes=st.sampled_from([1, 12]))
    def time_passes(self, minutes: int) -> None:
        self.rig.advance(minutes * MINUTE)
        self.expires()

    def expires(self) -> None:
        for body in [body for body, one in self.held.items() if one.until_ms <= self.rig.now]:
            self.ready[body] = self.held.pop(body).tenant

    # ── Operators ────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(limit=st.sampled_from(LIMITS))
    def gets_other_settings(self, limit: int | None) -> None:
        self.limit = limit
        self.rig.do(ask.UpdateGroup("g", {"fair_keys": self.fair()}))

    @rule(to=st.sampled_from(["EARLIEST", "LATEST"]))
    def is_reset(self, to: str) -> None:
        self.rig.do(ask.ResetOffsets("t", "g", to=(to, 0)))
        self.rig.settle()
        self.held.clear()
        self.ready = dict(self.all) if to == "EARLIEST" else {}

    @rule()
    def topic_is_purged(self) -> None:
        self.rig.do(ask.PurgeTopic("t"))
        self.rig.settle()
        self.held.clear()
        self.ready.clear()
        self.all.clear()

    # ── The process and its disk ─────────────────────────────────────────────────────────────────────────────────

    @rule(kill=st.booleans())
    def starts_again(self, kill: bool) -> None:
        self.rig.crash() if kill else self.rig.restart()
        self.rig.settle()
        self.expires()

    @rule(fault=st.sampled_from([Fault.IO, Fault.MAP_ONCE, Fault.FULL_ONCE]), messages=st.sampled_from([1, 7, 32]))
    def pops_while_the_disk_fails(self, fault: Fault, messages: int) -> None:
        """What such a Pop leased, if it did, is released before anyone hears of it."""
        with contextlib.suppress(CommitFailed), failing(self.rig.store, fault):
            (leased,) = self.rig.run(ask.Pop("t", "g", max_messages=messages))
            if getattr(leased, "rows", None):
                changes = tuple(ask.Change(text.decode(), "release", 0, True, "") for text in leased.texts)
        if fault is Fault.IO:
            self.rig.crash()
        elif getattr(leased, "rows", None):
            self.rig.do(ask.ChangeInvisibleTime("g", changes))

    @invariant()
    def the_store_is_sound(self) -> None:
        assert self.rig.findings() == []

    @invariant()
    def the_numbers_add_up(self) -> None:
        if not self.all and not self.sent:
            return
        numbers = self.rig.numbers()
        assert numbers.ready + numbers.retry + (numbers.backoff or 0) == len(self.ready)
        assert numbers.in_flight == len(self.held)
