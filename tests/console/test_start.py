"""How a console starts and ends: `popmq console`, and `popmq serve --console-port`."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.broker_process import BrokerProcess, own_port
from popmq_server.clock import pause
from popmq_server.options import Options
from popmq_server.process import console_process
from popmq_server.process.console_process import ConsoleProcess, arguments
from popmq_server.settings import SettingError, load

PROGRAM = [sys.executable, "-c", "from popmq_cli.main import main; main()", "console"]
START_S = 30.0


def answers(port: int) -> bool:
    """Whether a console answers on a port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/static/icon.svg")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def until(port: int, wanted: bool) -> None:
    """Waits until a console answers, or answers no more."""
    deadline = time.monotonic() + START_S
    while answers(port) != wanted:
        assert time.monotonic() < deadline, f"the console {'never answered' if wanted else 'never ended'}"
        time.sleep(0.05)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_console_begins_with_its_broker_and_ends_with_it_however_that_ends(tmp_path: Path, end: str) -> None:
    port = own_port()
    broker = BrokerProcess(tmp_path / "data", "--sync", "none", "--console-port", str(port)).start()
    try:
        line = ""
        while line != f"popmq: console on http://127.0.0.1:{port}/":
            line = broker.read_line()
            assert line, "the broker has ended"
        assert answers(port), "the line comes once it does"
    finally:
        broker.kill() if end == "kill" else broker.stop()
    until(port, False)


@pytest.mark.process
def test_a_console_on_a_network_without_tls_does_not_start_and_says_why() -> None:
    done = subprocess.run([*PROGRAM, "--host", "0.0.0.0"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "secrets would travel in clear" in done.stderr) == (2, True)


@pytest.mark.process
def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*PROGRAM, "--port", port], capture_output=True, text=True, timeout=60)
    words = f"port {port} on 127.0.0.1 cannot be opened: Address already in use; name another with --port or --host"
    assert (done.returncode, done.stderr) == (2, f"popmq: {words}\n")


@pytest.mark.process
@pytest.mark.slow
def test_a_console_port_that_is_taken_ends_the_start_of_the_broker(tmp_path: Path) -> None:
    broker = [sys.executable, "-m", "popmq_server", "--data", str(tmp_path / "data"), "--sync", "none"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = ["--port", "0", "--tls-port", "0", "--metrics-port", "0", "--console-port", port]
        done = subprocess.run([*broker, *ports], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"console port {port} on 127.0.0.1 cannot be opened: Address already in use" in done.stderr
    assert "--console-port 0 for none" in done.stderr


@pytest.mark.process
def test_a_console_that_a_broker_starts_names_the_flags_of_the_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ["--until-stdin-ends", "--port", str(taken.getsockname()[1])]
        done = subprocess.run([*PROGRAM, *flags], capture_output=True, text=True, timeout=60)
    assert done.stderr.endswith("name another with --console-port or --console-host\n")


@pytest.mark.process
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_console_that_a_broker_starts_logs_in_the_format_of_the_broker(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = Options(log_format=form, console_port=taken.getsockname()[1])
        program = [*console_process.PROGRAM, *arguments(options, 8081, None)]
        done = subprocess.run(program, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    if form == "json":
        assert json.loads(line)["logger"] == "popmq.console"
    else:
        assert " ERROR popmq.console: port" in line


async def test_a_system_without_a_process_for_the_console_harms_no_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console_process, "PROGRAM", ("/nowhere/python",))
    console = ConsoleProcess()
    await console.start(lambda _: None)
    assert "the console cannot be started" in caplog.text
    await console.stop()


async def test_a_console_that_does_not_start_is_an_error_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console_process, "PROGRAM", (sys.executable, "-c", "raise SystemExit(2)"))
    told = list[str]()
    console = ConsoleProcess()
    await console.start(told.append)
    assert console._watched is not None
    await console._watched
    assert told == []
    (record,) = caplog.records
    assert (record.levelname, "--console-port did not start: it ended with code 2" in record.message) == ("ERROR", True)


async def test_a_slow_console_is_reported_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = "import sys; sys.stdin.read(); print('popmq: console on URL')"
    monkeypatch.setattr(console_process, "PROGRAM", (sys.executable, "-c", program))
    monkeypatch.setattr(console_process, "READY_S", 0.0)
    told = list[str]()
    console = ConsoleProcess()
    await console.start(told.append)
    while not caplog.records:
        await pause(0.001)
    assert console._process is not None
    assert console._process.stdin is not None
    assert console._watched is not None
    console._process.stdin.close()
    await console._watched
    assert told == ["popmq: console on URL"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "is not ready" in caplog.records[0].message


def test_a_console_on_a_network_needs_the_certificate_of_its_broker() -> None:
    flags = ["--console-port", "8090", "--console-host", "0.0.0.0"]
    with pytest.raises(SettingError, match=r"--console-host 0\.0\.0\.0 would send secrets in clear: name --tls-cert"):
        load(flags, {})
    assert load([*flags, "--tls-cert", "c.pem", "--tls-key", "k.pem"], {}).options.console_port == 8090
    assert load([*flags[:2], "--console-host", "[::1]"], {}).options.console_port == 8090
    with pytest.raises(SettingError, match=r"--console-host ::1,192\.0\.2\.7 would send secrets in clear"):
        load([*flags[:2], "--console-host", "::1", "--console-host", "192.0.2.7"], {})


@pytest.mark.process
@pytest.mark.slow
def test_ctrl_c_ends_a_console_with_0_and_without_a_word() -> None:
    with subprocess.Popen(
        [*PROGRAM, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as begun:
        assert begun.stdout
        assert begun.stdout.readline().startswith("popmq: console on http://127.0.0.1:")
        begun.send_signal(signal.SIGINT)
        assert (begun.wait(START_S), begun.communicate()[1]) == (0, "")


def test_the_console_of_a_broker_gets_its_endpoint_and_its_certificate() -> None:
    tls = Options(host=("0.0.0.0",), tls_port=8082, tls_only=True, console_port=8090)
    assert arguments(tls, 8082, Path("made.pem"))[4:8] == ["--endpoint", "127.0.0.1:8082", "--tls-ca", "made.pem"]
    away = Options(console_port=8090, console_host=("0.0.0.0",), tls_cert=Path("c.pem"), tls_key=Path("k.pem"))
    assert arguments(away, 8081, None)[-4:] == ["--tls-cert", "c.pem", "--tls-key", "k.pem"]
    several = Options(host=("::1", "127.0.0.1"), console_port=8090, console_host=("127.0.0.1", "::1"))
    given = ["--endpoint", "[::1]:8081", "--host", "127.0.0.1", "--host", "::1", "--port", "8090"]
    assert arguments(several, 8081, None)[4:] == given


def test_a_console_that_could_not_verify_its_broker_is_refused() -> None:
    flags = ["--console-port", "8090", "--tls-only", "--tls-cert", "c.pem", "--tls-key", "k.pem"]
    with pytest.raises(SettingError, match="use `popmq console --tls"):
        load(flags, {})
