"""The list of slow tests names tests that exist, and its script judges a test by the mean of its cases."""

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


def test_the_tests_of_the_list_carry_the_marker(request: pytest.FixtureRequest) -> None:
    """Asked of this run, as far as it has collected files."""
    listed = set(LIST.read_text().splitlines())
    here = [item for item in request.session.items if item.nodeid.partition("[")[0] in listed]
    assert all(item.get_closest_marker("slow") for item in here)
