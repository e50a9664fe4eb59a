"""What a splice keeps of a value, and that it makes the value again."""

import random

import pytest

from popmq_server.embedded.store.journal.splices import splice, whole


def made_again(before: bytes, after: bytes, last: int) -> int:
    """The length of the splice, which makes the value again."""
    found = splice(before, after, last)
    assert found is not None
    assert whole(before, found) == after
    return len(found)


def some(count: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(count)


@pytest.mark.parametrize("last", [0, 4])
def test_a_value_that_grows_is_spliced_from_its_new_bytes(last: int) -> None:
    before = some(20_000)
    after = before[: len(before) - last] + some(1_000, 1)
    assert made_again(before, after, last) < 1_020


def test_a_value_with_another_head_and_one_more_row_is_spliced_from_these() -> None:
    rows = some(3_000)
    assert made_again(some(17, 1) + rows, some(17, 2) + rows + some(20, 3), 0) < 100


def test_a_value_with_a_row_in_its_middle_is_spliced_from_it() -> None:
    rows = some(3_000)
    before = some(20, 1) + rows + some(4, 2)
    after = some(20, 3) + rows[:1_200] + some(12, 4) + rows[1_200:] + some(4, 5)
    assert made_again(before, after, 4) < 100


def test_a_value_that_is_all_new_has_no_splice() -> None:
    assert splice(some(2_000, 1), some(2_000, 2), 0) is None
    assert splice(some(10, 1), some(2_000, 2), 4) is None


def test_a_row_that_was_cut_gives_no_value() -> None:
    before = some(2_000)
    found = splice(before, before + b"more", 0)
    assert found is not None
    assert whole(before[:1_999], found) is None


@pytest.mark.parametrize("last", [0, 4])
def test_any_change_of_a_value_is_made_again(last: int) -> None:
    chance = random.Random(last)
    for _ in range(3_000):
        before = bytes(chance.choices(b"ab", k=chance.randrange(4, 200)))
        at, stop = sorted(chance.choices(range(len(before) + 1), k=2))
        after = before[:at] + bytes(chance.choices(b"ab", k=chance.randrange(4, 9))) + before[stop:]
        found = splice(before, after, last)
        if found is not None:
            assert whole(before, found) == after
