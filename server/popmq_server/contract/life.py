"""Life: an engine as the process around it sees it (process/serving.py): what it is started with, and how it ends.

    made by its factory (process/engines.py) ─▶ start ─▶ an Engine for protocols/ ─▶ close_waits ─▶ close
                                                 └─▶ failed: it is lost, and the process ends

What only one engine has, such as a data folder, stays behind it.

See docs/decisions/0050-a-life-of-its-own.md.
"""

import asyncio
import pathlib
from typing import NamedTuple, Protocol

from popmq_server.contract.commands.numbers import GroupNumbers, ScheduleNumbers, StoreNumbers, TopicNumbers
from popmq_server.contract.engine import BasicEngine


class Words(NamedTuple):
    """How sentences for operators name its parts."""

    worker: str  # who answers `alive`, as in "… has not answered for 5 s"
    failure: str  # what has happened when `failed` is done
    recovery: str  # what happens then
    closed: str  # what is the case once it is closed


class BrokerNumbers(NamedTuple):
    """One broker of a cluster. `ahead_s`: its clock; None until learnt. `version`: "" until it has answered."""

    name: str
    in_flight: int
    reconnects: int
    breaker_open: bool
    ahead_s: float | None
    version: str


class GatewayNumbers(NamedTuple):
    """What a gateway knows of its cluster. `route_age_s`: None while no name server has answered."""

    brokers: list[BrokerNumbers]
    route_age_s: float | None
    parked_waits: int
    gathered_sends: int
    lookups_before_commit: int
    member_connections: int


class EngineNumbers(NamedTuple):
    """Its numbers for one scrape of the metrics. `store`, `schedules`, `gateway`: None if it has none."""

    topics: list[TopicNumbers]
    groups: list[GroupNumbers]
    producers: int
    store: StoreNumbers | None = None
    schedules: ScheduleNumbers | None = None
    gateway: GatewayNumbers | None = None


class Kept(Protocol):
    """Where the history of the numbers is kept over a restart."""

    def read(self) -> bytes:
        """The bytes of the kept history; b"" if there is none that may be read."""

    def write(self, content: bytes) -> None:
        """Replaces it, or leaves it as it is."""


class Life(Protocol):
    """One engine from its start to its end, inside one event loop."""

    words: Words
    #: Labels of the metric popmq_build_info.
    labels: dict[str, str]

    async def start(self) -> BasicEngine:
        """Opens what it needs; returns what protocols/ serves. Raises StartError; then nothing is open."""

    @property
    def failed(self) -> "asyncio.Future[BaseException]":
        """Done when the engine is lost: the process has to end. Known after `start`."""

    async def alive(self) -> None:
        """Returns when it has answered. Raises Refused if it says that it cannot."""

    async def ready(self) -> None:
        """Returns if it can serve clients. Raises Refused, which says what it waits for: a start of it may go on
        while the ports are open.
        """

    def reload(self) -> list[str]:
        """Reads the files that only it has again, if they were replaced; returns what changed."""

    def parked(self) -> int:
        """Calls that wait for messages."""

    async def numbers(self) -> EngineNumbers:
        """The numbers of a scrape. Raises Refused."""

    def certificate_folder(self) -> pathlib.Path | None:
        """Where a certificate for development is kept; None: the engine has no place for one."""

    def history(self) -> Kept | None:
        """Where the history is kept; None: it begins with each start. Called after `start`."""

    def close_waits(self) -> None:
        """Answers calls that wait: the process stops."""

    async def close(self) -> None:
        """Ends it. What was answered is kept. Raises EngineFailed."""
