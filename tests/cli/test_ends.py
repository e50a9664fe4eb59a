"""How a command ends when its output cannot be written, at a question, and when what it names is not there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

import popmq
from popmq.testing import Broker
from popmq_cli.shared.asking import sure
from tests.cli.conftest import PROGRAM, Cli


def ended(broker: Broker, *arguments: str, stdout: int) -> tuple[int, str]:
    environment = {**os.environ, "POPMQ_ENDPOINT": broker.endpoint}
    command = [*PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)
    return done.returncode, done.stderr.decode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no file that is always full")
@pytest.mark.parametrize(
    "arguments",
    [("stats",), ("topic", "list", "--json"), ("export", "orders", "-"), ("--help",), ("--version",)],
    ids=" ".join,
)
def test_a_full_disk_is_one_line_and_a_code_of_its_own(
    client: popmq.Client, broker: Broker, arguments: tuple[str, ...]
) -> None:
    client.send("orders", "x")
    with open("/dev/full", "wb") as full:
        code, said = ended(broker, *arguments, stdout=full.fileno())
    assert (code, said) == (74, "popmq: the output cannot be written: No space left on device\n")


def test_a_help_text_without_a_reader_ends_quietly(broker: Broker) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(broker, "--help", stdout=writing) == (141, "")
    finally:
        os.close(writing)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_nothing_else(client: popmq.Client, broker: Broker, closed: str) -> None:
    environment = {**os.environ, "POPMQ_ENDPOINT": broker.endpoint}
    name = f"made-{closed.count('-')}{closed[0] == '<'}"
    command = ["sh", "-c", f'"$@" {closed}', "sh", *PROGRAM, "topic", "create", name]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert subprocess.run([*command[:-2], "list"], env=environment, capture_output=True, check=False).returncode == 0
    assert name in [topic.name for topic in client.topics.list()]


@pytest.mark.parametrize("encoding", ["latin-1", "cp437", "ascii"])
def test_a_terminal_that_is_not_utf8_gets_escapes_for_what_it_does_not_have(
    client: popmq.Client, broker: Broker, encoding: str
) -> None:
    client.send("orders", "grün → ☃")
    environment = {**os.environ, "POPMQ_ENDPOINT": broker.endpoint, "PYTHONIOENCODING": encoding}
    for command in (("browse", "orders", "--json"), ("browse", "orders"), ("offsets", "show", "orders")):
        done = subprocess.run([*PROGRAM, *command], env=environment, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        if "--json" in command:
            assert json.loads(done.stdout.decode("utf-8" if encoding == "ascii" else encoding))["body"] == "grün → ☃"


def test_no_color_leaves_the_colours_out(client: popmq.Client, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> bytes:
        reading, terminal = os.openpty()
        assert ended(broker, "topic", "describe", "orders", stdout=terminal)[0] == 0
        os.close(terminal)
        written = os.read(reading, 9)
        os.close(reading)
        return written

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shown().startswith(b"\x1b[")
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown().startswith(b"Topic")


def test_a_reader_that_closes_its_pipe_ends_a_command_quietly(client: popmq.Client, broker: Broker) -> None:
    client.send("orders", ["x" * 1000] * 200)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code, said = ended(broker, "browse", "orders", stdout=writing)
    finally:
        os.close(writing)
    assert (code, said) == (141, "")


def test_a_message_that_is_not_there_is_a_refusal(run: Cli, client: popmq.Client) -> None:
    for option in ("--id", "--key"):
        done = run("message", "orders", option, "nope")
        assert (done.code, done.out) == (1, "")
        assert "no message of orders has this" in done.err
    assert run("why", "nope").code == 1


class Terminal:
    """A standard input at which someone sits."""

    def isatty(self) -> bool:
        return True


def test_an_interrupted_question_differs_from_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    for pressed, ends in ((KeyboardInterrupt, KeyboardInterrupt), (EOFError, click.Abort)):
        monkeypatch.setattr(click.termui, "visible_prompt_func", raising(pressed))
        with pytest.raises(ends):
            sure("Delete it?", yes=False)
    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda _: "n")
    with pytest.raises(click.Abort):
        sure("Delete it?", yes=False)


def raising(error: type[BaseException]) -> Callable[[str], str]:
    def ask(_: str) -> str:
        raise error

    return ask


def test_an_unknown_command_names_the_one_that_was_meant(run: Cli, client: popmq.Client) -> None:
    two = "'dlq redrive' or 'transactions redrive'"
    for typed, meant in (("redrive", two), ("topik", "'topic'"), ("brows", "'browse'"), ("tpo", "'top'")):
        done = run(typed)
        assert done.code == 2
        assert f"No such command {typed!r}. Did you mean {meant}?" in done.err
    assert "Did you mean" not in run("xyzzy").err


def test_the_deletion_of_a_missing_topic_does_not_advise_to_create_it(run: Cli, client: popmq.Client) -> None:
    missing, typed = run("topic", "delete", "parcels", "--yes"), run("topic", "delete", "order", "--yes")
    assert (missing.code, missing.err) == (1, "popmq: there is no topic 'parcels'\n")
    assert (typed.code, "create" in typed.err, "did you mean orders?" in typed.err) == (1, False, True)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("dlq", "show", "billing", "--offset", "9" * 100), "offset is 9999"),
        (("offsets", "reset", "orders", "billing", "--queue", "99999999999=1", "--yes"), "offsets is {99999999999: 1}"),
        (("topic", "update", "orders", "--quota-send", "9" * 30), "is 9999"),
        (("pop", "orders", "billing", "--queue", "99999999999"), "99999999999"),
        (("verify", "--minutes", "nan"), "nan is no number of minutes"),
    ],
)
def test_a_number_that_no_field_holds_is_wrong_usage(
    run: Cli, client: popmq.Client, command: tuple[str, ...], says: str
) -> None:
    done = run(*command)
    assert (done.code, says in done.err) == (2, True), done.err


def test_a_context_needs_the_port_of_its_broker(run: Cli) -> None:
    done = run("context", "add", "local", "--endpoint", "localhost")
    assert done.code == 2
    assert "'localhost' is not host:port" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        *(("send", "orders", "x", "--key", "\udcff"), ("send", "orders", "x", "--tag", "caf\udce9")),
        *(("topic", "create", "\udcff"), ("browse", "\udcff"), ("pop", "orders", "billing", "--tag", "\udcff")),
        *(("why", "\udcff"), ("message", "orders", "--key", "\udcff"), ("group", "create", "\udcff")),
        ("schedule", "create", "x", "--cron", "@hourly", "--topic", "orders", "--body", "\udcff"),
        *(("stats", "\udcff"), ("dlq", "redrive", "billing", "--id", "\udcff"), ("consume", "orders", "\udcff")),
    ],
    ids=" ".join,
)
def test_an_argument_that_is_not_utf8_is_wrong_usage(
    run: Cli, client: popmq.Client, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert "UTF-8" in done.err or "utf-8" in done.err


def test_a_body_need_not_be_utf8(run: Cli, client: popmq.Client) -> None:
    assert run("send", "orders", "\udcff").code == 0
    (delivery,) = client.pop("orders", "billing")
    assert delivery.body == b"\xff"
