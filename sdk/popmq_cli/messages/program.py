"""The shell command of `popmq consume --exec`: one run of it for one message.

The run ends when the shell ends. A process that it has left in the background may keep its streams open and lives on:
therefore they are files, and not pipes, which would end with it, or with us.
"""

import contextlib
import functools
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from typing import IO

import click

from popmq_cli.shared.output import text_of
from popmq_cli.shared.signals import held

#: Bytes at the end of a command's standard error that become the reason of its failure.
REASON_BYTES = 1024
#: Seconds that a command has to end after SIGTERM, before it is killed.
END_S = 1.0
READ_BYTES = 1 << 16


def failure(command: str, body: bytes, variables: Mapping[str, str]) -> str:
    r"""Runs a shell command with this input; returns why it failed, or "".

    What interrupts it, such as a signal, is raised when the command has ended. `variables` of its environment: none can
    have a NUL, so it is written \x00.
    """
    shown = {name: value.replace("\0", r"\x00") for name, value in variables.items()}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(body)
        given.seek(0)
        code = _run(command, given, said, {**os.environ, **shown})
        tail = _passed_on(said)[-REASON_BYTES:]
    if code == 0:
        return ""
    text = (text_of(tail) or "").strip()
    return f"exit code {code}{': ' if text else ''}{text}"


def _run(command: str, given: IO[bytes], said: IO[bytes], environment: Mapping[str, str]) -> int:
    # In a process group of its own, so that all processes of the command can be ended. Not in the foreground of a
    # terminal: the command could not read from it, and Ctrl-C would not reach it.
    group = None if _in_foreground() else 0
    process: subprocess.Popen[bytes] | None = None
    try:
        with held():  # the shell runs before Popen returns: a signal that came in between would leave it behind
            process = subprocess.Popen(
                command, shell=True, stdin=given, stderr=said, env=environment, process_group=group
            )
        return process.wait()
    except BaseException:
        if process is not None:
            _end(process, process.send_signal if group is None else functools.partial(os.killpg, process.pid))
        raise


def _in_foreground() -> bool:
    """Whether a terminal takes this process for what its user works with."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _end(process: "subprocess.Popen[bytes]", send: Callable[[int], None]) -> None:
    with contextlib.suppress(ProcessLookupError):
        send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        send(signal.SIGKILL)  # also those of its processes that ignore SIGTERM
    process.wait()


def _passed_on(said: IO[bytes]) -> bytes:
    """Writes a file to our standard error; returns its last piece, of READ_BYTES at most.

    It does not move the file's position, at which a process in the background may go on to write.
    """
    tail, place = b"", 0
    while piece := os.pread(said.fileno(), READ_BYTES, place):
        click.echo(piece, nl=False, err=True)
        tail, place = (tail + piece)[-READ_BYTES:], place + len(piece)
    return tail
