"""How a console starts and ends: `popmq console`, and `popmq serve --console-port`."""

import http.client
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.broker_process import BrokerProcess, own_port
from popmq_server.console_process import arguments
from popmq_server.options import Options
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
        assert broker.read_line() == f"popmq: console on 127.0.0.1:{port}"
        until(port, True)
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
def test_ctrl_c_ends_a_console_with_0_and_without_a_word() -> None:
    with subprocess.Popen(
        [*PROGRAM, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as begun:
        assert begun.stdout
        assert begun.stdout.readline().startswith("popmq: console on http://127.0.0.1:")
        begun.send_signal(signal.SIGINT)
        assert (begun.wait(START_S), begun.communicate()[1]) == (0, "")


def test_the_console_of_a_broker_gets_its_endpoint_and_its_certificate() -> None:
    tls = Options(host="0.0.0.0", tls_port=8082, tls_only=True, console_port=8090)
    assert arguments(tls, 8082, Path("made.pem"))[:4] == ["--endpoint", "127.0.0.1:8082", "--tls-ca", "made.pem"]
    away = Options(console_port=8090, console_host="0.0.0.0", tls_cert=Path("c.pem"), tls_key=Path("k.pem"))
    assert arguments(away, 8081, None)[-4:] == ["--tls-cert", "c.pem", "--tls-key", "k.pem"]


def test_a_console_that_could_not_verify_its_broker_is_refused() -> None:
    flags = ["--console-port", "8090", "--tls-only", "--tls-cert", "c.pem", "--tls-key", "k.pem"]
    with pytest.raises(SettingError, match="use `popmq console --tls"):
        load(flags, {})
