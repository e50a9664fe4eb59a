"""Layout: queue 0 … N−1 of a topic ↔ a broker and its queue id, the same at every gateway, whichever brokers live.

    broker-a:4;broker-b:4;broker-a:2        0–3, 4–7, then queues 4 and 5 of broker-a as 8 and 9

It is kept at the name servers, under the topic's name, and only ever appended to: Spark's checkpoints hold queue
numbers, and message groups hash over them. A queue whose broker is gone keeps its number. FIFO topics have it where
Java clients look for an order of queues, others in a namespace of our own. Each name server has a file of its own and
compares nothing, so that two may differ:

    one is the beginning of the other        the longer one counts
    anything else                            UNAVAILABLE, with the command that writes one to all
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from popmq_remoting import RemotingError, Response, ResponseCode
from popmq_remoting.errors import BadFormat
from popmq_remoting.names import QUEUES_MAX
from popmq_server.errors import Refused, no_queue, unavailable

_FIFO_NAMESPACE, _NAMESPACE = "ORDER_TOPIC_CONFIG", "POPMQ"
#: After this time a client may ask again about a layout that is damaged or missing: an operator has to write it.
_MENDED_MS = 5_000


class QueuePlace(NamedTuple):
    """One queue of one broker."""

    broker: str
    queue_id: int


class Layout:
    """The queues of a topic in the order of their numbers."""

    def __init__(self, places: Sequence[QueuePlace]) -> None:
        self.places = tuple(places)
        self._numbers = {place: number for number, place in enumerate(self.places)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.places == other.places

    def __hash__(self) -> int:
        return hash(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def place(self, topic: str, queue: int, field: str = "queue") -> QueuePlace:
        """The broker and id of a queue. Raises Refused INVALID_FIELD."""
        if not 0 <= queue < len(self.places):
            raise no_queue(topic, len(self.places), queue, field)
        return self.places[queue]

    def number(self, broker: str, queue_id: int) -> int | None:
        """The number of a queue; None for one that was added since: `appended` gives it one."""
        return self._numbers.get(QueuePlace(broker, queue_id))

    def text(self) -> str:
        """The text by which name servers keep it, such as "a:4;b:4"."""
        runs = ((broker, len([*places])) for broker, places in groupby(self.places, key=lambda place: place.broker))
        return ";".join(f"{broker}:{count}" for broker, count in runs)

    def counts(self) -> dict[str, int]:
        """How many queues each broker has."""
        return Counter(place.broker for place in self.places)

    def begins(self, other: "Layout") -> bool:
        """Whether the first queues of the other layout are all of this one, in the same order."""
        return other.places[: len(self.places)] == self.places

    def appended(self, queues: Mapping[str, int]) -> "Layout":
        """The layout with the queues that only a route has, sorted, behind its own. `queues`: numbers by broker."""
        more = [place for place in _sorted(queues) if place not in self._numbers]
        return Layout((*self.places, *more)) if more else self


def of_route(queues: Mapping[str, int]) -> Layout:
    """The first layout of a topic: its queues by broker and id, as RocketMQ's own proxy orders them."""
    return Layout(_sorted(queues))


def _sorted(queues: Mapping[str, int]) -> list[QueuePlace]:
    return [QueuePlace(broker, id) for broker, count in sorted(queues.items()) for id in range(count)]


def spread(queues: int, brokers: Sequence[str]) -> dict[str, int]:
    """How many of a new topic's queues each broker gets: equal shares, the first ones get what is left, each one."""
    share, left = divmod(queues, len(brokers))
    return {broker: max(1, share + (place < left)) for place, broker in enumerate(sorted(brokers))}


def grown(counts: Mapping[str, int], more: int, brokers: Sequence[str]) -> dict[str, int]:
    """The numbers of queues with so many more, each where there are the fewest. `brokers`: those that may get some."""
    found = dict.fromkeys(brokers, 0) | dict(counts)
    for _ in range(more):
        found[min(sorted(brokers), key=lambda broker: found[broker])] += 1
    return {broker: count for broker, count in found.items() if count}


def namespace(is_fifo: bool) -> str:
    """Where the layout of a topic is kept."""
    return _FIFO_NAMESPACE if is_fifo else _NAMESPACE


def read(text: str) -> Layout:
    """A layout from its text. Raises BadFormat."""
    places, ids = list[QueuePlace](), dict[str, int]()
    for run in text.split(";"):
        broker, colon, count = run.rpartition(":")
        if not (colon and broker and count.isascii() and count.isdecimal() and 0 < len(count) < 6 and int(count)):
            raise BadFormat(f"{run[:60]!r} is no broker with a number of queues")
        first = ids.get(broker, 0)
        ids[broker] = first + int(count)
        places += [QueuePlace(broker, id) for id in range(first, ids[broker])]
        if len(places) > QUEUES_MAX:
            raise BadFormat(f"more than {QUEUES_MAX} queues")
    return Layout(places)


def read_kept(text: str) -> Layout:
    """As `read`, for a list of topics: an empty layout if there is no text, or it cannot be read."""
    try:
        return read(text) if text else Layout([])
    except BadFormat:
        return Layout([])


class Agreed(NamedTuple):
    """The layout that the name servers agree on. `everywhere`: each of them has it, so nothing has to be written."""

    layout: Layout
    everywhere: bool


def agreed(topic: str, texts: Sequence[str | None]) -> Agreed | None:
    """What the name servers that answered say of a topic, as PopMQ calls it; None: none of them has its layout.

    `texts`: what each one has, None for nothing. Raises Refused UNAVAILABLE if two contradict each other.
    """
    kept = [text for text in texts if text]
    try:
        layouts = sorted({read(text) for text in kept}, key=len)
    except BadFormat as bad:
        raise _contradiction(topic, kept, f"cannot be read: {bad}") from None
    if not layouts:
        return None
    longest = layouts[-1]
    if not all(layout.begins(longest) for layout in layouts):
        raise _contradiction(topic, kept, "is not the same at all name servers")
    return Agreed(longest, len(layouts) == 1 and len(kept) == len(texts))


def kept(topic: str, answers: Mapping[str, Response | RemotingError]) -> list[str | None]:
    """What each name server that answered has under a topic: the text of its layout, or None.

    Raises Refused UNAVAILABLE if none answered: then nobody knows.
    """
    answered = [answer for answer in answers.values() if isinstance(answer, Response)]
    known = [answer for answer in answered if answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)]
    if not known:
        raise unavailable(f"no name server says what the layout of topic {topic!r} is: {', '.join(answers)}")
    return [answer.fields.get("value") if answer.code == ResponseCode.SUCCESS else None for answer in known]


def missing(topic: str) -> Refused:
    """UNAVAILABLE for a FIFO topic without a layout: another order of its queues would break that of its messages."""
    return Refused(
        "UNAVAILABLE",
        f"no name server has the layout of the FIFO topic {topic!r}; name servers that were replaced have lost it",
        action=_mended(topic),
        retry_after_ms=_MENDED_MS,
    )


def _mended(topic: str) -> str:
    return f"the operator writes the right one to all: popmq cluster layout {shlex.quote(topic)} --set LAYOUT"


def _contradiction(topic: str, texts: Sequence[str], why: str) -> Refused:
    """UNAVAILABLE, with the texts: only the operator can know which layout clients have seen."""
    known = " and ".join(repr(text[:200]) for text in sorted({*texts}))
    return Refused(
        "UNAVAILABLE",
        f"the layout of topic {topic!r} {why}; there is {known}",
        action=_mended(topic),
        retry_after_ms=_MENDED_MS,
    )
