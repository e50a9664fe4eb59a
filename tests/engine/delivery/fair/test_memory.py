"""The memory of what waits by key: at most 200 bytes for a key, 22 for each further message."""

import tracemalloc
from collections.abc import Callable

from popmq_server.embedded.rules.delivery.fair.keys import number_of
from popmq_server.embedded.rules.delivery.fair.waiting import WaitingKeys, place_of

KEYS = 200_000


def bytes_of(fill: Callable[[WaitingKeys], object]) -> int:
    """The bytes that stay allocated."""
    number_of.cache_clear()
    tracemalloc.start()
    try:
        keys = WaitingKeys()
        fill(keys)
        number_of.cache_clear()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_key_with_a_message_takes_less_than_200_bytes() -> None:
    def fill(keys: WaitingKeys) -> None:
        for number in range(KEYS):
            keys.add(0, number_of(b"tenant-%d" % number), None, place_of(number % 8, number, 300))

    assert bytes_of(fill) / KEYS <= 200


def test_a_further_message_takes_less_than_22_bytes() -> None:
    def fill(keys: WaitingKeys) -> None:
        number = number_of(b"acme")
        for offset in range(KEYS):
            keys.add(0, number, None, place_of(offset % 8, offset, 300))

    assert bytes_of(fill) / KEYS <= 22


def test_what_was_taken_is_used_again() -> None:
    keys = WaitingKeys()
    for round_ in range(50):
        for number in range(100):
            keys.add(0, number_of(b"%d" % (100 * round_ + number)), None, place_of(0, number, 300))
        root = keys.roots[0]
        slots = [keys.slot(number_of(b"%d" % (100 * round_ + number))) for number in range(100)]
        keys.set_ring(root, 0, [])
        for slot in slots:
            keys.take_up_to(slot, keys.first[slot], 0, 1)
            keys.drop(slot)
    assert (keys.messages, keys.keys) == (0, 0)
    assert (len(keys.place), len(keys.number)) == (101, 102)
