"""Changes and pops of very many deliveries: what one commit does is bounded, the rest follows in the next ones."""

import itertools
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.delivery.deadletter import DEAD_LETTERS_MAX
from popmq_server.embedded.rules.delivery.fifo_pick import FifoPick
from popmq_server.embedded.rules.delivery.lease import MOVES_MAX
from popmq_server.embedded.rules.delivery.pick import RETRIES_MAX
from popmq_server.embedded.rules.pulling.send_back import SENT_BACK_MAX
from popmq_server.errors import Later, Refused
from tests.engine.pull_steps import pulling, send_back
from tests.engine.rig import HOUR, SECOND, Delivery, Rig, sending
from tests.engine.traffic.traffic_fifo import in_order

COUNT = 1_200


def leased(rig: Rig, **settings: Any) -> list[Delivery]:
    rig.pair(**settings)
    rig.send(*map(str, range(COUNT)))
    return rig.pop(COUNT, invisible_ms=SECOND)


def done(results: list[Any]) -> int:
    return sum(not isinstance(result, Later) for result in results)


@pytest.mark.parametrize(("kind", "most"), [("release", MOVES_MAX), ("reject", MOVES_MAX // 2), ("extend", COUNT)])
def test_one_commit_moves_a_bounded_number_of_deliveries(rig: Rig, kind: str, most: int) -> None:
    assert done(rig.change(leased(rig), kind, delay_ms=SECOND)) == most


def test_one_commit_sends_a_bounded_number_of_messages_back(rig: Rig) -> None:
    pulling(rig)
    rig.send(*map(str, range(COUNT)))
    assert done(send_back(rig, *range(COUNT))) == SENT_BACK_MAX


def test_leases_that_end_write_a_bounded_number_of_dead_letters_in_each_commit(rig: Rig) -> None:
    leased(rig, max_attempts=1)
    rig.skip(SECOND)
    counts = [len(rig.dead())]
    while rig.due:
        rig.run()
        counts.append(len(rig.dead()))
    assert counts[-1] == COUNT
    assert max(after - before for before, after in itertools.pairwise(counts)) == DEAD_LETTERS_MAX


@pytest.mark.parametrize("type_", ["NORMAL", "FIFO"])
def test_one_pop_takes_a_bounded_number_of_retries_and_the_next_the_others(rig: Rig, type_: str) -> None:
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, type=type_))
    rig.group("g")
    rig.pop()
    texts = [f"a{number}" for number in range(COUNT)]  # of one message group
    rig.do(in_order(*texts, topic="t") if type_ == "FIFO" else sending(*texts))
    assert len(rig.pop(COUNT, invisible_ms=SECOND)) == COUNT
    rig.skip(SECOND)
    rig.settle()
    first = rig.pop(COUNT)
    rig.ack(first)
    second = rig.pop(COUNT)
    assert (len(first), len(second)) == (RETRIES_MAX, COUNT - RETRIES_MAX)
    assert [row.offset for row in first + second] == list(range(COUNT))


def test_a_message_group_is_released_in_one_commit_whatever_its_size(rig: Rig) -> None:
    """In pieces, those behind its first message would be back before they are released themselves."""
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, type="FIFO"))
    rig.group("g")
    rig.pop()
    rig.do(in_order(*(f"a{number}" for number in range(MOVES_MAX + 100)), topic="t"))
    rows = rig.pop(COUNT)
    assert len(rows) == MOVES_MAX + 100
    assert done(rig.change(rows, "release")) == len(rows)
    assert not [result for result in rig.extend(rows[:1], SECOND) if not isinstance(result, Refused)]


def in_order_leased(rig: Rig, *texts: str, **settings: Any) -> list[Delivery]:
    """Messages of the message groups that their first characters name, under one lease."""
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, type="FIFO"))
    rig.group("g", **settings)
    rig.pop()
    rig.do(in_order(*texts, topic="t"))
    rows = rig.pop(2 * COUNT)
    assert len(rows) == len(texts)
    return rows


def repeated(rig: Rig, changes: list[ask.Change]) -> list[Any]:
    """The results of all changes, in as many commits as the broker needs."""
    results: list[Any] = [Later()] * len(changes)
    for _ in range(20):
        left = [place for place, result in enumerate(results) if isinstance(result, Later)]
        if not left:
            return results
        again = rig.do(ask.ChangeInvisibleTime("g", tuple(changes[place] for place in left)))
        for place, result in zip(left, again, strict=True):
            results[place] = result
    raise AssertionError("the changes do not come to an end")


def test_a_large_message_group_is_rejected_from_its_front_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the dead letters of a commit are fewer than the rejections that it looks at."""
    monkeypatch.setattr(deadletter, "DEAD_LETTERS_MAX", 100)
    rows = in_order_leased(rig, *(f"a{number}" for number in range(COUNT)))
    results = repeated(rig, [ask.Change(row.handle, "reject") for row in rows])
    assert all(dead for _, dead in results)
    assert [dead.message_id for dead in rig.dead()] == [row.message_id for row in rows]


def test_entries_of_one_message_group_wait_together_for_the_next_commit(rig: Rig) -> None:
    """The release of a0 takes a1 with it, whatever else the request says of a1."""
    rows = in_order_leased(rig, *(f"b{number}" for number in range(MOVES_MAX)), "a0", "a1", "a2")
    changes = [ask.Change(row.handle, "release", 0, True) for row in rows[:MOVES_MAX]]
    a0, a1, a2 = (row.handle for row in rows[MOVES_MAX:])
    changes += [ask.Change(a0, "release"), ask.Change(a1, "extend", SECOND), ask.Change(a2, "release")]
    results = repeated(rig, changes)
    assert [isinstance(result, Refused) for result in results[-3:]] == [False, True, False]
    assert [(row.body, row.attempt) for row in rig.pop(COUNT) if row.body[0] == "a"] == [
        ("a0", 2),
        ("a1", 1),
        ("a2", 1),
    ]


def test_a_pop_that_has_its_retries_looks_at_no_further_message_group(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    take_waiting = FifoPick._take_waiting

    def counted(self: FifoPick, message_group: bytes, count: int) -> None:
        nonlocal looks
        looks += 1
        take_waiting(self, message_group, count)

    rows = in_order_leased(rig, *(f"{chr(0x4E00 + number)}" for number in range(2 * RETRIES_MAX)))
    rig.release(rows, delay_ms=0)
    monkeypatch.setattr(FifoPick, "_take_waiting", counted)
    assert len(rig.pop(2 * RETRIES_MAX)) == RETRIES_MAX
    assert looks <= RETRIES_MAX + 1
