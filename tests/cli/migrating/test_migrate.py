"""`popmq migrate`: topics, their messages and groups from one broker to another."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import popmq
from popmq_cli.migrating.brokers import MARK
from tests.cli.conftest import Cli
from tests.cli.migrating.conftest import Migrate, left, own, send, work
from tests.prose import commands_of
from tests.sources import ROOT

PAGE = ROOT / "docs" / "migrate.md"
#: Each test starts two brokers.
pytestmark = pytest.mark.slow


@pytest.mark.smoke
def test_every_message_is_copied_once_with_all_that_its_producer_said(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    trace = popmq.TraceContext("00-1-2-01", "a=b")
    given = popmq.Message(
        b"\x00\xff", "k", "eu", {"p": "1"}, ("k2",), "m1", encoding="GZIP", born_ms=5, trace_context=trace
    )
    source.send("orders", given)
    send(source, 100)
    assert migrate("orders").code == 0
    (copied,) = target.messages.look_up("orders", message_id="m1").deliveries
    read = (copied.body, copied.key, copied.tag, own(copied), copied.more_keys, copied.encoding, copied.born_ms)
    assert read == (b"\x00\xff", "k", "eu", {"p": "1"}, ("k2",), "GZIP", 5)
    assert copied.trace_context == trace
    (first,) = source.messages.look_up("orders", message_id="m1").deliveries
    created_ms = source.topics.get("orders").created_ms
    assert copied.properties[MARK] == f"{created_ms}/{first.queue}/{first.offset}"
    assert target.broker.stats("orders").topics[0].messages == 101
    again = migrate("orders", "--json").objects
    assert (again[0]["copied"], again[0]["copied_now"]) == (101, 0)
    assert target.broker.stats("orders").topics[0].messages == 101


@pytest.mark.smoke
def test_each_group_gets_what_it_had_not_finished_whatever_state_it_was_in(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    source.groups.create("audit", backoff=3600, max_attempts=9, invisible=77, in_flight_max=500)
    source.groups.create("idle")
    send(source, 300)
    wanted = {}
    for group, done in ("billing", 200), ("audit", 50), ("idle", 0):
        acked = work(source, group, done)
        leased, released, later = work(source, group, 5), work(source, group, 5), work(source, group, 5)
        source.ack(acked)
        source.release(released, 0.0)
        source.release(later, 3000.0)
        wanted[group] = {str(number) for number in range(300)} - {each.text() for each in acked}
        assert len(leased) == 5
    ended = migrate("orders", "--json")
    (row,) = ended.objects
    found = {each["group"]: each for each in row["groups"]}
    for group, unfinished in wanted.items():
        assert found[group]["unfinished"] == found[group]["found"] == len(unfinished)
        delivered = left(target, "orders", group)
        assert unfinished <= set(delivered)
        assert len(delivered) == found[group]["found"] + found[group]["repeated"]
        assert found[group]["repeated"] <= 60, "what lies between its unfinished messages"
    assert target.groups.get("audit") == popmq.Group(
        "audit", 9, (3600.0,), 77.0, created_ms=target.groups.get("audit").created_ms, in_flight_max=500
    )
    with pytest.raises(popmq.errors.WrongConsumeMode):
        source.pop("orders", "billing")


@pytest.mark.smoke
def test_a_terminal_sees_how_far_it_is(migrate: Migrate, source: popmq.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    send(source, 30)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "\rorders: copied 30 of 30\n" in migrate("orders").err


def test_groups_that_work_in_order_get_nothing_again(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    source.groups.create("audit")
    send(source, 1000)
    for group, done in ("billing", 900), ("audit", 300):
        acked: list[popmq.Delivery] = []
        while len(acked) < done:
            acked += (popped := source.pop("orders", group, 20))
            source.ack(popped)
    (row,) = migrate("orders", "--json").objects
    assert [(each["unfinished"], each["found"], each["repeated"]) for each in row["groups"]] == [
        (700, 700, 0),
        (100, 100, 0),
    ]


def test_message_groups_keep_their_order(migrate: Migrate, source: popmq.Client, target: popmq.Client) -> None:
    source.topics.create("steps", type="FIFO", queues=3)
    names = [f"g{number}" for number in range(9)]
    for step in range(40):
        source.send("steps", [popmq.Message(f"{name} {step:02}", message_group=name) for name in names])
    for _ in range(60):
        source.ack(source.pop("steps", "billing", 1))
    leased = source.pop("steps", "billing", 3)
    assert leased != []
    assert migrate("steps").code == 0
    assert target.topics.get("steps").type == "FIFO"
    delivered = left(target, "steps", "billing")
    for name in names:
        own = [each for each in delivered if each.startswith(name + " ")]
        assert own == sorted(own)
        assert own[-1] == f"{name} 39"
    assert {each.text() for each in leased} <= set(delivered)


def test_producers_that_are_on_the_target_first_lose_nothing_and_their_order_is_said(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    send(source, 40)
    source.ack(work(source, "billing", 30))
    target.topics.create("orders", queues=1)
    target.send("orders", ["new 1", "new 2"])
    (row,) = migrate("orders", "--json").objects
    target.send("orders", "new 3")
    delivered = left(target, "orders", "billing")
    assert {"new 1", "new 2", "new 3"} <= set(delivered)
    assert Counter(delivered).most_common(1)[0][1] == 1
    (group,) = row["groups"]
    assert (group["found"], group["repeated"]) == (10, 30), "the copies come after the producers' own"
    with pytest.raises(popmq.errors.Forbidden):
        source.send("orders", "late")
    source.topics.create("steps", type="FIFO")
    target.topics.create("steps", type="FIFO")
    target.send("steps", popmq.Message("new", message_group="a"))
    stopped = migrate("steps")
    assert stopped.code == 1
    assert "come before older ones" in stopped.err


@pytest.mark.smoke
def test_the_commands_of_the_page_work_as_they_are_written(
    run: Cli, source: popmq.Client, target: popmq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("POPMQ_ENDPOINT")
    source.topics.create("payments")
    for topic in "orders", "payments":
        source.send(topic, "one")
        source.ack(source.pop(topic, "billing"))
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [words for block in blocks for words in commands_of(block)]
    here = {"old.example:8081": source.endpoint, "new.example:8081": target.endpoint}
    for words in lines:
        assert run(*(here.get(word, word) for word in words)).code == 0, words
    assert len(lines) == 7
    source.send("orders", "it has returned")
    assert [each.text() for each in source.pop("orders", "billing")] == ["it has returned"]
