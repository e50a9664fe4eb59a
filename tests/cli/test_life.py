"""`popmq why`, `message`, `peek`, `dlq redrive`, `topic purge`: single messages, and what becomes of dead ones."""

import os

import pytest

import popmq
from popmq.testing import Broker, FakeClock
from tests.cli.conftest import PROGRAM, Cli, on_a_terminal


def test_why_tells_a_life_as_a_time_line(run: Cli, client: popmq.Client, popmq_clock: FakeClock) -> None:
    client.send("orders", popmq.Message("x", message_id="m1"))
    (delivery,) = client.pop("orders", "billing", invisible=60.0)
    popmq_clock.advance(1500)
    client.release(delivery, delay=0.0, reason="ValueError: not today\n  line two")
    client.reject(client.pop("orders", "billing"), "Traceback:\n  File app.py\nno such customer")
    text = run("why", "m1").out
    heading, stored, _, group, explanation, *events = text.splitlines()
    assert heading == f"m1 in orders, queue {delivery.queue} offset {delivery.offset}"
    assert stored == "  stored 2023-11-14T22:13:20.000Z"
    assert group == "  billing · dead"
    assert explanation.strip()
    popped = next(line for line in events if "popped" in line)
    assert popped.startswith("  ● 2023-11-14T22:13:20.000Z")
    assert f"attempt 1 · {client.client_id} · until 22:14:20.000" in popped
    released = next(number for number, line in enumerate(events) if "released" in line)
    assert "2023-11-14T22:13:21.500Z  +1.5s" in events[released]
    assert "ValueError: not today" in events[released]
    assert events[released + 1].startswith("  │")
    assert events[released + 1].endswith("  line two")
    assert any("no such customer" in line for line in events)
    assert "\\n" not in text, "the lines of a reason are lines"


def test_why_in_json_is_an_object_for_each_stored_message(run: Cli, client: popmq.Client) -> None:
    client.topics.create("parcels")
    for topic in ("orders", "parcels"):
        client.send(topic, popmq.Message("x", message_id="m1"))
    client.groups.create("audit")
    client.pop("orders", "billing")
    client.messages.peek("orders", "audit")
    lives = run("why", "m1", "--json").objects
    assert sorted(life["topic"] for life in lives) == ["orders", "parcels"]
    (life,) = run("why", "m1", "--topic", "orders", "--group", "billing", "--json").objects
    assert [(group["group"], group["state"]) for group in life["groups"]] == [("billing", "leased")]
    assert run("why", "nobody").code == 1


@pytest.mark.slow
def test_why_has_colours_on_a_terminal(client: popmq.Client, broker: Broker) -> None:
    client.send("orders", popmq.Message("x", message_id="m1"))
    client.ack(client.pop("orders", "billing"))
    text = on_a_terminal([*PROGRAM, "why", "m1"], {**os.environ, "TERM": "xterm", "NO_COLOR": ""})
    assert b"\x1b[32macked" in text.replace(b"\x1b[1m", b"")


@pytest.mark.slow
def test_messages_are_looked_up_by_key_and_by_id(run: Cli, client: popmq.Client) -> None:
    for number in range(3):
        client.send("orders", popmq.Message(f"body {number}", key="k", message_id=f"m{number}", properties={"a": "b"}))
    text = run("message", "orders", "--id", "m1").out
    heading, body = text.splitlines()
    assert heading.startswith("m1 · queue ")
    assert "key k · a=b" in heading
    assert body == "body 1"
    assert len(run("message", "orders", "--key", "k", "--json").objects) == 3
    assert run("message", "orders", "--key", "none").err == "no message of orders has this key\n"
    more = run("message", "orders", "--key", "k", "--max", "1")
    assert more.err.startswith("there may be more: --until 2")


@pytest.mark.slow
def test_peek_shows_what_comes_next_and_leases_nothing(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b"])
    for _ in range(2):
        assert run("peek", "orders", "billing", "--max", "1").out.splitlines()[1] == "a"
    (shown, _) = run("peek", "orders", "billing", "--json").objects
    assert (shown["attempt"], shown["handle"]) == (1, "")
    client.pop("orders", "billing")
    assert run("peek", "orders", "billing").err == "no message for billing in orders\n"


@pytest.mark.capability("discard")
@pytest.mark.slow
def test_dead_letters_are_delivered_again(run: Cli, client: popmq.Client) -> None:
    client.send("orders", [popmq.Message(body, message_id=body) for body in ("a", "b", "c")])
    client.reject(client.pop("orders", "billing"))
    assert run("dlq", "redrive", "billing", "--offset", "1").err == "1 redriven\n"
    some = run("dlq", "redrive", "billing", "--id", "a", "--id", "x")
    assert (some.code, some.err.splitlines()[0]) == (4, "1 redriven")
    assert run("dlq", "redrive", "billing", "--topic", "orders", "--yes", "--json").objects[0]["redriven"] == 1
    assert sorted(delivery.text() for delivery in client.pop("orders", "billing")) == ["a", "b", "c"]
    assert run("dlq", "list", "--json").objects == []
    assert run("dlq", "redrive", "nobody").code == 1


@pytest.mark.slow
def test_a_topic_is_purged(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b"])
    client.pop("orders", "billing", 1)
    assert run("topic", "purge", "orders", "--yes").err == "2 messages of orders dropped\n"
    assert run("peek", "orders", "billing", "--json").objects == []
    assert run("topic", "purge", "nowhere").code == 1
