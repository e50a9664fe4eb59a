"""The checker of the campaigns finds every kind of defect: one sound story, and one lie at a time."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.judging.checker import Finding, check
from popmq_verify.judging.facts import DeadLetter, Facts, Survey
from popmq_verify.load import scratch
from popmq_verify.load.history import History, Operation

SECOND = 1_000_000_000
QUIET = dict.fromkeys(
    ("ready", "in_flight", "retry", "backoff", "waiting", "delayed", "dropped", "quarantined", "dead"), 0
)


@dataclass
class Story:
    """A history told step by step, a second apart; broker and clients read one clock that starts at 0."""

    now_s: float = 0
    operations: list[Operation] = field(default_factory=list)
    survey: Survey = field(
        default_factory=lambda: Survey({"t": {}}, {"g": {}}, {("g", "t"): {**QUIET, "acked": 0}}, {"g": 3})
    )

    def step(self, kind: str, asked: dict[str, Any], told: dict[str, Any] | None, after_s: float = 1) -> None:
        self.now_s += after_s
        called = int(self.now_s * SECOND)
        how = "unknown" if told is None else "ok"
        self.operations.append(Operation(kind, "c", called, asked, called + SECOND // 100, how, told or {}))

    def send(self, message_id: str, offset: int | None, duplicate: bool = False, number: int = 1) -> None:
        told = None if offset is None else {"results": [[0, offset]], "duplicate": duplicate}
        self.step("send", {"topic": "t", "ids": [message_id], "producer": "p", "number": number}, told)

    def stored(self, message_id: str, *offsets: int) -> None:
        self.survey.stored["t"][message_id] = [(0, offset) for offset in offsets]

    def pop(
        self,
        message_id: str,
        attempt: int,
        handle: str,
        after_s: float = 1,
        intact: bool = True,
        attempt_id: str = "",
        replay_of_s: float | None = None,
    ) -> None:
        """A lease of two seconds; no handle: the answer was lost. `replay_of_s`: when it was popped, of a replay."""
        at_ms = int((self.now_s + after_s if replay_of_s is None else replay_of_s) * 1000)
        row = [message_id, handle, attempt, 0, 0, intact]
        told = {"popped_ms": at_ms, "until_ms": at_ms + 2000, "replay": replay_of_s is not None, "rows": [row]}
        self.step("pop", {"topic": "t", "group": "g", "attempt_id": attempt_id}, told if handle else None, after_s)

    def ack(self, handle: str, code: int = 0, acked: int = 1, after_s: float = 0.5) -> None:
        self.step("ack", {"group": "g", "handles": [handle]}, {"codes": [code]}, after_s)
        self.survey.stats["g", "t"]["acked"] += acked

    def change(self, handle: str, kind: str, result: list[Any], ms: int = 0, uncounted: bool = False) -> None:
        asked = {"group": "g", "changes": [[handle, kind, ms, uncounted]]}
        self.step("change", asked, {"results": [result]}, after_s=0.1)

    def dead(self, message_id: str, attempts: int, copies: int = 1) -> None:
        letter = DeadLetter("t", (0, 0), attempts, "lease expired", True)
        self.survey.dead["g"][message_id] = [letter] * copies
        self.survey.stats["g", "t"]["dead"] += 1

    def findings(self) -> list[Finding]:
        return check(Facts(History(self.operations)), self.survey)

    def claims(self) -> set[str]:
        return {claim for claim, _ in self.findings()}


@pytest.fixture
def story() -> Story:
    """One message, sent and stored."""
    story = Story()
    story.send("m", 0)
    story.stored("m", 0)
    return story


def test_a_sound_story_has_no_findings(story: Story) -> None:
    story.send("m", 0, duplicate=True)
    story.pop("m", 1, "h1")
    story.pop("m", 2, "h2", after_s=2.5)  # the first lease is over
    story.change("h2", "extend", [0, int(story.now_s * 1000) + 5100, False], ms=5000)
    story.ack("h1", pb.HANDLE_LAPSED, acked=0)
    story.ack("h2")
    assert story.findings() == []


def test_a_pop_that_was_never_answered_may_have_counted_or_not(story: Story) -> None:
    for attempt in (1, 2):
        told = Story(story.now_s, list(story.operations), story.survey)
        told.pop("m", 0, "")
        told.pop("m", attempt, "h1", after_s=2.5)
        assert "attempts" not in told.claims()


def test_a_replay_shows_the_unanswered_pop_whose_lease_it_repeats(story: Story) -> None:
    story.pop("m", 0, "", attempt_id="a")
    popped_s = story.now_s
    story.pop("m", 2, "h1", attempt_id="a", replay_of_s=popped_s)
    story.ack("h1")
    assert story.claims() == {"attempts"}


def test_a_replay_of_a_later_lease_does_not_show_an_unanswered_pop(story: Story) -> None:
    story.pop("m", 0, "", attempt_id="a")
    story.pop("m", 2, "h1", after_s=3, attempt_id="a")  # the first lease is over
    popped_s = story.now_s
    story.pop("m", 2, "h1", attempt_id="a", replay_of_s=popped_s)
    story.ack("h1")
    assert story.findings() == []


def test_a_replay_does_not_show_a_pop_that_was_called_after_it(story: Story) -> None:
    """What was replayed may be acked before the next try runs, which then leases other messages."""
    story.pop("n", 1, "h0", attempt_id="a")
    story.pop("n", 1, "h0", attempt_id="a", replay_of_s=story.now_s)
    story.pop("m", 0, "", attempt_id="a")
    story.ack("h0", after_s=0.01)
    story.pop("m", 2, "h1", after_s=2.5)
    story.ack("h1")
    assert "attempts" not in story.claims()


def test_a_replay_of_a_lease_that_the_next_try_may_have_made_does_not_show_an_unanswered_pop(story: Story) -> None:
    story.pop("m", 0, "", attempt_id="a")
    story.pop("m", 0, "", after_s=3, attempt_id="a")
    story.operations[-1].returned_ns += 2_500_000_000  # its own lease is over when it is given up
    story.pop("m", 0, "", after_s=2.52, attempt_id="a")
    story.pop("m", 3, "h1", attempt_id="a", replay_of_s=story.now_s)
    story.ack("h1")
    assert story.findings() == []


def test_a_lost_message_is_found(story: Story) -> None:
    assert story.claims() == {"lost"}
    story.survey.stored["t"].clear()
    assert len(story.findings()) == 2, "neither delivered nor stored"


def test_a_dropped_message_that_a_group_had_not_finished_is_found(story: Story) -> None:
    story.survey.dropping = True
    story.survey.stored["t"].clear()
    assert story.claims() == {"lost"}
    story.pop("m", 1, "h1")
    story.ack("h1")
    assert story.findings() == []


def test_a_delivery_of_a_dropped_message_from_another_place_is_found(story: Story) -> None:
    story.survey.dropping = True
    story.survey.stored["t"].clear()
    story.send("m", 1, duplicate=True)
    story.pop("m", 1, "h1")
    story.ack("h1")
    assert "phantom" in story.claims()


def test_a_message_stored_twice_is_found(story: Story) -> None:
    story.stored("m", 0, 1)
    story.pop("m", 1, "h1")
    story.ack("h1")
    assert story.claims() == {"doubled"}


def test_a_request_number_answered_as_new_is_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.ack("h1")
    story.send("m", 0, duplicate=False)
    assert story.claims() == {"doubled"}


def test_a_message_that_was_never_sent_is_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.ack("h1")
    story.stored("ghost", 1)
    assert story.claims() == {"phantom"}


def test_a_changed_body_is_found(story: Story) -> None:
    story.pop("m", 1, "h1", intact=False)
    story.ack("h1")
    assert story.claims() == {"changed"}


def test_overlapping_leases_are_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.pop("m", 2, "h2", after_s=1.999)
    story.ack("h2")
    assert story.claims() == {"overlap"}


def test_a_lease_that_ends_before_its_extension_is_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.change("h1", "extend", [0, int(story.now_s * 1000) + 9000, False], ms=9000)
    story.pop("m", 2, "h2", after_s=3)
    story.ack("h2")
    assert story.claims() == {"overlap"}


def test_an_unanswered_extend_may_have_happened_until_its_caller_gave_up(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.step("change", {"group": "g", "changes": [["h1", "extend", 1000, False]]}, None, after_s=0.1)
    story.operations[-1].returned_ns += 5 * SECOND
    for _ in range(5):
        story.step("token", {}, {})  # the broker answers others
    story.ack("h1")
    assert story.findings() == []


def test_a_release_that_comes_back_before_its_delay_is_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.change("h1", "release", [0, int(story.now_s * 1000) + 3000, False], ms=2900)
    story.pop("m", 2, "h2")
    story.ack("h2")
    assert story.claims() == {"early"}


def test_a_delivery_after_an_answered_ack_is_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.ack("h1")
    story.pop("m", 2, "h2", after_s=5)
    assert story.claims() == {"after ack"}


@pytest.mark.parametrize("attempt", [1, 3])
def test_an_attempt_that_is_not_the_number_of_pops_is_found(story: Story, attempt: int) -> None:
    story.pop("m", 1, "h1")
    story.pop("m", attempt, "h2", after_s=3)
    story.ack("h2")
    assert story.claims() == {"attempts"}


def test_an_uncounted_release_that_counts_is_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.change("h1", "release", [0, int(story.now_s * 1000), False], uncounted=True)
    story.pop("m", 2, "h2")
    story.ack("h2")
    assert story.claims() == {"attempts"}


def test_a_refused_live_handle_and_an_accepted_lapsed_one_are_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.ack("h1", pb.HANDLE_LAPSED, acked=0)
    assert "handles" in story.claims()
    story.operations.pop()
    for offset in range(1, 5):
        story.send(f"m{offset}", offset)
    story.ack("h1", after_s=0.5)
    assert ("handles", "ack of m in g was accepted 3000 ms after its deadline") in story.findings()


@pytest.mark.parametrize("kind", ["reject", "release", "extend"])
def test_only_what_may_store_a_dead_letter_is_refused_for_want_of_room(story: Story, kind: str) -> None:
    story.pop("m", 1, "h1")
    story.change("h1", kind, [pb.STORAGE_FULL, 0, False])
    story.ack("h1")
    assert story.claims() == ({"handles"} if kind == "extend" else set())


def test_a_lease_cannot_lapse_while_the_broker_answers_no_call(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.ack("h1", after_s=9)
    assert story.findings() == []


def test_a_second_dead_letter_an_early_one_and_a_missing_one_are_found(story: Story) -> None:
    story.dead("m", attempts=3, copies=2)
    assert story.claims() == {"dead letters"}
    story.dead("m", attempts=2)
    assert "dead letters" in story.claims()
    story.survey.dead["g"].clear()
    story.pop("m", 1, "h1")
    story.change("h1", "reject", [0, 0, True])
    assert "dead letters" in story.claims()


def test_numbers_that_are_not_what_is_there_are_found(story: Story) -> None:
    story.pop("m", 1, "h1")
    story.ack("h1", acked=2)
    story.survey.stats["g", "t"]["in_flight"] = 1
    assert [claim for claim, _ in story.findings()] == ["numbers", "numbers"]


def test_a_message_of_a_deleted_topic_is_found_when_it_comes_back() -> None:
    story = Story()
    story.step("scratch", {"topic": "s", "life": 7}, {"ids": ["7/0", "7/1"]})
    assert list(scratch.check(History(story.operations))) == []
    story.step("scratch", {"topic": "s", "life": 8}, {"ids": ["7/2"]})
    assert [claim for claim, _ in scratch.check(History(story.operations))] == ["phantom"]
