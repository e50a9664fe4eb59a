"""Rules of operators: topics, groups and filters are created, changed and deleted; groups are reset and resumed."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from tests.engine.rig import MINUTE, SECOND
from tests.engine.search import draws
from tests.engine.search.machine import Broker
from tests.engine.search.model.model_facts import DeadLetter, must
from tests.engine.search.model.model_redrives import Redriven
from tests.engine.search.model.model_topics import FILTERS
from tests.engine.search.sides.machine_clients import Clients
from tests.engine.search.sides.machine_holds import dead_letters
from tests.engine.search.steps import AckStep, ChangeStep, Pick, PopStep


class Operators(Broker):
    """Rules of topics and groups."""

    @rule(
        name=draws.topics,
        what=st.sampled_from(["make", "grow", "grow", "delete", "renew"]),
        queues=st.integers(2, 5),
        which=st.integers(0, 59),
    )
    def operate_a_topic(self, name: str, what: str, queues: int, which: int) -> None:
        """Deleted topics are mostly created again at once, often with another type."""
        if not self.operated:
            what = "grow"
        if what == "grow":
            self.grow_topic(name, queues)
        if what in ("delete", "renew"):
            self.delete_topic(name)
        if what in ("make", "renew"):
            self.make_topic(name, self.kind(which))

    @rule(name=draws.topics)
    def purge_a_topic(self, name: str) -> None:
        if self.operated:
            self.model.purge_topic(name, self.one(ask.PurgeTopic(name)))
            self.after()

    @rule(
        name=draws.groups,
        what=st.sampled_from(["make", "change", "change", "delete", "renew"]),
        max_attempts=st.integers(1, 4),
        start=draws.starts,
        exclusive=st.booleans(),
        stops=st.booleans(),
    )
    def operate_a_group(
        self, name: str, what: str, max_attempts: int, start: tuple[str, int], exclusive: bool, stops: bool
    ) -> None:
        if not self.operated:
            what = "change"
        if what == "change":
            self.change_group(name, max_attempts, exclusive, stops)
        if what in ("delete", "renew"):
            self.delete_group(name)
        if what in ("make", "renew"):
            self.make_group(name, max_attempts, start, exclusive, stops)

    def grow_topic(self, name: str, queues: int) -> None:
        answer = self.one(ask.UpdateTopic(name, queues, None))
        expected = self.model.grow_topic(name, queues)
        must(answer == expected if isinstance(answer, str) else not expected, "update topic", answer, expected)
        self.after()

    @rule(mib=st.sampled_from([64, 256, 300, 1 << 20]))
    def move_the_limit(self, mib: int) -> None:
        """Changes the limit of the data file; clients see no difference, and it survives a crash."""
        answer = self.one(ask.SetMaxSize(mib << 20))
        must(answer is None and self.rig.store.map_bytes == mib << 20, "set the limit", answer)
        self.after()

    def delete_topic(self, name: str) -> None:
        answer = self.one(ask.DeleteTopic(name))
        must((answer or "") == self.model.delete_topic(name), "delete topic", answer)
        self.after()

    def delete_group(self, name: str) -> None:
        answer = self.one(ask.DeleteGroup(name))
        must((answer or "") == self.model.delete_group(name), "delete group", answer)
        self.after()


class Repairing(Clients, Broker):
    """Rules that deliver failed messages again."""

    @rule(group=draws.groups, which=st.one_of(st.none(), st.sets(st.integers(0, 4), max_size=3)))
    def redrive(self, group: str, which: set[int] | None) -> None:
        """All dead letters of a group, piece by piece, or some of them. Later than they were sent: a message may be on
        its way twice, in its queue and redriven, and is known by when it was stored.
        """
        self.pass_time(1)
        self.settle()
        letters = dead_letters(self.rig, group) if group in self.model.groups else []
        if which is not None:
            some = [one for place, one in enumerate(letters) if place in which]
            self.redrive_piece(operations.RedrivePiece(group, tuple(offset for offset, _ in some)), some)
            return
        left: operations.RedrivePiece | None = operations.RedrivePiece(group)
        while left is not None:
            left = self.redrive_piece(left, letters)

    def redrive_piece(
        self, command: operations.RedrivePiece, letters: list[tuple[int, DeadLetter]]
    ) -> operations.RedrivePiece | None:
        """One request; what to ask for next, where dead letters are left. A piece ends where some are missing."""
        answer = self.one(command)
        if isinstance(answer, str):
            self.model.redrive(command.group, letters, answer)
        else:
            ours = [one for one in letters if command.offsets is not None or command.start <= one[0] < answer.next]
            self.model.redrive(command.group, ours, Redriven(answer.topics, [one.offset for one in answer.failures]))
        self.after()
        if isinstance(answer, str) or answer.next >= answer.stop:
            return None
        return replace(command, start=answer.next, stop=answer.stop)

    @rule(group=draws.groups, topic=draws.topics, message_group=st.sampled_from("abc"), dead_letter=st.booleans())
    def resume(self, group: str, topic: str, message_group: str, dead_letter: bool) -> None:
        answer = self.one(ask.ResumeMessageGroup(topic, group, message_group, dead_letter))
        self.model.resume(topic, group, message_group, dead_letter, answer or "")
        self.after()

    @rule(
        group=draws.groups,
        topic=draws.topics,
        messages=draws.sizes,
        places=st.lists(st.integers(0, 3), min_size=1, max_size=2),
        late=st.booleans(),
        again=st.sampled_from(["resume", "redrive", "both", ""]),
        dead_letter=st.booleans(),
    )
    def fail_for_the_last_time(
        self, group: str, topic: str, messages: int, places: list[int], late: bool, again: str, dead_letter: bool
    ) -> None:
        """Messages of a batch fail at their last attempt, singly or with their lease, and are redriven or resumed."""
        self.change_group(group, 1, False, not dead_letter or again == "resume")
        self.popped(PopStep(topic, group, (), messages, invisible_ms=MINUTE))
        for place in places:
            self.commands([ChangeStep(group, [(Pick(place, "good"), "release", 0, False, 1)])])
        if late:
            self.pass_time(MINUTE)
            self.settle()
        if again in ("redrive", "both"):
            self.redrive(group, None)
        if again in ("resume", "both"):
            for message_group in "ab":
                self.resume(group, topic, message_group, dead_letter)

    @rule(group=draws.groups, topic=draws.topics, uncounted=st.booleans())
    def lower_the_maximum_of_what_comes_back(self, group: str, topic: str, uncounted: bool) -> None:
        """Lowers the maximum of attempts; messages in backoff still get their next attempt."""
        self.change_group(group, 4, False, False)
        self.pop_and_fail(group, topic, 0, SECOND, uncounted, 2)
        self.change_group(group, 1, False, False)
        self.pass_time(SECOND)
        self.settle()


class Filtering(Clients, Broker):
    """Filters are replaced: filtered messages do not come back, and waiting ones are judged by the new filter."""

    @rule(
        group=draws.groups,
        topic=draws.topics,
        wanted=st.lists(st.sampled_from(list(FILTERS)), min_size=2, max_size=3),
        messages=draws.sizes,
    )
    def change_the_filter_again_and_again(
        self, group: str, topic: str, wanted: list[tuple[str, str]], messages: int
    ) -> None:
        """Retries in between are judged by the new filter."""
        for one in wanted:
            self.send_some(topic, [4], "a")
            self.set_filter(group, topic, one)
            self.commands([PopStep(topic, group, (), messages, invisible_ms=MINUTE)])
            change = [(Pick(place, "good"), "release", 0, False, 0) for place in range(messages)]
            self.commands([ChangeStep(group, change)])

    @rule(group=draws.groups, topic=draws.topics, wanted=st.sampled_from(list(FILTERS)))
    def set_filter(self, group: str, topic: str, wanted: tuple[str, str]) -> None:
        answer = self.one(ask.SetFilter(topic, group, wanted))
        self.model.set_filter(topic, group, wanted, answer if isinstance(answer, str) else "")
        self.after()


class Moving(Repairing, Broker):
    """Groups are reset: their leases and retries of these queues are void."""

    @rule(
        group=draws.groups,
        topic=draws.topics,
        to=st.one_of(st.none(), draws.starts),
        offsets=st.dictionaries(st.integers(0, 2), st.integers(0, 4), max_size=2),
    )
    def reset(self, group: str, topic: str, to: tuple[str, int] | None, offsets: dict[int, int]) -> None:
        to, given = to and self.start_of(to), None if to else offsets
        answer = self.one(ask.ResetOffsets(topic, group, to, given))
        told = answer if isinstance(answer, str) else answer.offsets
        self.model.reset(topic, group, to, given, told)
        self.after()

    @rule(group=draws.groups, topic=draws.topics, messages=draws.sizes, failed=st.sampled_from(["", "release", "ack"]))
    def redrive_what_comes_again(self, group: str, topic: str, messages: int, failed: str) -> None:
        """A message is dead-lettered, its group is reset to an offset before it, and the message is also redriven."""
        self.send_some(topic, [3], "a")
        self.fail_for_the_last_time(group, topic, 5, [0], False, "", True)
        self.change_group(group, 4, False, False)
        self.reset(group, topic, ("EARLIEST", 0), {})
        handles = self.popped(PopStep(topic, group, (), messages, invisible_ms=MINUTE))
        if failed == "ack":
            self.commands([AckStep(group, handles)])
        elif failed:
            self.commands([ChangeStep(group, [(Pick(0, "good"), failed, SECOND, False, 1)])])
        self.redrive(group, None)

    @rule(source=draws.groups, group=draws.groups, topic=draws.topics)
    def clone(self, source: str, group: str, topic: str) -> None:
        answer = self.one(ask.CloneOffsets(topic, source, group))
        self.model.clone(topic, source, group, answer if isinstance(answer, str) else answer.offsets)
        self.after()
