"""Plays a newcomer: a fresh environment, the commands of the README, then every page with every command and sample.

    python scripts/newcomer.py      a table of the steps; exit code 1 if one failed or took longer than its budget

The clock runs from `pip install` to the first message that is on the broker's disk: once without cached packages, once
with pip's cache. On that installation the tutorial is typed into Python's shell, the README's program runs in uvloop,
`popmq serve` and `popmq consume` run as the first process of a container does and are stopped, and the pages are read
in the order of the README's links (tests/test_docs.py) and run as files (tests/release/test_samples.py).
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
#: Seconds from `pip install` to the first durable message. Cached, two cores need 12: 3 for the wheel of the clone, the
#: rest for pip, which unpacks and compiles 20 packages (Pygments, which rich brings, has 343 modules).
COLD_S, WARM_S = 30.0, 15.0
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


def timed(what: str, command: list[str | Path], cwd: Path, wrong: str = "", text: str = "") -> Step:
    """A command that has to end with 0 within a minute, and without `wrong` on its standard error."""
    began = time.monotonic()
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, input=text, capture_output=True, text=True, timeout=60, check=False)
    good = done.returncode == 0 and not (wrong and re.search(wrong, done.stderr))
    if not good:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    return Step(what, time.monotonic() - began, good)


def samples(page: Path, endpoint: str) -> list[str]:
    """The Python blocks of a page, for a broker at `endpoint`."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block.replace(ENDPOINT, endpoint) for block in blocks]


IN_UVLOOP = """
import sys, popmq, uvloop
async def main():
    async with popmq.AsyncClient(sys.argv[1]) as client:
        await client.send("loops", ["one", "two"])
        async for delivery in client.consume("loops", "loops", until_idle=0.5):
            async with delivery:
                print(delivery.text())
uvloop.run(main())
"""


def in_other_ways(prefix: Path) -> Iterator[Step]:
    """The shell, another event loop, and the first process of a container."""
    run(prefix / "bin/pip", "install", "--quiet", "uvloop")
    with serving(prefix / "bin/popmq", prefix / "other-data") as endpoint:
        yield timed(
            "the README's program", [prefix / "bin/python", "-c", samples(ROOT / "README.md", endpoint)[0]], prefix
        )
        typed = "\n\n".join(samples(ROOT / "docs/tutorial.md", endpoint)) + "\n\n"
        # The tutorial's failing handler is logged with its traceback, which is not an error of the reader.
        wrong = "SyntaxError|IndentationError|NameError|AssertionError"
        shell: list[str | Path] = [prefix / "bin/python", "-i", "-q"]
        yield timed("the tutorial, typed into a shell", shell, prefix, wrong, typed)
        for kind in ("topic", "group"):
            run(prefix / "bin/popmq", "--endpoint", endpoint, kind, "create", "loops")
        yield timed("uvloop", [prefix / "bin/python", "-c", IN_UVLOOP, endpoint], prefix)
        if os.geteuid() == 0 and shutil.which("unshare"):
            run(prefix / "bin/popmq", "--endpoint", endpoint, "send", "loops", "three")
            yield first_process("popmq consume --follow", prefix, ["consume", "loops", "loops", "--follow"], endpoint)
            data = ["serve", "--data", str(prefix / "pid-1"), "--port", "0", "--tls-port", "0", "--metrics-port", "0"]
            yield first_process("popmq serve", prefix, data, endpoint)


def first_process(what: str, prefix: Path, words: list[str], endpoint: str) -> Step:
    """A command as process 1 of a namespace, where a signal without a handler has no effect: SIGTERM ends it.

    Its first line of output shows that it works; the signal comes then.
    """
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", str(prefix / "bin/popmq"), *words]
    environment = {**os.environ, "POPMQ_ENDPOINT": endpoint}
    with subprocess.Popen(
        command, cwd=prefix, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as outer:
        assert outer.stdout is not None
        works = outer.stdout.readline()
        began = time.monotonic()
        for child in Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)
        try:
            outer.wait(10)
            good = bool(works)
        except subprocess.TimeoutExpired:
            outer.kill()
            good = False
    return Step(f"{what} as process 1 ends at SIGTERM", time.monotonic() - began, good)


def pages(prefix: Path) -> Iterator[Step]:
    """Every page on one broker, by the installed wheel; then each as a file."""
    run(prefix / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "pip")
    run(prefix / "bin/pip", "install", "--quiet", "--group", "test", "pandas", "pyarrow")  # the notebook's page
    tests = [
        "tests/test_docs.py",
        "tests/release/test_samples.py",
        "-k",
        "pages_read or run_as_a_file",
        "-q",
        "-p",
        "no:cacheprovider",
        "--durations=0",
        "-vv",
    ]
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
        steps += in_other_ways(folder / "warm")
        steps += pages(folder / "warm")
    except Failed as failed:
        print(failed, file=sys.stderr)
        steps.append(Step(str(failed).partition("\n")[0], 0.0, False))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if shown(steps) else 1


if __name__ == "__main__":
    sys.exit(main())
