"""The long search: all machines in turn, until the steps that were asked for are done, or one of them finds something.

    python -m tests.engine.search.searching STEPS [SEED] [MACHINE…]        make search STEPS=500000

Each round gives every machine its examples, with the next seed: the last line of a failure says how to repeat it.
A line for each machine and round; at the end a table. Exit code 1 after a finding.
"""

import logging
import sys
import time
import traceback
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from hypothesis import HealthCheck, Verbosity, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from rich.console import Console
from rich.table import Table

from popmq_server.embedded.store import table
from tests.engine.search.all_machines import MACHINES

STEPS_OF_AN_EXAMPLE = 80
#: Examples of one machine in one round; machines with slow steps are listed here.
EXAMPLES, FEWER = 25, {"Full": 8}
#: Leases are read from the store by odd seeds, as in the tests of the engine, and from memory by even ones.
FEW_RECENT, RECENT_MAX = 2, table.RECENT_MAX


@dataclass
class Searched:
    """What was searched of one machine."""

    steps: int = 0
    seconds: float = 0.0

    def add(self, steps: int, seconds: float) -> None:
        self.steps += steps
        self.seconds += seconds

    @property
    def rate(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0


def counting(machine: type[RuleBasedStateMachine]) -> type[Any]:
    """The same machine, which counts its steps: invariants are checked before the first step and after each."""

    class Counting(machine):  # type: ignore[misc, valid-type]
        steps: ClassVar[int] = 0

        def check_invariants(self, *arguments: Any, **named: Any) -> None:
            super().check_invariants(*arguments, **named)
            Counting.steps += 1

        def teardown(self) -> None:
            Counting.steps -= 1
            super().teardown()

    Counting.__name__ = Counting.__qualname__ = machine.__name__
    return Counting


def search(machine: type[RuleBasedStateMachine], number: int) -> tuple[int, str]:
    """(steps, what was found) of the examples of one seed."""
    counted = counting(machine)
    table.RECENT_MAX = FEW_RECENT if number % 2 else RECENT_MAX
    effort = settings(
        max_examples=FEWER.get(machine.__name__, EXAMPLES),
        stateful_step_count=STEPS_OF_AN_EXAMPLE,
        deadline=None,
        derandomize=False,
        database=None,
        print_blob=False,
        verbosity=Verbosity.normal,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(seed(number)(counted), settings=effort)
    except Exception:
        return counted.steps, traceback.format_exc()
    return counted.steps, ""


def show(console: Console, found: dict[str, Searched]) -> None:
    rows = Table("machine", "steps", "steps a second", title="Long search")
    for name, one in found.items():
        rows.add_row(name, f"{one.steps:,}", f"{one.rate:.0f}")
    rows.add_row("all", f"{sum(one.steps for one in found.values()):,}", "", style="bold")
    console.print(rows)


def run(console: Console, machines: list[type[RuleBasedStateMachine]], steps: int, number: int) -> bool:
    """Runs rounds from this seed on until `steps` are done. True if nothing was found."""
    found = {machine.__name__: Searched() for machine in machines}
    done, finding = 0, ""
    for machine, one, now in ((machine, found[machine.__name__], now) for now in count(number) for machine in machines):
        began = time.monotonic()
        took, finding = search(machine, now)
        one.add(took, time.monotonic() - began)
        done += took
        name = f"{machine.__name__:<12} seed {now:<6}"
        line = f"search: {done:>9,} of {steps:,}  {name} {took:>6,} steps  {one.rate:>4.0f} a second"
        console.print(line, style="red" if finding else "dim", highlight=False)
        if finding:
            console.print(finding, markup=False, highlight=False)
            console.print(f"search: FAIL; again: python -m tests.engine.search.searching 1 {now} {machine.__name__}")
        if finding or done >= steps:
            break
    show(console, found)
    return not finding


def main(asked: list[str]) -> int:
    steps, number = int(asked[0]), int(asked[1]) if len(asked) > 1 else 1
    machines = [one for one in MACHINES if not asked[2:] or one.__name__ in asked[2:]]
    logging.getLogger("popmq").setLevel(logging.CRITICAL)
    return 0 if run(Console(width=None if sys.stdout.isatty() else 120), machines, steps, number) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
