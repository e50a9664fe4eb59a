"""Retention: hours and days pass, groups go back and come late, and unread messages are kept."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from popmq_server.contract import commands as ask
from tests.engine.glance import Glance
from tests.engine.rig import HOUR
from tests.engine.search import draws
from tests.engine.search.machine import Broker
from tests.engine.search.model.model_facts import must
from tests.engine.search.sides.machine_operators import Moving, Operators
from tests.engine.search.steps import AckStep, PopStep

#: The inherited rules that are drawn: with all of them a search seldom reaches the cases of this machine.
CHOSEN = (
    "commands",
    "pop_and_ack",
    "pop_and_fail",
    "start_again",
    "operate_a_group",
    "redrive",
    "reset",
    "clone",
    "read_a_part",
    "read_late",
)
hours = st.sampled_from([1, 1, 2, 3, 5])


class Ageing(Moving, Operators, Broker):
    """Rules of topics that drop messages."""

    forgets = True
    keep_ms = 2 * HOUR

    @rule(hours=hours)
    def hours_pass(self, hours: int) -> None:
        for _ in range(hours):
            self.pass_time(HOUR)
            self.settle()

    @rule(topic=draws.topics, by_age=st.sampled_from([False, False, True]), hours=st.sampled_from([1, 2, 2, 30]))
    def set_retention(self, topic: str, by_age: bool, hours: int) -> None:
        answer = self.one(ask.UpdateTopic(topic, 0, (by_age, hours * HOUR)))
        expected = self.model.set_retention(topic, by_age, hours * HOUR)
        must(answer == expected if isinstance(answer, str) else not expected, "update topic", answer, expected)
        self.after()

    @rule(topic=draws.topics, held=st.integers(0, 9), hours=hours)
    def everybody_reads(self, topic: str, held: int, hours: int) -> None:
        """Each group acks all messages but one, which stays leased for long."""
        for group in sorted(self.model.groups):
            handles = self.popped(PopStep(topic, group, (), 32, invisible_ms=13 * HOUR))
            self.commands([AckStep(group, [one for place, one in enumerate(handles) if place != held])])
        self.hours_pass(hours)

    @rule(topic=draws.topics, late=draws.groups, messages=draws.sizes, hours=hours)
    def a_group_comes_late(self, topic: str, late: str, messages: int, hours: int) -> None:
        """A group subscribes to a topic whose messages other groups, or none, have read."""
        self.delete_group(late)
        self.send_some(topic, [2, 1, 1], "a")
        self.everybody_reads(topic, 9, hours)
        self.make_group(late, 4, ("EARLIEST", 0), False, False)
        self.pop_and_ack(late, topic, messages, False)
        self.hours_pass(hours)

    @rule(group=draws.groups, topic=draws.topics, back=st.integers(0, 6), hours=hours, later=hours)
    def a_group_goes_back(self, group: str, topic: str, back: int, hours: int, later: int) -> None:
        """A group reads all, and its operator resets it before or after the keep time is over."""
        self.send_some(topic, [1, 2, 1], "a")
        self.everybody_reads(topic, 9, hours)
        view, found = self.model.views.get((group, topic)), self.model.topics.get(topic)
        if view is not None and found is not None:
            offsets = {queue: max(found.begin[queue], at - back) for queue, at in enumerate(view.next)}
            self.reset(group, topic, None, offsets)
        self.hours_pass(later)
        self.pop_and_ack(group, topic, 5, False)

    @rule(group=draws.groups, topic=draws.topics, back=st.integers(0, 6), hours=hours)
    def a_consumer_sets_its_offsets_back(self, group: str, topic: str, back: int, hours: int) -> None:
        """A group switches to pulling, commits lower offsets, and switches back to pops."""
        self.go_over(group, topic, "PULL")
        view = self.model.views.get((group, topic))
        if view is not None:
            offsets = {queue: max(0, at - back) for queue, at in enumerate(view.next)}
            answer = self.one(ask.UpdateOffsets(topic, group, offsets))
            self.model.update(topic, group, offsets, answer if isinstance(answer, str) else answer[0])
            self.after()
        self.hours_pass(hours)
        self.go_over(group, topic, "POP")

    def go_over(self, group: str, topic: str, mode: str) -> None:
        self.settle()
        if (group, topic) in self.model.views:
            self.model.learn_numbers(topic, group, self.rig.commit(Glance(topic, group)).results[0].retry)
        answer = self.one(ask.SetConsumeMode(topic, group, mode))
        self.model.set_mode(topic, group, mode, answer if isinstance(answer, str) else "")
        self.after()

    @rule(
        group=draws.groups,
        topic=draws.topics,
        held=st.sampled_from([0, 9, 9]),
        again=st.sampled_from(["", "pop", "pull"]),
        to=st.sampled_from([("EARLIEST", 0), ("EARLIEST", 0), ("LATEST", 0), None]),
    )
    def a_dead_letter_outlives_its_place(
        self, group: str, topic: str, held: int, again: str, to: tuple[str, int] | None
    ) -> None:
        """A dead letter is redriven after its message was dropped, and its group is reset."""
        self.send_some(topic, [2, 1], "a")
        self.fail_for_the_last_time(group, topic, 5, [0], False, "", True)
        self.change_group(group, 4, False, False)
        self.everybody_reads(topic, held, 5)
        self.send_some(topic, [1], "b")
        self.redrive(group, None)
        if again == "pop":
            self.commands([PopStep(topic, group, (), 2, invisible_ms=HOUR)])
        if again == "pull":
            self.a_consumer_sets_its_offsets_back(group, topic, 3, 1)
        self.reset(group, topic, to, {0: 1, 1: 1})
