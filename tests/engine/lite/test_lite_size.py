"""The limit of bytes of a LITE topic: it finds its own chunks by an index, whatever other topics have stored."""

from collections.abc import Callable
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.rules.topics import lite_chunks
from popmq_server.embedded.state.jobs import RETRY_MS
from popmq_server.embedded.store.keys import LITE_INDEX, TOPIC_AT, U32
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.conftest import MakeRig
from tests.engine.faults import Fault, failing
from tests.engine.lites import create, pop, send, sending
from tests.engine.rig import Rig, refusal
from tests.engine.work import calls

#: Chunks of other topics that lie between those of the LITE topic: two sizes, ten times apart.
FEW, MANY = 300, 3000
#: What one more level of a tree and the like may add.
GROWTH_MAX = 1.1
MIB = 1 << 20


def text(number: int, name: str = "ann") -> str:
    return f"{name}:{number}" + "x" * 50_000


def others(rig: Rig, count: int) -> None:
    """Chunks of another topic."""
    rig.topic("busy")
    for _ in range(count):
        rig.send("x", topic="busy")


def filled(rig: Rig, count: int) -> Rig:
    """A LITE topic at its limit, whose first chunk is pinned, and `count` chunks of other topics after it."""
    rig.group("g")
    create(rig, "small", bytes_max=MIB)
    pop(rig, "slow", topic="small")
    send(rig, text(0, "slow"), topic="small")
    others(rig, count)
    for number in range(22):
        fill(rig, number)
    return rig


def fill(rig: Rig, number: int) -> str:
    """Sends a message and finishes it; the code if it is refused."""
    result = rig.run(sending(text(number), topic="small"))[0]
    rig.ack(pop(rig, "ann", topic="small"))
    return refusal(result)


@pytest.fixture
def pair(make_rig: MakeRig, a_chunk_a_commit: None) -> tuple[Rig, Rig]:
    return filled(make_rig("small"), FEW), filled(make_rig("large"), MANY)


ACTIONS: dict[str, Callable[[Rig], Any]] = {
    "a send": lambda rig: fill(rig, 22),
    "a send after a restart": lambda rig: fill(rig, 23),
    "a trim": lambda rig: rig.do(ask.UpdateTopic("small", 0, None, (("bytes_max", MIB - 300_000),))),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ACTIONS)
def test_the_work_of_a_topic_at_its_size_limit_does_not_grow_with_chunks_of_others(
    pair: tuple[Rig, Rig], what: str
) -> None:
    counts = list[int]()
    for rig in pair:
        if "restart" in what:
            rig.restart()
        counts.append(calls(lambda rig=rig: (ACTIONS[what](rig), rig.settle())))  # type: ignore[misc]
    few, many = counts
    assert many < GROWTH_MAX * few, counts


@pytest.mark.slow
def test_no_send_is_refused_because_of_chunks_of_other_topics(make_rig: MakeRig, a_chunk_a_commit: None) -> None:
    rig = filled(make_rig(), MANY)
    assert [fill(rig, number) for number in range(22, 40)] == [""] * 18
    rig.restart()
    assert [fill(rig, number) for number in range(40, 50)] == [""] * 10


# ── The index ────────────────────────────────────────────────────────────────────────────────────────────────────────


def forget(rig: Rig) -> list[tuple[bytes, bytes]]:
    """What a store of an earlier preview has: nothing of the index. Returns the index that there was."""
    before = rig.read("lidx")

    def change(kv: Transaction) -> None:
        kv.delete("meta", LITE_INDEX)
        for key, _ in before:
            kv.delete("lidx", key)

    rig.write(change)
    return before


def indexed(rig: Rig) -> bool:
    return dict(rig.read("meta")).get(LITE_INDEX) == b""


@pytest.mark.slow
def test_a_store_without_the_index_gets_it_in_pieces_over_restarts(
    make_rig: MakeRig, a_chunk_a_commit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_chunks, "LOOKS_MAX", 5)
    rig = filled(make_rig(), 20)
    before = forget(rig)
    for looks in (5, 10, 15, 20, 25):
        rig.crash()
        assert not indexed(rig)
        rig.run()
        assert len(rig.read("lidx")) == min(looks - 1, 20), "one look at the other topic"
        assert rig.findings() == []
    assert (rig.read("lidx"), len(before), indexed(rig)) == (before, 20, True)
    assert [fill(rig, number) for number in range(22, 30)] == [""] * 8


@pytest.mark.slow
def test_a_piece_whose_commit_fails_is_made_again(
    make_rig: MakeRig, a_chunk_a_commit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_chunks, "LOOKS_MAX", 5)
    rig = filled(make_rig(), 5)
    before = forget(rig)
    rig.crash()
    with failing(rig.store, Fault.MAP_ONCE):
        rig.run()
    assert (rig.read("lidx"), indexed(rig)) == ([], False)
    rig.advance(RETRY_MS)
    assert (rig.read("lidx"), indexed(rig)) == (before, True)


def test_the_check_names_what_the_index_lacks_and_what_it_has_too_many(make_rig: MakeRig) -> None:
    rig = make_rig()
    create(rig)
    send(rig, "ann:1")
    ((key, value),) = rig.read("lidx")
    parent_id, position = TOPIC_AT.unpack(key)
    stale = TOPIC_AT.pack(parent_id, position + (1 << 30))
    rig.write(lambda kv: kv.delete("lidx", key))  # type: ignore[arg-type]
    assert any(f"chunk {position} " in finding and "it must be" in finding for finding in rig.findings())
    rig.write(lambda kv: kv.put("lidx", key, U32.pack(parent_id)))
    assert any(f"chunk {position} " in finding and "it must be" in finding for finding in rig.findings())
    rig.write(lambda kv: kv.put("lidx", key, value))
    rig.write(lambda kv: kv.put("lidx", stale, value))
    assert [finding for finding in rig.findings() if "which is gone" in finding]
    rig.write(lambda kv: kv.delete("lidx", stale))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_repaired_store_builds_its_index_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    create(rig)
    send(rig, "ann:1", "bob:1")
    before = rig.read("lidx")
    rig.write(lambda kv: kv.delete("lidx", before[0][0]))  # type: ignore[arg-type]
    rig.core.close()
    repair_folder(rig.folder)
    rig._start()
    rig.settle()
    assert (rig.read("lidx"), len(before)) == (before, 2)
