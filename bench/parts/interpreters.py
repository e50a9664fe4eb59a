"""The same work on each Python of this machine, as two tables: over sockets, and one request after another in memory.

    make bench-interpreters                                  every Python from 3.11 on that is found
    python -m bench.parts.interpreters /usr/bin/python3.11 …       these

The broker runs on the interpreter that is measured, with PopMQ and its dependencies in a folder of build/bench/python.
The load generator is that of bench/compare.py, the same for all; requests in memory are those of one_request.py, in a
process of the interpreter. A round takes all of them in turn.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.compare import SEND_1, SEND_256, TAKE_1, TAKE_256, Figure, Subject, one_round
from bench.parts import one_request
from bench.peers import brokers, install
from bench.peers.install import BUILT, Missing
from harness.broker_process import ROOT
from scripts import interpreters

SECONDS, ROUNDS = 4.0, 3
#: The order matters: receiving legs read the messages of the sending legs.
WORKS = (SEND_1, SEND_256, TAKE_256, TAKE_1)
#: Printed by the interpreter that is measured.
ASKED = """
import json, sys
from popmq_server.process import interpreter
pgo = {True: "PGO", False: "no PGO", None: "PGO not named"}[interpreter.optimized()]
form = "shared library" if "libpython" in interpreter.program().name else "one program"
print(json.dumps({"version": sys.version.split()[0], "build": f"{form}, {pgo}"}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and the folder that has PopMQ for it. `build`: its form, and whether it is known to be optimized."""

    python: Path
    modules: Path
    version: str
    build: str

    @property
    def name(self) -> str:
        return f"{self.version}, {self.build}"


def prepared(python: Path) -> Interpreter:
    """This Python, with PopMQ installed for it. Raises Missing."""
    modules = BUILT / "python" / python.as_posix().strip("/").replace("/", "-")
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--upgrade"]
    install.run([*pip, "--target", str(modules), f"{ROOT}[server]"])
    told = json.loads(install.run([python, "-c", ASKED], environment={"PYTHONPATH": str(modules)}))
    return Interpreter(python, modules, told["version"], told["build"])


def chosen(named: Sequence[Path]) -> Iterator[Interpreter]:
    """Those that are named, else all that are found; one that cannot have PopMQ is reported and left out."""
    minors = range(interpreters.OLDEST[1], interpreters.NEWEST[1])
    for python in named or [path for minor in minors for path in interpreters.found(minor)]:
        try:
            yield prepared(python)
        except Missing as reason:
            tell(f"{python} is left out: {reason}")


def measured(subjects: Sequence[Interpreter], rounds: int, seconds: float, scratch: Path) -> Iterator[Figure]:
    """The figures of all rounds."""
    for number in range(1, rounds + 1):
        for one in subjects:
            tell(f"round {number} of {rounds}, {one.name}")
            subject = Subject(brokers.popmq("python", one.python, one.modules), {"popmq": WORKS})
            yield from one_round(f"popmq: {one.name}", subject, number, scratch, seconds, tell)


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Messages a second, the median of the rounds; µs of the broker's CPU for each message, the least of them.

    Beside other programs the same work takes more CPU, never less.
    """
    yield "| Python | " + " | ".join(work.name for work in WORKS) + " |"
    yield "|---|" + "--:|" * len(WORKS)
    for broker in dict.fromkeys(one.broker for one in figures):
        cells = [_cell([one for one in figures if (one.broker, one.work) == (broker, work.name)]) for work in WORKS]
        yield f"| {broker.removeprefix('popmq: ')} | {' | '.join(cells)} |"


def least_us(subjects: Sequence[Interpreter], rounds: int) -> dict[str, dict[str, float]]:
    """The least CPU of a request in memory, for each message, by interpreter and leg."""
    found: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for one in subjects:
            paths = {"PYTHONPATH": f"{one.modules}:{ROOT}"}
            told = json.loads(install.run([one.python, "-m", one_request.__name__], environment=paths))
            known = found.setdefault(one.name, told)
            known.update({leg: min(us, known[leg]) for leg, us in told.items()})
    return found


def table_of_least(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Microseconds for each message."""
    yield f"| Python | {' | '.join(one_request.LEGS)} |"
    yield "|---|" + "--:|" * len(one_request.LEGS)
    for name, legs in found.items():
        yield f"| {name} | {' | '.join(f'{legs[leg]:.1f}' for leg in one_request.LEGS)} |"


def _cell(rounds: Sequence[Figure]) -> str:
    if not rounds:
        return "–"
    return f"{median(one.messages_per_s for one in rounds):,.0f} · {min(one.server_us for one in rounds):.1f}"


def tell(what: str) -> None:
    print(f"bench-interpreters: {what}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.parts.interpreters", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("pythons", nargs="*", type=Path, help="only these")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each leg")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="popmq-interpreters-") as scratch:
        subjects = list(chosen(options.pythons))
        figures = list(measured(subjects, options.rounds, options.seconds, Path(scratch)))
    print("\n".join(table(figures)), "\n".join(table_of_least(least_us(subjects, options.rounds))), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
