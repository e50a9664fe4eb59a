"""What must hold after every step of a machine: the store equals the model."""

from hypothesis.stateful import RuleBasedStateMachine, invariant

from popmq_server.contract.commands import queries
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.message import GIVE_UP_TOPIC
from tests.engine.rig import Rig, parsed
from tests.engine.search.model.model import Model
from tests.engine.search.model.model_facts import DeadLetter, must
from tests.engine.traffic.traffic_timing import every_page

#: The checker reads the whole store and loads it anew, as long as ten steps take: so it looks behind each step of so
#: many, and in the end. What it finds does not go away.
CHECK_EVERY = 4


class Holds(RuleBasedStateMachine):
    """The comparisons, for subclasses that have a broker and its model."""

    rig: Rig
    model: Model
    steps_run = 0

    def kind_of(self, topic: str) -> str:
        found = self.model.topics.get(topic)
        return found.kind if found else "NORMAL"

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        self.topics_are_those_of_the_model()
        self.numbers_are_those_of_the_model()
        self.message_groups_are_those_of_the_model()
        self.dead_letters_are_those_of_the_model()
        self.what_is_not_visible_is_that_of_the_model()
        self.steps_run += 1
        if self.steps_run % CHECK_EVERY == 0:
            self.the_store_is_sound()

    def the_store_is_sound(self) -> None:
        findings = self.rig.findings()
        must(not findings, *findings)

    def topics_are_those_of_the_model(self) -> None:
        """As long as the model's, so nothing was stored twice or from nowhere; and positions within."""
        state = self.rig.core.state
        for name, found in self.model.topics.items():
            topic_id = TopicId(state.ids[("t", name)])
            ends = [state.queue_max.get((topic_id, queue), 0) for queue in range(len(found.queues))]
            must(ends == list(map(len, found.queues)), "ends of queues", name, ends)
        for (group, topic), view in self.model.views.items():
            ids = GroupId(state.ids[("g", group)]), TopicId(state.ids[("t", topic)])
            must([state.poff.get((*ids, queue), 0) for queue in range(len(view.next))] == view.next, "poff", group)

    def numbers_are_those_of_the_model(self) -> None:
        rows = {(row.group, row.topic): row for row in self.rig.look(queries.Groups("", ""))}
        ours = {pair: row for pair, row in rows.items() if not pair[1].startswith("%")}
        must(ours.keys() == self.model.views.keys(), "groups in topics", ours, self.model.views)
        for pair, row in ours.items():
            expected = self.model.numbers(*pair)
            shown = {name: getattr(row, name) for name in expected}
            must(shown == expected, "numbers", pair, shown, expected)
            must(row.mode == self.model.views[pair].mode, "consume mode", pair, row)

    def message_groups_are_those_of_the_model(self) -> None:
        for group, topic in self.model.views:
            if self.kind_of(topic) == "FIFO":
                rows = self.rig.look(queries.MessageGroups(topic, group, rows_max=100))
                waiting, stopped = self.rig.numbers(group, topic)[13:15]
                expected = self.model.message_groups(group, topic)
                must(sorted({tuple(row) for row in rows}) == expected, "message groups", group, topic, rows, expected)
                told = sum(row[1] for row in expected), sum(row[3] for row in expected)
                must((waiting, stopped) == told, "message groups in all", group, topic, waiting, stopped)

    def dead_letters_are_those_of_the_model(self) -> None:
        for name, group in self.model.groups.items():
            letters = [letter for _, letter in dead_letters(self.rig, name)]
            must(sorted(letters) == sorted(group.dead), "dead letters", name, letters, group.dead)

    def what_is_not_visible_is_that_of_the_model(self) -> None:
        """Delayed and half messages, and those that were given up."""
        if all(found.kind == "NORMAL" for found in self.model.topics.values()):
            return
        rows, total = every_page(self.rig, queries.Delayed("", 0, 4096))
        waiting = sorted(self.model.delayed.values(), key=lambda one: (one.due_ms, one.order))
        expected = [(one.topic, one.content.name, one.due_ms, one.handle) for one in waiting]
        must(([row[:4] for row in rows], total) == (expected, len(expected)), "delayed", rows, expected)
        found, total = every_page(self.rig, queries.Transactions("", 4096))
        ids = self.rig.core.state.ids  # topic by topic, in the order of their ids
        halves = sorted(self.model.halves.values(), key=lambda one: (ids["t", one.topic], one.order))
        told = [(one.topic, one.content.name, one.name, one.checks, one.next_ms) for one in halves]
        seen = [(row.topic, row.message_id, row.transaction_id, row.checks, row.next_check_ms) for row in found]
        must((seen, total) == (told, len(told)), "half messages", found, told)
        if self.model.given_up:
            letters = [parsed(row[0]) for row in self.rig.browse(GIVE_UP_TOPIC).rows]
            given_up = [(one.body.decode(), one.dead_letter.topic, one.dead_letter.attempts) for one in letters]
            must(sorted(given_up) == sorted(self.model.given_up), "given up", given_up, self.model.given_up)


def dead_letters(rig: Rig, group: str) -> list[tuple[int, DeadLetter]]:
    """The dead letters of a group, with their offsets."""
    found = []
    for row in rig.browse(f"%DLQ%{group}").rows:
        letter = parsed(row[0])
        told = letter.dead_letter
        place = told.topic, told.queue, told.offset
        found.append((row[3], DeadLetter(letter.body.decode(), *place, told.attempts, told.reason, told.dead_ms)))
    return found
