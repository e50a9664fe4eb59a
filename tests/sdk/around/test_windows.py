"""The blocking client without what only POSIX systems have: as on Windows, and as eventlet leaves `select`."""

import select
import subprocess
import sys
import textwrap

import pytest

import popmq
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC
from tests.sdk.programs import started

#: Names that Python has on POSIX systems only, of modules that the SDK or its libraries import.
POSIX = """
    import os, select, signal, socket, sys
    pair, unix = socket.socketpair, socket.AF_UNIX  # Windows has pairs, too: of TCP
    socket.socketpair = lambda: pair(unix)
    gone = {
        os: "fork forkpty register_at_fork getuid geteuid getgid uname",
        select: "poll epoll",
        signal: "SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE setitimer",
        socket: "AF_UNIX",
    }
    for module, names in gone.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in ("fcntl", "grp", "pwd", "resource", "termios"):
        sys.modules[name] = None
"""
PROGRAM = """
    import popmq
    with popmq.Client({endpoint!r}) as client:
        client.send("orders", [b"x" * 3_000_000, b"y"])
        for delivery in client.consume("orders", "billing", until_idle=0.1):
            with delivery:
                print(len(delivery.body), flush=True)
        client.send("orders", b"z")
        client.ack(client.pop("orders", "billing"))
"""


@pytest.mark.promise("statistics")
@pytest.mark.process
def test_a_client_sends_consumes_and_acks_without_the_names_of_posix_systems(
    popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    text = textwrap.dedent(POSIX) + textwrap.dedent(PROGRAM).format(endpoint=popmq_broker.endpoint)
    program = started(
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    )
    out, err = program.communicate(timeout=60)
    assert (program.returncode, sorted(out.split()), err) == (0, ["1", "3000000"], "")
    assert sync_client.broker.stats(TOPIC, GROUP).groups[0].acked == 3


@pytest.mark.promise("statistics")
def test_a_client_works_with_select_alone(
    monkeypatch: pytest.MonkeyPatch, popmq_broker: Broker, sync_client: popmq.Client
) -> None:
    sync_client.close()
    monkeypatch.delattr(select, "poll")
    with popmq.Client(popmq_broker.endpoint) as client:
        client.send(TOPIC, [b"x" * 3_000_000, b"y"])
        client.ack(client.pop(TOPIC, GROUP))
        assert client.broker.stats(TOPIC, GROUP).groups[0].acked == 2
