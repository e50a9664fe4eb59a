"""The state machine: one broker, one model, and what the clients were answered.

Every step is one commit batch in the engine, then the same commands in the model (model.py), in the order of the
lanes; afterwards numbers, positions, dead letters, wakes, all that waits and the store itself are compared. The steps
are rules in modules by theme; machines.py says which machine has which.
"""

import contextlib
import inspect
import itertools
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RULE_MARKER, initialize

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery.revive import Reviving
from popmq_server.embedded.rules.sending.check_back import CheckingBack
from popmq_server.embedded.rules.sending.release_delayed import ReleasingDelayed
from popmq_server.embedded.rules.topics.log import entries, is_readable
from popmq_server.embedded.state.jobs import RETRY_MS
from popmq_server.embedded.store.keys import DUE_KEY
from popmq_server.embedded.writer.batch import Committed
from popmq_server.errors import CommitFailed, Refused
from popmq_server.values.handles import Handle
from popmq_server.values.ids import TopicId
from popmq_server.values.limits import KEEP_MS_MAX
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8, tag_hash
from tests.engine.faults import Fault, failing, failing_put
from tests.engine.glance import Glance, glances
from tests.engine.rig import HOUR, MINUTE, Rig, parsed
from tests.engine.search.alike import Ran, joined
from tests.engine.search.draws import DELAYS_MS, GROUPS, TOPICS
from tests.engine.search.model import model
from tests.engine.search.model import model_facts as facts
from tests.engine.search.model.model_facts import QUIET_MS, Answer, Content, Seen, Stand, Where, must
from tests.engine.search.sides.machine_holds import Holds
from tests.engine.search.steps import Draft, ListenStep, SendStep

RECORD_HEAD = 20
#: A half message that was given up for its age: (topic, message id).
OLD = re.compile(r"topic (\S+): message '(.*)' was given up: no producer ended the transaction in 72 h")
M = TypeVar("M", bound="Broker")


class Kind(NamedTuple):
    """The kind of a topic of the machine."""

    type: str
    queues: int
    unique_ms: int = 0


KINDS = {
    "normal": Kind("NORMAL", 3),
    "unique": Kind("NORMAL", 2, MINUTE),
    "fifo": Kind("FIFO", 2),
    "delay": Kind("DELAY", 2),
    "transaction": Kind("TRANSACTION", 2, HOUR),
    "priority": Kind("PRIORITY", 3),
}


class Broker(Holds):
    """Base of all machines, without rules: runs commands in engine and model, and compares both after each step."""

    #: Whether messages may have a ttl.
    mortal = False
    #: The kinds that topics may have; drawn again each time a topic is created.
    kinds: ClassVar[tuple[str, ...]] = ("normal",)
    keep_ms = KEEP_MS_MAX
    #: Whether the model learns what retention drops.
    forgets: ClassVar[bool] = False
    #: Whether topics and groups come and go.
    operated = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="popmq-machine-"))
        self.closing = contextlib.ExitStack()
        self.closing.enter_context(glances())
        self.rig = Rig(self.folder / "data", map_bytes=1 << 26)
        self.model = model.Model(self.rig.now)
        self.given: list[tuple[str, Handle]] = []  # by group, as the clients heard of them
        self.recalls: list[tuple[str, str]] = []  # (topic, handle)
        self.transactions: list[str] = []
        self.checks: list[tuple[str, int]] = []
        self.contents: dict[str, Content] = {}
        self.stand = Stand([], [], set())
        self.heard = True
        self.acks_apart = False
        self.positions: dict[tuple[str, str], ask.Position] = {}

    @initialize(first=st.integers(0, 59), second=st.integers(0, 59))
    def what_there_is(self, first: int, second: int) -> None:
        for name, which in zip(TOPICS, (first, second), strict=True):
            self.make_topic(name, self.kind(which))
        for name in GROUPS:
            self.make_group(name, 2, ("EARLIEST", 0), name == "b", name == "a_b")
        for name in TOPICS:
            self.run_group([SendStep(name, [Draft(message_group=one) for one in "aab"])], Fault.NONE)
        if not self.operated:
            for group, topic in itertools.product(GROUPS, TOPICS):
                self.one(ask.Available(topic, group))
                self.model.bind(group, topic)
                self.after()

    def kind(self, which: int) -> Kind:
        return KINDS[self.kinds[which % len(self.kinds)]]

    def teardown(self) -> None:
        try:
            self.the_store_is_sound()
        finally:
            self.closing.close()
            self.rig.abandon()
            shutil.rmtree(self.folder)

    # ── What clients write and learn ─────────────────────────────────────────────────────────────────────────────

    def written(self, topic: str, draft: Draft, long: bool) -> Outgoing:
        """A message as the api makes it, fit for its topic unless the draft is odd."""
        kind, odd = self.kind_of(topic), draft.odd
        text = f"m{len(self.contents) + 1}" + "x" * (100 if long else 0)
        later = kind != "NORMAL" or odd
        how, wait_ms = draft.wait if later else ("", 0)
        extra = Extra(
            message_group=draft.message_group if (kind == "FIFO") != odd else "",
            due_ms=self.rig.now + wait_ms if how == "due" else 0,
            delay_ms=wait_ms if how == "delay" else 0,
            priority=draft.priority if kind == "PRIORITY" or odd else 0,
            transaction=draft.half and later,
            ttl_ms=draft.ttl_ms if self.mortal else 0,
        )
        name = f"id{draft.name}" if draft.name else text
        made = pb.Message(
            message_id=name,
            body=text.encode(),
            tag=draft.tag,
            properties={} if draft.number is None else {"n": str(draft.number)},
            message_group=extra.message_group,
            ttl_ms=extra.ttl_ms,
        )
        data = made.SerializeToString()
        size = len(data) + RECORD_HEAD
        self.contents[text] = Content(
            text,
            name,
            size,
            extra.message_group,
            draft.tag,
            draft.number,
            extra.priority,
            extra.due_ms,
            extra.delay_ms,
            extra.transaction,
            extra.ttl_ms,
        )
        return Outgoing(data, tag_hash(draft.tag), (hash8(name),), name, extra if any(extra) else None)

    def contents_of(self, command: ask.Send) -> list[Content]:
        """The valid messages of a send, as the model knows them."""
        entries = (entry for entry in command.entries if not isinstance(entry, Refused))
        return [self.contents[parsed(entry.data).body.decode()] for entry in entries]

    def remember(self, group: str, answer: Any) -> None:
        """Notes what clients learn from an answer; a lost answer teaches them nothing."""
        if self.heard and isinstance(answer, Answer):
            self.given += [(group, Handle(answer.ck_id, row.member, answer.nonce)) for row in answer.rows]

    def learn(self, topic: str, places: list[Where]) -> None:
        self.recalls += [(topic, place.recall) for place in places if place.recall and not place.duplicate]
        self.transactions += [place.transaction for place in places if place.transaction and not place.duplicate]

    def owner(self, group: str, name: str) -> tuple[int, int]:
        """(generation, acked epoch)"""
        found = self.model.groups[group].owners.get(name) if group in self.model.groups else None
        return (found.generation, found.acked_epoch) if found else (1, 0)

    def position(self, group: str, topic: str) -> ask.Position | None:
        return self.positions.get((group, topic))

    # ── Running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run_group(self, asked: list[Any], fault: Fault, full_at: int = 0) -> None:
        """Runs commands in one transaction, and the same in the model. `full_at`: the put that finds no page."""
        commands = [step.command(self) for step in asked]
        before = self.deliverable()
        #: The engine commits the acks separately, before the others, so a later fault does not affect them.
        self.acks_apart = self.rig.core.space.tight
        watched = [with_glance(command) for command in commands]
        committed: Committed | None = None
        with contextlib.suppress(CommitFailed), failing(self.rig.store, fault) as hit, failing_put(full_at) as full:
            committed = self.rig.commit(*itertools.chain.from_iterable(watched))
        if committed is None:  # the disk is sound again when the broker starts
            self.rig.crash()
            self.model.starts_again()
            return
        if hit.times:
            self.model.postponed = self.postponed()
            self.model.blocked = dict(self.rig.core.state.dead_blocked.committed())
        told = iter(committed.results)
        results = [(next(told), next(told) if len(few) > 1 else None) for few in watched]
        ran = [(*known, *told) for *known, told in zip(asked, commands, results, strict=True)]
        ran = [one for one in ran if not (full.times and refused(one[2], "STORAGE_FULL"))]
        self.judge_group(joined(ran, self.kind_of), hit.times, committed)
        self.model.blocked = {}
        if hit.times > 1:
            self.pass_time(RETRY_MS)
        else:
            self.judge_wakes(before, committed.woken)

    def postponed(self) -> facts.Postponed:
        """The jobs that met the full disk. A job that was not due then runs as soon as it is."""
        jobs = self.rig.core.timetable.jobs
        leases = next(job for job in jobs if isinstance(job, Reviving))
        until = {job.name: job.not_before() for job in jobs}
        again_ms, start = leases._skipped.next_ms(), leases._skipped.start
        letters = (0, -1) if again_ms is None else (again_ms, DUE_KEY.unpack(start[:-1])[0])
        ends = (until[one.name] for one in (ReleasingDelayed, CheckingBack, Reviving))
        found = facts.Postponed(*ends, *letters)
        must(max(found[:4]) <= self.rig.now + QUIET_MS, "a job waits too long", found)
        return found

    def judge_group(self, ran: list[Ran], faults: int, committed: Committed) -> None:
        """Judges lane by lane; timed work comes after the first lane.

        After one fault, commands that need room are refused; after more of them nothing is written, nor timed work.
        """
        for lane in range(3):
            for step, command, result, stand in ran:
                if lane_of(command) != lane:
                    continue
                self.stand = stand
                if faults > 1 and refused(result, "UNAVAILABLE"):
                    if isinstance(step, ListenStep):  # listening producers are not stored
                        step.judge(self, command, None)
                elif faults and command.takes_room() and (lane or not self.met_no_fault(result)):
                    must(refused(result, "STORAGE_FULL"), "a full disk", result)
                else:
                    self.model.full = faults > 0
                    step.judge(self, command, result)
                    self.model.full = False
            if lane == 0 and faults < 2:
                self.time_in_model(committed)

    def met_no_fault(self, result: Any) -> bool:
        """Whether the first part was answered before the fault: a part that writes meets the fault."""
        return self.acks_apart and not refused(result, "STORAGE_FULL")

    def deliverable(self) -> dict[tuple[str, str], int]:
        return {pair: self.model.deliverable(*pair) for pair in self.model.views}

    def judge_wakes(self, before: dict[tuple[str, str], int], woken: set[tuple[str | None, str]]) -> None:
        """If a topic had no deliverable message and now has one, the pops parked on it must be woken."""
        for (group, topic), count in self.deliverable().items():
            if count and before.get((group, topic), -1) == 0:
                must(bool({(group, topic), (None, topic)} & woken), "woken", group, topic, woken)

    def one(self, command: Any) -> Any:
        """Runs one command alone: its result, or the error code. Timed work comes before commands that read queues."""
        before = self.deliverable()
        committed = self.rig.commit(command)
        result = committed.results[0]
        early = command.lane != ask.LANE_ACK
        if early:
            self.time_in_model(committed)
        self.last = before, committed, early
        return result.code if isinstance(result, Refused) else result

    def after(self) -> None:
        """After a command: timed work in engine and model. An owner's new deadline counts from the next commit on."""
        before, committed, early = self.last
        if not early:
            self.time_in_model(committed)
        self.judge_wakes(before, committed.woken | self.settled())

    # ── Time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def time_in_model(self, committed: Committed) -> None:
        """Repeats the timed work of a commit in the model. The engine tells the places of fired delayed messages."""
        if self.forgets:
            self.learn_what_is_left()
        checks = {(check.transaction, check.number) for check in committed.timed.checks}
        self.checks += sorted(checks)
        places: dict[str, facts.Place] = {}
        for topic in {one.topic for one in self.model.ripe()}:
            for queue, known in enumerate(self.model.topics[topic].queues):
                for row in self.rig.browse(topic, queue, len(known)).rows:
                    places[parsed(row[0]).body.decode()] = queue, row[3]
        old = [(found[1], found[2]) for sentence in committed.timed.given_up if (found := OLD.match(sentence))]
        self.model.timed(Seen(places, checks, old))

    def learn_what_is_left(self) -> None:
        """Retention has run: learns which messages of each topic can still be read."""
        state = self.rig.core.state
        with self.rig.reading() as kv:
            for name, found in self.model.topics.items():
                if topic_id := state.ids.get(("t", name)):
                    indexed = {place for place in found.places() if entries(kv, topic_id, *place, 1)}
                    readable = {place for place in indexed if is_readable(kv, topic_id, *place)}
                    begin = [state.queue_min.get((TopicId(topic_id), queue), 0) for queue in range(len(found.queues))]
                    self.model.forget(name, begin, indexed, readable)

    def settled(self) -> set[tuple[str | None, str]]:
        """Does all periodic work that is due. Returns the pops that were woken."""
        woken: set[tuple[str | None, str]] = set()
        for committed in self.rig.pieces():
            woken |= committed.woken
            self.time_in_model(committed)
        must(not self.model.timed(), "something is due in the model, and not in the engine")
        return woken

    def settle(self) -> None:
        before = self.deliverable()
        self.judge_wakes(before, self.settled())

    def pass_time(self, ms: int) -> None:
        self.rig.skip(ms)
        self.model.pass_time(ms)

    def step_wall(self, ms: int) -> None:
        assert isinstance(self.rig.clock, FakeClock)
        self.rig.clock.step_wall(ms)
        self.model.wall_ahead_ms += ms

    def restart(self, clean: bool) -> None:
        if clean:
            self.rig.restart()
        else:
            self.rig.crash()
        self.model.starts_again()

    # ── Topics and groups ────────────────────────────────────────────────────────────────────────────────────────

    def make_topic(self, name: str, kind: Kind) -> None:
        """Creates a topic, at a new time: a dead letter knows its topic only by name and by its time of death."""
        self.pass_time(1)
        answer = self.one(ask.CreateTopic(name, kind.queues, False, self.keep_ms, kind.type, 0, kind.unique_ms))
        expected = self.model.create_topic(name, kind.type, kind.queues, kind.unique_ms, self.keep_ms)
        must(answer == expected if isinstance(answer, str) else not expected, "create topic", answer, expected)
        self.after()

    def start_of(self, start: tuple[str, int]) -> tuple[str, int]:
        """Where a group starts: not at a time in machines that drop messages, since the model cannot find it there."""
        return ("EARLIEST", 0) if self.forgets and start[0] == "TIMESTAMP" else start

    def make_group(self, name: str, max_attempts: int, start: tuple[str, int], exclusive: bool, stops: bool) -> None:
        start = self.start_of(start)
        answer = self.one(
            ask.CreateGroup(
                name,
                max_attempts,
                DELAYS_MS,
                MINUTE,
                0,
                *start,
                exclusive,
                stop_on_failure=stops,
                snoozes_max=facts.SNOOZES_MAX,
            )
        )
        expected = self.model.create_group(name, facts.Group(max_attempts, DELAYS_MS, MINUTE, start, exclusive, stops))
        must(answer == expected if isinstance(answer, str) else not expected, "create group", answer, expected)
        self.after()

    def change_group(self, name: str, max_attempts: int, exclusive: bool, stops: bool) -> None:
        changed = {"max_attempts": max_attempts, "exclusive_owner": exclusive, "stop_on_failure": stops}
        answer = self.one(ask.UpdateGroup(name, changed))
        expected = self.model.change_group(name, max_attempts, exclusive, stops)
        must(answer == expected if isinstance(answer, str) else not expected, "update group", answer, expected)
        self.after()


def choosing(*names: str) -> Callable[[type[M]], type[M]]:
    """Draws only these of the rules that a machine does not inherit from its last base; the others stay plain methods
    that rules may call.
    """

    def chosen(machine: type[M]) -> type[M]:
        own = vars(machine.__bases__[-1])
        for name, found in inspect.getmembers(machine):
            if hasattr(found, RULE_MARKER) and name not in own and name not in names:
                setattr(machine, name, _plain(found))
        return machine

    return chosen


def _plain(found: Callable[..., Any]) -> Callable[..., Any]:
    """The same method without being a rule."""

    def method(*arguments: Any, **named: Any) -> Any:
        return found(*arguments, **named)

    return method


def with_glance(command: Any) -> list[Any]:
    """Adds a Glance after each pop, which tells the position of the group."""
    return [command, Glance(command.topic, command.group)] if isinstance(command, ask.Pop) else [command]


def refused(result: Any, code: str) -> bool:
    return isinstance(result, Refused) and result.code == code


def lane_of(command: Any) -> int:
    """The lane of a command. The order in one commit: acks and queries, then sends, then pops."""
    return {ask.Send: 1, ask.Stage: 1, ask.CommitBatch: 1, ask.Pop: 2}.get(type(command), 0)
