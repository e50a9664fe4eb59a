"""The state machine: steps that a client, an operator, time, a crash or a bad disk can take, in any order.

Every step is one group of commands in the engine, then the same commands in the model (model.py), in the order of the
lanes; afterwards numbers, positions, dead letters, wakes and the store itself are compared.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from popmq_server import commands as ask
from popmq_server.catalog import KEEP_MS_MAX
from popmq_server.core import RETRY_MS
from popmq_server.errors import CommitFailed, Refused
from popmq_server.message import Handle
from tests.engine import model
from tests.engine import model_facts as facts
from tests.engine.faults import Fault, failing
from tests.engine.model_facts import Answer, must
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig
from tests.engine.steps import (
    DELAYS_MS,
    GROUPS,
    NO_GROUP,
    REASONS,
    TOPICS,
    AckStep,
    ChangeStep,
    Pick,
    PopStep,
    SealStep,
    SendStep,
    delays,
    groups,
    owners,
    sizes,
    steps,
    topics,
)


class Machine(RuleBasedStateMachine):
    """One broker, one model, and what the clients were told."""

    keep_ms = KEEP_MS_MAX
    #: Whether topics and groups come and go.
    operated = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="popmq-machine-"))
        self.rig = Rig(self.folder / "data", map_bytes=1 << 26)
        self.model = model.Model(self.rig.now)
        self.given: list[tuple[str, Handle]] = []  # by group, as the clients heard of them
        self.texts = 0
        self.heard = True
        self.positions: dict[tuple[str, str], ask.Position] = {}
        for name in TOPICS:
            self.make_topic(name, 3)
        for name in GROUPS:
            self.make_group(name, 2, ("EARLIEST", 0), name == "b")
        if not self.operated:
            for pair in itertools.product(GROUPS, TOPICS):
                self.available(*pair, False)

    def teardown(self) -> None:
        self.rig.abandon()
        shutil.rmtree(self.folder)

    # ── Running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def text(self, long: bool) -> str:
        self.texts += 1
        return f"m{self.texts}" + "x" * (100 if long else 0)

    def remember(self, group: str, answer: Any) -> None:
        """What the clients know now; an answer that nobody heard teaches nothing."""
        if self.heard and isinstance(answer, Answer):
            self.given += [(group, Handle(answer.ck_id, row.member, answer.nonce)) for row in answer.rows]

    def owner(self, group: str, name: str) -> tuple[int, int]:
        """(generation, acked epoch)"""
        settings = self.model.groups.get(group)
        found = settings.owners.get(name) if settings else None
        return (found.generation, found.acked_epoch) if found else (1, 0)

    def position(self, group: str, topic: str) -> ask.Position | None:
        return self.positions.get((group, topic))

    def run_group(self, asked: list[Any], fault: Fault) -> None:
        """One transaction of several commands, and the same in the model."""
        commands = [step.command(self) for step in asked]
        before = self.deliverable()
        with failing(self.rig.store, fault) as hit:
            try:
                committed = self.rig.commit(*commands)
            except CommitFailed:
                self.rig.crash()
                return None
        if hit.times == 2:
            return self.given_up(committed.results)
        pairs = [
            (step, command, result) for step, command, result in zip(asked, commands, committed.results, strict=True)
        ]
        lanes = [[pair for pair in pairs if lane_of(pair[1]) == lane] for lane in range(3)]
        for lane in lanes:
            for step, command, result in lane:
                if hit.times and isinstance(command, ask.NEEDS_ROOM):
                    must(isinstance(result, Refused) and result.code == "STORAGE_FULL", "a full disk", result)
                else:
                    step.judge(self, command, result)
            if lane is lanes[0]:
                self.model.timed()
        self.judge_wakes(before, committed.woken)
        return None

    def given_up(self, results: list[Any]) -> None:
        """Not even an ack could be written; the engine asks again after a while."""
        must(all(isinstance(one, Refused) and one.code == "UNAVAILABLE" for one in results), "given up", results)
        self.pass_time(RETRY_MS)

    def deliverable(self) -> dict[tuple[str, str], int]:
        return {pair: self.model.deliverable(*pair) for pair in self.model.views}

    def judge_wakes(self, before: dict[tuple[str, str], int], woken: set[tuple[str | None, str]]) -> None:
        """Where nothing was deliverable somebody may be parked; where something is now, he is woken (I.17)."""
        for (group, topic), count in self.deliverable().items():
            if count and before.get((group, topic), -1) == 0:
                must(bool({(group, topic), (None, topic)} & woken), "woken", group, topic, woken)

    def one(self, command: Any) -> Any:
        """A command alone: its result, or the code."""
        before = self.deliverable()
        committed = self.rig.commit(command)
        result = committed.results[0]
        self.last = before, committed.woken
        return result.code if isinstance(result, Refused) else result

    def after(self) -> None:
        """The model took the command: then time, in both. An owner's new time counts from the next commit on."""
        before, woken = self.last
        self.model.timed()
        self.judge_wakes(before, woken | self.settled())

    def settled(self) -> set[tuple[str | None, str]]:
        """What time asks for, all of it; who was woken."""
        woken: set[tuple[str | None, str]] = set()
        while self.rig.due:
            woken |= self.rig.commit().woken
            self.model.timed()
        must(not self.model.timed(), "something is due in the model, and not in the engine")
        return woken

    def settle(self) -> None:
        before = self.deliverable()
        self.judge_wakes(before, self.settled())

    def pass_time(self, ms: int) -> None:
        self.rig.skip(ms)
        self.model.now_ms += ms

    # ── What clients do ──────────────────────────────────────────────────────────────────────────────────────────

    @rule(asked=st.lists(steps, min_size=1, max_size=4), heard=st.sampled_from([True, True, True, False]))
    def commands(self, asked: list[Any], heard: bool = True) -> None:
        self.heard = heard
        self.run_group(asked, Fault.NONE)
        self.heard = True
        self.settle()

    @rule(asked=st.lists(steps, min_size=2, max_size=6))
    def more_commands(self, asked: list[Any]) -> None:
        self.commands(asked)

    @rule(asked=st.lists(steps, min_size=1, max_size=4), fault=st.sampled_from(list(Fault)))
    def commands_on_a_bad_disk(self, asked: list[Any], fault: Fault) -> None:
        self.run_group(asked, fault)
        self.settle()

    @rule(topic=topics, counts=st.lists(st.integers(1, 6), min_size=1, max_size=4))
    def send_some(self, topic: str, counts: list[int]) -> None:
        self.commands([SendStep(topic, [True] * count, False, "", 0) for count in counts])

    def popped(self, step: PopStep) -> list[Handle]:
        """Pops, and what came."""
        before = len(self.given)
        self.commands([step])
        return [handle for _, handle in self.given[before:]]

    @rule(group=groups, topic=topics, messages=sizes, late=st.booleans())
    def pop_and_ack(self, group: str, topic: str, messages: int, late: bool) -> None:
        """What a consumer does all day; sometimes it is late."""
        handles = self.popped(PopStep(topic, group, (), messages, 3 << 20, SECOND, "c", 0))
        if late:
            self.pass_time(SECOND)
        self.commands([AckStep(group, handles)])

    @rule(
        group=groups,
        topic=topics,
        reason=st.integers(0, len(REASONS) - 1),
        delay_ms=delays,
        uncounted=st.booleans(),
        times=st.integers(1, 3),
    )
    def pop_and_fail(
        self, group: str, topic: str, reason: int, delay_ms: int | None, uncounted: bool, times: int
    ) -> None:
        for _ in range(times):
            self.commands([PopStep(topic, group, (), 3, 3 << 20, MINUTE, "c", 0)])
            change = [(Pick(place, "good"), "release", delay_ms, uncounted, reason) for place in range(3)]
            self.commands([ChangeStep(group, change)])

    @rule(
        group=groups,
        name=owners,
        topic=topics,
        part=st.integers(0, 1),
        share=st.sampled_from([0, 0, 4]),
        bounded=st.booleans(),
        finished=st.booleans(),
    )
    def read_a_part(
        self,
        group: str,
        name: str,
        topic: str,
        part: int,
        share: int = 0,
        bounded: bool = False,
        finished: bool = False,
    ) -> None:
        """A reader that goes on chunk by chunk, as Spark's does, reads once more what it has read, and finishes it."""
        if name not in self.model.groups.get(group, NO_GROUP).owners:
            self.attach(group, name, 30 * SECOND, topic, None)
        for chunk in (0, 1, 2, 0, 1):
            seal = SealStep(topic, group, (), 3, 3 << 20, SECOND, name, 0, 1, part, chunk, share, bounded)
            self.commands([seal])
        if finished:
            self.ack_up_to(group, name, 0, 1)
            self.commands([SealStep(topic, group, (), 3, 3 << 20, SECOND, name, 0, 0, part, 0, 0, False)])

    @rule(group=groups, name=owners, topic=topics, thief=sizes, back=st.sampled_from(["replay", "renew", "new"]))
    def read_late(self, group: str, name: str, topic: str, thief: int, back: str) -> None:
        """The reader's lease ends, others pop what it held, and it comes back: to what it had, or to something new."""
        self.read_a_part(group, name, topic, 0)
        generation, _ = self.owner(group, name)
        self.pass_time(HOUR)
        self.commands([PopStep(topic, group, (), thief, 3 << 20, HOUR, "thief", 0)])
        if back == "renew":
            self.renew(group, name, 0, MINUTE)
        if back == "new":
            self.commands([SealStep(topic, group, (), 32, 3 << 20, SECOND, name, 0, 2, 1, 2, 0, False)])
        self.read_a_part(group, name, topic, 0)
        must(self.owner(group, name)[0] == generation or group not in self.model.groups, "generation")

    # ── Owners ───────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, group: str, name: str, lease_ms: int, topic: str, start: tuple[str, int] | None) -> None:
        answer = self.one(ask.AttachOwner(group, name, lease_ms, topic, start))
        self.model.attach(group, name, lease_ms, topic, start, answer)
        self.after()

    def renew(self, group: str, name: str, behind: int, lease_ms: int) -> None:
        generation = max(1, self.owner(group, name)[0] - behind)
        answer = self.one(ask.RenewOwner(group, name, generation, lease_ms))
        self.model.renew(group, name, generation, lease_ms, answer)
        self.after()

    @rule(
        group=groups,
        name=owners,
        lease_ms=st.sampled_from([SECOND, 30 * SECOND, HOUR]),
        topic=st.sampled_from(["", *TOPICS]),
        start=st.sampled_from([None, ("LATEST", 0), ("EARLIEST", 0)]),
        behind=st.sampled_from([None, None, 0, 0, 1, -1]),
    )
    def attach_or_renew(
        self, group: str, name: str, lease_ms: int, topic: str, start: tuple[str, int] | None, behind: int | None
    ) -> None:
        if behind is None:
            self.attach(group, name, lease_ms, topic, start)
        else:
            self.renew(group, name, behind, lease_ms)

    @rule(group=groups, name=owners, behind=st.sampled_from([0, 0, 0, 0, 1]), ahead=st.sampled_from([0, 1, 1, 1, 2]))
    def ack_up_to(self, group: str, name: str, behind: int, ahead: int) -> None:
        generation, acked = self.owner(group, name)
        epoch = acked + ahead
        answer = self.one(ask.AckUpTo(group, name, max(1, generation - behind), epoch))
        told = answer if isinstance(answer, str) else answer[:2]
        self.model.ack_up_to(group, name, max(1, generation - behind), epoch, told)
        self.after()

    @rule(group=groups, name=owners, known=st.booleans())
    def release_owner(self, group: str, name: str, known: bool) -> None:
        generation = self.owner(group, name)[0] if known else 0
        self.model.release_owner(group, name, generation, self.one(ask.ReleaseOwner(group, name, generation)))
        self.after()

    @rule(group=groups, topic=topics, bounded=st.booleans())
    def available(self, group: str, topic: str, bounded: bool) -> None:
        upto = self.position(group, topic) if bounded else None
        answer = self.one(ask.Available(topic, group, upto))
        refused = self.model.refused_pop(topic, group, ())
        if refused:
            must(answer == refused, "available", answer)
        else:
            self.model.bind(group, topic)
            told = facts.Position(*upto) if upto else None
            ends = dict(enumerate(map(len, self.model.topics[topic].queues)))
            must(answer == (self.model.available(group, topic, told), (ends, self.model.entered)), "available", answer)
            self.positions[(group, topic)] = answer[1]
        self.after()

    # ── Operators ────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(name=topics, what=st.sampled_from(["make", "grow", "grow", "delete", "renew"]), queues=st.integers(2, 5))
    def operate_a_topic(self, name: str, what: str, queues: int) -> None:
        """Deleted topics are mostly made again at once."""
        if not self.operated:
            what = "grow"
        if what == "grow":
            self.grow_topic(name, queues)
        if what in ("delete", "renew"):
            self.delete_topic(name)
        if what in ("make", "renew"):
            self.make_topic(name, queues)

    @rule(
        name=groups,
        what=st.sampled_from(["make", "change", "change", "delete", "renew"]),
        max_attempts=st.integers(1, 4),
        start=st.sampled_from([("EARLIEST", 0), ("EARLIEST", 0), ("LATEST", 0), ("TIMESTAMP", 1_700_000_100_000)]),
        exclusive=st.booleans(),
    )
    def operate_a_group(self, name: str, what: str, max_attempts: int, start: tuple[str, int], exclusive: bool) -> None:
        if not self.operated:
            what = "change"
        if what == "change":
            self.change_group(name, max_attempts, exclusive)
        if what in ("delete", "renew"):
            self.delete_group(name)
        if what in ("make", "renew"):
            self.make_group(name, max_attempts, start, exclusive)

    def make_topic(self, name: str, queues: int) -> None:
        answer = self.one(ask.CreateTopic(name, queues, False, self.keep_ms))
        expected = self.model.create_topic(name, queues)
        must(answer == expected if isinstance(answer, str) else not expected, "create topic", answer, expected)
        self.after()

    def grow_topic(self, name: str, queues: int) -> None:
        answer = self.one(ask.UpdateTopic(name, queues, None))
        expected = self.model.grow_topic(name, queues)
        must(answer == expected if isinstance(answer, str) else not expected, "update topic", answer, expected)
        self.after()

    def delete_topic(self, name: str) -> None:
        answer = self.one(ask.DeleteTopic(name))
        must((answer or "") == self.model.delete_topic(name), "delete topic", answer)
        self.after()

    def make_group(self, name: str, max_attempts: int, start: tuple[str, int], exclusive: bool) -> None:
        answer = self.one(ask.CreateGroup(name, max_attempts, DELAYS_MS, MINUTE, 0, *start, exclusive))
        expected = self.model.create_group(name, facts.Group(max_attempts, DELAYS_MS, MINUTE, start, exclusive))
        must(answer == expected if isinstance(answer, str) else not expected, "create group", answer, expected)
        self.after()

    def change_group(self, name: str, max_attempts: int, exclusive: bool) -> None:
        changed = {"max_attempts": max_attempts, "exclusive_owner": exclusive}
        answer = self.one(ask.UpdateGroup(name, changed))
        expected = self.model.change_group(name, max_attempts, exclusive)
        must(answer == expected if isinstance(answer, str) else not expected, "update group", answer, expected)
        self.after()

    def delete_group(self, name: str) -> None:
        answer = self.one(ask.DeleteGroup(name))
        must((answer or "") == self.model.delete_group(name), "delete group", answer)
        self.after()

    # ── Time and crashes ─────────────────────────────────────────────────────────────────────────────────────────

    @rule(
        ms=st.sampled_from([1, 999, SECOND, 10 * SECOND, 31 * SECOND, 61 * SECOND, HOUR, 13 * HOUR, 7 * DAY]),
        settle=st.booleans(),
    )
    def time_passes(self, ms: int, settle: bool) -> None:
        self.pass_time(ms)
        if settle or ms > HOUR:
            self.settle()

    @rule(short=st.integers(0, 1), settle=st.booleans())
    def time_passes_to_what_is_due(self, short: int, settle: bool) -> None:
        """Exactly to it, or to the millisecond before it."""
        with self.rig.reading() as kv:
            first = kv.first("due")
        due_ms = int.from_bytes(first[0][:8], "big") if first else 0
        if self.rig.now < due_ms - short < self.rig.now + DAY:
            self.pass_time(due_ms - short - self.rig.now)
        if settle:
            self.settle()

    @rule(clean=st.booleans())
    def start_again(self, clean: bool) -> None:
        if clean:
            self.rig.restart()
        else:
            self.rig.crash()

    # ── What must hold after every step ──────────────────────────────────────────────────────────────────────────

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        self.numbers_are_those_of_the_model()
        self.positions_are_those_of_the_model()
        self.dead_letters_are_those_of_the_model()
        findings = self.rig.findings()
        must(not findings, *findings)

    def numbers_are_those_of_the_model(self) -> None:
        rows = {(row.group, row.topic): row for row in self.rig.look("groups", "", "")}
        ours = {pair: row for pair, row in rows.items() if not pair[1].startswith("%")}
        must(ours.keys() == self.model.views.keys(), "groups in topics", ours, self.model.views)
        for pair, row in ours.items():
            shown = row.ready, row.in_flight, row.retry, row.backoff, row.dead, row.acked, row.owners
            must(shown == self.model.numbers(*pair), "numbers", pair, row, self.model.numbers(*pair))
            must((row.expired, row.quarantined) == (0, 0), "nothing is lost", row)
            must(row.oldest_ms == self.model.oldest(*pair), "oldest", pair, row, self.model.oldest(*pair))

    def positions_are_those_of_the_model(self) -> None:
        state = self.rig.core.state
        for (group, topic), view in self.model.views.items():
            ids = state.ids[("g", group)], state.ids[("t", topic)]
            must([state.poff.get((*ids, queue), 0) for queue in range(len(view.next))] == view.next, "poff", group)

    def dead_letters_are_those_of_the_model(self) -> None:
        for name, group in self.model.groups.items():
            must(sorted(dead_letters(self.rig, name)) == sorted(group.dead), "dead letters", name, group.dead)


def lane_of(command: Any) -> int:
    """In one commit: what frees and asks, then sends, then pops."""
    return {ask.Send: 1, ask.Pop: 2}.get(type(command), 0)


class ForgetfulMachine(Machine):
    """Messages go a minute after every group has passed them. To groups that read from the start nothing is missing."""

    keep_ms = MINUTE
    operated = False

    @rule(topic=topics, held=st.integers(0, 5), minutes=st.sampled_from([3, 3, 70]))
    def everybody_reads_and_time_passes(self, topic: str, held: int, minutes: int) -> None:
        """Each group acks all but one; what is held is held for long."""
        for group in GROUPS:
            handles = self.popped(PopStep(topic, group, (), 64, 3 << 20, 13 * HOUR, "c", 0))
            self.commands([AckStep(group, [one for place, one in enumerate(handles) if place != held])])
        for _ in range(3):
            self.pass_time(minutes * MINUTE // 3)
            self.settle()


def dead_letters(rig: Rig, group: str) -> Iterator[tuple[str, str, int, int, int, str]]:
    """(text, origin topic, queue, offset, attempts, reason) of each."""
    for letter in rig.dead(group):
        origin = letter.dead_letter
        yield letter.body.decode(), origin.topic, origin.queue, origin.offset, origin.attempts, origin.reason
