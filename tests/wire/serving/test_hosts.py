"""A broker on several hosts: every port on all of them, or on none."""

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import popmq
from harness import broker_process
from popmq_proto.rocketmq import definition_pb2 as v2
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError
from popmq_server.options import (
    Options,
    Unnamed,
    address,
    overlap,
)
from popmq_server.ports import opened
from popmq_server.process.serving import Serving
from tests.wire.stubs import CALL_S, TOPIC

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="one address of the loopback only"),
    pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6"),
]
HOSTS = ("127.0.0.1", "127.0.0.2", "::1")
TRANSPORTS = ["python", "grpcio"]


def own_port() -> int:
    """A port that no other program is given, on any of the hosts."""
    return broker_process.own_port(*HOSTS)


def listening(*ports: int) -> list[tuple[str, int]]:
    """Where somebody listens on one of the ports."""
    found = []
    for host in HOSTS:
        for port in ports:
            try:
                socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
            except OSError:
                found.append((host, port))
    return found


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else has on ::1, and nobody on the other hosts."""
    port = own_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        yield port


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_port_is_open_on_each_host(folder: Path, transport: str) -> None:
    tls_port, metrics_port = own_port(), own_port()
    with EmbeddedBroker(
        folder,
        sync="none",
        host=HOSTS,
        tls_port=tls_port,
        metrics_host=HOSTS,
        metrics_port=metrics_port,
        transport=transport,
    ) as broker:
        for host in HOSTS:
            with popmq.Client(address(host, broker.port)) as client:
                client.topics.create(f"{TOPIC}-{len(client.topics.list())}")
            # The development certificate names each host: the client verifies it.
            with popmq.Client(address(host, tls_port), tls=True, tls_ca=broker.certificate) as client:
                assert client.topics.list()
            with urllib.request.urlopen(f"http://{address(host, metrics_port)}/readyz", timeout=CALL_S) as answer:
                assert answer.status == 200
        assert broker.endpoint == f"127.0.0.1:{broker.port}", "the first one"
        (advertised,) = broker.serving._server._rocketmq.routes._advertised.addresses
        assert (advertised.host, advertised.port) == ("127.0.0.1", broker.port)
    assert listening(broker.port, tls_port, metrics_port) == []


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("port", r"^port \d+ on ::1 cannot be opened: it is in use, .*--port or --host"),
        ("tls_port", r"^TLS port \d+ on ::1 cannot be opened: it is in use, .*--tls-port or --host"),
        ("metrics_port", r"^metrics port \d+ on ::1 cannot be opened: Address already in use; .*--metrics-host"),
    ],
)
def test_a_host_whose_port_is_taken_is_named_and_nothing_stays_open(
    folder: Path, taken: int, which: str, says: str, transport: str
) -> None:
    ports = {"port": own_port(), "tls_port": own_port(), "metrics_port": own_port()} | {which: taken}
    port, tls_port, metrics_port = ports.values()
    broker = EmbeddedBroker(
        folder,
        sync="none",
        host=HOSTS,
        port=port,
        tls_port=tls_port,
        metrics_host=HOSTS,
        metrics_port=metrics_port,
        transport=transport,
    )
    with pytest.raises(StartError, match=says):
        broker.start()
    assert listening(*ports.values()) == [("::1", taken)]
    assert which == "metrics_port" or check_folder(folder) == [], "the folder is free"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_host_of_another_machine_is_named_beside_one_of_this(folder: Path, transport: str) -> None:
    port = own_port()
    broker = EmbeddedBroker(folder, sync="none", host=("127.0.0.1", "203.0.113.1"), port=port, transport=transport)
    with pytest.raises(StartError, match=r"on 203\.0\.113\.1 cannot be opened: the host is not an address"):
        broker.start()
    assert listening(port) == []


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_default_port_that_one_host_lacks_is_open_on_none(folder: Path, taken: int, transport: str) -> None:
    options = Options(
        folder,
        HOSTS,
        0,
        metrics_port=Unnamed(taken),
        metrics_host=HOSTS,
        tls_port=Unnamed(taken),
        sync="none",
        transport=transport,
    )
    async with Serving(options, FakeClock()) as serving:
        assert [flag for _, flag, _ in serving.left_out] == ["--metrics-port", "--tls-port"]
        assert listening(taken) == [("::1", taken)]


def test_port_0_is_the_same_number_on_each_host() -> None:
    with ExitStack() as closing:
        sockets = [closing.enter_context(one) for one in opened(HOSTS, 0)]
        assert len({one.getsockname()[1] for one in sockets}) == 1
        assert [one.getsockname()[0] for one in sockets] == list(HOSTS)


def test_clients_learn_the_address_of_the_first_host(folder: Path) -> None:
    with EmbeddedBroker(folder, sync="none", host="::1, 127.0.0.1") as broker:
        assert broker.endpoint == f"[::1]:{broker.port}"
        advertised = broker.serving._server._rocketmq.routes._advertised
        assert (advertised.scheme, advertised.addresses[0].host) == (v2.IPv6, "::1")


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        (("10.0.0.5", "10.0.0.5"), "10.0.0.5 is named twice: leave one of them out"),
        (("::1", "0:0:0:0:0:0:0:1"), "0:0:0:0:0:0:0:1 is named twice: leave one of them out"),
        (("queue.example", "Queue.example"), "Queue.example is named twice: leave one of them out"),
        (("10.0.0.5", "::ffff:10.0.0.5"), "::ffff:10.0.0.5 is named twice: leave one of them out"),
        (("0.0.0.0", "10.0.0.5"), "0.0.0.0 covers 10.0.0.5 too: leave 10.0.0.5 out"),
        (("::1", "127.0.0.1", "0.0.0.0"), "0.0.0.0 covers 127.0.0.1 too: leave 127.0.0.1 out"),
        (("0.0.0.0", "::"), ":: covers 0.0.0.0 too: leave 0.0.0.0 out"),
        (("::", "queue.example"), ":: covers queue.example too: leave queue.example out"),
        (("0::0", "::1"), "0::0 covers ::1 too: leave ::1 out"),
        (("0.0.0.0", "::1", "queue.example"), ""),
        (("10.0.0.5", "::1"), ""),
    ],
)
def test_hosts_that_cover_others_are_found(hosts: tuple[str, ...], says: str) -> None:
    assert overlap(hosts) == says


@pytest.mark.parametrize("given", [{"host": ("::", "::1")}, {"metrics_host": ("::1", "::1")}, {"host": "127.0.0.1,"}])
def test_an_embedded_broker_refuses_such_hosts_at_once(folder: Path, given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"leave .* out|a host is empty"):
        EmbeddedBroker(folder, **given)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.process
def test_the_lines_of_the_start_name_each_address(folder: Path) -> None:
    """Through the command line, which knows the settings, too."""
    port, tls_port, http_port, metrics_port = own_port(), own_port(), own_port(), own_port()
    flags = ["--host", "127.0.0.1", "--host", "127.0.0.2,::1", "--port", str(port), "--tls-port", str(tls_port)]
    flags += ["--http-port", str(http_port)]
    flags += ["--metrics-host", "::1", "--metrics-host", "127.0.0.2", "--metrics-port", str(metrics_port)]
    command = [sys.executable, "-c", "from popmq_cli.main import main; main()", "serve", "--data", str(folder), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(4)]
        process.terminate()
        _, log = process.communicate(timeout=CALL_S)
    assert said[0] == f"popmq: ready on 127.0.0.1:{port}, 127.0.0.2:{port}, [::1]:{port}\n"
    assert said[1].startswith(f"popmq: TLS on 127.0.0.1:{tls_port}, 127.0.0.2:{tls_port}, [::1]:{tls_port}: ")
    assert said[2] == (f"popmq: HTTP with JSON on 127.0.0.1:{http_port}, 127.0.0.2:{http_port}, [::1]:{http_port}\n")
    assert said[3] == f"popmq: metrics on [::1]:{metrics_port}, 127.0.0.2:{metrics_port}\n"
    assert "settings: host = 127.0.0.1,127.0.0.2,::1 (--host), " in log.replace(f"data = {folder} (--data), ", "")
