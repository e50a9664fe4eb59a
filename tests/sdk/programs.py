"""Programs that a test starts; those left running by a failing test are killed."""

import os
import subprocess
import sys
import textwrap

from popmq.testing import Broker

#: A program that handles messages until it is told to stop; `{loop}` is consume or pull_consume.
STOPPED_BY_A_SIGNAL = """
    import signal, popmq
    with popmq.Client({endpoint!r}) as client:
        consumer = client.{loop}("orders", "billing")
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        for delivery in consumer:
            with delivery:
                print(delivery.text(), flush=True)
    print("stopped", flush=True)
"""

_STARTED: list[subprocess.Popen[str]] = []


def started(program: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Notes a program that the test has started."""
    _STARTED.append(program)
    return program


def end_all() -> None:
    """Kills the programs that still run."""
    while _STARTED:
        program = _STARTED.pop()
        if program.poll() is None:
            program.kill()
            program.communicate()


def python(code: str, broker: Broker, transport: str = "") -> subprocess.Popen[str]:
    """Runs a program, in which `{endpoint!r}` is the broker's."""
    code, pipe = textwrap.dedent(code).format(endpoint=broker.endpoint), subprocess.PIPE
    environment = os.environ | ({"POPMQ_CLIENT_TRANSPORT": transport} if transport else {})
    return started(
        subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
    )


def line(worker: subprocess.Popen[str]) -> str:
    """The next line that a program prints."""
    assert worker.stdout
    return worker.stdout.readline().strip()
