"""A map whose free pages lie apart, for tests of what then finds no adjacent ones."""

import logging

import pytest

from popmq_server.contract import commands as ask
from popmq_server.options import MAX_SIZE_MIN
from tests.engine.conftest import MakeRig
from tests.engine.rig import HOUR, Rig, message, refusal, refusals

LARGE = 300_000


def of(topic: str, size: int, name: str) -> ask.Send:
    entry = message("x" * size, name)
    return ask.Send(topic, (entry,), "", 0, len(entry.data))


@pytest.fixture
def small_map(make_rig: MakeRig, a_chunk_a_commit: None, caplog: pytest.LogCaptureFixture) -> Rig:
    caplog.set_level(logging.CRITICAL, "popmq")
    rig = make_rig(map_bytes=MAX_SIZE_MIN)
    rig.group("g")
    for name in ("keep", "gone", "large", "small"):
        rig.topic(name)
        rig.pop(topic=name)
    rig.do(ask.CreateTopic("later", 1, False, HOUR, "DELAY"))
    return rig


@pytest.fixture
def scattered(small_map: Rig) -> Rig:
    small_map.send("a", "b", "c", topic="small")
    scatter(small_map)
    return small_map


def scatter(rig: Rig) -> None:
    """Topics `keep` and `gone` in turn, a page each, until sends are refused; `gone` is deleted. Then large messages
    take the adjacent pages at the end of the map.
    """
    number = 0
    while not any(refusals(rig.run(of("keep", 3500, f"k{number}"), of("gone", 3500, f"g{number}")))):
        number += 1
    rig.do(ask.DeleteTopic("gone"))
    rig.settle()
    while not refusal(rig.run(of("large", LARGE, f"l{number}"))[0]):
        number += 1
    pages = rig.store.free_pages(1 << 30)
    assert pages is not None
    assert pages.reusable * rig.store.page_bytes > 10 * LARGE, "there is room, but not in one place"
