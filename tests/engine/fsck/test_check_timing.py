"""`popmq check` of delayed and half messages: each way to break them is found, and told."""

from collections.abc import Callable

import pytest

from popmq_server.embedded.fsck.check import check
from popmq_server.embedded.state import loading
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import (
    HALF_KEY,
    HDUE_KEY,
    TDONE_KEY,
    U32,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.records import TopicStat
from tests.engine.conftest import MakeRig
from tests.engine.rig import HOUR, Rig
from tests.engine.traffic.traffic_timing import later, send, timed_pair

Break = Callable[[Transaction], object]


def first(kv: Transaction, name: str) -> tuple[bytes, bytes]:
    found = kv.first(name)
    assert found is not None
    return found[0], bytes(found[1])


def drop(name: str) -> Break:
    return lambda kv: kv.delete(name, first(kv, name)[0])


def flip(name: str) -> Break:
    """The last byte of the first value is another one."""

    def change(kv: Transaction) -> None:
        key, raw = first(kv, name)
        kv.put(name, key, raw[:-1] + bytes((raw[-1] ^ 1,)))

    return change


def of_topic(name: str, place: int) -> Break:
    """A copy of the first entry under the key of a topic that is not there."""

    def change(kv: Transaction) -> None:
        key, raw = first(kv, name)
        kv.put(name, key[:place] + U32.pack(99) + key[place + 4 :], raw)

    return change


def count(**changed: int) -> Break:
    def change(kv: Transaction) -> None:
        state = State()
        loading.load(state, kv)
        (topic_id,) = (topic_id for topic_id, stat in state.topic_stat.items() if stat.delayed)
        stat: TopicStat = state.topic_stat[topic_id]
        state.topic_stat[topic_id] = stat._replace(**changed)
        state.topic_stat.flush(kv)

    return change


def counters(kv: Transaction) -> None:
    """Numbers that were never given out."""
    state = State()
    loading.load(state, kv)
    state.counters[""] = state.counters[""]._replace(sched_id=1, txn_id=1)
    state.counters.flush(kv)


def ended(kv: Transaction) -> None:
    kv.put("tdone", TDONE_KEY.pack(1, HALF_KEY.unpack(first(kv, "half")[0])[1]), bytes(30))


def later_check(kv: Transaction) -> None:
    topic_id, _, txn_id = HDUE_KEY.unpack(first(kv, "hdue")[0])
    kv.put("hdue", HDUE_KEY.pack(topic_id, 1 << 60, txn_id), b"")


BROKEN: dict[str, tuple[Break, str]] = {
    "a delayed message is gone": (drop("sched"), "which is not there"),
    "a delayed message is not its topic's": (drop("tsched"), "is not among those of its topic"),
    "its id is another one": (flip("tsched"), "is not among those of its topic"),
    "its bytes are damaged": (flip("sched"), "the delayed message 2 of topic 1 does not match its checksum"),
    "its topic is not there": (of_topic("sched", 17), "belongs to no topic"),
    "its count is wrong": (count(delayed=5), "t: 2 delayed, 2 half messages, counted (5, 2)"),
    "the count of half messages is wrong": (count(half=0), "t: 2 delayed, 2 half messages, counted (2, 0)"),
    "numbers were not given out": (counters, "the delayed message 1 of topic 1 has a number that was never assigned"),
    "numbers of transactions neither": (counters, "the half message 1 of topic 1 has a number that was never assigned"),
    "a half message is gone": (drop("half"), "belong to no half message"),
    "a check has no half message": (drop("half"), "is not its next one"),
    "its bytes are gone": (drop("hmsg"), "the half message 1 of topic 1 has no bytes"),
    "the bytes of a half message are damaged": (flip("hmsg"), "or they do not match their checksum"),
    "nobody looks at it": (drop("hdue"), "the half message 1 of topic 1 has no next check"),
    "it is looked at twice": (later_check, "is not its next one"),
    "the topic of a half message is not there": (of_topic("half", 0), "belongs to no topic"),
    "it ended, and is there": (ended, "the transaction 1 has ended, and its half message is still there"),
}


@pytest.fixture
def filled(make_rig: MakeRig) -> Rig:
    rig = make_rig()
    timed_pair(rig)
    messages = [later("a", delay_ms=HOUR), later("b", due_ms=rig.now + HOUR)]
    send(rig, *messages, later("c", transaction=True), later("d", transaction=True))
    return rig


@pytest.mark.slow
def test_fsck_finds_nothing_in_a_sound_store(filled: Rig) -> None:
    assert filled.findings() == []


@pytest.mark.parametrize("how", BROKEN)
def test_fsck_reports_each_kind_of_damage(filled: Rig, how: str) -> None:
    """In a transaction that is thrown away: the store is sound for the next one."""
    change, sentence = BROKEN[how]
    kv = filled.store.begin()
    try:
        change(kv)
        found = list(check(kv))
    finally:
        kv.abort()
    assert any(sentence in line for line in found), found
