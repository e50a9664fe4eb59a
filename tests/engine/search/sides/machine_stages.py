"""Sinks: tasks stage, drivers commit, and both repeat it, with messages of others in between."""

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import rule

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.sending.stages import PUBLISH, STAGED
from popmq_server.embedded.writer.batch import Committed
from popmq_server.errors import Refused, invalid
from tests.engine.faults import Fault
from tests.engine.rig import DAY, HOUR, parsed
from tests.engine.search import draws
from tests.engine.search.machine import Broker
from tests.engine.search.model.model_facts import Content, Place, must
from tests.engine.search.model.model_stages import Name, Named
from tests.engine.search.sides.machine_clients import Clients
from tests.engine.search.steps import Draft

SINKS = ("q", "q2")
#: A stage that failed for want of room is tried again within this time, whatever else happened.
PATIENCE_MS = 60_000


class StageStep(NamedTuple):
    """A piece of a stage for the batch that is `ahead` of the last one."""

    sink: str
    ahead: int
    stage: int
    piece: int
    topic: str
    drafts: list[Draft]

    def command(self, machine: Broker) -> ask.Stage:
        batch = batch_of(machine, self.sink, self.ahead)
        entries = tuple(
            machine.written(self.topic, draft._replace(wait=("", 0)), False)
            if draft.good
            else invalid("a bad entry", field="messages")
            for draft in self.drafts
        )
        return ask.Stage(self.sink, batch, f"s{self.stage}", self.piece, self.topic, entries)

    def judge(self, machine: Broker, command: ask.Stage, result: Any) -> None:
        contents: list[Content | str] = [
            entry.code if isinstance(entry, Refused) else machine.contents[parsed(entry.data).body.decode()]
            for entry in command.entries
        ]
        answer = result.code if isinstance(result, Refused) else [one.code if one else "" for one in result]
        name = command.sink, command.stage_id
        machine.model.stage(name, command.piece, self.topic, command.batch, contents, answer)


class CommitStep(NamedTuple):
    """All stages of a batch, or (`flaw`) without one, with one that is unknown, one twice, or one too long."""

    sink: str
    ahead: int
    flaw: str = ""

    def command(self, machine: Broker) -> ask.CommitBatch:
        batch = batch_of(machine, self.sink, self.ahead)
        named = [one for one in staged_of(machine, self.sink, batch) if one.messages]
        if named and self.flaw == "without":
            named.pop()
        if named and self.flaw == "twice":
            named.append(named[0])
        if named and self.flaw == "long":
            named[0] = named[0]._replace(messages=named[0].messages + 1)
        if self.flaw == "unknown":
            named.append(ask.StageName("nobody", "t", 1))
        return ask.CommitBatch(self.sink, batch, tuple(named))

    def judge(self, machine: Broker, command: ask.CommitBatch, result: Any) -> None:
        answer = result.code if isinstance(result, Refused) else tuple(result)
        named = [Named(*one) for one in command.stages]
        machine.model.commit_batch(command.sink, command.batch, named, answer)


class DropStep(NamedTuple):
    """Drops a stage, which may be unknown or (`elsewhere`) belong to another topic."""

    sink: str
    stage: int
    elsewhere: str = ""

    def command(self, machine: Broker) -> ask.DropStages:
        found = machine.model.stages.get((self.sink, f"s{self.stage}"))
        topic = self.elsewhere or (found.topic if found else "t")
        return ask.DropStages(self.sink, (ask.StageName(f"s{self.stage}", topic),))

    def judge(self, machine: Broker, command: ask.DropStages, result: Any) -> None:
        machine.model.drop_stages(command.sink, [Named(*one) for one in command.stages], result)


def batch_of(machine: Broker, sink: str, ahead: int) -> int:
    return max(0, machine.model.batches.get(sink, (0, 0))[0] + ahead)


def staged_of(machine: Broker, sink: str, batch: int) -> list[ask.StageName]:
    """The stages of a batch, as their sink knows them."""
    return [
        ask.StageName(stage_id, stage.topic, len(stage.contents))
        for (of, stage_id), stage in machine.model.stages.items()
        if (of, stage.batch) == (sink, batch)
    ]


sinks, aheads = st.sampled_from(["q", "q", "q", "q2"]), st.sampled_from([1, 1, 1, 1, 2, 0])
stagings = st.builds(
    StageStep,
    sinks,
    aheads,
    st.integers(0, 3),
    st.integers(0, 2),
    draws.topics,
    st.lists(draws.drafts(False), max_size=4),
)
commits = st.builds(
    CommitStep, sinks, aheads, st.sampled_from([""] * 4 + ["without", "twice", "long", "long", "unknown"])
)
drops = st.builds(DropStep, sinks, st.integers(0, 3), st.sampled_from(["", "", "", *draws.TOPICS]))
sink_steps = st.one_of(stagings, stagings, stagings, commits, drops, draws.steps)


class Staging(Clients, Broker):
    """Rules of sinks."""

    @rule(asked=st.lists(sink_steps, min_size=1, max_size=5))
    def sink_commands(self, asked: list[Any]) -> None:
        self.settle()
        self.commands(asked)

    @rule(asked=st.lists(sink_steps, min_size=1, max_size=4), fault=st.sampled_from(list(Fault)))
    def sink_commands_on_a_bad_disk(self, asked: list[Any], fault: Fault) -> None:
        self.settle()
        self.run_group(asked, fault)
        self.settle()

    @rule(
        sink=sinks,
        topic=draws.topics,
        drafts=st.lists(draws.drafts(False), min_size=1, max_size=4),
        killed=st.sampled_from(["", "", "staged", "committed"]),
        purged=st.booleans(),
        flaw=st.sampled_from(["", "without", "long", "unknown"]),
    )
    def write_a_batch_and_repeat_it(
        self, sink: str, topic: str, drafts: list[Draft], killed: str, purged: bool, flaw: str
    ) -> None:
        """What a driver does that was killed anywhere: all of it again, under new stage ids. Its tasks repeat a piece
        whose answer they have not heard; a commit that names too much is refused before the right one.
        """
        self.settle()
        pieces = [StageStep(sink, 1, stage, piece, topic, drafts) for stage, piece in ((0, 0), (0, 0), (0, 1), (1, 0))]
        self.commands(list(pieces))
        if flaw in ("long", "unknown"):
            self.commands([CommitStep(sink, 1, flaw)])
        if killed == "staged":
            self.restart(False)
        if purged and killed and topic in self.model.topics and self.operated:
            self.model.purge_topic(topic, self.one(ask.PurgeTopic(topic)))
            self.after()
            self.settle()
        self.run_group([CommitStep(sink, 1, "without" if flaw == "without" else "")], Fault.NONE)
        if killed == "committed":
            self.restart(False)
        self.commands([StageStep(sink, 0, 2, 0, topic, drafts), CommitStep(sink, 0)])

    @rule(short=st.sampled_from([0, 1, HOUR]))
    def a_day_passes(self, short: int) -> None:
        """Uncommitted stages end after a day, and not before."""
        for left in (DAY - short, short + HOUR):
            self.pass_time(left)
            self.settle()

    # ── What the engine knows ────────────────────────────────────────────────────────────────────────────────────

    def run_group(self, asked: list[Any], fault: Fault, full_at: int = 0) -> None:
        super().run_group(asked, fault, full_at)
        self.model.number(self.waiting())

    def time_in_model(self, committed: Committed) -> None:
        super().time_in_model(committed)
        topics = {stage.topic for stage in self.model.decided.values()} & self.model.topics.keys()
        places: dict[str, Place] = {}
        for topic in topics:
            for queue, known in enumerate(self.model.topics[topic].queues):
                for row in self.rig.browse(topic, queue, len(known)).rows:
                    places[parsed(row[0]).body.decode()] = queue, row[3]
        self.model.publish(self.waiting(), places)

    def settled(self) -> set[tuple[str | None, str]]:
        woken = super().settled()
        self.model.left(self.staged())
        due_ms = self.rig.core.next_due_ms
        soon = due_ms is not None and due_ms <= self.rig.now + PATIENCE_MS
        must(soon or not self.model.decided, "committed, and nobody publishes it", self.model.decided)
        return woken

    def waiting(self) -> list[int]:
        """Numbers of the stages that will be published, in order."""
        rows = (PUBLISH.unpack(raw) for _, raw in self.rig.read("publish"))
        return [number for number, _, publish in rows if publish]

    def staged(self) -> set[Name]:
        names = (raw[STAGED.size :].decode().split("\0") for _, raw in self.rig.read("staged"))
        return {(sink, stage_id) for sink, stage_id in names}
