"""Fairness, as a property: while there is something in it, no queue, no message group and no retry waits for long.

Counted in turns: pops that took something. Random numbers of queues, backlogs, fixed patterns of clients (which queues
they name, how many messages they take, what becomes of these), limits of leases and filters. The bounds are those of
turns.py and docs/decisions/0027-fair-turns.md; `n` is the number of queues of the topic.
"""

import contextlib
import functools
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from popmq_server.contract import commands as ask
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8
from popmq_server.values.records import RETRY_QUEUE, Stat
from tests.engine import lites
from tests.engine.rig import HOUR, Delivery, Rig, message
from tests.engine.traffic.traffic_fifo import fifo_message

KEEP = 72 * HOUR
#: Pops of one example: each queue has several turns.
POPS_EACH, POPS_MIN = 4, 60
#: Messages of each queue, and of each of a few: while one starves the others must not run dry, or nothing holds it up.
DEPTH, DEPTH_OF_FEW, FEW = 6, 14, 8


class Client(NamedTuple):
    """One of those that pop in turn."""

    queues: tuple[int, ...]  # named; empty = all
    messages: int
    then: str  # what it does with its messages: ack, release, hold


class Scene(NamedTuple):
    """A topic, and the clients that read it in a repeated order."""

    queues: int
    clients: tuple[Client, ...]
    in_flight_max: int
    filtered: bool
    hot: int  # one queue, or message group, has more than the others

    @property
    def alike(self) -> bool:
        return len({client.queues for client in self.clients}) == 1


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    count = draw(st.one_of(st.integers(1, 12), st.integers(1, 64)))
    named = st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True).map(tuple)
    queues = st.one_of(st.just(()), named)
    client = st.builds(Client, queues, st.sampled_from([1, 1, 1, 2, 33]), st.sampled_from(["ack", "release", "hold"]))
    same = draw(st.booleans())
    clients = draw(st.lists(client, min_size=1, max_size=6))
    if same:
        clients = [one._replace(queues=()) for one in clients]
    limit = draw(st.sampled_from([10_000, 10_000, 2, 5]))
    return Scene(count, tuple(clients), limit, draw(st.booleans()), draw(st.integers(0, count - 1)))


def one_by_one(queues: int, *named: tuple[int, ...], then: str = "ack") -> Scene:
    """Pops of one message by clients that take turns."""
    return Scene(queues, tuple(Client(one, 1, then) for one in named), 10_000, False, 0)


@contextlib.contextmanager
def opened(scene: Scene, kind: str) -> Iterator[Rig]:
    """A broker with a backlog in every queue and in the retry topic."""
    with tempfile.TemporaryDirectory(prefix="popmq-fair-") as folder:
        rig = Rig(Path(folder) / "data")
        rig.do(ask.CreateTopic("t", scene.queues, False, KEEP, kind))
        rig.group("g", max_attempts=1000, in_flight_max=scene.in_flight_max)
        rig.pop(filter=("tag", "x") if scene.filtered else None)
        backlog(rig, kind, scene, 2)
        for row in rig.pop(4 * scene.queues):
            rig.release([row], delay_ms=0)
        backlog(rig, kind, scene, DEPTH_OF_FEW if scene.queues <= FEW else DEPTH)
        yield rig
        assert rig.findings() == []
        rig.abandon()


def backlog(rig: Rig, kind: str, scene: Scene, depth: int) -> None:
    for queue in range(scene.queues):
        count = depth * (10 if queue == scene.hot else 1)
        rig.do(ask.Send("t", tuple(entry(kind, scene.queues, queue, f"{depth}.{place}") for place in range(count))))


def entry(kind: str, queues: int, queue: int, place: str) -> Outgoing:
    """A message for a queue; of a normal topic the request chooses the queue."""
    text = f"{queue}.{place}"
    if kind == "FIFO":
        names = message_groups(queues)[queue]
        return fifo_message(names[int(place.split(".")[1]) % len(names)], text)
    tagged = message(text, tag="y" if place.endswith("1") else "x")
    return tagged._replace(extra=Extra(priority=queue)) if kind == "PRIORITY" and queue else tagged


@functools.cache
def message_groups(queues: int) -> list[list[str]]:
    """Three message groups for each queue."""
    found: list[list[str]] = [[] for _ in range(queues)]
    for number in itertools.count():
        place = int.from_bytes(hash8(str(number)), "big") % queues
        if len(found[place]) < 3:
            found[place].append(str(number))
        elif all(len(names) == 3 for names in found):
            return found
    raise AssertionError


class Watching:
    """How long each source of a group waits."""

    def __init__(self, rig: Rig, scene: Scene) -> None:
        self.rig, self.scene, self.state = rig, scene, rig.core.state
        (self.where,) = self.state.stat.committed()
        self.waited = dict.fromkeys(range(scene.queues), 0)
        self.retries = 0

    def position(self, queue: int) -> int:
        return self.state.poff.get((*self.where, queue), 0)

    def may_lease(self, queue: int) -> bool:
        return self.state.in_flight.get((*self.where, queue), 0) < self.scene.in_flight_max

    def turn(self, client: Client) -> list[Delivery]:
        """One pop, and its effect on the sources that wait."""
        end = self.state.queue_max
        named = client.queues or range(self.scene.queues)
        before = {queue: self.position(queue) for queue in named}
        could = [queue for queue in named if before[queue] < end[(self.where[1], queue)] and self.may_lease(queue)]
        line = list(self.state.ready_groups.of(self.where))
        retries = self.state.stat.get(self.where, Stat()).retry
        could_retry = bool(line or retries) and self.may_lease(RETRY_QUEUE)
        rows = self.rig.pop(client.messages, queues=client.queues)
        served = {queue for queue in named if self.position(queue) > before[queue]}
        left = list(self.state.ready_groups.of(self.where))
        retried = self.state.stat[self.where].retry < retries or line != left
        if line and retried:
            assert line[0] not in left, "the message group that waits longest comes first"
        if served or retried:
            for queue in named:
                self.waited[queue] = self.waited[queue] + 1 if queue in could and queue not in served else 0
            self.retries = self.retries + 1 if could_retry and not retried else 0
        return rows


def play(rig: Rig, scene: Scene, queue_bound: int, retry_bound: int) -> None:
    """The clients in their order, again and again."""
    watching = Watching(rig, scene)
    held: list[Delivery] = []
    for turn in range(max(POPS_MIN, POPS_EACH * scene.queues)):
        client = scene.clients[turn % len(scene.clients)]
        rows = watching.turn(client)
        assert max(watching.waited.values()) <= queue_bound, (turn, watching.waited)
        assert watching.retries <= retry_bound, (turn, watching.retries)
        if client.then == "ack":
            rig.ack(rows)
        elif client.then == "release":
            rig.release(rows, delay_ms=0)
        else:
            held += rows
        if turn % 20 == 19:
            rig.ack(held)
            held.clear()


@pytest.mark.mechanism("S1.38", "D.51")
@pytest.mark.slow
@given(scenes())
@example(one_by_one(5, ()))
@example(one_by_one(10, (), then="release"))
@example(one_by_one(2, (0,), (1,)))
@example(one_by_one(5, (0,), (1,), (2,), (3,), (4,), then="release"))
@settings(max_examples=10)
def test_no_queue_and_no_retry_waits_for_long(scene: Scene) -> None:
    count = scene.queues
    bounds = (
        (count - 1 + -(-count // 4), 4) if scene.alike and not scene.clients[0].queues else (2 * count - 1, 4 + count)
    )
    with opened(scene, "NORMAL") as rig:
        play(rig, scene, *bounds)


@pytest.mark.slow
@given(scenes())
@example(one_by_one(5, ()))
@example(one_by_one(3, (0,), (1, 2), (1,)))
@settings(max_examples=6)
def test_no_queue_of_a_priority_topic_and_no_retry_waits_for_long(scene: Scene) -> None:
    with opened(scene, "PRIORITY") as rig:
        play(rig, scene, 11 * scene.queues, 4 + scene.queues)


@pytest.mark.slow
@given(scenes())
@example(one_by_one(8, ()))
@example(one_by_one(2, (0,), (1,)))
@settings(max_examples=6)
def test_no_queue_of_a_fifo_topic_and_no_waiting_message_group_waits_for_long(scene: Scene) -> None:
    scene = scene._replace(filtered=False)
    with opened(scene, "FIFO") as rig:
        play(rig, scene, 2 * scene.queues - 1, 1 + scene.queues)


class LiteClient(NamedTuple):
    """One of those that pop lite topics in turn."""

    names: tuple[str, ...]  # named in the Pop; empty = what it has subscribed to
    messages: int
    then: str  # ack, or release


LITE_NAMES = tuple(f"n{number}" for number in range(40))
lite_clients = st.builds(
    LiteClient,
    st.one_of(st.just(()), st.lists(st.sampled_from(LITE_NAMES), min_size=1, max_size=5, unique=True).map(tuple)),
    st.sampled_from([1, 1, 2, 20]),
    st.sampled_from(["ack", "release"]),
)


@pytest.mark.slow
@given(st.lists(lite_clients, min_size=1, max_size=5), st.integers(1, 40), st.integers(0, 39))
@settings(max_examples=6)
def test_no_lite_topic_waits_longer_than_each_other_one_takes_a_turn(
    clients: list[LiteClient], count: int, hot: int
) -> None:
    """Between two pops that serve a lite topic each other one of its watch is served at most once."""
    names = LITE_NAMES[:count]
    with tempfile.TemporaryDirectory(prefix="popmq-fair-") as folder:
        rig = Rig(Path(folder) / "data")
        lites.create(rig)
        rig.group("g", max_attempts=1000)
        lites.sync(rig, "c", "ADD", *names)
        for place, name in enumerate(names):
            lites.send(rig, *(f"{name}:{number}" for number in range(200 if place == hot else 20)))
        waited = dict.fromkeys(LITE_NAMES, 0)
        for turn in range(4 * count + 40):
            client = clients[turn % len(clients)]
            mine = client.names or names
            could = [name for name in mine if has_something(rig, name)]
            rows = lites.pop(rig, *client.names, client_id="c", max_messages=client.messages)
            served = {row.body.partition(":")[0] for row in rows}
            for name in mine if served else ():
                waited[name] = waited[name] + 1 if name in could and name not in served else 0
                assert waited[name] < len(LITE_NAMES) + 5, (turn, name)
            if client.then == "ack":
                rig.ack(rows)
            else:
                rig.release(rows, delay_ms=0)
        rig.abandon()


def has_something(rig: Rig, name: str) -> bool:
    topic_id = rig.core.state.watched_id("chat", name)
    return topic_id is not None and rig.core.state.deliverable("g", topic_id)
