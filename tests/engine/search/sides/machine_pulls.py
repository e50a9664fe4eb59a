"""Groups that read by queue and offset: pull, commit, send back; and that go over to pops and back."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from popmq_server.contract import commands as ask
from popmq_server.errors import Refused
from tests.engine.glance import Glance
from tests.engine.rig import parsed
from tests.engine.search import draws
from tests.engine.search.machine import Broker
from tests.engine.search.model.model_moves import Asked, Pulled, SentBack
from tests.engine.search.model.model_topics import FILTERS
from tests.engine.search.sides.machine_clients import Clients
from tests.engine.search.steps import REASONS

modes = st.sampled_from(["POP", "PULL", "PULL"])


class Pulling(Clients, Broker):
    """Rules of consume modes."""

    @rule(group=draws.groups, topic=draws.topics, mode=modes, crash=st.booleans())
    def set_consume_mode(self, group: str, topic: str, mode: str, crash: bool = False) -> None:
        """Switches the consume mode; an unfinished switch goes on after a crash."""
        self.learn_numbers(group, topic)
        answer = self.one(ask.SetConsumeMode(topic, group, mode))
        self.model.set_mode(topic, group, mode, answer if isinstance(answer, str) else "")
        if crash:
            self.restart(False)
        self.after()

    @rule(
        group=draws.groups,
        topic=draws.topics,
        delay_ms=draws.delays,
        sent_again=st.booleans(),
        wanted=st.sampled_from([None, *FILTERS]),
        crash=st.booleans(),
    )
    def consumers_go_over_with_what_failed(
        self,
        group: str,
        topic: str,
        delay_ms: int | None,
        sent_again: bool,
        wanted: tuple[str, str] | None,
        crash: bool,
    ) -> None:
        """Switches while failed messages wait, perhaps twice, or do not match the filter any more."""
        self.set_consume_mode(group, topic, "POP")
        self.change_group(group, 4, False, False)
        self.send_some(topic, [4, 2], "a")
        self.pop_and_fail(group, topic, 0, delay_ms, False, 1)
        self.set_consume_mode(group, topic, "PULL", crash)
        self.pull_and_commit(group, topic, 32, 0)
        view = self.model.views.get((group, topic))
        last = [(queue, next_offset - 1, False) for queue, next_offset in enumerate(view.next)] if view else []
        for _ in range(1 + sent_again):
            self.send_back(group, topic, [place for place in last if place[1] >= 0], delay_ms, 0, False)
        if wanted is not None:
            answer = self.one(ask.SetFilter(topic, group, wanted))
            self.model.set_filter(topic, group, wanted, answer if isinstance(answer, str) else "")
            self.after()
        self.pull_retries(group, topic, 32, 0)
        self.set_consume_mode(group, topic, "POP", crash)

    @rule(
        group=draws.groups,
        topic=draws.topics,
        messages=draws.sizes,
        back=st.sampled_from([0, 0, 1]),
        places=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), min_size=1, max_size=3),
        delay_ms=draws.delays,
        crash=st.booleans(),
    )
    def consumers_go_over_and_back(
        self,
        group: str,
        topic: str,
        messages: int,
        back: int,
        places: list[tuple[int, int, bool]],
        delay_ms: int | None,
        crash: bool,
    ) -> None:
        """Switches to pulls, where some messages are committed and others are not, and back to pops."""
        self.set_consume_mode(group, topic, "PULL", crash)
        self.pull_and_commit(group, topic, messages, back)
        self.send_back(group, topic, places, delay_ms, 0, False)
        self.pull_retries(group, topic, messages, 1)
        self.send_back(group, topic, places, delay_ms, 1, False)
        self.set_consume_mode(group, topic, "POP", crash)

    def learn_numbers(self, group: str, topic: str) -> bool:
        """Learns the numbers of the entries of a retry topic. False if there is no such topic."""
        if (group, topic) not in self.model.views:
            return False
        self.settle()
        self.model.learn_numbers(topic, group, self.rig.commit(Glance(topic, group)).results[0].retry)
        return True

    @rule(
        group=st.sampled_from(["", *draws.GROUPS]),
        topic=draws.topics,
        queue=st.integers(0, 3),
        offset=st.integers(-1, 6),
        messages=draws.sizes,
        size=draws.byte_bounds,
        wanted=st.one_of(st.none(), st.sampled_from(list(FILTERS))),
        commit=st.sampled_from([None, None, None, 0, 1, 2, 5]),
    )
    def pull(
        self,
        group: str,
        topic: str,
        queue: int,
        offset: int,
        messages: int,
        size: int,
        wanted: tuple[str, str] | None,
        commit: int | None,
    ) -> None:
        """Pulls from an offset on; -1 = from the committed one."""
        view = self.model.views.get((group, topic))
        if offset < 0:
            offset = view.next[queue] if view and queue < len(view.next) else 0
        asked = Asked(queue, offset, messages, size, wanted, commit)
        answer = self.one(ask.Pull(topic, group, queue, offset, messages, size, wanted, commit))
        self.model.pull(topic, group, asked, answer if isinstance(answer, str) else pulled(answer))
        self.after()

    @rule(group=draws.groups, topic=draws.topics, messages=draws.sizes, back=st.sampled_from([0, 0, 1]))
    def pull_and_commit(self, group: str, topic: str, messages: int, back: int) -> None:
        """Pulls and commits as a consumer does, sometimes to a lower offset."""
        view = self.model.views.get((group, topic))
        if view is None or view.mode != "PULL":
            return
        for queue in range(len(view.next)):
            self.pull(group, topic, queue, -1, messages, 3 << 20, None, None)
            end = min(len(self.model.topics[topic].queues[queue]), view.next[queue] + messages)
            self.update_offsets(group, topic, {queue: max(0, end - back)})

    @rule(
        group=draws.groups,
        topic=draws.topics,
        offsets=st.dictionaries(st.integers(0, 2), st.integers(0, 6), min_size=1, max_size=2),
    )
    def update_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        answer = self.one(ask.UpdateOffsets(topic, group, offsets))
        self.model.update(topic, group, offsets, answer if isinstance(answer, str) else answer[0])
        self.after()

    @rule(group=draws.groups, topic=draws.topics, since_ms=st.sampled_from([None, 0, 1_700_000_001_000]))
    def query_offsets(self, group: str, topic: str, since_ms: int | None) -> None:
        answer = self.one(ask.QueryOffsets(topic, group, since_ms))
        told = answer if isinstance(answer, str) else [tuple(row[:5]) for row in answer]
        self.model.query(topic, group, since_ms, told)
        self.after()

    @rule(group=draws.groups, topic=draws.topics, messages=draws.sizes, done=st.integers(0, 3))
    def pull_retries(self, group: str, topic: str, messages: int, done: int) -> None:
        """Reads the retry topic from its start, and finishes some of what it read."""
        if not self.learn_numbers(group, topic):
            return
        name = f"%RETRY%{group}+{topic}"
        answer = self.one(ask.Pull(name, group, 0, 0, messages))
        told = answer if isinstance(answer, str) else pulled(answer)
        self.model.pull_retry(topic, group, Asked(0, 0, messages, 3 << 20, None, None), told)
        self.after()
        if isinstance(answer, str):
            return
        numbers = [row[3] for row in answer.rows][:done]
        if numbers:
            result = self.one(ask.UpdateOffsets(name, group, {0: numbers[-1] + 1}))
            told = result if isinstance(result, str) else result[0]
            self.model.update_retry(topic, group, numbers[-1] + 1, told)
            self.after()

    @rule(
        group=draws.groups,
        topic=draws.topics,
        places=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), min_size=1, max_size=3),
        delay_ms=draws.delays,
        reason=st.integers(0, len(REASONS) - 1),
        reject=st.sampled_from([False, False, False, True]),
    )
    def send_back(
        self,
        group: str,
        topic: str,
        places: list[tuple[int, int, bool]],
        delay_ms: int | None,
        reason: int,
        reject: bool,
    ) -> None:
        """Sends back messages by place, committed or not, and retry entries by number; one may occur twice."""
        self.learn_numbers(group, topic)
        view = self.model.views.get((group, topic))
        numbers = [entry.number for entry in view.of("retry")] if view else []
        messages = []
        for queue, offset, retry in places:
            place = (0, numbers[offset % len(numbers)]) if retry and numbers else (queue, offset)
            messages.append(SentBack(*place, retry, delay_ms, REASONS[reason], reject))
        answer = self.one(ask.SendBack(topic, group, tuple(ask.SentBack(*one) for one in messages)))
        self.model.send_back(topic, group, messages, answer if isinstance(answer, str) else told_of(answer))
        self.after()


def pulled(answer: ask.Pulled) -> Pulled:
    rows = [(parsed(data).body.decode(), *rest[1:]) for data, *rest in answer.rows]
    return Pulled(answer.status, rows, answer.next_offset, answer.more, answer.acked)  # type: ignore[arg-type]


def told_of(results: list[Any]) -> list[Any]:
    return [one.code if isinstance(one, Refused) else tuple(one) for one in results]
