"""The command line in this process against a real broker: arguments in, exit code and both streams out."""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import popmq
from popmq.testing import Broker
from popmq_cli.commands import popmq as command_line

#: What the script `popmq` runs, without depending on where it was installed.
PROGRAM = [sys.executable, "-c", "from popmq_cli.main import main; main()"]


@dataclass(frozen=True)
class Done:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """Its output, one JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Done]


def on_a_terminal(command: list[str], environment: dict[str, str]) -> bytes:
    """What a program writes to a terminal."""
    main, terminal = pty.openpty()
    shown = subprocess.Popen(command, env=environment, stdout=terminal)
    os.close(terminal)
    text = b""
    try:
        while piece := os.read(main, 4096):
            text += piece
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    assert shown.wait(timeout=60) == 0
    os.close(main)
    return text


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`run("topic", "list", stdin=b"…")`."""

    def run(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            command_line(list(arguments), prog_name="popmq")
        out, err = capsysbinary.readouterr()
        return Done(int(ended.value.code or 0), out.decode(errors="replace"), err.decode())

    return run


@pytest.fixture
def broker(popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker, whose endpoint is in POPMQ_ENDPOINT."""
    monkeypatch.setenv("POPMQ_ENDPOINT", popmq_broker.endpoint)
    return popmq_broker


@pytest.fixture
def client(broker: Broker) -> popmq.Client:
    """A client beside the command line, with a topic and a group."""
    client = broker.client()
    client.topics.create("orders", queues=2)
    client.groups.create("billing", max_attempts=3)
    return client
