"""Steps of the state machine that are one command each: how the engine gets it, and how the model judges the answer.

The strategies that draw them are in draws.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.errors import Refused, invalid
from popmq_server.values.handles import (
    Handle,
    RecallHandle,
    TransactionId,
    make_handle,
    read_handle,
    recall_text,
    transaction_text,
)
from tests.engine.rig import MINUTE, SECOND, parsed
from tests.engine.search.model import model_facts as facts
from tests.engine.search.model.model_facts import Answer, Bounds, Row, Told, Where, must
from tests.engine.search.model.model_handles import How

if TYPE_CHECKING:
    from tests.engine.search.machine import Broker

REASONS = ("", "no luck", "é" * 2048)
#: Handles that were never delivered.
NO_RECALL = recall_text(RecallHandle(0, 0, 1, 10**9, 7))
NO_TRANSACTION = transaction_text(TransactionId(0, 10**9, 7))


class Pick(NamedTuple):
    """One of the handles that were ever delivered, and what is wrong with it."""

    place: int
    how: str  # good, foreign, nonce, member, unknown, bad

    def handle(self, machine: Broker, group: str) -> Handle | Refused:
        if self.how == "bad":
            return Refused("INVALID_HANDLE", "damaged")
        given = [handle for of, handle in machine.given if (of == group) != (self.how == "foreign")]
        if self.how == "unknown" or not given:
            return Handle(facts.NEVER_GIVEN + self.place, 0, 7)
        found = given[-1 - self.place % len(given)]
        if self.how == "nonce":
            return found._replace(nonce=found.nonce ^ 1)
        return found._replace(member=found.member + 4096) if self.how == "member" else found


class Draft(NamedTuple):
    """What a producer may write; what its topic has no use for is left out, unless it is `odd`.

    `wait`: ("", 0), ("delay", ms) or ("due", ms from now).
    `ttl_ms`: where the machine has messages that expire. `name` 0: an id of its own, else one that others have too.
    """

    good: bool = True
    message_group: str = "a"
    tag: str = ""
    number: int | None = None
    priority: int = 0
    wait: tuple[str, int] = ("", 0)
    half: bool = False
    name: int = 0
    odd: bool = False
    ttl_ms: int = 0


class SendStep(NamedTuple):
    """Some messages, some of them bad, perhaps under a request number that was used before."""

    topic: str
    drafts: Sequence[Draft]
    long: bool = False
    producer: str = ""
    number: int = 0

    def command(self, machine: Broker) -> ask.Send:
        entries = tuple(
            machine.written(self.topic, draft, self.long) if draft.good else invalid("a bad entry", field="messages")
            for draft in self.drafts
        )
        return ask.Send(self.topic, entries, self.producer, self.number if self.producer else 0, 0)

    def whole(self) -> SendStep:
        """Without bad entries, half messages and a number: what a Settle may send."""
        drafts = [draft._replace(good=True, half=False) for draft in self.drafts]
        return self._replace(drafts=drafts, producer="")

    def judge(self, machine: Broker, command: ask.Send, result: Any) -> None:
        contents = machine.contents_of(command)
        told = result.code if isinstance(result, Refused) else told_of(result)
        machine.model.send(self.topic, contents, (command.producer_id, command.request_number), told)
        if isinstance(told, Told) and told.places:
            machine.learn(self.topic, [place for place in told.places if isinstance(place, Where)])


class PopStep(NamedTuple):
    """An ordinary pop; `attempt` 0 = without an attempt id."""

    topic: str
    group: str
    queues: tuple[int, ...] = ()
    messages: int = 32
    bytes: int = 3 << 20
    invisible_ms: int = SECOND
    client: str = "c"
    attempt: int = 0
    wanted: tuple[str, str] | None = None

    def command(self, machine: Broker) -> ask.Pop:
        attempt = f"try-{self.attempt}" if self.attempt else ""
        bounds = self.queues, self.messages, self.bytes, self.invisible_ms
        return ask.Pop(self.topic, self.group, *bounds, client_id=self.client, attempt_id=attempt, filter=self.wanted)

    def judge(self, machine: Broker, command: ask.Pop, result: Any) -> None:
        answer = answered(machine, result)
        asked = Bounds(self.queues, self.messages, self.bytes)
        tried = self.client, command.attempt_id
        machine.model.pop(self.topic, self.group, asked, self.invisible_ms, tried, self.wanted, answer)
        machine.remember(self.group, answer)


class SealStep(NamedTuple):
    """A pop with a token; `behind` generations too old, `ahead` of the acked epoch."""

    topic: str
    group: str
    queues: tuple[int, ...] = ()
    messages: int = 3
    bytes: int = 3 << 20
    invisible_ms: int = SECOND
    owner: str = "o"
    behind: int = 0
    ahead: int = 1
    part: int = 0
    chunk: int = 0
    share: int = 0
    bounded: bool = False
    wanted: tuple[str, str] | None = None

    def command(self, machine: Broker) -> ask.Pop:
        generation, acked = machine.owner(self.group, self.owner)
        upto = machine.position(self.group, self.topic) if self.bounded else None
        epoch = max(1, acked + self.ahead)
        token = ask.PopToken(
            self.owner, max(1, generation - self.behind), epoch, self.part, self.chunk, self.share, upto
        )
        bounds = self.queues, self.messages, self.bytes, self.invisible_ms
        return ask.Pop(self.topic, self.group, *bounds, token=token, filter=self.wanted)

    def judge(self, machine: Broker, command: ask.Pop, result: Any) -> None:
        token = command.token
        assert token is not None
        answer = answered(machine, result)
        upto = facts.Position(*token.upto) if token.upto else None
        asked = Bounds(self.queues, self.messages, self.bytes, upto)
        machine.model.seal(self.topic, self.group, asked, self.invisible_ms, token[:6], self.wanted, answer)
        machine.remember(self.group, answer)


class AckStep(NamedTuple):
    """Acks handles of any kind; one may occur twice."""

    group: str
    picks: Sequence[Pick | Handle]

    def command(self, machine: Broker) -> ask.Ack:
        handles = (pick.handle(machine, self.group) if isinstance(pick, Pick) else pick for pick in self.picks)
        return ask.Ack(self.group, tuple("" if isinstance(one, Refused) else make_handle(*one) for one in handles))

    def judge(self, machine: Broker, command: ask.Ack, result: Any) -> None:
        handles = [facts.Handle(*read_handle(given)) for given in command.handles if given]
        if isinstance(result, Refused):
            return machine.model.ack(self.group, handles, result.code)
        codes = [one.code if one else "" for one in result.results]
        bad = [place for place, given in enumerate(command.handles) if not given]
        must(all(codes[place] == "INVALID_HANDLE" for place in bad), "damaged handles", codes)
        good = [code for place, code in enumerate(codes) if place not in bad]
        topics = Counter(
            machine.model.leases[one.ck_id].topic for one, code in zip(handles, good, strict=True) if not code
        )
        must(result.topics == topics, "acked by topic", result, topics)
        return machine.model.ack(self.group, handles, good)


class ChangeStep(NamedTuple):
    """(handle, kind, delay, uncounted, number of the reason) entries."""

    group: str
    changes: Sequence[tuple[Pick, str, int | None, bool, int]]

    def command(self, machine: Broker) -> ask.ChangeInvisibleTime:
        changes: list[ask.Change | Refused] = []
        for pick, kind, delay_ms, uncounted, reason in self.changes:
            named = pick.handle(machine, self.group)
            if isinstance(named, Refused):
                changes.append(named)
                continue
            handle = make_handle(*named)
            if kind == "extend":
                changes.append(ask.Change(handle, kind, delay_ms or MINUTE))
            elif kind == "reject":
                changes.append(ask.Change(handle, kind, 0, False, REASONS[reason]))
            elif kind == "snooze":
                changes.append(ask.Change(handle, "release", delay_ms, False, REASONS[reason], snooze=True))
            else:
                changes.append(ask.Change(handle, kind, delay_ms, uncounted, REASONS[reason]))
        return ask.ChangeInvisibleTime(self.group, tuple(changes))

    def judge(self, machine: Broker, command: ask.ChangeInvisibleTime, result: Any) -> None:
        changes = [change for change in command.changes if not isinstance(change, Refused)]
        told = [(facts.Handle(*read_handle(change.handle)), How(*change[1:])) for change in changes]
        if isinstance(result, Refused):
            return machine.model.change(self.group, told, result.code)
        answers = [
            one.code if isinstance(one, Refused) else tuple(one)
            for one, change in zip(result, command.changes, strict=True)
            if not isinstance(change, Refused)
        ]
        return machine.model.change(self.group, told, answers)


class SettleStep(NamedTuple):
    """Handles to ack, changes as in ChangeStep but no extension, and sends, of which each topic counts once."""

    group: str
    picks: Sequence[Pick | Handle]
    changes: Sequence[tuple[Pick, str, int | None, bool, int]] = ()
    sends: Sequence[SendStep] = ()
    producer: str = ""
    number: int = 0

    def command(self, machine: Broker) -> ask.Settle:
        changes = ChangeStep(self.group, self.changes).command(machine).changes
        good = tuple(change for change in changes if isinstance(change, ask.Change))
        sends = {step.topic: step.whole() for step in self.sends if step.drafts}
        commands = tuple(step.command(machine) for step in sends.values())
        handles = AckStep(self.group, self.picks).command(machine).handles
        return ask.Settle(self.group, handles, good, commands, self.producer, self.number if self.producer else 0)

    def judge(self, machine: Broker, command: ask.Settle, result: Any) -> None:
        sends = [(send.topic, machine.contents_of(send)) for send in command.sends]
        told = result.code if isinstance(result, Refused) else [told_of(sent) for sent in result.sent]
        machine.model.settle(
            self.group,
            [facts.Handle(*read_handle(text)) if text else None for text in command.handles],
            [(facts.Handle(*read_handle(one.handle)), How(*one[1:])) for one in command.changes],
            sends,
            (command.producer_id, command.request_number),
            told,
        )
        if not isinstance(told, str) and not result.duplicate:
            for (topic, _), each in zip(sends, told, strict=True):
                machine.learn(topic, [place for place in each.places or () if isinstance(place, Where)])


class RecallStep(NamedTuple):
    """One of the recall handles that were returned, for its own topic or (`elsewhere`) for another one."""

    place: int
    elsewhere: str = ""

    def known(self, machine: Broker) -> tuple[str, str]:
        topic, text = machine.recalls[-1 - self.place % len(machine.recalls)] if machine.recalls else ("t", NO_RECALL)
        return self.elsewhere or topic, text

    def command(self, machine: Broker) -> ask.Recall:
        topic, text = self.known(machine)
        return ask.Recall(topic, text)

    def judge(self, machine: Broker, command: ask.Recall, result: Any) -> None:
        answer = result.code if isinstance(result, Refused) else result
        machine.model.recall(command.topic, command.handle, answer)


class RescheduleStep(NamedTuple):
    """The same of a reschedule. `wait`: ("delay", ms) or ("due", ms from now), also in the past."""

    recall: RecallStep
    wait: tuple[str, int]

    def command(self, machine: Broker) -> ask.Reschedule:
        (topic, text), (how, ms) = self.recall.known(machine), self.wait
        named = {"due_ms": max(1, machine.rig.now + ms)} if how == "due" else {"delay_ms": max(1, ms)}
        return ask.Reschedule(topic, text, **named)

    def judge(self, machine: Broker, command: ask.Reschedule, result: Any) -> None:
        answer = result.code if isinstance(result, Refused) else result
        machine.model.reschedule(command.topic, command.handle, (command.due_ms, command.delay_ms), answer)
        if not isinstance(answer, str) and machine.heard:
            machine.recalls.append((command.topic, answer.handle))


class EndStep(NamedTuple):
    """(which of the transactions, whether to commit) entries; also those that have ended, and one twice."""

    ends: list[tuple[int, bool]]

    def command(self, machine: Broker) -> ask.EndTransaction:
        known = machine.transactions or [NO_TRANSACTION]
        texts = [(known[-1 - place % len(known)], commit) for place, commit in self.ends]
        return ask.EndTransaction(tuple(ask.End(text, commit) for text, commit in texts))

    def judge(self, machine: Broker, command: ask.EndTransaction, result: Any) -> None:
        ends = [(end.transaction, end.commit) for end in command.ends if not isinstance(end, Refused)]
        answers = [one.code if isinstance(one, Refused) else (one.message_id, Where(*one.place)) for one in result]
        topics = {name: half.topic for name, half in machine.model.halves.items()}
        machine.model.end(ends, answers)
        for (name, _), answer in zip(ends, answers, strict=True):
            if not isinstance(answer, str):
                machine.learn(topics.get(name, "t"), [answer[1]])


class CountStep(NamedTuple):
    """Some of the check-backs that were sent have reached a producer; some are reported twice."""

    places: list[int]

    def command(self, machine: Broker) -> operations.CountChecks:
        known = machine.checks or [(NO_TRANSACTION, 1)]
        chosen = [known[-1 - place % len(known)] for place in self.places]
        return operations.CountChecks(tuple(chosen))

    def judge(self, machine: Broker, command: operations.CountChecks, result: Any) -> None:
        must(result is None, "count checks", result)
        machine.model.count_checks(list(command.checks))


class ListenStep(NamedTuple):
    """For these topics a producer is connected that can answer."""

    topics: frozenset[str]

    def command(self, machine: Broker) -> operations.Listen:
        return operations.Listen(self.topics)

    def judge(self, machine: Broker, command: operations.Listen, result: Any) -> None:
        must(result is None, "listen", result)
        machine.model.listen(self.topics)


def told_of(sent: ask.Sent) -> Told:
    """The answer of a send in the form that the model takes."""
    if sent.places is None:
        return Told(*sent[:3], None)
    return Told(*sent[:3], [one.code if isinstance(one, Refused) else Where(*one) for one in sent.places])


def answered(machine: Broker, result: Any) -> Any:
    """The answer of a pop in the form that the model takes, or an error code."""
    if isinstance(result, Refused):
        return result.code
    rows = [Row(parsed(data).body.decode(), *rest) for data, *rest in result.rows]
    given = result.ck_id, result.nonce, result.popped_ms, result.due_ms, result.rest
    return Answer(rows, *given, result.replay, result.sealed, machine.stand)
