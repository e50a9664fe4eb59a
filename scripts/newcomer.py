"""Plays a newcomer: a fresh environment, the commands of the README, then every page with every command and sample.

    python scripts/newcomer.py      a table of the steps; exit code 1 if one failed or took longer than its budget

The clock runs from `pip install` to the first message that is on the broker's disk: once without cached packages, once
with pip's cache. Then tests/test_docs.py reads the pages in the order of the README's links, on that installation.
"""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
#: Seconds from `pip install` to the first durable message.
COLD_S, WARM_S = 30.0, 10.0
#: The README's endpoint: the newcomer has no other broker, this machine may.
ENDPOINT = "127.0.0.1:8081"


class Step(NamedTuple):
    """A row of the table. `budget` 0: it has to work, however long it takes."""

    what: str
    seconds: float
    good: bool
    budget: float = 0.0


class Failed(Exception):
    """A command that ended otherwise than the page says."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command printed. Raises Failed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))[:120]}:\n{done.stdout}{done.stderr}")
    return done.stdout


def first_lines(endpoint: str) -> str:
    """The README's program up to its first send: the rest of it reads."""
    program = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[0]
    lines = program.replace(ENDPOINT, endpoint).splitlines()
    send = next(place for place, line in enumerate(lines) if ".send(" in line)
    return "\n".join(lines[: send + 1])


@contextlib.contextmanager
def serving(binary: Path, folder: Path) -> Iterator[str]:
    """`popmq serve` on free ports; yields its endpoint without waiting for it: the client does."""
    port, metrics = free_port(), free_port()
    flags = ["--data", str(folder), "--port", str(port), "--tls-port", "0", "--metrics-port", str(metrics)]
    with subprocess.Popen([str(binary), "serve", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as broker:
        try:
            yield f"127.0.0.1:{port}"
        finally:
            broker.terminate()
            broker.wait(30)


def free_port() -> int:
    """A port of the loopback that is free at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def first_message(prefix: Path, what: str, budget: float, *options: str) -> Step:
    """A fresh environment, and the clock from `pip install` to the first durable message."""
    run(sys.executable, "-m", "venv", prefix)
    began = time.monotonic()
    run(prefix / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *options, f"{ROOT}[server]")
    with serving(prefix / "bin/popmq", prefix / "popmq-data") as endpoint:
        run(prefix / "bin/python", "-c", first_lines(endpoint), cwd=prefix)
        seconds = time.monotonic() - began
    return Step(what, seconds, True, budget)


def pages(prefix: Path) -> Iterator[Step]:
    """Every page on one broker, by the installed wheel."""
    run(prefix / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "pip")
    run(prefix / "bin/pip", "install", "--quiet", "--group", "test")
    tests = ["tests/test_docs.py", "-k", "pages_read", "-q", "-p", "no:cacheprovider", "--durations=0", "-vv"]
    done = subprocess.run([prefix / "bin/pytest", *tests], cwd=ROOT, capture_output=True, text=True, check=False)
    took = re.findall(r"([\d.]+)s call +\S*\[([\w.-]+)\]", done.stdout)
    seconds = {page: float(number) for number, page in took}
    for page, outcome in re.findall(r"\[([\w.-]+)\] (PASSED|FAILED|ERROR)", done.stdout):
        yield Step(page, seconds.get(page, 0.0), outcome == "PASSED")
    if done.returncode:
        print(done.stdout[-4000:], file=sys.stderr)
        yield Step("the pages as a whole", 0.0, False)


def shown(steps: list[Step]) -> bool:
    """Prints the table; whether all is well."""
    good = True
    for step in steps:
        fine = step.good and (not step.budget or step.seconds <= step.budget)
        budget = f"≤ {step.budget:.0f} s" if step.budget else ""
        print(f"{'ok  ' if fine else 'FAIL'}  {step.seconds:7.1f} s  {budget:8}  {step.what}", flush=True)
        good = good and fine
    return good


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="popmq-newcomer-"))
    steps = list[Step]()
    try:
        steps.append(first_message(folder / "cold", "pip install to first message", COLD_S, "--no-cache-dir"))
        run(sys.executable, "-m", "venv", folder / "filling")
        run(folder / "filling/bin/pip", "install", "--quiet", f"{ROOT}[server]")
        steps.append(first_message(folder / "warm", "the same with cached packages", WARM_S))
        steps += pages(folder / "warm")
    except Failed as failed:
        print(failed, file=sys.stderr)
        steps.append(Step(str(failed).partition("\n")[0], 0.0, False))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if shown(steps) else 1


if __name__ == "__main__":
    sys.exit(main())
