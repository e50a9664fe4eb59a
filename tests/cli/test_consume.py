"""`popmq consume` and `popmq ping`."""

import os
import signal
from importlib.metadata import version
from pathlib import Path

import pytest

import popmq
from popmq.testing import Broker
from tests.cli.conftest import Cli


def left(client: popmq.Client) -> list[tuple[str, int]]:
    return sorted((delivery.text(), delivery.attempt) for delivery in client.pop("orders", "billing", 100))


def test_messages_are_printed_and_acked_until_none_is_left(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b", "c"])
    assert sorted(run("consume", "orders", "billing").out.splitlines()) == ["a", "b", "c"]
    again = run("consume", "orders", "billing")
    assert (again.code, again.out, again.err) == (0, "", "no message for billing in orders\n")


def test_no_more_messages_than_asked_for_are_touched(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b", "c"])
    (printed,) = run("consume", "orders", "billing", "--max", "1", "--json").objects
    assert sorted([(printed["body"], 1), *left(client)]) == [("a", 1), ("b", 1), ("c", 1)]


@pytest.mark.promise("redelivery")
def test_a_program_gets_the_body_and_its_exit_code_settles_the_message(run: Cli, client: popmq.Client) -> None:
    client.groups.update("billing", backoff=[0.0])
    client.send("orders", [popmq.Message("good", key="k1"), popmq.Message("bad", message_id="m2")])
    program = 'read body; [ "$body" = good ] && [ "$POPMQ_KEY" = k1 ] || { echo "no, $body" >&2; exit 7; }'
    done = run("consume", "orders", "billing", "--max", "2", "--exec", program)
    assert done.code == 0
    assert "message m2, attempt 1: exit code 7: no, bad" in done.err
    assert left(client) == [("bad", 2)]
    (life,) = client.messages.why("m2")
    assert any(event.reason == "exit code 7: no, bad" for group in life.groups for event in group.events)


@pytest.mark.embedded("its name")
@pytest.mark.slow
def test_a_ping_is_answered_or_ends_with_3(run: Cli, broker: Broker) -> None:
    said = run("ping").out
    assert "answered in" in said
    assert f"PopMQ {version('popmq')}, engine embedded" in said
    assert "without" not in said
    answers = run("ping", "--count", "2", "--json").objects
    assert [answer["call"] for answer in answers] == [1, 2]
    assert run("ping", "--endpoint", "127.0.0.1:1", "--timeout", "10ms").code == 3


@pytest.mark.promise("statistics")
@pytest.mark.process
@pytest.mark.parametrize("code", [0, 3])
def test_a_command_has_ended_when_its_shell_has_whatever_it_left_in_the_background(
    run: Cli, client: popmq.Client, tmp_path: Path, code: int
) -> None:
    client.send("orders", "x")
    done = run(
        "consume", "orders", "billing", "--exec", f"sleep 60 & echo $! > {tmp_path}/pid; echo why >&2; exit {code}"
    )
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # raises if it was ended
    assert ("exit code 3: why" in done.err) == (code == 3)
    (row,) = client.broker.stats("orders", "billing").groups
    assert (row.in_flight, row.acked) == (0, int(code == 0))


@pytest.mark.promise("statistics")
@pytest.mark.process
def test_a_command_need_not_read_its_input(run: Cli, client: popmq.Client) -> None:
    client.send("orders", "x" * 1_000_000)
    assert run("consume", "orders", "billing", "--exec", "true").code == 0
    (row,) = client.broker.stats("orders", "billing").groups
    assert row.acked == 1


@pytest.mark.process
def test_a_key_that_no_variable_can_have_reaches_the_command_with_an_escape(run: Cli, client: popmq.Client) -> None:
    client.send("orders", popmq.Message("x", key="a\0b", properties={"c": "\0"}))
    done = run("consume", "orders", "billing", "--exec", "printenv POPMQ_KEY >&2")
    assert (done.code, done.err) == (0, "a\\x00b\n")
