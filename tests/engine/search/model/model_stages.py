"""The rules of sinks: what is staged, which batch is committed, and when its messages become visible.

staged      in no queue, by sink and stage id; pieces that are repeated change nothing
committed   decided: the stages wait in the order of the commits, and each becomes visible as one
dropped     by the sink, by a commit of the same batch or a later one, with its topic, or a day after its last piece

The engine tells which stages it still has, and which wait; each missing one must have been allowed to end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.engine.search.model.model_facts import Content, Place, Topic, Where, must
from tests.engine.search.model.model_redrives import DeadLetters

STAGE_KEEP_MS = 24 * 3_600_000

Name = tuple[str, str]  # sink, stage id


@dataclass
class Stage:
    """The messages of a stage by its pieces, in the order of their numbers."""

    topic: str
    life: int  # of the topic
    batch: int
    at_ms: int
    pieces: dict[int, list[Content]] = field(default_factory=dict)

    @property
    def contents(self) -> list[Content]:
        return [content for number in sorted(self.pieces) for content in self.pieces[number]]


class Named(NamedTuple):
    """A stage as a commit names it."""

    stage_id: str
    topic: str
    messages: int


class Stages(DeadLetters):
    """Sinks."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.stages: dict[Name, Stage] = {}
        self.batches: dict[str, tuple[int, int]] = {}  # by sink: number, messages
        self.decided: dict[int, Stage] = {}  # by the number that the engine gave, in order
        self.to_number: list[Stage] = []  # committed since the engine was last looked at

    def life(self, topic: str) -> int:
        """The number of the topic's life; 0 if there is no such topic."""
        found = self.topics.get(topic)
        return found.number if found else 0

    # ── Stage ────────────────────────────────────────────────────────────────────────────────────────────────────

    def stage(
        self, name: Name, piece: int, topic: str, batch: int, contents: list[Content | str], answer: list[str] | str
    ) -> None:
        """`contents`: a code for each message that was bad before the engine saw it."""
        found, known = self.topics.get(topic), self.stages.get(name)
        if found is None:
            return must(answer == "TOPIC_NOT_FOUND", "stage", answer)
        if known is not None and (known.life, known.batch) != (found.number, batch):
            return must(answer == "INVALID_FIELD", "a stage of another topic or batch", name, known, answer)
        expected = [self._refusal(found, one) for one in contents]
        must(answer == expected, "stage", name, answer, expected)
        good = [one for one in contents if isinstance(one, Content) and not self._refusal(found, one)]
        if good and (known is None or piece not in known.pieces):
            stage = self.stages.setdefault(name, Stage(topic, found.number, batch, 0))
            stage.pieces[piece], stage.at_ms = good, self.now_ms
        return None

    def _refusal(self, found: Topic, one: Content | str) -> str:
        if isinstance(one, str):
            return one
        return "INVALID_FIELD" if one.half or self._is_wrong(found, one) else ""

    # ── Commit, drop ─────────────────────────────────────────────────────────────────────────────────────────────

    def commit_batch(self, sink: str, batch: int, named: Sequence[Named], answer: tuple[int, bool] | str) -> None:
        last = self.batches.get(sink)
        if last is not None and batch <= last[0]:
            must(answer == (last[1] if batch == last[0] else 0, True), "a batch again", sink, batch, last, answer)
            return self._drop_upto(sink, batch)
        stages = [self.stages.get((sink, one.stage_id)) for one in named]
        whole = [stage for stage, one in zip(stages, named, strict=True) if self._is_whole(stage, one, batch)]
        if len(whole) < len(named):
            return must(answer == "STAGE_NOT_FOUND", "a batch that is not whole", sink, batch, named, answer)
        if len({one.stage_id for one in named}) < len(named):
            return must(answer == "INVALID_FIELD", "a stage twice", named, answer)
        messages = sum(one.messages for one in named)
        must(answer == (messages, False), "commit", sink, batch, named, answer)
        self.to_number += [self.stages.pop((sink, one.stage_id)) for one in named]
        self.batches[sink] = batch, messages
        return self._drop_upto(sink, batch)

    def _is_whole(self, stage: Stage | None, named: Named, batch: int) -> bool:
        if stage is None or (stage.life, stage.batch) != (self.life(named.topic), batch):
            return False
        return len(stage.contents) == named.messages

    def _drop_upto(self, sink: str, batch: int) -> None:
        self.stages = {name: one for name, one in self.stages.items() if name[0] != sink or one.batch > batch}

    def drop_stages(self, sink: str, named: Sequence[Named], answer: int) -> None:
        dropped = 0
        for one in named:
            stage = self.stages.get((sink, one.stage_id))
            if stage is not None and stage.life == self.life(one.topic):
                del self.stages[(sink, one.stage_id)]
                dropped += 1
        must(answer == dropped, "drop stages", named, answer, dropped)

    # ── What the engine does by itself ───────────────────────────────────────────────────────────────────────────

    def number(self, waiting: Sequence[int]) -> None:
        """Learns the numbers of the stages to be published, in order; the new ones belong to the last commits."""
        new = [number for number in waiting if number not in self.decided]
        must(len(new) == len(self.to_number), "stages that wait", waiting, self.decided, self.to_number)
        self.decided |= zip(new, self.to_number, strict=True)
        self.to_number = []

    def publish(self, waiting: Sequence[int], places: dict[str, Place]) -> None:
        """Stages that do not wait any more are visible at these places, in order; waiting ones are invisible."""
        for number in [one for one in self.decided if one not in waiting]:
            stage = self.decided.pop(number)
            if stage.life == self.life(stage.topic):
                self._publish(self.topics[stage.topic], stage, places)
        early = [one.text for stage in self.decided.values() for one in stage.contents if one.text in places]
        must(not early, "visible, and it waits", early)

    def _publish(self, found: Topic, stage: Stage, places: dict[str, Place]) -> None:
        """Publishes each message once, and none with a known unique id."""
        for content in stage.contents:
            if self._known(found, content) is not None:
                must(content.text not in places, "published twice", content)
                continue
            must(content.text in places, "committed, and nowhere", stage, content)
            self._store(found, content, places[content.text])
            found.ids[content.name] = self.now_ms, Where(*places[content.text])

    def left(self, names: set[Name]) -> None:
        """Keeps the stages that the engine has; the others must have been too old, or their topic deleted."""
        must(names <= self.stages.keys(), "a stage from nowhere", names, self.stages)
        for name, stage in list(self.stages.items()):
            if name not in names:
                gone = stage.life != self.life(stage.topic)
                must(gone or stage.at_ms + STAGE_KEEP_MS <= self.now_ms, "a stage is lost", name, stage)
                del self.stages[name]
