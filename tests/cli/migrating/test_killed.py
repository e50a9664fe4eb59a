"""A migration that was killed, and one that is repeated."""

from __future__ import annotations

from typing import Any

import pytest

import popmq
from popmq_cli.migrating import copying, groups
from tests.cli.conftest import Cli
from tests.cli.migrating.conftest import Killed, Migrate, killed_at, left, send, work

#: Each test starts two brokers.
pytestmark = pytest.mark.slow


POINTS = [
    pytest.param(groups, "prepare", 0, id="prepared"),
    pytest.param(groups, "_subscribe", 0, id="one group is there"),
    pytest.param(copying, "move_delayed", 0, id="closed"),
    pytest.param(copying._Batches, "_land", 1, id="one request is in flight"),
    pytest.param(copying._Batches, "_land", 3, id="three requests are copied"),
    pytest.param(copying, "copy_visible", 0, id="copied"),
    pytest.param(groups, "settle", 0, id="one group has settled"),
    pytest.param(groups, "unfinished", 1, id="all groups have settled"),
    pytest.param(groups, "arrive", 0, id="arrived"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("where", "name", "call"), POINTS)
def test_a_run_that_follows_a_kill_does_what_is_missing(
    migrate: Migrate,
    run: Cli,
    source: popmq.Client,
    target: popmq.Client,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    call: int,
    after: bool,
) -> None:
    monkeypatch.setattr(copying, "BATCH", 16)
    source.groups.create("audit")
    send(source, 100)
    source.ack(work(source, "billing", 60))
    leased = work(source, "billing", 3)
    source.ack(work(source, "audit", 10))
    with monkeypatch.context() as dying:
        killed_at(dying, where, name, call, after)
        with pytest.raises(Killed):
            migrate("orders")
    (row,) = migrate("orders", "--json").objects
    found = {each["group"]: each for each in row["groups"]}
    assert [(each["unfinished"], each["found"]) for each in (found["billing"], found["audit"])] == [(40, 40), (90, 90)]
    assert target.broker.stats("orders").topics[0].messages == 100, "each message is there once"
    delivered = left(target, "orders", "billing")
    assert {each.text() for each in leased} <= set(delivered)
    assert len(delivered) == 40 + found["billing"]["repeated"]


def test_a_second_run_leaves_groups_alone_that_read_on_the_target(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    send(source, 60)
    source.ack(work(source, "billing", 10))
    assert migrate("orders").code == 0
    target.ack(target.pop("orders", "billing", 20))
    target.release(kept := target.pop("orders", "billing", 3), 0.0)
    assert migrate("orders").code == 0
    delivered = left(target, "orders", "billing")
    assert len(delivered) == 30
    assert {each.text() for each in kept} <= set(delivered)
