"""SIGTERM, SIGHUP and Ctrl-C: a command finishes or releases what it has begun, and ends."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import popmq
from popmq.testing import Broker
from popmq_cli.messages.program import failure
from popmq_cli.shared import signals
from tests.cli.conftest import PROGRAM
from tests.known import known

pytestmark = pytest.mark.process

#: Runs a program as process 1 of a namespace, as a container does.
AS_FIRST = ["unshare", "--pid", "--fork", "--mount-proc"]
Program = subprocess.Popen[bytes]
Start = Callable[..., Program]


@pytest.fixture
def start(client: popmq.Client) -> Iterator[Start]:
    """Starts `popmq …` in a session of its own, which ends with the test."""
    started: list[Program] = []

    def start(*arguments: str, prefix: tuple[str, ...] = (), **streams: int) -> Program:
        command = [*prefix, *PROGRAM, *arguments]
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **streams,
        }
        started.append(subprocess.Popen(command, start_new_session=True, **given))
        return started[-1]

    yield start
    for program in started:
        with program, contextlib.suppress(ProcessLookupError):  # its pipes are closed, whoever else has them
            os.killpg(program.pid, signal.SIGKILL)


def first_of(namespace: Program) -> int:
    """Our number of the process that is number 1 inside."""
    return int(Path(f"/proc/{namespace.pid}/task/{namespace.pid}/children").read_text())


def can_be_first() -> bool:
    return (
        shutil.which("unshare") is not None and not subprocess.run([*AS_FIRST, "true"], capture_output=True).returncode
    )


def says_something(program: Program, _client: popmq.Client) -> None:
    assert program.stdout is not None
    assert program.stdout.read(1)


def waits(_program: Program, client: popmq.Client) -> None:
    while not any(row.waiters for row in client.broker.stats("orders").groups):
        pass


def has_a_topic(_program: Program, client: popmq.Client) -> None:
    while not any(topic.name.startswith("popmq-bench") for topic in client.topics.list()):
        pass


@pytest.mark.skipif(not can_be_first(), reason="this user may not make a namespace")
@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        (("consume", "orders", "billing", "--follow"), waits),
        (("pop", "orders", "billing", "--wait", "50s"), waits),
        (("browse", "orders", "--follow", "--since", "1h"), says_something),
        (("stats", "--watch"), says_something),
        (("bench", "--messages", "1000000"), has_a_topic),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_a_command_that_is_process_1_ends_by_sigterm(
    start: Start, client: popmq.Client, arguments: tuple[str, ...], begun: Callable[[Program, popmq.Client], None]
) -> None:
    if arguments[0] == "browse":
        client.send("orders", "x")
    program = start(*arguments, prefix=tuple(AS_FIRST), stderr=subprocess.DEVNULL)
    begun(program, client)
    os.kill(first_of(program), signal.SIGTERM)
    program.wait(30)
    assert [topic.name for topic in client.topics.list()] == ["orders"]
    assert [group.name for group in client.groups.list()] == ["billing"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_the_exit_code_names_the_signal(start: Start, client: popmq.Client, number: signal.Signals, code: int) -> None:
    program = start("pop", "orders", "billing", "--wait", "50s")
    waits(program, client)
    program.send_signal(number)
    assert program.wait(30) == code
    assert program.stderr is not None
    assert b"Traceback" not in program.stderr.read()


@pytest.fixture
def gate(tmp_path: Path) -> tuple[Path, Path]:
    """Two pipes: a command says at the first that it runs, and waits at the second."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    os.mkfifo(begun)
    os.mkfifo(go)
    return begun, go


def test_sigterm_lets_the_running_command_finish_and_begins_no_other(
    start: Start, client: popmq.Client, gate: tuple[Path, Path]
) -> None:
    begun, go = gate
    client.send("orders", ["a", "b"])
    program = start("consume", "orders", "billing", "--follow", "--exec", f"echo > {begun}; read line < {go}")
    begun.read_text()
    program.send_signal(signal.SIGTERM)
    program.send_signal(signal.SIGTERM)  # a supervisor may tell the process and its group
    go.write_text("\n")
    assert program.wait(30) == 0
    (row,) = client.broker.stats("orders", "billing").groups
    assert (row.acked, row.ready + row.retry, row.in_flight) == (1, 1, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_outlives_the_drain_is_ended_and_its_message_released(
    start: Start, client: popmq.Client, gate: tuple[Path, Path], number: signal.Signals
) -> None:
    begun, _ = gate
    client.send("orders", "a")
    waiting = f"trap '' TERM; echo $$ > {begun}; while :; do sleep 60; done"
    program = start("consume", "orders", "billing", "--drain", "50ms", "--exec", waiting)
    shell = int(begun.read_text())
    program.send_signal(number)
    assert program.wait(30) == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(shell, 0)
    (again,) = client.pop("orders", "billing")
    assert (again.text(), again.attempt) == ("a", 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_a_command_is_started_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The shell ran before Popen had returned: an interrupt in between left it behind, alive."""
    shells: list[subprocess.Popen[bytes]] = []

    def interrupted(*given: Any, **more: Any) -> subprocess.Popen[bytes]:
        shells.append(subprocess.Popen(*given, **more))
        signal.raise_signal(number)
        return shells[0]

    monkeypatch.setattr(
        "popmq_cli.messages.program.subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": interrupted})
    )
    before = {each: signal.getsignal(each) for each in signals.ENDING}
    signals.listen()
    try:
        with pytest.raises(KeyboardInterrupt):
            failure("sleep 600", b"", {})
        assert shells[0].poll() == -signal.SIGTERM
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        shells[0].kill()
        shells[0].wait()


@pytest.mark.promise("statistics")
def test_a_reader_that_has_stopped_reading_keeps_no_command_alive(start: Start, client: popmq.Client) -> None:
    client.send("orders", ["x" * 100_000] * 10)
    program = start("consume", "orders", "billing", "--drain", "50ms")
    says_something(program, client)
    program.send_signal(signal.SIGTERM)
    assert program.wait(30) == 143
    (row,) = client.broker.stats("orders", "billing").groups
    assert (row.in_flight, known(row.acked) + row.ready + row.retry) == (0, 10)


def test_a_broker_that_has_gone_keeps_no_command_alive(start: Start, broker: Broker, client: popmq.Client) -> None:
    program = start("consume", "orders", "billing", "--follow")
    waits(program, client)
    broker.stop()
    program.send_signal(signal.SIGTERM)
    assert program.wait(30) == 0


def test_a_second_signal_does_not_end_the_cleaning_up(start: Start, client: popmq.Client) -> None:
    program = start("bench", "--messages", "1000000")
    has_a_topic(program, client)
    ending = threading.Event()

    def insist() -> None:
        while not ending.is_set():
            program.send_signal(signal.SIGTERM)

    thread = threading.Thread(target=insist)
    thread.start()
    try:
        assert program.wait(30) == 143
    finally:
        ending.set()
        thread.join()
    assert [topic.name for topic in client.topics.list()] == ["orders"]


def test_a_signal_that_the_caller_ignores_stays_ignored(start: Start, client: popmq.Client) -> None:
    program = start("consume", "orders", "billing", "--follow", prefix=("nohup",))
    waits(program, client)
    program.send_signal(signal.SIGHUP)
    client.send("orders", "x")
    assert program.stdout is not None
    assert program.stdout.readline() == b"x\n"
