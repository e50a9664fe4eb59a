"""`python -m popmq_server` as supervisors and scripts see it: flags, the ready line, signals, exit codes."""

import argparse
import contextlib
import errno
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.broker_process import ROOT, BrokerProcess, own_port
from popmq_cli.broker.serve import serve
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.__main__ import _said
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.writer.writer import Writer
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError
from popmq_server.options import (
    MAX_SIZE,
    Options,
    Unnamed,
    address,
)
from popmq_server.process import serving
from popmq_server.process.serving import Serving
from popmq_server.settings import parse, size
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles, refusal

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "popmq_server"]
#: No port that another test may have.
NO_PORTS = ["--port", "0", "--tls-port", "0", "--metrics-port", "0"]


def ended(*flags: str) -> subprocess.CompletedProcess[str]:
    """A broker that is to end by itself, at once."""
    return subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=CALL_S, check=False, cwd=ROOT)


def running_pops(stubs: Stubs, count: int, group: str = GROUP) -> list[Any]:
    """Long polls that the broker runs: calls of one connection arrive in order, and it has answered a later one."""
    calls = [stubs.pop_later(group=group, wait_ms=60_000) for _ in range(count)]
    stubs.admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)
    return calls


def test_flags_have_the_defaults_that_the_readme_names() -> None:
    options = parse([]).options
    assert (str(options.data), options.host) == ("popmq-data", ("127.0.0.1",))
    assert (options.port, options.tls_port, options.metrics_port) == (8081, 8082, 9464)
    assert (options.tls_only, options.tls_cert, options.tls_key, options.access_keys) == (False, None, None, None)
    assert (options.max_size, options.sync) == (MAX_SIZE, "full")


@pytest.mark.mechanism("D.45")
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16777216", 16 << 20),
        ("512MiB", 512 << 20),
        ("20GiB", 20 << 30),
        ("1.5 GiB", 3 << 29),
        ("64t", 64 << 40),
        ("99999999999999999", 99999999999999999),
    ],
)
def test_sizes_are_read_in_bytes_and_binary_units(text: str, number: int) -> None:
    assert size(text) == number


@pytest.mark.parametrize(
    "text", ["", "big", "-1GiB", "1e9", "infGiB", "nanMiB", "1GB", "1.GiB", "٣GiB", "0x10", "9" * 99]
)
def test_a_malformed_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        size(text)


@pytest.mark.parametrize(
    "flags",
    [
        ("--nonsense",),
        ("--port", "65536"),
        ("--port", "-1"),
        ("--port", "http"),
        ("--metrics-port", "99999"),
        ("--tls-port", "65536"),
        ("--tls-cert", "cert.pem"),
        ("--tls-key", "key.pem"),
        ("--tls-only", "--tls-port", "0"),
        ("--max-size", "1MiB"),
        ("--max-size", "65TiB"),
        ("--max-size", "infGiB"),
        ("--sync", "never"),
        ("--data",),
    ],
    ids=" ".join,
)
def test_a_wrong_flag_is_reported_with_the_usage(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(list(flags))
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: popmq serve")
    assert flags[0] in said
    assert len(said.splitlines()) == 2, "the error is not below a list of all flags"


def test_a_wrong_transport_from_the_environment_is_reported_with_the_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POPMQ_TRANSPORT", "carrier")
    with pytest.raises(SystemExit) as end:
        parse([])
    assert end.value.code == 2
    assert "POPMQ_TRANSPORT: 'carrier' is not one of auto, python, grpcio" in capsys.readouterr().err


def test_a_wrong_flag_is_exit_code_2_and_help_is_0() -> None:
    wrong = ended("--port", "http")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" not in wrong.stderr
    helped = ended("--help")
    assert helped.returncode == 0
    for flag in Options._fields:
        assert f"--{flag.replace('_', '-')}" in helped.stdout


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [("127.0.0.1", 1, "127.0.0.1:1"), ("::1", 2, "[::1]:2"), ("[::1]", 3, "[::1]:3"), ("localhost", 4, "localhost:4")],
)
def test_an_ipv6_host_stands_in_brackets(host: str, port: int, expected: str) -> None:
    assert address(host, port) == expected


@pytest.mark.parametrize("host", ["nosuchhost.invalid", "192.0.2.1", "not a host"])
def test_a_host_that_is_not_here_cannot_be_served(tmp_path: Path, host: str) -> None:
    with pytest.raises(StartError, match="--host"):
        EmbeddedBroker(tmp_path / "data", host=host, sync="none").start()


def test_a_metrics_port_in_use_is_exit_code_78(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = ended("--data", str(tmp_path / "data"), *NO_PORTS, "--metrics-port", port)
    assert (refused.returncode, refused.stdout) == (78, "")
    assert f"metrics port {port}" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_end_and_the_exit_code_is_0(tmp_path: Path, how: signal.Signals) -> None:
    command = [*COMMAND, "--data", str(tmp_path / "data"), *NO_PORTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("popmq: ready on 127.0.0.1:")
        # A supervisor that has read the line may close its end; the broker must not stumble over that.
        process.stdout.close()
        with Stubs(line.removeprefix("popmq: ready on ").strip()) as stubs:
            stubs.create_topic()
            stubs.create_group()
            (call,) = running_pops(stubs, 1)
            process.send_signal(how)
            assert list(call.result().deliveries) == [], "a parked poll ends empty, and not by a broken connection"
        assert process.wait(CALL_S) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert check_folder(tmp_path / "data") == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_further_signals_do_not_change_how_a_stop_ends(tmp_path: Path, how: signal.Signals) -> None:
    command = [*COMMAND, "--data", str(tmp_path / "data"), *NO_PORTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("popmq: ready on ")
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            process.send_signal(how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.001)
        assert process.stderr is not None
        assert (process.returncode, "Traceback" in process.stderr.read()) == (0, False)


def test_a_stop_with_parked_polls_does_not_wait_for_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain ends with the last running call, not with its own limit."""
    monkeypatch.setattr(serving, "DRAIN_S", 3_600.0)
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker, Stubs(broker.endpoint) as stubs:
        stubs.create_topic()
        stubs.create_group()
        calls = running_pops(stubs, 50)
        broker.stop()
        assert [list(call.result().deliveries) for call in calls] == [[]] * 50


@pytest.mark.smoke
def test_acks_and_handles_survive_a_stop_and_a_start(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data").start()
    with Stubs(process.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        stubs.send(b"a", b"b")
        first, second = handles(stubs.pop())
        stubs.ack(first)
    assert process.stop() == 0
    process.start()
    with Stubs(process.endpoint) as stubs:
        assert stubs.ack(first) == ["HANDLE_LAPSED"]
        assert stubs.ack(second) == [""], "a handle lives through a restart"
        assert stubs.stats().acked == 2
    assert process.stop() == 0


BROKEN = """
import pathlib, sys
from popmq_server.__main__ import main
from popmq_server.embedded.store import lmdb
from popmq_server.embedded.store.journal.file import Journal

commit = lmdb.Transaction.commit

def fail(self):
    if pathlib.Path(sys.argv[1]).exists():
        self.abort()
        raise lmdb.DiskFault("Input/output error")
    commit(self)

def append(*_):
    if pathlib.Path(sys.argv[1]).exists():
        raise lmdb.DiskFault("Input/output error")
    return write(*_)

lmdb.Transaction.commit = fail
write, Journal.append = Journal.append, append
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("journal", ["on", "off"])
def test_a_failed_commit_ends_the_process_with_74_and_answered_calls_survive(tmp_path: Path, journal: str) -> None:
    """A disk that fails though it has room is not trusted again; every call gets an answer."""
    broken, data = tmp_path / "broken", tmp_path / "data"
    with BrokerProcess(data, "--journal", journal, program=[sys.executable, "-c", BROKEN, str(broken)]) as process:
        with Stubs(process.endpoint) as stubs:
            stubs.create_topic(queues=1)
            stubs.create_group()
            stubs.send(b"a")
            stubs.create_group("waiter", start=pb.StartPosition(**{"from": pb.LATEST}))
            (call,) = running_pops(stubs, 1, group="waiter")
            broken.touch()
            request = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"b")])
            assert refusal(stubs.broker.Send, request).code == "UNAVAILABLE"
            assert call.exception() is not None or not call.result().deliveries
        assert process.wait_dead() == 74
        assert "a restart recovers" in process.log_end()
    assert check_folder(data) == []
    with EmbeddedBroker(data, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        assert bodies(stubs.pop()) == [b"a"]


def test_the_port_opens_after_the_store_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that can connect is served: no client can connect while the store is opened and scanned."""
    port, start, open_while_starting = own_port(), Writer.start, []

    def probe(self: Writer[Any]) -> None:
        start(self)
        open_while_starting.append(can_connect(port))

    monkeypatch.setattr(Writer, "start", probe)
    with EmbeddedBroker(tmp_path / "data", port=port, sync="none"):
        assert can_connect(port)
    assert open_while_starting == [False]
    assert not can_connect(port)


def can_connect(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_folder_in_use_leaves_the_port_closed(tmp_path: Path) -> None:
    """The store is opened first: a broker that cannot have it never opens a port that clients would find."""
    port = own_port()
    with BrokerProcess(tmp_path / "data") as first:
        refused = ended("--data", str(tmp_path / "data"), *NO_PORTS, "--port", str(port))
        assert refused.returncode == 78
        assert not can_connect(port)
        with Stubs(first.endpoint) as stubs:
            stubs.create_topic(TOPIC)
            stubs.create_group(GROUP)
            assert stubs.admin.ListGroups(pb.ListGroupsRequest(), timeout=CALL_S).groups


def test_the_format_json_makes_each_printed_line_an_object(tmp_path: Path) -> None:
    """A container's log is both streams together, and its collector reads each line."""
    form = ("--data", str(tmp_path / "data"), *NO_PORTS, "--log-format", "json")
    command = [*COMMAND, *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        printed = [json.loads(process.stdout.readline()) for _ in range(2)]
        refused = ended(*form)
        process.send_signal(signal.SIGTERM)
        printed += map(json.loads, process.stdout)
    assert printed[1]["message"].startswith("ready on 127.0.0.1:")
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in printed)
    assert refused.returncode == 78
    said = [json.loads(line) for line in refused.stderr.splitlines()]
    assert (said[-1]["level"], refused.stdout) == ("CRITICAL", "")
    assert "is in use by another PopMQ" in said[-1]["message"]


# ── Ports that nobody named ──────────────────────────────────────────────────────────────────────────────────────────


async def started(options: Options) -> str:
    """What a broker says once it serves."""
    async with Serving(options, FakeClock()) as serving:
        return _said(options, serving)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


async def test_a_default_port_that_is_taken_is_left_out_and_a_line_says_so(tmp_path: Path, taken: int) -> None:
    port = Unnamed(taken)
    said = await started(Options(tmp_path / "data", port=0, tls_port=port, metrics_port=port, sync="none"))
    assert said.startswith("popmq: ready on 127.0.0.1:")
    assert f"popmq: no TLS: port {taken} is taken; --tls-port names another\n" in said
    assert f"popmq: no metrics: port {taken} is taken; --metrics-port names another\n" in said
    assert "TLS on" not in said
    assert "metrics on" not in said


async def test_the_default_ports_are_served_when_they_are_free(tmp_path: Path) -> None:
    tls, metrics = own_port(), own_port()
    said = await started(
        Options(tmp_path / "data", port=0, tls_port=Unnamed(tls), metrics_port=Unnamed(metrics), sync="none")
    )
    assert f"popmq: TLS on 127.0.0.1:{tls}: " in said
    assert f"popmq: metrics on 127.0.0.1:{metrics}\n" in said


async def test_a_default_port_that_cannot_be_opened_for_another_reason_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out are ports that another program has, so that no broker serves without TLS for a reason not named."""

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", denied)
    port = Unnamed(own_port())
    options = Options(tmp_path / "data", port=0, tls_port=port, metrics_port=0, sync="none", transport="python")
    with pytest.raises(StartError, match=r"TLS port \d+ on \S+ cannot be opened: Permission denied; name another"):
        await started(options)


async def test_a_host_of_another_machine_is_named_as_the_reason(tmp_path: Path) -> None:
    options = Options(tmp_path / "data", host=("203.0.113.1",), port=0, metrics_port=0, sync="none", transport="python")
    with pytest.raises(StartError, match=r"on 203\.0\.113\.1 cannot be opened: the host is not an address"):
        await started(options)


@pytest.mark.parametrize("asked", ["tls_port", "metrics_port", "tls_only"])
async def test_a_port_that_was_asked_for_must_be_free(tmp_path: Path, taken: int, asked: str) -> None:
    options = {
        "tls_port": Options(tmp_path / "data", port=0, tls_port=taken, metrics_port=0, sync="none"),
        "metrics_port": Options(tmp_path / "data", port=0, tls_port=0, metrics_port=taken, sync="none"),
        "tls_only": Options(tmp_path / "data", tls_port=Unnamed(taken), tls_only=True, metrics_port=0, sync="none"),
    }[asked]
    with pytest.raises(StartError, match=str(taken)):
        await started(options)


def test_only_ports_that_no_flag_names_may_be_left_out() -> None:
    assert isinstance(parse([]).options.tls_port, Unnamed)
    assert isinstance(parse([]).options.metrics_port, Unnamed)
    named = parse(["--tls-port", "8082", "--metrics-port", "9464"]).options
    assert not isinstance(named.tls_port, Unnamed)
    assert not isinstance(named.metrics_port, Unnamed)


def test_the_command_line_names_no_port_that_its_user_did_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr("popmq_server.__main__.main", given.extend)
    CliRunner().invoke(serve, ["--port", "9000"])
    assert "--port" in given
    assert not {"--tls-port", "--metrics-port"} & set(given)
