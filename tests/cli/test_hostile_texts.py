"""Texts of clients on a terminal: controls, line ends and marks of direction are shown as escapes, never obeyed."""

import re
import sys
import unicodedata
from collections.abc import Callable

import pytest

import popmq
from popmq_cli.readers.top_view import lease_columns
from popmq_cli.shared import visible
from popmq_cli.shared.output import Output
from tests.cli.conftest import Cli

#: Clears the screen, sets the title of the window, ends lines, turns the direction of what follows.
HOSTILE = "A\x1b[2J\x1b]0;t\x07\r\x7f\x85\x9b2J\u2028\u2029\u202e\u2066\u200f\u061cZ"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def hidden(text: str) -> set[str]:
    """The characters of an output that a terminal does not show as themselves; colours and line ends are ours."""
    shown = COLOUR.sub("", text).replace("\n", "").replace("\t", "")
    return {one for one in shown if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on standard output is a terminal."""
    return lambda: monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


@pytest.fixture
def hostile(client: popmq.Client) -> popmq.Client:
    """A topic with a hostile message, its dead letter, and a lease and an owner with hostile names."""
    message = popmq.Message("body", message_id=f"id{HOSTILE}", key=HOSTILE, properties={HOSTILE: HOSTILE})
    client.send("orders", [message, message])
    dead, _ = client.pop("orders", "billing", invisible=30.0)
    client.reject(dead, f"why\n{HOSTILE}")
    client.groups.create("readers")
    client.owners.attach("readers", f"o{HOSTILE}", 60.0, "orders")
    return client


@pytest.mark.parametrize("on_a_terminal", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        ("browse", "orders"),
        ("peek", "orders", "audit"),
        ("message", "orders", "--key", HOSTILE),
        ("why", f"id{HOSTILE}"),
        ("dlq", "show", "billing"),
        ("leases", "list"),
        ("owners", "list"),
        ("pop", "orders", "audit"),
        ("consume", "orders", "audit"),
        ("browse", "orders", "--json"),
        ("dlq", "show", "billing", "--json"),
    ],
    ids=lambda command: " ".join(part for part in command if HOSTILE not in part),
)
def test_no_command_sends_a_control_of_a_client_to_the_terminal(
    run: Cli, hostile: popmq.Client, terminal: Callable[[], None], command: tuple[str, ...], on_a_terminal: bool
) -> None:
    hostile.groups.create("audit")
    if on_a_terminal:
        terminal()
    done = run(*command)
    assert done.code == 0
    assert done.out
    assert hidden(done.out + done.err) == set()
    if "--json" in command:
        assert done.objects[0]["key"] == HOSTILE


def test_a_body_is_its_own_bytes_in_a_pipe_and_has_escapes_on_a_terminal(
    run: Cli, client: popmq.Client, terminal: Callable[[], None]
) -> None:
    body = "two\r\nlines\tand\x1b[31m a colour\x9b\n"
    client.send("orders", body)
    client.groups.create("audit")
    assert run("pop", "orders", "audit", "--ack").out == body + "\n"
    terminal()
    assert run("pop", "orders", "billing", "--ack").out == "two\r\nlines\tand\\x1b[31m a colour\\x9b\n\n"


def test_a_body_that_is_no_text_sends_no_bytes_to_a_terminal(
    run: Cli, client: popmq.Client, terminal: Callable[[], None]
) -> None:
    client.send("orders", b"\xff\x1b[2J")
    terminal()
    assert run("pop", "orders", "billing", "--ack").out == "\\xff\\x1b[2J\n"


def test_a_reason_or_a_body_cannot_look_like_a_line_of_ours(run: Cli, client: popmq.Client) -> None:
    client.send("orders", f"a\n#7 · message other{HOSTILE}")
    client.reject(client.pop("orders", "billing"), "b\n#8 · message other")
    shown = run("dlq", "show", "billing").out
    assert hidden(shown) == set()
    lines = shown.splitlines()
    assert [line for line in lines if line.startswith("#")] == [lines[0]]


def test_an_error_names_a_hostile_text_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    error = popmq.errors.InvalidField(HOSTILE, field="x", action=HOSTILE)
    Output(False).error(error)
    Output(True).error(error)
    Output(False).note(HOSTILE)
    Output(False).fields("x", {"a": HOSTILE})
    out, err = capsys.readouterr()
    assert hidden(out + err) == set()


def test_the_top_shows_the_name_of_a_client_with_escapes() -> None:
    (column,) = (column for column in lease_columns(0) if column.name == "CLIENT")
    assert hidden(column.text(HOSTILE)) == set()


def test_usual_texts_stay_as_they_are() -> None:
    text = "Grüße, 東京 👩\u200d💻 · \\x1b — worker-1@4711"
    assert (visible.line(text), visible.lines(f"{text}\n\t{text}\r\n")) == (text, f"{text}\n\t{text}\r\n")
