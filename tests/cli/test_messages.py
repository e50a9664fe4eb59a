"""`popmq send`, `pop`, and what settles: ack, extend, release, reject."""

import base64
import errno
import subprocess
from pathlib import Path

import pytest

import popmq
from popmq.testing import Broker, FakeClock
from popmq_cli.shared import rows
from tests.cli.conftest import PROGRAM, Cli


def bodies(client: popmq.Client) -> list[bytes]:
    return sorted(delivery.body for delivery in client.pop("orders", "billing", 4096))


@pytest.mark.slow
def test_arguments_are_sent_each_as_a_message(run: Cli, client: popmq.Client) -> None:
    done = run("send", "orders", "a", "b", "--key", "k", "--tag", "t", "--property", "x=1", "--property", "y=a=b")
    assert (done.code, done.out, done.err) == (0, "", "2 messages sent to orders\n")
    first, second = client.pop("orders", "billing")
    assert (first.body, second.body, first.key, first.tag) == (b"a", b"b", "k", "t")
    assert first.properties == {"x": "1", "y": "a=b"}


@pytest.mark.slow
def test_standard_input_is_sent_line_by_line_without_empty_lines(run: Cli, client: popmq.Client) -> None:
    assert run("send", "orders", stdin=b"one\r\n\n two \nthree").err == "3 messages sent to orders\n"
    assert bodies(client) == [b" two ", b"one", b"three"]


@pytest.mark.slow
def test_a_long_file_is_sent_whole(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"".join(b"%d\n" % number for number in range(1234)))
    assert run("send", "orders", "--file", str(lines)).err == "1234 messages sent to orders\n"
    assert bodies(client) == sorted(b"%d" % number for number in range(1234))


def test_a_file_may_be_one_message(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(b"\x89PNG\n\n\xff")
    assert run("send", "orders", "--file", str(picture), "--whole").code == 0
    assert bodies(client) == [b"\x89PNG\n\n\xff"]


def test_json_lines_carry_key_tag_and_properties(run: Cli, client: popmq.Client) -> None:
    lines = b'{"body": "text", "key": "k"}\n{"body": {"n": 1}, "tag": "t", "properties": {"a": "b"}}\n'
    done = run("send", "orders", "--json-lines", "--json", stdin=lines)
    assert [(receipt["queue"], receipt["offset"]) for receipt in done.objects] == [(0, 0), (0, 1)]
    first, second = client.pop("orders", "billing")
    assert (first.body, first.key) == (b"text", "k")
    assert (second.body, second.tag, second.properties) == (b'{"n":1}', "t", {"a": "b"})


def test_a_typed_message_that_its_topic_does_not_take_is_a_refusal_and_no_wrong_usage(
    run: Cli, client: popmq.Client
) -> None:
    done = run("send", "orders", "later", "--delay", "10m")
    assert done.code == 1
    assert "Usage:" not in done.err
    assert "popmq: topic 'orders' has type NORMAL" in done.err
    assert "\n  → unset delay_ms" in done.err


@pytest.mark.parametrize("line", ["no json", "[]", '{"key": "k"}', '{"body": "x", "colour": "red"}'])
def test_a_line_that_is_no_message_is_named(run: Cli, client: popmq.Client, line: str) -> None:
    done = run("send", "orders", "--json-lines", stdin=f'{{"body": "fine"}}\n{line}\n'.encode())
    assert done.code == 2
    assert "line 2 is not a message" in done.err


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["send", "orders"], "line 1 is not a message"),
        (["send", "orders", "--whole"], "the file is not a message"),
        (["import", "orders", "FILE"], "line 1 is not a message"),
        (["schedule", "import", "-"], "line 1 is not a schedule"),
    ],
)
def test_an_endless_line_is_refused_before_it_fills_the_memory(
    run: Cli, client: popmq.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], why: str
) -> None:
    monkeypatch.setattr(rows, "LINE_BYTES_MAX", 1 << 20)
    file = tmp_path / "zeros"
    file.write_bytes(bytes(2 << 20))
    done = run(*(str(file) if word == "FILE" else word for word in command), stdin=file.read_bytes())
    assert (done.code, why in done.err, "longer than" in done.err) == (2, True, True)


@pytest.mark.slow
def test_send_counts_the_messages_stored_before_a_refusal(run: Cli, client: popmq.Client) -> None:
    lines = b"x\n" * 500 + b'{"no": "body"}'
    done = run("send", "orders", "--json-lines", stdin=b'{"body": "x"}\n' * 500 + lines)
    assert done.code == 2
    assert "500 messages sent to orders" in done.err


def test_send_counts_the_messages_stored_beside_refused_ones(run: Cli, client: popmq.Client) -> None:
    done = run("send", "orders", "a", "", "b")
    assert done.code == 4
    assert "2 messages sent to orders" in done.err
    assert [each.text() for each in client.pop("orders", "billing", wait=5)] == ["a", "b"]


@pytest.mark.process
def test_send_sends_each_line_of_a_pipe_when_it_comes(broker: Broker, client: popmq.Client) -> None:
    """A pipe may be quiet for hours."""
    command = [*PROGRAM, "--endpoint", broker.endpoint, "send", "orders"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin is not None
        for text in ("first", "second"):
            program.stdin.write(f"{text}\n".encode())
            program.stdin.flush()
            (delivery,) = client.pop("orders", "billing", wait=20)
            assert delivery.text() == text
        program.stdin.close()
        assert program.wait(20) == 0


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_pop_prints_bodies_and_acks_them(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b", "c"])
    assert run("pop", "orders", "billing", "--ack").out == "a\n"
    assert run("pop", "orders", "billing", "--ack", "--max", "10").out == "b\nc\n"
    empty = run("pop", "orders", "billing", "--ack", "--wait", "10ms")
    assert (empty.code, empty.out, empty.err) == (0, "", "no message for billing in orders\n")
    assert client.broker.stats("orders", "billing").groups[0].acked == 3


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_pop_without_ack_prints_the_handle_that_ack_takes(run: Cli, client: popmq.Client) -> None:
    client.send("orders", popmq.Message("a", key="AA1", tag="AA", properties={"origin": "JFK"}))
    heading, handle, body = run("pop", "orders", "billing").out.splitlines()
    assert "attempt 1" in heading
    assert "key AA1 · tag AA · origin=JFK" in heading
    assert body == "a"
    assert run("ack", "billing", handle.removeprefix("handle  ")).err == "1 acked\n"
    assert client.broker.stats("orders", "billing").groups[0].acked == 1


def test_json_of_a_delivery_holds_the_body_as_text_or_as_base64(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["ü", b"\xff"])
    text, binary = run("pop", "orders", "billing", "--json", "--max", "2").objects
    assert (text["body"], text["attempt"], text["key"]) == ("ü", 1, "")
    assert base64.b64decode(binary["body_base64"]) == b"\xff"
    assert {"handle", "queue", "offset", "message_id", "invisible_until_ms", "properties"} <= text.keys()


@pytest.mark.slow
def test_a_binary_body_is_printed_as_it_is(run: Cli, client: popmq.Client) -> None:
    client.send("orders", b"\xff\x00")
    assert run("pop", "orders", "billing", "--ack").out == "�\x00\n"


@pytest.mark.slow
def test_handles_come_from_standard_input_too(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b"])
    popped = client.pop("orders", "billing")
    handles = "\n".join(delivery.handle for delivery in popped)
    assert run("ack", "billing", "-", stdin=handles.encode()).err == "2 acked\n"


def test_extend_release_and_reject_say_what_became_of_the_message(
    run: Cli, client: popmq.Client, popmq_clock: FakeClock
) -> None:
    client.send("orders", ["a", "b", "c"])
    first, second, third = (delivery.handle for delivery in client.pop("orders", "billing"))
    extended = run("extend", "billing", first, "--invisible", "10m", "--json").objects
    assert extended == [{"handle": first, "visible_ms": popmq_clock.now_ms() + 600_000, "dead_lettered": False}]
    released = run("release", "billing", second, "--delay", "0", "--uncounted", "--reason", "not now")
    assert released.err.startswith("visible at 2023-11-14T22:13:20Z")
    assert run("reject", "billing", third, "--reason", "not JSON").err == "dead-lettered\n"
    (again,) = client.pop("orders", "billing")
    assert (again.body, again.attempt) == (b"b", 1)


@pytest.mark.capability("snooze")
def test_a_snooze_puts_a_message_back_and_counts_no_attempt(
    run: Cli, client: popmq.Client, popmq_clock: FakeClock
) -> None:
    client.send("orders", "a")
    (delivery,) = client.pop("orders", "billing")
    assert run("snooze", "billing", delivery.handle, "--delay", "5m").err == "visible at 2023-11-14T22:18:20Z\n"
    popmq_clock.advance(300_000)
    assert [again.attempt for again in client.pop("orders", "billing")] == [1]


@pytest.mark.promise("ack")
def test_a_delivery_that_is_over_is_refused_and_one_of_many_partly(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b"])
    first, second = (delivery.handle for delivery in client.pop("orders", "billing"))
    assert run("ack", "billing", first).code == 0
    over = run("ack", "billing", first)
    assert (over.code, over.err.splitlines()[0]) == (
        1,
        "popmq: this delivery is over: it was acked, released or rejected, or its lease expired",
    )
    partly = run("ack", "billing", first, second)
    assert partly.code == 4
    assert "1 of 2 entries were refused" in partly.err


@pytest.mark.promise("redelivery")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "printing"), [("pop --max 9 --ack", "pop._print"), ("consume", "consume.show_body")]
)
def test_messages_that_could_not_be_printed_are_visible_again(
    run: Cli, client: popmq.Client, monkeypatch: pytest.MonkeyPatch, command: str, printing: str
) -> None:
    client.send("orders", ["a", "b"])

    def broken(*_arguments: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader has gone")

    with monkeypatch.context() as patched:
        patched.setattr(f"popmq_cli.messages.{printing}", broken)
        name, *options = command.split()
        assert run(name, "orders", "billing", *options).code == 141
    again = [(delivery.body, delivery.attempt) for delivery in client.pop("orders", "billing", 100)]
    assert sorted(again) == [(b"a", 1), (b"b", 1)]


def test_a_message_may_be_delivered_at_a_relative_time(run: Cli, client: popmq.Client) -> None:
    client.topics.create("mail", type="DELAY")
    (sent,) = run("send", "mail", "x", "--deliver-at", "tomorrow 9:00", "--json").objects
    assert sent["recall_handle"]
    assert run("send", "mail", "x", "--deliver-at", "soon").code == 2
