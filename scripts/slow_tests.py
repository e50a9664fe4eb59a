"""Writes tests/slow.txt: the tests that `make test` and `make check-fast` leave to `make test-all`.

    make test-all                                        leaves the time of every test in build/tests.xml
    python scripts/slow_tests.py build/tests.xml         names the tests above the limit
    python scripts/slow_tests.py build/*.xml --over 1.0  the same with another limit, for a slower machine

A test of many cases is judged by their mean, and is in the list with all of them.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).parent.parent / "tests" / "slow.txt"
#: Seconds, on a machine on which `make test-all` takes 20 minutes.
OVER_S = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="what pytest --junitxml wrote")
    parser.add_argument("--over", type=float, default=OVER_S, metavar="SECONDS", help="the limit (%(default)s)")
    options = parser.parse_args()
    found = slow((test for report in options.reports for test in times(report.read_text())), options.over)
    LIST.write_text("".join(f"{name}\n" for name in found))
    sys.stdout.write(f"slow_tests: {len(found)} tests take more than {options.over} s\n")


def times(report: str) -> Iterable[tuple[str, float]]:
    """(name, seconds) of each case of a report; the name is that of its test, as pytest takes it."""
    for case in ElementTree.fromstring(report).iter("testcase"):
        file, name = case.get("classname", "").replace(".", "/"), case.get("name", "").partition("[")[0]
        if file and name:
            yield f"{file}.py::{name}", float(case.get("time", 0))


def slow(cases: Iterable[tuple[str, float]], over_s: float) -> list[str]:
    """The names of the tests whose cases take more than `over_s` seconds in the mean, sorted."""
    taken = defaultdict[str, list[float]](list)
    for name, seconds in cases:
        taken[name].append(seconds)
    return sorted(name for name, each in taken.items() if sum(each) / len(each) > over_s)


if __name__ == "__main__":
    main()
