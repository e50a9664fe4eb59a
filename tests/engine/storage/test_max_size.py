"""The limit of the data file moves while the broker runs: what waits for room goes on; a failure changes nothing."""

import logging
import os
import resource
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.store.backup import Copy
from popmq_server.embedded.store.store import SET_SIZE_ROW, Store
from popmq_server.embedded.writer.core import Core
from popmq_server.errors import CommitFailed, Refused, StartError
from popmq_server.options import MAX_SIZE_MIN
from tests.engine.conftest import MakeRig
from tests.engine.faults import Fault, failing
from tests.engine.rig import SECOND, Rig, bodies, message, refusal
from tests.known import known

MIB = 1 << 20
SMALL = 32 * MIB


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")


def set_size(rig: Rig, size: int) -> str:
    """ "" or why not."""
    return refusal(rig.run(ask.SetMaxSize(size))[0])


def send_large(rig: Rig, number: int) -> str:
    entry = message("x" * 60_000, f"m{number}")
    return refusal(rig.run(ask.Send("t", (entry,), "", 0, len(entry.data)))[0])


@pytest.fixture
def full(make_rig: MakeRig) -> Rig:
    """As full as sends may make it; all of it leased by a group with one attempt."""
    rig = make_rig(map_bytes=SMALL)
    rig.topic()
    rig.group(max_attempts=1)
    number = 0
    while not send_large(rig, number):
        number += 1
    while rig.popped(max_messages=10, max_bytes=1 << 30).rows:
        pass
    return rig


@pytest.mark.slow
def test_a_larger_limit_holds_for_the_commands_of_the_same_group(full: Rig) -> None:
    entry = message("x" * 60_000, "more")
    send = ask.Send("t", (entry,), "", 0, len(entry.data))
    assert refusal(full.run(send)[0]) == "STORAGE_FULL"
    assert [refusal(result) for result in full.run(send, ask.SetMaxSize(2 * SMALL), send)] == ["", "", ""]
    assert full.store.map_bytes == 2 * SMALL


@pytest.mark.slow
def test_dead_letters_without_room_are_written_and_sends_work_within_a_second_of_a_larger_limit(full: Rig) -> None:
    full.skip(120 * SECOND)
    for _ in range(200):
        full.run()
    dead_blocked = known(full.numbers().dead_blocked)
    assert dead_blocked > 50
    assert send_large(full, 9_000) == "STORAGE_FULL"
    assert set_size(full, 8 * SMALL) == ""
    assert send_large(full, 9_000) == ""
    full.skip(SECOND)
    for _ in range(200):
        full.run()
    numbers = full.numbers()
    assert (numbers.dead_blocked, numbers.in_flight) == (0, 0)
    assert numbers.dead > dead_blocked
    assert full.findings() == []


@pytest.mark.parametrize("size", [2 * SMALL, 1 << 40, SMALL - 2 * MIB])
def test_stored_messages_are_there_after_each_limit_and_a_crash(make_rig: MakeRig, size: int) -> None:
    rig = make_rig(map_bytes=SMALL)
    rig.pair()
    rig.send("before")
    assert set_size(rig, size) == ""
    rig.send("after")
    rig.crash()
    assert rig.store.map_bytes == size
    rows = rig.pop()
    assert bodies(rows) == ["before", "after"]
    assert rig.ack(rows) == [None, None]
    assert rig.findings() == []


def test_a_set_limit_holds_until_the_flag_names_another_one(tmp_path: Path) -> None:
    def started(size: int, named: bool = True, then: int = 0) -> int:
        core = Core(Store(tmp_path / "data", size, "none", named=named), FakeClock())
        if then:
            assert core.run([ask.SetMaxSize(then)]).results == [None]
        found = core.store.map_bytes
        core.close()
        return found

    assert started(SMALL, named=False) == SMALL
    assert started(SMALL, named=False, then=3 * SMALL) == 3 * SMALL
    assert started(SMALL, named=False) == 3 * SMALL, "no flag"
    assert started(2 * SMALL) == 2 * SMALL, "the flag was added later"
    assert started(SMALL, named=False) == SMALL, "what the flag has overruled is forgotten"
    assert started(2 * SMALL, then=5 * SMALL) == 5 * SMALL
    assert started(2 * SMALL) == 5 * SMALL, "the flag that stood there when it was set"
    assert started(SMALL, named=False) == 5 * SMALL, "the flag was taken away"
    assert started(4 * SMALL) == 4 * SMALL
    assert started(2 * SMALL) == 2 * SMALL


@pytest.mark.parametrize("damaged", [b"{", b"{}", b"[1]", b'{"size": null, "named": 0}', b"\xff"])
def test_a_damaged_limit_is_reported_and_the_flag_holds(
    tmp_path: Path, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path, 1 << 26, "none")
    kv = store.begin()
    kv.put_bare("meta", SET_SIZE_ROW, damaged)
    kv.commit()
    store.close()
    with caplog.at_level(logging.WARNING, "popmq"):
        store = Store(tmp_path, 1 << 27, "none")
    assert store.map_bytes == 1 << 27
    assert "is damaged" in caplog.text
    store.close()


@pytest.mark.slow
def test_a_limit_below_the_used_size_is_refused_and_changes_nothing(full: Rig) -> None:
    result = full.run(ask.SetMaxSize(MAX_SIZE_MIN))[0]
    assert isinstance(result, Refused)
    assert (result.code, result.field) == ("INVALID_FIELD", "map_bytes")
    assert result.action
    assert full.store.map_bytes == SMALL
    full.crash()
    assert full.store.map_bytes == SMALL


def test_a_start_with_a_limit_below_the_used_size_is_refused(full: Rig) -> None:
    """Nothing could free a page then: not even an ack or a delete could be written."""
    full.core.close()
    with pytest.raises(StartError, match=r"is 16,777,216 bytes, and it has \d\d,\d{3},\d{3} in use: .* --max-size"):
        Rig(full.folder, map_bytes=MAX_SIZE_MIN)
    full._start()
    assert full.store.map_bytes == SMALL


@pytest.mark.slow
def test_a_lower_limit_holds_for_the_next_send(make_rig: MakeRig) -> None:
    """While there is plenty the fill is measured now and then only."""
    rig = make_rig(map_bytes=8 << 30)
    rig.topic()
    for number in range(500):
        assert send_large(rig, number) == ""
    assert set_size(rig, SMALL) == ""
    assert send_large(rig, 500) == "STORAGE_FULL"


@pytest.mark.slow
def test_a_file_longer_than_a_lower_limit_takes_no_more_than_the_limit(make_rig: MakeRig) -> None:
    rig = make_rig(map_bytes=8 * SMALL)
    rig.topic()
    rig.topic("old")
    for number in range(1000):
        entry = message("x" * 60_000, f"m{number}")
        rig.do(ask.Send("old", (entry,), "", 0, len(entry.data)))
    rig.do(ask.DeleteTopic("old"))
    rig.settle()
    assert rig.store.pages_reached * rig.store.page_bytes > 50 * MIB
    assert set_size(rig, SMALL) == ""
    number = 0
    while not send_large(rig, number):
        number += 1
    with rig.reading() as kv:
        used = kv.used_pages() * rig.store.page_bytes
    assert 0.7 * SMALL < used < 0.9 * SMALL
    assert rig.findings() == []


def test_the_map_is_never_moved_under_an_open_transaction(make_rig: MakeRig) -> None:
    rig = make_rig(map_bytes=SMALL)
    rig.pair()
    with rig.reading() as kv:
        with pytest.raises(RuntimeError, match="open transaction"):
            rig.store.set_max_size(2 * SMALL)
        assert kv.used_pages() > 0
    assert rig.store.map_bytes == SMALL
    assert set_size(rig, 2 * SMALL) == ""


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.MAP])
def test_a_limit_that_cannot_be_stored_changes_nothing(make_rig: MakeRig, fault: Fault) -> None:
    rig = make_rig(map_bytes=SMALL)
    rig.pair()
    with failing(rig.store, fault):
        assert set_size(rig, 2 * SMALL) == "STORAGE_FULL"
    assert (rig.store.map_bytes, rig.store._env.info()["map_size"]) == (SMALL, SMALL)
    rig.send("a")
    rig.crash()
    assert rig.store.map_bytes == SMALL
    assert bodies(rig.pop()) == ["a"]


def test_a_sick_disk_ends_the_broker_and_the_limit_is_as_it_was(make_rig: MakeRig) -> None:
    rig = make_rig(map_bytes=SMALL)
    rig.pair()
    with failing(rig.store, Fault.IO), pytest.raises(CommitFailed):
        rig.run(ask.SetMaxSize(2 * SMALL))
    rig.crash()
    assert rig.store.map_bytes == SMALL


def test_a_limit_beyond_the_address_space_is_refused_and_the_broker_goes_on(make_rig: MakeRig) -> None:
    rig = make_rig(map_bytes=SMALL)
    rig.pair()
    rig.send("a")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, limits[1]))
    try:
        result = rig.run(ask.SetMaxSize(2 << 40))[0]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert isinstance(result, Refused)
    assert (result.code, "no mapping" in result.message) == ("INVALID_FIELD", True)
    assert rig.store.map_bytes == SMALL
    rig.send("b")
    assert bodies(rig.pop()) == ["a", "b"]
    assert set(os.listdir(rig.folder)) - {"popmq.journal"} == {"popmq.lock", "popmq.mdb", "popmq.mdb-lock"}


def test_a_start_with_a_limit_beyond_the_address_space_says_the_cure(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, limits[1]))
    try:
        with pytest.raises(StartError, match="name a smaller --max-size, or raise ulimit -v"):
            Store(tmp_path, 2 << 40, "none")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_the_largest_limit_takes_no_disk(make_rig: MakeRig) -> None:
    rig = make_rig(map_bytes=SMALL)
    before = os.stat(rig.folder / "popmq.mdb").st_size
    if set_size(rig, 8 << 40):
        pytest.skip("this file system has no such files")
    assert os.stat(rig.folder / "popmq.mdb").st_size - before < MIB


@pytest.mark.slow
def test_a_backup_goes_on_while_the_limit_is_raised_and_has_more_room(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig(map_bytes=SMALL)
    rig.pair()
    for number in range(100):
        assert send_large(rig, number) == ""
    rig.store.fold()
    copy = Copy(rig.store)
    data = copy.read()
    number = 0
    while not copy.cost():
        number += 1
        assert send_large(rig, 1000 + number) == ""
    assert set_size(rig, 8 * SMALL) == ""
    assert copy.cost() == ""
    for more in range(200):
        assert send_large(rig, 2000 + more) == ""
    while piece := copy.read():
        data += piece
    copy.close()
    restored = tmp_path / "restored"
    restored.mkdir()
    (restored / "popmq.mdb").write_bytes(data)
    assert check_folder(restored) == []
    other = Rig(restored)
    assert len(other.browse("t").rows) == 100
    other.core.close()
    assert rig.findings() == []


def test_check_and_compact_leave_a_set_limit_as_it_is(make_rig: MakeRig) -> None:
    rig = make_rig(map_bytes=SMALL)
    rig.pair()
    rig.send("a")
    assert set_size(rig, 3 * SMALL) == ""
    rig.core.close()
    assert check_folder(rig.folder) == []
    compact_folder(rig.folder)
    assert check_folder(rig.folder) == []
    rig._start()
    assert rig.store.map_bytes == 3 * SMALL
    assert bodies(rig.pop()) == ["a"]
