"""`popmq browse`, `popmq move` and `popmq bench`."""

import json
import os
import subprocess

import pytest

import popmq
from popmq.testing import Broker
from tests.cli.conftest import PROGRAM, Cli


def bodies(client: popmq.Client, topic: str, group: str) -> list[str]:
    """What a new group finds in a topic."""
    client.groups.create(group, start="earliest")
    popped = client.pop(topic, group, 1000)
    client.ack(popped)
    return sorted(each.text() for each in popped)


# ── browse ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_browse_shows_what_is_stored_and_changes_nothing(run: Cli, client: popmq.Client) -> None:
    client.send("orders", [popmq.Message(f"order {number}", tag="eu" if number % 2 else "us") for number in range(6)])
    shown = run("browse", "orders")
    assert sorted(line for line in shown.out.splitlines() if line.startswith("order")) == [
        f"order {number}" for number in range(6)
    ]
    assert [each["tag"] for each in run("browse", "orders", "--tag", "eu", "--max", "2", "--json").objects] == [
        "eu"
    ] * 2
    assert client.broker.stats("orders").groups == ()
    assert "no message in %DLQ%billing" in run("browse", "%DLQ%billing").err


@pytest.mark.process
def test_browse_follow_shows_new_messages_only(client: popmq.Client, broker: Broker) -> None:
    client.send("orders", "old")
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [*PROGRAM, "browse", "orders", "--follow", "--json", "--max", "2"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        number = 0
        shown: list[str] = []
        while program.poll() is None:  # it began to read at some moment: what is sent from then on is shown
            client.send("orders", f"new {(number := number + 1)}")
        shown = [json.loads(line)["body"] for line in program.stdout]
    assert len(shown) == 2
    assert "old" not in shown


# ── move ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_move_sends_messages_as_they_are_and_acks_them(run: Cli, client: popmq.Client) -> None:
    client.topics.create("archive")
    client.groups.create("audit")
    given = popmq.Message("one", key="k", tag="eu", properties={"p": "1"}, message_id="m1", born_ms=1)
    client.send("orders", [given, "two", "three"])
    assert client.messages.peek("orders", "audit", 3) != []
    done = run("move", "orders", "archive", "--group", "billing", "--max", "2", "--yes", "--json")
    assert done.objects == [{"from": "orders", "to": "archive", "group": "billing", "moved": 2, "there_already": 0}]
    assert run("move", "orders", "archive", "--group", "billing", "--yes").code == 0
    (moved,) = client.messages.look_up("archive", message_id="m1").deliveries
    assert (moved.key, moved.tag, moved.properties, moved.born_ms) == ("k", "eu", {"p": "1"}, 1)
    assert bodies(client, "archive", "new") == ["one", "three", "two"]
    (row,) = client.broker.stats("orders", "billing").groups
    assert (row.acked, row.in_flight, row.ready) == (3, 0, 0)
    assert len(client.messages.peek("orders", "audit", 10)) == 3  # another group keeps its own


@pytest.mark.slow
@pytest.mark.parametrize(("unique", "stored"), [("10m", 3), (None, 6)])
def test_a_move_that_dies_before_its_ack_loses_nothing_and_repeats_unless_ids_are_unique(
    run: Cli, client: popmq.Client, monkeypatch: pytest.MonkeyPatch, unique: str | None, stored: int
) -> None:
    run("topic", "create", "archive", *(["--unique-ids", unique] if unique else []))
    client.send("orders", ["one", "two", "three"])

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(popmq.Client, "ack", dies)
        assert run("move", "orders", "archive", "--group", "billing", "--yes").code == 130
    leased = client.leases.list("billing").leases
    assert sum(each.undone for each in leased) == 3
    client.offsets.reset("orders", "billing", "earliest")  # instead of waiting for the leases to end
    done = run("move", "orders", "archive", "--group", "billing", "--yes", "--json")
    assert done.objects[0]["there_already"] == (3 if unique else 0)
    assert len(bodies(client, "archive", "new")) == stored
    assert set(bodies(client, "archive", "newer")) == {"one", "two", "three"}


@pytest.mark.promise("redelivery")
@pytest.mark.slow
def test_a_message_that_the_target_of_a_move_refuses_stays(run: Cli, client: popmq.Client) -> None:
    client.topics.create("ordered", type="FIFO")  # it wants a message group of each
    client.send("orders", ["one", popmq.Message("two", message_id="m2")])
    done = run("move", "orders", "ordered", "--group", "billing", "--yes")
    assert done.code in (1, 4)
    assert [each.attempt for each in client.pop("orders", "billing", 10)] == [1, 1]
    assert run("move", "orders", "orders", "--group", "billing", "--yes").code == 2
    assert run("move", "orders", "ordered", "--group", "billing").code == 2  # nobody to ask


# ── bench ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_bench_shows_rates_and_durations_and_leaves_nothing_behind(run: Cli, client: popmq.Client) -> None:
    done = run("bench", "--messages", "100", "--batch", "7", "--threads", "3", "--json")
    send, pop, ack = done.objects
    assert [(each["step"], each["messages"]) for each in done.objects] == [("send", 100), ("pop", 100), ("ack", 100)]
    assert send["calls"] == 15  # 34 + 33 + 33 messages in calls of 7
    assert all(0 < each["p50_ms"] <= each["p99_ms"] <= each["max_ms"] for each in (send, pop, ack))
    assert all(each["messages_per_s"] > 0 for each in (send, pop, ack))
    assert pop["calls"] == ack["calls"]  # a pop that found nothing has only waited
    assert [topic.name for topic in client.topics.list()] == ["orders"]
    assert [group.name for group in client.groups.list()] == ["billing"]
    assert "STEP\tMESSAGES\tMSG/S" in run("bench", "--messages", "3").out
