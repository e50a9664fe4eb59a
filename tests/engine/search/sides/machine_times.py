"""Messages that are invisible at first: delayed ones by two clocks, and half messages with their producers."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from popmq_server.embedded.rules.sending.release_delayed import WALL_LOOK_MS
from tests.engine.faults import Fault
from tests.engine.rig import HOUR, MINUTE
from tests.engine.search import draws
from tests.engine.search.machine import Broker
from tests.engine.search.model.model_facts import CHECK_EVERY_MS, FIRST_CHECK_MS, HALF_KEEP_MS, HALF_LOOK_MS
from tests.engine.search.sides.machine_clients import Clients
from tests.engine.search.steps import (
    CountStep,
    Draft,
    EndStep,
    ListenStep,
    PopStep,
    RecallStep,
    RescheduleStep,
    SendStep,
)

#: This many fit before an idle subscription expires, which the model does not know.
LONG_WAITS_MAX = 5


class Timing(Clients, Broker):
    """Rules of delayed and half messages."""

    long_waits = 0

    @rule(asked=st.lists(draws.timed_steps, min_size=1, max_size=5))
    def timed_commands(self, asked: list[Any]) -> None:
        self.commands(asked)

    @rule(asked=st.lists(draws.timed_steps, min_size=1, max_size=4), fault=st.sampled_from(list(Fault)))
    def timed_commands_on_a_bad_disk(self, asked: list[Any], fault: Fault) -> None:
        self.run_group(asked, fault)
        self.settle()

    @rule(asked=st.lists(draws.timed_steps, min_size=1, max_size=4), which=st.integers(0, 2), early=st.integers(0, 1))
    def commands_in_the_moment_when_something_is_due(self, asked: list[Any], which: int, early: int) -> None:
        """Recalls and ends race with the deadline: the first in the commit wins, and the model knows which."""
        coming = self.model.coming()[: which + 1]
        if coming and coming[-1] < self.rig.now + HOUR:
            self.pass_time(max(0, coming[-1] - early - self.rig.now))
        self.commands(asked)

    @rule(
        topic=draws.topics,
        name=st.integers(3, 9),
        how=st.sampled_from([("", 0), ("delay", HOUR), ("due", HOUR)]),
        half=st.booleans(),
        commit=st.booleans(),
        move=st.booleans(),
        recall=st.booleans(),
    )
    def send_the_same_again(
        self, topic: str, name: int, how: tuple[str, int], half: bool, commit: bool, move: bool, recall: bool
    ) -> None:
        """Sends an id again after its message ended, was moved or recalled; a unique id gets the stored answer."""
        draft = Draft(name=name, wait=how, half=half)
        self.commands([SendStep(topic, [draft])])
        if half:
            self.commands([EndStep([(0, commit)])])
        if move:
            self.commands([RescheduleStep(RecallStep(0), ("delay", MINUTE))])
        if recall:
            self.commands([RecallStep(0)])
        self.commands([SendStep(topic, [draft._replace(half=False)])])

    @rule(ms=draws.wall_steps_ms)
    def somebody_sets_the_clock(self, ms: int) -> None:
        """Sets the wall clock; no pop is woken, and a lagging clock is looked at a little later."""
        self.step_wall(ms)
        self.pass_time(WALL_LOOK_MS)
        self.settle()

    @precondition(lambda self: self.long_waits < LONG_WAITS_MAX)
    @rule(
        topic=draws.topics,
        name=st.integers(3, 9),
        short_ms=st.sampled_from([0, 1, MINUTE]),
        listening=st.booleans(),
        commit=st.sampled_from([None, True, False]),
    )
    def a_producer_does_not_come_back_for_three_days(
        self, topic: str, name: int, short_ms: int, listening: bool, commit: bool | None
    ) -> None:
        """Time passes to just before the age at which half messages are given up, and beyond; some end in between."""
        self.long_waits += 1
        self.commands([SendStep(topic, [Draft(name=name, half=True)])])
        if listening:
            self.commands([ListenStep(frozenset(draws.TOPICS))])
        self.pass_time(HALF_KEEP_MS - short_ms)
        self.settle()
        if commit is not None:
            self.commands([EndStep([(0, commit)])])
        self.pass_time(short_ms + HALF_LOOK_MS)
        self.settle()
        self.commands([SendStep(topic, [Draft(name=name)])])

    @rule(
        topic=draws.topics,
        group=draws.groups,
        counted=st.sampled_from([1, 3, 16]),
        commit=st.sampled_from([None, True, False]),
    )
    def a_producer_is_asked_again_and_again(self, topic: str, group: str, counted: int, commit: bool | None) -> None:
        """A producer leaves many checks undecided, then decides, or the broker gives the half message up."""
        self.commands([SendStep(topic, [Draft(half=True)]), ListenStep(frozenset(draws.TOPICS))])
        self.pass_time(FIRST_CHECK_MS)
        for _ in range(counted):
            self.settle()
            self.commands([CountStep([0, 1])])
            self.pass_time(CHECK_EVERY_MS)
        last: list[Any] = [EndStep([(0, commit)])] if commit is not None else []
        self.commands([*last, PopStep(topic, group)])
