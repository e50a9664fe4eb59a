"""Programs that a test starts; those left running by a failing test are killed."""

import subprocess

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
