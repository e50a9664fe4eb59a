"""`popmq check --repair`: rescues the readable part of a damaged store.

    lock the folder ─▶ read every sound page ─▶ new store ─▶ drop rows that stop a start ─▶ swap the files ─▶ check
                            │                                       │
                            └── a sentence for each page left out   └── a sentence for each row dropped

Each entry that can be read is kept as it is; one wrong bit of a row is corrected (datafile/checksums.py). Messages have
checksums, so a broker finds a damaged one when it reads it, and puts it into quarantine. The new store has the newest
format. The damaged file stays beside the new one, as `popmq.mdb.damaged`; a further one is numbered. Killed before the
swap, a repair has changed nothing; killed in it, `popmq.mdb` is the damaged file or the new one.
"""

import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Generator, Iterator
from typing import NamedTuple

from popmq_server.embedded.fsck import at_start
from popmq_server.embedded.fsck.check import CHECK_MAP_BYTES, check
from popmq_server.embedded.fsck.repair_journal import add_journal, put_aside
from popmq_server.embedded.invariants.broken import BrokenInvariant, BrokenStore
from popmq_server.embedded.state import loading
from popmq_server.embedded.state.rows import LITE_NAME
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store import keys
from popmq_server.embedded.store.checkpoint import decode
from popmq_server.embedded.store.datafile import checksums, last_commit
from popmq_server.embedded.store.datafile.own_files import foreign
from popmq_server.embedded.store.datafile.walk import rescue
from popmq_server.embedded.store.folder import (
    DATA_FILE,
    OUR_FILES,
    REPAIR_FOLDER,
    data_file,
    keep_owner,
    lock_folder,
    name_for_damaged,
    sync_folder,
)
from popmq_server.embedded.store.formats import FORMAT, JOURNALED, readable
from popmq_server.embedded.store.journal.folding import FORMAT_ROW, IDENTITY_ROW
from popmq_server.embedded.store.keys import (
    DUE_KEY,
    LITE_INDEX,
    QUEUE_KEY,
    SUB_OWNER,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import DiskFault, MapFull, Transaction, refused_by_system
from popmq_server.embedded.store.row_formats import Record, RowReader
from popmq_server.embedded.store.store import Store, reading
from popmq_server.embedded.store.table import Item
from popmq_server.errors import CommitFailed, StartError, UnreadableRow
from popmq_server.values.limits import (
    DELAYS_MS_DEFAULT,
    INVISIBLE_MS_DEFAULT,
    KEEP_MS_DEFAULT,
    MAX_ATTEMPTS_DEFAULT,
)
from popmq_server.values.records import Group, Topic

#: Bytes of entries in one commit of the new store.
_COMMIT_BYTES = 64 << 20
#: Room of the new store's map, as a multiple of the damaged file, and beside it.
_MAP_FACTOR, _MAP_MARGIN = 2, CHECK_MAP_BYTES
#: The greatest number that is taken for the format of a later release.
_LATER_FORMATS_MAX = 255
#: Databases of which every store in use has a row.
_FIRST = ("meta", "topic", "group", "name")
#: How often the rows that a start compares are looked at again after a repair of some of them.
_ROUNDS_MAX = 5
#: Rows that are kept although several bits are wrong: without them more would be lost than is damaged.
_KEPT = frozenset({"meta", "topic", "group", "queue", "poff", "stat", "tstat", "cq", "due"})


class Repaired(NamedTuple):
    """`told`: a sentence for each entry that was dropped or changed, then for each invariant that is still broken.

    `damaged`: the name that the damaged file has now.
    """

    told: list[str]
    damaged: str


def repair_folder(folder: pathlib.Path) -> Repaired:
    """Replaces the data file by one with all readable entries.

    Raises StartError: no data folder, in use, of a later release, no room. Then nothing has changed.
    """
    data, beside = data_file(folder, rescues=True), folder / REPAIR_FOLDER
    _refuse_foreign(beside)
    lock = lock_folder(folder)
    try:
        shutil.rmtree(beside, ignore_errors=True)
        try:
            lost = last_commit.missing(folder, data)
            told = [*([lost] if lost else []), *_rebuild(data, beside)]
        except (MapFull, DiskFault, CommitFailed, OSError) as error:
            why = refused_by_system(error)[1] or repr(error)
            raise StartError(f"the new store cannot be written, {DATA_FILE} is as it was: {why}") from error
        damaged = _swap(folder, data, beside / DATA_FILE)
        put_aside(folder, damaged)
        return Repaired(told, damaged)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        lock.close()


def _refuse_foreign(beside: pathlib.Path) -> None:
    """Refuses a folder that no repair made: it would be removed."""
    if not os.path.lexists(beside):
        return
    is_folder = beside.is_dir() and not beside.is_symlink()
    if not is_folder or any(path.name not in OUR_FILES for path in beside.iterdir()):
        raise foreign(beside)


def _swap(folder: pathlib.Path, data: pathlib.Path, new: pathlib.Path) -> str:
    """Puts the new file in the place of the damaged one; returns the name that the damaged one keeps.

    There is a data file at each moment: after a kill between two renames, a start would make an empty one.
    """
    damaged = name_for_damaged(folder)
    try:
        os.link(data, folder / damaged, follow_symlinks=False)
    except OSError:  # a file system without hard links
        os.replace(data, folder / damaged)
    sync_folder(folder)
    os.replace(new, data)
    sync_folder(folder)
    return damaged


def _rebuild(data: pathlib.Path, beside: pathlib.Path) -> Iterator[str]:
    """Fills a new store with the entries that can be read."""
    store = Store(beside, _MAP_FACTOR * data.stat().st_size + _MAP_MARGIN, "full")
    try:
        _refuse_later(data, store.page_bytes)
        yield from _fill(store, data)
        yield from add_journal(store, data)
        yield from _drop_unreadable_checkpoints(store)
        yield from _drop_lost_leases(store)
        yield from _mend_unreadable_rows(store)
        yield from _mend_names(store)
        yield from _drop_lost_schedules(store)
        yield from _mend_invariants(store)
        with reading(store) as kv:
            yield from check(kv)
        with open(beside / DATA_FILE, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)) as file:
            keep_owner(file.fileno(), data.stat())
    finally:
        store.close()


def _refuse_later(data: pathlib.Path, page_bytes: int) -> None:
    """Refuses the store of a later release, which would be rewritten as one of this release.

    The number has no checksum. Flipped bits give any number, but most of them are greater than those of later releases.
    """
    with open(data, "rb") as file:
        rows = [found for found in rescue(file.fileno(), page_bytes, "meta") if not isinstance(found, str)]
    for _, key, value in rows:
        number = int.from_bytes(value, "big") & ~JOURNALED
        if key == FORMAT_ROW and FORMAT < number <= _LATER_FORMATS_MAX:
            readable(str(data.parent), number)


def _fill(store: Store, data: pathlib.Path) -> Iterator[str]:
    kv, size = store.begin(), 0
    kv.delete("meta", LITE_INDEX)
    with open(data, "rb") as file:
        checked = _has_checksums(file.fileno(), store.page_bytes)
        for found in rescue(file.fileno(), store.page_bytes):
            if isinstance(found, str):
                yield found
                continue
            name, key, value = found
            if name not in keys.DATABASES or not key:
                yield f"database {name!r} is unknown: its entry {key.hex()} is left out"
                continue
            if name in ("lidx", "res") or (name == "meta" and key in (LITE_INDEX, FORMAT_ROW, IDENTITY_ROW)):
                continue  # entries may be missing: the next start builds `lidx` again, and a job `res`
            if checked and not checksums.is_bare(name, key):
                row = yield from _without_checksum(name, key, value)
                if row is None:
                    continue
                key, value = row
            put = kv.put_bare if name == "meta" and key in checksums.BARE_META else kv.put
            put(name, key, value)
            size += len(key) + len(value)
            if size > _COMMIT_BYTES:
                kv.commit()
                kv, size = store.begin(), 0
    kv.commit()


def _has_checksums(handle: int, page_bytes: int) -> bool:
    """Whether the rows of a file have checksums: a row of the first databases matches its own.

    The format number says it too, and may be damaged.
    """
    rows = (found for name in _FIRST for found in rescue(handle, page_bytes, name))
    return any(not isinstance(found, str) and checksums.is_whole(*found[1:]) for found in rows)


def _without_checksum(name: str, key: bytes, stored: bytes) -> Generator[str, None, tuple[bytes, bytes] | None]:
    """(key, value) of a row with a checksum; None if it is dropped. Yields a sentence about a damaged one."""
    if checksums.is_whole(key, stored):
        return key, stored[: -checksums.BYTES]
    if (row := checksums.corrected(key, stored)) is not None:
        yield f"corrected one bit in {'the key' if row[0] != key else 'a row'}: {row[0].hex()} of {name!r}"
        return row
    if name in _KEPT:
        yield f"a row does not match its checksum, and is kept; compare what it says: {key.hex()} of {name!r}"
        return key, stored[: -checksums.BYTES]
    yield f"dropped a row that does not match its checksum: {key.hex()} of {name!r}"
    return None


def _drop_unreadable_checkpoints(store: Store) -> Iterator[str]:
    with reading(store) as kv:
        lost = [key for key, value in kv.scan("ck") if not _is_checkpoint(key, value)]
    for key in lost:
        yield from _drop(store, "ck", key, "a CheckPoint that cannot be read")


def _is_checkpoint(key: bytes, value: memoryview) -> bool:
    try:
        decode(U64.unpack(key)[0], value)
    except (*RowReader.ERRORS, BrokenInvariant):
        return False
    return True


def _drop_lost_leases(store: Store) -> Iterator[str]:
    """Drops leases without their CheckPoint, which stop a start: their messages are unknown."""
    with reading(store) as kv:
        lost = [
            key
            for key in kv.scan_keys("due")
            if len(key) == DUE_KEY.size
            and DUE_KEY.unpack(key)[2] != SUB_OWNER
            and kv.get("ck", U64.pack(DUE_KEY.unpack(key)[1])) is None
        ]
    for key in lost:
        yield from _drop(store, "due", key, "a lease whose CheckPoint is gone")


def _mend_unreadable_rows(store: Store) -> Iterator[str]:
    """Mends or drops the rows that a start names, one after the other."""
    while True:
        try:
            with reading(store) as kv:
                loading.load(State(), kv)
        except UnreadableRow as row:
            if not row.key:
                raise
            yield from _mend_or_drop(store, row)
        except BrokenStore as found:
            yield from _mend_lease(store, found.broken)
        else:
            return


def _mend_lease(store: Store, broken: BrokenInvariant) -> Iterator[str]:
    """Mends a row of `due` that breaks an invariant, or drops it, and its CheckPoint if that has no other lease."""
    if broken.row is None or broken.row[0] != "due":
        raise BrokenStore(broken)
    key, kv = broken.row[1], store.begin()
    mended, ck_id = at_start.mended_lease(kv, key), DUE_KEY.unpack(key)[1]
    kv.delete("due", key)
    if mended is not None:
        kv.put("due", *mended)
    elif all(DUE_KEY.unpack(other)[1] != ck_id for other in kv.scan_keys("due")):
        kv.delete("ck", U64.pack(ck_id))
    kv.commit()
    yield f"mended a lease: {broken}"


def _mend_invariants(store: Store) -> Iterator[str]:
    """Mends the rows that a start compares with others. A mended one may show another, so some rounds are allowed."""
    for _ in range(_ROUNDS_MAX):
        state = State()
        with reading(store) as kv:
            loading.load(state, kv)
            found = list(at_start.findings(kv, state))
        if not found:
            return
        for finding in found:
            kv = store.begin()
            if finding.mended is None:
                kv.delete(*finding.row)
            else:
                kv.put(*finding.row, finding.mended)
            kv.commit()
            yield f"{'dropped' if finding.mended is None else 'mended'} a row: {finding.broken}"


def _mend_names(store: Store) -> Iterator[str]:
    """Makes each name lead to the topic or group that has it, and drops other names."""
    state = State()
    with reading(store) as kv:
        loading.load(state, kv)
        found = {key: bytes(value) for key, value in kv.scan("name") if not key.startswith(LITE_NAME)}
    named = {("g" + group.name).encode(): U32.pack(group_id) for group_id, group in state.groups.items()}
    for topic_id, topic in state.topics.items():
        if not topic.parent_id:
            named[("t" + topic.name).encode()] = U32.pack(topic_id)
    for key in found.keys() | named.keys():
        if found.get(key) == named.get(key):
            continue
        yield from _drop(store, "name", key, "a name")
        if key in named:
            kv = store.begin()
            kv.put("name", key, named[key])
            kv.commit()
            yield f"restored: the name {key[1:].decode(errors='replace')!r}"


def _drop_lost_schedules(store: Store) -> Iterator[str]:
    """Drops schedules without a message, and messages without a schedule."""
    with reading(store) as kv:
        named, whole = {bytes(key) for key in kv.scan_keys("cron")}, {bytes(key) for key in kv.scan_keys("cronmsg")}
    for key in sorted(named - whole):
        yield from _drop(store, "cron", key, "a schedule whose message is gone")
    for key in sorted(whole - named):
        yield from _drop(store, "cronmsg", key, "the message of a schedule that is gone")


def _mend_or_drop(store: Store, row: UnreadableRow) -> Iterator[str]:
    with reading(store) as kv:
        raw, found = mended(kv, row.table, row.key), bytes(kv.get(row.table, row.key) or b"")
    if raw is None or raw == found:
        yield from _drop(store, row.table, row.key, "a row that cannot be read")
        return
    kv = store.begin()
    kv.put(row.table, row.key, raw)
    kv.commit()
    yield f"settings of a {row.table} are damaged; compare them: {found.decode(errors='replace')} is now {raw.decode()}"


def _drop(store: Store, table: str, key: bytes, why: str) -> Iterator[str]:
    kv = store.begin()
    kv.delete(table, key)
    kv.commit()
    yield f"dropped {why}: {key.hex()} of {table!r}"


def main(folder: pathlib.Path) -> int:
    """`popmq check --repair DIR`: 0 no findings, 1 findings, 78 the repair was not possible."""
    try:
        told, damaged = repair_folder(folder)
    except StartError as error:
        print(f"popmq: {error}", file=sys.stderr)
        return 78
    for sentence in told:
        print(sentence)
    if not told:
        print(f"nothing is damaged: {folder / DATA_FILE} was written anew, the file before is {damaged}")
        return 0
    count = "1 finding" if len(told) == 1 else f"{len(told)} findings"
    print(f"{folder / DATA_FILE} has all that could be read, the damaged file is {damaged}: {count}")
    return 1


# ── Damaged rows of topics and groups: each readable field and the name are kept, and defaults are added ──────────────
#
# Without its row, a topic would lose its messages and a group its positions.

#: Defaults for fields that `_group` of state/rows.py does not fill in.
_GROUP = {
    "max_attempts": MAX_ATTEMPTS_DEFAULT,
    "delays_ms": DELAYS_MS_DEFAULT,
    "invisible_ms": INVISIBLE_MS_DEFAULT,
    "share_number": 0,
    "start_from": "EARLIEST",
    "start_ms": 0,
    "exclusive_owner": False,
    "created_ms": 0,
}
_TOPIC = {"by_age": False, "keep_ms": KEEP_MS_DEFAULT, "created_ms": 0}
_KINDS: dict[str, tuple[str, Record]] = {"topic": ("t", Topic), "group": ("g", Group)}


def mended(kv: Transaction, table: str, key: bytes) -> bytes | None:
    """The row of a topic or a group as far as it can be read; None for rows of other tables, and without a name."""
    raw = kv.get(table, key)
    if table not in _KINDS or raw is None or len(key) != U32.size:
        return None
    kind, record = _KINDS[table]
    text = bytes(raw).decode(errors="replace")
    defaults = _GROUP if record is Group else _TOPIC | {"queues": _queues(kv, key)}
    row = defaults | dict(_readable(record, text))
    row[f"{table}_id"] = U32.unpack(key)[0]
    row["name"] = _name(kv, kind, key) or row.get("name")
    return json.dumps(row, ensure_ascii=False).encode() if row["name"] else None


def _readable(record: Record, text: str) -> Iterator[tuple[str, Item]]:
    """The fields that can be read, of the kind that the record expects."""
    for name in record._fields:
        found = re.search(f'"{name}": ', text)
        if found is None:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(text, found.end())
        except ValueError:
            continue
        if type(value) in _EXPECTED[record.__annotations__[name]]:
            yield name, value


_EXPECTED: dict[object, tuple[type, ...]] = {str: (str,), int: (int,), bool: (bool,), tuple[int, ...]: (list,)}
_EXPECTED |= {
    kind: (int,) for record in (Topic, Group) for kind in record.__annotations__.values() if kind not in _EXPECTED
}


def _name(kv: Transaction, kind: str, key: bytes) -> str:
    """The name that has this id."""
    for name, found in kv.scan("name", kind.encode()):
        if found == key:
            return name[1:].decode(errors="replace")
    return ""


def _queues(kv: Transaction, key: bytes) -> int:
    """How many queues of a topic have messages: at least 1."""
    keys = (found for table in ("queue", "cq") for found in kv.scan_keys(table, key))
    return max((QUEUE_KEY.unpack(found[: QUEUE_KEY.size])[1] + 1 for found in keys), default=1)
