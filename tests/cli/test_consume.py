"""`popmq consume` and `popmq ping`."""

import errno
from importlib.metadata import version

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


def test_a_program_gets_the_body_and_its_exit_code_settles_the_message(run: Cli, client: popmq.Client) -> None:
    client.update_group("billing", backoff=[0.0])
    client.send("orders", [popmq.Message("good", key="k1"), popmq.Message("bad", message_id="m2")])
    program = 'read body; [ "$body" = good ] && [ "$POPMQ_KEY" = k1 ] || { echo "no, $body" >&2; exit 7; }'
    done = run("consume", "orders", "billing", "--max", "2", "--exec", program)
    assert done.code == 0
    assert "message m2, attempt 1: exit code 7: no, bad" in done.err
    assert left(client) == [("bad", 2)]
    (life,) = client.why("m2")
    assert any(event.reason == "exit code 7: no, bad" for group in life.groups for event in group.events)


def test_messages_that_consume_could_not_print_are_visible_again(
    run: Cli, client: popmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send("orders", ["a", "b"])

    def broken(*_arguments: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader has gone")

    with monkeypatch.context() as patched:
        patched.setattr("popmq_cli.messages.consume.show_body", broken)
        assert run("consume", "orders", "billing").code == 141
    assert left(client) == [("a", 1), ("b", 1)]


def test_a_ping_is_answered_or_ends_with_3(run: Cli, broker: Broker) -> None:
    said = run("ping").out
    assert "answered in" in said
    assert f"PopMQ {version('popmq')}, engine embedded" in said
    assert "without" not in said
    answers = run("ping", "--count", "2", "--json").objects
    assert [answer["call"] for answer in answers] == [1, 2]
    assert run("ping", "--endpoint", "127.0.0.1:1", "--timeout", "10ms").code == 3
