"""What clients do: send, pop, ack, fail, with bad disks, lost answers and crashes in between."""

import itertools
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from popmq_server.values.handles import Handle
from tests.engine.faults import Fault
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND
from tests.engine.search import draws
from tests.engine.search.machine import Broker
from tests.engine.search.steps import REASONS, AckStep, ChangeStep, Draft, Pick, PopStep, SendStep, SettleStep


class Clients(Broker):
    """Rules of every machine."""

    @rule(asked=st.lists(draws.steps, min_size=1, max_size=4), heard=st.sampled_from([True, True, True, False]))
    def commands(self, asked: list[Any], heard: bool = True) -> None:
        self.heard = heard
        self.run_group(asked, Fault.NONE)
        self.heard = True
        self.settle()

    @rule(asked=st.lists(draws.steps, min_size=2, max_size=6))
    def more_commands(self, asked: list[Any]) -> None:
        self.commands(asked)

    @rule(asked=st.lists(draws.steps, min_size=1, max_size=4), fault=st.sampled_from(list(Fault)))
    def commands_on_a_bad_disk(self, asked: list[Any], fault: Fault) -> None:
        self.run_group(asked, fault)
        self.settle()

    @rule(topic=draws.topics, counts=st.lists(st.integers(1, 6), min_size=1, max_size=4), groups=st.sampled_from("abc"))
    def send_some(self, topic: str, counts: list[int], groups: str) -> None:
        """Sends messages of one message group, the last of each request of another one, with several tags."""
        other = "b" if groups == "a" else "a"
        looks = itertools.cycle([("", None), ("red", 1), ("blue", 2), ("red", None)])
        requests = [[Draft(message_group=groups)] * (count - 1) + [Draft(message_group=other)] for count in counts]
        coloured = [
            [draft._replace(tag=tag, number=number) for draft, (tag, number) in zip(drafts, looks, strict=False)]
            for drafts in requests
        ]
        self.commands([SendStep(topic, drafts) for drafts in coloured])

    def popped(self, step: PopStep) -> list[Handle]:
        """Pops; returns the deliveries."""
        before = len(self.given)
        self.commands([step])
        return [handle for _, handle in self.given[before:]]

    @rule(group=draws.groups, topic=draws.topics, messages=draws.sizes, late=st.booleans())
    def pop_and_ack(self, group: str, topic: str, messages: int, late: bool) -> None:
        """Pops and acks, sometimes after the lease."""
        handles = self.popped(PopStep(topic, group, (), messages))
        if late:
            self.pass_time(SECOND)
        self.commands([AckStep(group, handles)])

    @rule(group=draws.groups, topic=draws.topics, queues=draws.queue_sets, times=st.integers(3, 12))
    def pop_again_and_again(self, group: str, topic: str, queues: tuple[int, ...], times: int) -> None:
        """Pops one by one, while messages of all priorities are sent."""
        drafts = [Draft(message_group="abc"[number % 3], priority=number) for number in range(4)]
        for number in range(times):
            if number % 3 == 0:
                self.commands([SendStep(topic, drafts)])
            self.commands([AckStep(group, self.popped(PopStep(topic, group, queues, 1)))])

    @rule(
        group=draws.groups,
        topic=draws.topics,
        messages=draws.sizes,
        endings=st.lists(draws.endings, max_size=2),
        sends=st.lists(draws.sending(False), min_size=1, max_size=2),
        number=draws.request_numbers,
        times=st.integers(1, 2),
    )
    def pop_and_settle(
        self, group: str, topic: str, messages: int, endings: list[Any], sends: list[SendStep], number: int, times: int
    ) -> None:
        """Ends what it popped and sends, in one commit; sometimes twice, as after a lost answer."""
        handles = self.popped(PopStep(topic, group, (), messages, invisible_ms=MINUTE))
        # A pick counts back from the last handle: those that end otherwise are not acked.
        step = SettleStep(group, handles[: len(handles) - len(endings)], _in_turn(endings), sends, "t", number)
        for _ in range(times):
            self.commands([step])

    @rule(
        group=draws.groups,
        topic=draws.topics,
        messages=draws.sizes,
        extended=st.integers(0, 2),
        acked=st.integers(0, 2),
        late=st.booleans(),
    )
    def ask_again_for_the_same(
        self, group: str, topic: str, messages: int, extended: int, acked: int, late: bool
    ) -> None:
        """A caller repeats an attempt whose answer was lost, after some of its messages were settled."""
        step = PopStep(topic, group, (), messages, invisible_ms=MINUTE, client="e", attempt=3)
        handles = self.popped(step)
        self.commands([ChangeStep(group, [(Pick(extended, "good"), "extend", HOUR, False, 0)])])
        self.commands([AckStep(group, handles[acked : acked + 1])])
        if late:
            self.pass_time(MINUTE)
            self.settle()
        self.commands([step])

    @rule(
        group=draws.groups,
        topic=draws.topics,
        reason=st.integers(0, len(REASONS) - 1),
        delay_ms=draws.delays,
        uncounted=st.booleans(),
        times=st.integers(1, 3),
    )
    def pop_and_fail(
        self, group: str, topic: str, reason: int, delay_ms: int | None, uncounted: bool, times: int
    ) -> None:
        for _ in range(times):
            self.commands([PopStep(topic, group, (), 3, invisible_ms=MINUTE)])
            change = [(Pick(place, "good"), "release", delay_ms, uncounted, reason) for place in range(3)]
            self.commands([ChangeStep(group, change)])

    @rule(group=draws.groups, topic=draws.topics, delay_ms=st.sampled_from([0, 0, SECOND]), times=st.integers(1, 4))
    def pop_and_snooze(self, group: str, topic: str, delay_ms: int, times: int) -> None:
        """Puts back what it popped, also more often than the group allows."""
        for _ in range(times):
            self.commands([PopStep(topic, group, (), 3, invisible_ms=MINUTE)])
            self.commands(
                [ChangeStep(group, [(Pick(place, "good"), "snooze", delay_ms, False, 1) for place in range(3)])]
            )
            self.pass_time(delay_ms)
            self.settle()

    @rule(
        group=draws.groups,
        topic=draws.topics,
        queues=draws.queue_sets,
        sizes=draws.byte_bounds,
        count=st.integers(2, 7),
        fault=st.sampled_from([Fault.NONE] * 5 + list(Fault)),
    )
    def equal_pops_and_their_acks_in_one_batch(
        self, group: str, topic: str, queues: tuple[int, ...], sizes: int, count: int, fault: Fault
    ) -> None:
        """Several consumers pop one message each in the same commit, and ack it."""
        step = PopStep(topic, group, queues, 1, sizes)
        before = len(self.given)
        self.run_group([step] * count, fault)
        self.settle()
        handles = [handle for _, handle in self.given[before:]]
        acks = [AckStep(group, [handle]) for handle in handles]
        self.run_group([*acks, *[step] * count], Fault.NONE)
        self.settle()

    @rule(
        group=draws.groups,
        other=draws.groups,
        topic=draws.topics,
        picks=st.lists(draws.picks, max_size=2),
        between=draws.steps,
        turned=st.booleans(),
    )
    def equal_pops_and_acks_among_others(
        self, group: str, other: str, topic: str, picks: list[Pick], between: Any, turned: bool
    ) -> None:
        """Pops of two groups in turn, among another request and acks of any handles."""
        step, asked = PopStep(topic, group, (), 1), PopStep(topic, other, (), 1)
        self.send_some(topic, [3, 3], "a")
        handles = self.popped(step._replace(messages=4))
        some: list[Pick | Handle] = [*handles[:2], *picks]
        acks = [AckStep(group, [one]) for one in some]
        acks += [AckStep(other, handles[2:3]), AckStep(group, handles[3:])]
        self.commands([*(reversed(acks) if turned else acks), between, step, asked, step, asked, step])
        handles = self.popped(step._replace(messages=3))
        release = ChangeStep(group, [(Pick(0, "good"), "release", 0, False, 0)])  # the last of them
        self.commands([AckStep(group, handles[:1]), release, AckStep(group, handles[-1:])])

    @rule(group=draws.groups, topic=draws.topics, count=st.integers(2, 5), number=st.integers(1, 30))
    def equal_pops_of_which_a_put_finds_no_page(self, group: str, topic: str, count: int, number: int) -> None:
        """A full map undoes the pops that were run as one for all of them."""
        self.settle()
        self.run_group([PopStep(topic, group, (), 1)] * count, Fault.NONE, full_at=number)
        self.settle()

    @rule(ms=draws.pauses_ms, settle=st.booleans())
    def time_passes(self, ms: int, settle: bool) -> None:
        self.pass_time(ms)
        if settle or ms > HOUR:
            self.settle()

    @rule(which=st.sampled_from([0, 0, 0, 1, 2]), short=st.integers(0, 1), settle=st.booleans())
    def time_passes_to_what_is_due(self, which: int, short: int, settle: bool) -> None:
        """Moves the clock exactly to the next deadline, or to the millisecond before it."""
        coming = self.model.coming()[: which + 1]
        if coming and coming[-1] < self.rig.now + DAY:
            self.pass_time(max(0, coming[-1] - short - self.rig.now))
        if settle:
            self.settle()

    @rule(clean=st.booleans())
    def start_again(self, clean: bool) -> None:
        self.restart(clean)


def _in_turn(endings: list[Any]) -> list[Any]:
    """The endings of the last deliveries, one for each."""
    return [(Pick(place, "good"), *ending[1:]) for place, ending in enumerate(endings)]
