"""The two brokers of a migration, and one topic on its way from the first to the second."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import click

import popmq
from popmq_cli.shared.asking import REACH_S, connect
from popmq_cli.shared.connection import CONNECTION
from popmq_cli.shared.contexts import Contexts, path

#: The property of a copy: where its original is. `CREATED/QUEUE/OFFSET`, of a delayed message `CREATED/delayed/ID`;
#: CREATED is when the topic was created, so an original of another topic with this name is not taken for one of this.
MARK = "popmq_migrated_from"
DELAYED = "delayed"
#: Rows of one request that only asks for marks.
MARKS_PAGE = 4096


class Place(NamedTuple):
    """Where a message is in a topic."""

    queue: int
    offset: int


def connected(named: str, option: str, timeout: float) -> popmq.Client:
    """A client of the broker with this context, or at this HOST:PORT.

    An endpoint is called without TLS and without an access key, whatever the environment says: the variables are for
    one broker, and here are two.
    """
    if named in Contexts(path()).by_name:
        return connect(dict.fromkeys(CONNECTION) | {"context": named}, {}, timeout)
    if ":" not in named:
        raise click.BadParameter(
            f"{named!r} is neither HOST:PORT nor one of `popmq context list`: give a broker with TLS or an access key "
            f"a name, `popmq context add {named} --endpoint HOST:PORT …`",
            param_hint=option,
        )
    return popmq.Client(
        named,
        tls=False,
        tls_ca="",
        client_cert="",
        client_key="",
        access_key="",
        secret="",
        timeouts=popmq.Timeouts.all(timeout),
        retry=popmq.Retry(reach=REACH_S if timeout < math.inf else math.inf),
    )


@dataclass
class Copied:
    """The offsets of the first topic that the second broker has: a byte for each."""

    queues: dict[int, bytearray] = field(default_factory=dict)
    count: int = 0
    twice: int = 0  # copies beyond the first one of a message

    def add(self, place: Place) -> None:
        """Notes a copy."""
        known = self.queues.setdefault(place.queue, bytearray())
        if place.offset >= len(known):
            known.extend(bytes(place.offset + 1 - len(known)))
        if known[place.offset]:
            self.twice += 1
        else:
            known[place.offset] = 1
            self.count += 1

    def __contains__(self, place: Place) -> bool:
        known = self.queues.get(place.queue, b"")
        return place.offset < len(known) and bool(known[place.offset])

    def next_missing(self, place: Place) -> int:
        """The first offset from this one on that is not copied."""
        known = self.queues.get(place.queue, b"")
        if place.offset >= len(known):
            return place.offset
        missing = known.find(b"\0", place.offset)
        return len(known) if missing < 0 else missing


class Stored(NamedTuple):
    """A message that the second broker has: its place there, and its mark, None for one of a producer's own."""

    place: Place
    origin: Place | None
    delayed_id: str | None

    @property
    def own(self) -> bool:
        """Whether it is no copy."""
        return self.origin is None and self.delayed_id is None


@dataclass
class Migration:
    """One topic: `source` has it, `target` gets it."""

    source: popmq.Client
    target: popmq.Client
    topic: popmq.Topic  # of the source
    copied: Copied = field(default_factory=Copied)
    delayed_ids: set[str] = field(default_factory=set)  # delayed messages that the target has, or had
    #: Originals that a killed run has sent as delayed messages and not recalled, and that became visible meanwhile.
    sent_early: dict[str, Place] = field(default_factory=dict)
    own: int = 0  # messages that producers sent to the target

    @property
    def name(self) -> str:
        """The topic's, on both."""
        return self.topic.name

    def mark(self, place: Place) -> str:
        """The mark of the copy of a message."""
        return f"{self.topic.created_ms}/{place.queue}/{place.offset}"

    def delayed_mark(self, message_id: str) -> str:
        """The mark of the copy of a delayed message, which has no place yet."""
        return f"{self.topic.created_ms}/{DELAYED}/{message_id}"

    def origin(self, mark: str) -> tuple[Place | None, str | None]:
        """The place or the id in a mark; neither for one of another topic."""
        created, _, rest = mark.partition("/")
        queue, _, rest = rest.partition("/")
        if created != str(self.topic.created_ms):
            return None, None
        if queue == DELAYED:
            return None, rest
        return (Place(int(queue), int(rest)), None) if queue.isdecimal() and rest.isdecimal() else (None, None)

    def stored(self, ends: Iterable[popmq.QueueOffsets]) -> Iterator[Stored]:
        """What the target has in its queues, up to these ends: queue by queue, without bodies."""
        for row in ends:
            offset = row.min_offset
            while offset < row.max_offset:
                page = self.target.pull_columns(
                    self.name, row.queue, offset, row.max_offset, MARKS_PAGE, columns=("properties",)
                )
                for found, properties in zip(page.columns.offset, page.columns.properties, strict=True):
                    origin = self.origin(properties[MARK]) if MARK in properties else (None, None)
                    yield Stored(Place(row.queue, found), *origin)
                if page.next_offset <= offset:
                    break
                offset = page.next_offset

    def read_target(self) -> None:
        """Finds out what the target has: after a kill, what not to copy again."""
        for each in self.stored(self.target.offsets.query(self.name)):
            if each.origin is not None:
                self.copied.add(each.origin)
            elif each.delayed_id is not None:
                self.delayed_ids.add(each.delayed_id)
            else:
                self.own += 1
