"""The histories of a campaign, joined by message and by delivery, and the content of the broker afterwards.

    sent        message id → topic, and position if any answer named it
    by_handle   handle → delivery, with every Ack and ChangeInvisibleTime that named it
    chains      (group, message id) → its deliveries, in the order of the broker's times

A pop without an answer may have leased any message of its topic: `hidden_pops` counts such pops within a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from popmq_verify.load.history import NEVER, History, Operation

#: How far the clocks of broker and clients may be apart, in ms.
CLOCKS_MS = 50
Position = tuple[int, int]  # queue, offset
Reading = tuple[str, str]  # group, topic


@dataclass(slots=True)
class Touch:
    """One entry of an Ack or ChangeInvisibleTime: the request for one handle.

    `code`: 0 or the popmq.v1.Code of the answer, None without one. `asked_ms`: the new length of the lease, or the
    delay. `visible_ms`: the deadline that the broker answered. `dead`: the answer said that it is a dead letter now.
    """

    operation: Operation
    kind: str  # ack, extend, release, reject
    code: int | None
    asked_ms: int = 0
    uncounted: bool = False
    visible_ms: int = 0
    dead: bool = False

    @property
    def done(self) -> bool:
        """True if the broker answered that it happened."""
        return self.code == 0

    @property
    def possible(self) -> bool:
        """True if it happened, or may have happened."""
        return self.done or (self.code is None and self.operation.how == "unknown")

    @property
    def ends(self) -> bool:
        """True if it ended the lease, or may have."""
        return self.kind != "extend" and self.possible


@dataclass(slots=True)
class Delivery:
    """One answered delivery, known by its handle; a replay is the same delivery again.

    `popped_ms`, `until_ms`: the beginning and the deadline of its lease, by the broker's clock. `pop`: the first
    operation that returned it. `follower`: in a FIFO topic, an earlier message of its message group came in the same
    pop: if that one fails, this one waits again, uncounted.
    """

    group: str
    topic: str
    message_id: str
    handle: str
    attempt: int
    position: Position
    popped_ms: int
    until_ms: int
    pop: Operation
    follower: bool = False
    touches: list[Touch] = field(default_factory=list)

    def deadlines(self, during: Operation, wall_minus_monotonic_ns: int, but: Touch | None = None) -> list[float]:
        """Every deadline that may apply while an operation runs, except those that `but` asked for."""
        possible: list[float] = [self.until_ms]
        for touch in self.touches:
            if touch is but or not touch.possible or touch.operation.called_ns > during.returned_ns:
                continue
            if touch.kind != "extend":
                continue
            if not touch.done:  # it was done at some time until its caller gave up, or never
                times_ns = touch.operation.called_ns, touch.operation.returned_ns
                possible += [(ns + wall_minus_monotonic_ns) / 1e6 + touch.asked_ms for ns in times_ns]
            elif touch.operation.returned_ns <= during.called_ns:
                possible = [touch.visible_ms]
            else:
                possible.append(touch.visible_ms)
        return possible


@dataclass(slots=True)
class Sent:
    """A message of some Send or Settle; `position` is known once any of its tries was answered. `message_group`: of a
    FIFO topic.
    """

    topic: str
    called_ns: int
    position: Position | None = None
    message_group: str = ""


@dataclass(slots=True)
class DeadLetter:
    """A dead letter, as found at rest. `position`: of the original message. `intact`: its body is the one that was
    sent.
    """

    topic: str
    position: Position
    attempts: int
    reason: str
    intact: bool


@dataclass
class Survey:
    """The stored messages with their positions, the dead letters and the numbers, after everything came to rest.

    `stats`: the numbers of GetStats for each group and topic. `max_attempts`: of each group, as it was created.
    """

    stored: dict[str, dict[str, list[Position]]] = field(default_factory=dict)  # topic → message id → positions
    dead: dict[str, dict[str, list[DeadLetter]]] = field(default_factory=dict)  # group → message id → dead letters
    stats: dict[Reading, dict[str, int]] = field(default_factory=dict)
    max_attempts: dict[str, int] = field(default_factory=dict)
    dropping: bool = False  # retention dropped what every group had finished


class Facts:
    """Indexes over a history; `oddities` are contradictions found while joining it, as (claim, sentence)."""

    def __init__(self, history: History) -> None:
        """Joins the operations of a history by message id and by handle. Calls come before the answers that refer to
        them, so the order is: sends, pops, acks and changes.
        """
        self.history = history
        self.oddities: list[tuple[str, str]] = []
        self.sent: dict[str, Sent] = {}
        self.by_handle: dict[str, Delivery] = {}
        self._join_sends()
        self._join_pops()
        self._join_touches()

    @cached_property
    def chains(self) -> dict[tuple[str, str], list[Delivery]]:
        """(group, message id) → its deliveries, in the broker's order."""
        chains: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
        for delivery in self.by_handle.values():
            chains[delivery.group, delivery.message_id].append(delivery)
        for chain in chains.values():
            chain.sort(key=lambda delivery: (delivery.popped_ms, delivery.attempt, delivery.pop.called_ns))
        return chains

    def acked(self, group: str, message_id: str) -> bool:
        """Whether the group acked a message, or may have."""
        chain = self.chains.get((group, message_id), [])
        return any(touch.kind == "ack" and touch.possible for one in chain for touch in one.touches)

    def hidden_pops(self, group: str, topic: str, from_ns: int, to_ns: int) -> int:
        """How many pops without an answer may have taken a message of this topic between the two times."""
        calls, returns = self._unanswered.get((group, topic), ([], []))
        return bisect_left(calls, to_ns) - bisect_left(returns, from_ns)

    def silent_ms(self, from_ms: float, to_ns: int) -> float:
        """The longest time between the two in which the broker answered no call of any client."""
        from_ns = int(from_ms * 1e6) - self.history.wall_minus_monotonic_ns
        between = self._answered[bisect_left(self._answered, from_ns) : bisect_left(self._answered, to_ns)]
        return max(later - sooner for sooner, later in pairwise([from_ns, *between, to_ns])) / 1e6

    @cached_property
    def _answered(self) -> list[int]:
        """The times at which any client got an answer, ascending, in ns."""
        return sorted(operation.returned_ns for operation in self.history.operations if operation.ok)

    @cached_property
    def _unanswered(self) -> dict[Reading, tuple[list[int], list[int]]]:
        """The pops that may have leased messages unseen: (group, topic) → times of the calls, times of the returns,
        each ascending.
        """
        replays: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        tries: dict[tuple[str, str], list[int]] = defaultdict(list)
        for pop in self.history.of("pop"):
            if pop.told.get("replay"):
                replays[pop.client, pop.asked["attempt_id"]].append((pop.called_ns, pop.told["popped_ms"]))
            if pop.how != "refused":
                tries[pop.client, pop.asked["attempt_id"]].append(pop.called_ns)
        times: dict[Reading, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for pop in self.history.of("pop"):
            if pop.how != "unknown":
                continue
            # A replay behind it, of its lease or of an earlier one, shows all that it leased. One of a later lease does
            # not: the first one was over when the call was repeated, or the next call may have made the replayed one.
            attempt = pop.client, pop.asked["attempt_id"]
            next_ns = (
                min((one for one in tries[attempt] if one > pop.called_ns), default=NEVER) if attempt[1] else NEVER
            )
            shown_ms = min(self.history.wall_ms(pop.returned_ns) + CLOCKS_MS, self.history.wall_ms(next_ns) - CLOCKS_MS)
            after = (popped_ms for called_ns, popped_ms in replays.get(attempt, ()) if called_ns > pop.called_ns)
            if not any(popped_ms <= shown_ms for popped_ms in after):
                calls, returns = times[pop.asked["group"], pop.asked["topic"]]
                calls.append(pop.called_ns)
                returns.append(pop.returned_ns)
        for calls, returns in times.values():
            calls.sort()
            returns.sort()
        return times

    def sends(self) -> Iterator[Operation]:
        """What stores messages: sends, and settles with what they send."""
        return (one for one in self.history.operations if one.kind in ("send", "settle"))

    def _join_sends(self) -> None:
        """Fills `sent`. A request that was repeated must be answered with the same positions."""
        for send in self.sends():
            results = send.told.get("results", [None] * len(send.asked["ids"]))
            for message_id, result in zip(send.asked["ids"], results, strict=True):
                sent = self.sent.setdefault(message_id, Sent(send.asked["topic"], send.called_ns))
                sent.message_group = send.asked.get("message_group", "")
                position = None if result is None else (result[0], result[1])
                if sent.position and position and sent.position != position:
                    self.oddities.append(("doubled", f"{message_id} was answered at {sent.position} and {position}"))
                sent.position = position or sent.position

    def _join_pops(self) -> None:
        """Fills `by_handle`. A replay gives the same handles again, with the same message and attempt."""
        for pop in self.history.of("pop"):
            groups = set[str]()
            for message_id, handle, attempt, queue, offset, intact in pop.told.get("rows", ()):
                known = self.by_handle.get(handle)
                if not intact:
                    self.oddities.append(("changed", f"{message_id} came with another body"))
                if known is None:
                    told = (pop.told["popped_ms"], pop.told["until_ms"])
                    order = self.sent[message_id].message_group if message_id in self.sent else ""
                    reading = (pop.asked["group"], pop.asked["topic"])
                    delivery = Delivery(
                        *reading, message_id, handle, attempt, (queue, offset), *told, pop, order in groups
                    )
                    self.by_handle[handle] = delivery
                    groups |= {order} - {""}
                elif not pop.told["replay"] or (known.message_id, known.attempt) != (message_id, attempt):
                    self.oddities.append(("overlap", f"handle {handle} was issued twice"))

    def _join_touches(self) -> None:
        """Adds the acks and changes to the deliveries that their handles name."""
        for operation in self.history.operations:
            if operation.kind == "ack":
                codes = operation.told.get("codes", [None] * len(operation.asked["handles"]))
                for handle, code in zip(operation.asked["handles"], codes, strict=True):
                    self.by_handle[handle].touches.append(Touch(operation, "ack", code))
            elif operation.kind == "settle":
                code = 0 if operation.ok else None
                for handle in operation.asked["handles"]:
                    self.by_handle[handle].touches.append(Touch(operation, "ack", code))
            elif operation.kind == "change":
                none = [[None, 0, False]] * len(operation.asked["changes"])
                for asked, told in zip(operation.asked["changes"], operation.told.get("results", none), strict=True):
                    handle, kind, ms, uncounted = asked
                    self.by_handle[handle].touches.append(Touch(operation, kind, told[0], ms, uncounted, *told[1:]))
