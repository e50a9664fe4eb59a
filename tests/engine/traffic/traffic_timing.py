"""Delayed and half messages for tests, as the api makes them; and random commands about them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Place, queries
from popmq_server.contract.commands.numbers import R, Rows
from popmq_server.contract.operations import Query
from popmq_server.embedded import operations
from popmq_server.embedded.rules.sending.transaction import FIRST_CHECK_MS
from popmq_server.embedded.state.jobs import Timed
from popmq_server.values.limits import KEEP_MS_MAX
from popmq_server.values.message import GIVE_UP_TOPIC, Extra
from popmq_server.values.outgoing import Outgoing, hash8
from tests.engine.rig import HOUR, KEEP, MINUTE, SECOND, Rig, message, parsed
from tests.engine.traffic.traffic import Traffic
from tests.known import known


def later(body: str, **asked: Any) -> Outgoing:
    """A message with fields of Extra: due_ms, delay_ms, transaction, message_group, priority."""
    extra = Extra(**asked)
    names = {"due_ms": "deliver_at_ms"}
    fields: dict[str, Any] = {names.get(name, name): value for name, value in asked.items()}
    name = body[:32]
    made = pb.Message(message_id=name, body=body.encode(), **fields)
    return Outgoing(made.SerializeToString(), bytes(8), (hash8(name),), name, extra if any(extra) else None)


def timed_pair(rig: Rig, kind: str = "DELAY", queues: int = 1) -> None:
    """Topic t of a type that takes delayed and half messages, and group g, the group bound to the topic."""
    make_topic(rig, "t", kind, queues)
    rig.group("g")
    rig.pop()


def make_topic(rig: Rig, name: str, kind: str = "DELAY", queues: int = 1) -> int:
    topic_id: int = rig.do(ask.CreateTopic(name, queues, False, KEEP, kind))[0].topic_id
    return topic_id


def send(rig: Rig, *messages: Outgoing, topic: str = "t", **more: Any) -> list[Place]:
    """Sends the messages in one request; returns the place of each."""
    sent: ask.Sent = rig.do(ask.Send(topic, messages, **more))
    return list(sent.places or (Place(sent.queue, sent.first + step) for step in range(len(messages))))  # type: ignore[arg-type]


def handle_of(place: Place) -> str:
    assert place.recall_handle
    return place.recall_handle


def recall(rig: Rig, place: Place, topic: str = "t") -> str:
    """Recalls a message; returns its id."""
    message_id: str = rig.do(ask.Recall(topic, handle_of(place)))
    return message_id


def transaction_of(place: Place) -> str:
    assert place.transaction_id
    return place.transaction_id


def ending(places: Iterable[Place], commit: bool) -> ask.EndTransaction:
    return ask.EndTransaction(tuple(ask.End(transaction_of(place), commit) for place in places))


def delayed(rig: Rig, name: str = "", until_ms: int = 0) -> list[str]:
    """Ids of delayed messages, soonest first."""
    return [row.message_id for row in every_page(rig, queries.Delayed(name, until_ms, 4096))[0]]


def halves(rig: Rig, name: str = "") -> list[str]:
    """Ids of half messages, oldest first."""
    return [row.message_id for row in every_page(rig, queries.Transactions(name, 4096))[0]]


def every_page(rig: Rig, query: Query[tuple[Rows[R], int]]) -> tuple[list[R], int]:
    """The rows of all pages of a list, and the total number that comes with the first page."""
    rows, total = rig.look(query)
    found, after = list(rows), rows.after
    while after:
        rows, _ = rig.look(replace(cast(Any, query), after=after))
        found, after = found + rows, rows.after
    return found, total


def dead_letters(rig: Rig) -> list[Any]:
    """Half messages that were given up."""
    return [parsed(row[0]) for row in rig.browse(GIVE_UP_TOPIC).rows]


def waiting(rig: Rig, name: str = "t") -> tuple[int, int]:
    """(delayed, half) of a topic, as counted."""
    (row,) = rig.look(queries.Topics(name))
    return known(row.delayed), known(row.half)


def texts(rig: Rig, topic: str = "t") -> list[str]:
    """The bodies of the visible messages of a topic with one queue, in order."""
    return [parsed(row[0]).body.decode() for row in rig.browse(topic).rows]


def fill(rig: Rig, count: int, due_ms: int) -> None:
    """Messages 0, 1, … that are due at the same time, in requests of 1,000."""
    for start in range(0, count, 1000):
        send(rig, *(later(f"{start + place}", due_ms=due_ms) for place in range(min(1000, count - start))))


def step_wall(rig: Rig, ms: int) -> None:
    """Sets the machine's clock."""
    assert isinstance(rig.clock, FakeClock)
    rig.clock.step_wall(ms)


class TimedTraffic(Traffic):
    """Random commands of every kind, delayed and half messages of topic w among them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.places: list[Place] = []
        kinds: list[Callable[[], Any]] = [self.wait] * 6 + [self.take_back] * 3 + [self.end] * 4 + [self.count]
        self._kinds += [*kinds, self.listen, self.remake]

    def first(self) -> list[Any]:
        return [*super().first(), self._topic()]

    def _topic(self) -> ask.CreateTopic:
        return ask.CreateTopic("w", 2, False, KEEP_MS_MAX, "TRANSACTION")

    def learn(self, commands: list[Any], results: list[Any]) -> None:
        super().learn(commands, results)
        for command, result in zip(commands, results, strict=True):
            if isinstance(command, ask.Send) and isinstance(result, ask.Sent):
                self.places += [place for place in result.places or () if isinstance(place, Place)]
            if isinstance(command, ask.EndTransaction) and isinstance(result, list):
                self.places += [entry.place for entry in result if isinstance(entry, ask.Ended)]
        del self.places[:-60]

    def wait(self) -> ask.Send:
        self.sent += 1
        chosen: list[dict[str, Any]] = [
            {"delay_ms": self.chance.choice([1, SECOND, HOUR])},
            {"due_ms": self.now_ms + self.chance.choice([-SECOND, 1, SECOND, 1 << 60])},
            {"transaction": True},
            {"transaction": True, "delay_ms": SECOND},
        ]
        count = self.chance.randint(1, 3)
        messages = tuple(later(f"w{self.sent}.{at}", **self.chance.choice(chosen)) for at in range(count))
        return ask.Send("w", (*messages, message(f"w{self.sent}")))

    def take_back(self) -> Any:
        known = [place for place in self.places if place.recall_handle]
        return ask.Recall("w", handle_of(self.chance.choice(known))) if known else self.wait()

    def end(self) -> Any:
        known = [place for place in self.places if place.transaction_id]
        chosen = self.chance.choices(known, k=self.chance.randint(1, 4)) if known else []
        return ending(chosen, self.chance.random() < 0.7) if chosen else self.wait()

    def count(self) -> Any:
        return operations.CountChecks(tuple((check.transaction, check.number) for check in self.checks[-20:]))

    def listen(self) -> Any:
        return operations.Listen(frozenset(self.chance.choice([(), ("w",)])))

    def remake(self) -> Any:
        return ask.DeleteTopic("w") if self.chance.random() < 0.1 else self._topic()

    def pause_ms(self) -> int:
        return self.chance.choice([0, 1, 10, SECOND, FIRST_CHECK_MS, MINUTE])


def listen(rig: Rig, *topics: str) -> None:
    rig.do(operations.Listen(frozenset(topics), topics))


def timed(rig: Rig) -> Timed:
    """Does all periodic work that is due."""
    checks, given_up = [], list[str]()
    while rig.due:
        found = rig.commit().timed
        checks += found.checks
        given_up += found.given_up
    return Timed([], [], checks, given_up)


def asked(rig: Rig) -> list[tuple[str, int]]:
    """(body, number) of each check-back that is sent now."""
    return [(parsed(check.data).body.decode()[:9], check.number) for check in timed(rig).checks]
