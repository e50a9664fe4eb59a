"""The mapping of many entries: a dict to whoever uses it, and no single dict of it is ever made much larger."""

import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_server.embedded.store import table
from popmq_server.embedded.store.sharded import SHARDS, Sharded
from popmq_server.embedded.store.table import Table
from tests.engine.rig import Rig, bodies, numbered

#: Bytes of the largest dict that may have to be made larger at once: one of LARGE entries and a commit's.
DICT_BYTES_MAX = 2 << 20


def dicts(mapping: Sharded[int, int]) -> list[dict[int, int]]:
    return [mapping._first, *mapping._shards]


@pytest.mark.slow
@given(
    st.dictionaries(st.integers(0, 9), st.integers()), st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers()))
)
def test_a_sharded_table_holds_the_same_as_a_dict(first: dict[int, int], changes: list[tuple[int, int | None]]) -> None:
    expected, found = dict(first), Sharded(first)
    for key, value in changes:
        if value is None:
            assert found.pop(key, "none") == expected.pop(key, "none")
        else:
            found[key] = expected[key] = value
    assert dict(found.items()) == expected
    assert sorted(found) == sorted(expected)
    assert len(found) == len(expected)
    assert [found.get(key, "none") for key in range(10)] == [expected.get(key, "none") for key in range(10)]
    assert [key in found for key in range(10)] == [key in expected for key in range(10)]


@pytest.mark.slow
def test_a_loaded_shard_is_never_added_to_and_frees_its_memory() -> None:
    first = dict.fromkeys(range(50_000), 0)
    large = sys.getsizeof(first)
    found = Sharded(first)
    for key in range(50_000, 150_000):
        found[key] = 1
    assert sys.getsizeof(first) == large, "a dict that is made larger takes more memory"
    assert max(sys.getsizeof(shard) for shard in dicts(found)[1:]) < 10 * 100_000 // SHARDS * 24
    for key in range(50_000):
        found.pop(key)
    assert max(map(sys.getsizeof, dicts(found))) < large // 100


@pytest.mark.slow
def test_a_table_that_becomes_large_grows_in_shards() -> None:
    many: Table[int, int] = Table()
    largest = 0
    for start in range(0, 100_000, 1000):
        for key in range(start, start + 1000):
            many[key] = key
        many.merge()
        parts = dicts(many._base) if isinstance(many._base, Sharded) else [many._base]
        largest = max(largest, *map(sys.getsizeof, parts))
    assert largest <= DICT_BYTES_MAX
    assert many.committed() == {key: key for key in range(100_000)}


def test_a_table_that_was_loaded_large_is_never_made_larger() -> None:
    many: Table[int, int] = Table()
    loaded = {key: key for key in range(table.LARGE + 1)}
    many.load_all(loaded)
    many[-1] = 1
    many.merge()
    assert (len(loaded), many[-1], len(many.committed())) == (table.LARGE + 1, 1, table.LARGE + 2)


def test_loaded_and_later_leases_are_acked_alike(rig: Rig) -> None:
    rig.pair()
    rig.send(*numbered("m", 6))
    loaded = [row for _ in range(3) for row in rig.pop(1)]
    rig.restart()
    later = [row for _ in range(3) for row in rig.pop(1)]
    rig.ack([loaded[0], later[0]])
    rig.extend([loaded[1], later[1]], 1)
    rig.release([loaded[2], later[2]])
    assert bodies(rig.pop(10)) == ["m2", "m5"]


def test_the_collector_does_not_walk_over_leases() -> None:
    """A dict of numbers is no object to Python's garbage collector; one that it tracks costs it 60 ns an entry."""
    found = Sharded({key: key for key in range(1000)})
    for key in range(1000, 5000):
        found[key] = key
    assert not any(map(gc.is_tracked, dicts(found)))
