"""Two brokers, and what the tests of `popmq migrate` do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import popmq
from popmq.testing import FakeClock, broker
from popmq_cli.migrating.brokers import MARK
from tests.cli.conftest import Cli, Done

Migrate = Callable[..., Done]


@pytest.fixture
def target(popmq_clock: FakeClock) -> Iterator[popmq.Client]:
    """A client of the second broker, which has nothing yet."""
    with broker(popmq_clock) as second:
        yield second.client()


@pytest.fixture
def source(client: popmq.Client, popmq_clock: FakeClock) -> popmq.Client:
    """The client of the first broker, which has the topic orders and the group billing."""
    return client


@pytest.fixture
def migrate(run: Cli, source: popmq.Client, target: popmq.Client) -> Migrate:
    """`migrate("orders", "--json")`, from the first to the second."""

    def migrate(*arguments: str) -> Done:
        return run("migrate", "--from", source.endpoint, "--to", target.endpoint, *arguments)

    return migrate


def left(client: popmq.Client, topic: str, group: str) -> list[str]:
    """The bodies of all that a group still gets, in the order of delivery; it acks them."""
    found: list[str] = []
    client.groups.set_consume_mode(topic, group, "POP")
    while popped := client.pop(topic, group, 1000):
        found += [each.text() for each in popped]
        client.ack(popped)
    return found


def own(message: popmq.Delivery) -> dict[str, str]:
    """The properties that its producer has given it."""
    return {name: value for name, value in message.properties.items() if name != MARK}


def send(client: popmq.Client, count: int, topic: str = "orders") -> None:
    """Messages "0", "1", …, some in a request."""
    for first in range(0, count, 7):
        client.send(topic, [str(number) for number in range(first, min(count, first + 7))])


def work(client: popmq.Client, group: str, count: int) -> list[popmq.Delivery]:
    """Pops messages one after the other."""
    return [each for _ in range(count) for each in client.pop("orders", group, 1, invisible=3600)]


class Killed(BaseException):
    """What a kill looks like to a program: nothing is done any more."""


def killed_at(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, call: int, after: bool) -> None:
    """Ends the program at a call of a function, before or after it is done; the first call is 0."""
    original, calls = getattr(where, name), iter(range(1_000_000))

    def dying(*arguments: Any, **named: Any) -> Any:
        dies = next(calls) == call
        if dies and not after:
            raise Killed
        done = original(*arguments, **named)
        if dies:
            raise Killed
        return done

    monkeypatch.setattr(where, name, dying)


def delay(source: popmq.Client, clock: FakeClock) -> None:
    source.topics.create("mail", type="DELAY")
    source.send("mail", [popmq.Message("by time", deliver_at=clock.now() + 100, key="k"), "at once"])
    source.send("mail", popmq.Message("by delay", delay=200))
    source.groups.set_consume_mode("mail", "billing", "POP")  # it names the topic, and so begins there


def lacks(monkeypatch: pytest.MonkeyPatch, client: popmq.Client, *names: str) -> None:
    """The engine of this broker says that it lacks these capabilities."""
    info, endpoint = popmq.Client.info, client.endpoint

    def said(asking: popmq.Client, **how: Any) -> popmq.BrokerInfo:
        found = info(asking, **how)
        return replace(found, lacking=dict.fromkeys(names, "")) if asking.endpoint == endpoint else found

    monkeypatch.setattr(popmq.Client, "info", said)
