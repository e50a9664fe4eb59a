"""What lets a later release change the store: numbers, versions, and rows that keep what they do not know."""

import json
import zlib
from pathlib import Path
from typing import Any

import lmdb
import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.store import formats
from popmq_server.embedded.store.keys import U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError
from popmq_server.values import message
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, numbered
from tests.stores.kept import put


def put_format(rig: Rig, number: int) -> None:
    rig.write(lambda kv: kv.put_bare("meta", b"format", U32.pack(number)))


def stored_format(folder: Path) -> int:
    """Read without opening the store, since opening may write it."""
    with (
        lmdb.open(str(folder / "popmq.mdb"), subdir=False, readonly=True, lock=False, max_dbs=64) as env,
        env.begin() as txn,
    ):
        found = txn.get(b"format", db=env.open_db(b"meta", txn, create=False))
        assert found is not None
        return int(U32.unpack(found)[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_formats_are_numbered_without_gaps_and_each_says_what_it_changed() -> None:
    assert [known.number for known in formats.FORMATS] == list(range(1, formats.FORMAT + 1))
    assert all(known.changed for known in formats.FORMATS)


@pytest.mark.slow
def test_a_new_store_is_of_the_newest_format(folder: Path) -> None:
    Rig(folder).core.close()
    assert stored_format(folder) == formats.FORMAT


def test_a_store_of_a_newer_format_is_refused_by_name_and_stays_as_it_is(folder: Path) -> None:
    rig = Rig(folder)
    put_format(rig, formats.FORMAT + 1)
    rig.core.close()
    for opened in (Rig, check_folder, compact_folder, repair_folder):
        with pytest.raises(
            StartError, match=rf"store format {formats.FORMAT + 1}, this release reads .* {formats.FORMAT}:"
        ):
            opened(folder)
    assert stored_format(folder) == formats.FORMAT + 1


def test_a_damaged_format_number_is_repaired(folder: Path) -> None:
    """A flipped bit makes a number of it that no release will have."""
    rig = Rig(folder)
    put_format(rig, formats.FORMAT + (1 << 20))
    rig.core.close()
    with pytest.raises(StartError, match="store format"):
        Rig(folder)
    assert repair_folder(folder).told == []
    assert stored_format(folder) == formats.FORMAT


def test_a_file_that_has_no_format_number_is_refused_and_stays_as_it_is(folder: Path) -> None:
    rig = Rig(folder)

    def forget(kv: Transaction) -> None:
        kv.delete("meta", b"format")

    rig.write(forget)
    rig.core.close()
    before = (folder / "popmq.mdb").read_bytes()
    with pytest.raises(StartError, match="no format number"):
        Rig(folder)
    assert (folder / "popmq.mdb").read_bytes() == before


def test_the_number_is_rewritten_only_after_the_state_was_read(folder: Path) -> None:
    put(folder, 1)
    rows: list[tuple[bytes, bytes]] = []
    mend(folder, lambda kv: rows.extend(kv.copies("topic")))
    key, row = rows[0]
    mend(folder, lambda kv: kv.put("topic", key, b"{"))
    with pytest.raises(StartError, match="Expecting"):
        Rig(folder)
    assert stored_format(folder) == 1, "the release that wrote it can still open it"
    assert [finding for finding in check_folder(folder) if "of table 'topic' cannot be read" in finding]
    assert stored_format(folder) == 1, "the check changes nothing"
    mend(folder, lambda kv: kv.put("topic", key, row))
    assert check_folder(folder) == []
    assert stored_format(folder) == 1, "looking changes nothing"
    Rig(folder).core.close()
    assert stored_format(folder) == formats.CHECKSUMS_FROM - 1, "an older store gets no checksums"


def mend(folder: Path, change: Any) -> None:
    store = Store(folder, 1 << 28, "none")
    kv = store.begin()
    change(kv)
    kv.commit()
    store.close()


def test_a_checkpoint_of_an_unknown_version_is_refused_by_name(folder: Path) -> None:
    rig = Rig(folder)
    rig.pair()
    rig.send("a")
    rig.pop()
    key, value = rig.read("ck")[0]
    rig.write(lambda kv: kv.put("ck", key, b"\x63" + value[1:]))
    rig.core.close()
    with pytest.raises(StartError, match="CheckPoint 1 has version 99"):
        Rig(folder)


def test_a_record_has_a_byte_for_its_version_and_this_release_reads_version_0_only() -> None:
    head, data = message.record(7, 1, b"x")
    raw = head + data
    assert raw[4] == 0
    assert message.read_record(memoryview(raw), 7) == (1, b"x")
    other = b"\x01" + raw[5:]
    assert message.read_record(memoryview(U32.pack(zlib.crc32(other)) + other), 7) is None


@pytest.mark.slow
def test_no_message_is_so_long_that_its_length_reaches_the_version() -> None:
    names = message.KEYS_MAX * message.KEY_BYTES_MAX + message.MESSAGE_ID_BYTES_MAX + message.TAG_BYTES_MAX
    assert message.BODY_BYTES_MAX + 2 * message.PROPERTIES_BYTES_MAX + names < message.LENGTH_END / 2


# ── Rows keep what they do not know ──────────────────────────────────────────────────────────────────────────────────


def every_row(rig: Rig) -> None:
    """A row in each database of settings."""
    rig.topic()
    rig.group()
    rig.send(*numbered("m", 8))
    rig.do(ask.SetConsumeMode("t", "g", "POP"))
    rig.attach(topic="t", lease_ms=HOUR)
    rig.seal(1, max_messages=2)


def change_every_row(rig: Rig) -> None:
    """Writes each row again, by calls of users."""
    rig.do(ask.UpdateTopic("t", 2, None))
    rig.do(ask.UpdateGroup("g", {"max_attempts": 3}))
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.do(ask.SetConsumeMode("t", "g", "POP"))
    rig.do(ask.RenewOwner("g", "o", 1, 2 * HOUR))


def add_field(rig: Rig, name: str) -> dict[bytes, dict[str, Any]]:
    """What a later release would write: a field that this one does not know, in every row."""
    rows = {key: json.loads(value) | {"later": [1, "ü"]} for key, value in rig.read(name)}

    def change(kv: Transaction) -> None:
        for key, row in rows.items():
            kv.put(name, key, json.dumps(row, ensure_ascii=False).encode())

    rig.write(change)
    return rows


@pytest.mark.parametrize("name", ["topic", "group", "sub", "own", "tok"])
def test_a_field_that_only_a_later_release_knows_is_kept_when_its_row_is_written_again(folder: Path, name: str) -> None:
    rig = Rig(folder)
    every_row(rig)
    before = add_field(rig, name)
    assert before
    rig.restart()
    change_every_row(rig)
    after = {key: json.loads(value) for key, value in rig.read(name)}
    assert [row["later"] for row in after.values()] == [[1, "ü"]] * len(before)
    if name != "tok":  # a token's row is written once
        assert after != before, "the rows were written again"
    assert rig.findings() == []
    rig.restart()
    assert rig.findings() == []
    rig.core.close()


def test_a_row_that_is_deleted_takes_its_unknown_fields_with_it(folder: Path) -> None:
    rig = Rig(folder)
    rig.topic()
    add_field(rig, "topic")
    rig.restart()
    rig.do(ask.DeleteTopic("t"))
    rig.topic()
    rig.advance(MINUTE)
    assert [json.loads(value).get("later") for _, value in rig.read("topic")] == [None]
    rig.group()
    rig.send("a")
    assert bodies(rig.pop()) == ["a"]
    rig.core.close()
