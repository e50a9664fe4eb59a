"""Starts: where a group begins in a topic, and what the broker reads before it opens its port."""

from collections.abc import Iterator
from unittest import mock

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck.check import check
from popmq_server.embedded.state import loading
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.store import reading
from popmq_server.errors import StartError
from tests.engine.conftest import MakeRig
from tests.engine.rig import SECOND, Rig, bodies, deliveries, numbered, sending

# ── Where a group begins ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S3.10")
def test_a_group_begins_with_the_first_message(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.send("a")
    rig.group()
    assert bodies(rig.pop()) == ["a"]


@pytest.mark.mechanism("S3.09")
def test_a_group_that_begins_at_the_latest_gets_exactly_the_later_messages(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.send("old")
    rig.group(start_from="LATEST")
    assert rig.pop() == []
    rig.send("a")
    rig.send("b")
    assert sorted(bodies(rig.pop())) == ["a", "b"]


@pytest.mark.mechanism("S3.11")
@pytest.mark.parametrize("since_s", range(-1, 7))
def test_a_group_that_begins_at_a_time_gets_messages_stored_at_or_after_it(rig: Rig, since_s: int) -> None:
    rig.topic(queues=2)
    start = rig.now
    for text in "abcdef":
        rig.send(text)
        rig.skip(SECOND)
    rig.group(start_from="TIMESTAMP", start_ms=start + since_s * SECOND)
    assert sorted(bodies(rig.pop())) == list("abcdef")[max(0, since_s) :]


def test_a_damaged_message_does_not_move_the_begin_at_a_time(rig: Rig) -> None:
    rig.topic()
    for text in "abcde":
        rig.send(text)
    rig.damage(2)
    rig.group(start_from="TIMESTAMP", start_ms=1)
    assert bodies(rig.pop()) == ["a", "b", "d", "e"]


@pytest.mark.mechanism("S2.31")
@pytest.mark.parametrize("name", ["pop", "available", "attach"])
def test_the_begin_is_fixed_when_the_group_first_names_the_topic(rig: Rig, name: str) -> None:
    rig.topic()
    rig.send("old")
    rig.group(start_from="LATEST")
    names = {
        "pop": ask.Pop("t", "g"),
        "available": ask.Available("t", "g"),
        "attach": ask.AttachOwner("g", "o", SECOND, "t"),
    }
    rig.do(names[name])
    rig.send("new")
    rig.restart()
    assert bodies(rig.pop()) == ["new"]


@pytest.mark.mechanism("S3.12")
def test_an_owner_may_say_where_its_group_begins_once(rig: Rig) -> None:
    rig.topic()
    rig.send("old")
    rig.group()
    rig.attach(topic="t", start=("LATEST", 0))
    rig.attach(topic="t", start=("EARLIEST", 0))
    assert rig.pop() == []


def test_a_queue_that_is_added_later_is_read_from_its_first_message(rig: Rig) -> None:
    rig.topic(queues=1)
    rig.group(start_from="LATEST")
    rig.pop()
    rig.do(ask.UpdateTopic("t", 3, None))
    for text in "abc":
        rig.send(text)
    rig.restart()
    assert sorted(bodies(rig.pop())) == ["a", "b", "c"]


def test_counters_start_where_the_group_does(rig: Rig) -> None:
    rig.topic()
    rig.send("a", "b")
    rig.group(start_from="LATEST")
    rig.pop()
    assert (rig.numbers().ready, rig.numbers().acked, rig.numbers().dropped) == (0, 0, 0)


# ── What a start reads ───────────────────────────────────────────────────────────────────────────────────────────────


class Reads:
    """Counts the reads of a transaction."""

    def __init__(self) -> None:
        self.count = 0

    def counting(self, name: str) -> object:
        plain = getattr(Transaction, name)

        def call(transaction: Transaction, *arguments: object) -> object:
            self.count += 1
            return plain(transaction, *arguments)

        return mock.patch.object(Transaction, name, call)

    def scanning(self) -> object:
        plain = Transaction.scan

        def scan(transaction: Transaction, *arguments: bytes) -> Iterator[object]:
            for found in plain(transaction, *arguments):  # type: ignore[arg-type]
                self.count += 1
                yield found

        return mock.patch.object(Transaction, "scan", scan)


def reads_of_a_start(rig: Rig) -> int:
    reads = Reads()
    rig.core.close()
    patches = [reads.scanning(), *(reads.counting(name) for name in ("get", "first", "last", "floor", "cursor"))]
    for patch in patches:
        patch.start()  # type: ignore[attr-defined]
    try:
        rig._start()
    finally:
        for patch in patches:
            patch.stop()  # type: ignore[attr-defined]
    return reads.count


def filled(rig: Rig, messages: int) -> Rig:
    """So much history, and the same few leases."""
    rig.topic(queues=2)
    rig.group()
    for start in range(0, messages, 500):
        rig.run(sending(*numbered(f"{start}.", 500)))
    while rows := rig.pop(4000):
        rig.ack(rows)
    rig.send(*numbered("last", 10))
    rig.pop(5)
    rig.attach(topic="t")
    rig.seal(1)
    return rig


@pytest.mark.mechanism("S2.18", "D.48")
@pytest.mark.slow
def test_a_start_never_reads_history(make_rig: MakeRig) -> None:
    small = reads_of_a_start(filled(make_rig("small"), 1_000))
    large = reads_of_a_start(filled(make_rig("large"), 100_000))
    assert small == large < 200


#: Counters may lack numbers that a later release counts, so an empty row of theirs can be read.
COUNTERS = ("stat", "tstat")


@pytest.mark.parametrize(
    ("table", "damage"),
    [
        (table, damage)
        for table in ("topic", "group", "sub", "poff", "name", "own", "tok", "ck", *COUNTERS)
        for damage in (b"", b"{", b"[]", b"\xff\xfe")
        if damage or table not in COUNTERS
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_the_start_and_by_the_check(
    make_rig: MakeRig, table: str, damage: bytes
) -> None:
    rig = make_rig()
    rig.topic()
    rig.group()
    rig.send(*numbered("m", 4))
    rig.pop(1)
    rig.attach(topic="t")
    rig.seal(1)
    key, sound = rig.read(table)[0]
    rig.write(lambda kv: kv.put(table, key, damage))
    with reading(rig.store) as kv:
        with pytest.raises(StartError, match=f"table '{table}'.*start on a backup"):
            loading.load(State(), kv)
        assert [finding for finding in check(kv) if f"table '{table}' cannot be read" in finding]
    rig.write(lambda kv: kv.put(table, key, sound))


@pytest.mark.mechanism("D.09", "D.24", "I.21")
def test_a_restart_changes_nothing(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group(max_attempts=2)
    rig.send(*numbered("m", 8))
    rig.attach(topic="t")
    rig.seal(1, max_messages=2)
    rows = rig.pop(4, client_id="c", attempt_id="1")
    rig.extend(rows[3:], 5 * SECOND)
    rig.release(rows[1:2], delay_ms=SECOND)
    rig.reject(rows[2:3])
    rig.restart()  # the format number says no more that a journal is in use
    before = {name: rig.read(name) for name in ("ck", "due", "poff", "stat", "rq", "own", "tok", "meta")}
    for _ in range(3):
        rig.restart()
    assert {name: rig.read(name) for name in before} == before
    assert [row.handle for row in rig.pop(4, client_id="c", attempt_id="1")] == [rows[0].handle, rows[3].handle]


@pytest.mark.mechanism("S0.26")
def test_the_subscription_of_a_group_is_made_once_at_its_first_look(rig: Rig) -> None:
    """Two first looks in one commit: the second finds the subscription that the first has made."""
    rig.topic("t", 2)
    rig.group("g", start_from="LATEST")
    rig.send("old")
    wait = ask.Available("t", "g")
    first, second = rig.run(wait, wait)
    assert first[0] == second[0] == 0
    rig.send("new0", "new1")
    pops = rig.run(*[ask.Pop("t", "g", max_messages=1)] * 2)
    assert [bodies(deliveries(popped)) for popped in pops] == [["new0"], ["new1"]]
    state = rig.core.state
    assert state.topic_groups[state.ids["t", "t"]] == (state.ids["g", "g"],)


def test_a_start_refuses_leases_whose_keys_do_not_ascend(rig: Rig) -> None:
    """LMDB looks for damage of its pages only where it must: it returns swapped keys as they are."""
    rig.pair()
    rig.send(*numbered("m", 3))
    for _ in range(3):
        rig.pop(1)
        rig.skip(SECOND)
    real = Transaction.keys

    def swapped(tx: Transaction, name: str) -> Iterator[memoryview]:
        keys = list(real(tx, name))
        return iter([keys[0], keys[2], keys[1]] if name == "due" else keys)

    with reading(rig.core.store, views=False) as kv:
        least, wrong, most = (bytes(key).hex() for key in kv.keys("due"))
        assert least < wrong < most
        with mock.patch.object(Transaction, "keys", swapped), pytest.raises(StartError, match=rf"row {wrong} .*'due'"):
            loading.load(State(), kv)
