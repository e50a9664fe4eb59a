"""A commit batch that runs again does what it would have done the first time.

A neighbour that raises makes the whole group run a second time. Two brokers get the same random commands; beside those
of the second one stands a command that raises, in every group. Both must give the same answers, in the same order:
whatever an aborted run leaves behind in memory shows sooner or later.
"""

import logging
from dataclasses import replace
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Command
from popmq_server.embedded.state.lite_watch import WATCH_MS
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.writer import core
from popmq_server.values.handles import make_handle
from popmq_server.values.leased import Leased
from tests.engine import lites
from tests.engine.conftest import MakeRig
from tests.engine.rig import MINUTE, SECOND, Rig, parsed
from tests.engine.traffic.traffic import Traffic, group
from tests.engine.traffic.traffic_fifo import fifo_message
from tests.engine.unlisted import Unlisted

GROUPS_OF_COMMANDS = 120


class Spoiler(Command[None], Unlisted, lane=ask.LANE_POP):
    """Writes and raises: the others run again without it."""


def spoil(tx: Tx, _: Spoiler) -> None:
    tx.next("rseq")
    raise ArithmeticError


@pytest.fixture(autouse=True)
def spoiled(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The command runs after all others, in a lane of its own."""
    caplog.set_level(logging.CRITICAL, "popmq")
    monkeypatch.setitem(core.HANDLERS, Spoiler, spoil)


class OrderedTraffic(Traffic):
    """FIFO and PRIORITY topics, pops of one message, some of named queues."""

    def first(self) -> list[Any]:
        made = [
            ask.CreateTopic("t", 3, False, 72 * 60 * MINUTE, "FIFO"),
            ask.CreateTopic("u", 4, False, 72 * 60 * MINUTE, "PRIORITY"),
        ]
        return [*made, group("g", 3), group("h", 3)]

    def group(self) -> list[Any]:
        kinds = [self.send, self.send, self.pop, self.pop, self.pop, self.ack, self.change]
        return [self.chance.choice(kinds)() for _ in range(self.chance.randint(1, 5))]

    def send(self) -> ask.Send:
        self.sent += 1
        texts = [f"{self.sent}.{place}" for place in range(self.chance.randint(1, 4))]
        messages = tuple(fifo_message(self.chance.choice("abcdef"), text) for text in texts)
        return ask.Send(self.chance.choice("tu"), messages)

    def pop(self) -> ask.Pop:
        queues = self.chance.choice([(), (), (0,), (1, 2)])
        where = self.chance.choice("tu"), self.chance.choice("gh")
        return ask.Pop(*where, queues=queues, max_messages=self.chance.choice([1, 1, 4]), invisible_ms=MINUTE)


class LiteTraffic(Traffic):
    """Clients that subscribe to lite topics, leave them, take them from each other, and read them."""

    names = ("ann", "bob", "cid", "dan", "eve")

    def first(self) -> list[Any]:
        made = ask.CreateTopic("chat", 1, False, 72 * 60 * MINUTE, "LITE")
        late = replace(group("g", 3), start_from="LATEST")
        return [made, late, replace(group("h", 3), lite_exclusive=True)]

    def group(self) -> list[Any]:
        kinds = [self.send, self.send, self.sync, self.sync, self.pop, self.pop, self.pop, self.ack, self.change]
        return [self.chance.choice(kinds)() for _ in range(self.chance.randint(1, 4))]

    def some(self) -> tuple[str, ...]:
        return tuple(self.chance.sample(self.names, self.chance.randint(1, 4)))

    def send(self) -> ask.Send:
        self.sent += 1
        return lites.sending(*(f"{name}:{self.sent}" for name in self.some()))

    def sync(self) -> ask.SyncLite:
        action = self.chance.choice(["ADD", "ADD", "REPLACE", "REMOVE", "DROP"])
        start = self.chance.choice([None, None, ("MAX", 0), ("TAIL", 1)]) if action == "ADD" else None
        return ask.SyncLite("chat", self.chance.choice("gh"), self.chance.choice("xy"), action, self.some(), start)

    def pop(self) -> ask.Pop:
        named = self.chance.random() < 0.3
        how = {"group": self.chance.choice("gh"), "max_messages": self.chance.choice([1, 1, 4]), "invisible_ms": MINUTE}
        return lites.popping(*(self.some() if named else ()), client_id=self.chance.choice("xy"), **how)

    def learn(self, commands: list[Any], results: list[Any]) -> None:
        for command, result in zip(commands, results, strict=True):
            for part in result.leases if isinstance(result, Leased) else ():
                self.given += [(command.group, make_handle(part.ck_id, row[5], part.nonce)) for row in part.rows]
        del self.given[:-50]

    def pause_ms(self) -> int:
        return self.chance.choice([0, 0, 10, SECOND, WATCH_MS])


def told(result: Any) -> Any:
    """An answer without its random parts."""
    if not isinstance(result, Leased):
        return repr(result)
    rows = [(parsed(row[0]).message_id, *row[2:]) for part in result.leases for row in part.rows]
    return rows, result.rest, result.again, repr(result.refusal)


@pytest.mark.mechanism("S2.60")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [Traffic, OrderedTraffic, LiteTraffic])
def test_commands_that_run_again_are_answered_as_if_they_ran_once(
    make_rig: MakeRig, kind: type[Traffic], seed: int
) -> None:
    rigs: list[tuple[Rig, Traffic]] = [(make_rig(name), kind(seed)) for name in ("once", "twice")]
    for rig, traffic in rigs:
        rig.run(*traffic.first())
    for _ in range(GROUPS_OF_COMMANDS):
        answers = []
        for number, (rig, traffic) in enumerate(rigs):
            rig.advance(traffic.pause_ms())
            commands = traffic.group()
            results = rig.run(*commands, *[Spoiler()] * number)[: len(commands)]
            traffic.learn(commands, results)
            answers.append([told(result) for result in results])
        assert answers[0] == answers[1]


def test_a_latest_group_misses_nothing_of_a_subscription_that_runs_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    lites.create(rig)
    rig.group("late", start_from="LATEST")
    lites.send(rig, "ann:1")
    rig.run(ask.SyncLite("chat", "late", "c", "ADD", ("ann",)), Spoiler())
    lites.send(rig, "ann:2")
    assert [row.body for row in lites.pop(rig, client_id="c", group="late")] == ["ann:2"]


def test_an_eviction_that_runs_again_is_reported_to_the_client_that_lost_its_name(make_rig: MakeRig) -> None:
    rig = make_rig()
    lites.create(rig)
    rig.group("one", lite_exclusive=True)
    lites.sync(rig, "c", "ADD", "ann", group="one")
    answer, _ = rig.run(ask.SyncLite("chat", "one", "d", "ADD", ("ann",)), Spoiler())
    assert answer.evicted == (("c", "ann"),)


def test_a_subscription_that_was_never_committed_does_not_exist(make_rig: MakeRig) -> None:
    """A refusal that comes after the watch was made; nothing of it stays."""
    rig = make_rig()
    lites.create(rig)
    rig.group("g")
    watches = rig.core.state.watches
    key = ("g", "chat", "c")
    tx = Tx(rig.core.state, rig.store, rig.now)
    core.HANDLERS[ask.SyncLite](tx, ask.SyncLite("chat", "g", "c", "ADD", ("ann", "bob")))
    assert watches.names == 2
    tx.abort()
    assert (watches.get(key, rig.now), watches.names, watches.watchers("chat", "ann", rig.now)) == (None, 0, [])
