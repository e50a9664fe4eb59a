"""The list of slow tests names tests that exist, and its script judges a test by the mean of its cases."""

import subprocess
import sys

import pytest

from scripts.slow_tests import LIST, slow, times
from tests.mechanisms import ROOT, functions

REPORT = """<testsuites><testsuite>
<testcase classname="tests.wire.test_a" name="test_one[first]" time="0.1"/>
<testcase classname="tests.wire.test_a" name="test_one[second]" time="0.5"/>
<testcase classname="tests.wire.test_a" name="test_two" time="0.25"/>
<testcase classname="" name="tests/wire/test_b.py" time="9"/>
</testsuite></testsuites>"""


def test_every_test_of_the_list_exists() -> None:
    names = [line.split("::") for line in LIST.read_text().splitlines()]
    assert [name for name in names if not (ROOT / name[0]).exists() or name[1] not in functions(ROOT / name[0])] == []


@pytest.mark.parametrize(
    ("over_s", "named"), [(0.2, ["test_one", "test_two"]), (0.28, ["test_one"]), (0.3, [])], ids=str
)
def test_a_test_is_slow_by_the_mean_of_its_cases(over_s: float, named: list[str]) -> None:
    assert slow(times(REPORT), over_s) == [f"tests/wire/test_a.py::{name}" for name in named]


@pytest.mark.process
def test_quick_tests_leave_out_those_of_the_list() -> None:
    """Asked of another run of pytest, for the file with the first test of the list."""
    listed = LIST.read_text().splitlines()
    file = listed[0].partition("::")[0]
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    told = subprocess.run([sys.executable, "-m", "pytest", *options, file], cwd=ROOT, capture_output=True, text=True)
    quick = {line.partition("[")[0] for line in told.stdout.splitlines() if "::" in line}
    assert quick, told.stdout[-2000:]
    assert quick.isdisjoint(listed)
