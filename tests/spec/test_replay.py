"""The replay finds each kind of lie in a history, and none in those of a real broker that is killed."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify import campaign
from popmq_verify.judging.facts import Facts
from popmq_verify.load.client import GROUPS
from popmq_verify.load.history import History, Operation, read
from tests.crash.conftest import Scale, scale
from tests.spec.replay import Stories

__all__ = ["scale"]

S = 1_000_000_000
GROUP, TOPIC, MAX_ATTEMPTS = "g", "t", 3


class Told:
    """A history of one message, written step by step. Clients and broker have one clock; a call takes 10 ms."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        #: Somebody else is answered every 100 ms, so the broker is alive all the time.
        for tenth in range(300):
            self._add("token", tenth / 10, {}, {})

    def _add(self, kind: str, at_s: float, asked: dict[str, Any], told: dict[str, Any] | None) -> None:
        called = int(at_s * S)
        how = "unknown" if told is None else "ok"
        self.operations.append(Operation(kind, "c", called, asked, called + S // 100, how, told or {}))

    def send(self, at_s: float = 0, answered: bool = True) -> None:
        asked = {"topic": TOPIC, "ids": ["m"], "producer": "p", "number": 1}
        self._add("send", at_s, asked, {"results": [[0, 0]], "duplicate": False, "codes": [0]} if answered else None)

    def pop(
        self, at_s: float, handle: str, attempt: int = 1, popped_s: float | None = None, replay: bool = False
    ) -> None:
        """A lease of 2 s. Without a handle nobody saw the answer."""
        popped_ms = int((at_s if popped_s is None else popped_s) * 1000)
        rows = [["m", handle, attempt, 0, 0, True]]
        told = {"popped_ms": popped_ms, "until_ms": popped_ms + 2000, "replay": replay, "rows": rows}
        self._add("pop", at_s, {"topic": TOPIC, "group": GROUP, "attempt_id": ""}, told if handle else None)

    def ack(self, at_s: float, handle: str, code: int | None = 0) -> None:
        told = None if code is None else {"codes": [code]}
        self._add("ack", at_s, {"group": GROUP, "handles": [handle]}, told)

    def change(
        self, at_s: float, handle: str, kind: str, ms: int = 0, dead: bool = False, uncounted: bool = False
    ) -> None:
        visible_ms = int(at_s * 1000) + (0 if kind == "reject" else ms)
        asked = {"group": GROUP, "changes": [[handle, kind, ms, uncounted]]}
        self._add("change", at_s, asked, {"results": [[0, visible_ms, dead]]})

    def problems(self) -> list[str]:
        history = History(sorted(self.operations, key=lambda operation: operation.called_ns))
        return Stories(Facts(history), {GROUP: MAX_ATTEMPTS}, [TOPIC]).problems()


@pytest.fixture
def told() -> Told:
    """One message, sent at 0 s."""
    told = Told()
    told.send()
    return told


def test_a_message_that_is_acked_fits(told: Told) -> None:
    told.pop(1, "h1")
    told.ack(1.5, "h1")
    assert told.problems() == []


def test_an_ack_fits_where_the_brokers_clock_was_moved_on(told: Told) -> None:
    told.pop(1, "h1")
    told.pop(5, "h2", attempt=2, popped_s=3600)
    told.ack(5.5, "h2")
    assert told.problems() == []


def test_each_way_back_to_the_group_fits(told: Told) -> None:
    told.pop(1, "h1")
    told.change(1.1, "h1", "extend", 3000)
    told.pop(4.2, "h2", 2)  # the extended lease has expired
    told.change(4.3, "h2", "release", 500, uncounted=True)
    told.pop(4.9, "h3", 2)
    told.ack(5, "h2", pb.HANDLE_LAPSED)
    told.change(5.1, "h3", "release", 0)
    told.pop(5.2, "h4", 3)
    told.change(5.3, "h4", "reject", dead=True)
    assert told.problems() == []


def test_a_lost_answer_fits_whether_its_call_arrived_or_not(told: Told) -> None:
    told.pop(1, "h1")
    told.ack(1.5, "h1", code=None)
    assert told.problems() == []
    told.pop(3.5, "h2", 2)
    told.ack(3.6, "h2")
    assert told.problems() == []


def test_a_pop_that_nobody_saw_explains_an_attempt(told: Told) -> None:
    told.pop(1, "h1", 2)
    told.ack(1.5, "h1")
    assert told.problems()
    seen = Told()
    seen.send(0)
    seen.pop(0.1, "")
    seen.pop(2.5, "h1", 2)
    seen.ack(2.6, "h1")
    assert seen.problems() == []


def test_a_replayed_delivery_is_the_same_delivery(told: Told) -> None:
    told.pop(1, "h1")
    told.pop(1.5, "h1", popped_s=1, replay=True)
    told.ack(1.6, "h1")
    assert told.problems() == []


def test_an_unanswered_send_may_never_have_happened() -> None:
    told = Told()
    told.send(answered=False)
    assert told.problems() == []


def test_a_lost_message_is_found(told: Told) -> None:
    assert told.problems()


def test_a_lease_that_expired_and_never_came_back_is_found(told: Told) -> None:
    told.pop(1, "h1")
    assert told.problems()


def test_a_message_that_is_delivered_again_after_its_ack_is_found(told: Told) -> None:
    told.pop(1, "h1")
    told.ack(1.5, "h1")
    told.pop(9, "h2", 2)
    assert told.problems()


def test_a_message_that_two_consumers_have_at_once_is_found(told: Told) -> None:
    told.pop(1, "h1")
    told.pop(2, "h2", 2)
    told.ack(2.5, "h2")
    assert told.problems()


def test_a_delivery_before_the_end_of_a_delay_is_found(told: Told) -> None:
    told.pop(1, "h1")
    told.change(1.1, "h1", "release", 3000)
    told.pop(2, "h2", 2)
    told.ack(2.5, "h2")
    assert told.problems()


def test_a_delivery_before_the_end_of_an_extended_lease_is_found(told: Told) -> None:
    told.pop(1, "h1")
    told.change(1.1, "h1", "extend", 5000)
    told.pop(4, "h2", 2)
    told.ack(4.1, "h2")
    assert told.problems()


def test_an_ack_that_is_taken_long_after_its_lease_is_found(told: Told) -> None:
    told.pop(1, "h1")
    told.ack(9, "h1")
    assert told.problems()


def test_an_ack_that_is_refused_while_its_lease_runs_is_found(told: Told) -> None:
    told.pop(1, "h1")
    told.ack(1.5, "h1", pb.HANDLE_LAPSED)
    told.ack(1.7, "h1")
    assert told.problems()


def test_attempts_that_are_told_in_another_order_are_found(told: Told) -> None:
    told.pop(1, "h1", 2)
    told.pop(4, "h2", 1)
    told.ack(4.1, "h2")
    assert told.problems()


def test_an_attempt_beyond_the_last_is_found(told: Told) -> None:
    for attempt in range(1, MAX_ATTEMPTS + 2):
        told.pop(attempt * 3, f"h{attempt}", attempt)
    told.ack(12.5, f"h{MAX_ATTEMPTS + 1}")
    assert told.problems()


def test_a_dead_letter_before_the_last_attempt_is_found(told: Told) -> None:
    told.pop(1, "h1")
    told.change(1.5, "h1", "release", dead=True)
    told.pop(2, "h2", 2)
    told.ack(2.1, "h2")
    assert told.problems()


def test_a_message_that_nobody_sent_is_found() -> None:
    told = Told()
    told.pop(1, "h1")
    told.ack(1.5, "h1")
    assert told.problems()


# ── A real broker ────────────────────────────────────────────────────────────────────────────────────────────────────


Lie = Callable[[Facts], list[Operation]]


def repeated(facts: Facts) -> list[Operation]:
    """A message that was acked is delivered again, at the end."""
    (_, message_id), chain = next(
        (key, chain)
        for key, chain in facts.chains.items()
        if key[0] in GROUPS
        and chain[-1].touches[-1:]
        and chain[-1].touches[-1].kind == "ack"
        and chain[-1].touches[-1].done
    )
    last, after_ms = chain[-1], max(one.popped_ms for one in facts.by_handle.values()) + 60_000
    row = [message_id, "a handle of a liar", last.attempt + 1, *last.position, True]
    pop = dataclasses.replace(last.pop, called_ns=facts.history.operations[-1].called_ns + 60 * S)
    pop.returned_ns = pop.called_ns + S
    pop.told = {"popped_ms": after_ms, "until_ms": after_ms + 1000, "replay": False, "rows": [row]}
    return [*facts.history.operations, pop]


def _changed(
    facts: Facts, message: tuple[str, str], change: Callable[[list[Any], dict[str, Any]], None]
) -> list[Operation]:
    """The history with another row of one message: `change` gets it, with its answer, whenever it was delivered."""
    operations = []
    for each in facts.history.operations:
        rows = each.told.get("rows", ()) if each.kind == "pop" and each.asked["group"] == message[0] else ()
        if any(row[0] == message[1] for row in rows):
            each = dataclasses.replace(each, told={**each.told, "rows": [list(row) for row in rows]})
            for row in each.told["rows"]:
                if row[0] == message[1]:
                    change(row, each.told)
        operations.append(each)
    return operations


def _twice_delivered(facts: Facts) -> tuple[str, str]:
    """The group and the id of a message with at least two visible deliveries, whose first lease expired by itself."""
    return next(
        key
        for key, chain in facts.chains.items()
        if key[0] in GROUPS and len(chain) > 1 and not chain[0].touches and chain[0].attempt == 1
    )


def reordered(facts: Facts) -> list[Operation]:
    """A message is told to come with its second attempt first."""

    def change(row: list[Any], _: dict[str, Any]) -> None:
        row[2] = {1: 2, 2: 1}.get(row[2], row[2])

    return _changed(facts, _twice_delivered(facts), change)


def early(facts: Facts) -> list[Operation]:
    """The second delivery of a message comes while the lease of the first one runs."""
    message = _twice_delivered(facts)
    first, second = facts.chains[message][:2]

    def change(row: list[Any], told: dict[str, Any]) -> None:
        if row[1] == second.handle:
            told["popped_ms"] = first.popped_ms + 100

    return _changed(facts, message, change)


def lost(facts: Facts) -> list[Operation]:
    """A message that was answered is never delivered to a group: its handles are another's."""
    (group, message_id), chain = next((key, chain) for key, chain in facts.chains.items() if key[0] in GROUPS)
    handles = {one.handle for one in chain}
    operations = []
    for each in facts.history.operations:
        if each.kind == "pop" and each.asked["group"] == group and "rows" in each.told:
            rows = [row for row in each.told["rows"] if row[0] != message_id]
            each = dataclasses.replace(each, told={**each.told, "rows": rows})
        elif each.kind == "ack" and handles & {*each.asked["handles"]}:
            kept = [number for number, handle in enumerate(each.asked["handles"]) if handle not in handles]
            codes = each.told.get("codes")
            each = dataclasses.replace(
                each,
                asked={**each.asked, "handles": [each.asked["handles"][number] for number in kept]},
                told={**each.told, "codes": [codes[number] for number in kept]} if codes else each.told,
            )
        elif each.kind == "change" and handles & {change[0] for change in each.asked["changes"]}:
            kept = [number for number, change in enumerate(each.asked["changes"]) if change[0] not in handles]
            results = each.told.get("results")
            each = dataclasses.replace(
                each,
                asked={**each.asked, "changes": [each.asked["changes"][number] for number in kept]},
                told={**each.told, "results": [results[number] for number in kept]} if results else each.told,
            )
        operations.append(each)
    return operations


LIES: tuple[Lie, ...] = (repeated, reordered, early, lost)


@pytest.mark.chaos
def test_the_histories_of_a_killed_broker_fit_and_lies_in_them_do_not(tmp_path: Path, scale: Scale) -> None:
    verdict = campaign.run(tmp_path, kills=scale.pick(short=4, whole=60), seed=scale.seed)
    assert not verdict.findings, f"seed {scale.seed}: {verdict.findings[:20]}"
    facts = Facts(read(tmp_path / "histories"))
    assert Stories(facts).problems() == [], f"seed {scale.seed}"
    assert len(facts.by_handle) > 100
    for lie in LIES:
        false = Facts(History(lie(facts), facts.history.wall_minus_monotonic_ns))
        assert Stories(false).problems(), f"seed {scale.seed}: nobody noticed what was {lie.__name__}"
