"""Changes of very many deliveries: what one commit does is bounded, and the broker does the rest in the next ones."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from popmq_server.delivery.deadletter import DEAD_LETTERS_MAX
from popmq_server.delivery.lease import MOVES_MAX
from popmq_server.errors import Later
from popmq_server.pulling.send_back import SENT_BACK_MAX
from tests.engine.pull_steps import pulling, send_back
from tests.engine.rig import SECOND, Delivery, Rig

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
