"""The counter of calls that tests of cost rely on."""

from tests.engine.work import calls, grows


def walk(count: int) -> None:
    for number in range(count):
        abs(number)


def test_python_and_c_functions_count_one_each() -> None:
    assert calls(lambda: walk(0)) == 2
    assert calls(lambda: walk(10)) - calls(lambda: walk(0)) == 10


def test_a_walk_over_ten_times_as_much_grows_tenfold_and_a_look_does_not() -> None:
    assert grows(lambda: walk(1_000), lambda: walk(10_000)) > 9
    assert grows(lambda: {1: 2}.get(1), lambda: dict.fromkeys(range(9)).get(1)) < 3
