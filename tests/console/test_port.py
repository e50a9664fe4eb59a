"""What a client costs that opens connections and sends nothing, or half a request, or does not read."""

import socket
import sys
from collections.abc import Iterator

import pytest

from harness.broker_process import own_port
from popmq_console import listening
from popmq_console.listening import CONNECTIONS_PER_ADDRESS, Places, Port
from popmq_console.options import OptionError, Options
from popmq_console.serving import Serving
from tests.console.conftest import SECRET, Browser, Site, console

HALF = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n"
WHOLE = HALF + b"\r\n"
WITHOUT_ITS_BODY = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def short(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a console that waits for a request for a short time."""
    monkeypatch.setattr(listening, "REQUEST_S", 0.2)
    with console(site.broker.endpoint, every_s=0.05) as url:
        yield url


def opened(url: str, sent: bytes, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = Browser(url).netloc.partition(":")
    made = socket.create_connection((host, int(port)), 30, (source, 0))
    made.sendall(sent)
    return made


def read(one: socket.socket) -> bytes:
    """All that comes until the console closes the connection."""
    found = b""
    try:
        while piece := one.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", HALF, WITHOUT_ITS_BODY], ids=["nothing", "half", "no body"])
def test_a_request_that_does_not_arrive_loses_its_connection(short: str, sent: bytes) -> None:
    with opened(short, sent) as waiting:
        assert read(waiting) == b""


@pytest.mark.slow
def test_a_request_behind_another_one_has_to_arrive_too(short: str) -> None:
    with opened(short, WHOLE + WITHOUT_ITS_BODY) as waiting:
        assert read(waiting).count(b"HTTP/1.1 200 OK") == 1
    with opened(short, WHOLE) as waiting:
        assert waiting.recv(12) == b"HTTP/1.1 200"
        waiting.sendall(HALF)
        assert b"HTTP/1.1" not in read(waiting)


@pytest.mark.slow
def test_a_client_that_does_not_read_loses_its_connection(short: str) -> None:
    def ask_without_end(one: socket.socket) -> None:
        while True:
            one.sendall(b"GET /static/console.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1000)

    with opened(short, b"") as deaf, pytest.raises(ConnectionError):
        ask_without_end(deaf)


@pytest.mark.slow
def test_an_open_page_outlives_the_time_of_a_request(short: str) -> None:
    browser = Browser(short)
    browser.log_in("operator", SECRET)
    with browser.follow("/keys") as events:
        assert next(events)[0] == "live"
        for _ in range(10):  # one each 0.05 s
            next(events)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="one address of the loopback only")
def test_a_stranger_with_many_connections_keeps_no_other_address_out(site: Site) -> None:
    with console(site.broker.endpoint) as url:
        held = [opened(url, WHOLE) for _ in range(CONNECTIONS_PER_ADDRESS)]
        assert {one.recv(12) for one in held} == {b"HTTP/1.1 200"}
        with opened(url, WHOLE) as further:
            assert read(further) == b""
        with opened(url, WHOLE, source="127.0.0.2") as other:
            assert other.recv(12) == b"HTTP/1.1 200"
        for one in held:
            one.close()


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half"])
def test_silent_connections_keep_no_visitor_of_their_address_out(site: Site, sent: bytes) -> None:
    with console(site.broker.endpoint) as url:
        held = [opened(url, sent) for _ in range(2 * CONNECTIONS_PER_ADDRESS)]
        for _ in range(3):
            with opened(url, WHOLE) as visitor:
                assert visitor.recv(12) == b"HTTP/1.1 200"
        for one in held:
            one.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_console_on_several_hosts_serves_each_and_counts_connections_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "CONNECTIONS_MAX", 2)
    made = Serving(Options(site.broker.endpoint, hosts=("127.0.0.1", "::1"), port=0))
    assert made.urls == [f"http://127.0.0.1:{made.port}/", f"http://[::1]:{made.port}/"]
    for one in made._sockets:
        one.close()
    with console(site.broker.endpoint, hosts=("127.0.0.1", "::1")) as url:
        number = int(Browser(url).netloc.rpartition(":")[2])
        held = [socket.create_connection((host, number), 30) for host in ("127.0.0.1", "::1")]
        for one in held:
            one.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(15) == b"HTTP/1.1 200 OK"
        with opened(url, WHOLE) as further:
            assert read(further) == b""
        for one in held:
            one.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_console_that_lacks_one_host_opens_none() -> None:
    number = own_port()
    with socket.create_server(("::1", number), family=socket.AF_INET6):
        with pytest.raises(OptionError, match=rf"port {number} on ::1 cannot be opened: Address already in use; name "):
            Serving(Options("127.0.0.1:1", hosts=("127.0.0.1", "::1"), port=number))
        socket.create_server(("127.0.0.1", number)).close()


def port(per_address: int) -> Port:
    return Port(socket.create_server(("127.0.0.1", 0)), Places(per_address))


def test_a_closed_connection_makes_room_for_the_next() -> None:
    with port(1) as listens:
        first, second = (socket.create_connection(listens.getsockname()) for _ in range(2))
        taken, _ = listens.accept()
        listens._places.asked(taken.fileno())
        with pytest.raises(ConnectionAbortedError):
            listens.accept()
        assert second.recv(1) == b""
        taken.close()
        taken.close()
        with socket.create_connection(listens.getsockname()) as third:
            again, _ = listens.accept()
            assert again.getpeername() == third.getsockname()
            again.close()
        first.close()
        second.close()


def test_all_addresses_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "CONNECTIONS_MAX", 3)
    with port(9) as listens:
        held: list[socket.socket] = []
        for _ in range(3):
            held.append(socket.create_connection(listens.getsockname()))
            taken, _ = listens.accept()
            held.append(taken)
            listens._places.asked(taken.fileno())
        with socket.create_connection(listens.getsockname()), pytest.raises(ConnectionAbortedError):
            listens.accept()
        for one in held:
            one.close()


def test_the_oldest_silent_connection_of_the_address_ends_for_a_new_one() -> None:
    with port(2) as listens:
        clients, taken = [], []
        for _ in range(3):
            clients.append(socket.create_connection(listens.getsockname()))
            taken.append(listens.accept()[0])
        assert clients[0].recv(1) == b""
        clients[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            clients[1].recv(1)
        for one in (*clients, *taken):
            one.close()


def test_connections_that_were_asked_to_end_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """They still hold their file: a burst that ended one after the other would use up the files of the process."""
    monkeypatch.setattr(listening, "ENDING_MAX", 1)
    with port(1) as listens:
        clients = [socket.create_connection(listens.getsockname()) for _ in range(4)]
        first, second = listens.accept()[0], listens.accept()[0]
        with pytest.raises(ConnectionAbortedError):
            listens.accept()
        first.close()
        third = listens.accept()[0]
        for one in (*clients, second, third):
            one.close()
