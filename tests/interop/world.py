"""What a scenario works with: one client in processes of its own, one server, and unique names.

scenario(world) ─▶ world.start() a driver ─▶ world.topic(), world.group() ─▶ calls ─▶ outcome: plain data
"""

import base64
import itertools
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.interop.harness import ClientError, Driver, Line
from tests.interop.targets import Target

#: A long poll that even servers which refuse short ones accept; clients round it to seconds.
AWAIT_MS = 3_000


class World:
    """Closes what was started in it. Times are seconds, except where a name says ms."""

    def __init__(self, client: str, command: list[str], target: Target, folder: Path) -> None:
        self.client, self.target, self._command, self._folder = client, target, command, folder
        self._drivers: list[Driver] = []
        self._names = itertools.count(1)
        self._mark = uuid.uuid4().hex[:8]

    def start(self, **environment: str) -> Driver:
        """One more process of the client."""
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        number = len(self._drivers)
        driver = Driver(
            self._command, folder / f"{self.client}-{self._mark}-{number}.log", folder / "home", environment
        )
        self._drivers.append(driver)
        return driver

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()

    def name(self, kind: str) -> str:
        return f"{kind}-{self._mark}-{next(self._names)}"

    def topic(self, type: str = "NORMAL") -> str:
        name = self.name("topic")
        self.target.topic(name, type)
        return name

    def group(self, fifo: bool = False, max_attempts: int = 17, backoff_s: Iterable[int] = ()) -> str:
        name = self.name("group")
        self.target.group(name, fifo, max_attempts, list(backoff_s))
        return name

    @property
    def at(self) -> Line:
        """Where clients connect to: the CONNECTION of the drivers' protocol."""
        return {"endpoint": self.target.endpoint}

    def producer(self, driver: Driver, *topics: str, **more: Any) -> str:
        name = self.name("producer")
        driver.call("producer", name=name, topics=list(topics), **{**self.at, **more})
        return name

    def simple(self, driver: Driver, topic: str, group: str, filter: Line | None = None, **more: Any) -> str:
        name = self.name("simple")
        wanted: Line = {"group": group, "subscriptions": {topic: filter or {}}, "await_ms": AWAIT_MS}
        driver.call("simple", name=name, **{**self.at, **wanted, **more})
        return name

    def push(self, driver: Driver, topic: str, group: str, **more: Any) -> str:
        name = self.name("push")
        driver.call("push", name=name, **{**self.at, "group": group, "subscriptions": {topic: {}}, **more})
        return name


def send(driver: Driver, producer: str, topic: str, body: str, transaction: str | None = None, **more: Any) -> Line:
    """Sends a text; the receipt as far as the client shows it."""
    message = {"topic": topic, "body": encoded(body.encode()), **more}
    extra: Line = {"transaction": transaction} if transaction else {}
    return driver.call("send", name=producer, message=message, **extra)


def receive(
    driver: Driver, consumer: str, count: int = 1, within: float = 20, invisible_ms: int = 10_000, ack: bool = True
) -> list[Line]:
    """Receives until `count` messages came or the time is over; acks each."""
    until, got = time.monotonic() + within, list[Line]()
    while len(got) < count and time.monotonic() < until:
        batch = driver.call("receive", name=consumer, max=16, invisible_ms=invisible_ms)["messages"]
        got += batch
        for message in batch if ack else ():
            driver.call("ack", name=consumer, held=message["held"])
    return got


def nothing(driver: Driver, consumer: str, polls: int = 1) -> bool:
    """Whether long polls end with no message."""
    return not any(driver.call("receive", name=consumer, max=16, invisible_ms=10_000)["messages"] for _ in range(polls))


def listened(driver: Driver, consumer: str, count: int, within: float = 30, ok: bool | None = None) -> list[Line]:
    """The calls of a listener that returned, once there are `count` of them or the time is over."""

    def enough(events: list[Line]) -> list[Line]:
        seen = [e for e in events if e["event"] == "listened" and e.get("name") == consumer]
        seen = [e for e in seen if ok is None or e["ok"] == ok]
        return seen if len(seen) >= count else []

    driver.wait_for(enough, within)
    return [e for e in driver.events("listened", consumer) if ok is None or e["ok"] == ok]


def refusal(call: Callable[[], Any]) -> int | str:
    """The code of the client's error, or its kind if it shows none; "none" when it raised nothing."""
    try:
        call()
    except ClientError as error:
        return error.code or error.kind
    return "none"


def until_ok(call: Callable[[], Any], within: float = 60, pause: float = 0.5) -> bool:
    """Retries as an application would until the client raises nothing; False when the time is over."""
    until = time.monotonic() + within
    while True:
        try:
            call()
            return True
        except ClientError:
            if time.monotonic() > until:
                return False
            time.sleep(pause)


def encoded(body: bytes) -> str:
    return base64.b64encode(body).decode()


def text(message: Line) -> str:
    """The body as text."""
    return base64.b64decode(message["body"]).decode()


def texts(messages: Iterable[Line]) -> list[str]:
    """Bodies in the order in which they came."""
    return [text(message) for message in messages]
