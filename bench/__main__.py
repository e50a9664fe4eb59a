"""Measures a broker, and compares the figures with the floors of floors.py.

    make bench                          the whole bench, some minutes
    python -m bench --quick             under two minutes
    python -m bench --part spark --backlog 5000000
    python -m bench --part local-spark  the connector in a real Spark

Parts measure a broker process through its ports; `resting` alone runs the engine in this process. Exit code 1 when a
floor does not hold. Close other programs first: they change the figures.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.measuring.measure import machine
from bench.parts import legs, local_spark, report, resting, semantics, spark
from bench.parts.legs import Effort, Results

PARTS = {
    "throughput": legs.everything,
    "semantics": semantics.everything,
    "resting": resting.everything,
    "spark": spark.everything,
    "local-spark": local_spark.everything,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter legs; the same floors")
    parser.add_argument("--backlog", type=int, metavar="N", help="messages of the deep backlogs; else 1,000,000")
    parser.add_argument("--part", choices=PARTS, help="only this part")
    folder = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=folder, help="folder of results.json and results.png")
    parser.add_argument("--scratch", help="where the data folders go: the disk that is measured")
    options = parser.parse_args()
    if sys.platform != "linux":
        parser.error("CPU and memory of the broker are read from /proc: this needs Linux")
    console = Console(width=None if sys.stdout.isatty() else 132)
    with tempfile.TemporaryDirectory(prefix="popmq-bench-", dir=options.scratch) as scratch:
        measured_on = machine(Path(scratch))
        effort = Effort.quick() if options.quick else Effort()
        effort.backlog = options.backlog or effort.backlog
        results = Results()
        for name, part in PARTS.items():
            if options.part in (None, name):
                part(Path(scratch), effort, results, lambda what: console.print(f"bench: {what} …", style="dim"))
    report.show(console, measured_on, results)
    report.save(options.out / "results.json", measured_on, results)
    report.plot(options.out / "results.png", results)
    console.print(f"bench: {options.out / 'results.json'}", style="dim")
    return 0 if all(floor.holds for floor in results.floors) else 1


if __name__ == "__main__":
    sys.exit(main())
