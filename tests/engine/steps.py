"""Steps of the state machine that are one command each: how the engine gets it, and how the model judges the answer.

The strategies that draw them are at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from popmq_server import commands as ask
from popmq_server.errors import Refused, invalid
from popmq_server.message import Handle
from tests.engine import model_facts as facts
from tests.engine.model_facts import Answer, Bounds, Row, must
from tests.engine.rig import HOUR, MINUTE, SECOND, message, parsed

if TYPE_CHECKING:
    from tests.engine.machine import Machine

TOPICS = ("t", "t_u")
GROUPS = ("a", "a_b", "b")
OWNERS = ("o", "p")
PRODUCERS = ("", "p", "q")
DELAYS_MS = (10 * SECOND, 30 * SECOND, 2 * MINUTE)
REASONS = ("", "no luck", "é" * 2048)
RECORD_HEAD = 20
NO_GROUP = facts.Group(1, (), 0, ("", 0), False)

few = st.integers(0, 3)
topics, groups, owners = st.sampled_from(TOPICS), st.sampled_from(GROUPS), st.sampled_from(OWNERS)
queue_sets = st.sampled_from([(), (), (), (0,), (1,), (0, 2)])
sizes = st.sampled_from([1, 1, 2, 3, 5, 32])
byte_bounds = st.sampled_from([3 << 20, 3 << 20, 1, 150, 400])
leases_ms = st.sampled_from([0, SECOND, 30 * SECOND, HOUR])
delays = st.sampled_from([None, 0, 0, SECOND, MINUTE])


class Pick(NamedTuple):
    """A handle out of those that were ever given out, and what is wrong with it."""

    place: int
    how: str  # good, foreign, nonce, member, unknown, bad

    def handle(self, machine: Machine, group: str) -> Handle | Refused:
        if self.how == "bad":
            return Refused("INVALID_HANDLE", "damaged")
        given = [handle for of, handle in machine.given if (of == group) != (self.how == "foreign")]
        if self.how == "unknown" or not given:
            return Handle(facts.NEVER_GIVEN + self.place, 0, 7)
        found = given[-1 - self.place % len(given)]
        if self.how == "nonce":
            return found._replace(nonce=found.nonce ^ 1)
        return found._replace(member=found.member + 4096) if self.how == "member" else found


HOWS = ["good"] * 20 + ["foreign", "nonce", "member", "unknown", "bad"]
picks = st.builds(Pick, st.one_of(st.integers(0, 3), st.integers(0, 40)), st.sampled_from(HOWS))


class SendStep(NamedTuple):
    """Some messages, some of them bad, perhaps under a request number that was used before."""

    topic: str
    goods: list[bool]
    long: bool
    producer: str
    number: int

    def command(self, machine: Machine) -> ask.Send:
        entries = tuple(
            message(machine.text(self.long)) if good else invalid("a bad entry", field="messages")
            for good in self.goods
        )
        return ask.Send(self.topic, entries, self.producer, self.number if self.producer else 0, 0)

    def judge(self, machine: Machine, command: ask.Send, result: Any) -> None:
        texts = [
            (parsed(entry.data).body.decode(), len(entry.data) + RECORD_HEAD)
            for entry in command.entries
            if not isinstance(entry, Refused)
        ]
        answer = result.code if isinstance(result, Refused) else tuple(result[:3])
        machine.model.send(self.topic, texts, (command.producer_id, command.request_number), answer)


class PopStep(NamedTuple):
    """An ordinary pop; `attempt` 0 = without an attempt id."""

    topic: str
    group: str
    queues: tuple[int, ...]
    messages: int
    bytes: int
    invisible_ms: int
    client: str
    attempt: int

    def command(self, machine: Machine) -> ask.Pop:
        attempt = f"try-{self.attempt}" if self.attempt else ""
        bounds = self.queues, self.messages, self.bytes, self.invisible_ms
        return ask.Pop(self.topic, self.group, *bounds, client_id=self.client, attempt_id=attempt)

    def judge(self, machine: Machine, command: ask.Pop, result: Any) -> None:
        answer = answered(result)
        asked = Bounds(self.queues, self.messages, self.bytes)
        machine.model.pop(self.topic, self.group, asked, self.invisible_ms, self.client, command.attempt_id, answer)
        machine.remember(self.group, answer)


class SealStep(NamedTuple):
    """A pop with a token; `behind` generations too old, `ahead` of the acked epoch."""

    topic: str
    group: str
    queues: tuple[int, ...]
    messages: int
    bytes: int
    invisible_ms: int
    owner: str
    behind: int
    ahead: int
    part: int
    chunk: int
    share: int
    bounded: bool

    def command(self, machine: Machine) -> ask.Pop:
        generation, acked = machine.owner(self.group, self.owner)
        upto = machine.position(self.group, self.topic) if self.bounded else None
        epoch = max(1, acked + self.ahead)
        token = ask.PopToken(
            self.owner, max(1, generation - self.behind), epoch, self.part, self.chunk, self.share, upto
        )
        return ask.Pop(self.topic, self.group, self.queues, self.messages, self.bytes, self.invisible_ms, token=token)

    def judge(self, machine: Machine, command: ask.Pop, result: Any) -> None:
        token = command.token
        assert token is not None
        answer = answered(result)
        upto = facts.Position(*token.upto) if token.upto else None
        asked = Bounds(self.queues, self.messages, self.bytes, upto)
        machine.model.seal(self.topic, self.group, asked, self.invisible_ms, token[:6], answer)
        machine.remember(self.group, answer)


class AckStep(NamedTuple):
    """Handles of any kind, also the same one twice."""

    group: str
    picks: Sequence[Pick | Handle]

    def command(self, machine: Machine) -> ask.Ack:
        handles = (pick.handle(machine, self.group) if isinstance(pick, Pick) else pick for pick in self.picks)
        return ask.Ack(self.group, tuple(handles))

    def judge(self, machine: Machine, command: ask.Ack, result: Any) -> None:
        handles = [facts.Handle(*given) for given in command.handles if not isinstance(given, Refused)]
        if isinstance(result, Refused):
            return machine.model.ack(self.group, handles, result.code)
        codes = [one.code if one else "" for one in result.results]
        bad = [place for place, given in enumerate(command.handles) if isinstance(given, Refused)]
        must(all(codes[place] == "INVALID_HANDLE" for place in bad), "damaged handles", codes)
        good = [code for place, code in enumerate(codes) if place not in bad]
        return machine.model.ack(self.group, handles, good)


class ChangeStep(NamedTuple):
    """(handle, kind, delay, uncounted, number of the reason) entries."""

    group: str
    changes: list[tuple[Pick, str, int | None, bool, int]]

    def command(self, machine: Machine) -> ask.ChangeInvisibleTime:
        changes: list[ask.Change | Refused] = []
        for pick, kind, delay_ms, uncounted, reason in self.changes:
            handle = pick.handle(machine, self.group)
            if isinstance(handle, Refused):
                changes.append(handle)
            elif kind == "extend":
                changes.append(ask.Change(handle, kind, delay_ms or MINUTE))
            elif kind == "reject":
                changes.append(ask.Change(handle, kind, 0, False, REASONS[reason]))
            else:
                changes.append(ask.Change(handle, kind, delay_ms, uncounted, REASONS[reason]))
        return ask.ChangeInvisibleTime(self.group, tuple(changes))

    def judge(self, machine: Machine, command: ask.ChangeInvisibleTime, result: Any) -> None:
        changes = [change for change in command.changes if not isinstance(change, Refused)]
        told = [(facts.Handle(*change.handle), *change[1:]) for change in changes]
        if isinstance(result, Refused):
            return machine.model.change(self.group, told, result.code)
        answers = [
            one.code if isinstance(one, Refused) else tuple(one)
            for one, change in zip(result, command.changes, strict=True)
            if not isinstance(change, Refused)
        ]
        return machine.model.change(self.group, told, answers)


sends = st.builds(
    SendStep,
    topics,
    st.lists(st.sampled_from([True, True, True, False]), max_size=5),
    st.booleans(),
    st.sampled_from(PRODUCERS),
    st.integers(1, 3),
)
pops = st.builds(
    PopStep,
    topics,
    groups,
    queue_sets,
    sizes,
    byte_bounds,
    leases_ms,
    st.sampled_from(["", "c", "d"]),
    st.sampled_from([0, 0, 1, 2]),
)
seals = st.builds(
    SealStep,
    topics,
    groups,
    queue_sets,
    sizes,
    byte_bounds,
    leases_ms,
    owners,
    st.sampled_from([0, 0, 0, 0, 1]),
    st.sampled_from([1, 1, 1, 2, 0]),
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from([0, 0, 2, 4]),
    st.booleans(),
)
acks = st.builds(AckStep, groups, st.lists(picks, min_size=1, max_size=6))
reasons = st.integers(0, len(REASONS) - 1)
changes = st.builds(
    ChangeStep,
    groups,
    st.lists(
        st.tuples(picks, st.sampled_from(["extend", "release", "release", "reject"]), delays, st.booleans(), reasons),
        min_size=1,
        max_size=4,
    ),
)
steps = st.one_of(sends, sends, pops, pops, pops, seals, acks, acks, changes)


def answered(result: Any) -> Any:
    """The answer of a pop as the model reads it, or a code."""
    if isinstance(result, Refused):
        return result.code
    rows = [Row(parsed(data).body.decode(), *rest) for data, *rest in result.rows]
    return Answer(rows, *result[1:8])
