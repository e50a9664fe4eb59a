"""`popmq work`: a worker in processes of its own, ended by signals, started again when it dies or its files change."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import popmq
from harness.broker_process import own_port
from popmq.testing import Broker
from tests.cli.conftest import PROGRAM, Cli

#: Reports each message to the topic `seen`. One named "slow" waits until the file `go` is there.
APP = """
import os, pathlib, time
import popmq

client = popmq.Client(os.environ["POPMQ_ENDPOINT"])
worker = popmq.Worker()

@worker.on("orders", group="billing", concurrency=2)
def bill(text: str) -> None:
    client.send("seen", f"{os.getpid()} begins {text}")
    while text == "slow" and not pathlib.Path("go").exists():
        time.sleep(0.01)
    if text.startswith("die"):
        os._exit(int(text.partition(" ")[2] or 9))
    client.send("seen", f"{os.getpid()} ends {text}")
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def start(client: popmq.Client, folder: Path) -> Iterator[Start]:
    """Starts `popmq work app:worker`, in a process group that ends with the test."""
    client.topics.create("seen")
    client.groups.create("test")
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        command = [*PROGRAM, "work", "app:worker", *arguments]
        program = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        started.append(program)
        return program

    yield start
    for program in started:
        if program.poll() is None:
            program.kill()
        program.wait()
        if program.stderr is not None:
            program.stderr.close()


def seen(client: popmq.Client, count: int = 1) -> list[str]:
    """The next reports of the workers, without their process ids."""
    return [text.partition(" ")[2] for text in reports(client, count)]


def reports(client: popmq.Client, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        popped = client.pop("seen", "test", max_messages=count - len(found), wait=30.0)
        client.ack(popped)
        found += [each.text() for each in popped]
    return found


def until(program: "subprocess.Popen[str]", text: str) -> None:
    """Reads its log up to a line with this text."""
    assert program.stderr is not None
    for line in program.stderr:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_running_handlers_and_begins_no_more(
    start: Start, client: popmq.Client, folder: Path, number: signal.Signals
) -> None:
    program = start()
    client.send("orders", ["slow"])
    assert seen(client) == ["begins slow"]
    program.send_signal(number)
    (folder / "go").touch()
    assert seen(client) == ["ends slow"]
    assert program.wait(30) == 0
    client.send("orders", "late")
    (row,) = client.broker.stats("orders", "billing").groups
    assert (row.acked, row.in_flight, row.ready) == (1, 0, 1)


@pytest.mark.process
def test_a_hangup_drains_and_the_log_may_be_json(start: Start, client: popmq.Client) -> None:
    client.groups.delete("billing")
    program = start("--declare", "--log-format", "json")
    client.send("orders", ["fast"])
    assert seen(client, 2) == ["begins fast", "ends fast"]
    program.send_signal(signal.SIGHUP)
    assert program.wait(30) == 0
    assert program.stderr is not None
    told = [json.loads(line) for line in program.stderr]
    assert "group billing was created" in [line["message"] for line in told]
    assert {"time", "level", "logger", "process", "message"} == set(told[0])


@pytest.mark.process
@pytest.mark.parametrize("arguments", [(), ("--processes", "2")])
def test_sigquit_prints_where_each_handler_stands_and_the_work_goes_on(
    start: Start, client: popmq.Client, folder: Path, arguments: tuple[str, ...]
) -> None:
    program = start(*arguments)
    client.send("orders", popmq.Message("slow", message_id="order-7"))
    assert seen(client) == ["begins slow"]
    program.send_signal(signal.SIGQUIT)
    assert program.stderr is not None
    told = list[str]()
    while not any("in bill" in line for line in told):
        told.append(program.stderr.readline())
    assert any("1 handler at work" in line for line in told)
    assert any(line.startswith("bill: message 'order-7' of orders, attempt 1, for ") for line in told)
    (folder / "go").touch()
    assert seen(client) == ["ends slow"]
    program.terminate()
    assert program.wait(60) == 0


@pytest.mark.promise("redelivery")
@pytest.mark.process
def test_the_second_signal_ends_it_at_once_and_its_message_is_there_again(start: Start, client: popmq.Client) -> None:
    program = start()
    client.send("orders", ["slow"])
    assert seen(client) == ["begins slow"]
    program.terminate()
    until(program, "draining")
    program.terminate()
    assert program.wait(30) == 130
    (again,) = client.pop("orders", "billing")
    assert (again.text(), again.attempt) == ("slow", 1)


@pytest.mark.process
def test_a_handler_that_does_not_end_within_the_drain_is_ended(start: Start, client: popmq.Client) -> None:
    program = start("--drain", "100ms")
    client.send("orders", ["slow"])
    assert seen(client) == ["begins slow"]
    program.terminate()
    assert program.wait(30) == 130


@pytest.mark.promise("redelivery")
@pytest.mark.process
def test_a_process_that_dies_is_started_again_and_all_end_by_one_signal(start: Start, client: popmq.Client) -> None:
    program = start("--processes", "2")
    client.send("orders", ["die"])
    until(program, "a process ended with exit code 9 and is started again")
    assert seen(client) == ["begins die"]
    client.send("orders", ["slow", "slow", "slow", "slow"])
    first, *_ = pids = {text.split()[0] for text in reports(client, 4)}
    assert len(pids) == 2
    program.send_signal(signal.SIGINT)
    until(program, "draining")
    until(program, "draining")
    program.send_signal(signal.SIGINT)
    assert program.wait(30) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)


@pytest.mark.process
def test_a_process_that_ends_with_the_code_of_any_python_error_is_started_again(
    start: Start, client: popmq.Client
) -> None:
    program = start("--processes", "2")
    for _ in range(2):
        until(program, "bill handles orders for billing")
    client.send("orders", ["die 1"])
    until(program, "a process ended with exit code 1 and is started again")
    until(program, "bill handles orders for billing")
    program.terminate()
    assert program.wait(30) == 0


@pytest.mark.process
def test_processes_drain_when_their_supervisor_is_killed(start: Start, client: popmq.Client, folder: Path) -> None:
    program = start("--processes", "2")
    client.send("orders", ["slow"])
    assert seen(client) == ["begins slow"]
    program.kill()
    (folder / "go").touch()
    assert seen(client) == ["ends slow"]
    program.communicate()  # ends when the last process has closed its standard error
    assert client.broker.stats("orders", "billing").groups[0].acked == 1


@pytest.mark.process
def test_a_changed_file_starts_it_again(start: Start, client: popmq.Client, folder: Path) -> None:
    program = start("--reload")
    client.send("orders", "one")
    assert seen(client, 2) == ["begins one", "ends one"]
    (folder / "app.py").write_text(APP.replace("ends", "really ends"))
    until(program, "app.py changed")
    until(program, "bill handles orders")
    client.send("orders", "two")
    assert seen(client, 2) == ["begins two", "really ends two"]
    program.terminate()
    assert program.wait(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("app", "'app' is not MODULE:WORKER"),
        ("nowhere:worker", "there is no module 'nowhere'"),
        ("app:client", "app:client is not a popmq.Worker"),
        ("app:none.at.all", "app:none.at.all is not a popmq.Worker"),
        ("app.py:worker", "for a file app.py write app:worker"),
        ("./app.py:worker", "for a file app.py write app:worker"),
    ],
)
def test_a_target_that_is_not_a_worker_is_wrong_usage(
    broker: Broker, run: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, text: str
) -> None:
    monkeypatch.chdir(folder)
    done = run("work", target)
    assert (done.code, text in done.err) == (2, True)


@pytest.mark.process
def test_a_missing_group_ends_it_with_the_command_that_makes_it(broker: Broker, folder: Path) -> None:
    for more in ([], ["--processes", "2"]):
        done = subprocess.run([*PROGRAM, "work", "app:worker", *more], cwd=folder, capture_output=True, text=True)
        assert (done.returncode, "popmq group create billing; or --declare" in done.stderr) == (1, True)


def probe(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    with socket.create_connection((host, port), 30) as asking:
        asking.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = asking.makefile("rb").read().decode().partition("\r\n\r\n")
    return int(head.split()[1]), body.strip()


@pytest.mark.process
def test_probes_tell_whether_all_processes_are_at_work(start: Start, client: popmq.Client) -> None:
    port = own_port()
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    flags = [word for host in hosts for word in ("--health-host", host)]
    program = start("--processes", "2", "--health-port", str(port), *flags)
    until(program, f"probes are answered on port {port} of {hosts[-1]}")
    assert [probe(port, "/healthz", host) for host in hosts] == [(200, "ok")] * len(hosts)
    while probe(port, "/readyz") != (200, "ok"):
        assert program.poll() is None
    client.send("orders", ["slow"])
    assert seen(client) == ["begins slow"]
    program.terminate()
    while "draining" not in probe(port, "/readyz")[1]:
        assert program.poll() is None
    program.terminate()
    assert program.wait(30) == 130


def test_a_health_port_that_is_taken_is_one_sentence(
    broker: Broker, run: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    port = broker.endpoint.partition(":")[2]
    done = run("work", "app:worker", "--health-port", port)
    assert done.code == 2
    assert f"health port {port} on 127.0.0.1 cannot be opened: Address already in use; name another" in done.err
